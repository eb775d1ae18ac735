"""Puts that share a transaction finish with its commit, not before."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.storage.engine import Transact
from slumberd.storage.episodes.rows import Row
from slumberd.storage.episodes.writes import GroupCommit, Waiting
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine
from slumberd.storage.sqlite.session import Pragmas

pytestmark = pytest.mark.integration

ROW = Row("e1", "/user/u/session/s/agent/a/", b"{}", "", b"{}")
Flush = Callable[[Transact], None]


class ObservedEngine(SQLiteEpisodeEngine):
    """An engine that shows each statement of a transaction, and can refuse to queue one.

    Attributes:
        trace: Called with each statement, before it runs.
        refusals: How many flushes are not queued, from the first on.
        requests: How many flushes were requested.
    """

    def __init__(self, path: Path, pragmas: Pragmas) -> None:
        super().__init__(path, pragmas)
        self.trace: Callable[[str], object] | None = None
        self.refusals = 0
        self.requests = 0

    async def post(self, flush: Flush) -> None:
        self.requests += 1
        await asyncio.sleep(0)  # other puts start to wait
        if self.requests <= self.refusals:
            raise OSError("it cannot be opened")
        await super().post(flush)

    def _transact(self, connection: sqlite3.Connection, *given: Any, **named: Any) -> Any:
        connection.set_trace_callback(self.trace)
        return super()._transact(connection, *given, **named)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[ObservedEngine]:
    opened = ObservedEngine(tmp_path / "memory.db", Pragmas())
    await opened.bootstrap()
    yield opened
    await opened.close()


async def test_put_is_not_finished_until_its_transaction_is_committed(
    engine: ObservedEngine,
) -> None:
    """A put that another flush wakes must continue to wait."""
    statements: list[tuple[str, bool]] = []
    group = GroupCommit(engine)
    waiting: list[Waiting] = []

    def record(sql: str) -> None:
        statements.append((sql, waiting[0].finished))

    async def remember_and_post(flush: Flush) -> None:
        waiting.append(group._queue[0])
        engine.trace = record
        await ObservedEngine.post(engine, flush)

    engine.post = remember_and_post  # type: ignore[method-assign] # it sees the queue of the group

    await group.put(ROW)

    assert statements[-1] == ("COMMIT", False)


async def test_put_requests_a_flush_when_the_requested_flush_fails(
    engine: ObservedEngine,
) -> None:
    engine.refusals = 1
    group = GroupCommit(engine)

    first, second = await asyncio.gather(
        group.put(ROW._replace(id="e0")), group.put(ROW), return_exceptions=True
    )

    assert isinstance(first, OSError)
    assert (second, engine.requests) == ("new", 2)
    with closing(sqlite3.connect(engine.path)) as connection:
        assert connection.execute("SELECT id FROM episodes").fetchall() == [("e1",)]

"""Puts that share a transaction finish with its commit, not before."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.storage.episodes import log
from slumberd.storage.episodes.rows import Row
from slumberd.storage.episodes.writes import GroupCommit
from slumberd.storage.sqlite.connection import Pragmas, connect, transaction

pytestmark = pytest.mark.unit

ROW = Row("e1", "/user/u/session/s/agent/a/", b"{}", "", b"{}")
Work = Callable[[sqlite3.Connection], None]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path / "memory.db", Pragmas(), access="write")) as connection:
        with transaction(connection):
            log.install(connection)
        yield connection


async def test_put_is_not_finished_until_its_transaction_is_committed(
    connection: sqlite3.Connection,
) -> None:
    """A put that another flush wakes must continue to wait."""
    statements: list[tuple[str, bool]] = []
    group = GroupCommit(lambda _: None, lambda: None)

    async def post(work: Work) -> None:
        put = group._queue[0]
        connection.set_trace_callback(lambda sql: statements.append((sql, put.finished)))
        work(connection)

    await group.put(ROW, post)

    assert statements[-1] == ("COMMIT", False)


async def test_put_requests_a_flush_when_the_requested_flush_fails(
    connection: sqlite3.Connection,
) -> None:
    group = GroupCommit(lambda _: None, lambda: None)
    requests: list[str] = []

    async def post(work: Work) -> None:
        requests.append("again" if requests else "first")
        await asyncio.sleep(0)  # the second put starts to wait
        if requests == ["first"]:
            raise OSError("it cannot be opened")
        work(connection)

    first, second = await asyncio.gather(
        group.put(ROW._replace(id="e0"), post), group.put(ROW, post), return_exceptions=True
    )

    assert isinstance(first, OSError)
    assert (second, requests) == (None, ["first", "again"])
    assert connection.execute("SELECT id FROM episodes").fetchall() == [("e1",)]

"""A watch calls back soon after a commit, and survives a file that cannot be read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from slumberd.sql_statements import statement
from slumberd.storage.sqlite import watch as watching
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.watch import Watch
from tests.support.builders import triple
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

NEVER = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "some.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (n)")
    return tmp_path / "some.db"


async def test_commit_of_another_connection_is_noticed(path: Path) -> None:
    called = Event()

    with closing(sqlite3.connect(path)) as writer:
        async with Watch(path, called.set, poll_seconds=0.001) as watch:
            for _ in range(3):
                called.clear()
                with writer:
                    writer.execute("INSERT INTO numbers VALUES (1)")
                assert await asyncio.to_thread(called.wait, PATIENCE_SECONDS)

    assert watch.calls >= 3


async def test_commit_before_the_first_poll_is_noticed(path: Path) -> None:
    called = Event()

    async with Watch(path, called.set, poll_seconds=0.001):
        assert await asyncio.to_thread(called.wait, PATIENCE_SECONDS)


async def test_file_that_cannot_be_read_counts_as_changed(tmp_path: Path) -> None:
    called = Event()

    async with Watch(tmp_path / "missing.db", called.set, poll_seconds=0.001):
        assert await asyncio.to_thread(called.wait, PATIENCE_SECONDS)


async def test_put_in_this_process_is_noticed_without_a_poll(tmp_path: Path) -> None:
    tea = triple("e1", "alice", "likes", "tea")
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        await memory.put_many([tea])
        first = Event()
        async with Watch(tmp_path / "memory.db", first.set, poll_seconds=NEVER) as watch:
            assert await asyncio.to_thread(first.wait, PATIENCE_SECONDS)

            await memory.put_many([tea])
            await memory.put(tea, user=tea.user, session=tea.session, agent=tea.agent)

        assert watch.calls == 3
        await memory.put_many([tea])
        assert watch.calls == 3, "the watch has ended"


async def test_put_into_another_file_is_not_noticed(tmp_path: Path, path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        first = Event()
        async with Watch(path, first.set, poll_seconds=NEVER) as watch:
            assert await asyncio.to_thread(first.wait, PATIENCE_SECONDS)

            await memory.put_many([triple("e1", "alice", "likes", "tea")])

            assert watch.calls == 1


class CountingLock:
    """A lock that records how long each wait for it may take; it is free after so many waits.

    Attributes:
        waits: The seconds of each wait.
        fourth: Called in the fourth wait.
    """

    def __init__(self, count: int, fourth: Callable[[], object]) -> None:
        self.waits: list[float] = []
        self._count = count
        self._fourth = fourth

    def acquire(self, timeout: float = 0) -> bool:
        if timeout:
            self.waits.append(timeout)
        if len(self.waits) == 4:
            self._fourth()
        return not self.locked()

    def release(self) -> None: ...

    def locked(self) -> bool:
        return len(self.waits) < self._count


async def test_polls_are_rarer_after_many_without_a_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as writer:
        lock = CountingLock(7, partial(writer.execute, "INSERT INTO numbers VALUES (1)"))
        monkeypatch.setattr(watching, "Lock", lambda: lock)

        async with Watch(path, lambda: None, poll_seconds=1, polls_before_slowing=2):
            pass

    assert lock.waits[:7] == [1, 1, 1.6, 1.6, 1, 1, 1.6]


def test_newest_log_row_of_an_episode_is_found_by_its_index(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
        connection.execute(statement("episodes", "create_table"))
        connection.execute(statement("episode_log", "create_table"))
        connection.execute(statement("episode_log", "create_log_index"))
        for name in ("window", "moved"):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN {statement('episode_log', name)}",
                {"after": 0, "limit": 1, "ids": "[]"},
            ).fetchall()

            steps = " ".join(row[3] for row in plan)
            assert "SEARCH later USING INDEX slumberd_episode_log_rid (rid=?)" in steps

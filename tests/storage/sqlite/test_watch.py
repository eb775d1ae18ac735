"""The watch tells soon after anybody has committed, and outlives a file that cannot be read."""

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
from slumberd.storage.episodes.store import SQLiteMemoryStore
from slumberd.storage.sqlite import watch as watching
from slumberd.storage.sqlite.watch import Watch
from tests.support.builders import triple
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

NEVER = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "some.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE told (what)")
    return tmp_path / "some.db"


def test_a_commit_of_another_connection_is_told(path: Path) -> None:
    told = Event()

    with (
        closing(sqlite3.connect(path)) as writer,
        Watch(path, told.set, poll_seconds=0.001) as watch,
    ):
        for _ in range(3):
            told.clear()
            with writer:
                writer.execute("INSERT INTO told VALUES (1)")
            assert told.wait(PATIENCE_SECONDS)

    assert watch.told >= 3


def test_what_was_committed_before_the_first_look_is_told(path: Path) -> None:
    told = Event()

    with Watch(path, told.set, poll_seconds=0.001):
        assert told.wait(PATIENCE_SECONDS)


def test_a_file_that_cannot_be_read_counts_as_changed(tmp_path: Path) -> None:
    told = Event()

    with Watch(tmp_path / "missing.db", told.set, poll_seconds=0.001):
        assert told.wait(PATIENCE_SECONDS)


async def test_a_put_in_this_process_is_told_without_a_look(tmp_path: Path) -> None:
    one = triple("e1", "alice", "likes", "tea")
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        await memory.put_many([one])
        first = Event()
        with Watch(tmp_path / "memory.db", first.set, poll_seconds=NEVER) as watch:
            assert await asyncio.to_thread(first.wait, PATIENCE_SECONDS)

            await memory.put_many([one])
            await memory.put(one, user=one.user, session=one.session, agent=one.agent)

        assert watch.told == 3
        await memory.put_many([one])
        assert watch.told == 3, "nobody watches any more"


async def test_a_put_into_another_file_is_not_told(tmp_path: Path, path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        first = Event()
        with Watch(path, first.set, poll_seconds=NEVER) as watch:
            assert await asyncio.to_thread(first.wait, PATIENCE_SECONDS)

            await memory.put_many([triple("e1", "alice", "likes", "tea")])

            assert watch.told == 1


class Turns:
    """A lock that remembers for how long it was waited for, and is free after so many turns.

    Attributes:
        rests: The seconds.
        fourth: Called in the fourth turn.
    """

    def __init__(self, turns: int, fourth: Callable[[], object]) -> None:
        self.rests: list[float] = []
        self._turns = turns
        self._fourth = fourth

    def acquire(self, timeout: float = 0) -> bool:
        if timeout:
            self.rests.append(timeout)
        if len(self.rests) == 4:
            self._fourth()
        return not self.locked()

    def release(self) -> None: ...

    def locked(self) -> bool:
        return len(self.rests) < self._turns


def test_looks_are_rarer_after_many_that_found_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as writer:
        turns = Turns(7, partial(writer.execute, "INSERT INTO told VALUES (1)"))
        monkeypatch.setattr(watching, "Lock", lambda: turns)

        with Watch(path, lambda: None, poll_seconds=1, looks_before_slowing=2):
            pass

    assert turns.rests[:7] == [1, 1, 1.6, 1.6, 1, 1, 1.6]


def test_the_newest_log_row_of_an_episode_is_found_by_its_index(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
        connection.execute(statement("episodes", "create_table"))
        connection.execute(statement("episode_log", "create_table"))
        connection.execute(statement("episode_log", "create_log_index"))
        for name in ("window", "moved"):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN {statement('episode_log', name)}",
                {"after": 0, "limit": 1, "ids": "[]"},
            ).fetchall()

            told = " ".join(row[3] for row in plan)
            assert "SEARCH later USING INDEX slumberd_episode_log_rid (rid=?)" in told

"""Reads are recorded in memory and written later; reads that cannot be written are dropped."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from slumberd.model.errors import StoreBusyError
from slumberd.model.salience import Access
from slumberd.storage.episodes.access_tracking import AccessLimits, AccessRecorder
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas
from slumberd.storage.sqlite.watch import Watch
from tests.support.builders import at, episode
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.integration

NOON = 1_767_268_800_000_000
"""`START`, in microseconds."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limits() -> AccessLimits:
    return AccessLimits()


@pytest.fixture
async def memory(
    path: Path, clock: FakeClock, limits: AccessLimits
) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(path, clock=clock, access_limits=limits) as store:
        await store.put_many([episode(f"e{n}", timestamp=at(n)) for n in range(4)])
        yield store


def written(path: Path) -> list[tuple[str, int, int | None, int]]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT eid, count, last, held FROM slumberd_accesses ORDER BY eid"
        return connection.execute(sql).fetchall()


async def wait_for_write(memory: SQLiteMemoryStore) -> None:
    """Wait until the write of recorded reads ends; one must have begun."""
    task = memory._reads._writing
    assert task is not None
    await task


async def test_close_writes_the_number_and_the_last_instant_of_reads(
    memory: SQLiteMemoryStore, path: Path, clock: FakeClock
) -> None:
    await memory.recent("alice", limit=2)
    clock.advance(60)
    await memory.recent("alice", limit=1)
    assert written(path) == []

    await memory.close()

    assert written(path) == [("e2", 1, NOON, 0), ("e3", 2, NOON + 60_000_000, 0)]


async def test_later_reads_are_added_to_earlier_ones(
    memory: SQLiteMemoryStore, clock: FakeClock
) -> None:
    for _ in range(3):
        await memory.recent("alice", limit=1)
        await memory.close()
        clock.advance(1)
    clock.set(at(-60))
    await memory.recent("alice", limit=1)
    await memory.close()

    assert await memory.accesses(["e3", "e0", "x"]) == {"e3": Access(4, NOON + 2_000_000)}


@pytest.mark.parametrize("limits", [AccessLimits(seconds=0.0)])
async def test_reads_are_written_after_a_while(memory: SQLiteMemoryStore, path: Path) -> None:
    await memory.recent("alice", limit=1)

    # The loop calls this after the recorder's alarm, which it got before.
    begun = asyncio.Event()
    asyncio.get_running_loop().call_later(0, begun.set)
    await begun.wait()
    await wait_for_write(memory)

    assert written(path) == [("e3", 1, NOON, 0)]


@pytest.mark.parametrize("limits", [AccessLimits(seconds=60.0, written_at_once=3)])
async def test_many_reads_are_written_at_once_but_not_repeatedly(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.recent("alice", limit=2)
    assert memory._reads._writing is None
    alarm = memory._reads._alarm
    assert alarm is not None
    await memory.recent("alice", limit=2)
    await wait_for_write(memory)
    await memory.recent("alice", limit=4)

    assert alarm.cancelled()
    assert memory._reads.waiting == 4
    assert written(path) == [("e2", 2, NOON, 0), ("e3", 2, NOON, 0)]


async def test_reads_of_a_loop_that_has_ended_are_written_by_the_next(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.recent("alice", limit=1)
    await asyncio.to_thread(asyncio.run, _read_and_close(memory))

    assert written(path) == [("e3", 2, NOON, 0)]


async def _read_and_close(memory: SQLiteMemoryStore) -> None:
    await memory.recent("alice", limit=1)
    await memory.close()


@pytest.mark.parametrize("limits", [AccessLimits(written_at_once=1)])
async def test_read_does_not_wait_for_a_locked_file_and_is_recorded(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    with closing(connect(path, Pragmas(), access="write")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(await memory.recent("alice", limit=2)) == 2
        await wait_for_write(memory)
        assert memory._reads.waiting == 2
        assert memory._reads._alarm is not None, "the write is repeated without another read"
        other.execute("ROLLBACK")

    memory._reads._begin()
    await wait_for_write(memory)

    assert written(path) == [("e2", 1, NOON, 0), ("e3", 1, NOON, 0)]
    assert memory._reads.waiting == 0


async def test_put_after_a_read_waits_its_full_time_for_a_lock(memory: SQLiteMemoryStore) -> None:
    await memory.recent("alice", limit=1)
    await memory._reads.write()

    def waits(connection: sqlite3.Connection) -> int:
        found: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        return found

    assert await memory.engine.database.write(waits) == 5_000


@pytest.mark.parametrize("limits", [AccessLimits(most_waiting=3)])
async def test_reads_that_cannot_be_written_are_kept_up_to_a_limit(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    with closing(connect(path, Pragmas(), access="write")) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(9):
            await memory.recent("alice", limit=2)

        assert memory._reads.waiting == 3
        other.execute("ROLLBACK")
    await memory.close()
    assert written(path) == [("e2", 1, NOON, 0), ("e3", 2, NOON, 0)]


async def test_store_of_a_locked_file_closes_and_drops_its_recorded_reads(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    with closing(connect(path, Pragmas(), access="write")) as other:
        other.execute("BEGIN IMMEDIATE")
        await memory.recent("alice", limit=2)

        await memory.close()

        assert memory._reads.waiting == 0
        other.execute("ROLLBACK")
    assert written(path) == []


@pytest.mark.parametrize("limits", [AccessLimits(written_at_once=1)])
async def test_timer_does_not_open_a_closed_store(memory: SQLiteMemoryStore) -> None:
    await memory.recent("alice", limit=2)

    await memory.close()

    assert memory.engine.database._open == {}
    assert memory._reads._alarm is None


async def test_file_that_is_removed_during_reads_loses_only_the_counts(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.recent("alice", limit=2)
    path.rename(path.with_name("elsewhere.db"))

    await memory.close()

    assert not path.exists()


async def test_a_read_that_cannot_be_written_for_another_error_is_kept(
    path: Path,
) -> None:
    class RefusingEngine(SQLiteEpisodeEngine):
        async def write(self, *_: object, **__: object) -> Any:
            raise StoreBusyError("memory.db", 5)

    reads = AccessRecorder(RefusingEngine(path, Pragmas()))
    reads.note(["e2", "e3"], NOON)

    await reads.write()

    assert reads.waiting == 2
    await reads.close()


async def test_read_of_a_command_is_not_counted(memory: SQLiteMemoryStore, path: Path) -> None:
    await memory.close()
    async with SQLiteMemoryStore(path, traceless=True) as store:
        assert len(await store.recent("alice", limit=2)) == 2

    assert written(path) == []


async def test_a_read_that_finds_nothing_writes_nothing(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.recent("absent", limit=2)

    assert memory._reads.waiting == 0


@pytest.mark.slow
async def test_episode_that_was_deleted_meanwhile_has_no_row(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.recent("alice", limit=2)
    with closing(sqlite3.connect(path)) as host, host:
        host.execute("DELETE FROM episodes WHERE id = 'e3'")

    await memory.close()

    assert [eid for eid, *_ in written(path)] == ["e2"]


@pytest.mark.slow
async def test_a_file_of_an_older_slumberd_gets_the_table(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.close()
    with closing(sqlite3.connect(path)) as host, host:
        host.execute("DROP TABLE slumberd_accesses")

    await memory.recent("alice", limit=1)
    await memory.close()

    assert written(path) == [("e3", 1, NOON, 0)]
    assert (await memory.newest()).seq == 4


async def test_held_back_episode_is_logged_again_when_its_read_is_written(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    await memory.log_again_after_read({"e3": 0, "e0": 0, "gone": 0})
    assert written(path) == [("e0", 0, None, 1), ("e3", 0, None, 1)]

    await memory.recent("alice", limit=2)
    await memory.close()

    assert written(path) == [("e0", 0, None, 1), ("e2", 1, NOON, 0), ("e3", 1, NOON, 0)]
    assert await memory.newest() == (5, "e3")


async def test_watch_is_notified_when_an_episode_is_logged_again(
    memory: SQLiteMemoryStore, path: Path
) -> None:
    looked = Event()
    await memory.log_again_after_read({"e3": 0})
    async with Watch(path, looked.set, poll_seconds=600) as watch:
        assert await asyncio.to_thread(looked.wait, 60)
        before = watch.calls
        await memory.recent("alice", limit=1)
        await memory._reads.write()

        assert watch.calls == before + 1
        await memory.recent("alice", limit=1)
        await memory._reads.write()
        assert watch.calls == before + 1

        await memory.log_again_after_read({"e3": 1})
        assert watch.calls == before + 2


@pytest.mark.parametrize("limits", [AccessLimits(written_at_once=1)])
async def test_timer_does_not_open_a_store_that_was_closed_during_a_failed_write(
    memory: SQLiteMemoryStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def remembered(*given: Any) -> asyncio.TimerHandle:
        handle = call_later(*given)
        begun.extend([handle] if given[1] == memory._reads._begin else [])
        return handle

    with closing(connect(path, Pragmas(), access="write")) as other:
        other.execute("BEGIN IMMEDIATE")
        await memory.recent("alice", limit=2)
        with monkeypatch.context() as watching:
            watching.setattr(loop, "call_later", remembered)
            await memory.close()
        other.execute("ROLLBACK")

    assert [alarm.cancelled() for alarm in begun] == [True]
    assert memory.engine.database._open == {}

"""A store and its file: locks, replaced files, and missing files."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from weakref import WeakSet

import pytest

from slumberd.model.episode import Episode
from slumberd.model.errors import (
    PermissionDeniedError,
    StaleWriterError,
    StoppedError,
    StoreBusyError,
    StoreError,
    StoreReplacedError,
)
from slumberd.model.scope import Scope
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite import connection as sqlite_connection
from slumberd.storage.sqlite import database
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.broken_disks import content_of, ordinary_user
from tests.support.builders import episode
from tests.support.daemons import Home
from tests.support.open_stores import open_stores, stream
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

LOOKS_IN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*[id for (id,) in connection.execute("SELECT id FROM episodes ORDER BY id")])
connection.close()
"""


def seen_by_another(path: Path) -> list[str]:
    """Return the episodes that another program finds; closing it empties an unused log."""
    words = [sys.executable, "-c", LOOKS_IN, str(path)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


async def put(memory: SQLiteMemoryStore, *episodes: Episode) -> None:
    for new in episodes:
        await memory.put(new, user=new.user, session=new.session, agent=new.agent)


async def use_two_stores(path: Path) -> tuple[list[str], list[str]]:
    """Use two stores of one file, as hosts do; return the put ids, and those that are found."""
    async with SQLiteMemoryStore(path) as first, SQLiteMemoryStore(path) as second:
        await put(first, episode("e1"))
        await put(second, episode("e2"))
        seen_by_another(path)
        await put(first, episode("e3"))
        return ["e1", "e2", "e3"], seen_by_another(path)


@pytest.mark.slow
async def test_two_stores_of_one_file_lose_nothing_when_another_program_ends(
    tmp_path: Path,
) -> None:
    put, found = await use_two_stores(tmp_path / "memory.db")

    assert found == put


@pytest.mark.slow
async def test_file_that_is_opened_outside_of_sqlite_loses_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: an earlier version created files so."""

    def create(path: Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660))

    monkeypatch.setattr(sqlite_connection, "_create", create)

    put, found = await use_two_stores(tmp_path / "memory.db")

    assert put == [*found, "e3"]


def built(path: Path, *ids: str) -> Path:
    """Create a memory with some episodes in a file."""

    async def build() -> None:
        async with SQLiteMemoryStore(path) as memory:
            await put(memory, *map(episode, ids))

    path.parent.mkdir(exist_ok=True)
    with asyncio.Runner() as runner:
        runner.run(build())
    return path


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_store_refuses_to_write_into_a_file_that_another_has_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "memory.db", built(tmp_path / "other" / "memory.db", "b1")
    moved = tmp_path / "gone.db"

    async def live() -> None:
        async with SQLiteMemoryStore(path) as memory:
            await put(memory, episode("a1"))
            path.rename(moved)
            other.rename(path)
            with pytest.raises(StoreReplacedError, match="is not the file") as caught:
                await put(memory, episode("a2"))
            assert caught.value.exit_code == 75
            with pytest.raises(StoreReplacedError):
                await memory.recent("alice", limit=1)

    asyncio.run(live())

    assert (seen_by_another(moved), seen_by_another(path)) == (["a1"], ["b1"])
    assert is_whole(moved) and is_whole(path)


async def test_store_without_the_check_of_its_file_loses_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the check, puts go to the replaced file and are lost."""
    monkeypatch.setattr(database, "_check_same_file", lambda *_: None)
    path, away = tmp_path / "memory.db", tmp_path / "away.db"
    async with SQLiteMemoryStore(path) as memory, SQLiteMemoryStore(tmp_path / "b.db") as other:
        await put(memory, episode("a1"))
        await put(other, episode("b1"))
        path.rename(away)
        (tmp_path / "b.db").rename(path)

        await put(memory, episode("a2"))

    assert "a2" not in seen_by_another(path)


def replaced_with_its_log_left(folder: Path) -> bool:
    """Replace an open file by another; return whether the new file is intact afterwards."""
    path = folder / "memory.db"
    other = built(folder / "other" / "memory.db", *(f"b{n:03}" for n in range(300)))

    async def live() -> None:
        async with SQLiteMemoryStore(path) as memory:
            await memory.put_many([episode(f"a{n}") for n in range(50)])
            other.rename(path)

    asyncio.run(live())
    try:
        return is_whole(path) and len(seen_by_another(path)) == 300
    except (sqlite3.DatabaseError, subprocess.CalledProcessError):
        return False


@pytest.mark.slow
def test_store_leaves_no_log_beside_the_file_that_replaces_its_own(tmp_path: Path) -> None:
    assert replaced_with_its_log_left(tmp_path)


@pytest.mark.slow
def test_log_left_beside_another_file_damages_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: SQLite takes whatever log it finds for the file's own."""
    monkeypatch.setattr(database, "_checkpoint_all", lambda _: None)

    assert not replaced_with_its_log_left(tmp_path)


async def test_store_without_its_file_writes_nothing_until_it_is_back(tmp_path: Path) -> None:
    path, away = tmp_path / "memory.db", tmp_path / "away.db"
    async with SQLiteMemoryStore(path) as memory:
        await put(memory, episode("e1"))
        path.rename(away)
        with pytest.raises(StoreError, match="does not exist any more"):
            await put(memory, episode("e2"))
        away.rename(path)

        await put(memory, episode("e3"))

    assert seen_by_another(path) == ["e1", "e3"]


async def test_closed_store_opens_the_file_that_is_there_then(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "memory.db", tmp_path / "other.db"
    async with SQLiteMemoryStore(path) as memory, SQLiteMemoryStore(other) as second:
        await put(memory, episode("a1"))
        await put(second, episode("b1"))
        await second.close()
        other.rename(path)
        await memory.close()

        await put(memory, episode("b2"))

        assert [found.id for found in await memory.recent("alice", limit=9)] == ["b2", "b1"]


def restored(source: Path, target: Path) -> None:
    """Put a backup into a file that is in use, as `sqlite3 FILE '.restore BACKUP'` does."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def test_facts_restored_under_their_writer_are_noticed_at_the_next_check(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.facts.transactions.take_over()
        await home.put(*stream(2))
        await home.fire()
        restored(tmp_path / "facts.db", tmp_path / "backup.db")
        await home.put(*stream(4))
        await home.fire()
        restored(tmp_path / "backup.db", tmp_path / "facts.db")

        with pytest.raises(StoreReplacedError, match="has not ledger row") as caught:
            await home.facts.ledger.notice_external()
        assert caught.value.where == str(tmp_path / "facts.db")
        with pytest.raises(StoreReplacedError):
            await home.fire()
    async with open_stores(tmp_path) as home:
        await home.facts.transactions.take_over()
        await home.fire()

        assert await home.objects() == {f"e{n}": n for n in range(4)}
        assert (await home.facts.verify())[2] is None


async def test_superseded_writer_writes_nothing_when_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    async with open_stores(tmp_path) as home:
        async with open_stores(tmp_path) as stale:
            await stale.facts.transactions.take_over()
            await stale.put(*stream(2))
            await stale.fire()
            await home.facts.transactions.take_over()
            before = content_of(path)
            with pytest.raises(StaleWriterError):
                await stale.facts.ledger.notice_external()

        assert content_of(path) == before


async def test_writer_without_a_fence_writes_when_it_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the fence, a superseded store writes when it closes."""
    path = tmp_path / "facts.db"
    async with open_stores(tmp_path) as home:
        async with open_stores(tmp_path) as stale:
            await stale.facts.transactions.take_over()
            await stale.put(*stream(2))
            await stale.fire()
            await home.facts.transactions.take_over()
            before = content_of(path)
            monkeypatch.setattr(stale.facts.engine, "_check_writer", lambda _: None)

        assert content_of(path) != before


@pytest.mark.parametrize("mode", [0o400, 0o000], ids=["read", "nothing"])
async def test_writer_refuses_a_read_only_file(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as memory:
        await put(memory, episode("e1"))
    path.chmod(mode)

    with ordinary_user():
        async with SQLiteMemoryStore(path) as memory:
            with pytest.raises(PermissionDeniedError) as refused:
                await put(memory, episode("e2"))

    assert refused.value.exit_code == 77


class Batch:
    """Something that a thread must not keep."""


def _answer_with_another(_: Batch, __: sqlite3.Connection) -> Batch:
    return Batch()


async def test_connection_keeps_no_arguments_of_a_call(tmp_path: Path) -> None:
    async with Database(tmp_path / "some.db", Pragmas()) as file:
        argument, found = Batch(), WeakSet[Batch]()
        found.add(argument)
        found.add(await file.write(partial(_answer_with_another, argument)))

        del argument
        await asyncio.sleep(0)

        assert not list(found)


async def test_connection_keeps_nothing_of_a_failed_call(tmp_path: Path) -> None:
    found = WeakSet[Batch]()

    def work(_: sqlite3.Connection) -> None:
        batch = Batch()
        found.add(batch)
        raise StoppedError("the batch was cancelled")

    async with Database(tmp_path / "some.db", Pragmas()) as file:
        with pytest.raises(StoppedError):
            await file.write(work)
        await asyncio.sleep(0)

        assert not list(found)


@pytest.mark.slow
def test_threads_that_open_the_same_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    # SQLite refuses, at once, some of the connections that switch one new file to a log.
    start = threading.Barrier(8)

    def open_once(path: Path) -> str:
        start.wait(PATIENCE_SECONDS)
        with closing(sqlite_connection.connect(path, Pragmas(), access="write")) as opened:
            return str(opened.execute("PRAGMA journal_mode").fetchone()[0])

    with ThreadPoolExecutor(8) as pool:
        for number in range(60):
            path = tmp_path / f"{number}.db"
            assert [*pool.map(open_once, [path] * 8)] == ["wal"] * 8


def test_new_file_that_stays_locked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StoreBusyError):
            sqlite_connection.connect(path, Pragmas(busy_seconds=0.01), access="write")


@pytest.mark.slow
def test_a_daemon_holds_its_locks_when_other_programs_close_the_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    home.call("fire", "--all")
    logs = [home.state / f"{name}.db-wal" for name in ("memory", "facts")]

    with home.daemon() as daemon:
        subprocess.run([sys.executable, "-c", CLOSES, *home.state.glob("*.db")], check=True)

        assert [log.name for log in logs if not log.exists()] == []
        for number in (1, 2):
            add(home.state / "memory.db", f"e{number}")
            daemon.wait_until_read(number)


CLOSES = """
import sqlite3, sys
for path in sys.argv[1:]:
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.close()
"""


def add(path: Path, id: str) -> None:
    """Write an episode as another program does, and close the file."""
    put = episode(id)
    row = encode(put, Scope(put.user, put.session, put.agent), operation="put")
    with closing(sqlite3.connect(path)) as host, host:
        host.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)


async def test_caller_gets_every_error_of_its_function(tmp_path: Path) -> None:
    def work(_: sqlite3.Connection) -> None:
        raise StopIteration

    store = Database(tmp_path / "any.db", Pragmas())
    try:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(store.write(work), PATIENCE_SECONDS)
    finally:
        await store.close()

"""The health of a store, whatever is at its path; a health check changes nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from slumberd.model.errors import SchemaError
from slumberd.model.store_status import StoreHealth
from slumberd.storage.sqlite import health as sqlite_health
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.broken_disks import ordinary_user
from tests.support.builders import episode
from tests.support.fakes import FakeClock
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

KINDS = {"memory": SQLiteMemoryStore, "facts": SQLiteFactStore}
"""Seconds, far more than a health report takes; a report that waits would exceed them."""

HOLDER = """
import sqlite3, sys
path, *statements = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
for statement in statements:
    connection.execute(statement)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def path(kind: str, tmp_path: Path) -> Path:
    """Create and close a small store; return its path."""
    path = tmp_path / "there" / f"{kind}.db"

    async def make() -> None:
        async with KINDS[kind](path, clock=FakeClock()) as store:
            await store.bootstrap()
            if isinstance(store, SQLiteMemoryStore):
                await store.put(episode(), user="alice", session="s1", agent="rag")

    asyncio.run(make())
    return path


def database_of(store: SQLiteMemoryStore | SQLiteFactStore) -> Database:
    return store.engine.database


def health_of(kind: str, path: Path) -> StoreHealth:
    async def look() -> StoreHealth:
        return await asyncio.wait_for(KINDS[kind](path).health(), PATIENCE_SECONDS)

    return asyncio.run(look())


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the content of all files in a folder."""
    return {
        file.name: (file.lstat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in folder.iterdir()
    }


@contextmanager
def held(path: Path, *statements: str) -> Iterator[None]:
    """Let another process hold a database."""
    words = [sys.executable, "-c", HOLDER, str(path), *statements]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_a_diary(path: Path) -> None:
    path.write_text("this is a diary, not a database\n" * 999)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_within_the_header(path: Path) -> None:
    os.truncate(path, 50)


def spoil_the_schema(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


def spoil_every_page_but_the_first(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def take_a_wrong_page_size(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x00\x07")


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_a_socket(path: Path) -> None:
    path.unlink()
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(os.path.relpath(path))


def let_it_lead_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.db")


def let_it_lead_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def put_a_pipe_beside_it(path: Path) -> None:
    os.mkfifo(path.with_name(f"{path.name}-wal"))


def replace_by_another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (id TEXT)")


def replace_the_tables(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE facts (id TEXT, user TEXT)")
        connection.execute("CREATE TABLE episodes (id TEXT, body TEXT)")


def hide_tables_behind_views(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIEW facts AS SELECT 1")
        connection.execute("CREATE VIEW episodes AS SELECT 1")


@pytest.mark.parametrize(
    ("ruin", "warning"),
    [
        (remove, "does not exist"),
        (empty, "has no table"),
        (make_a_diary, "is no SQLite database"),
        (cut_short, "is damaged"),
        (cut_within_the_header, "is damaged"),
        (spoil_the_schema, "is damaged"),
        (spoil_every_page_but_the_first, "is damaged"),
        (take_a_wrong_page_size, "is no SQLite database"),
        (replace_by_a_directory, "is no regular file"),
        (replace_by_a_pipe, "is no regular file"),
        (replace_by_a_socket, "is no regular file"),
        (let_it_lead_nowhere, "does not exist"),
        (let_it_lead_to_itself, "cannot be opened"),
        (put_a_pipe_beside_it, "is no regular file"),
        (replace_by_another_database, "has no table"),
        (replace_the_tables, "has another form; it lacks "),
        (hide_tables_behind_views, "has no table"),
    ],
)
def test_unusable_file_is_reported_and_left_as_it_is(
    kind: str,
    path: Path,
    ruin: Callable[[Path], None],
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(path.parent)  # a socket takes only short names
    ruin(path)
    before = state_of(path.parent)

    health = health_of(kind, path)

    assert (health.ok, health.version, health.fragment_count) == (False, 1, None)
    assert health.lock_state == "free"
    assert health.fs_type not in ("", "unknown") or ruin is let_it_lead_to_itself
    assert warning in health.warnings[0]
    assert state_of(path.parent) == before


@pytest.mark.parametrize("name", ["none/at/all.db", "n" * 300, "a\0b", "\ud800.db"], ids=ascii)
def test_missing_path_is_reported_and_nothing_is_created(
    kind: str, tmp_path: Path, name: str
) -> None:
    health = health_of(kind, tmp_path / name)

    assert (health.ok, bool(health.warnings)) == (False, True)
    assert list(tmp_path.iterdir()) == []


def test_healthy_closed_store_is_read_without_a_trace(kind: str, path: Path) -> None:
    before = state_of(path.parent)

    health = health_of(kind, path)

    assert (health.ok, health.version, health.warnings) == (True, 1, [])
    assert (health.fragment_count, health.lock_state) == ({"memory": 1, "facts": 0}[kind], "free")
    assert state_of(path.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statements", "lock"),
    [
        pytest.param(["BEGIN", "SELECT * FROM sqlite_master"], "free", id="reader"),
        pytest.param(["BEGIN IMMEDIATE"], "held", id="writer"),
        pytest.param(
            ["PRAGMA locking_mode = EXCLUSIVE", "BEGIN IMMEDIATE", "CREATE TABLE x (y)"],
            "held",
            id="exclusive writer",
        ),
        pytest.param(
            ["PRAGMA journal_mode = DELETE", "BEGIN IMMEDIATE"],
            "held",
            id="writer without a log",
        ),
        pytest.param(
            ["PRAGMA journal_mode = DELETE", "BEGIN IMMEDIATE", "CREATE TABLE x (y)"],
            "held",
            id="writer without a log that has written",
        ),
        pytest.param(
            ["PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE"],
            "held",
            id="exclusive writer without a log",
        ),
        pytest.param(["PRAGMA journal_mode = DELETE"], "free", id="file without a log"),
    ],
)
def test_the_write_lock_is_held_while_another_process_has_it(
    kind: str, path: Path, statements: list[str], lock: str
) -> None:
    with held(path, *statements):
        during = health_of(kind, path)
    after = health_of(kind, path)

    assert (during.lock_state, after.lock_state) == (lock, "free")
    assert after.ok
    # A reader gets the count even while another program writes.
    assert during.ok == all("EXCLUSIVE" not in statement for statement in statements)
    assert during.ok or "is locked by another process" in during.warnings[0]


@pytest.mark.slow
async def test_health_of_an_open_store_keeps_its_locks(kind: str, path: Path) -> None:
    async with KINDS[kind](path) as store:
        await store.bootstrap()
        health = await store.health()
        # Another program that closes the file would remove the log if it found no locks.
        with held(path, "SELECT 1 FROM sqlite_master"):
            pass
        assert path.with_name(f"{path.name}-wal").exists()
        assert (health.ok, health.lock_state) == (True, "free")


def test_log_left_by_a_crash_is_counted_and_kept(kind: str, path: Path, tmp_path: Path) -> None:
    place = tmp_path / "crashed" / path.name
    place.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE late (x)")
        for file in path.parent.iterdir():
            shutil.copy(file, place.parent / file.name)
    before = {name: content for name, (_, content) in state_of(place.parent).items()}

    health = health_of(kind, place)

    after = {name: content for name, (_, content) in state_of(place.parent).items()}
    assert health.ok
    assert (before.keys(), before[f"{path.name}-wal"]) == (after.keys(), after[f"{path.name}-wal"])
    assert before[path.name] == after[path.name]


@pytest.mark.parametrize("ends", [True, False], ids=["and ends", "and stays"])
@pytest.mark.parametrize("ruined", [True, False], ids=["ruins", "spares"])
async def test_file_that_changed_during_a_read_without_locks_is_read_again(
    kind: str, path: Path, ends: bool, ruined: bool
) -> None:
    """A read during a change may return any result, also an error."""
    table = {"memory": "episodes", "facts": "facts"}[kind]
    others: list[sqlite3.Connection] = []

    def interrupted(_: sqlite3.Connection) -> list[str]:
        if others:
            return ["again"]
        others.append(sqlite3.connect(path, check_same_thread=False))
        with others[0]:
            others[0].execute("CREATE TABLE late (x)")
        if ends:
            others[0].close()
        if ruined:
            raise SchemaError(str(path), "is half of a change")
        return []

    async with KINDS[kind](path) as store:
        health = await sqlite_health.health(database_of(store), table=table, warn=interrupted)
    others[0].close()

    assert (health.ok, health.warnings) == (True, ["again"])


@pytest.mark.parametrize(
    ("modes", "ok", "warning"),
    [
        pytest.param((0o400, 0o755), True, "can be read, but not written", id="a file"),
        pytest.param((0o600, 0o555), True, "can be read, but not written", id="a folder"),
        pytest.param((0o000, 0o755), False, "no permission to read it", id="nothing"),
        pytest.param((0o600, 0o000), False, "no permission to open it", id="no way in"),
    ],
)
def test_read_only_file_is_read_and_unreadable_file_is_reported(
    kind: str, path: Path, modes: tuple[int, int], ok: bool, warning: str
) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65_534, 65_534)
        os.chown(path.parent, 65_534, 65_534)
        path.parent.parent.chmod(0o755)
        for folder in path.parents[2:6]:
            folder.chmod(folder.stat().st_mode | 0o011)
    path.chmod(modes[0])
    path.parent.chmod(modes[1])

    with ordinary_user():
        health = health_of(kind, path)

    path.parent.chmod(0o755)
    assert (health.ok, health.lock_state) == (ok, "free")
    assert warning in health.warnings[0]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.path
async def test_count_that_takes_too_long_is_left_out(path: Path, kind: str) -> None:
    table = {"memory": "episodes", "facts": "facts"}[kind]
    with closing(sqlite3.connect(path)) as connection, connection:
        blank = ", ".join(["x''"] * {"memory": 4, "facts": 7}[kind])
        connection.execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 30000) "
            f"INSERT INTO {table} SELECT 'id-' || n, {blank} FROM n"
        )

    async with KINDS[kind](path) as store:
        health = await sqlite_health.health(database_of(store), table=table, seconds=0)

    assert (health.ok, health.fragment_count) == (True, None)
    assert "counting all rows takes over 0 s" in health.warnings[0]


def test_table_of_stargraph_is_usable_and_missing_parts_are_reported(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE episodes (id TEXT PRIMARY KEY, scope_key TEXT NOT NULL, "
            "content BLOB NOT NULL, timestamp TEXT NOT NULL, metadata BLOB NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE facts (fact_id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL,"
            " payload BLOB NOT NULL, lineage BLOB NOT NULL, confidence REAL NOT NULL, "
            "metadata BLOB NOT NULL, pinned_at TEXT NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE _migrations (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        connection.execute("INSERT INTO _migrations VALUES (7, 'then')")

    health = health_of(kind, path)

    assert (health.ok, health.version) == (True, 7)
    assert {"memory": "the episode log is not installed", "facts": "there is no ledger yet"}[
        kind
    ] in health.warnings[0]


def test_facts_of_a_newer_slumberd_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    asyncio.run(SQLiteFactStore(path).bootstrap())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE slumberd_schema SET version = 99")

    health = health_of("facts", path)

    assert not health.ok
    assert "was written by a newer slumberd (ledger 99, ours is 3)" in health.warnings[0]


@pytest.mark.parametrize(
    "place", ["/proc/self/status", "/sys/kernel", "/dev/null", "/dev/pts", "/", "/etc/hosts"]
)
def test_the_file_system_is_the_one_that_the_kernel_names(place: str) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    points = {point: kind for _, point, kind, *_ in mounts}  # the last mount covers the others
    above = [str(folder) for folder in (Path(place), *Path(place).parents)]

    assert sqlite_health.fs_type(Path(place)) == next(
        points[point] for point in above if point in points
    )

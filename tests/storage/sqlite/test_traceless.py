"""A command that only reads leaves no file beside a database, and reads all committed rows."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from slumberd.cli.commands.verify import Checkpoints
from slumberd.model.errors import SchemaError
from slumberd.model.record import Checkpoint
from slumberd.storage.sqlite.connection import LOCKED, UNCHANGING, connect, traceless
from slumberd.storage.sqlite.database import TracelessDatabase
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.cli_runner import called
from tests.support.command_arguments import (
    READING,
    WRITING,
    every_command,
    installation_with_data,
    moved,
    words_of,
)
from tests.support.installation import Installation
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

NOBODY = 65534


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a site that all tests share; a test that changes its state fails."""
    return installation_with_data(tmp_path_factory.mktemp("site"))


def footprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_command_is_known_to_read_or_to_write() -> None:
    assert sorted(every_command()) == sorted([*READING, *WRITING])


@pytest.mark.slow
@pytest.mark.parametrize("command", READING)
def test_command_that_only_reads_leaves_a_quiet_state_as_it_was(
    site: Installation, command: str
) -> None:
    before = footprint(site.state)

    done = called(*words_of(command, site))

    assert done.returncode in ({0, 1} if command == "doctor" else {0}), done.stderr
    assert footprint(site.state) == before


DRY = [
    "approve", "backfill", "clock accept", "fire", "forget", "hooks uninstall", "move",
    "pin",
    "quarantine drop", "quarantine future", "quarantine retry", "reject", "undo", "unpin",
]  # fmt: skip
"""The commands with ``--dry-run``."""


@pytest.mark.slow
def test_every_command_with_a_dry_run_is_listed() -> None:
    having = [word for word in WRITING if "--dry-run" in called(*word.split(), "--help").stdout]

    assert sorted(having) == sorted(DRY)


@pytest.mark.parametrize("command", DRY)
def test_dry_run_leaves_a_quiet_state_as_it_was(site: Installation, command: str) -> None:
    before = footprint(site.state)

    called(*words_of(command, site), "--dry-run")

    assert footprint(site.state) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["facts"], id="facts"),
        pytest.param(["recent", "alice"], id="episodes"),
        pytest.param(["audit", "ls"], id="the ledger"),
    ],
)
def test_command_reads_what_is_only_in_the_write_ahead_log(
    tmp_path: Path, words: list[str]
) -> None:
    site = installation_with_data(tmp_path)

    with writing(site.state / "memory.db"), writing(site.state / "facts.db"):
        assert site.call("import", str(tmp_path / "more.jsonl")).returncode == 0
        assert site.call("fire", "--all").returncode == 0
        done = site.call(*words)

    assert (done.returncode, "e3" in done.stdout) == (0, True)


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Keep a database open, as a daemon does."""
    with closing(connect(path, Pragmas(), access="write")) as connection:
        connection.execute("PRAGMA user_version").fetchone()
        yield connection


@contextmanager
def other_user(site: Installation) -> Iterator[Installation]:
    """Become a user who may read a site and not write it."""
    mine = os.geteuid()
    # Not in $TMPDIR: the other user may be unable to enter a directory above it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        there = moved(site, Path(name, "site"))
        Path(name).chmod(0o755)
        for path in [there.config.parent, *there.config.parent.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        if mine == 0:
            os.seteuid(NOBODY)
        try:
            yield there
        finally:
            os.seteuid(mine)
            for path in [there.config.parent, *there.config.parent.rglob("*")]:
                path.chmod(0o755)


@pytest.mark.slow
def test_user_who_may_write_nothing_reads_a_quiet_state(site: Installation) -> None:
    with other_user(site) as there:
        before = footprint(there.state)
        with pytest.raises(PermissionError):
            (there.state / "new").touch()

        for command in ("facts", "recent", "why", "why-not", "audit ls", "audit verify", "rules"):
            done = called(*words_of(command, there))
            assert (done.returncode, done.stderr) == (0, "")

        assert footprint(there.state) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a closed database with one row."""
    path = tmp_path / "a.db"
    with writing(path) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
    return path


def add(path: Path) -> None:
    with writing(path) as connection:
        connection.execute("INSERT INTO t VALUES (1)")


async def test_file_that_changes_during_a_read_is_read_again_with_locks(path: Path) -> None:
    counts: list[int] = []

    def count(connection: sqlite3.Connection) -> int:
        found: int = connection.execute("SELECT count(*) FROM t").fetchone()[0]
        if not counts:
            add(path)
        counts.append(found)
        return found

    assert await TracelessDatabase(path, Pragmas()).read(count) == 2
    assert counts == [1, 2]


def test_read_that_fails_on_a_half_written_file_is_repeated_with_locks(path: Path) -> None:
    ways: list[str] = []

    def read(how: str) -> str:
        ways.append(how)
        if how == UNCHANGING:
            add(path)
            raise ValueError("half a change")
        return "whole"

    assert traceless(path, read) == "whole"
    assert ways == [UNCHANGING, LOCKED]


def test_read_that_fails_on_an_unchanged_file_fails(path: Path) -> None:
    def read(_: str) -> str:
        raise ValueError("no half change")

    with pytest.raises(ValueError, match="no half change"):
        traceless(path, read)


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db")

    with pytest.raises(SchemaError, match="is no regular file"):
        traceless(tmp_path / "a.db", str)


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_open_file_is_read_with_locks_at_once(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE t (n INTEGER)")

        assert traceless(path, str) == LOCKED


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
connection.execute("PRAGMA wal_autocheckpoint = 0")
print(connection.execute("SELECT count(*) FROM numbers").fetchone()[0], flush=True)
sys.stdin.readline()
try:
    connection.execute("UPDATE numbers SET text = text || text")
except sqlite3.OperationalError as error:
    print(error)
connection.close()  # with the last lock on a write-ahead log, this moves it into the file
"""


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_second_read_of_a_process_leaves_the_first_its_locks(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE numbers (text TEXT)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [("x" * 900,)] * 2_000)
        connection.commit()
    pipe, words = subprocess.PIPE, [sys.executable, "-c", WRITER, str(path)]

    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"2000\n"

        def read(how: str) -> set[int]:
            with closing(connect(path, Pragmas(), access="read", how=how)) as reading:
                reading.execute("PRAGMA cache_size = 10")
                rows = reading.execute("SELECT length(text) FROM numbers")
                first = rows.fetchone()
                traceless(path, lambda _: None)
                writer.communicate(b"\n", timeout=PATIENCE_SECONDS)
                return {length for (length,) in [first, *rows]}

        assert traceless(path, read) == {900}


async def test_replay_begins_again_when_the_ledger_grows(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    shutil.copytree(site.state, state)
    live = state / "facts.db"
    beginnings: list[Path] = []
    truncate = os.truncate

    def beginning(path: Path, length: int) -> None:
        truncate(path, length)
        beginnings.append(path)
        if len(beginnings) == 1:
            with writing(live) as connection:
                connection.execute("CREATE TABLE another (n INTEGER)")

    monkeypatch.setattr("slumberd.storage.sqlite.replay.os.truncate", beginning)

    replay = await SQLiteFactStore(live).replay(tmp_path / "again.db")

    assert (len(beginnings), replay.differing) == (2, 0)


def test_checkpoints_read_twice_are_complete_and_counted_once() -> None:
    checkpoints = Checkpoints(Checkpoint(rows, b"") for rows in range(3))

    first = next(iter(checkpoints))
    again = list(checkpoints)

    assert (first.rows, [checkpoint.rows for checkpoint in again], checkpoints.count) == (
        0,
        [0, 1, 2],
        3,
    )

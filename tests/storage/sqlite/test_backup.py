"""Copies of databases in use are complete, show one moment, and leave no files beside them."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.errors import PermissionDeniedError, SchemaError, StoreError
from slumberd.storage.sqlite.backup import (
    CopyLimits,
    copy_database,
    copy_together,
    is_full,
)
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.session import Pragmas, translate_errors
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

ROWS = 1_000
NOBODY = 65534


def connected(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("PRAGMA synchronous = OFF")
    return connection


@pytest.fixture(params=["WAL", "DELETE"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, mode: str) -> Path:
    """Return a database of pairs, closed."""
    path = tmp_path / "there" / "a.db"
    path.parent.mkdir()
    with closing(connected(path, mode)) as connection:
        connection.execute("CREATE TABLE pairs (n INTEGER PRIMARY KEY, a INTEGER, b, c)")
        connection.execute(
            "WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM s WHERE v < ?)"
            " INSERT INTO pairs SELECT v, 0, 0, zeroblob(2000) FROM s",
            (ROWS,),
        )
    return path


def everything(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def states(path: Path) -> list[tuple[int, int]]:
    """Check the integrity of a copy, and return its pairs (a, b)."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM pairs").fetchone() == (ROWS,)
        return connection.execute("SELECT DISTINCT a, b FROM pairs").fetchall()


@contextmanager
def writer(path: Path, mode: str) -> Iterator[threading.Event]:
    """Change the first and the last row in one transaction, repeatedly, until the end."""
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        with closing(connected(path, mode)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE_SECONDS * 1000:.0f}")
            number = 0
            while not stop.is_set():
                number += 1
                connection.execute("UPDATE pairs SET a = ?, b = ?", (number, number))
                wrote.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert wrote.wait(PATIENCE_SECONDS)
        yield wrote
    finally:
        stop.set()
        thread.join()


def test_copy_is_whole_and_leaves_no_files_beside_the_original(path: Path, tmp_path: Path) -> None:
    before = everything(path.parent)

    copy_database(path, tmp_path / "copy.db")

    assert states(tmp_path / "copy.db") == [(0, 0)]
    assert everything(path.parent) == before
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("together", [False, True])
def test_copy_of_an_open_database_reports_each_step(
    path: Path, mode: str, tmp_path: Path, *, together: bool
) -> None:
    steps: list[tuple[int, int]] = []
    limits = CopyLimits(pages=100)

    def report(done: int, total: int) -> None:
        steps.append((done, total))

    with closing(connected(path, mode)) as writing:
        writing.execute("UPDATE pairs SET a = 1, b = 1")
        if together:
            copy_together([(path, tmp_path / "copy.db")], on_progress=report, limits=limits)
        else:
            copy_database(path, tmp_path / "copy.db", on_progress=report, limits=limits)

    (total,) = {total for _, total in steps}
    assert [done for done, _ in steps] == [*range(100, total, 100), total]


def test_copy_shows_one_moment_while_another_program_writes(
    path: Path, mode: str, tmp_path: Path
) -> None:
    with writer(path, mode) as wrote:
        for number in range(3):
            wrote.clear()
            copy_database(path, tmp_path / f"{number}.db", limits=CopyLimits(pages=50))
            assert wrote.wait(PATIENCE_SECONDS), "the writer does not come through"

    for number in range(3):
        ((a, b),) = states(tmp_path / f"{number}.db")
        assert a == b > 0


def test_copies_of_two_files_show_one_moment(mode: str, tmp_path: Path) -> None:
    # A reader of a rollback journal waits for a writer that never pauses.
    limits = CopyLimits(pages=1, busy_seconds=PATIENCE_SECONDS)
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for path in paths:
        with closing(connected(path, mode)) as connection:
            connection.execute("CREATE TABLE t (n INTEGER, filler)")
            connection.execute("INSERT INTO t VALUES (0, zeroblob(100000))")

    with effective_claims(paths, mode) as counted:
        for number in range(10):
            counted.clear()
            pairs = [(path, tmp_path / f"{path.stem}-{number}.db") for path in paths]
            copy_together(pairs, limits=limits)
            assert counted.wait(PATIENCE_SECONDS), "the writer does not come through"

    for number in range(10):
        a, b = (count_in(tmp_path / f"{path.stem}-{number}.db") for path in paths)
        assert a - b in (0, 1)
        assert a > 0


def test_snapshots_begin_again_when_a_program_commits_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    writing = [connected(path, "WAL") for path in paths]
    for connection in writing:
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.execute("INSERT INTO t VALUES (0)")
    begun = 0

    class Interrupted(sqlite3.Connection):
        """Lets a program write both files before each second snapshot begins, three times."""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            nonlocal begun
            if sql == "BEGIN":
                begun += 1
                if begun in (2, 4, 6):
                    for connection in writing:
                        connection.execute("UPDATE t SET n = ?", (begun,))
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Interrupted))
    copy_together([(path, tmp_path / f"copy-{path.name}") for path in paths])
    for connection in writing:
        connection.close()

    assert [count_in(tmp_path / f"copy-{path.name}") for path in paths] == [6, 6]
    assert begun == 8


@contextmanager
def effective_claims(paths: list[Path], mode: str) -> Iterator[threading.Event]:
    """Write increasing numbers, each to the first file and then to the second."""
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        with (
            closing(connected(paths[0], mode)) as first,
            closing(connected(paths[1], mode)) as last,
        ):
            for connection in (first, last):
                connection.execute(f"PRAGMA busy_timeout = {1_000 * PATIENCE_SECONDS:.0f}")
            number = 0
            while not stop.is_set():
                number += 1
                for connection in (first, last):
                    connection.execute("UPDATE t SET n = ?", (number,))
                wrote.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert wrote.wait(PATIENCE_SECONDS)
        yield wrote
    finally:
        stop.set()
        thread.join()


def count_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT n FROM t").fetchone()[0]
        return found


def test_copies_of_closed_files_leave_nothing_beside_them(
    path: Path, tmp_path: Path, mode: str
) -> None:
    other = path.with_name("b.db")
    with closing(connected(other, mode)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    before = everything(path.parent)

    copy_together([(path, tmp_path / "copy-a.db"), (other, tmp_path / "copy-b.db")])

    assert states(tmp_path / "copy-a.db") == [(0, 0)]
    assert everything(path.parent) == before


def test_copy_reports_its_progress(path: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []

    copy_database(path, tmp_path / "copy.db", lambda *step: steps.append(step))

    assert steps[-1][0] == steps[-1][1] > 0


@pytest.mark.parametrize("mode", ["WAL"], indirect=True)
def test_content_of_the_write_ahead_log_is_copied(path: Path, tmp_path: Path) -> None:
    with closing(connected(path, "WAL")) as connection:
        connection.execute("UPDATE pairs SET a = 7, b = 7")

        copy_database(path, tmp_path / "copy.db")
    assert states(tmp_path / "copy.db") == [(7, 7)]


@contextmanager
def other_user() -> Iterator[Path]:
    """Become an unprivileged user; yield a directory of that user."""
    mine = os.geteuid()
    # Not in $TMPDIR: the other user may be unable to enter a directory above it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        if mine == 0:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(mine)


def test_copy_needs_no_write_permission_for_the_directory(path: Path) -> None:
    content = path.read_bytes()  # as root: only root may read the directory of a test
    with other_user() as home:
        there = home / "there"
        there.mkdir()
        (there / "a.db").write_bytes(content)
        there.chmod(0o500)
        with pytest.raises(PermissionError):
            (there / "b.db").touch()

        copy_database(there / "a.db", home / "copy.db")

        there.chmod(0o700)
        assert states(home / "copy.db") == [(0, 0)]


def test_unreadable_file_is_refused(mode: str) -> None:
    with other_user() as home:
        with closing(connected(home / "a.db", mode)) as connection:
            connection.execute("CREATE TABLE pairs (n INTEGER PRIMARY KEY)")
        (home / "a.db").chmod(0)

        with pytest.raises(PermissionDeniedError):
            copy_database(home / "a.db", home / "copy.db")


def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"no database" * 1_000)

    with pytest.raises(SchemaError):
        copy_database(tmp_path / "a.db", tmp_path / "copy.db")


@pytest.mark.parametrize(
    ("statement", "full"),
    [
        pytest.param("CREATE TABLE t AS SELECT zeroblob(9000) AS a", True, id="a full disk"),
        pytest.param("SELECT a FROM nowhere", False, id="another failure"),
    ],
)
def test_full_disk_is_distinguished_from_other_failures(
    tmp_path: Path, statement: str, *, full: bool
) -> None:
    pragmas = Pragmas()
    with closing(connect(tmp_path / "a.db", pragmas, access="write")) as connection:
        connection.execute("PRAGMA max_page_count = 2")

        with pytest.raises(StoreError) as error, translate_errors(tmp_path / "a.db", pragmas):
            connection.execute(statement)

    assert is_full(error.value) == full

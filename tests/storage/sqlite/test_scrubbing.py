"""A scrub leaves no byte of deleted content, wherever SQLite keeps such bytes, and changes no row.

Nearly all tests plant the bytes with ``secure_delete`` off, as another program may write.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.sqlite import scrubbing
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.scrubbing import scrub
from slumberd.storage.sqlite.session import Pragmas
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

CANARY = "canary-7f3a"
TABLES = """
CREATE TABLE plain (id INTEGER PRIMARY KEY, name TEXT, content);
CREATE INDEX names ON plain (name);
CREATE TABLE keyed (key TEXT PRIMARY KEY, content) WITHOUT ROWID;
"""


@contextmanager
def opened(path: Path, *, secure: bool = False, **pragmas: object) -> Iterator[sqlite3.Connection]:
    """Open a file as a host does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as host:
        for name, value in {**pragmas, "secure_delete": int(secure)}.items():
            host.execute(f"PRAGMA {name} = {value}")
        yield host


def created(path: Path, *, page_size: int = 4096) -> Path:
    with opened(path, page_size=page_size, journal_mode="WAL") as host:
        host.executescript(TABLES)
    return path


def add(host: sqlite3.Connection, number: int, name: str, length: int) -> None:
    """Add a row to each table, with the name and a content of about a length."""
    content = (f"{name} " * (length // len(name) + 1))[:length]
    host.execute("INSERT INTO plain VALUES (?, ?, ?)", (number, name, content))
    host.execute("INSERT INTO keyed VALUES (?, ?)", (f"{name}-{number}", content))


def rows_of(path: Path) -> list[list[tuple[object, ...]]]:
    with opened(path) as host:
        assert host.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [
            host.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("plain", "keyed")
        ]


def canaries(path: Path) -> int:
    """Return how often the canary is in a database and the files beside it."""
    return sum(
        file.read_bytes().count(CANARY.encode()) for file in path.parent.glob(f"{path.name}*")
    )


def scrubbed(path: Path, busy_seconds: float = 5.0, *, rewrite: bool = True) -> Scrubbed:
    with closing(connect(path, Pragmas(busy_seconds=busy_seconds), access="write")) as connection:
        return scrub(connection, Scrubbing(rewrite=rewrite))


def delete_rows(host: sqlite3.Connection) -> None:
    """Leave free blocks, and free bytes before the first cell."""
    for number in range(60):
        add(host, number, CANARY if number % 3 else "other", 40)
    host.execute("DELETE FROM plain WHERE name = ?", (CANARY,))
    host.execute("DELETE FROM keyed WHERE key GLOB ?", (f"{CANARY}*",))


def free_pages(host: sqlite3.Connection) -> None:
    """Leave free pages: leaves and trunks of the free list."""
    for number in range(40):
        add(host, number, CANARY if number % 2 else "other", 9_000)
    host.execute("DELETE FROM plain WHERE name = ?", (CANARY,))
    host.execute("DELETE FROM keyed WHERE key GLOB ?", (f"{CANARY}*",))


def shorten_rows(host: sqlite3.Connection) -> None:
    """Leave the rest of an old version, in cells and in the last overflow page."""
    for number in range(20):
        add(host, number, CANARY, 8_500)
    for length, some in ((30, 0), (5_000, 1)):
        new = ("x" * length, some)
        host.execute("UPDATE plain SET content = ?, name = 'x' WHERE id % 2 = ?", new)
    host.execute("DELETE FROM keyed")


def reuse_free_pages(host: sqlite3.Connection) -> None:
    """Leave old bytes in pages that another table uses now, and behind its overflow pages."""
    host.execute("BEGIN")  # later, SQLite would begin with an empty page
    free_pages(host)
    for number in range(100, 120):
        add(host, number, "new", 6_500 + 100 * (number % 10))
    host.execute("COMMIT")


def roll_back(host: sqlite3.Connection) -> None:
    """Leave pages of a transaction that was rolled back in the log."""
    host.execute("PRAGMA cache_size = 5")
    host.execute("BEGIN")
    for number in range(200):
        add(host, number, CANARY, 400)
    host.execute("ROLLBACK")


def replace_rows(host: sqlite3.Connection) -> None:
    """Replace rows, as Stargraph does."""
    for name in (CANARY, "other"):
        for number in range(50):
            host.execute("REPLACE INTO plain VALUES (?, ?, ?)", (number, name, f"{name} " * 9))
            host.execute("REPLACE INTO keyed VALUES (?, ?)", (f"k-{number}", f"{name} " * 9))


def drop_table(host: sqlite3.Connection) -> None:
    """Leave the pages of a table that is gone, and its entry in the schema."""
    host.execute(f'CREATE TABLE "{CANARY}" (content)')
    host.executemany(f'INSERT INTO "{CANARY}" VALUES (?)', [(CANARY * 50,)] * 50)
    host.execute(f'DROP TABLE "{CANARY}"')


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
@pytest.mark.parametrize(
    "leave",
    [
        delete_rows, free_pages, shorten_rows, reuse_free_pages, roll_back, replace_rows,
        drop_table,
    ],
)  # fmt: skip
def test_scrub_clears_what_other_programs_leave(
    tmp_path: Path, leave: Callable[[sqlite3.Connection], None], page_size: int
) -> None:
    path = created(tmp_path / "host.db", page_size=page_size)
    with opened(path) as host, opened(path):
        host.execute("PRAGMA wal_autocheckpoint = 50")
        leave(host)
        assert canaries(path)

        before = _all_rows(path)

        done = scrubbed(path)

        assert (done.log_emptied, done.obstacle) == (True, None)
        assert canaries(path) == 0
    assert rows_of(path) == [sorted(rows) for rows in before]


@pytest.mark.slow
def test_secure_delete_alone_leaves_copies_of_rows_that_sqlite_has_moved(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path, secure=True) as host:
        order = random.Random(1)
        host.execute("BEGIN")
        for number in range(20_000):
            name = CANARY if number % 3 == 0 else f"user-{number % 100}"
            host.execute("INSERT INTO keyed VALUES (?, 'x')", (f"{order.random():.9f}-{name}",))
        host.execute("COMMIT")
        host.execute("DELETE FROM keyed WHERE key LIKE ?", (f"%{CANARY}",))
        host.execute("PRAGMA wal_checkpoint = TRUNCATE")
        assert canaries(path)

        scrubbed(path)

        assert canaries(path) == 0


def test_scrub_clears_pages_behind_the_end_of_the_database(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with path.open("ab") as file:
        file.write(CANARY.encode() * 1_000)

    done = scrubbed(path)

    assert (done.obstacle, canaries(path)) == (None, 0)


@pytest.mark.slow
def test_page_in_the_cache_of_another_program_brings_nothing_back(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path, wal_autocheckpoint=0) as host:
        delete_rows(host)
        rows = host.execute("SELECT * FROM plain").fetchall()  # its cache has the pages now
        scrubbed(path)

        host.execute("UPDATE plain SET content = upper(content)")
        host.execute("UPDATE keyed SET content = upper(content)")

        assert len(rows) == 20
        assert canaries(path) == 0


def test_cache_brings_nothing_back_while_a_reader_keeps_the_log(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path, wal_autocheckpoint=0) as host, opened(path) as reader:
        delete_rows(host)
        host.execute("SELECT * FROM plain").fetchall()
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM plain").fetchall()
        done = scrubbed(path, busy_seconds=0.1)

        host.execute("UPDATE plain SET content = upper(content)")
        host.execute("UPDATE keyed SET content = upper(content)")

        reader.execute("ROLLBACK")
        host.execute("PRAGMA wal_checkpoint = TRUNCATE")
        assert not done.log_emptied
        assert canaries(path) == 0


WRITER = """
import random, sqlite3, sys
host = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=600)
host.execute("PRAGMA secure_delete = ON")
host.execute("PRAGMA wal_autocheckpoint = 20")
order = random.Random(1)
host.execute("SELECT count(content) FROM plain").fetchall()
print("ready", flush=True)
while True:
    number = order.randrange(0, 3000) * 2
    content = "y" * order.choice([1, 40, 200, 6000])
    host.execute("BEGIN IMMEDIATE")
    host.execute("UPDATE plain SET content = ? WHERE id = ?", (content, number))
    host.execute("UPDATE keyed SET content = ? WHERE key = ?", (content, f"other-{number}"))
    host.execute("COMMIT")
"""


@pytest.mark.slow
def test_scrub_clears_pages_that_another_program_writes_meanwhile(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path) as host:
        host.execute("BEGIN")
        for number in range(6_000):
            add(host, number, CANARY if number % 2 else "other", 40)
        host.execute("DELETE FROM plain WHERE name = ?", (CANARY,))
        host.execute("DELETE FROM keyed WHERE key GLOB ?", (f"{CANARY}*",))
        host.execute("COMMIT")
    words = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        first = rows_of(path)

        done = scrubbed(path, busy_seconds=PATIENCE_SECONDS)

        last = rows_of(path)
        writer.kill()
    assert done.obstacle is None
    assert first != last
    assert canaries(path) == 0
    plain, keyed = rows_of(path)
    assert [len(plain), len(keyed)] == [3_000, 3_000]
    contents = {f"other-{number}": content for number, _, content in plain}
    assert contents == {str(key): content for key, content in keyed}


def vacuum_by_itself(path: Path) -> None:
    with opened(path, journal_mode="DELETE", auto_vacuum="FULL") as host:
        host.execute("VACUUM")
        host.execute("PRAGMA journal_mode = WAL")


def lose_free_pages(path: Path) -> None:
    """Make the header forget the free pages, so that they belong to nothing."""
    content = path.read_bytes()
    path.write_bytes(content[:32] + bytes(8) + content[40:])


@pytest.mark.parametrize("change", [vacuum_by_itself, lose_free_pages])
def test_scrub_rewrites_files_of_every_kind(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = created(tmp_path / "host.db")
    with opened(path) as host:
        free_pages(host)
    change(path)
    with opened(path) as host:
        host.execute("DELETE FROM plain WHERE id < 20")
    rows = _all_rows(path)

    done = scrubbed(path)

    assert done.rewritten
    assert canaries(path) == 0
    assert rows_of(path) == rows


def _all_rows(path: Path) -> list[list[tuple[object, ...]]]:
    with opened(path) as host:
        return [host.execute(f"SELECT * FROM {name}").fetchall() for name in ("plain", "keyed")]


@pytest.mark.slow
def test_scrub_reports_a_log_that_a_reader_keeps(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path) as host, opened(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM plain").fetchall()
        delete_rows(host)

        done = scrubbed(path, busy_seconds=0.1)

        assert (done.rewritten is not None, done.log_emptied) == (True, False)
        assert done.obstacle == f"another program reads an old state of {str(path)!r}"
        reader.execute("ROLLBACK")
        assert scrubbed(path, rewrite=False) == Scrubbed(log_emptied=True)
        assert canaries(path) == 0


def test_scrub_reports_a_writer_that_does_not_end(tmp_path: Path) -> None:
    path = created(tmp_path / "host.db")
    with opened(path) as host:
        delete_rows(host)
        host.execute("BEGIN IMMEDIATE")

        done = scrubbed(path, busy_seconds=0.01)

        host.execute("ROLLBACK")
    assert done.rewritten is None
    assert done.obstacle == f"another program writes into {str(path)!r} for too long"


def test_scrub_rewrites_nothing_that_the_disk_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = created(tmp_path / "host.db")
    with opened(path) as host:
        delete_rows(host)
    monkeypatch.setattr(scrubbing, "SPARE_BYTES", 2**60)

    done = scrubbed(path)

    assert done.rewritten is None
    assert "MiB free" in (done.obstacle or "")
    assert canaries(path)


@pytest.mark.parametrize("name", ["a file", "its log and a temporary copy"])
def test_scrub_counts_the_space_for_the_log_and_for_a_temporary_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(scrubbing, "temporary_directory", lambda: tmp_path)
    free = shutil.disk_usage(tmp_path).free - scrubbing.SPARE_BYTES
    size = free // 4 if name == "a file" else free * 3 // 4

    problem = scrubbing.find_missing_space(tmp_path / "host.db", size)

    assert (problem is None) == (name == "a file")

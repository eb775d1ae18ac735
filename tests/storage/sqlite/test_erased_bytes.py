"""After a scrub no byte of deleted content is in any file, whatever happened to the file before.

Each history is of random writes by slumberd and by a host, with a reader in another process that
may hold an old state. The oracle searches the bytes of all files. Deleted content is one character
that nothing else has, so a fragment of six bytes is found, too.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.scrubbing import scrub
from slumberd.storage.sqlite.session import Pragmas

pytestmark = pytest.mark.integration

ERASED = "\N{CUNEIFORM SIGN A}"
FRAGMENT = ERASED.encode()[-2:] + ERASED.encode()
READER = """
import sqlite3, sys
for line in sys.stdin:
    path = line.strip()
    if path:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM plain").fetchall()
    else:
        reader.close()
    print(flush=True)
"""
TABLES = """
CREATE TABLE plain (id INTEGER PRIMARY KEY, name TEXT, content TEXT);
CREATE INDEX names ON plain (name);
CREATE INDEX contents ON plain (substr(content, 1, 300));
CREATE TABLE keyed (key TEXT PRIMARY KEY, content TEXT) WITHOUT ROWID;
"""


class Reader:
    """Another process, which holds an old state of a file while it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, path: object = "") -> None:
        """Let it read a file from now on; without one, let it end its transaction."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    words = [sys.executable, "-c", READER]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Reader(process)
        process.kill()


@contextmanager
def opened(path: Path, *, is_secure: bool) -> Iterator[sqlite3.Connection]:
    if is_secure:
        with closing(connect(path, Pragmas(), access="write")) as own:
            yield own
    else:
        with closing(sqlite3.connect(path, isolation_level=None)) as host:
            host.execute("PRAGMA secure_delete = OFF")
            host.execute("PRAGMA cache_size = 10")
            yield host


def text_of(chance: random.Random, *, is_erased: bool) -> str:
    """Return a text; a long one takes pages of its own."""
    length = chance.choice([1, 5, 40, 300, 1_200, 5_000, 20_000])
    return (ERASED if is_erased else "x") * length


def write(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Put, replace and delete rows in one transaction, which may be rolled back."""
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(chance.randrange(1, 30)):
        number = chance.randrange(60)
        text = text_of(chance, is_erased=chance.random() < 0.6)
        match chance.randrange(6):
            case 0 | 1:
                sql = "INSERT OR REPLACE INTO plain VALUES (?, ?, ?)"
                connection.execute(sql, (number, text[:400], text))
            case 2:
                sql = "INSERT OR REPLACE INTO keyed VALUES (?, ?)"
                connection.execute(sql, (f"{text[:9]}{number}", text))
            case 3:
                sql = "UPDATE plain SET content = ?, name = ? WHERE id = ?"
                connection.execute(sql, (text, text[:400], number))
            case 4:
                connection.execute("DELETE FROM plain WHERE id % 7 = ?", [number % 7])
            case _:
                connection.execute("DELETE FROM keyed WHERE length(content) % 5 = ?", [number % 5])
    connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


def erase(connection: sqlite3.Connection) -> None:
    """Delete all rows with the content."""
    for table, columns in (("plain", ("name", "content")), ("keyed", ("key", "content"))):
        condition = " OR ".join(f"instr({column}, ?)" for column in columns)
        connection.execute(f"DELETE FROM {table} WHERE {condition}", [ERASED] * len(columns))


def left(folder: Path) -> list[str]:
    """Return the names of the files that hold a fragment."""
    return [file.name for file in folder.iterdir() if FRAGMENT in file.read_bytes()]


def scrubbed(path: Path) -> Scrubbed:
    with opened(path, is_secure=True) as connection:
        return scrub(connection, Scrubbing(wait_seconds=0.0))


@given(seed=st.integers(0, 2**32), page_size=st.sampled_from([512, 4096]), vacuum=st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_no_file_has_a_byte_of_deleted_content_after_a_scrub(
    reader: Reader, seed: int, page_size: int, vacuum: int
) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        path = Path(folder, "some.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as host:
            host.execute(f"PRAGMA page_size = {page_size}")
            host.execute(f"PRAGMA auto_vacuum = {vacuum}")
            host.execute("PRAGMA journal_mode = WAL")
            host.executescript(TABLES)
            is_read = False
            for _ in range(chance.randrange(1, 6)):
                with opened(path, is_secure=chance.random() < 0.5) as connection:
                    write(connection, chance)
                if not is_read and chance.random() < 0.3:
                    reader.tell(path)
                    is_read = True
            with opened(path, is_secure=chance.random() < 0.5) as connection:
                erase(connection)
                rows = rows_of(connection)

            first = scrubbed(path)
            while_read = left(Path(folder))
            if is_read:
                reader.tell()
            last = scrubbed(path) if first.obstacle else first

            assert last.obstacle is None
            assert left(Path(folder)) == []
            assert first.obstacle or not while_read
            assert rows_of(host) == rows


def rows_of(connection: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return [
        connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
        for table in ("plain", "keyed")
    ]

"""Check a database file after a crash: damage, and a write-ahead log of another file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from slumberd.errors import SchemaError, StoppedError, StoreError
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import (
    Pragmas,
    connect,
    interrupting_when,
    lenient_text,
    snapshot,
    translate_errors,
)
from slumberd.storage.sqlite.database import UNCHANGING, traceless
from slumberd.storage.sqlite.health import has_table

T = TypeVar("T")

_SQL = statements("inspection")

_PRAGMAS = Pragmas()

_FORMATS = slice(18, 20)

_WAL = b"\2\2"
"""The versions in the header of a file that is written and read with a write-ahead log."""

LEFT_LOG_SECONDS = 1.0
"""How long a start after a crash may search for damage."""


def look(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on one snapshot of a database that others may be writing; return the result.

    A file that no program has open is read without locks, so that nothing appears beside it. If
    the file changed meanwhile, it is read again with SQLite's locks.

    Raises:
        SchemaError: The file is not a SQLite database, or is damaged.
        StoreError: The file does not exist, or cannot be read.
    """
    return traceless(path, partial(_read, path, work))


def _read(path: Path, work: Callable[[sqlite3.Connection], T], how: str) -> T:
    with (
        translate_errors(path, _PRAGMAS),
        closing(connect(path, _PRAGMAS, access="read", how=how)) as connection,
    ):
        connection.text_factory = lenient_text
        with snapshot(connection):
            return work(connection)


def writes_ahead(path: Path) -> bool:
    """Return whether a database is of the write-ahead kind, by its header.

    A connection that takes no locks does not report this.
    """
    with translate_errors(path, _PRAGMAS), path.open("rb") as file:
        return file.read(_FORMATS.stop)[_FORMATS] == _WAL


def damage_in(connection: sqlite3.Connection, seconds: float | None) -> str | None:
    """Return the first problem that ``PRAGMA quick_check`` finds.

    Args:
        connection: A connection to the database.
        seconds: How long the check may take; None sets no limit.

    Returns:
        An empty text without a problem; None when the check took too long.
    """
    try:
        with within(connection, seconds):
            problem = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except StoppedError:
        return None
    return "" if problem == "ok" else problem


def check_after_a_crash(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a database and the write-ahead log beside it belong together.

    SQLite applies any log that it finds. A log of another file mixes pages of both. This check runs
    on a connection that only reads, which does not yet write the log into the file.

    Raises:
        SchemaError: The log belongs to another file, or the database is damaged.
    """
    if damage_in(connection, LEFT_LOG_SECONDS) or has_foreign_log(connection, path):
        raise SchemaError(str(path), "is damaged")


def has_foreign_log(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the first entry of a database differs with and without its log."""
    try:
        own = _read(path, _first_entry, UNCHANGING)
    except StoreError:  # another program writes it now
        return False
    seen = _first_entry(connection)
    if seen is None and has_table(connection, "episodes"):  # the episode log was dropped
        return False
    erased = b"" in (own, seen)
    return own is not None and own != seen and not erased


def _first_entry(connection: sqlite3.Connection) -> bytes | None:
    """Return what is unique to a database: its first ledger hash, or its first episode."""
    for table in ("slumberd_ledger", "slumberd_episode_log"):
        if has_table(connection, table):
            row = connection.execute(_SQL[f"origin_of_{table}"]).fetchone()
            return row[0] if row else None
    return None


@contextmanager
def within(connection: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Give the block's statements so many seconds; None sets no limit.

    Raises:
        StoppedError: The time was over.
    """
    if seconds == 0:
        raise StoppedError("there was no time")
    if seconds is None:
        yield
        return
    until = time.monotonic() + seconds
    with interrupting_when(connection, lambda: time.monotonic() > until):
        yield

"""Open a database file after a crash, and say whether it is damaged."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from slumberd.errors import SchemaError, StoreError
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import Pragmas, snapshot, translated
from slumberd.storage.sqlite.database import UNCHANGING, traceless
from slumberd.storage.sqlite.health import has_table

T = TypeVar("T")

_SQL = statements("looking")

_PRAGMAS = Pragmas()

_FORMATS = slice(18, 20)

_WAL = b"\2\2"
"""The versions in the header of a file that is written and read with a write-ahead log."""

LEFT_LOG_SECONDS = 1.0
"""How long a start may take to look for damage, when the last end was no orderly one."""

_STEPS = 10_000


def look(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Return what `work` makes of a database as of one moment; others may be writing it.

    A file that nobody has open is read as if it could not change, so that nothing is created
    beside it, and is read again, with SQLite's locks, if it did change.

    Raises:
        SchemaError: It is no SQLite database, or damaged.
        StoreError: It is not there, or cannot be read.
    """
    return traceless(path, partial(_looked, path, work))


def _looked(path: Path, work: Callable[[sqlite3.Connection], T], how: str) -> T:
    uri = f"{path.absolute().as_uri()}?{how}"
    with (
        translated(path, _PRAGMAS),
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA query_only = ON")
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        with snapshot(connection):
            return work(connection)


def writes_ahead(path: Path) -> bool:
    """Say whether a database has a write-ahead log; one read as unchanging would not tell."""
    with translated(path, _PRAGMAS), path.open("rb") as file:
        return file.read(_FORMATS.stop)[_FORMATS] == _WAL


def damage_in(connection: sqlite3.Connection, seconds: float | None) -> str | None:
    """Return the first thing that ``PRAGMA quick_check`` finds; nothing when all is well.

    Args:
        connection: Of the database.
        seconds: How long it may take; None sets no bound.

    Returns:
        None when it took too long.
    """
    return _within(connection, seconds, _quick_check)


def check_after_a_crash(connection: sqlite3.Connection, path: Path) -> None:
    """Make sure that a database and the write-ahead log that was left beside it belong together.

    SQLite applies whatever log it finds; another file's leaves pages of both. What is found here
    can still be taken back, because a connection that only reads keeps the log out of the file.

    Raises:
        SchemaError: They do not, or the database is damaged.
    """
    if damage_in(connection, LEFT_LOG_SECONDS) or is_of_another(connection, path):
        raise SchemaError(path, "is damaged")


def is_of_another(connection: sqlite3.Connection, path: Path) -> bool:
    """Say whether a database begins otherwise with its write-ahead log than without."""
    try:
        own = _looked(path, _origin, UNCHANGING)
    except StoreError:  # somebody writes it at this moment
        return False
    seen = _origin(connection)
    if seen is None and has_table(connection, "episodes"):  # our log was dropped
        return False
    forgotten = b"" in (own, seen)
    return own is not None and own != seen and not forgotten


def _origin(connection: sqlite3.Connection) -> bytes | None:
    """Return what no other database has: the first link of its ledger, or its first episode."""
    for table in ("slumberd_ledger", "slumberd_episode_log"):
        if has_table(connection, table):
            row = connection.execute(_SQL[f"origin_of_{table}"]).fetchone()
            return row[0] if row else None
    return None


def _quick_check(connection: sqlite3.Connection) -> str:
    told = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if told == "ok" else told


def _within(
    connection: sqlite3.Connection, seconds: float | None, work: Callable[[sqlite3.Connection], T]
) -> T | None:
    if seconds == 0:
        return None
    until = None if seconds is None else time.monotonic() + seconds
    connection.set_progress_handler(lambda: until is not None and time.monotonic() > until, _STEPS)
    try:
        return work(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        connection.set_progress_handler(None, 0)

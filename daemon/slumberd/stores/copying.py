"""Copy a SQLite file that others may be writing, without a byte left beside it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from slumberd.errors import StoreBusyError, StoreError
from slumberd.stores.sqlite import Pragmas, snapshot, translated
from slumberd.stores.traceless import LOCKED, UNCHANGING, untouched

Told = Callable[[int, int], object]
"""Takes how many pages are copied, and of how many."""

_PRAGMAS = Pragmas()
PAGES = 2_000
"""Pages that are copied at a time: a rollback journal's writer waits no longer than for these."""

_RESTARTS = 3
"""How often a copy begins again because the file changed, before it makes writers wait."""


class _RestlessError(Exception):
    """The file changes faster than it can be copied; a control flow of this module."""


def size_of(path: Path) -> int:
    """Return the bytes of a database and of what its write-ahead log adds; 0 when it is not there.

    Raises:
        StoreError: It cannot be looked at.
    """
    with translated(path, _PRAGMAS):
        return sum(one.stat().st_size for one in (path, _beside(path, "-wal")) if one.exists())


def is_full(error: StoreError) -> bool:
    """Say whether a store could not go on because a disk is full."""
    return (getattr(error.__cause__, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_FULL


def copy_database(source: Path, target: Path, told: Told = lambda *_: None) -> None:
    """Copy one SQLite file as of one moment; writers of it neither wait nor are waited for.

    A file that nobody has open is read as if it could not change, which needs no permission to
    write beside it, and is read again, with SQLite's locks, if it did change.

    Args:
        source: The file; it may be in use.
        target: The new file, for this user alone.
        told: Hears how far the copy is.

    Raises:
        PermissionDeniedError: The file may not be read.
        SchemaError: It is no SQLite database, or damaged.
        StoreBusyError: Another process does not let anybody read it.
        StoreError: It cannot be opened, or the copy finds no room.
    """
    before = untouched(source)
    if before is not None:
        _copy(source, target, told, UNCHANGING)
        if untouched(source) == before:
            return
        target.unlink()
    _copy(source, target, told, LOCKED)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _copy(source: Path, target: Path, told: Told, how: str) -> None:
    with (
        translated(source, _PRAGMAS),
        closing(_opened(f"{source.absolute().as_uri()}?{how}")) as reading,
        closing(_created(target)) as writing,
    ):
        if _journal_of(reading) == "wal":
            _copy_at_once(source, reading, writing, told)
            return
        try:
            reading.backup(writing, pages=PAGES, progress=_Patience(source, told, _RESTARTS))
        except _RestlessError:
            _copy_at_once(source, reading, writing, told)


def _copy_at_once(
    source: Path, reading: sqlite3.Connection, writing: sqlite3.Connection, told: Told
) -> None:
    with snapshot(reading):
        # Only a read begins the snapshot: the copy is of this moment, and never begins again.
        reading.execute("PRAGMA schema_version").fetchone()
        reading.backup(writing, pages=PAGES, progress=_Patience(source, told, 0))


def _opened(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PRAGMAS.busy_seconds)


def _created(target: Path) -> sqlite3.Connection:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(target, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _journal_of(connection: sqlite3.Connection) -> str:
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode


class _Patience:
    """Follows a copy, and ends one that waits, or begins again, for too long."""

    def __init__(self, path: Path, told: Told, restarts: int) -> None:
        self._path = path
        self._told = told
        self._restarts = restarts
        self._remaining: int | None = None

    def __call__(self, status: int, remaining: int, total: int) -> None:
        """Hear of one step; as SQLite calls it."""
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusyError(self._path, _PRAGMAS.busy_seconds)
        if self._remaining is not None and remaining >= self._remaining > 0:
            self._restarts -= 1
        if self._restarts < 0:
            raise _RestlessError
        self._remaining = remaining
        self._told(total - remaining, total)

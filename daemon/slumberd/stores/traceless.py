"""Read a database without a byte left beside it, whoever may write it at any moment."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from slumberd.errors import SchemaError
from slumberd.stores.database import Database
from slumberd.stores.sqlite import Pragmas, connect, translated

T = TypeVar("T")
Signature = tuple[int, int, int]

LOCKED = "mode=ro"
"""How SQLite opens a file that others may be writing: it makes two files beside it, if need be."""

UNCHANGING = "mode=ro&immutable=1"
"""How it opens a file that cannot change: without a lock, and without those two."""

_READS_WAL = 2
_READ_VERSION_AT = 19
"""Where the header of a file says whether it is read with a write-ahead log."""


def untouched(path: Path) -> Signature | None:
    """Return what tells that a file was not written; None when it may be at any moment.

    Not for a file that this process has open for writing: the kernel drops all locks that a process
    has on a file when it closes any descriptor of it.

    Raises:
        SchemaError: It is a directory, a pipe or the like.
        StoreError: It is not there, or cannot be read.
    """
    with translated(path, Pragmas()):
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would hold us for ever
            raise SchemaError(path, "is no regular file")
        with path.open("rb") as file:
            header = file.read(_READ_VERSION_AT + 1)
        # Without these two, no connection is open to a file that has a write-ahead log.
        open_ones = [end for end in ("-wal", "-shm") if _beside(path, end).exists()]
        if open_ones or header[_READ_VERSION_AT:] != bytes([_READS_WAL]):
            return None
        status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def traceless(path: Path, read: Callable[[str], T]) -> T:
    """Return what is read of a file.

    A file that nobody has open is read as if it could not change, which needs no permission to
    write beside it, and is read again, with SQLite's locks, if it did change.

    Args:
        path: The file.
        read: Opens it as it is told, and reads; what it did before must not count when it is
            called a second time.
    """
    before = untouched(path)
    if before is None:
        return read(LOCKED)
    try:
        found = read(UNCHANGING)
    except Exception:
        # Of half a change anything may come, errors of ours included.
        if untouched(path) == before:
            raise
    else:
        if untouched(path) == before:
            return found
    return read(LOCKED)


class TracelessDatabase(Database):
    """One SQLite file for whoever reads now and then: opened for each read, and closed after."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of a connection of its own; it may be called twice."""
        return await asyncio.to_thread(traceless, self.path, partial(self._read, work))

    def _read(self, work: Callable[[sqlite3.Connection], T], how: str) -> T:
        with (
            translated(self.path, self.pragmas),
            closing(
                connect(self.path, self.pragmas, access="read", key=self.key, how=how)
            ) as connection,
        ):
            return work(connection)

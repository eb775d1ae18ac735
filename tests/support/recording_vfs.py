"""SQLite on a disk that records its operations, by a VFS of apsw, which has its own SQLite.

It runs in the process of the tests. The real stores use its connections.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from slumberd.storage.sqlite import connection as sqlite_connection
from slumberd.storage.sqlite import database
from slumberd.storage.sqlite.connection import Access
from slumberd.storage.sqlite.session import Pragmas
from tests.support.recorded_disk import Disk, Truncate, Write

BUSY_MILLISECONDS = 50
_VFS = "recording"
_MAKES_ENTRIES = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL


class _File(apsw.VFSFile):
    """A file whose operations are recorded."""

    def __init__(self, disk: Disk, path: str | apsw.URIFilename | None, flags: list[int]) -> None:
        assert path is not None, "SQLite opens no temporary file here"
        name = path if isinstance(path, str) else path.filename()
        super().__init__("", path, flags)
        self._disk = disk
        self._file = disk.open(Path(name).name)
        self._is_new = bool(flags[0] & _MAKES_ENTRIES)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 # SQLite's name
        self._disk.steps.append(Write(self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 # SQLite's name
        self._disk.steps.append(Truncate(self._file, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 # SQLite's name
        self._disk.sync(self._file)
        # SQLite syncs the directory with a journal's first sync: the file may be new.
        if self._is_new:
            self._disk.sync_entries()
            self._is_new = False
        super().xSync(flags)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(_VFS, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 # SQLite's name
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 # SQLite's name
        super().xDelete(filename, syncdir)
        self._disk.delete(Path(filename).name)
        if syncdir:
            self._disk.sync_entries()


class _Answer:
    """The rows of a statement, as sqlite3's cursor gives them."""

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        return [*islice(self._rows, size)]

    def close(self) -> None:
        self._rows = iter(())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


class _Connection:
    """The part of `sqlite3.Connection` that the stores use, on a connection of apsw."""

    def __init__(self, path: Path, *, access: Access, key: bytes | None) -> None:
        write = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        flags = write if access == "write" else apsw.SQLITE_OPEN_READONLY
        self._connection = apsw.Connection(str(path), flags=flags, vfs=_VFS)
        self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        self.key = key
        self.text_factory: Any = str
        self.set_progress_handler = self._connection.set_progress_handler
        self.close = self._connection.close

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes()

    def create_function(
        self, name: str, count: int, function: Callable[..., Any], *, deterministic: bool
    ) -> None:
        self._connection.create_scalar_function(name, function, count, deterministic=deterministic)

    def cursor(self) -> _Connection:
        return self  # each answer is whole

    def execute(self, sql: str, values: Any = ()) -> _Answer:
        rows = list(self._connection.execute(sql, values))
        return _Answer(rows, self._connection.changes())

    def executemany(self, sql: str, rows: Iterable[Any]) -> _Answer:
        found = list(self._connection.executemany(sql, rows))
        return _Answer(found, self._connection.changes())


def _fsync(disk: Disk, descriptor: int) -> None:
    """Record a sync that the daemon does without SQLite."""
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    if path.is_dir():
        disk.sync_entries()
    else:
        disk.sync(disk.open(path.name))


def record_operations(patch: pytest.MonkeyPatch, *, pages: int) -> Disk:
    """Let the stores open their files on a disk that records its operations; return it.

    Args:
        patch: Undoes it.
        pages: In the write-ahead log, at which SQLite checkpoints.
    """
    disk = Disk()
    vfs = _Vfs(disk)

    def connect(
        path: Path, pragmas: Pragmas, *, access: Access, key: bytes | None = None, how: str = ""
    ) -> sqlite3.Connection:
        assert not how, "the files of a power cut are read as they are"
        path.touch()
        connection: Any = _Connection(path, access=access, key=key)
        sqlite_connection._configure(connection, pragmas, access)
        if access == "write":
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        return connection  # type: ignore[no-any-return] # it has all that the stores use

    patch.setattr(database, "connect", connect)
    patch.setattr(os, "fsync", partial(_fsync, disk))
    patch.setattr(disk, "vfs", vfs, raising=False)  # SQLite may call it as long as the disk exists
    return disk

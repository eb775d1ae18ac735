"""Open a SQLite file: for writing, for reading, or without leaving a trace beside it."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from slumberd.file_modes import create_file, make_directory
from slumberd.model.errors import SchemaError
from slumberd.storage.sqlite.session import KeyedConnection, Pragmas, translate_errors

T = TypeVar("T")

Access = Literal["write", "read"]

_LOG_SIZE_LIMIT = 64 * 2**20
"""Bytes to which SQLite truncates a write-ahead log when it starts it again."""

_SWITCH_PAUSE_SECONDS = 0.005
"""How long a connection waits before it tries again to switch a new file to a write-ahead log."""


def connect(
    path: Path,
    pragmas: Pragmas,
    *,
    access: Access,
    key: bytes | None = None,
    how: str = "",
) -> sqlite3.Connection:
    """Open one SQLite file; for writing, create it first, as `create_file` does.

    Args:
        pragmas: The settings of the connection.
        access: Whether the connection writes.
        key: The key of its ledger.
        how: Parameters of the URI; by default those of `access`.

    Raises:
        PermissionDeniedError: The file or its directory may not be read, or written.
        SchemaError: The file is not a SQLite database.
        StoreError: The file cannot be opened, or `access` is ``read`` and it does not exist.
    """
    with translate_errors(path, pragmas):
        if access == "write":
            _create(path)
        how = how or ("mode=rw" if access == "write" else "mode=ro")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{how}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=pragmas.busy_seconds,
            cached_statements=256,
            factory=KeyedConnection,
        )
        connection.key, connection.how = key, how
        try:
            _configure(connection, pragmas, access)
        except BaseException:
            connection.close()
            raise
        return connection


def _create(path: Path) -> None:
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "the path holds NUL", str(path))
    make_directory(path.parent)
    # SQLite gives -wal and -shm the mode of the database, so it must be right from the start.
    # An existing file is not opened: closing it would drop all locks that this process has on it,
    # and the next program that ends would then delete the write-ahead log.
    with suppress(FileExistsError):
        os.close(create_file(path.resolve()))
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _configure(connection: sqlite3.Connection, pragmas: Pragmas, access: Access) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = {-1024 * pragmas.cache_mebibytes:d}")
    if access == "read":
        connection.execute("PRAGMA query_only = ON")
        return
    _start_write_ahead_log(connection, pragmas.busy_seconds)
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_SIZE_LIMIT:d}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {pragmas.log_pages:d}")
    connection.execute(f"PRAGMA synchronous = {pragmas.synchronous}")
    # Deleted rows are overwritten with zeros. Some builds of SQLite do so by default.
    connection.execute("PRAGMA secure_delete = ON")


def _start_write_ahead_log(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch a file to a write-ahead log; wait while others switch the same new file."""
    deadline = time.monotonic() + busy_seconds
    while not _switches(connection, must=time.monotonic() >= deadline):
        time.sleep(_SWITCH_PAUSE_SECONDS)


def _switches(connection: sqlite3.Connection, *, must: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # SQLite itself does not wait here: each of two connections could wait for the other.
        if must or error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def look_first(path: Path, pragmas: Pragmas, check: Callable[[sqlite3.Connection], None]) -> None:
    """Check a file that exists, without changing it or a file beside it.

    An opened file may change: its kind of journal, and the files that SQLite makes beside it.
    Here only a log that a crash left behind may get an index. A file with a journal is not read.
    The caller opens the file afterwards, which reports a file that cannot be read.

    Raises:
        SchemaError: The check failed.
    """
    with translate_errors(path, pragmas):
        if not path.exists() or not path.stat().st_size or _sibling(path, "-journal").exists():
            return
        how = LOCKED if _has_log(path) else UNCHANGING
        before = _identity(path)
    try:
        _look_with(path, check, how)
    except SchemaError:
        # Another program may have written the file while it was read without locks.
        with translate_errors(path, pragmas):
            if how == LOCKED or (not _has_log(path) and _identity(path) == before):
                raise
        _look_with(path, check, LOCKED)


def _look_with(path: Path, check: Callable[[sqlite3.Connection], None], how: str) -> None:
    uri = f"{path.absolute().as_uri()}?{how}"
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA query_only = ON")
        check(connection)


def _has_log(path: Path) -> bool:
    return any(_sibling(path, end).exists() for end in ("-wal", "-shm"))


def _identity(path: Path) -> Signature:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


Signature = tuple[int, int, int]


LOCKED = "mode=ro"
"""URI parameters for a file that others may write: SQLite may create two files beside it."""


UNCHANGING = "mode=ro&immutable=1"
"""URI parameters for a file that does not change: SQLite takes no lock and creates no file."""


_READS_WAL = 2


_READ_VERSION_AT = 19
"""The byte of the header that says whether the file has a write-ahead log."""


def untouched(path: Path) -> Signature | None:
    """Return a signature that changes with each write; None when a connection may be open.

    The first call for a file must come before this process opens it with locks.

    Raises:
        SchemaError: The path is a directory, a pipe or the like.
        StoreError: The file does not exist, or cannot be read.
    """
    with translate_errors(path, Pragmas()):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise SchemaError(str(path), "is no regular file")
        # While a connection to a file with a write-ahead log is open, these two files exist.
        if _has_log(path) or not status.st_size or not _writes_log(path, status.st_ino):
            return None
        return _identity(path)


@cache
def _writes_log(path: Path, _inode: int) -> bool:
    """Return whether the writers of a file use a write-ahead log. Opens each file only once.

    When a process closes any descriptor of a file, the kernel drops all locks of that process on
    it. Then another program would write while a second read of this process goes on.
    """
    with path.open("rb") as file:
        header = file.read(_READ_VERSION_AT + 1)
    return header[_READ_VERSION_AT:] == bytes([_READS_WAL])


def _sibling(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def traceless(path: Path, read: Callable[[str], T]) -> T:
    """Read a file and leave nothing beside it.

    A file that no program has open is read without locks, which needs no permission to write
    beside it. If the file changed meanwhile, it is read again with SQLite's locks.

    Args:
        read: Opens the file with the given URI parameters, and reads. It may be called twice; only
            the result of the last call counts.
    """
    before = untouched(path)
    if before is None:
        return read(LOCKED)
    try:
        found = read(UNCHANGING)
    except Exception:
        # A half-written file may cause any error.
        if untouched(path) == before:
            raise
    else:
        if untouched(path) == before:
            return found
    return read(LOCKED)

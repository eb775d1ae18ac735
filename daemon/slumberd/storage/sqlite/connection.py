"""Open SQLite files, translate SQLite's errors, and run transactions."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slumberd.file_modes import create_file, make_directory
from slumberd.model.errors import (
    PermissionDeniedError,
    RowRefusedError,
    SchemaError,
    StoppedError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from slumberd.storage.engine import Mangled

Synchronous = Literal["off", "normal", "full"]
Access = Literal["write", "read"]

_LOG_SIZE_LIMIT = 64 * 2**20
"""Bytes to which SQLite truncates a write-ahead log when it starts it again."""

_STEPS_PER_CHECK = 20_000
"""Steps of SQLite's machine between two checks of a deadline: about a millisecond. Each check waits
for the interpreter, so more of them would slow the statement down."""


_SWITCH_PAUSE_SECONDS = 0.005
"""How long a connection waits before it tries again to switch a new file to a write-ahead log."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock, unless its caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Pragmas:
    """How a connection is set up.

    Attributes:
        synchronous: ``off`` and ``normal`` survive any crash of the process, ``full`` a power cut
            too. After a power cut, a file with ``off`` may be damaged.
        busy_seconds: How long a statement waits for another process's lock.
        cache_mebibytes: Page cache of the connection.
        log_pages: How long the write-ahead log grows before a commit moves it into the database.
    """

    synchronous: Synchronous = "normal"
    busy_seconds: float = BUSY_SECONDS
    cache_mebibytes: int = 8
    log_pages: int = 1_000


class KeyedConnection(sqlite3.Connection):
    """A connection that carries the key of its file's ledger.

    Code that writes a batch has the connection, and so always has the key.

    Attributes:
        key: The key of the ledger's hash chain; None for a chain without a key.
    """

    key: bytes | None = None


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
        connection.key = key
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


@contextmanager
def translate_errors(path: Path, pragmas: Pragmas) -> Iterator[None]:
    """Turn errors of SQLite and of the system into slumberd's errors, which name the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _operational_error(error, path, pragmas) from error
    except sqlite3.IntegrityError as error:
        raise RowRefusedError(f"{str(path)!r}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise _damage_error(error, path) from error
    except PermissionError as error:
        raise PermissionDeniedError(str(path), "open") from error
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be opened: {error.strerror}") from error
    except UnicodeEncodeError as error:  # half of a surrogate pair; SQLite cannot store it
        raise UsageError(f"{error.object!r} is no valid Unicode") from error


def _operational_error(error: sqlite3.OperationalError, path: Path, pragmas: Pragmas) -> StoreError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(str(path), pragmas.busy_seconds)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return PermissionDeniedError(str(path), "write")
        case sqlite3.SQLITE_INTERRUPT:
            return StoppedError(f"{str(path)!r}: the work was cancelled before it was committed")
        case sqlite3.SQLITE_CANTOPEN if not path.exists():
            return StoreError(f"{str(path)!r} does not exist")
        case sqlite3.SQLITE_CANTOPEN if not os.access(path, os.R_OK, effective_ids=True):
            return PermissionDeniedError(str(path), "read")
        case _:
            return StoreError(f"{str(path)!r}: {error}")


def _damage_error(error: sqlite3.DatabaseError, path: Path) -> StoreError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaError(str(path), "is no SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return SchemaError(str(path), "is damaged; `slumberd restore DIR` puts back a backup")
    return StoreError(f"{str(path)!r}: {error}")


@contextmanager
def transaction(connection: sqlite3.Connection, *, keep: bool = True) -> Iterator[None]:
    """Commit all that the block writes, or nothing; roll back in any case unless `keep`.

    The transaction takes the write lock first. SQLite refuses a transaction that reads before it
    writes, at once, when another process wrote in between, whatever the busy timeout is.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT" if keep else "ROLLBACK")
    except BaseException:
        # After a full disk SQLite has rolled back by itself already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def interrupting_when(
    connection: sqlite3.Connection, cancelled: Callable[[], bool] | None
) -> Iterator[None]:
    """Interrupt the block's statements once `cancelled` returns True; None never interrupts.

    Raises:
        StoppedError: A statement was interrupted; the caller must roll back.
    """
    if cancelled is None:
        yield
        return
    # Not interrupt(): executemany goes on after it.
    connection.set_progress_handler(cancelled, _STEPS_PER_CHECK)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise StoppedError("the work was cancelled before it was committed") from error
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def waiting_at_most(connection: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Wait at most so long for other programs' locks within the block; None changes nothing."""
    if seconds is None:
        yield
        return
    usual: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds):d}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual:d}")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block's reads on one snapshot."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def decode_texts_with(
    connection: sqlite3.Connection, decode: Callable[[bytes], Any]
) -> Iterator[None]:
    """Decode the texts of the block's rows with `decode`."""
    usual = connection.text_factory
    connection.text_factory = decode
    try:
        yield
    finally:
        connection.text_factory = usual


def escaped(text: bytes) -> str:
    """Decode text, each invalid byte as a surrogate."""
    return text.decode("utf-8", "surrogateescape")


def unicode_or_none(text: bytes) -> str | None:
    """Decode text; return None when it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def is_invalid_text(error: sqlite3.OperationalError) -> bool:
    """Return whether an error says that a text of a row is not UTF-8."""
    return "decode to UTF-8" in str(error)


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection commits."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number that SQLite increments when the schema of the file changes."""
    version: int = connection.execute("PRAGMA schema_version").fetchone()[0]
    return version


def lenient_text(raw: bytes) -> str:
    """Decode a text column, even with invalid UTF-8; a text factory for connections."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Mangled(raw.decode(errors="backslashreplace"))

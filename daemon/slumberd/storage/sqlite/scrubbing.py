"""Remove the bytes of deleted rows from a SQLite file and from its write-ahead log.

``PRAGMA secure_delete`` overwrites deleted rows, but no copies of rows that SQLite has moved to
another page. Another program may delete without it. SQLite does not say where such bytes are, so
``VACUUM`` writes the file anew, from its rows.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.sqlite.file_schema import file_of
from slumberd.storage.sqlite.session import waiting_at_most

REASON = (
    "its free space may hold copies of rows that SQLite has moved, and rows that another program "
    "deleted without secure_delete"
)
"""Why a file is rewritten."""

SPARE_BYTES = 16 * 2**20
"""Free space that the rewriting of a file needs beside its copies."""

_WAIT_SECONDS = 0.02
"""How long to wait for a reader of the log before the next attempt."""

_LOCK_WAIT_SECONDS = 0.001
"""How long to wait before the next attempt to take the write lock."""

_TRUNCATE_MILLISECONDS = 50
"""How long an attempt to empty the log, which stops other writers, waits for readers."""

Guard = Callable[[sqlite3.Connection], AbstractContextManager[object]]
"""What must be kept right while a file is rewritten."""


def scrub(
    connection: sqlite3.Connection,
    how: Scrubbing = Scrubbing(),  # noqa: B008 # immutable
    *,
    guard: Guard = nullcontext,
) -> Scrubbed:
    """Remove every byte of deleted content from a file, and empty its write-ahead log.

    Others cannot write while the file is rewritten. They can read.

    Args:
        connection: Outside of any transaction.
        how: What to try.
        guard: Surrounds the rewriting, outside of any transaction.
    """
    with waiting_at_most(connection, how.wait_seconds), _lasting(connection):
        seconds: float = connection.execute("PRAGMA busy_timeout").fetchone()[0] / 1000
        obstacle = _rewrite(connection, seconds, guard) if how.rewrite else None
        emptied = _empty_log(connection, seconds)
    rewritten = REASON if how.rewrite and obstacle is None else None
    if obstacle is None and not emptied:
        obstacle = f"another program reads an old state of {file_of(connection)!r}"
    return Scrubbed(emptied, rewritten, obstacle=obstacle)


@contextmanager
def _lasting(connection: sqlite3.Connection) -> Iterator[None]:
    """Make what the block does survive a power cut, whatever ``synchronous`` is."""
    usual = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA synchronous = {usual:d}")


def _rewrite(connection: sqlite3.Connection, seconds: float, guard: Guard) -> str | None:
    """Rewrite a file; return what prevents it, None when it is done."""
    if problem := find_missing_space(Path(file_of(connection)), _bytes_of(connection)):
        return problem
    try:
        with guard(connection):
            _vacuum(connection, seconds)
    except sqlite3.OperationalError as error:
        if (problem := _obstacle_of(error, file_of(connection))) is None:
            raise
        return problem
    return None


def _obstacle_of(error: sqlite3.OperationalError, path: str) -> str | None:
    match error.sqlite_errorcode & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another program writes into {path!r} for too long"
        case sqlite3.SQLITE_CANTOPEN:
            return f"SQLite cannot make a temporary file to rewrite {path!r}: set TMPDIR"
        case sqlite3.SQLITE_FULL:
            return f"the disk has too little free space to rewrite {path!r}"
        case _:
            return None


def _vacuum(connection: sqlite3.Connection, seconds: float) -> None:
    """Rewrite the file; SQLite itself tries too rarely to get the lock beside a busy writer."""
    until = time.monotonic() + seconds
    # In memory, a copy of a large file would not fit.
    connection.execute("PRAGMA temp_store = FILE")
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise
                time.sleep(_LOCK_WAIT_SECONDS)
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds):d}")
        connection.execute("PRAGMA temp_store = MEMORY")


def _bytes_of(connection: sqlite3.Connection) -> int:
    """Return the size of the database without its free pages: VACUUM copies only the others."""
    count, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((count - free) * size)


def find_missing_space(path: Path, size: int) -> str | None:
    """Return which disk has no space to rewrite a file, in words; None when the space is there.

    Args:
        path: The file. Its log grows by a copy of it.
        size: The bytes of its rows. SQLite also makes a temporary copy of them.
    """
    try:
        temporary = temporary_directory()
    except FileNotFoundError:
        return f"to rewrite {str(path)!r} takes a directory for temporary files: set TMPDIR"
    needed = {path.parent: size}
    if temporary.stat().st_dev == path.parent.stat().st_dev:
        needed[path.parent] += size
    else:
        needed[temporary] = size
    for place, wanted in needed.items():
        free = shutil.disk_usage(place).free
        if free < wanted + SPARE_BYTES:
            return (
                f"to rewrite {str(path)!r} takes {_mebibytes(wanted + SPARE_BYTES)} MiB free in "
                f"{str(place)!r}, which has {_mebibytes(free)} MiB"
            )
    return None


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def temporary_directory() -> Path:
    """Return where SQLite makes its temporary files: in $TMPDIR, else in /var/tmp, else in /tmp."""
    place = Path(tempfile.gettempdir())
    own = Path("/var/tmp")  # noqa: S108 # SQLite's first choice without a variable
    return own if place == Path("/tmp") and os.access(own, os.W_OK | os.X_OK) else place  # noqa: S108


def _empty_log(connection: sqlite3.Connection, seconds: float) -> bool:
    """Empty the log; a waiting attempt stops other writers, so that each waits only shortly."""
    connection.execute(f"PRAGMA busy_timeout = {_TRUNCATE_MILLISECONDS:d}")
    until = time.monotonic() + seconds
    try:
        while connection.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchone()[0]:
            if time.monotonic() > until:
                return False
            time.sleep(_WAIT_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds):d}")
    return True

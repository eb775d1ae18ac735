"""Copy a SQLite file that others may be writing, without a byte left beside it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from slumberd.errors import SchemaError, StoreBusyError, StoreError
from slumberd.storage.sqlite.connection import (
    BUSY_SECONDS,
    Pragmas,
    data_version,
    snapshot,
    translate_errors,
)
from slumberd.storage.sqlite.database import LOCKED, UNCHANGING, untouched

Told = Callable[[int, int], object]
"""Takes how many pages are copied, and of how many."""

_PRAGMAS = Pragmas()


class CopyLimits(NamedTuple):
    """How a copy shares a file with its writers.

    Attributes:
        pages: Pages that are copied at a time. A writer of a rollback journal waits for no more.
        busy_seconds: How long the copy waits for another process's lock.
    """

    pages: int = 2_000
    busy_seconds: float = BUSY_SECONDS


_USUAL = CopyLimits()

_SNAPSHOT_ATTEMPTS = 1_000
"""How often snapshots of several files are begun again because somebody committed in between."""

_RESTARTS = 3
"""How often a copy begins again because the file changed, before it makes writers wait."""


class _KeepsChangingError(Exception):
    """The file changes faster than it can be copied; a control flow of this module."""


def size_of(path: Path) -> int:
    """Return the bytes of a database and of what its write-ahead log adds; 0 when it is not there.

    Raises:
        StoreError: It cannot be looked at.
    """
    with translate_errors(path, _PRAGMAS):
        return sum(one.stat().st_size for one in (path, _sibling(path, "-wal")) if one.exists())


def is_full(error: StoreError) -> bool:
    """Say whether a store could not go on because a disk is full."""
    return (getattr(error.__cause__, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_FULL


def copy_database(
    source: Path, target: Path, told: Told = lambda *_: None, *, limits: CopyLimits = _USUAL
) -> None:
    """Copy one SQLite file as of one moment; writers of it neither wait nor are waited for.

    A file that nobody has open is read as if it could not change, which needs no permission to
    write beside it, and is read again, with SQLite's locks, if it did change.

    Args:
        source: The file; it may be in use.
        target: The new file, for this user alone.
        told: Hears how far the copy is.
        limits: How the copy shares the file with its writers.

    Raises:
        PermissionDeniedError: The file may not be read.
        SchemaError: It is no SQLite database, or damaged.
        StoreBusyError: Another process does not let anybody read it.
        StoreError: It cannot be opened, or the copy finds no room.
    """
    before = untouched(source)
    if before is not None:
        _copy(source, target, told, UNCHANGING, limits)
        if untouched(source) == before:
            return
        target.unlink()
    _copy(source, target, told, LOCKED, limits)


def copy_together(
    pairs: Sequence[tuple[Path, Path]],
    told: Told = lambda *_: None,
    *,
    limits: CopyLimits = _USUAL,
) -> None:
    """Copy several SQLite files as of one moment: no commit to any of them lies in between.

    Writers of a file with a write-ahead log neither wait nor are waited for. Those of a rollback
    journal wait until it is copied. Files that nobody has open are read as in `copy_database`.

    Args:
        pairs: Each file, and the new one that its copy goes to.
        told: Hears how far the copy of each is.
        limits: How the copies share the files with their writers.

    Raises:
        StoreError: As `copy_database`.
    """
    before = [untouched(source) for source, _ in pairs]
    if None not in before:
        with ExitStack() as stack:
            unchanging = [_open_for_reading(stack, path, UNCHANGING, limits) for path, _ in pairs]
            _copy_each(pairs, unchanging, told, limits)
        if [untouched(source) for source, _ in pairs] == before:
            return
        for _, target in pairs:
            target.unlink()
    with ExitStack() as stack:
        reading = [_open_for_reading(stack, source, LOCKED, limits) for source, _ in pairs]
        _begin_together([source for source, _ in pairs], reading, limits)
        _copy_each(pairs, reading, told, limits)


def _open_for_reading(
    stack: ExitStack, source: Path, how: str, limits: CopyLimits
) -> sqlite3.Connection:
    with translate_errors(source, _PRAGMAS):
        return stack.enter_context(closing(_open(f"{source.absolute().as_uri()}?{how}", limits)))


def _copy_each(
    pairs: Sequence[tuple[Path, Path]],
    reading: Sequence[sqlite3.Connection],
    told: Told,
    limits: CopyLimits,
) -> None:
    for (source, target), connection in zip(pairs, reading, strict=True):
        with translate_errors(source, _PRAGMAS), closing(_create(target)) as writing:
            progress = _CopyProgress(source, told, 0, limits.busy_seconds)
            connection.backup(writing, pages=limits.pages, progress=progress)


def _begin_together(
    sources: Sequence[Path], reading: Sequence[sqlite3.Connection], limits: CopyLimits
) -> None:
    """Begin to read each file, all at one moment.

    Each connection says before and after whether somebody has committed in between. A file that
    nobody changed from the first look until its read began was the same all that time, and the last
    first look lies before the first read. So when no file changed, that moment is in all of them.
    Otherwise the connections begin again, which is quicker than a commit.
    """
    for _ in range(_SNAPSHOT_ATTEMPTS):
        before = _versions(sources, reading)
        for source, connection in zip(sources, reading, strict=True):
            with translate_errors(source, _PRAGMAS):
                connection.execute("BEGIN")
                connection.execute("PRAGMA schema_version").fetchone()
        # Inside the reads: a further connection would wait for a writer that waits for them.
        if _versions(sources, reading) == before:
            return
        for connection in reading:
            connection.execute("ROLLBACK")
    raise StoreBusyError(sources[0], limits.busy_seconds)


def _versions(sources: Sequence[Path], reading: Sequence[sqlite3.Connection]) -> list[int]:
    found = []
    for source, connection in zip(sources, reading, strict=True):
        with translate_errors(source, _PRAGMAS):
            found.append(data_version(connection))
    return found


def refuse_in_use(path: Path) -> None:
    """Make sure that nobody has a database open, and take its write-ahead log in.

    Raises:
        StoreBusyError: Somebody has it open.
    """
    try:
        with (
            translate_errors(path, _PRAGMAS),
            closing(_open(f"{path.as_uri()}?mode=rw", _USUAL)) as alone,
        ):
            alone.execute("PRAGMA busy_timeout = 0")
            # Set before the first read: every other connection keeps the file from us then.
            alone.execute("PRAGMA locking_mode = EXCLUSIVE")
            alone.execute("BEGIN EXCLUSIVE")
            alone.execute("COMMIT")
    except SchemaError:  # it is damaged: there is nothing to take in, and nobody reads it
        return


def _sibling(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _copy(source: Path, target: Path, told: Told, how: str, limits: CopyLimits) -> None:
    with (
        translate_errors(source, _PRAGMAS),
        closing(_open(f"{source.absolute().as_uri()}?{how}", limits)) as reading,
        closing(_create(target)) as writing,
    ):
        if _journal_of(reading) == "wal":
            _copy_snapshot(source, reading, writing, told, limits)
            return
        try:
            progress = _CopyProgress(source, told, _RESTARTS, limits.busy_seconds)
            reading.backup(writing, pages=limits.pages, progress=progress)
        except _KeepsChangingError:
            _copy_snapshot(source, reading, writing, told, limits)


def _copy_snapshot(
    source: Path,
    reading: sqlite3.Connection,
    writing: sqlite3.Connection,
    told: Told,
    limits: CopyLimits,
) -> None:
    with snapshot(reading):
        # Only a read begins the snapshot: the copy is of this moment, and never begins again.
        reading.execute("PRAGMA schema_version").fetchone()
        progress = _CopyProgress(source, told, 0, limits.busy_seconds)
        reading.backup(writing, pages=limits.pages, progress=progress)


def _open(uri: str, limits: CopyLimits) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=limits.busy_seconds)


def _create(target: Path) -> sqlite3.Connection:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(target, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _journal_of(connection: sqlite3.Connection) -> str:
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode


class _CopyProgress:
    """Follows a copy, and ends one that waits, or begins again, for too long."""

    def __init__(self, path: Path, told: Told, restarts: int, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._told = told
        self._restarts = restarts
        self._remaining: int | None = None

    def __call__(self, status: int, remaining: int, total: int) -> None:
        """Hear of one step; as SQLite calls it."""
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusyError(self._path, self._busy_seconds)
        if self._remaining is not None and remaining >= self._remaining > 0:
            self._restarts -= 1
        if self._restarts < 0:
            raise _KeepsChangingError
        self._remaining = remaining
        self._told(total - remaining, total)

"""Copy SQLite files while other programs write them, and leave no files beside them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from slumberd.model.errors import SchemaError, StoreBusyError, StoreError
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.sqlite.connection import LOCKED, UNCHANGING, untouched
from slumberd.storage.sqlite.session import (
    BUSY_SECONDS,
    Pragmas,
    data_version,
    snapshot,
    translate_errors,
)

OnProgress = Callable[[int, int], object]
"""Called with the number of copied pages and the number of all pages."""

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
"""How often snapshots of several files begin again because a program committed in between."""

_RESTARTS = 3
"""How often a copy begins again because the file changed; then it makes writers wait."""


class _KeepsChangingError(Exception):
    """The file changes faster than it can be copied; only used in this module."""


def is_full(error: StoreError) -> bool:
    """Return whether an error of a store means that a disk is full."""
    return (getattr(error.__cause__, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_FULL


def copy_database(
    source: Path,
    target: Path,
    on_progress: OnProgress = lambda *_: None,
    *,
    limits: CopyLimits = _USUAL,
) -> None:
    """Copy one SQLite file as of one moment; the copy and writers do not wait for each other.

    A file that no program has open is read without locks, which needs no permission to write
    beside it. If the file changed meanwhile, it is read again with SQLite's locks.

    Args:
        source: The file; it may be in use.
        target: The new file; only this user may read it.
        on_progress: Called after each step.
        limits: How the copy shares the file with its writers.

    Raises:
        PermissionDeniedError: The file may not be read.
        SchemaError: The file is not a SQLite database, or is damaged.
        StoreBusyError: Another process has locked the file even for reading.
        StoreError: The file cannot be opened, or there is no space for the copy.
    """
    before = untouched(source)
    if before is not None:
        _copy(source, target, on_progress, UNCHANGING, limits)
        if untouched(source) == before:
            return
        target.unlink()
    _copy(source, target, on_progress, LOCKED, limits)


def copy_together(
    pairs: Sequence[tuple[Path, Path]],
    on_progress: OnProgress = lambda *_: None,
    *,
    limits: CopyLimits = _USUAL,
) -> None:
    """Copy several SQLite files as of one moment: no commit to any of them lies in between.

    Writers of a file with a write-ahead log do not wait, and the copy does not wait for them.
    Writers of a file with a rollback journal wait until it is copied. Files that no program has
    open are read as in `copy_database`.

    Args:
        pairs: Each file, and the new file for its copy.
        on_progress: Called after each step of each file.
        limits: How the copies share the files with their writers.

    Raises:
        StoreError: As `copy_database`.
    """
    before = [untouched(source) for source, _ in pairs]
    if None not in before:
        with ExitStack() as stack:
            reading = [_open_for_reading(stack, source, UNCHANGING, limits) for source, _ in pairs]
            _copy_each(pairs, reading, on_progress, limits)
        if [untouched(source) for source, _ in pairs] == before:
            return
        for _, target in pairs:
            target.unlink()
    with ExitStack() as stack:
        reading = [_open_for_reading(stack, source, LOCKED, limits) for source, _ in pairs]
        _begin_together([source for source, _ in pairs], reading, limits)
        _copy_each(pairs, reading, on_progress, limits)


def _open_for_reading(
    stack: ExitStack, source: Path, how: str, limits: CopyLimits
) -> sqlite3.Connection:
    with translate_errors(source, _PRAGMAS):
        return stack.enter_context(closing(_open(f"{source.absolute().as_uri()}?{how}", limits)))


def _copy_each(
    pairs: Sequence[tuple[Path, Path]],
    reading: Sequence[sqlite3.Connection],
    on_progress: OnProgress,
    limits: CopyLimits,
) -> None:
    for (source, target), connection in zip(pairs, reading, strict=True):
        with translate_errors(source, _PRAGMAS), closing(_create(target)) as writing:
            progress = _CopyProgress(source, on_progress, 0, limits.busy_seconds)
            connection.backup(writing, pages=limits.pages, progress=progress)


def _begin_together(
    sources: Sequence[Path], reading: Sequence[sqlite3.Connection], limits: CopyLimits
) -> None:
    """Begin to read each file, all as of one moment.

    The versions of all files are read before the first snapshot begins and after the last one. A
    file whose version is the same did not change in between. If no file changed, all snapshots show
    the moment before the first one. Otherwise all begin again, which is quicker than a commit.
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
    raise StoreBusyError(str(sources[0]), limits.busy_seconds)


def _versions(sources: Sequence[Path], reading: Sequence[sqlite3.Connection]) -> list[int]:
    found = []
    for source, connection in zip(sources, reading, strict=True):
        with translate_errors(source, _PRAGMAS):
            found.append(data_version(connection))
    return found


def check_not_in_use(path: Path) -> None:
    """Check that no program has a database open, and move its write-ahead log into it.

    Raises:
        StoreBusyError: A program has it open.
    """
    try:
        with (
            translate_errors(path, _PRAGMAS),
            closing(_open(f"{path.as_uri()}?mode=rw", _USUAL)) as alone,
        ):
            alone.execute("PRAGMA busy_timeout = 0")
            # Set before the first read, so that any other connection makes the read fail.
            alone.execute("PRAGMA locking_mode = EXCLUSIVE")
            alone.execute("BEGIN EXCLUSIVE")
            alone.execute("COMMIT")
    except SchemaError:  # a damaged file has no usable log, and no program reads it
        return


def _copy(
    source: Path, target: Path, on_progress: OnProgress, how: str, limits: CopyLimits
) -> None:
    with (
        translate_errors(source, _PRAGMAS),
        closing(_open(f"{source.absolute().as_uri()}?{how}", limits)) as reading,
        closing(_create(target)) as writing,
    ):
        if _journal_of(reading) == "wal":
            _copy_snapshot(source, reading, writing, on_progress, limits)
            return
        try:
            progress = _CopyProgress(source, on_progress, _RESTARTS, limits.busy_seconds)
            reading.backup(writing, pages=limits.pages, progress=progress)
        except _KeepsChangingError:
            _copy_snapshot(source, reading, writing, on_progress, limits)


def _copy_snapshot(
    source: Path,
    reading: sqlite3.Connection,
    writing: sqlite3.Connection,
    on_progress: OnProgress,
    limits: CopyLimits,
) -> None:
    with snapshot(reading):
        # Only a read begins the snapshot. The copy shows this moment, and never begins again.
        reading.execute("PRAGMA schema_version").fetchone()
        progress = _CopyProgress(source, on_progress, 0, limits.busy_seconds)
        reading.backup(writing, pages=limits.pages, progress=progress)


def _open(uri: str, limits: CopyLimits) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=limits.busy_seconds)


def _create(target: Path) -> sqlite3.Connection:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(target)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _journal_of(connection: sqlite3.Connection) -> str:
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode


class _CopyProgress:
    """Reports the progress of a copy, and ends a copy that waits or begins again too long."""

    def __init__(
        self, path: Path, on_progress: OnProgress, restarts: int, busy_seconds: float
    ) -> None:
        self._busy_seconds = busy_seconds
        self._path = path
        self._on_progress = on_progress
        self._restarts = restarts
        self._remaining: int | None = None

    def __call__(self, status: int, remaining: int, total: int) -> None:
        """Take the state of one step; SQLite calls this."""
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusyError(str(self._path), self._busy_seconds)
        if self._remaining is not None and remaining >= self._remaining > 0:
            self._restarts -= 1
        if self._restarts < 0:
            raise _KeepsChangingError
        self._remaining = remaining
        self._on_progress(total - remaining, total)


class SQLiteCopies:
    """Copies the SQLite files of a state directory; implements `StoreCopies`.

    Args:
        paths: The file of each store.
    """

    def __init__(self, paths: Mapping[StoreName, Path]) -> None:
        self._paths = paths

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one file as of one moment.

        Raises:
            StoreError: The file cannot be read, or there is no space for the copy.
        """
        copy_database(self._paths[store], target)

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several files as of one moment: no commit to any of them lies in between.

        Raises:
            StoreError: As `copy`.
        """
        copy_together([(self._paths[store], target) for store, target in targets.items()])

    def check_not_in_use(self, store: StoreName) -> None:
        """Check that no program has a file open, and move its write-ahead log into it.

        Raises:
            StoreBusyError: A program has it open.
        """
        if self._paths[store].exists():
            check_not_in_use(self._paths[store])

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that a disk is full."""
        return is_full(error)

"""Overwrite the free bytes of a SQLite file with zeros, while other programs read and write it.

Run as a process of its own: ``python -m slumberd.storage.sqlite.overwriting FILE SECONDS``. When a
process closes any descriptor of a file, the kernel drops all locks of that process on the file. So
a process that has the database open must not open the file a second time.

The file must be in WAL mode. A snapshot that needs nothing of the write-ahead log keeps the file
unchanged: until it ends, no checkpoint writes into the file, and other programs write only into the
log. This process overwrites bytes that nobody reads, so a reader, a crash or a power cut at any
moment finds the same database.

A page that another program wrote meanwhile may bring old bytes back, from its cache. So the log
names the pages to overwrite again. The last of them are overwritten in a write transaction. Its
commit invalidates the caches of all other connections.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from slumberd.storage.sqlite.free_space import FreeSpace, Interval, UnexpectedPageError

_ROUNDS = 8
"""How often pages that others wrote meanwhile are overwritten, before the others must wait."""

_WAIT_SECONDS = 0.02
"""How long to wait for a reader or a checkpoint of another program, before the next attempt."""

_LOCK_WAIT_SECONDS = 0.001
"""How long to wait before the next attempt to take the write lock."""

_TRUNCATE_MILLISECONDS = 50
"""How long an attempt to empty the log, which stops other writers, waits for readers."""

_RESERVED_AT, _LARGEST_ROOT_AT = 20, slice(52, 56)
"""Bytes of the header: space that an extension uses in each page; not 0 with auto_vacuum."""

_LOG_HEADER = Struct(">16s8s8s")
_FRAME_HEADER = Struct(">II8s8s")

_ROOTS = "SELECT rootpage FROM sqlite_master WHERE rootpage > 0"


class CannotOverwriteError(Exception):
    """The free bytes cannot be overwritten in place."""


class Overwritten(NamedTuple):
    """What was done.

    Attributes:
        pages: Pages in which free bytes were not zero.
        bytes: How many of these bytes there were.
        log_emptied: Whether the write-ahead log could be emptied; a reader may prevent it.
    """

    pages: int
    bytes: int
    log_emptied: bool


def overwrite(path: Path, seconds: float) -> Overwritten:
    """Overwrite all free bytes of a file, and empty its write-ahead log.

    Args:
        path: The file.
        seconds: How long to wait for other programs' transactions, in each step.

    Raises:
        CannotOverwriteError: The file is not in WAL mode, or has an extension of the format.
        UnexpectedPageError: The file is damaged.
        sqlite3.Error: Another program has the file locked for too long.
    """
    with ExitStack() as stack:
        # The descriptor is closed last: closing it drops the locks of this process.
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, file)
        writer = stack.enter_context(closing(_connect(path, seconds)))
        holder = stack.enter_context(closing(_connect(path, seconds)))
        return _Overwriter(path, file, writer, holder, seconds).run()


def _connect(path: Path, seconds: float) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=seconds)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class _Overwriter:
    """Overwrites the free bytes of one file.

    Args:
        path: The file.
        file: Its descriptor.
        writer: Takes the write lock.
        holder: Keeps the file unchanged.
        seconds: How long a step waits for other programs.
    """

    def __init__(
        self,
        path: Path,
        file: int,
        writer: sqlite3.Connection,
        holder: sqlite3.Connection,
        seconds: float,
    ) -> None:
        self._file = file
        self._writer = writer
        self._holder = holder
        self._seconds = seconds
        self._log = path.with_name(f"{path.name}-wal")
        self._size: int = writer.execute("PRAGMA page_size").fetchone()[0]
        self._writer.execute("PRAGMA busy_timeout = 0")  # `_begin` tries again
        self._zeros = bytes(self._size)
        self._overflows: dict[int, int] = {}
        self._pages: set[int] = set()
        self._bytes = 0
        self._version = 0

    def run(self) -> Overwritten:
        """Overwrite all free bytes, then those of pages that changed meanwhile."""
        self._check_format()
        self._hold_file()
        self._clear(self._free_space().of_all())
        self._clear_behind_end()
        os.fsync(self._file)
        for _ in range(_ROUNDS):
            if self._invalidate_caches():
                break
            changed = self._hold_file()
            self._clear(self._free_space().of(changed))
        else:
            self._hold_file(last=True)
        self._holder.execute("ROLLBACK")
        emptied = self._empty_log()
        self._sync()
        return Overwritten(len(self._pages), self._bytes, emptied)

    def _check_format(self) -> None:
        mode = self._holder.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            raise CannotOverwriteError(f"its journal mode is {mode!r}")
        header = self._read(1)
        if header[_RESERVED_AT] or any(header[_LARGEST_ROOT_AT]):
            raise CannotOverwriteError("it has reserved bytes in its pages, or auto_vacuum")

    def _hold_file(self, *, last: bool = False) -> set[int]:
        """Move the log into the file, and keep the file unchanged from then on.

        Args:
            last: Overwrite the free bytes of the pages that changed before others can write again.

        Returns:
            All pages that changed since the last call.
        """
        until = time.monotonic() + self._seconds
        changed: set[int] = set()
        while True:
            with self._write_lock():
                changed |= self._logged_pages()
                if self._move_log():
                    if last:
                        self._clear(self._free_space().of(changed))
                        self._commit()
                    return changed
            if time.monotonic() > until:
                raise CannotOverwriteError("another program reads it for too long")
            time.sleep(_WAIT_SECONDS)

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        # The pages in the cache may have free bytes from before.
        self._writer.execute("PRAGMA shrink_memory")
        self._begin()
        try:
            yield
            self._version = self._data_version()
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _begin(self) -> None:
        """Take the write lock; SQLite itself tries too rarely beside a busy writer."""
        until = time.monotonic() + self._seconds
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_LOCK_WAIT_SECONDS)
            else:
                return

    def _data_version(self) -> int:
        """Return a number that changes when another program commits."""
        version: int = self._writer.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _invalidate_caches(self) -> bool:
        """Make all connections read their pages again, unless others wrote since the last hold.

        Returns:
            Whether nobody wrote, so that no page has old bytes any more.
        """
        before = self._version
        with self._write_lock():
            if self._data_version() != before:
                return False
            self._commit()
            return True

    def _commit(self) -> None:
        """Commit a transaction that changes nothing but page 1, which has only the schema."""
        version: int = self._writer.execute("PRAGMA user_version").fetchone()[0]
        self._writer.execute(f"PRAGMA user_version = {version:d}")
        self._writer.execute("COMMIT")

    def _move_log(self) -> bool:
        """Move the log into the file, and begin a snapshot; return whether all was moved.

        The snapshot begins in any case: while it lasts, nobody begins the log again, so that it
        still names each page that has changed.
        """
        if self._holder.in_transaction:
            self._holder.execute("ROLLBACK")
        busy, logged, moved = self._holder.execute("PRAGMA wal_checkpoint = PASSIVE").fetchone()
        self._holder.execute("BEGIN")
        self._roots = [root for (root,) in self._holder.execute(_ROOTS)]
        return not busy and logged == moved

    def _logged_pages(self) -> set[int]:
        """Return the pages in the write-ahead log; no other program writes meanwhile."""
        pages: set[int] = set()
        if not self._log.exists():
            return pages
        with self._log.open("rb") as log:
            header = log.read(_LOG_HEADER.size)
            while len(header) == _LOG_HEADER.size:
                salts = _LOG_HEADER.unpack(header)[1]
                frame = log.read(_FRAME_HEADER.size)
                if len(frame) < _FRAME_HEADER.size:
                    break
                page, _, frame_salts, _ = _FRAME_HEADER.unpack(frame)
                if frame_salts != salts:  # left from an earlier use of the log
                    break
                pages.add(page)
                log.seek(self._size, os.SEEK_CUR)
        return pages

    def _free_space(self) -> FreeSpace:
        count: int = self._holder.execute("PRAGMA page_count").fetchone()[0]
        return FreeSpace(self._read, self._size, count, self._roots, self._overflows)

    def _read(self, number: int) -> bytes:
        return os.pread(self._file, self._size, (number - 1) * self._size)

    def _clear(self, pages: Iterable[tuple[int, bytes, list[Interval]]]) -> None:
        zeros = self._zeros
        for number, page, intervals in pages:
            for start, end in intervals:
                if page[start:end] != zeros[: end - start]:
                    os.pwrite(self._file, zeros[: end - start], (number - 1) * self._size + start)
                    self._pages.add(number)
                    self._bytes += end - start - page.count(0, start, end)

    def _clear_behind_end(self) -> None:
        """Overwrite what lies behind the last page: a shorter database may have a longer file."""
        end: int = os.fstat(self._file).st_size
        count: int = self._holder.execute("PRAGMA page_count").fetchone()[0]
        number = count + 1
        while (number - 1) * self._size < end:
            self._clear([(number, self._read(number), [(0, self._size)])])
            number += 1

    def _empty_log(self) -> bool:
        """Empty the log; a waiting attempt stops other writers, so that each waits only shortly."""
        self._holder.execute(f"PRAGMA busy_timeout = {_TRUNCATE_MILLISECONDS:d}")
        until = time.monotonic() + self._seconds
        while self._holder.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchone()[0]:
            if time.monotonic() > until:
                return False
            time.sleep(_WAIT_SECONDS)
        return True

    def _sync(self) -> None:
        """Make the zeros, and the empty log, survive a power cut."""
        os.fsync(self._file)
        if self._log.exists():
            with self._log.open("rb") as log:
                os.fsync(log)


def main(path: str, seconds: str) -> None:
    """Overwrite the free bytes of a file, and write what was done to standard output, as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        done = overwrite(Path(path), float(seconds))
    except (CannotOverwriteError, UnexpectedPageError, sqlite3.Error) as error:
        sys.exit(f"{error}")
    sys.stdout.write(json.dumps(done._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])

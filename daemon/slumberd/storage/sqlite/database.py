"""One SQLite file with its two connections, and which file it is that lies under its name.

Read a database without a byte left beside it, whoever may write it at any moment.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from slumberd.errors import SchemaError, StoreError, StoreReplacedError
from slumberd.storage.sqlite.connection import (
    Access,
    Connection,
    Pragmas,
    connect,
    data_version,
    translated,
)

T = TypeVar("T")

Place = tuple[int, int]
"""Which file it is: the numbers of its file system and its inode."""


class Database:
    """One SQLite file: a connection that writes, and one that reads beside it.

    Both are opened at first use and kept. `close` is optional for hosts that end anyway. Nothing
    is read or written once another file, or none, lies in the place of the one that is open.
    """

    def __init__(self, path: Path, pragmas: Pragmas, *, key: bytes | None = None) -> None:
        self.path = path
        self.pragmas = pragmas
        self.key = key
        self._open: dict[Access, Connection] = {}
        self._place: Place | None = None

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of the writing connection, in that connection's thread."""
        return await self._run("write", work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of the reading connection, in that connection's thread."""
        return await self._run("read", work)

    async def post(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Leave something for the writing connection's thread; return when it is to be done.

        Args:
            work: Must not raise, for nobody is told.
        """
        if self._open:
            _check_place(self.path, self._place)
        # Nothing is awaited once it is left there: whoever is cancelled has left nothing.
        (await self._connection("write")).post(work)

    @property
    def has_log(self) -> bool:
        """Whether something is in the write-ahead log: of somebody who is there, or who crashed."""
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > 0

    async def check(self, work: Callable[[sqlite3.Connection, Path], None]) -> None:
        """Let something be made sure of before this writes, if a log was left beside the file.

        Raises:
            SchemaError: It is not so, or the file cannot be read with its log.
        """
        with translated(self.path, self.pragmas):
            needed = self.has_log and not self._open
        if not needed:
            return
        try:
            await self.read(lambda connection: work(connection, self.path))
        except SchemaError as error:
            log = f"{self.path.name}-wal"
            remedy = (
                f"take away {log} if it may be another file's; "
                "else `slumberd restore DIR` puts back a backup"
            )
            raise SchemaError(self.path, f"is damaged; {remedy}") from error

    async def pulse(self) -> int:
        """Wait until each open connection's thread has read a little.

        Returns:
            How many rows were written, ever; what was rolled back counts too.
        """
        return sum([await self._run(access, _pulse) for access in tuple(self._open)])

    async def _run(self, access: Access, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self.path, self.pragmas):
            if self._open:
                _check_place(self.path, self._place)
            return await (await self._connection(access)).run(work)

    async def _connection(self, access: Access) -> Connection:
        if access not in self._open:
            opened = await Connection(
                partial(connect, self.path, self.pragmas, access=access, key=self.key)
            )
            # Two callers may have come here at once; the first to finish is kept.
            if access in self._open:
                await opened.close()
            else:
                self._place = self._place if self._open else _place_of(self.path)
                self._open[access] = opened  # type: ignore[assignment] # __await__ is untyped
                _check_place(self.path, self._place)
        return self._open[access]

    def halt(self) -> None:
        """End the statement that writes, or the checkpoint after it; from any thread."""
        if "write" in self._open:
            self._open["write"].halt()

    @contextmanager
    def interrupting(self, late: Callable[[], bool], *, every_seconds: float) -> Iterator[None]:
        """Interrupt what writes during the block, even a checkpoint after a commit, once `late`.

        Args:
            late: Called in the event loop.
            every_seconds: How often `late` is called.
        """
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def check() -> None:
            if late():
                self.interrupt()
            timers[:] = [loop.call_later(every_seconds, check)]

        timers.append(loop.call_later(every_seconds, check))
        try:
            yield
        finally:
            timers.pop().cancel()

    async def close(self, *, at_once: bool = False) -> None:
        """Close both connections; the next use opens them again.

        Args:
            at_once: Leave what is in the write-ahead log there, however long it is.
        """
        with suppress(sqlite3.Error, OSError):
            if "write" in self._open and _place_of(self.path) != self._place:
                await self._open["write"].run(_leave)
        # The last to close empties the write-ahead log, which one that only reads cannot.
        for connection in [self._open.pop(access) for access in sorted(self._open)]:
            if at_once:
                await connection.run(sqlite3.Connection.interrupt)  # ends its checkpoint, too
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        for connection in self._open.values():
            connection.release()


def harden(path: Path, before: Place | None) -> Place | None:
    """Let whatever was committed to a database survive a power cut.

    With ``normal`` a commit is in the write-ahead log, which the disk need not have. No lock of
    ours goes when it is closed here again: SQLite locks other files.

    Args:
        path: The database.
        before: What this returned last; its name is in the directory for good.

    Returns:
        Which file the log is; None when all of it is in the database.
    """
    log = None
    with suppress(FileNotFoundError):
        log = _sync(path.with_name(f"{path.name}-wal"))
    if log is None or log != before:
        _sync(path.parent)
    return log


def _sync(path: Path) -> Place:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        return _which(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _which(status: os.stat_result) -> Place:
    return status.st_dev, status.st_ino


def _place_of(path: Path) -> Place | None:
    """Return which file lies under a path; None when there is none."""
    try:
        return _which(path.stat())
    except FileNotFoundError:
        return None


def _check_place(path: Path, place: Place | None) -> None:
    found = _place_of(path)
    if found is None:
        raise StoreError(f"{str(path)!r} is there no more: put it back, or start slumberd again")
    if found != place:
        raise StoreReplacedError(path, "is another file than the one that was opened")


def _leave(connection: sqlite3.Connection) -> None:
    # The file has gone elsewhere without its log, which has stayed behind: all of the log belongs
    # into the one, and none of it may be found beside whatever takes its place.
    connection.execute("PRAGMA wal_checkpoint = TRUNCATE")


def _pulse(connection: sqlite3.Connection) -> int:
    data_version(connection)
    return connection.total_changes


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

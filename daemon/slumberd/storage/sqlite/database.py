"""The two connections of one SQLite file: one that writes, and one that reads beside it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from slumberd.model.errors import SchemaError, StoreError, StoreReplacedError
from slumberd.storage.connection_thread import ConnectionThread
from slumberd.storage.sqlite.connection import Access, connect, look_first, traceless
from slumberd.storage.sqlite.session import Pragmas, data_version, translate_errors

T = TypeVar("T")

Place = tuple[int, int]
"""The identity of a file: the numbers of its file system and its inode."""


def _prepare_nothing(_: sqlite3.Connection) -> None:
    """Leave a connection as it is."""


class Database:
    """One SQLite file: a connection that writes, and one that reads beside it.

    Both open at first use and stay open. A host that ends need not call `close`. All calls raise
    once the path has no file any more, or another file than the open one.

    Args:
        pragmas: The settings of the connections.
        key: The key of its ledger.
        check: Called before a file is opened, and with each new connection; raises `SchemaError`
            for a file that slumberd must not use.
        prepare_reader: Called once with each new connection that reads.
        prepare_writer: Called once with each new connection that writes.
    """

    def __init__(
        self,
        path: Path,
        pragmas: Pragmas,
        *,
        key: bytes | None = None,
        check: Callable[[sqlite3.Connection], None] = _prepare_nothing,
        prepare_reader: Callable[[sqlite3.Connection], None] = _prepare_nothing,
        prepare_writer: Callable[[sqlite3.Connection], None] = _prepare_nothing,
    ) -> None:
        self.path = path
        self._check_schema = check
        self._prepare: dict[Access, Callable[[sqlite3.Connection], None]] = {
            "read": prepare_reader,
            "write": prepare_writer,
        }
        self.pragmas = pragmas
        self.key = key
        self._open: dict[Access, ConnectionThread[sqlite3.Connection]] = {}
        self._opened_file: Place | None = None

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with the writing connection, in its thread, and return the result."""
        return await self._run("write", work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with the reading connection, in its thread, and return the result."""
        return await self._run("read", work)

    async def post(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Queue `work` for the writing connection's thread, and do not wait for it.

        Args:
            work: Must not raise: no caller gets the error.
        """
        if self._open:
            _check_same_file(self.path, self._opened_file)
        # Nothing is awaited after the post: a cancelled caller has queued nothing.
        (await self._connection("write")).post(work)

    @property
    def has_log(self) -> bool:
        """Whether the write-ahead log has content, of a running writer or of one that crashed."""
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > 0

    async def check(self, work: Callable[[sqlite3.Connection, Path], None]) -> None:
        """Run a check before the first write when a crash has left a write-ahead log.

        Raises:
            SchemaError: The check failed, or the file cannot be read with its log.
        """
        with translate_errors(self.path, self.pragmas):
            needed = self.has_log and not self._open
        if not needed:
            return
        try:
            await self.read(lambda connection: work(connection, self.path))
        except SchemaError as error:
            log = f"{self.path.name}-wal"
            remedy = (
                f"move {log} away if it may belong to another file; "
                "else `slumberd restore DIR` puts back a backup"
            )
            raise SchemaError(str(self.path), f"is damaged; {remedy}") from error

    async def pulse(self) -> int:
        """Make each open connection read, which proves that its thread still works.

        Returns:
            How many rows the connections have written so far, rolled back ones included.
        """
        return sum([await self._run(access, _pulse) for access in tuple(self._open)])

    async def _run(self, access: Access, work: Callable[[sqlite3.Connection], T]) -> T:
        with translate_errors(self.path, self.pragmas):
            if self._open:
                _check_same_file(self.path, self._opened_file)
            return await (await self._connection(access)).run(work)

    async def _connection(self, access: Access) -> ConnectionThread[sqlite3.Connection]:
        if access not in self._open:
            opened = await ConnectionThread(partial(self._connect, access)).open()
            # Two callers may open at once; the first one's connection is kept.
            if access in self._open:
                await opened.close()
            else:
                self._opened_file = self._opened_file if self._open else _file_id_at(self.path)
                self._open[access] = opened
                _check_same_file(self.path, self._opened_file)
        return self._open[access]

    def _connect(self, access: Access, how: str = "") -> sqlite3.Connection:
        if not how and not self._open:
            look_first(self.path, self.pragmas, self._check_schema)
        opened = connect(self.path, self.pragmas, access=access, key=self.key, how=how)
        try:
            with translate_errors(self.path, self.pragmas):
                self._check_schema(opened)
                self._prepare[access](opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def interrupt(self) -> None:
        """Interrupt the writing statement, or the checkpoint after it; from any thread."""
        opened = self._open.get("write")
        if opened is not None and opened.connection is not None:
            opened.connection.interrupt()

    @contextmanager
    def interrupting(
        self, cancelled: Callable[[], bool], *, every_seconds: float
    ) -> Iterator[None]:
        """Interrupt writes during the block, even a checkpoint after a commit, once `cancelled`.

        Args:
            cancelled: Called in the event loop.
            every_seconds: How often `cancelled` is called.
        """
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def check() -> None:
            if cancelled():
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
            at_once: Whether to skip the checkpoint, however long the write-ahead log is.
        """
        with suppress(sqlite3.Error, OSError):
            if "write" in self._open and _file_id_at(self.path) != self._opened_file:
                await self._open["write"].run(_checkpoint_all)
        # The last connection to close empties the write-ahead log. A reading one cannot.
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


def fsync_file(path: Path, before: Place | None) -> Place | None:
    """Sync a database's write-ahead log, so that all commits survive a power cut.

    With ``synchronous: normal`` the last commits may be in the cache of the system only. Closing
    the log drops none of our locks: SQLite locks other files.

    Args:
        before: The result of the last call; the directory entry of that log is synced already.

    Returns:
        The identity of the log; None when there is no log.
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
        return _file_id(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _file_id(status: os.stat_result) -> Place:
    return status.st_dev, status.st_ino


def _file_id_at(path: Path) -> Place | None:
    """Return the identity of the file at a path; None when there is no file."""
    try:
        return _file_id(path.stat())
    except FileNotFoundError:
        return None


def _check_same_file(path: Path, place: Place | None) -> None:
    found = _file_id_at(path)
    if found is None:
        raise StoreError(f"{str(path)!r} does not exist any more: put it back, or restart slumberd")
    if found != place:
        raise StoreReplacedError(str(path), "is not the file that was opened")


def _checkpoint_all(connection: sqlite3.Connection) -> None:
    # The file was moved without its log. The whole log belongs into the moved file, and must not
    # lie beside a file that takes its place.
    connection.execute("PRAGMA wal_checkpoint = TRUNCATE")


def _pulse(connection: sqlite3.Connection) -> int:
    data_version(connection)
    return connection.total_changes


class TracelessDatabase(Database):
    """One SQLite file that each read opens and closes again."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with a new connection and return the result; it may be called twice."""
        return await asyncio.to_thread(traceless, self.path, partial(self._read, work))

    def _read(self, work: Callable[[sqlite3.Connection], T], how: str) -> T:
        with (
            translate_errors(self.path, self.pragmas),
            closing(self._connect("read", how)) as connection,
        ):
            return work(connection)

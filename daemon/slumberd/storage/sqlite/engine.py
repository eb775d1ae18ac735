"""Open the transactions of one SQLite file; each runs the named statements of ``sql/``."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeVar

from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.model.errors import SchemaError, StaleWriterError, StoreReplacedError
from slumberd.model.store_status import MigrationPlan, StoreHealth
from slumberd.rules.filters import sandbox
from slumberd.storage.engine import Row, Scrubbed, Scrubbing, Session, Transact, Work
from slumberd.storage.sqlite import file_schema, health, ledger_schema
from slumberd.storage.sqlite.database import Database, Place, TracelessDatabase, fsync_file
from slumberd.storage.sqlite.episode_installation import (
    check_schema,
    complete,
    installed,
    is_readable,
    keeping_numbers,
    warnings_of,
)
from slumberd.storage.sqlite.file_schema import prepare_reader
from slumberd.storage.sqlite.health import check_after_a_crash
from slumberd.storage.sqlite.helpers import Helper, Opening, sharing
from slumberd.storage.sqlite.scrubbing import scrub
from slumberd.storage.sqlite.session import (
    KeyedConnection,
    Pragmas,
    SQLiteSession,
    data_version,
    interrupting_when,
    run_in_session,
    schema_version,
    snapshot,
    transaction,
    translate_errors,
    waiting_at_most,
)
from slumberd.storage.sqlite.watch import notify_watches

T = TypeVar("T")

_HELPER_CACHE_MEBIBYTES = 8
"""Page cache of each helper: all processes together must stay small."""


class _NotInstalledError(Exception):
    """A snapshot lacks a table, an index or a trigger of slumberd's; only used in this module."""


class CheckpointPolicy(NamedTuple):
    """When SQLite checkpoints the write-ahead log.

    Attributes:
        backlog_pages: Pages of 4 KiB at which SQLite checkpoints during a backlog. Checkpoints as
            usual would make a backlog a quarter slower.
        usual_pages: Pages at which SQLite checkpoints after a backlog.
        check_seconds: Seconds between two checks whether to interrupt a checkpoint.
    """

    backlog_pages: int = 50_000
    usual_pages: int = 1_000
    check_seconds: float = 0.02


class SQLiteEngine(ABC):
    """The transactions of one SQLite file; implements ``Engine``.

    Attributes:
        database: The connections of the file.
        where: The path of the file.
        halted: Set by `halt`.

    Args:
        database: The connections of the file.
        table: The specified table of the file.
        store: The store's name, for errors.
        checkpoints: When SQLite checkpoints the write-ahead log.
    """

    def __init__(
        self,
        database: Database,
        *,
        table: str,
        store: str,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
    ) -> None:
        self.database = database
        self.where = str(database.path)
        self.halted = Event()
        self._table = table
        self._store = store
        self._checkpoints = checkpoints
        self._in_backlog = False

    @property
    def path(self) -> Path:
        """The file."""
        return self.database.path

    def halt(self) -> None:
        """Set `halted`, which the callers of long reads pass as `cancelled`; from any thread."""
        self.halted.set()

    async def bootstrap(self) -> None:
        """Create the missing tables; a second call changes nothing.

        Raises:
            SchemaError: The file is no database, is damaged, or another slumberd wrote it.
            LedgerKeyError: The key is not the one that the ledger was begun with.
        """
        await self.database.check(check_after_a_crash)
        await self.database.write(self._install)

    @abstractmethod
    def _install(self, connection: sqlite3.Connection) -> None:
        """Create the missing tables, outside of any transaction."""

    @abstractmethod
    def _find_missing(self, connection: sqlite3.Connection) -> list[str]:
        """Return a sentence about each missing part of the file."""

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file, and creates nothing."""
        return await health.health(self.database, table=self._table, warn=self._find_missing)

    async def migrate(self, plan: MigrationPlan, *, at: str) -> None:
        """Add nullable columns to the specified table; existing columns stay as they are.

        Raises:
            MigrationNotSupportedError: The plan has another kind of step; nothing is changed.
        """
        add = partial(
            file_schema.add_columns, plan=plan, store=self._store, tables=[self._table], at=at
        )
        await self.database.write(add)

    async def read(self, work: Work[T], *, cancelled: Callable[[], bool] | None = None) -> T:
        """Run `work` on one snapshot, and return its result."""

        def run(connection: sqlite3.Connection) -> T:
            with snapshot(connection):
                if cancelled is None:
                    return self._run_reading(connection, work)
                with interrupting_when(connection, cancelled):
                    return self._run_reading(connection, work)

        return await self.database.read(run)

    def _run_reading(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        """Run `work` on a snapshot."""
        return run_in_session(connection, self.where, work)

    async def write(  # one for each way to write
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result; on an error nothing is written."""
        is_written = Event()

        def run(connection: sqlite3.Connection) -> T:
            if bulk:
                self._delay_checkpoints(connection)
            with waiting_at_most(connection, wait_seconds):
                return self._transact(connection, work, keep, cancelled, is_written)

        if not bulk or cancelled is None:
            return await self.database.write(run)
        # No progress handler ends the checkpoint after the commit of a backlog.
        with self.database.interrupting(
            lambda: is_written.is_set() and cancelled(),
            every_seconds=self._checkpoints.check_seconds,
        ):
            return await self.database.write(run)

    def _transact(
        self,
        connection: sqlite3.Connection,
        work: Work[T],
        keep: bool,
        cancelled: Callable[[], bool] | None = None,
        is_written: Event | None = None,
    ) -> T:
        with transaction(connection, keep=keep):
            if cancelled is None:
                result = self._run_writing(connection, work)
            else:
                with interrupting_when(connection, cancelled):
                    result = self._run_writing(connection, work)
            if is_written is not None:
                is_written.set()
        return result

    def _run_writing(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        """Run `work` in a transaction."""
        return run_in_session(connection, self.where, work)

    def _delay_checkpoints(self, connection: sqlite3.Connection) -> None:
        self._in_backlog = True
        connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoints.backlog_pages:d}")

    async def finish_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
            connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoints.usual_pages:d}")

        if self._in_backlog:
            await self.database.write(work)
            self._in_backlog = False

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the file and its log; return what was done."""
        return await self.database.write(partial(scrub, how=how))

    async def pulse(self) -> int:
        """Check that the threads of the file answer; return how many rows they have written."""
        return await self.database.pulse()

    async def close(self, *, at_once: bool = False) -> None:
        """Close the file; the next use opens the file that is at the path then.

        Args:
            at_once: Whether to skip the checkpoint; the next start does it.
        """
        await self.database.close(at_once=at_once)


class SQLiteFactEngine(SQLiteEngine):
    """The transactions of a file of facts, fenced against writers that were superseded.

    Args:
        path: The file; `bootstrap` creates it and its directory.
        pragmas: The settings of its connections.
        key: The key of the ledger; None for a ledger without a key.
        traceless: Whether reads leave no files beside a database that no program has open.
        checkpoints: When SQLite checkpoints the write-ahead log.
        helpers: Processes that share reads which can be divided.
    """

    def __init__(
        self,
        path: Path,
        pragmas: Pragmas,
        *,
        key: bytes | None = None,
        traceless: bool = False,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
        helpers: Sequence[Helper] = (),
    ) -> None:
        kind = TracelessDatabase if traceless else Database
        database = kind(
            path,
            pragmas,
            key=key,
            check=ledger_schema.check_version,
            prepare_reader=partial(prepare_reader, schema=ledger_schema.SCHEMA),
            prepare_writer=lambda opened: ledger_schema.upgrade_older(
                opened, SQLiteSession(opened, str(path))
            ),
        )
        super().__init__(database, table="facts", store="sqlite_fact", checkpoints=checkpoints)
        self._epoch: int | None = None
        self._head: Row | None = None
        self._helpers = helpers

    def _run_reading(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        if not self._helpers or not isinstance(connection, KeyedConnection):
            return super()._run_reading(connection, work)
        pragmas = replace(self.database.pragmas, cache_mebibytes=_HELPER_CACHE_MEBIBYTES)
        opening = Opening(self.path, pragmas, connection.key, connection.how)
        with sharing(connection, self._helpers, opening) as shared:
            return run_in_session(connection, self.where, work, shared)

    def _install(self, connection: sqlite3.Connection) -> None:
        ledger_schema.create(connection, SQLiteSession(connection, self.where))

    def _find_missing(self, connection: sqlite3.Connection) -> list[str]:
        return ledger_schema.find_missing(connection)

    async def take(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""

        def work(session: Session) -> tuple[int, Row | None]:
            epoch: int = session.value("ledger.number", ("epoch",)) + 1
            session.do("ledger.set_number", {"name": "epoch", "value": epoch})
            return epoch, session.one("ledger.last_row")

        # Not fenced: it shuts out the writer that the fence would protect.
        transact = partial(super()._transact, work=work, keep=True)
        epoch, self._head = await self.database.write(transact)
        self._epoch = epoch
        return epoch

    async def check_writer(self) -> None:
        """Check that this store may still write.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        await self.read(self._check_writer)

    def _transact(
        self,
        connection: sqlite3.Connection,
        work: Work[T],
        keep: bool,
        cancelled: Callable[[], bool] | None = None,
        is_written: Event | None = None,
    ) -> T:
        heads: list[Row | None] = []

        def fenced(session: Session) -> T:
            self._check_writer(session)
            result = work(session)
            heads.append(session.one("ledger.last_row"))
            return result

        result = super()._transact(connection, fenced, keep, cancelled, is_written)
        if keep:
            self._head = heads.pop()
        return result

    def _check_writer(self, session: Session) -> None:
        if self._epoch is None:
            return
        current: int = session.value("ledger.number", ("epoch",))
        if current != self._epoch:
            raise StaleWriterError(self.where, self._epoch, current)
        if self._head is None:
            return
        # A backup that was restored lacks the last row that was written here.
        number, chain = self._head
        row = session.one("ledger.chain_at", (number,))
        if row is None or row[0] != chain:
            problem = f"has not ledger row {number} as it was written"
            raise StoreReplacedError(self.where, problem)


class SQLiteEpisodeEngine(SQLiteEngine):
    """The transactions of a file of episodes, into which other programs write, too.

    Each transaction first installs a table, an index or a trigger of slumberd's that is missing,
    and so repairs a table that another program has rebuilt.

    Args:
        path: The file; the first use creates it and its directories.
        pragmas: The settings of its connections.
        naive: The zone of a timestamp without an offset, in filters.
        person: The speakers whose words are those of the user, in filters.
        traceless: Whether reads leave no files beside a database that no program has open.
    """

    def __init__(
        self,
        path: Path,
        pragmas: Pragmas,
        *,
        naive: NaiveTimestamps = "local",
        person: Collection[str] = PERSON,
        traceless: bool = False,
    ) -> None:
        kind = TracelessDatabase if traceless else Database
        database = kind(
            path,
            pragmas,
            check=check_schema,
            prepare_reader=partial(sandbox.prepare, naive=naive, person=person),
        )
        super().__init__(database, table="episodes", store="sqlite_memory")
        self._complete_at: int | None = None
        self._reads_older = traceless
        self._synced: Place | None = None

    def _install(self, connection: sqlite3.Connection) -> None:
        if not self._is_complete(connection):
            with transaction(connection):
                self._complete(connection)

    def _is_complete(self, connection: sqlite3.Connection) -> bool:
        """Return whether no table, index or trigger is missing.

        The whole schema is compared only after the file's schema version has changed.
        """
        version = schema_version(connection)
        if version != self._complete_at and installed(connection):
            self._complete_at = version
        return version == self._complete_at

    def _complete(self, connection: sqlite3.Connection) -> None:
        if not self._is_complete(connection):
            complete(connection, self.path)

    def _find_missing(self, connection: sqlite3.Connection) -> list[str]:
        return warnings_of(connection)

    async def read(self, work: Work[T], *, cancelled: Callable[[], bool] | None = None) -> T:
        """Run `work` on one snapshot, after installing what is missing; return its result."""
        with translate_errors(self.path, self.database.pragmas):
            is_missing = not self.path.exists()
        if is_missing:
            await self.bootstrap()
        try:
            return await super().read(work, cancelled=cancelled)
        except _NotInstalledError as error:
            if self._reads_older:
                # A connection that writes would lose its locks: `untouched` closes the file.
                raise SchemaError(str(self.path), "has no episode log any more") from error
            await self.bootstrap()
            return await super().read(work, cancelled=cancelled)

    def _run_reading(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        if not self._is_complete(connection) and not (
            self._reads_older and is_readable(connection)
        ):
            raise _NotInstalledError
        return super()._run_reading(connection, work)

    def _run_writing(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        self._complete(connection)
        return super()._run_writing(connection, work)

    async def put(self, work: Work[T]) -> T:
        """Run `work`, which only puts episodes, in one transaction; return its result."""
        return await self.write(work)

    async def post(self, flush: Callable[[Transact], None]) -> None:
        """Queue `flush` for the thread that writes, and do not wait for it.

        Args:
            flush: Begins transactions by its argument; must not raise, since no caller waits.
        """

        def run(connection: sqlite3.Connection) -> None:
            def transact(work: Work[T]) -> T:
                with translate_errors(self.path, self.database.pragmas):
                    return self._transact(connection, work, keep=True)

            flush(transact)

        with translate_errors(self.path, self.database.pragmas):
            await self.database.post(run)

    def notify(self) -> None:
        """Wake the watches of this process; from any thread."""
        notify_watches(self.path)

    async def fsync(self) -> None:
        """Sync all that was read so far to the disk, whichever program wrote it."""
        with translate_errors(self.path, self.database.pragmas):
            self._synced = await asyncio.to_thread(fsync_file, self.path, self._synced)

    async def version(self) -> int:
        """Return a number that changes when any connection commits."""
        with translate_errors(self.path, self.database.pragmas):
            is_missing = not self.path.exists()
        if is_missing:
            await self.bootstrap()
        return await self.database.read(data_version)

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the file and its log; return what was done."""
        return await self.database.write(partial(scrub, how=how, guard=keeping_numbers))

    async def close(self, *, at_once: bool = False) -> None:
        """Close the file; the next use opens the file that is at the path then."""
        self._complete_at = None  # another file may lie there then
        self._synced = None
        await super().close(at_once=at_once)

"""Open the transactions of one shard of a PostgreSQL database."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Literal, NamedTuple, TypeVar

import psycopg

from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.model.errors import (
    PermissionDeniedError,
    StaleWriterError,
    StoppedError,
    StoreError,
    TailLostError,
)
from slumberd.model.store_status import MigrationPlan, StoreHealth
from slumberd.storage.engine import Row, Scrubbed, Scrubbing, Session, Transact, Work
from slumberd.storage.ledger.rows import require_key
from slumberd.storage.postgres import health, installation
from slumberd.storage.postgres.column_migrations import add_columns
from slumberd.storage.postgres.connection import (
    Connection,
    end_transaction,
    is_lost,
    translate_errors,
)
from slumberd.storage.postgres.connection_pool import Use, pool_for
from slumberd.storage.postgres.filter_rows import FilterRows
from slumberd.storage.postgres.replica import Replica, ReplicaUnusableError, find_position
from slumberd.storage.postgres.scrubbing import scrub
from slumberd.storage.postgres.session import MOST_NUMBERED, PostgresSession, number_inbox
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import CHANNEL, wake_watches
from slumberd.storage.replica_reads import are_replica_reads_allowed

T = TypeVar("T")
_USES: tuple[Use, ...] = ("read", "write")

_CANCEL_CHECK_SECONDS = 0.02
"""Seconds between two checks whether to cancel the work of a transaction."""

_CANCEL_SECONDS = 2.0
"""How long the request to cancel a statement may take."""

_EPOCH_STEPS = 2**20
"""By at most how much an epoch is later than the one before."""

_MOST_TRIES = 4
"""How often a transaction of episodes runs that other transactions have made impossible."""


class _UnnumberedError(Exception):
    """Committed episodes have no number in the log yet; only used in this module."""


class _Writing(NamedTuple):
    """How a transaction runs; the arguments of `Engine.write`."""

    keep: bool = True
    cancelled: Callable[[], bool] | None = None
    wait_seconds: float | None = None


_ONCE = _Writing()


class PostgresEngine:
    """The transactions of one shard; the base of both engines.

    Attributes:
        where: Its database in words, without the password.
        key: The key of the ledger; None without one.
        halted: Set by `halt`.

    Args:
        table: The specified table of the store.
        store: The store's name, for errors.
        key: The key of the ledger; None without one.
        naive: The zone of a timestamp without an offset, in filters.
        person: The speakers whose words are those of the user, in filters.
        read_address: The address of a replica, for the reads that may run there; None without one.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        shard: Shard,
        *,
        table: Literal["episodes", "facts"],
        store: str,
        key: bytes | None = None,
        naive: NaiveTimestamps = "local",
        person: Collection[str] = PERSON,
        read_address: str | None = None,
    ) -> None:
        self.shard = shard
        self.where = shard.where
        self.halted = Event()
        self._table: Literal["episodes", "facts"] = table
        self._store = store
        self.key = key
        self._filter_rows = FilterRows(naive, person)
        self._pool = pool_for(shard.address)
        self._replica: Replica | None = None
        if read_address is not None:
            self._replica = Replica(shard._replace(address=read_address))
        self._written = 0

    def halt(self) -> None:
        """Set `halted`, which the callers of long reads pass as `cancelled`; from any thread."""
        self.halted.set()

    async def bootstrap(self) -> None:
        """Check that the schema is there; `slumberd postgres init` creates it.

        Raises:
            SchemaError: The database has no schema of slumberd, or that of another version.
            LedgerKeyError: The key is not the one that the ledger was begun with.
        """
        await self._run("read", partial(installation.check_shard, shard=self.shard))

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the database."""
        return await health.health(self.shard, self._table)

    async def migrate(self, plan: MigrationPlan, *, at: str) -> None:
        """Add nullable columns to the specified table; existing columns stay as they are.

        Raises:
            MigrationNotSupportedError: The plan has another kind of step; nothing is changed.
            PermissionDeniedError: The role may not become the owner of the schema.
        """
        add = partial(add_columns, plan=plan, store=self._store, table=self._table, at=at)
        await self._run("write", add)

    async def read(self, work: Work[T], *, cancelled: Callable[[], bool] | None = None) -> T:
        """Run `work` on one snapshot, and return its result.

        It runs on the replica, if it may run there and the replica is fit.
        """
        replica = self._replica
        if replica is not None and are_replica_reads_allowed() and not replica.rests:
            position = await self._run("read", find_position)
            run = partial(self._run_read, work, cancelled)
            with suppress(ReplicaUnusableError):
                return await replica.read(position, run)
        return await self._run("read", partial(self._run_read, work, cancelled))

    def _run_read(
        self,
        work: Work[T],
        cancelled: Callable[[], bool] | None,
        connection: Connection,
    ) -> T:
        try:
            return self._run_session(connection, work, cancelled)
        finally:
            end_transaction(connection)

    async def write(
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and return its result; on an error nothing is written.

        Raises:
            StoreError: The connection was lost. When that happened during the commit, the message
                says so: then the transaction may be committed.
        """
        del bulk
        how = _Writing(keep, cancelled, wait_seconds)
        return await self._run("write", partial(self._transact, work=work, how=how))

    def _transact(self, connection: Connection, work: Work[T], how: _Writing = _ONCE) -> T:
        try:
            if how.wait_seconds is not None:
                milliseconds = max(1, round(1000 * how.wait_seconds))
                connection.execute(f"SET LOCAL lock_timeout = {milliseconds:d}".encode())
            result = self._run_session(connection, work, how.cancelled)
            if how.keep:
                self._commit(connection)
        finally:
            end_transaction(connection)
        return result

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            raise StoreError(
                f"{self.where!r}: the connection was lost during a commit, so the transaction may "
                "be committed; what is done again is recognised, and not done twice"
            ) from error

    def _run_session(
        self,
        connection: Connection,
        work: Work[T],
        cancelled: Callable[[], bool] | None,
    ) -> T:
        check = None if cancelled is None else partial(_check, cancelled)
        session = PostgresSession(
            connection,
            self.where,
            key=self.key,
            filter_rows=self._filter_rows,
            check=check,
        )
        with _cancelling(connection, cancelled):
            try:
                return work(session)
            finally:
                self._written += session.written
                _close(session)

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Rewrite the tables that held erased rows; return what was done."""
        rewrite = partial(scrub, how=how, table=self._table)
        return await self._run("write", rewrite)

    async def pulse(self) -> int:
        """Check that the database answers; return how many rows were written."""
        for use in _USES:
            if self._pool.is_open(use):
                with translate_errors(self.where):
                    await self._pool.run(use, _pulse, queue=self._queue_of(use))
        return self._written

    async def close(self, *, at_once: bool = False) -> None:
        """Close the connections; the next use opens them again."""
        del at_once
        await self._pool.leave()
        if self._replica is not None:
            await self._replica.close()
        self._filter_rows.close()

    async def _run(self, use: Use, work: Callable[[Connection], T]) -> T:
        run = partial(
            self._pool.run, use, work, schema=self.shard.schema, queue=self._queue_of(use)
        )
        with translate_errors(self.where):
            try:
                return await run()
            except psycopg.Error as error:
                if use != "read" or not is_lost(error):
                    raise
            # The server was restarted, or ended the connection; nothing was written.
            return await run()

    def _queue_of(self, use: Use) -> str:
        """Return the queue of a work: transactions that write follow each other."""
        return f"{self.shard.schema}.{self._table}" if use == "write" else ""

    def __del__(self) -> None:
        if hasattr(self, "_pool"):  # the address may have been refused
            self._pool.leave_at_once()
        if (replica := getattr(self, "_replica", None)) is not None:
            replica.release()


class PostgresFactEngine(PostgresEngine):
    """The transactions of a shard's facts and ledger, fenced against superseded writers.

    Each transaction first locks the row ``epoch`` of the shard. So writers follow each other,
    whichever host they are on.

    Args:
        key: The key of the ledger; None for a ledger without a key.
        read_address: The address of a replica, for the reads that may run there; None without one.
    """

    def __init__(
        self, shard: Shard, *, key: bytes | None = None, read_address: str | None = None
    ) -> None:
        store = "postgres_fact"
        super().__init__(shard, table="facts", store=store, key=key, read_address=read_address)
        self._epoch: int | None = None
        self._head: Row | None = None

    async def bootstrap(self) -> None:
        """Check the schema, and the key of the ledger."""
        await super().bootstrap()
        if not await self.read(lambda session: session.one("ledger.last_row")):
            await self.write(require_key)
        else:
            await self.read(require_key)

    async def take(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""

        def work(connection: Connection) -> tuple[int, Row | None]:
            def begin(session: Session) -> tuple[int, Row | None]:
                # A failover may have lost the epoch that an earlier writer took. With a random
                # step, no two writers have the same one.
                epoch: int = session.value("fence.lock") + 1 + secrets.randbelow(_EPOCH_STEPS)
                session.do("ledger.set_number", {"name": "epoch", "value": epoch})
                return epoch, session.one("ledger.last_row")

            # Not fenced: it shuts out the writer that the fence would protect.
            return super(PostgresFactEngine, self)._transact(connection, begin)

        self._epoch = None
        self._head = None
        epoch, self._head = await self._run("write", work)
        self._epoch = epoch
        return epoch

    async def check_writer(self) -> None:
        """Check that this store may still write."""
        await self.read(lambda session: self._check_epoch(session, "fence.epoch"))

    async def finish_backlog(self) -> None:
        """Do nothing: the server decides when it writes checkpoints."""

    def _transact(self, connection: Connection, work: Work[T], how: _Writing = _ONCE) -> T:
        heads: list[Row | None] = []

        def fenced(session: Session) -> T:
            # A statement of its own: the next one sees what was committed before the lock.
            self._check_epoch(session, "fence.lock")
            result = work(session)
            heads.append(session.one("ledger.last_row"))
            return result

        result = super()._transact(connection, fenced, how)
        if how.keep:
            self._head = heads.pop()
        return result

    def _check_epoch(self, session: Session, statement: str) -> None:
        current: int = session.value(statement)
        if self._epoch is None:
            return
        self._check_head(session, is_older=current < self._epoch)
        if current != self._epoch:
            raise StaleWriterError(self.where, self._epoch, current)

    def _check_head(self, session: Session, *, is_older: bool) -> None:
        """Check that the database has the last row that this store wrote or found.

        Args:
            is_older: Whether the database also lacks the epoch of this store.

        Raises:
            TailLostError: It has not: it was restored, or lost its last commits in a failover.
        """
        number, chain = self._head or (0, b"")
        row = session.one("ledger.chain_at", (number,)) if number else (chain,)
        if is_older or row is None or row[0] != chain:
            last = session.one("ledger.last_row")
            raise TailLostError(self.where, number, last[0] if last else 0)


class PostgresEpisodeEngine(PostgresEngine):
    """The transactions of a shard's episodes, into which every host puts.

    A read first moves into the log what was committed before; the numbers of the log are dense,
    and follow the order of commits.

    Args:
        naive: The zone of a timestamp without an offset, in filters.
        person: The speakers whose words are those of the user, in filters.
        must_number: Whether a read fails when it may not give numbers to what was put. Otherwise,
            where the role may only read and on a replica, it reads what has a number.
        read_address: The address of a replica, for the reads that may run there; None without one.
    """

    def __init__(
        self,
        shard: Shard,
        *,
        naive: NaiveTimestamps = "local",
        person: Collection[str] = PERSON,
        must_number: bool = True,
        read_address: str | None = None,
    ) -> None:
        store = "postgres_memory"
        super().__init__(
            shard,
            table="episodes",
            store=store,
            naive=naive,
            person=person,
            read_address=read_address,
        )
        self._must_number = must_number

    async def read(self, work: Work[T], *, cancelled: Callable[[], bool] | None = None) -> T:
        """Run `work` on one snapshot, and return its result."""

        def read(session: Session) -> T:
            if session.value("inbox.any"):
                raise _UnnumberedError
            return work(session)

        try:
            return await super().read(read, cancelled=cancelled)
        except _UnnumberedError:
            try:
                await self._number()
            except PermissionDeniedError:
                if self._must_number:
                    raise
            return await super().read(work, cancelled=cancelled)

    async def _number(self) -> None:
        """Give numbers to what was put."""

        def work(connection: Connection) -> None:
            try:
                with psycopg.RawCursor(connection) as cursor:
                    number_inbox(cursor)
                connection.commit()
            finally:
                end_transaction(connection)

        await self._run("write", work)

    def _transact(self, connection: Connection, work: Work[T], how: _Writing = _ONCE) -> T:
        for _ in range(_MOST_TRIES - 1):
            try:
                return super()._transact(connection, work, how)
            except _TRY_AGAIN:
                continue
        return super()._transact(connection, work, how)

    async def write(
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """Run `work` in one transaction, after those of others that do more than put."""

        def follow(session: Session) -> T:
            session.value("inbox.lock")
            if session.value("inbox.any"):
                session.value("inbox.number", {"most": MOST_NUMBERED})
            return work(session)

        return await super().write(
            follow, keep=keep, cancelled=cancelled, bulk=bulk, wait_seconds=wait_seconds
        )

    async def put(self, work: Work[T]) -> T:
        """Run `work`, which only puts, in one transaction beside those of other hosts."""
        return await self._run("write", partial(self._transact, work=work))

    async def post(self, flush: Callable[[Transact], None]) -> None:
        """Queue `flush` for the thread that writes, and do not wait for it.

        Args:
            flush: Begins transactions by its argument; must not raise, since no caller waits.

        Raises:
            StoreError: The server does not answer; nothing is queued.
        """

        def run(connection: Connection) -> None:
            def transact(work: Work[T]) -> T:
                with translate_errors(self.where):
                    connection.use(self.shard.schema)
                    return self._transact(connection, work)

            flush(transact)

        queue = self._queue_of("write")
        await self._pool.post("write", run, schema=self.shard.schema, queue=queue)

    def notify(self) -> None:
        """Wake those who wait for new episodes, on every host; from any thread."""
        wake_watches(self.shard)
        self._pool.notify(_notify)

    async def fsync(self) -> None:
        """Do nothing: each commit is on the disk of the server."""

    async def version(self) -> int:
        """Return a number that changes when any connection puts, or calls a rule."""
        number: int = await self.read(lambda session: session.value("inbox.version"))
        return number


_TRY_AGAIN = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)
"""Errors of transactions that others have made impossible; `work` runs again from its start."""


def _notify(connection: Connection) -> None:
    try:
        connection.execute(f"NOTIFY {CHANNEL}".encode())
        connection.commit()
    except psycopg.Error:
        # Whoever waits also looks by itself; the next use opens a new connection.
        end_transaction(connection)


def _pulse(connection: Connection) -> None:
    connection.execute(b"SELECT 1")
    connection.rollback()


def _close(session: PostgresSession) -> None:
    """End the streams of a session; after an error its connection may refuse, and ends them."""
    try:
        session.close()
    except psycopg.Error:
        return


def _check(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise StoppedError("the work was cancelled before it was committed")


@contextmanager
def _cancelling(connection: Connection, cancelled: Callable[[], bool] | None) -> Iterator[None]:
    """Cancel the block's statements once `cancelled` returns True; None never cancels.

    Raises:
        StoppedError: A statement was cancelled.
    """
    if cancelled is None:
        yield
        return
    is_over = Event()
    watching = Thread(
        target=_cancel_when, args=(connection, cancelled, is_over), name="slumberd-cancel"
    )
    watching.start()
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        if not cancelled():  # the server did, because of its `statement_timeout` or of a person
            raise
        raise StoppedError("the work was cancelled before it was committed") from error
    finally:
        is_over.set()
        watching.join()


def _cancel_when(connection: Connection, cancelled: Callable[[], bool], is_over: Event) -> None:
    while not is_over.wait(_CANCEL_CHECK_SECONDS):
        if cancelled():
            try:
                connection.cancel_safe(timeout=_CANCEL_SECONDS)
            except psycopg.Error:
                return  # the connection is lost, so its statement has ended

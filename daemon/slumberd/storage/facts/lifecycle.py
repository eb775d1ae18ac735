"""Open, create, migrate and close the file of facts, and run transactions on it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from slumberd.clock import Clock, SystemClock
from slumberd.errors import StaleWriterError, StoreReplacedError
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.sql_statements import statements
from slumberd.storage.ledger import schema
from slumberd.storage.ledger.batch import number
from slumberd.storage.ledger.external_changes import record_changes
from slumberd.storage.ledger.rows import GENESIS
from slumberd.storage.sqlite import health as sqlite_health
from slumberd.storage.sqlite import migrations
from slumberd.storage.sqlite.connection import Pragmas, Synchronous, transaction
from slumberd.storage.sqlite.database import Database, TracelessDatabase
from slumberd.storage.sqlite.recovery import check_after_a_crash

_SQL = statements("ledger")

_SCOPE_KEY = "scope_key_1", "scope_key_2"
"""Two numbers in the store; together they are the key that hashes scopes in log lines."""

_NUMBER_BITS = 63
"""Bits of a number without its sign."""

LINEAGE_DEPTH = 8
"""How many replaced assertions a fact's lineage names, unless configured otherwise."""

_STORE = "sqlite_fact"

T = TypeVar("T")

Values = tuple[Any, ...] | dict[str, Any]


class FactFile:
    """The SQLite file that holds facts and their ledger, and the transactions on it.

    Attributes:
        path: The SQLite file.
        database: Its connections.
        clock: The time.
        key: The key of the ledger; None without one.
        lineage_depth: How many replaced assertions a fact's lineage names.

    Args:
        path: The SQLite file; `bootstrap` creates it and its directory.
        synchronous: ``full`` survives a power cut, ``normal`` any crash of the process.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: The time; None means the system's.
        key: The key of the ledger, from its first row on; None for a ledger without a key.
        traceless: Whether reads leave no files beside a database that no program has open; each
            read then opens the file.
    """

    def __init__(  # one per setting
        self,
        path: Path,
        *,
        synchronous: Synchronous = "full",
        lineage_depth: int = LINEAGE_DEPTH,
        clock: Clock | None = None,
        key: bytes | None = None,
        traceless: bool = False,
    ) -> None:
        self.path = Path(path)
        database = TracelessDatabase if traceless else Database
        self.database = database(self.path, Pragmas(synchronous, cache_mebibytes=32), key=key)
        self.clock = clock or SystemClock()
        self.key = key
        self.lineage_depth = lineage_depth
        self._epoch: int | None = None
        self._head: Checkpoint | None = None

    async def bootstrap(self) -> None:
        """Create the missing tables, of the specification and of slumberd.

        Raises:
            SchemaError: The file is no database, is damaged, or a newer slumberd wrote it.
            LedgerKeyError: The key is not the one that the ledger was begun with.
        """
        await self.database.check(check_after_a_crash)
        await self.database.write(schema.create)

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file, and creates nothing."""
        return await sqlite_health.health(self.database, table="facts", warn=schema.find_missing)

    async def pulse(self) -> int:
        """Check that the threads of the file answer; return how many rows they have written."""
        return await self.database.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to ``facts``; existing columns stay as they are.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        await self.bootstrap()
        at = self.clock.now().isoformat()
        await self.database.write(
            lambda connection: migrations.add_columns(
                connection, plan, store=_STORE, tables=("facts",), at=at
            )
        )

    async def take_over(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""

        def work(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                epoch = number(connection, "epoch") + 1
                set_number(connection, "epoch", epoch)
                self._head = head_of(connection)
                return epoch

        self._epoch = await self.database.write(work)
        return self._epoch

    async def scope_key(self) -> bytes:
        """Return the key that hashes users and agents in log lines; the first call draws it.

        The key is random. The file keeps it.
        """

        def work(connection: sqlite3.Connection) -> bytes:
            for name in _SCOPE_KEY:
                drawn = secrets.randbits(_NUMBER_BITS)
                connection.execute(_SQL["add_number"], {"name": name, "value": drawn})
            halves = [number(connection, name) for name in _SCOPE_KEY]
            return b"".join(half.to_bytes(8) for half in halves)

        return await self.write(work)

    async def close(self, *, at_once: bool = False) -> None:
        """Close the file; the next use opens it again.

        Args:
            at_once: Whether to skip the checkpoint; the next start does it.
        """
        await self.database.close(at_once=at_once)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with the reading connection, and return its result."""
        return await self.database.read(work)

    async def fetch_one(self, query: str, values: Values) -> tuple[Any, ...] | None:
        """Return the first row of a named query; None without rows."""
        found = await self.fetch_all(query, values)
        return found[0] if found else None

    async def fetch_all(self, query: str, values: Values) -> list[tuple[Any, ...]]:
        """Return the rows of a named query."""
        return await self.read(
            lambda connection: connection.execute(_SQL[query], values).fetchall()
        )

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction, and return its result.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """

        def transact(connection: sqlite3.Connection) -> T:
            with self.transaction(connection):
                return work(connection)

        return await self.database.write(transact)

    async def append(self, work: Callable[[sqlite3.Connection], T], *, keep: bool = True) -> T:
        """Run `work`, which appends to the ledger, in one transaction; return its result.

        Changes of other programs are recorded first.

        Args:
            work: Appends the rows.
            keep: Whether to commit; else nothing is written.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """

        def transact(connection: sqlite3.Connection) -> T:
            with self.append_transaction(connection, keep=keep):
                return work(connection)

        return await self.database.write(transact)

    async def append_batch(
        self, work: Callable[[sqlite3.Connection], Outcome], *, keep: bool = True
    ) -> Outcome:
        """Append as `append` does; the outcome includes the changes of other programs."""

        def transact(connection: sqlite3.Connection) -> Outcome:
            with self.append_transaction(connection, keep=keep) as noticed:
                return replace(work(connection), noticed=noticed)

        return await self.database.write(transact)

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Open a transaction of the only writer."""
        with transaction(connection):
            self.check_writer(connection)
            yield

    @contextmanager
    def append_transaction(
        self, connection: sqlite3.Connection, *, keep: bool = True
    ) -> Iterator[list[Record]]:
        """Open a transaction that appends to the ledger.

        It records the changes of other programs first, and yields their rows.
        """
        with transaction(connection, keep=keep):
            self.check_writer(connection)
            yield record_changes(connection, self.lineage_depth, self.clock.now())
            head = head_of(connection)
        if keep:
            self._head = head

    def check_writer(self, connection: sqlite3.Connection) -> None:
        """Check that this store may write.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        if self._epoch is not None:
            current = number(connection, "epoch")
            if current != self._epoch:
                raise StaleWriterError(str(self.path), self._epoch, current)
            self._check_head(connection)

    def _check_head(self, connection: sqlite3.Connection) -> None:
        """Check that the last row that was written here is still there; a backup lacks it."""
        head = self._head
        if head is None or not head.rows:
            return
        row = connection.execute(_SQL["chain_at"], (head.rows,)).fetchone()
        if row is None or row[0] != head.head:
            raise StoreReplacedError(
                str(self.path), f"has not ledger row {head.rows} as it was written"
            )


def head_of(connection: sqlite3.Connection) -> Checkpoint:
    """Return the number of the last ledger row, and its chain hash."""
    row = connection.execute(_SQL["last_row"]).fetchone()
    return Checkpoint(*row) if row else Checkpoint(0, GENESIS)


def set_number(connection: sqlite3.Connection, name: str, value: int) -> None:
    """Set what `number` returns."""
    connection.execute(_SQL["set_number"], {"name": name, "value": value})

"""One file of facts: opened, created, migrated, written by one slumberd at a time."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from slumberd.clock import Clock, SystemClock
from slumberd.errors import StaleWriterError, StoreReplacedError
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.retrieval.protocols import TextComparer
from slumberd.sql_statements import statements
from slumberd.storage.ledger import schema
from slumberd.storage.ledger.batch import number
from slumberd.storage.ledger.external_changes import notice
from slumberd.storage.ledger.rows import GENESIS
from slumberd.storage.sqlite import health as sqlite_health
from slumberd.storage.sqlite import migrations
from slumberd.storage.sqlite.connection import Pragmas, Synchronous, transaction
from slumberd.storage.sqlite.database import Database, TracelessDatabase
from slumberd.storage.sqlite.recovery import check_after_a_crash

_SQL = statements("ledger")

_SCOPE_KEY = "scope_key_1", "scope_key_2"
"""Numbers of the store that make the key of the hashes of scopes in log lines."""

_NUMBER_BITS = 63
"""SQLite's integers have a sign."""

LINEAGE_DEPTH = 8
"""How many replaced assertions a fact's lineage names, unless configured otherwise."""

_STORE = "sqlite_fact"

Values = tuple[Any, ...] | dict[str, Any]


class CheckpointPolicy(NamedTuple):
    """When SQLite checkpoints the write-ahead log of the facts.

    Attributes:
        backlog_rows: A batch of so many rows counts as a backlog. Checkpoints as usual would make
            a backlog a quarter slower.
        backlog_pages: Pages of 4 KiB at which SQLite checkpoints during a backlog.
        usual_pages: Pages at which SQLite checkpoints after a backlog.
        check_seconds: Seconds between two checks whether to interrupt a commit.
    """

    backlog_rows: int = 2_000
    backlog_pages: int = 50_000
    usual_pages: int = 1_000
    check_seconds: float = 0.02


class FactFile:
    """The SQLite file that holds facts and their ledger, and the transactions on it.

    Args:
        path: The SQLite file; it and its directory are created by `bootstrap`.
        synchronous: ``full`` survives a power cut, ``normal`` any crash of the process.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: What hands take as their moment.
        key: Of the ledger, from its first row on; None for a ledger without.
        traceless: Whether reads leave nothing beside a file that nobody has open; each opens it.
        comparer: Makes what finds texts that are near to each other, for firings that ask for it.
        checkpoints: When SQLite checkpoints the write-ahead log.
    """

    def __init__(  # noqa: PLR0913 # each is of another caller's choosing
        self,
        path: Path,
        *,
        synchronous: Synchronous = "full",
        lineage_depth: int = LINEAGE_DEPTH,
        clock: Clock | None = None,
        key: bytes | None = None,
        traceless: bool = False,
        comparer: Callable[[], TextComparer] | None = None,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
    ) -> None:
        self.path = Path(path)
        database = TracelessDatabase if traceless else Database
        self._database = database(self.path, Pragmas(synchronous, cache_mebibytes=32), key=key)
        self._key = key
        self._comparer = comparer
        self._policy = checkpoints
        self._depth = lineage_depth
        self._clock = clock or SystemClock()
        self._epoch: int | None = None
        self._head: Checkpoint | None = None
        self._close_at_once = self._catching_up = False

    async def bootstrap(self) -> None:
        """Create the specified table and our own beside it; changes nothing where all is there.

        Raises:
            SchemaError: The file is no database, is damaged, or a newer slumberd wrote it.
            LedgerKeyError: The store has not the key that the ledger was begun with.
        """
        await self._database.check(check_after_a_crash)
        await self._database.write(schema.create)

    async def health(self) -> StoreHealth:
        """Say whether the store can be used; never raises for the state of its file."""
        return await sqlite_health.health(self._database, table="facts", warn=schema.lacking)

    async def pulse(self) -> int:
        """Return how many rows were written, once the threads of the file have answered."""
        return await self._database.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to ``facts``; what is there already is left alone.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        await self.bootstrap()
        at = self._clock.now().isoformat()
        await self._database.write(
            lambda connection: migrations.add_columns(
                connection, plan, store=_STORE, tables=("facts",), at=at
            )
        )

    async def take_over(self) -> int:
        """Become the writer: whoever was before can commit no more. Return the new epoch."""

        def work(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                epoch = number(connection, "epoch") + 1
                set_number(connection, "epoch", epoch)
                self._head = head_of(connection)
                return epoch

        self._epoch = await self._database.write(work)
        return self._epoch

    async def scope_key(self) -> bytes:
        """Return the key of the hashes of users and agents in log lines, made at the first call.

        It is random, and stays the same for as long as this file does.
        """

        def work(connection: sqlite3.Connection) -> bytes:
            with transaction(connection):
                self._fence(connection)
                for name in _SCOPE_KEY:
                    drawn = secrets.randbits(_NUMBER_BITS)
                    connection.execute(_SQL["add_number"], {"name": name, "value": drawn})
                halves = [number(connection, name) for name in _SCOPE_KEY]
            return b"".join(half.to_bytes(8) for half in halves)

        return await self._database.write(work)

    async def close(self) -> None:
        """Close the file; the next use opens it."""
        await self._database.close(at_once=self._close_at_once)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _fetch_one(self, query: str, values: Values) -> tuple[Any, ...] | None:
        found = await self._fetch_all(query, values)
        return found[0] if found else None

    async def _fetch_all(self, query: str, values: Values) -> list[tuple[Any, ...]]:
        return await self._database.read(
            lambda connection: connection.execute(_SQL[query], values).fetchall()
        )

    async def _execute(self, query: str, values: dict[str, Any]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                connection.execute(_SQL[query], values)

        await self._database.write(work)

    async def _transact(
        self, work: Callable[[sqlite3.Connection], Outcome], *, dry_run: bool
    ) -> Outcome:
        """Do something whole, as the only writer; with `dry_run` take it back again."""

        def transact(connection: sqlite3.Connection) -> Outcome:
            with self._committing(connection, keep=not dry_run) as noticed:
                return replace(work(connection), noticed=noticed)

        return await self._database.write(transact)

    @contextmanager
    def _committing(
        self, connection: sqlite3.Connection, *, keep: bool = True
    ) -> Iterator[list[Record]]:
        """Write as the only writer, once what other programs changed is recorded; yield that."""
        with transaction(connection, keep=keep):
            self._fence(connection)
            yield notice(connection, self._depth, self._clock.now())
            head = head_of(connection)
        if keep:
            self._head = head

    def _fence(self, connection: sqlite3.Connection) -> None:
        if self._epoch is not None:
            current = number(connection, "epoch")
            if current != self._epoch:
                raise StaleWriterError(self.path, self._epoch, current)
            self._check_head(connection)

    def _check_head(self, connection: sqlite3.Connection) -> None:
        """Make sure that the ledger is the one that was written here, and not a restored one."""
        head = self._head
        if head is None or not head.rows:
            return
        row = connection.execute(_SQL["chain_at"], (head.rows,)).fetchone()
        if row is None or row[0] != head.head:
            raise StoreReplacedError(self.path, f"has not ledger row {head.rows} as it was written")


def head_of(connection: sqlite3.Connection) -> Checkpoint:
    """Return how far the ledger reaches, and its chain hash there."""
    row = connection.execute(_SQL["last_row"]).fetchone()
    return Checkpoint(*row) if row else Checkpoint(0, GENESIS)


def set_number(connection: sqlite3.Connection, name: str, value: int) -> None:
    """Set what `number` returns."""
    connection.execute(_SQL["set_number"], {"name": name, "value": value})

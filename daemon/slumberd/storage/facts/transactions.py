"""Run the transactions of a fact store; those that append record other programs' changes first."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from slumberd.clock import Clock
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.storage.engine import FactEngine, Row, Session, Values, Work
from slumberd.storage.ledger.batch import number
from slumberd.storage.ledger.external_changes import has_changes, record_changes
from slumberd.storage.ledger.rows import GENESIS

_SCOPE_KEY = "scope_key_1", "scope_key_2"
"""Two numbers in the store; together they are the key that hashes scopes in log lines."""

_NUMBER_BITS = 63
"""Bits of a number without its sign."""

LINEAGE_DEPTH = 8
"""How many replaced assertions a fact's lineage names, unless configured otherwise."""

T = TypeVar("T")


class FactTransactions:
    """The transactions of a store of facts and their ledger.

    Attributes:
        engine: Opens the transactions.
        clock: The time.
        lineage_depth: How many replaced assertions a fact's lineage names.
        skips_checkpoint: Whether the store must close without a checkpoint.
        future_tolerance_seconds: How far ahead of the clock an instant is not of the future.
    """

    def __init__(
        self, engine: FactEngine, clock: Clock, lineage_depth: int = LINEAGE_DEPTH
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.lineage_depth = lineage_depth
        self.skips_checkpoint = False
        self.future_tolerance_seconds = FUTURE_TOLERANCE_SECONDS

    async def take_over(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""
        return await self.engine.take()

    async def scope_key(self) -> bytes:
        """Return the key that hashes users and agents in log lines; the first call draws it.

        The key is random. The store keeps it.
        """

        def work(session: Session) -> bytes:
            for name in _SCOPE_KEY:
                drawn = secrets.randbits(_NUMBER_BITS)
                session.do("ledger.add_number", {"name": name, "value": drawn})
            halves = [number(session, name) for name in _SCOPE_KEY]
            return b"".join(half.to_bytes(8) for half in halves)

        return await self.write(work)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot, and return its result."""
        return await self.engine.read(work)

    async def fetch_one(self, query: str, values: Values = ()) -> Row | None:
        """Return the first row of a named query; None without rows."""
        return await self.engine.read(lambda session: session.one(query, values))

    async def fetch_all(self, query: str, values: Values = ()) -> list[Row]:
        """Return the rows of a named query."""
        return await self.engine.read(lambda session: session.rows(query, values))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction, and return its result.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        return await self.engine.write(work)

    async def append(
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
    ) -> T:
        """Run `work`, which appends to the ledger, in one transaction; return its result.

        Changes of other programs are recorded first.

        Args:
            work: Appends the rows.
            keep: Whether to commit; else nothing is written.
            cancelled: Called often, in any thread; True cancels the transaction.
            bulk: Whether the transaction is part of a backlog.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
            StoppedError: `cancelled` returned True; nothing is written.
        """

        def append(session: Session) -> T:
            self._record_changes(session)
            return work(session)

        return await self.engine.write(append, keep=keep, cancelled=cancelled, bulk=bulk)

    async def append_batch(
        self,
        work: Work[Outcome],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
    ) -> Outcome:
        """Append as `append` does; the outcome includes the changes of other programs."""

        def append(session: Session) -> Outcome:
            noticed = self._record_changes(session)
            return replace(work(session), noticed=noticed)

        return await self.engine.write(append, keep=keep, cancelled=cancelled, bulk=bulk)

    def _record_changes(self, session: Session) -> list[Record]:
        return record_changes(session, self.lineage_depth, self.clock.now())

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        await self.engine.check_writer()
        if not await self.read(has_changes):
            return []
        return await self.engine.write(self._record_changes)


def head_of(session: Session) -> Checkpoint:
    """Return the number of the last ledger row, and its chain hash."""
    row = session.one("ledger.last_row")
    return Checkpoint(*row) if row else Checkpoint(0, GENESIS)


def set_number(session: Session, name: str, value: int) -> None:
    """Set what `number` returns."""
    session.do("ledger.set_number", {"name": name, "value": value})

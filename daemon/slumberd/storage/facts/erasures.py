"""Erase scopes from the facts and the ledger, and remember which scopes were erased."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from slumberd.consolidation.delta_batch import Condition
from slumberd.model.erasures import ErasedList, RecordedErasures, Rewrite
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Scrubbed, Scrubbing, Session
from slumberd.storage.episodes.erased_content import Moments, learn_moments
from slumberd.storage.erased_scopes import erased_scope_lookup, read_erased_list
from slumberd.storage.facts.transactions import FactTransactions
from slumberd.storage.ledger import erasure
from slumberd.storage.ledger.erasure import Erasure, ErasureRequest, Unfinished, erase, find_scope
from slumberd.storage.ledger.rewrites import end_rewrites, note_rewritten, read_rewrites

_EARLIEST = -(2**62)
"""An instant before every other one, microseconds."""


class ErasureTable:
    """Erases scopes, and keeps the keyed hashes of erased scopes."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions

    async def forget(  # noqa: PLR0913 # the fields of one request
        self,
        scope: ScopeFilter,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        key: bytes | None = None,
        moment: int,
        at: datetime,
        by: str,
        dry_run: bool,
        reason: str = "",
        cancelled: Condition | None = None,
    ) -> Erasure:
        """Erase a scope, and resolve what it leaves; `scrub` then removes the bytes.

        Args:
            scope: The scope.
            eids: Ids of its episodes; the ledger need not know them.
            kept: Those of them that now belong to an episode of another scope.
            key: The key of the hashes of scopes, if this database has none yet.
            moment: The last erased instant, microseconds; not before the scope's newest instant.
            at: The moment of the request.
            by: The person.
            dry_run: Return the outcome, and write nothing.
            reason: Why; empty without a reason. Later erasures keep it.
            cancelled: Called often, in any thread; True cancels the erasure. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
        """
        ids = frozenset(eids), frozenset(kept)
        request = ErasureRequest(scope, *ids, moment, at, by, key, reason)
        depth = self._transactions.lineage_depth
        return await self._transactions.append(
            lambda session: erase(session, request, depth=depth),
            keep=not dry_run,
            cancelled=cancelled,
        )

    async def end(self, scopes: Collection[ScopeFilter]) -> None:
        """Record that some erasures are complete in the episodes, too."""
        await self._transactions.write(lambda session: erasure.end(session, scopes))

    async def learn(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Store the erased scopes of other databases that have the same key."""
        await self._transactions.write(lambda session: learn_moments(session, key, moments))

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the store and its logs; return what was done."""
        return await self._transactions.engine.scrub(how)

    async def rewrites(self) -> list[Rewrite]:
        """Return which stores may have bytes of erasures, by store and row."""
        return await self._transactions.read(read_rewrites)

    async def note_rewritten(self, some: Collection[Rewrite]) -> None:
        """Record that only the logs of some stores have old bytes."""
        await self._transactions.write(lambda session: note_rewritten(session, some))

    async def end_rewrites(self, some: Collection[Rewrite]) -> None:
        """Record that no byte of some erasures is left in a store."""
        await self._transactions.write(lambda session: end_rewrites(session, some))

    async def episodes_in(self, scope: ScopeFilter) -> tuple[set[str], int]:
        """Return the ids of a scope's episodes that the ledger knows, and their latest instant.

        The instant is in microseconds, and 0 without episodes.
        """

        def work(session: Session) -> tuple[set[str], int]:
            found = find_scope(session, scope)
            return found.eids, found.newest

        return await self._transactions.read(work)

    async def find_unfinished(self) -> list[Unfinished]:
        """Return the erasures that may be incomplete in the episodes."""
        return await self._transactions.read(erasure.read_unfinished)

    async def scopes(self) -> ErasedList:
        """Return the list of erased scopes."""
        return await self._transactions.read(read_erased_list)

    async def recorded(self) -> RecordedErasures:
        """Return the erased scopes that the ledger records."""
        return await self._transactions.read(erasure.read_recorded_erasures)

    async def covers(self, scope: ScopeFilter) -> bool:
        """Return whether the scope, or a wider one, was erased before."""
        names = scope.user, scope.session or "", scope.agent or ""

        def work(session: Session) -> bool:
            past = erased_scope_lookup(session)
            return past is not None and past.covers(*names, _EARLIEST)

        return await self._transactions.read(work)

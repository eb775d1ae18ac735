"""Erase scopes and episodes from facts and ledger, and remember what was erased."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import partial

from slumberd.consolidation.incoming import Condition
from slumberd.model.episode import LATEST
from slumberd.model.record import ErasedList, RecordedErasures, Rewrite
from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Scrubbed, Scrubbing, Session
from slumberd.storage.erased_scopes import (
    Moments,
    erased_scope_lookup,
    learn_moments,
    read_erased_list,
)
from slumberd.storage.facts.apply import FactTransactions
from slumberd.storage.ledger import erasure
from slumberd.storage.ledger.erased_rows import end_rewrites, note_rewritten, read_rewrites
from slumberd.storage.ledger.erasure import (
    Erasure,
    ErasureRequest,
    Unfinished,
    erase,
)
from slumberd.storage.ledger.erasure_search import (
    FactSources,
    ScopeContent,
    find_named,
    find_owners,
    find_scope,
    find_sources,
)

_EARLIEST = -(2**62)
"""An instant before every other one, microseconds."""


class ErasureTable:
    """Erases scopes and episodes, and keeps the keyed hashes of what was erased."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions

    async def forget(  # noqa: PLR0913 # the fields of one request
        self,
        scope: ScopeFilter,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        alone: Iterable[str] = (),
        edits: Iterable[str] = (),
        key: bytes | None = None,
        moment: int | None,
        at: datetime,
        by: str,
        dry_run: bool,
        reason: str = "",
        cancelled: Condition | None = None,
    ) -> Erasure:
        """Erase a scope, or single episodes, and resolve what is left.

        `scrub` then removes the bytes.

        Args:
            eids: Ids of its episodes; the ledger need not know them.
            kept: Those of them that now belong to an episode of another scope.
            alone: Those of them that are erased by their ids, whatever their instants.
            edits: Facts of manual edits and of other programs that are erased.
            key: The key of the hashes of scopes, if this database has none yet.
            moment: The last erased instant, microseconds; not before the scope's newest instant.
                None erases only the episodes of `alone`, and `edits`.
            at: The moment of the request.
            dry_run: Return the outcome, and write nothing.
            reason: Why; empty without a reason. Later erasures keep it.
            cancelled: Called often, in any thread; True cancels the erasure. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
        """
        ids = frozenset(eids), frozenset(kept)
        named = frozenset(alone), frozenset(edits)
        request = ErasureRequest(scope, *ids, moment, at, by, key, reason, *named)
        depth = self._transactions.lineage_depth
        return await self._transactions.append(
            lambda session: erase(session, request, depth=depth),
            keep=not dry_run,
            cancelled=cancelled,
        )

    async def end(self, erasures: Collection[Unfinished]) -> None:
        """Record that some erasures are complete in the episodes, too."""
        await self._transactions.write(lambda session: erasure.end(session, erasures))

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

    async def episodes_in(self, scope: ScopeFilter, *, latest: int = LATEST) -> ScopeContent:
        """Return what the ledger knows of a scope.

        Args:
            latest: The last instant that is not still to come, microseconds.
        """
        return await self._transactions.read(partial(find_scope, scope=scope, latest=latest))

    async def sources_of(self, scope: ScopeFilter, fact_id: str) -> FactSources | None:
        """Return where a fact of a scope comes from; None when the scope never had it."""
        return await self._transactions.read(partial(find_sources, scope=scope, fact_id=fact_id))

    async def knows_episode(self, scope: ScopeFilter, eid: str) -> bool:
        """Return whether the ledger has content that comes from an episode of a scope."""

        def work(session: Session) -> bool:
            eids = frozenset({eid})
            found = find_named(session, scope, eids, unshared=eids)
            return bool(found.claims or found.rows)

        return await self._transactions.read(work)

    async def owners_of(self, fact_ids: Collection[str]) -> set[str]:
        """Return the users that have claims of some fact ids."""
        return await self._transactions.read(partial(find_owners, fact_ids=fact_ids))

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

    async def has_erased(self, user: str, eid: str) -> bool:
        """Return whether an episode of a user was erased by its id."""

        def work(session: Session) -> bool:
            past = erased_scope_lookup(session)
            return past is not None and past.has_episode(user, eid)

        return await self._transactions.read(work)

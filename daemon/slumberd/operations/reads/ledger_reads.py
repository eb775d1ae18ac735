"""Read the ledger for callers: its rows, its firings, and the batches that wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from slumberd.errors import NoInputError
from slumberd.model.record import Record, RecordedFiring
from slumberd.model.scope import ScopeFilter
from slumberd.operations import memory_forms as forms
from slumberd.operations import table
from slumberd.operations.caller import Caller
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.firing_forms import (
    DeltasForm,
    FiringCounts,
    FiringCursor,
    FiringPage,
    FiringsForm,
    KnownFiring,
)
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.protocols import Facts
from slumberd.operations.reads.change_report import is_of
from slumberd.operations.scopes import reading_scope


class LedgerReads:
    """Runs requests that read the ledger.

    Args:
        facts: The facts.
        commits: Tells when something was committed.
    """

    def __init__(self, facts: Facts, commits: CommitSignal) -> None:
        self._facts = facts
        self._commits = commits

    def by_name(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return dict(
            [
                typed_handler(table.CHANGES, self.changes),
                typed_handler(table.FIRINGS, self.firings),
                typed_handler(table.DELTAS, self.deltas),
                typed_handler(table.HELD, self.held),
            ]
        )

    async def changes(self, request: forms.ChangesForm, caller: Caller) -> Answer:
        """Return rows of the ledger; wait for one when there is none.

        A caller that may name one user only gets no rows of others, and no firings.
        """
        scope = reading_scope(request, caller)
        committed = self._commits.next
        page = await self._page(request, scope)
        with suppress(TimeoutError):
            async with asyncio.timeout(request.seconds):
                while not (page.changes or page.more):
                    await committed.wait()
                    committed = self._commits.next
                    page = await self._page(request, scope)
        return page.document()

    async def _page(
        self, request: forms.ChangesForm, scope: ScopeFilter | None
    ) -> forms.ChangePage:
        rows = await self._facts.reads.records(after=request.after, limit=request.limit)
        return forms.ChangePage(
            changes=[
                _change_of(row)
                for row in rows
                if request.kinds is None or row.kind in request.kinds
                if scope is None or is_of(row, scope)
            ],
            last=rows[-1].seq if rows else request.after,
            more=len(rows) == request.limit,
        )

    async def firings(self, request: FiringsForm, _: Caller) -> Answer:
        """Return a page of firings, newest first."""
        found = await self._facts.reads.firings(
            request.place,
            rule_id=request.rule,
            run=request.run,
            since=request.since,
            limit=request.limit + 1,
        )
        if request.firing is not None:
            found = [each for each in found[:1] if each.firing_id == request.firing]
        page = found[: request.limit]
        last = page[-1] if len(found) > len(page) else None
        return FiringPage(
            firings=[_known_firing(each) for each in page],
            next=None if last is None else str(FiringCursor.after(last.at, last.number)),
        ).document()

    async def deltas(self, request: DeltasForm, caller: Caller) -> Answer:
        """Return the rows that a firing wrote.

        A caller that may name one user only gets no rows of others.

        Raises:
            NoInputError: The ledger does not have the firing.
        """
        scope = reading_scope(request, caller)
        rows = await self._facts.reads.records_of_firing(
            request.firing, after=request.after, limit=request.limit
        )
        if rows is None:
            raise NoInputError(request.firing, "the ledger has no firing of that id")
        return forms.ChangePage(
            changes=[_change_of(row) for row in rows if scope is None or is_of(row, scope)],
            last=rows[-1].seq if rows else request.after,
            more=len(rows) == request.limit,
        ).document()

    async def held(self, request: forms.HeldForm, caller: Caller) -> Answer:
        """Return the batches that await approval."""
        held = (await self._facts.ledger.held()).values()
        return forms.HeldList(
            held=[
                forms.Held(
                    firing_id=one.firing_id,
                    rule_id=one.rule_id,
                    problem=one.problem,
                    approved=one.approved,
                )
                for one in held
            ]
        ).document()


def _known_firing(firing: RecordedFiring) -> KnownFiring:
    return KnownFiring(
        seq=firing.number,
        firing_id=firing.firing_id,
        rule_id=firing.rule_id,
        at=firing.at,
        trigger=firing.trigger,
        by=firing.by,
        reason=firing.reason,
        counts=FiringCounts(**firing.counts._asdict()),
        run=firing.run or None,
        undone_by=firing.undone_by or None,
        undoes=firing.undoes or None,
    )


def _change_of(row: Record) -> forms.Change:
    return forms.Change(
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        firing_id=row.firing_id,
        rule_id=row.rule_id,
        fact_id=row.fact_id,
        replaces=[*row.replaces],
        episode_ids=[*row.source_episode_ids],
        reason=row.reason,
        confidence=row.confidence,
        user=row.user,
        agent=row.agent,
    )

"""Read the ledger for callers: its rows, its firings, and the batches that wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from slumberd.errors import MemoryScopeError, NoInputError
from slumberd.model.record import Record, RecordedFiring
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations import memory_forms as forms
from slumberd.operations.caller import Caller, Right
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.firing_forms import (
    DeltasForm,
    FiringCounts,
    FiringCursor,
    FiringPage,
    FiringsForm,
    KnownFiring,
)
from slumberd.operations.operation import Example, operation
from slumberd.operations.reads.change_report import is_of
from slumberd.operations.scopes import reading_scope
from slumberd.storage.facts.store import EngineFactStore


class LedgerReads:
    """Runs requests that read the ledger.

    Args:
        facts: The facts.
        commits: Tells when something was committed.
    """

    def __init__(self, facts: EngineFactStore, commits: CommitSignal) -> None:
        self._facts = facts
        self._commits = commits

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"after": 0, "limit": 1},
            {
                "changes": [values.CHANGE],
                "last": 2,
                "more": False,
            },
        ),
    )
    async def changes(self, request: forms.ChangesForm, caller: Caller) -> forms.ChangePage:
        """Return rows of the ledger after a number; wait for one when there is none.

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
        return page

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

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {"rule": "home", "limit": 1},
            {
                "firings": [
                    {
                        "seq": 1,
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "at": values.AT,
                        "trigger": "manual",
                        "by": "uid 1000",
                        "reason": "after the import",
                        "counts": values.COUNTS,
                        "run": values.RUN,
                        "undone_by": "@undo@4",
                        "undoes": None,
                    }
                ],
                "next": "1772366400000000.0.1",
            },
        ),
    )
    async def firings(self, request: FiringsForm, _: Caller) -> FiringPage:
        """Return a page of firings, newest first, with what each did and what undid it."""
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
        )

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"firing": values.FIRING, "limit": 1},
            {"changes": [values.CHANGE], "last": 2, "more": True},
        ),
    )
    async def deltas(self, request: DeltasForm, caller: Caller) -> forms.ChangePage:
        """Return the rows of the ledger that one firing wrote.

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
        )

    @operation(
        right=Right.OPERATE,
        read_only=True,
        example=Example(
            {},
            {
                "held": [
                    {
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "problem": "this batch would delete 399 of 516 facts",
                        "approved": False,
                    }
                ]
            },
        ),
    )
    async def held(self, request: forms.HeldForm, caller: Caller) -> forms.HeldList:
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
        )


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

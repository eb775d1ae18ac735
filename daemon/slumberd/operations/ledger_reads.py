"""Read the ledger for callers: its rows as they are added, and the batches that wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from slumberd.model.record import Record
from slumberd.model.scope import ScopeFilter
from slumberd.operations import memory_forms as forms
from slumberd.operations import table
from slumberd.operations.caller import Caller, Right
from slumberd.operations.change_report import is_of
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.protocols import Facts


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
                typed_handler(table.HELD, self.held),
            ]
        )

    async def changes(self, request: forms.ChangesForm, caller: Caller) -> Answer:
        """Return rows of the ledger; wait for one when there is none.

        A caller that may name one user only gets no rows of others, and no firings.
        """
        scope = _scope_of(request, caller)
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


def _scope_of(request: forms.ChangesForm, caller: Caller) -> ScopeFilter | None:
    """Return the scope of a request; None when an operator names none."""
    if caller.user is None and request.user is None and Right.OPERATE in caller.rights:
        return None
    return caller.scope(request.user, request.agent)


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

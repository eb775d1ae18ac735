"""Run the operations that sum up one user's memory: the profile and the report."""

from __future__ import annotations

from datetime import timedelta

from slumberd.clock import Clock
from slumberd.operations import table
from slumberd.operations.caller import Caller
from slumberd.operations.change_report import read_changes
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.memory_forms import ContextText
from slumberd.operations.overview_forms import ChangeCounts, ProfileForm, ReportForm, ScopeReport
from slumberd.operations.protocols import Facts
from slumberd.retrieval.searcher import Searcher


class Overviews:
    """Runs requests that sum up one user's memory.

    Args:
        searcher: Reads the facts in words.
        facts: The facts.
        clock: The time.
    """

    def __init__(self, searcher: Searcher, facts: Facts, clock: Clock) -> None:
        self._searcher = searcher
        self._facts = facts
        self._clock = clock

    def by_name(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return dict(
            [
                typed_handler(table.PROFILE, self.profile),
                typed_handler(table.REPORT, self.report),
            ]
        )

    async def profile(self, request: ProfileForm, caller: Caller) -> Answer:
        """Return the facts that an agent takes with it whatever it is asked."""
        scope = caller.scope(request.user, request.agent)
        found = await self._searcher.profile(
            user=scope.user, agent=scope.agent, budget=request.budget
        )
        return ContextText(
            text=found.text, items=[*found.items], tokens=found.tokens, budget=found.budget
        ).document()

    async def report(self, request: ReportForm, caller: Caller) -> Answer:
        """Return what changed in the caller's scope."""
        scope = caller.scope(request.user, request.agent)
        since = self._clock.now() - timedelta(days=request.days)
        found = await read_changes(self._facts.reads, since, most=0, scope=scope)
        return ScopeReport(
            since=since,
            changes=ChangeCounts(**found.changes.document()),
            rules={name: ChangeCounts(**one.document()) for name, one in found.rules.items()},
        ).document()

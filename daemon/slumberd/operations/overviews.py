"""Run the operations that sum up memory: the profile and the report."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from slumberd.clock import Clock
from slumberd.operations import table
from slumberd.operations.caller import Caller
from slumberd.operations.change_report import ChangeReport, Changes, read_changes
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.memory_forms import ContextText
from slumberd.operations.overview_forms import (
    BatchReport,
    ChangeCounts,
    DayReport,
    ProfileForm,
    ReportForm,
    ScopeReport,
)
from slumberd.operations.protocols import Facts
from slumberd.operations.recent_changes import RecentChanges
from slumberd.operations.scopes import reading_scope
from slumberd.retrieval.searcher import Searcher


class Overviews:
    """Runs requests that sum up memory.

    Args:
        searcher: Reads the facts in words.
        facts: The facts.
        clock: The time.
    """

    def __init__(self, searcher: Searcher, facts: Facts, clock: Clock) -> None:
        self._searcher = searcher
        self._facts = facts
        self._clock = clock
        self._recent = RecentChanges(facts.reads)

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
        """Return what changed in the caller's scope; for an operator, in all memory."""
        now = self._clock.now()
        since = now - timedelta(days=request.days)
        scope = reading_scope(request, caller)
        if scope is None:
            found = await self._recent.report(since, days=request.days, most=request.limit)
        else:
            found = await read_changes(self._facts.reads, since, most=request.limit, scope=scope)
        return report_of(found, since, now, request.limit).document()


def report_of(found: ChangeReport, since: datetime, now: datetime, limit: int) -> ScopeReport:
    """Return a report as the operation ``report`` answers.

    Args:
        found: What changed.
        since: The first instant.
        now: The last instant.
        limit: At most this many users.
    """
    users = dict(found.top_users(limit))
    return ScopeReport(
        since=since,
        batches=found.batches,
        changes=_counts_of(found.changes),
        rules={name: _counts_of(one) for name, one in found.rules.items()},
        users={name: _counts_of(one) for name, one in users.items()},
        other_users=len(found.users) - len(users),
        largest=[
            BatchReport(
                firing_id=batch.firing_id,
                rule_id=batch.rule_id,
                at=batch.at,
                **batch.changes.document(),
            )
            for batch in found.largest
        ],
        days=[
            DayReport(day=day, **found.days.get(day, Changes()).document())
            for day in days_between(since, now)
        ],
    )


def _counts_of(changes: Changes) -> ChangeCounts:
    return ChangeCounts(**changes.document())


def days_between(since: datetime, until: datetime) -> list[date]:
    """Return each day in UTC from an instant to another, the oldest first."""
    first, last = (at.astimezone(UTC).date() for at in (since, until))
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]

"""Run the operations that sum up memory: the profile and the report."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from slumberd.clock import Clock
from slumberd.errors import MemoryScopeError, UsageError
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.memory_forms import ContextText
from slumberd.operations.operation import Example, operation
from slumberd.operations.overview_forms import (
    MOST_DAYS,
    BatchReport,
    ChangeCounts,
    DayReport,
    LargestBy,
    ProfileForm,
    ReportForm,
    ScopeReport,
)
from slumberd.operations.reads.change_report import ChangeReport, Changes, read_changes
from slumberd.operations.reads.recent_changes import RecentChanges
from slumberd.operations.scopes import reading_scope
from slumberd.retrieval.searcher import Searcher
from slumberd.storage.facts.store import EngineFactStore

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Overviews:
    """Runs requests that sum up memory.

    Args:
        searcher: Reads the facts in words.
        facts: The facts.
        clock: The time.
    """

    def __init__(self, searcher: Searcher, facts: EngineFactStore, clock: Clock) -> None:
        self._searcher = searcher
        self._facts = facts
        self._clock = clock
        self._recent = RecentChanges(facts.reads)

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"budget": 500},
            {"text": "> ana lives in Lisbon", "items": [values.HIT], "tokens": 7, "budget": 500},
        ),
    )
    async def profile(self, request: ProfileForm, caller: Caller) -> ContextText:
        """Return the facts that an agent takes with it whatever it is asked, quoted as data."""
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._searcher.profile(
            user=scope.user, agent=scope.agent, budget=request.budget
        )
        return ContextText(
            text=found.text, items=[*found.items], tokens=found.tokens, budget=found.budget
        )

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"days": 7},
            {
                "since": values.AT,
                "batches": 1,
                "changes": values.CHANGES,
                "rules": {"home": values.CHANGES},
                "users": {"ana": values.CHANGES},
                "other_users": 0,
                "largest": [
                    {
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "at": values.AT,
                        **values.CHANGES,
                    }
                ],
                "days": [{"day": "2026-03-01", **values.CHANGES}],
            },
        ),
    )
    async def report(self, request: ReportForm, caller: Caller) -> ScopeReport:
        """Return how much was learned, changed and forgotten in the last days."""
        since, until = _time_of(request, self._clock.now())
        scope = reading_scope(request, caller)
        if scope is None and request.since is None:
            found = await self._recent.report(since, days=request.days, most=request.limit)
        else:
            found = await read_changes(
                self._facts.reads, since, until=request.until, most=request.limit, scope=scope
            )
        return report_of(found, since, until, request.limit, request.largest_by)


def _time_of(request: ReportForm, now: datetime) -> tuple[datetime, datetime]:
    """Return the first and the last instant of a report.

    Raises:
        UsageError: The time is too long, or begins before 1970, or has no beginning.
    """
    if request.since is None:
        if request.until is not None:
            raise UsageError("report: until: name since, too")
        return now - timedelta(days=request.days), now
    since, until = request.since, request.until or now
    if since < _EPOCH:
        raise UsageError("report: since: is before 1970")
    if until - since > timedelta(days=MOST_DAYS):
        raise UsageError(f"report: since: is more than {MOST_DAYS} days before until")
    return since, max(since, until)


def report_of(
    found: ChangeReport,
    since: datetime,
    until: datetime,
    limit: int,
    largest_by: LargestBy = "facts",
) -> ScopeReport:
    """Return a report as the operation ``report`` answers.

    Args:
        found: What changed.
        since: The first instant.
        until: The last instant.
        limit: At most this many users.
        largest_by: What the largest batches have the most of.
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
            for batch in found.largest_by.get(largest_by, [])
        ],
        days=[
            DayReport(day=day, **found.days.get(day, Changes()).document())
            for day in days_between(since, until)
        ],
    )


def _counts_of(changes: Changes) -> ChangeCounts:
    return ChangeCounts(**changes.document())


def days_between(since: datetime, until: datetime) -> list[date]:
    """Return each day in UTC from an instant until another, without it; the oldest first."""
    first, last = ((at - _EPOCH).days for at in (since, until - timedelta.resolution))
    return [_EPOCH.date() + timedelta(days=number) for number in range(first, last + 1)]

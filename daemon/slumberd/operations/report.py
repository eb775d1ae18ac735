"""Report what changed in a scope, or in all memory."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, NamedTuple

from pydantic import Field

from slumberd.clock import Clock
from slumberd.model.errors import MemoryScopeError, UsageError
from slumberd.model.scope import ScopeFilter
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.change_report import (
    ChangeReport,
    Changes,
    LargestBy,
    RecentChanges,
    read_changes,
)
from slumberd.operations.forms import (
    Instant,
    Limit,
    OperatorForm,
    Result,
    ScopedForm,
    reading_scope,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.storage.facts.store import EngineFactStore

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


MOST_DAYS = 366
"""A report is of at most so many days."""


CHANGES = {
    "learned": 1,
    "changed": 0,
    "retracted": 0,
    "quarantined": 0,
    "marked": 0,
    "unmarked": 0,
    "forgotten": 0,
}


class ReportForm(ScopedForm, OperatorForm):
    """The request ``report``: how far back.

    Attributes:
        days: The report begins so many days before now.
        since: The report begins at this instant instead, at most 366 days before `until`.
        until: The report ends before this instant; by default now. It needs `since`.
        largest_by: What the largest batches have the most of: changes of ``facts``, or
            ``quarantined``, ``marked`` or ``unmarked`` episodes.
        limit: At most this many users, and at most this many of the largest batches.
    """

    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = 1
    since: Instant | None = None
    until: Instant | None = None
    largest_by: LargestBy = "facts"
    limit: Limit = 10


class ChangeCounts(Result):
    """How many facts and episodes changed.

    Attributes:
        learned: New facts, summaries too.
        changed: Facts that replaced others.
        retracted: Facts that are not current any more.
        quarantined: Episodes that could not be read.
        marked: Marks and weights that stages gave to episodes.
        unmarked: Marks and weights that ended.
        forgotten: The same as `retracted`, by its name in 0.2.0; it goes with the next release.
    """

    learned: int
    changed: int
    retracted: int
    quarantined: int
    marked: int
    unmarked: int
    forgotten: int


class BatchReport(ChangeCounts):
    """How much one batch changed.

    Attributes:
        firing_id: The batch.
        rule_id: Its rule.
        at: When.
    """

    firing_id: str
    rule_id: str
    at: datetime


class DayReport(ChangeCounts):
    """How much changed on one day.

    Attributes:
        day: The day, in UTC.
    """

    day: date


class ScopeReport(Result):
    """What changed in one user's memory, or in the memory of all users.

    Attributes:
        since: The first instant of the report.
        batches: How many batches there were; of one user, those with rows of the user.
        changes: How much changed.
        rules: How much each rule changed. Manual edits, undos and erasures have rule ids that begin
            with ``@``.
        users: The users with the most changes of facts, and how much changed for each. Rows whose
            user is not known any more are in no entry.
        other_users: How many other users had changes.
        largest: The batches with the most changes of facts, or with the most of what `largest_by`
            names, the largest first. Batches that have none are left out.
        days: Each day of the report, the oldest first. The first day begins at `since`, and the
            last one ends at `until`.
    """

    since: datetime
    batches: int
    changes: ChangeCounts
    rules: dict[str, ChangeCounts]
    users: dict[str, ChangeCounts]
    other_users: int
    largest: list[BatchReport]
    days: list[DayReport]


class Report(NamedTuple):
    """What changed in a time; interfaces get it as a `ScopeReport`.

    Attributes:
        found: What changed, of all users.
        since: The first instant.
        until: The last instant.
        limit: The form lists at most this many users.
        largest_by: What the largest batches have the most of.
    """

    found: ChangeReport
    since: datetime
    until: datetime
    limit: int
    largest_by: LargestBy = "facts"

    def document(self) -> Answer:
        """Return the JSON form."""
        return _report_of(*self).document()


class Reports:
    """Runs requests that sum up what changed.

    Args:
        facts: The facts; None when there are none yet.
        most_days: A report is of at most so many days; None for any time.
    """

    def __init__(
        self, facts: EngineFactStore | None, clock: Clock, *, most_days: int | None = MOST_DAYS
    ) -> None:
        self._reads = None if facts is None else facts.reads
        self._recent = None if facts is None else RecentChanges(facts.reads)
        self._clock = clock
        self._most_days = most_days

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError,),
        example=Example(
            {"days": 7},
            {
                "since": values.AT,
                "batches": 1,
                "changes": CHANGES,
                "rules": {"home": CHANGES},
                "users": {"ana": CHANGES},
                "other_users": 0,
                "largest": [
                    {
                        "firing_id": values.FIRING,
                        "rule_id": "home",
                        "at": values.AT,
                        **CHANGES,
                    }
                ],
                "days": [{"day": "2026-03-01", **CHANGES}],
            },
        ),
    )
    async def report(self, request: ReportForm, caller: Caller) -> Annotated[Report, ScopeReport]:
        """Return how much was learned, changed and retracted in the last days."""
        since, until = self._time_of(request)
        found = await self._read(request, since, reading_scope(request, caller))
        return Report(found, since, until, request.limit, request.largest_by)

    async def _read(
        self, request: ReportForm, since: datetime, scope: ScopeFilter | None
    ) -> ChangeReport:
        if self._reads is None or self._recent is None:
            return ChangeReport()
        if scope is None and request.since is None:
            return await self._recent.report(since, days=request.days, most=request.limit)
        return await read_changes(
            self._reads, since, until=request.until, most=request.limit, scope=scope
        )

    def _time_of(self, request: ReportForm) -> tuple[datetime, datetime]:
        """Return the first and the last instant of a report.

        Raises:
            UsageError: The time is too long, or begins before 1970, or has no beginning.
        """
        now = self._clock.now()
        if request.since is None:
            if request.until is not None:
                raise UsageError("report: until: name since, too")
            return now - timedelta(days=request.days), now
        since, until, most = request.since, request.until or now, self._most_days
        if most is not None and since < _EPOCH:
            raise UsageError("report: since: is before 1970")
        if most is not None and until - since > timedelta(days=most):
            raise UsageError(f"report: since: is more than {most} days before until")
        return since, max(since, until)


def _report_of(
    found: ChangeReport,
    since: datetime,
    until: datetime,
    limit: int,
    largest_by: LargestBy,
) -> ScopeReport:
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

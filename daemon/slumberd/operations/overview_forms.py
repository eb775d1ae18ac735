"""The forms of the operations that sum up memory, and the values that they return."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import Field

from slumberd.operations.forms import Instant, Limit, OperatorForm, ReadForm, Result, ScopedForm

LargestBy = Literal["facts", "quarantined", "marked", "unmarked"]
"""What the largest batches of a report have the most of; ``facts`` are changes of facts."""

MOST_DAYS = 366
"""A report is of at most so many days."""


class ProfileForm(ReadForm):
    """The request ``profile``: a budget in tokens.

    Attributes:
        budget: At most this many tokens.
    """

    budget: Annotated[int, Field(ge=0, le=1_000_000)] = 1_024


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
        forgotten: Facts that are not current any more.
        quarantined: Episodes that could not be read.
        marked: Marks and weights that stages gave to episodes.
        unmarked: Marks and weights that ended.
    """

    learned: int
    changed: int
    forgotten: int
    quarantined: int
    marked: int
    unmarked: int


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

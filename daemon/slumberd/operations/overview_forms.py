"""The forms of the operations that sum up one user's memory, and the values that they return."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from slumberd.operations.memory_forms import Result, ScopedForm


class ProfileForm(ScopedForm):
    """The request ``profile``: a budget in tokens.

    Attributes:
        budget: At most this many tokens.
    """

    budget: Annotated[int, Field(ge=0, le=1_000_000)] = 1_024


class ReportForm(ScopedForm):
    """The request ``report``: how far back.

    Attributes:
        days: From so many days before now on.
    """

    days: Annotated[int, Field(ge=1, le=31)] = 1


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


class ScopeReport(Result):
    """What changed in one user's memory.

    Attributes:
        since: From this instant on.
        changes: How much changed.
        rules: How much each rule changed. Manual edits, undos and erasures have rule ids that begin
            with ``@``.
    """

    since: datetime
    changes: ChangeCounts
    rules: dict[str, ChangeCounts]

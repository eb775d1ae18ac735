"""The form of the request for the history of a fact, and the values that it returns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slumberd.operations.forms import Limit, Name, ReadForm, Result


class HistoryForm(ReadForm):
    """The request ``history``: the id of a fact, which need not be current.

    Attributes:
        id: The fact.
        limit: At most this many periods of each clock, the latest ones.
    """

    id: Name
    limit: Limit = 100


class Period(Result):
    """A period in which a fact was current.

    Attributes:
        fact_id: The fact.
        payload: ``subject``, ``predicate``, ``object``, and the other fields of the fact.
        begins_at: When it became current.
        ends_at: When it ceased to be current; None when it is current now.
    """

    fact_id: str
    payload: dict[str, Any]
    begins_at: datetime
    ends_at: datetime | None


class FactHistory(Result):
    """Which facts of the same subject and predicate were current, and when.

    Attributes:
        id: The fact.
        user: Whose it is.
        agent: Who knows it.
        payload: What the fact says, or said last.
        valid: What was true, as slumberd knows now; the earliest period first.
        believed: What was known, as the ledger recorded it; the earliest period first.
        cut: Whether there are earlier periods.
    """

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    valid: list[Period]
    believed: list[Period]
    cut: bool

"""The forms of the operations that read firings, and the values that they return."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NamedTuple, Self

from pydantic import Field

from slumberd.model.episode import microseconds
from slumberd.model.record import FiringPlace
from slumberd.operations.forms import Instant, Limit, Name, OperatorForm, Result, ScopedForm

_DIGITS = 18
_LARGEST = 10**_DIGITS - 1

Cursor = Annotated[str, Field(pattern=rf"^[0-9]{{1,{_DIGITS}}}\.[0-9]{{1,{_DIGITS}}}$")]
"""The text of a `FiringCursor`."""


class FiringCursor(NamedTuple):
    """A place between two firings, which are in the order of these fields.

    Attributes:
        at: The instant of a firing, microseconds since 1970 UTC.
        number: Its number in the ledger.
    """

    at: int
    number: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor that a text of the form `Cursor` says."""
        return cls(*map(int, text.split(".")))

    @classmethod
    def after(cls, at: datetime, number: int) -> Self:
        """Return the place after a firing, when the newest comes first."""
        return cls(microseconds(at), number)

    def __str__(self) -> str:
        """Return the text of the form `Cursor`."""
        return ".".join(map(str, self))

    @property
    def place(self) -> FiringPlace:
        """The place in the ledger."""
        return FiringPlace(self.number, self.at)


NEWEST = FiringPlace(_LARGEST, _LARGEST)
"""The place before the newest firing."""


class FiringsForm(OperatorForm):
    """The request ``firings``: a page of firings, newest first.

    Attributes:
        firing: Only this firing.
        rule: Only firings of this rule.
        run: Only firings of this run.
        before: The place where the page before ended.
        since: Only firings from this instant on.
        limit: At most this many.
    """

    firing: Name | None = None
    rule: Name | None = None
    run: Name | None = None
    before: Cursor | None = None
    since: Instant | None = None
    limit: Limit = 50

    @property
    def place(self) -> FiringPlace:
        """The place to begin at; that of an id of no firing is before all firings."""
        if self.firing is not None:
            number = self.firing.rpartition("@")[2]
            is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
            return FiringPlace(int(number) + 1 if is_number else 0, _LARGEST)
        return NEWEST if self.before is None else FiringCursor.read(self.before).place


class DeltasForm(ScopedForm, OperatorForm):
    """The request ``deltas``: the rows of the ledger that one firing wrote.

    Attributes:
        firing: The firing.
        after: Only rows after this number.
        limit: At most this many rows are read.
    """

    firing: Name
    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Limit = 100


class FiringCounts(Result):
    """What became of the episode versions that a firing read, in all channels together.

    Attributes:
        read: Versions of episodes.
        filtered: Versions that the rule does not select.
        added: New facts.
        updated: Facts that replaced others.
        deleted: Facts that were removed.
        noop: Versions that changed nothing.
        quarantined: Versions that could not be read.
        restored: Facts that are current again, because another was withdrawn.
    """

    read: int
    filtered: int
    added: int
    updated: int
    deleted: int
    noop: int
    quarantined: int
    restored: int


class KnownFiring(Result):
    """A firing.

    Attributes:
        seq: The number of its own row in the ledger.
        firing_id: Its id.
        rule_id: The rule; edits, undos and erasures have ids that begin with ``@``.
        at: When.
        trigger: What started it, such as ``cron`` or ``manual``.
        by: Who requested it; empty for a cadence.
        reason: Why it was requested; empty when no reason was given.
        counts: What it did.
        run: The run that it belongs to; None without one.
        undone_by: The firing that undid it; None when it is not undone now.
        undoes: The firing that it undoes; None when it is no undo.
    """

    seq: int
    firing_id: str
    rule_id: str
    at: datetime
    trigger: str
    by: str
    reason: str
    counts: FiringCounts
    run: str | None
    undone_by: str | None
    undoes: str | None


class FiringPage(Result):
    """A page of firings.

    Attributes:
        firings: The firings, newest first.
        next: The cursor of the next page; None at the end.
    """

    firings: list[KnownFiring]
    next: str | None

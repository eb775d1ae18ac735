"""The brake: a batch that would take out too much is held, until a person decides."""

from __future__ import annotations

from typing import NamedTuple

FEW = 100
"""By so many facts fewer alarms nobody, whatever part of all they are."""


class Toll(NamedTuple):
    """What a batch takes of the facts that stood before it.

    Attributes:
        lost: Facts that go without another in their place.
        fewer: By how many fewer facts stand after it; negative when there are more.
    """

    lost: int
    fewer: int


class Limits(NamedTuple):
    """How many facts one batch may take out without another in their place.

    Attributes:
        max_deletes: At most so many; None sets no bound.
        max_delete_fraction: By at most this part of those that stood there may be fewer, 0 to 1;
            None sets no bound. What is said today of other things than yesterday is no loss of
            memory, so what came counts against what went. Up to `FEW` it is not looked at.
    """

    max_deletes: int | None = None
    max_delete_fraction: float | None = None

    def over(self, general: Limits) -> Limits:
        """Return these limits, and of `general` what they leave open."""
        return Limits(
            general.max_deletes if self.max_deletes is None else self.max_deletes,
            general.max_delete_fraction
            if self.max_delete_fraction is None
            else self.max_delete_fraction,
        )

    def exceeded(self, toll: Toll, stood: int) -> str:
        """Say which limit a batch exceeds, in words; nothing when none.

        Args:
            toll: What it would take.
            stood: Facts that stood before it.
        """
        if self.max_deletes is not None and toll.lost > self.max_deletes:
            facts = "fact" if toll.lost == 1 else "facts"
            return f"{toll.lost:,} {facts} would go; max_deletes is {self.max_deletes:,}"
        fraction = self.max_delete_fraction
        if fraction is not None and toll.fewer > FEW and toll.fewer > fraction * stood:
            left = f"{stood - toll.fewer:,} of {stood:,} facts would be left"
            return f"{left}; max_delete_fraction is {fraction:g}"
        return ""


NO_LIMITS = Limits()


class Held(NamedTuple):
    """A batch that waits for a person.

    Attributes:
        rule_id: Its rule.
        firing_id: How it is approved or rejected.
        upto: Its last log row, and the episode of that row.
        problem: The limit that it exceeds, in words.
        approved: Whether it may go on.
    """

    rule_id: str
    firing_id: str
    upto: tuple[int, str]
    problem: str
    approved: bool

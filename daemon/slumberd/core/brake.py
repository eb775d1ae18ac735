"""The brake: a batch that would take out too much is held, until a person decides."""

from __future__ import annotations

from typing import NamedTuple

FEW = 100
"""So many lost facts alarm nobody, whatever part of all they are."""


class Limits(NamedTuple):
    """How many facts one batch may take out without another in their place.

    Attributes:
        max_deletes: At most so many; None sets no bound.
        max_delete_fraction: At most this part of those that stood, 0 to 1; None sets no bound.
            Up to `FEW` lost facts it is not looked at.
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

    def exceeded(self, lost: int, stood: int) -> str:
        """Say which limit a batch exceeds, in words; nothing when none.

        Args:
            lost: Facts that it would take out.
            stood: Facts that stood before it.
        """
        if self.max_deletes is not None and lost > self.max_deletes:
            return f"{lost} facts would go; max_deletes is {self.max_deletes}"
        fraction = self.max_delete_fraction
        if fraction is not None and lost > FEW and lost > fraction * stood:
            return f"{lost} of {stood} facts would go; max_delete_fraction is {fraction:g}"
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

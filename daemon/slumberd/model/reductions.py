"""How many facts went within a day, and when that is alarming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

WITHIN = timedelta(hours=24)
"""The time in which a reduction is alarming."""

FEW_FACTS = 20
"""Of so many facts or fewer, no reduction is alarming."""


class Reduction(NamedTuple):
    """An alarming reduction of facts.

    Attributes:
        user: Whose facts they were; None for the facts of all users together.
        before: How many facts there were at most within the last day.
        now: How many there are.
    """

    user: str | None
    before: int
    now: int

    def words(self) -> str:
        """Return the reduction in words, with the user."""
        whose = "there are" if self.user is None else f"user {self.user!r} has"
        share = 100 * (self.before - self.now) // self.before
        was = f"{self.before:,} facts within the last 24 hours ({share} % went)"
        return f"{whose} {self.now:,} of {was}"


class Shrinkage(NamedTuple):
    """How the number of facts fell within the last day.

    Attributes:
        now: How many facts each user has.
        most: How many facts each user had at most.
        most_of_all: How many facts there were at most.
    """

    now: Mapping[str, int]
    most: Mapping[str, int]
    most_of_all: int

    def reductions(self, fraction: float | None) -> Iterator[Reduction]:
        """Yield the alarming reductions: of all facts first, then of each user.

        Args:
            fraction: The fraction of the facts that must have gone; None alarms never.
        """
        if fraction is None:
            return
        counted: list[tuple[str | None, int, int]] = [
            (None, self.most_of_all, sum(self.now.values()))
        ]
        counted += [(user, self.most[user], self.now.get(user, 0)) for user in sorted(self.most)]
        for user, before, now in counted:
            if now < before and before > FEW_FACTS and before - now >= fraction * before:
                yield Reduction(user, before, now)


class Change(NamedTuple):
    """How many more facts a firing made current.

    Attributes:
        firing: The number of the firing.
        user: Whose facts they are; empty when that is unknown or erased.
        more: How many more; negative for fewer.
    """

    firing: int
    user: str
    more: int


def shrinkage_of(now: Mapping[str, int], changes: Iterable[Change]) -> Shrinkage:
    """Return how the number of facts fell, from the numbers of today and all changes before."""
    counts, most = dict(now), dict(now)
    total = most_of_all = sum(now.values())
    newest_first = sorted(changes, key=lambda change: -change.firing)
    for _, some in groupby(newest_first, key=lambda change: change.firing):
        for _, user, more in some:
            total -= more
            if user:
                counts[user] = counts.get(user, 0) - more
                most[user] = max(most.get(user, 0), counts[user])
        most_of_all = max(most_of_all, total)
    return Shrinkage(now, most, most_of_all)

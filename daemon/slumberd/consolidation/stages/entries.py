"""What the stages of a memory's upkeep read and decide: entries, and decisions about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

USUAL_IMPORTANCE = 0.5
"""The importance of an entry that states none."""


class Entry(NamedTuple):
    """One episode, as a stage sees it. All entries of a call have the same user and agent.

    Attributes:
        id: The episode's id, unique among the entries.
        session: The episode's session.
        content: The episode's text.
        at: Its instant, microseconds since 1970 UTC.
        importance: 0 to 1.
        triple: The canonical text of what the episode asserts; None when it asserts nothing.
        digest: Of what it says; an edit changes it.
    """

    id: str
    session: str
    content: str
    at: int
    importance: float = USUAL_IMPORTANCE
    triple: str | None = None
    digest: str = ""


class Duplicate(NamedTuple):
    """An entry says the same as an entry that is kept.

    Attributes:
        id: The entry that is not kept.
        of: The entry that is kept; it is never a duplicate itself.
        similarity: Of the two texts, 0 to 1.
    """

    id: str
    of: str
    similarity: float


class Archive(NamedTuple):
    """An entry leaves the memory, and can be restored.

    Attributes:
        id: The entry.
        reason: Why: its recency, or its importance, is too low.
        score: The recency or importance that is too low, 0 to 1.
    """

    id: str
    reason: Literal["decayed", "unimportant"]
    score: float


class Reweight(NamedTuple):
    """An entry counts for less because it is old, or for more because of its duplicates.

    Attributes:
        id: The entry.
        importance: Its importance at the instant of the call, 0 to 1.
    """

    id: str
    importance: float


class Halving(NamedTuple):
    """An entry counts for less because it is old, in steps of halves.

    Attributes:
        id: The entry.
        factor: A power of a half, above 0, below 1.
    """

    id: str
    factor: float


class Summary(NamedTuple):
    """One text that stands for several entries.

    Attributes:
        ids: All of these entries, oldest first.
        text: What the summary says; empty when no text fits.
        tokens: The number of tokens of the text.
        importance: The mean importance of the entries, 0 to 1.
    """

    ids: tuple[str, ...]
    text: str
    tokens: int
    importance: float


class SummaryFailure(NamedTuple):
    """Why several entries have no summary.

    Attributes:
        ids: The entries, oldest first.
        reason: Why, for a person; without any of their content.
    """

    ids: tuple[str, ...]
    reason: str


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries, oldest first; entries of one instant are ordered by id.

    Raises:
        ValueError: Two entries have the same id, or an importance lies outside of 0..1.
    """
    found = sorted(entries, key=lambda entry: (entry.at, entry.id))
    seen: set[str] = set()
    for entry in found:
        if entry.id in seen:
            raise ValueError(f"entry {entry.id!r} is given twice")
        if not 0 <= entry.importance <= 1:  # NaN lies outside too
            raise ValueError(f"importance of {entry.id!r} is {entry.importance!r}, not 0 to 1")
        seen.add(entry.id)
    return found


def check_fraction(name: str, value: float) -> None:
    """Check that a parameter lies in 0..1.

    Raises:
        ValueError: It does not, or it is not a number.
    """
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}, not 0 to 1")

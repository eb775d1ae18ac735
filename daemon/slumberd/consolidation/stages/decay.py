"""Decide which entries are too old or too unimportant to keep, and when they go for good.

The value of an old entry halves with each half-life, as in Ebbinghaus' curve of forgetting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from slumberd.consolidation.stages.entries import (
    Archive,
    Entry,
    Halving,
    Reweight,
    check_fraction,
    in_order,
)
from slumberd.model.episode import LATEST, microseconds

DAY_SECONDS = 86_400.0
WEEK_SECONDS = 7 * DAY_SECONDS
"""The default half-life of an importance."""

_SECOND = 1_000_000
_SMALLEST = 1_074
"""The smallest float above 0 is 1, halved so often."""

_LONGEST = 10**300
"""A longer age, in microseconds, counts as this: a float can hold it, and its recency is 0."""


def recency(age_seconds: float, half_life_seconds: float) -> float:
    """Return how recent an age is: 1 at age 0, 0.5 after one half-life, 0.25 after two.

    Args:
        age_seconds: An age below 0, of an entry from the future, counts as 0.
        half_life_seconds: Finite, above 0.

    Raises:
        ValueError: The half-life is out of bounds, or the age is not a number.
    """
    _check_half_life(half_life_seconds)
    if math.isnan(age_seconds):
        raise ValueError("age_seconds is not a number")
    return float(2.0 ** -(max(0.0, age_seconds) / half_life_seconds))


def archive_age(half_life_seconds: float, threshold: float) -> float:
    """Return the age in seconds after which the recency lies below a threshold.

    It is infinite when no age is old enough, which is the case for the threshold 0.

    Args:
        half_life_seconds: Finite, above 0.
        threshold: 0 to 1.

    Raises:
        ValueError: A parameter is out of bounds.
    """
    _check_half_life(half_life_seconds)
    check_fraction("threshold", threshold)
    if not threshold:
        return math.inf
    return max(0.0, half_life_seconds * -math.log2(threshold))  # never -0.0


def archive_before(at: datetime, *, half_life_seconds: float, threshold: float) -> int | None:
    """Return the instant before which entries decay, in microseconds since 1970 UTC.

    A store selects by it the entries that `find_decayed` can archive.

    Args:
        at: Now; aware.
        half_life_seconds: Finite, above 0.
        threshold: 0 to 1.

    Returns:
        The instant; None when no entry is old enough, however old it is.

    Raises:
        ValueError: A parameter is out of bounds.
    """
    age = archive_age(half_life_seconds, threshold) * _SECOND
    return microseconds(at) - math.floor(age) if math.isfinite(age) else None


def find_decayed(
    entries: Iterable[Entry],
    at: datetime,
    *,
    half_life_seconds: float = DAY_SECONDS,
    threshold: float = 0.05,
    protect_importance: float = 1.0,
) -> list[Archive]:
    """Return the entries whose recency lies below a threshold, oldest first.

    Args:
        entries: In any order. One from the future has the age 0.
        at: Now, for all entries; aware.
        half_life_seconds: Finite, above 0.
        threshold: The recency below which an entry is archived, 0 to 1.
        protect_importance: An entry with at least this importance is kept, however old it is;
            0 to 1. With 1 only the importance 1 protects.

    Raises:
        ValueError: A parameter or an entry is out of bounds.
    """
    check_fraction("protect_importance", protect_importance)
    before = archive_before(at, half_life_seconds=half_life_seconds, threshold=threshold)
    now = microseconds(at)
    return [
        Archive(entry.id, "decayed", recency(_age_seconds(entry, now), half_life_seconds))
        for entry in in_order(entries)
        if before is not None and entry.at < before and entry.importance < protect_importance
    ]


def decays_at(at: int, *, half_life_seconds: float, threshold: float) -> int | None:
    """Return the first instant at which `find_decayed` archives an unprotected entry.

    Args:
        at: The instant of the entry, in microseconds since 1970 UTC.
        half_life_seconds: Finite, above 0.
        threshold: 0 to 1.

    Returns:
        In microseconds since 1970 UTC; None when no clock shows it.

    Raises:
        ValueError: A parameter is out of bounds.
    """
    age = archive_age(half_life_seconds, threshold) * _SECOND
    return _shown(at + math.floor(age) + 1) if math.isfinite(age) else None


def halves_at(at: int, now: int, *, half_life_seconds: float, threshold: float) -> int | None:
    """Return the first instant after now at which `find_halved` has another factor for an entry.

    Args:
        at: The instant of the entry, in microseconds since 1970 UTC.
        now: The same of the call.
        half_life_seconds: Finite, above 0.
        threshold: 0 to 1.

    Returns:
        In microseconds since 1970 UTC; None when the factor falls no more, or no clock shows it.

    Raises:
        ValueError: A parameter is out of bounds.
    """
    _check_half_life(half_life_seconds)
    check_fraction("threshold", threshold)
    most = _most_halvings(threshold)
    times = _halvings(at, now, half_life_seconds, most) + 1
    age = times * half_life_seconds * _SECOND
    if times > most or age > LATEST - at:
        return None
    # The product is rounded, so the instant is found by the same comparison as the factor.
    found = at + math.ceil(age)
    while _halvings(at, found - 1, half_life_seconds, most) >= times:
        found -= 1
    while _halvings(at, found, half_life_seconds, most) < times:
        found += 1
    return _shown(found)


def _shown(instant: int) -> int | None:
    return instant if instant <= LATEST else None


def reweighted(
    entries: Iterable[Entry],
    at: datetime,
    *,
    half_life_seconds: float = WEEK_SECONDS,
    floor: float = 0.01,
) -> list[Reweight]:
    """Return the entries that count for less at an instant than their importance, oldest first.

    The importance must be the one that the entry was written with. The result of an earlier call
    would decay a second time.

    Args:
        entries: In any order. One from the future has the age 0.
        at: Now, for all entries; aware.
        half_life_seconds: The age at which an importance is half; finite, above 0.
        floor: No importance decays below this, 0 to 1. A lower importance stays as it is.

    Raises:
        ValueError: A parameter or an entry is out of bounds.
    """
    _check_half_life(half_life_seconds)
    check_fraction("floor", floor)
    now = microseconds(at)
    found = in_order(entries)
    factors = (recency(_age_seconds(entry, now), half_life_seconds) for entry in found)
    weights = [
        max(entry.importance * factor, min(floor, entry.importance))
        for entry, factor in zip(found, factors, strict=True)
    ]
    return [
        Reweight(entry.id, weight)
        for entry, weight in zip(found, weights, strict=True)
        if weight < entry.importance
    ]


def find_halved(
    entries: Iterable[Entry],
    at: datetime,
    *,
    half_life_seconds: float = DAY_SECONDS,
    threshold: float = 0.05,
    protect_importance: float = 1.0,
) -> list[Halving]:
    """Return the entries that are at least a half-life old, oldest first.

    The factor of an entry is halved with each half-life of its age. It falls no more once it is at
    or below a threshold. So it changes only a few times in the life of an entry.

    Args:
        entries: In any order. One from the future has the age 0.
        at: Now, for all entries; aware.
        half_life_seconds: Finite, above 0.
        threshold: 0 to 1.
        protect_importance: An entry with at least this importance is left out, 0 to 1.

    Raises:
        ValueError: A parameter or an entry is out of bounds.
    """
    _check_half_life(half_life_seconds)
    check_fraction("threshold", threshold)
    check_fraction("protect_importance", protect_importance)
    now, most = microseconds(at), _most_halvings(threshold)
    found = [
        (entry.id, _halvings(entry.at, now, half_life_seconds, most))
        for entry in in_order(entries)
        if entry.importance < protect_importance
    ]
    return [Halving(id, 2.0**-times) for id, times in found if times]


def _halvings(at: int, now: int, half_life_seconds: float, most: int) -> int:
    """Return how often the factor of an entry has been halved, `most` times at most."""
    return math.floor(min(_seconds_between(at, now) / half_life_seconds, most))


def _most_halvings(threshold: float) -> int:
    """Return how often 1 must be halved to be at or below a threshold; for 0, as often as can."""
    # A float is a fraction from a half to 1, times a power of two.
    return 1 - math.frexp(threshold)[1] if threshold else _SMALLEST


def _age_seconds(entry: Entry, now: int) -> float:
    return _seconds_between(entry.at, now)


def _seconds_between(at: int, now: int) -> float:
    return min(max(0, now - at), _LONGEST) / _SECOND


def _check_half_life(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise ValueError(f"half_life_seconds is {seconds!r}, not a finite number above 0")


def find_unimportant(entries: Iterable[Entry], below: float = 0.1) -> list[Archive]:
    """Return the entries whose importance is less than a limit, oldest first.

    Args:
        entries: In any order.
        below: 0 to 1. An entry with exactly this importance is kept.

    Raises:
        ValueError: The limit or an entry is out of bounds.
    """
    check_fraction("below", below)
    return [
        Archive(entry.id, "unimportant", entry.importance)
        for entry in in_order(entries)
        if entry.importance < below
    ]


_LONGEST_SECONDS = 1e15
"""A longer duration counts as this: it is longer than all years of a datetime."""


class ArchivedEntry(NamedTuple):
    """An entry, and when it was archived.

    Attributes:
        id: The entry.
        archived_at: Microseconds since 1970 UTC.
    """

    id: str
    archived_at: int


def find_expired(
    marks: Iterable[ArchivedEntry], at: datetime, *, purge_after_seconds: float
) -> list[str]:
    """Return the ids of entries that were archived long enough ago, the first archived first.

    Args:
        marks: In any order. With several marks of one entry, the newest counts.
        at: Now; aware. A mark from the future is not expired.
        purge_after_seconds: How long an entry stays archived; finite, 0 or more.

    Raises:
        ValueError: The duration is out of bounds.
    """
    last = expired_upto(at, purge_after_seconds=purge_after_seconds)
    newest: dict[str, int] = {}
    for entry_id, archived_at in marks:
        newest[entry_id] = max(archived_at, newest.get(entry_id, archived_at))
    return [
        entry_id
        for archived_at, entry_id in sorted((mark, name) for name, mark in newest.items())
        if archived_at <= last
    ]


def expired_upto(at: datetime, *, purge_after_seconds: float) -> int:
    """Return the last instant at which an entry was archived long enough ago.

    Args:
        at: Now; aware.
        purge_after_seconds: How long an entry stays archived; finite, 0 or more.

    Returns:
        In microseconds since 1970 UTC.

    Raises:
        ValueError: The duration is out of bounds.
    """
    if not 0 <= purge_after_seconds < math.inf:
        raise ValueError(
            f"purge_after_seconds is {purge_after_seconds!r}, not a finite number of 0 or more"
        )
    return microseconds(at) - round(min(purge_after_seconds, _LONGEST_SECONDS) * _SECOND)

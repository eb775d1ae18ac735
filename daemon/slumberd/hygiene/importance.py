"""Decide which entries are too unimportant to keep, and which inherit a higher importance."""

from __future__ import annotations

from collections.abc import Iterable

from slumberd.hygiene.entries import (
    Archive,
    Duplicate,
    Entry,
    Reweight,
    check_fraction,
    in_order,
)


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


def inherited_importance(
    entries: Iterable[Entry], duplicates: Iterable[Duplicate]
) -> list[Reweight]:
    """Return the kept entries with a duplicate of higher importance, oldest first.

    The new importance is the highest of an entry and its duplicates.

    Args:
        entries: In any order.
        duplicates: Of these entries, in any order.

    Raises:
        ValueError: An entry is out of bounds.
    """
    found = in_order(entries)
    highest = {entry.id: entry.importance for entry in found}
    own = dict(highest)
    for duplicate in duplicates:
        highest[duplicate.of] = max(highest[duplicate.of], own[duplicate.id])
    return [
        Reweight(entry.id, highest[entry.id])
        for entry in found
        if highest[entry.id] > entry.importance
    ]

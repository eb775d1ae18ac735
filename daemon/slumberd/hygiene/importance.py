"""Decide which entries are too unimportant to keep."""

from __future__ import annotations

from collections.abc import Iterable

from slumberd.hygiene.entries import Archive, Entry, check_fraction, in_order


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

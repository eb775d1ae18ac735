"""Decide which archived entries are removed for good."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from slumberd.model.episode import microseconds

_SECOND = 1_000_000
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
    if not 0 <= purge_after_seconds < math.inf:
        raise ValueError(
            f"purge_after_seconds is {purge_after_seconds!r}, not a finite number of 0 or more"
        )
    newest: dict[str, int] = {}
    for entry_id, archived_at in marks:
        newest[entry_id] = max(archived_at, newest.get(entry_id, archived_at))
    last = microseconds(at) - round(min(purge_after_seconds, _LONGEST_SECONDS) * _SECOND)
    return [
        entry_id
        for archived_at, entry_id in sorted((mark, name) for name, mark in newest.items())
        if archived_at <= last
    ]

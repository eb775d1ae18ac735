"""Entries of the tiered memory API for tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from slumberd.tiers import MemoryEntry, MemorySearchResult
from tests.support.builders import START


def entry(id: str, content: str = "", *, age: float = 0, **fields: Any) -> MemoryEntry:
    """Return an entry that is so many seconds old at `START`."""
    at = START - timedelta(seconds=age)
    return MemoryEntry(id, content or f"content of {id}", "user", at, **fields)


def ids(found: list[MemoryEntry] | list[MemorySearchResult]) -> list[str]:
    """Return the ids of entries or results, in order."""
    return [one.id if isinstance(one, MemoryEntry) else one.entry.id for one in found]

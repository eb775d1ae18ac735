"""The entries of a store in the process, by owner, which a back end can keep beyond it."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from slumberd.tiers.entries import MemoryEntry, MemoryQuery, MemorySearchResult
from slumberd.tiers.protocols import MemoryStoreProtocol
from slumberd.tiers.search.relevance import relevances_of


class KeptEntries:
    """The entries of each owner by id, in the order in which they were stored.

    Args:
        backend: Keeps the entries beyond the process; None keeps them in the process only. The
            entries of an owner are read once, so only one process should write them.
    """

    def __init__(self, backend: MemoryStoreProtocol | None) -> None:
        self._backend = backend
        self._owned: dict[str, dict[str, MemoryEntry]] = {}
        self._loading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, owner_id: str) -> dict[str, MemoryEntry]:
        """Return the entries of an owner, by id, the oldest first."""
        async with self._loading[owner_id]:
            if owner_id not in self._owned:
                found: Sequence[MemoryEntry] = []
                if self._backend is not None:
                    found = await self._backend.get_recent(sys.maxsize, owner_id=owner_id)
                self._owned[owner_id] = {entry.id: entry for entry in reversed(found)}
        return self._owned[owner_id]

    async def put(self, entry: MemoryEntry) -> None:
        """Add an entry as the newest; it replaces the one of its owner and id."""
        owned = await self.of(entry.owner_id)
        if self._backend is not None:
            await self._backend.store(entry)
        owned.pop(entry.id, None)
        owned[entry.id] = entry

    async def drop(self, owner_id: str, entry_ids: Iterable[str]) -> None:
        """Remove entries of an owner; unknown ids are ignored."""
        owned = await self.of(owner_id)
        for entry_id in entry_ids:
            if self._backend is not None:
                await self._backend.delete(entry_id, owner_id=owner_id)
            owned.pop(entry_id, None)

    async def clear(self, owner_id: str) -> None:
        """Remove all entries of an owner."""
        if self._backend is not None:
            await self._backend.clear(owner_id=owner_id)
        self._owned[owner_id] = {}

    async def newest(self, owner_id: str) -> list[MemoryEntry]:
        """Return the entries of an owner, the newest first."""
        return [*(await self.of(owner_id)).values()][::-1]


def results_of(
    entries: Sequence[MemoryEntry], query: MemoryQuery, source: str, score: float | None = None
) -> list[MemorySearchResult]:
    """Return entries as results with their relevance; without a score it is the importance."""
    return [
        MemorySearchResult(entry, entry.importance if score is None else score, source, relevance)
        for entry, relevance in zip(entries, relevances_of(entries, query.query), strict=True)
    ]

"""Entries in the process; they end with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from slumberd.clock import Clock
from slumberd.tiers.backends.owned_entries import OwnedEntries, storable
from slumberd.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
)
from slumberd.tiers.errors import MemoryCapacityError
from slumberd.tiers.health import check_health
from slumberd.tiers.strategies import CLOCK

_SOURCE = "in_memory"


class InMemoryMemoryBackend:
    """Keeps entries in the process; implements `MemoryStoreProtocol`.

    Args:
        ttl_seconds: How long an entry is kept that does not say when it expires; 0 for ever.
        max_entries: The most entries of all owners; None for any number.
        language: The language of the texts, to stem their words; None stems none.
        clock: The time of scores and expiries.
    """

    source = _SOURCE

    def __init__(
        self,
        *,
        ttl_seconds: float = 0,
        max_entries: int | None = None,
        language: str | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._owned: dict[str, OwnedEntries] = {}
        self._ttl = ttl_seconds
        self._most = max_entries
        self._new_entries = partial(OwnedEntries, language)
        self._clock = clock

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: The entry has values that JSON cannot hold.
            MemoryCapacityError: The store has `max_entries` already.
        """
        kept = storable(entry, self._ttl, self._clock.now(), _SOURCE)
        self._refuse_when_full(kept)
        owned = self._owned.setdefault(entry.owner_id, self._new_entries())
        owned.put(kept)

    def _refuse_when_full(self, entry: MemoryEntry) -> None:
        if self._most is None or entry.id in self._entries_of(entry.owner_id):
            return
        for owner in [*self._owned]:
            self._entries_of(owner)
        if sum(map(len, self._owned.values())) >= self._most:
            message = f"the store has {self._most} entries, its most; delete some first"
            raise MemoryCapacityError(message, self._most)

    def _entries_of(self, owner_id: str) -> OwnedEntries:
        """Return the entries of an owner that have not expired."""
        owned = self._owned.get(owner_id)
        if owned is None:
            return self._new_entries()
        owned.drop_expired(self._clock.now())
        return owned

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best entries of an owner, best first."""
        return self._entries_of(query.owner_id).search(query, self._clock.now(), _SOURCE)

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first."""
        return self._entries_of(owner_id).newest(n)

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        self._entries_of(owner_id).drop([entry_id])

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner."""
        self._owned.pop(owner_id, None)

    async def owners(self) -> list[str]:
        """Return the owners that have entries, sorted."""
        return sorted(owner for owner in self._owned if len(self._entries_of(owner)))

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the number of entries; the store is always healthy."""
        return await check_health(_SOURCE, self._count, timeout, self._clock)

    async def _count(self) -> Mapping[str, Any]:
        return {"entries": sum(len(self._entries_of(owner)) for owner in [*self._owned])}

"""Entries in the process: those of an owner with their index, and back ends of them and of none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from slumberd.clock import Clock
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    check_health,
    copy_of,
    is_json,
)
from slumberd.integrations.tiers.errors import MemoryCapacityError, MemoryStoreError
from slumberd.integrations.tiers.facts import FactStore
from slumberd.integrations.tiers.search import EntryIndex, best, is_expired, newest_first
from slumberd.integrations.tiers.stores import are_unchanged, without
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.scope import canonical

_SOURCE = "in_memory"


class InMemoryMemoryBackend:
    """Keeps entries in the process; implements `OwnedStoreProtocol`.

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

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others; nothing when one of `old` has changed.

        Raises:
            MemoryStoreError: An entry has values that JSON cannot hold; nothing is done.
        """
        owned = self._entries_of(owner_id)
        if not owned.has_unchanged(old):
            return False
        kept = [storable(entry, self._ttl, self._clock.now(), _SOURCE) for entry in new]
        owned.drop(without(old, new))
        for entry in kept:
            owned.put(entry)
        return True

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


class OwnedEntries:
    """The entries of one owner, by id.

    Args:
        language: The language of the texts, to stem their words; None stems none.
    """

    def __init__(self, language: str | None = None) -> None:
        self._entries: dict[str, MemoryEntry] = {}
        self._index = EntryIndex(language)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._entries

    def has_unchanged(self, entries: Sequence[MemoryEntry]) -> bool:
        """Return whether all of some entries are as they were when they were read."""
        return are_unchanged(entries, self._entries)

    def put(self, entry: MemoryEntry) -> None:
        """Add an entry; it replaces the one of its id."""
        self._entries[entry.id] = entry
        self._index.put([(entry.id, entry)])

    def drop(self, entry_ids: Iterable[str]) -> None:
        """Remove entries; unknown ids are ignored."""
        gone = [entry_id for entry_id in entry_ids if self._entries.pop(entry_id, None)]
        self._index.drop(gone)

    def drop_expired(self, at: datetime) -> list[str]:
        """Remove the entries that have expired; return their ids."""
        expired = [entry.id for entry in self._entries.values() if is_expired(entry, at)]
        self.drop(expired)
        return expired

    def replace_all(self, entries: Iterable[MemoryEntry]) -> None:
        """Become some entries; only what has changed is indexed again."""
        wanted = {entry.id: entry for entry in entries}
        self.drop([entry_id for entry_id in self._entries if entry_id not in wanted])
        for entry in wanted.values():
            if self._entries.get(entry.id) != entry:
                self.put(entry)
            self._entries[entry.id] = entry  # it may expire at another instant

    def newest(self, n: int) -> list[MemoryEntry]:
        """Return the latest entries, newest first."""
        return [copy_of(entry) for entry in newest_first(self._entries.values())[: max(0, n)]]

    def search(self, query: MemoryQuery, at: datetime, source: str) -> list[MemorySearchResult]:
        """Return the best results of a query, with copies of the entries."""
        whole = not query.query.strip()
        relevances = {} if whole else self._index.relevances(query.query)
        least = 1.0 if whole else 0.0
        found = ((entry, relevances.get(entry.id, least)) for entry in self._entries.values())
        results = best(found, query, at, source)
        return [replace(result, entry=copy_of(result.entry)) for result in results]


def storable(entry: MemoryEntry, ttl_seconds: float, at: datetime, store: str) -> MemoryEntry:
    """Return an entry as a store keeps it: apart from the caller's values, with its expiry.

    Args:
        ttl_seconds: How long the store keeps entries that do not say when they expire; 0 for ever.
        at: The instant of the write.
        store: The name of the store, for errors.

    Raises:
        MemoryStoreError: A value is of another type, or JSON cannot hold it.
    """
    for name in ("id", "content", "role", "owner_id"):
        if not isinstance(getattr(entry, name), str):
            raise MemoryStoreError(f"{name} of entry {entry.id!r} is no text", store)
    if not isinstance(entry.metadata, Mapping):
        raise MemoryStoreError(f"metadata of entry {entry.id!r} is no mapping", store)
    if not isinstance(entry.embedding, list | tuple | None):
        raise MemoryStoreError(f"embedding of entry {entry.id!r} is no list", store)
    try:
        canonical([entry.id, entry.content, entry.role, entry.owner_id, entry.embedding])
        canonical(entry.metadata)
    except TypeError as error:
        raise MemoryStoreError(f"entry {entry.id!r} is not JSON: {error}", store) from error
    if not is_json([entry.metadata, entry.embedding]):
        raise MemoryStoreError(f"entry {entry.id!r} has a value that JSON cannot hold", store)
    expires_at = entry.expires_at
    if expires_at is None and ttl_seconds > 0:
        expires_at = at + timedelta(seconds=ttl_seconds)
    return replace(copy_of(entry), expires_at=expires_at)


class DisabledMemoryBackend:
    """Keeps no entry; implements `OwnedStoreProtocol`."""

    source = "disabled"

    async def store(self, entry: MemoryEntry) -> None:
        """Drop an entry."""

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return nothing."""
        del query
        return []

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return nothing."""
        del n, owner_id
        return []

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Do nothing: there is nothing to delete."""

    async def clear(self, *, owner_id: str = "") -> None:
        """Do nothing: there is nothing to delete."""

    async def owners(self) -> list[str]:
        """Return nothing."""
        return []

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return that all is well; at once, so the timeout has no effect."""
        del timeout
        return HealthCheckResult(self.source, message="the memory is disabled")


class DisabledFactStore(FactStore):
    """Keeps no fact."""

    def add(
        self,
        subject: str,
        predicate: str,
        object_: str,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
        *,
        owner_id: str = "",
    ) -> str:
        """Drop a triple; its id is empty."""
        del subject, predicate, object_, confidence, metadata, owner_id
        return ""

    def update_confidence(self, fact_id: str, confidence: float, *, owner_id: str = "") -> None:
        """Do nothing."""

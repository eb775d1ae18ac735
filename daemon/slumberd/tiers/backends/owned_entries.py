"""The entries of one owner in the process, with the index of their texts."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from slumberd.model.fact_ids import canonical
from slumberd.tiers.entries import MemoryEntry, MemoryQuery, MemorySearchResult
from slumberd.tiers.errors import MemoryStoreError
from slumberd.tiers.search.relevance import EntryIndex
from slumberd.tiers.search.scoring import best, is_expired, newest_first


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
        return newest_first(self._entries.values())[: max(0, n)]

    def search(self, query: MemoryQuery, at: datetime, source: str) -> list[MemorySearchResult]:
        """Return the best results of a query."""
        if not query.query.strip():
            return best(((entry, 1.0) for entry in self._entries.values()), query, at, source)
        relevances = self._index.relevances(query.query)
        found = ((entry, relevances.get(entry.id, 0.0)) for entry in self._entries.values())
        return best(found, query, at, source)


def storable(entry: MemoryEntry, ttl_seconds: float, at: datetime, store: str) -> MemoryEntry:
    """Return an entry as a store keeps it: apart from the caller's values, with its expiry.

    Args:
        entry: The entry.
        ttl_seconds: How long the store keeps entries that do not say when they expire; 0 for ever.
        at: The instant of the write.
        store: The name of the store, for errors.

    Raises:
        MemoryStoreError: The entry has values that JSON cannot hold.
    """
    try:
        canonical([entry.id, entry.content, entry.role, entry.owner_id, entry.embedding])
        canonical(entry.metadata)
    except TypeError as error:
        raise MemoryStoreError(f"entry {entry.id!r} is not JSON: {error}", store) from error
    if not _is_json([entry.metadata, entry.embedding]):
        raise MemoryStoreError(f"entry {entry.id!r} has a value that JSON cannot hold", store)
    expires_at = entry.expires_at
    if expires_at is None and ttl_seconds > 0:
        expires_at = at + timedelta(seconds=ttl_seconds)
    metadata = copy.deepcopy(dict(entry.metadata))
    embedding = None if entry.embedding is None else [*entry.embedding]
    return replace(entry, metadata=metadata, embedding=embedding, expires_at=expires_at)


def _is_json(value: Any) -> bool:  # noqa: ANN401 # any value
    match value:
        case None | bool() | int() | str():
            return True
        case float():
            return math.isfinite(value)
        case Mapping():
            return all(map(_is_json, value.values()))
        case list() | tuple():
            return all(map(_is_json, value))
        case _:
            return False

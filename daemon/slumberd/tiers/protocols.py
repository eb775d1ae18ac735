"""The protocols of the tiered memory API: stores, indexes, scorers, strategies and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from slumberd.retrieval.context import TokenCounter as TokenCounterProtocol
from slumberd.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
)

__all__ = [
    "ConsolidationStrategyProtocol",
    "MemoryIndexProtocol",
    "MemoryStoreProtocol",
    "RelevanceScorerProtocol",
    "SearchableProtocol",
    "TokenCounterProtocol",
]


@runtime_checkable
class SearchableProtocol(Protocol):
    """What can be searched: the part of a store that a retriever needs."""

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best results of one owner, best first."""
        ...


@runtime_checkable
class MemoryStoreProtocol(SearchableProtocol, Protocol):
    """A store of the entries of many owners; no call sees entries of two owners."""

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: The store failed, or cannot return the entry unchanged.
            MemoryCapacityError: The store is full.
        """
        ...

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first; none when `n` is below 1."""
        ...

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        ...

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner."""
        ...

    async def owners(self) -> list[str]:
        """Return the owners that may have entries, sorted; for the upkeep of the whole store."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return whether the store answers within so many seconds."""
        ...


class MemoryIndexProtocol(Protocol):
    """Finds entries by their text."""

    async def index(self, entry: MemoryEntry) -> str:
        """Index an entry; return its id."""
        ...

    async def search(self, query: str, top_k: int) -> list[MemoryEntry]:
        """Return the most similar entries, best first."""
        ...


class RelevanceScorerProtocol(Protocol):
    """Scores how much an entry is worth its tokens."""

    def score(self, entry: MemoryEntry, query: str | None = None) -> float:
        """Return a score; the higher, the rather the entry is kept."""
        ...


class ConsolidationStrategyProtocol(Protocol):
    """Decides which entries are left after a consolidation."""

    async def consolidate(self, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
        """Return the entries that are left."""
        ...

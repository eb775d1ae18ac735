"""A memory that is switched off: it keeps nothing, and finds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slumberd.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    StoredFact,
    Triple,
)


class DisabledMemoryBackend:
    """Keeps no entry; implements `MemoryStoreProtocol`."""

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


class DisabledFactStore:
    """Keeps no fact; implements `FactStoreProtocol`."""

    async def add(  # noqa: PLR0913 # as `FactStore`
        self,
        subject: str,
        predicate: str,
        object_: str,
        confidence: float = 1.0,
        metadata: Mapping[str, Any] | None = None,
        *,
        owner_id: str = "",
        sources: Sequence[str] = (),
    ) -> str:
        """Drop a triple; its id is empty."""
        del subject, predicate, object_, confidence, metadata, owner_id, sources
        return ""

    def id_of(self, triple: Triple, owner_id: str = "") -> str:
        """Return no id."""
        del triple, owner_id
        return ""

    async def all_of(self, owner_id: str = "") -> list[StoredFact]:
        """Return nothing."""
        del owner_id
        return []

    async def query_by_subject(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return nothing."""
        del subject, owner_id
        return []

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return nothing."""
        del entity, owner_id
        return []

    async def update_confidence(
        self, fact_id: str, confidence: float, *, owner_id: str = ""
    ) -> None:
        """Do nothing."""

    async def delete(self, fact_id: str, *, owner_id: str = "") -> None:
        """Do nothing: there is nothing to delete."""

    async def count(self) -> int:
        """Return 0."""
        return 0

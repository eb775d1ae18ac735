"""Stores of a memory that is disabled: they keep nothing."""

from __future__ import annotations

from typing import Any

from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
)
from slumberd.integrations.tiers.facts import FactStore


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

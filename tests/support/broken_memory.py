"""A back end of the tiered memory API that fails."""

from __future__ import annotations

from slumberd.tiers import (
    HealthCheckResult,
    InMemoryMemoryBackend,
    MemoryQuery,
    MemorySearchResult,
)

BROKEN = OSError("the disk is gone")


class BrokenBackend(InMemoryMemoryBackend):
    """A back end whose searches and checks fail."""

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        raise BROKEN

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # as the protocol
        raise BROKEN

"""The episodic tier: what was experienced, on any back end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import EpisodicMemoryConfig
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    check_health,
)
from slumberd.integrations.tiers.errors import MemoryStoreError
from slumberd.integrations.tiers.events import (
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
    Publisher,
    Subscriber,
)
from slumberd.integrations.tiers.stores import owned_store
from slumberd.integrations.tiers.strategies import CLOCK

TIER = "episodic"


class EpisodicMemoryStore:
    """Records entries, and recalls them by text, recency and importance.

    Args:
        backend: Keeps the entries.
        config: The weights of a recall, and how long entries are kept; None takes the defaults.
        on_event: Called with each write and each search.
        clock: The time of events and expiries.
    """

    def __init__(
        self,
        backend: MemoryStoreProtocol,
        config: EpisodicMemoryConfig | None = None,
        *,
        on_event: Subscriber | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.backend = backend
        self._store = owned_store(backend)
        self._config = config or EpisodicMemoryConfig()
        self._publisher = Publisher(on_event)
        self._clock = clock

    async def record(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: The back end failed.
        """
        now = self._clock.now()
        if entry.expires_at is None and self._config.ttl_seconds:
            expires_at = now + timedelta(seconds=self._config.ttl_seconds)
            entry = replace(entry, expires_at=expires_at)
        await self._store.store(entry)
        name = getattr(self.backend, "source", type(self.backend).__name__)
        self._publisher.publish(
            MemoryStoredEvent(memory_id=entry.id, memory_type=TIER, occurred_at=now),
            MemoryWrittenHook(tier=TIER, backend=name),
        )

    def usual_query(self, text: str, *, owner_id: str = "") -> MemoryQuery:
        """Return a search for a text with the configured weights and number of results."""
        return self._config.query(text, owner_id=owner_id)

    async def recall(
        self, query: MemoryQuery | str, *, owner_id: str = ""
    ) -> list[MemorySearchResult]:
        """Return the best entries of an owner, best first.

        Args:
            query: The search; a text is searched with the configured weights and number.
            owner_id: Whose entries; a `MemoryQuery` says so itself.

        Raises:
            MemoryStoreError: The back end failed.
        """
        if isinstance(query, str):
            query = self.usual_query(query, owner_id=owner_id)
        found = await self._store.retrieve(query)
        event = MemoryRetrievedEvent(
            query_id=uuid.uuid4().hex, results_count=len(found), occurred_at=self._clock.now()
        )
        hook = MemoryRetrievedHook(tier=TIER, result_count=len(found))
        self._publisher.publish(event, hook)
        return found

    async def forget(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        await self._store.delete(entry_id, owner_id=owner_id)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the back end."""
        return await check_health("episodic_memory", self._probe, timeout, self._clock)

    async def _probe(self) -> Mapping[str, Any]:
        found = await self._store.health_check()
        if not found.is_healthy():
            message = f"{found.component} is {found.status}: {found.error or found.message}"
            raise MemoryStoreError(message, found.component)
        return {"backend": found.component, **(found.details or {})}

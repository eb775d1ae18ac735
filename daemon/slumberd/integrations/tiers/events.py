"""What subscribers are told: after a write, a search, or a strategy of a consolidation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from slumberd.integrations.tiers.errors import log_subscriber_failure


@dataclass(frozen=True, kw_only=True)
class MemoryStoredEvent:
    """A memory was stored; the store has committed it.

    Attributes:
        memory_id: The id of the entry or of the fact.
        memory_type: ``working``, ``episodic`` or ``semantic``.
        occurred_at: When.
    """

    memory_id: str
    memory_type: str
    occurred_at: datetime


@dataclass(frozen=True, kw_only=True)
class MemoryRetrievedEvent:
    """A search has returned.

    Attributes:
        query_id: Of the search; no two are equal.
        occurred_at: When.
    """

    query_id: str
    results_count: int
    occurred_at: datetime


@dataclass(frozen=True, kw_only=True)
class MemoryWrittenHook:
    """A tier has written.

    Attributes:
        tier: ``working``, ``episodic`` or ``semantic``.
        backend: Where it was written, as ``in_memory`` or ``database``.
    """

    tier: str
    backend: str


@dataclass(frozen=True, kw_only=True)
class MemoryRetrievedHook:
    """A tier was searched.

    Attributes:
        tier: ``working``, ``episodic`` or ``semantic``.
    """

    tier: str
    result_count: int


@dataclass(frozen=True, kw_only=True)
class MemoryConsolidatedHook:
    """Passed on after each strategy of a pass.

    Attributes:
        strategy: ``deduplication``, ``recency_decay``, ``importance`` or ``summarisation``.
    """

    strategy: str


MemoryEvent = (
    MemoryStoredEvent
    | MemoryRetrievedEvent
    | MemoryWrittenHook
    | MemoryRetrievedHook
    | MemoryConsolidatedHook
)
"""Anything that a subscriber is told."""

Subscriber = Callable[[MemoryEvent], None]
"""Called with each event, after it happened. The tiers log what it raises."""


class Publisher:
    """Tells a subscriber of events; an error of the subscriber is logged and goes no further.

    Args:
        subscriber: Called with each event; None for nobody.
    """

    def __init__(self, subscriber: Subscriber | None = None) -> None:
        self._subscriber = subscriber

    def publish(self, *events: MemoryEvent) -> None:
        """Tell the subscriber of events that have happened."""
        if self._subscriber is None:
            return
        for event in events:
            try:
                self._subscriber(event)
            except Exception as error:  # noqa: BLE001 # what happened cannot fail any more
                log_subscriber_failure(error)

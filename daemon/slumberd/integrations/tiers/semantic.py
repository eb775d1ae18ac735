"""The semantic tier: what is known, as facts with a confidence, in a store of facts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import SemanticMemoryConfig
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    Triple,
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
from slumberd.integrations.tiers.extraction import EntityExtractor
from slumberd.integrations.tiers.facts import (
    DurableFactStore,
    FactStore,
    check_confidence,
    mentions,
)
from slumberd.integrations.tiers.stores import takes
from slumberd.integrations.tiers.strategies import CLOCK

TIER = "semantic"
INGEST_CONFIDENCE = 0.8
"""The confidence of facts that were extracted from entries."""

_USUAL = SemanticMemoryConfig()

Facts = list[dict[str, Any]]
"""Facts with ``id``, ``subject``, ``predicate``, ``object_`` and ``confidence``."""

Answer = TypeVar("Answer")


class FactStoreProtocol(Protocol):
    """What the semantic tier needs of a store of facts; each method may be async.

    Methods that take an `owner_id` keep owners apart. Without it, all facts are of the empty owner.
    """

    def add(
        self,
        subject: str,
        predicate: str,
        object_: str,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
    ) -> str | Awaitable[str]:
        """Store a triple; return its id."""
        ...

    def query_by_subject(self, subject: str) -> Facts | Awaitable[Facts]:
        """Return the facts whose subject begins with a text; all for the empty one."""
        ...

    def get_entity_facts(self, entity: str) -> Facts | Awaitable[Facts]:
        """Return the facts that name an entity."""
        ...

    def update_confidence(self, fact_id: str, confidence: float) -> Awaitable[None] | None:
        """Change the confidence of a fact."""
        ...

    def delete(self, fact_id: str) -> Awaitable[None] | None:
        """Remove a fact."""
        ...


class SemanticMemoryStore:
    """Keeps facts of a sufficient confidence, and only so many of one subject.

    Args:
        fact_store: Keeps the facts; None keeps them in the process.
        extractor: Extracts triples from entries, for `ingest`; None extracts none.
        min_confidence: Facts of a lower confidence are neither stored nor returned, 0 to 1.
        max_facts_per_entity: The most facts of one subject of an owner, 1 or more.
        on_event: Called with each write and each search.
        clock: The time of events.

    Raises:
        ValueError: A limit is out of bounds.
    """

    def __init__(
        self,
        fact_store: FactStoreProtocol | None = None,
        extractor: EntityExtractor | None = None,
        min_confidence: float = _USUAL.min_confidence,
        max_facts_per_entity: int = _USUAL.max_facts_per_entity,
        *,
        on_event: Subscriber | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._config = SemanticMemoryConfig(
            min_confidence=min_confidence, max_facts_per_entity=max_facts_per_entity
        )
        self._facts = FactStore() if fact_store is None else fact_store
        self._extractor = extractor
        self._publisher = Publisher(on_event)
        self._clock = clock
        self._writing = asyncio.Lock()

    async def _ask(
        self,
        method: Callable[..., Answer | Awaitable[Answer]],
        *values: object,
        owner_id: str,
        sources: Sequence[str] = (),
    ) -> Answer:
        """Call a method of the store of facts, which may be async, and know owners.

        Raises:
            MemoryStoreError: There is an owner, and the method knows none.
        """
        options: dict[str, Any] = {}
        if takes(method, "owner_id"):
            options["owner_id"] = owner_id
        elif owner_id:
            raise MemoryStoreError("the store of facts knows no owners", "facts")
        if takes(method, "sources"):
            options["sources"] = sources
        found = method(*values, **options)
        return await found if isinstance(found, Awaitable) else found

    async def _of_subject(self, subject: str, owner_id: str) -> Facts:
        return await self._ask(self._facts.query_by_subject, subject, owner_id=owner_id)

    async def store_fact(
        self,
        subject: str,
        predicate: str,
        object_: str,
        confidence: float = 1.0,
        *,
        owner_id: str = "",
        sources: Sequence[str] = (),
    ) -> str:
        """Store a fact of an owner; return its id, or nothing when its confidence is too low.

        When the subject has the most facts already, the one of the lowest confidence goes.

        Raises:
            ValueError: A part of the fact is empty, or the confidence is out of bounds.
            MemoryStoreError: The store failed.
        """
        check_confidence(confidence)
        if confidence < self._config.min_confidence:
            return ""
        triple = subject, predicate, object_
        async with self._writing:
            fact_id = await self._ask(
                self._facts.add, *triple, confidence, owner_id=owner_id, sources=sources
            )
            await self._make_room(subject, fact_id, owner_id)
        now = self._clock.now()
        self._publisher.publish(
            MemoryStoredEvent(memory_id=fact_id, memory_type=TIER, occurred_at=now),
            MemoryWrittenHook(tier=TIER, backend="facts"),
        )
        return fact_id

    async def knows(self, triple: Triple, *, owner_id: str = "") -> bool:
        """Return whether an owner has a fact with a triple, of whatever confidence."""
        found = await self._of_subject(triple[0], owner_id)
        return any((one["subject"], one["predicate"], one["object_"]) == triple for one in found)

    async def _make_room(self, subject: str, fact_id: str, owner_id: str) -> None:
        """Delete the facts of a subject above the limit, but not the one that was just stored."""
        same = [
            fact
            for fact in await self._of_subject(subject, owner_id)
            if fact["subject"].casefold() == subject.casefold() and fact["id"] != fact_id
        ]
        surplus = len(same) + 1 - self._config.max_facts_per_entity
        lowest_first = sorted(same, key=lambda fact: fact["confidence"])
        for fact in lowest_first[: max(0, surplus)]:
            await self._ask(self._facts.delete, fact["id"], owner_id=owner_id)

    async def query_facts(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text; case is ignored."""
        return self._confident(await self._of_subject(subject, owner_id))

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity, whole words, as subject or object."""
        found = await self._ask(self._facts.get_entity_facts, entity, owner_id=owner_id)
        return self._confident(found)

    async def facts_in(self, text: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject or object a text names, surest first."""
        found = [
            fact
            for fact in await self._of_subject("", owner_id)
            if mentions(text, fact["subject"]) or mentions(text, fact["object_"])
        ]
        return sorted(self._confident(found), key=lambda fact: -fact["confidence"])

    def _confident(self, facts: Facts) -> list[dict[str, Any]]:
        found = [fact for fact in facts if fact["confidence"] >= self._config.min_confidence]
        self._publisher.publish(
            MemoryRetrievedEvent(
                query_id=uuid.uuid4().hex, results_count=len(found), occurred_at=self._clock.now()
            ),
            MemoryRetrievedHook(tier=TIER, result_count=len(found)),
        )
        return found

    async def update_fact(self, fact_id: str, confidence: float, *, owner_id: str = "") -> None:
        """Change the confidence of a fact of an owner.

        Raises:
            ValueError: The confidence is out of bounds.
            MemoryStoreError: The owner has no such fact, or the store failed.
        """
        await self._ask(self._facts.update_confidence, fact_id, confidence, owner_id=owner_id)

    async def ingest(self, entry: MemoryEntry) -> int:
        """Store what an entry states, with the confidence 0.8; return the number of new facts.

        Raises:
            FactExtractionError: The extraction failed.
            MemoryStoreError: The store failed.
        """
        if self._extractor is None:
            return 0
        known = {fact["id"] for fact in await self._of_subject("", entry.owner_id)}
        triples = await self._extractor.extract(entry)
        stored = {
            await self.store_fact(
                *triple, INGEST_CONFIDENCE, owner_id=entry.owner_id, sources=[entry.id]
            )
            for triple in triples
        }
        return len(stored - known - {""})

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the number of facts, when the store answers."""
        return await check_health("semantic_memory", self._probe, timeout, self._clock)

    async def _probe(self) -> Mapping[str, Any]:
        if isinstance(self._facts, FactStore | DurableFactStore):
            return {"facts": await self._ask(self._facts.count, owner_id="")}
        return {"facts": len(await self._of_subject("", ""))}

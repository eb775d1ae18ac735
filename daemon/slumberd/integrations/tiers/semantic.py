"""The semantic tier: what is known, as facts with a confidence, in slumberd's store of facts."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import SemanticMemoryConfig
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    StoredFact,
    Triple,
    check_health,
    user_of,
)
from slumberd.integrations.tiers.errors import MemoryStoreError
from slumberd.integrations.tiers.events import (
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
    Publisher,
    Subscriber,
)
from slumberd.integrations.tiers.extraction import EntityExtractor
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.errors import SlumberdError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import canonical
from slumberd.storage.facts.store import EngineFactStore

TIER = "semantic"
INGEST_CONFIDENCE = 0.8
"""The confidence of facts that were extracted from entries."""

_USUAL = SemanticMemoryConfig()


class FactStoreProtocol(Protocol):
    """What the semantic tier needs of a store of facts."""

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
        """Store a triple of an owner; return its id."""
        ...

    def id_of(self, triple: Triple, owner_id: str = "") -> str:
        """Return the id that a triple of an owner has, or would have."""
        ...

    async def all_of(self, owner_id: str = "") -> list[StoredFact]:
        """Return all facts of an owner."""
        ...

    async def query_by_subject(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text."""
        ...

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity."""
        ...

    async def update_confidence(
        self, fact_id: str, confidence: float, *, owner_id: str = ""
    ) -> None:
        """Change the confidence of a fact of an owner."""
        ...

    async def delete(self, fact_id: str, *, owner_id: str = "") -> None:
        """Remove a fact of an owner."""
        ...

    async def count(self) -> int:
        """Return the number of facts of all owners."""
        ...


class SemanticMemoryStore:
    """Keeps facts of a sufficient confidence, and only so many of one subject.

    Args:
        extractor: Extracts triples from entries, for `ingest`; None extracts none.
        min_confidence: Facts of a lower confidence are neither stored nor returned, 0 to 1.
        max_facts_per_entity: The most facts of one subject of an owner, 1 or more.
        on_event: Is told of each write and each search.
        clock: The time of events.

    Raises:
        ValueError: A limit is out of bounds.
    """

    def __init__(
        self,
        fact_store: FactStoreProtocol,
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
        self._facts = fact_store
        self._extractor = extractor
        self._publisher = Publisher(on_event)
        self._clock = clock
        self._writing = asyncio.Lock()

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
        if not 0 <= confidence <= 1:
            raise ValueError(f"confidence is {confidence!r}, not 0 to 1")
        if confidence < self._config.min_confidence:
            return ""
        triple = subject, predicate, object_
        async with self._writing:
            await self._make_room(triple, owner_id)
            fact_id = await self._facts.add(*triple, confidence, owner_id=owner_id, sources=sources)
        now = self._clock.now()
        self._publisher.publish(
            MemoryStoredEvent(memory_id=fact_id, memory_type=TIER, occurred_at=now),
            MemoryWrittenHook(tier=TIER, backend="facts"),
        )
        return fact_id

    async def _make_room(self, triple: Triple, owner_id: str) -> None:
        subject = triple[0].casefold()
        facts = await self._facts.all_of(owner_id)
        same = [fact for fact in facts if fact.subject.casefold() == subject]
        if self._facts.id_of(triple, owner_id) in {fact.id for fact in same}:
            return
        surplus = len(same) + 1 - self._config.max_facts_per_entity
        lowest_first = sorted(same, key=lambda fact: fact.confidence)
        for fact in lowest_first[: max(0, surplus)]:
            await self._facts.delete(fact.id, owner_id=owner_id)

    async def query_facts(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text; case is ignored."""
        return self._confident(await self._facts.query_by_subject(subject, owner_id=owner_id))

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity, whole words, as subject or object."""
        return self._confident(await self._facts.get_entity_facts(entity, owner_id=owner_id))

    async def facts_in(self, text: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject or object a text names, surest first."""
        found = [
            fact.to_dict()
            for fact in await self._facts.all_of(owner_id)
            if mentions(text, fact.subject) or mentions(text, fact.object_)
        ]
        return sorted(self._confident(found), key=lambda fact: -fact["confidence"])

    def _confident(self, facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [fact for fact in facts if fact["confidence"] >= self._config.min_confidence]
        self._publisher.publish(MemoryRetrievedHook(tier=TIER, result_count=len(found)))
        return found

    async def update_fact(self, fact_id: str, confidence: float, *, owner_id: str = "") -> None:
        """Change the confidence of a fact of an owner.

        Raises:
            ValueError: The confidence is out of bounds.
            MemoryStoreError: The owner has no such fact, or the store failed.
        """
        await self._facts.update_confidence(fact_id, confidence, owner_id=owner_id)

    async def ingest(self, entry: MemoryEntry) -> int:
        """Store what an entry states, with the confidence 0.8; return the number of new facts.

        Raises:
            FactExtractionError: The extraction failed.
            MemoryStoreError: The store failed.
        """
        if self._extractor is None:
            return 0
        known = {fact.id for fact in await self._facts.all_of(entry.owner_id)}
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
        return {"facts": await self._facts.count()}


_SOURCE = "facts"
_WORD = re.compile(r"\w+")


class FactStore:
    """Keeps triples as declared facts, which do not compete: a subject may like two things.

    The user of a fact is its owner. Facts that rules promote for the same user and agent are found,
    too.

    Args:
        store: The store of facts; the caller closes it.
        clock: The time of writes.
    """

    def __init__(
        self, store: EngineFactStore, *, agent: str = "ai_memory", clock: Clock = CLOCK
    ) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    async def add(  # noqa: PLR0913 # specified, and whose it is
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
        """Store a triple of an owner; return its id, which depends on owner and triple alone.

        The same triple again gets the new confidence and metadata.

        Args:
            subject: What it is about.
            predicate: The relation.
            object_: What the subject is related to.
            confidence: 0 to 1.
            metadata: Free form.
            sources: The ids of the entries that it comes from.

        Raises:
            ValueError: A part of the triple is empty, or the confidence is out of bounds.
            MemoryStoreError: The store failed.
        """
        if not all(part.strip() for part in (subject, predicate, object_)):
            raise ValueError(f"a part of the triple {(subject, predicate, object_)!r} is empty")
        fact_id = self.id_of((subject, predicate, object_), owner_id)
        payload = {"subject": subject, "predicate": predicate, "object": object_}
        await self._pin(fact_id, owner_id, payload, confidence, metadata or {}, sources)
        return fact_id

    def id_of(self, triple: Triple, owner_id: str = "") -> str:
        """Return the id that a triple of an owner has, or would have."""
        document = canonical([user_of(owner_id), self._agent, *triple])
        return f"fact-{hashlib.sha256(document.encode()).hexdigest()[:24]}"

    async def all_of(self, owner_id: str = "") -> list[StoredFact]:
        """Return all facts of an owner, by id."""
        return [_stored(fact) for fact in await self._query(owner_id)]

    async def query_by_subject(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text; case is ignored."""
        start = subject.casefold()
        facts = await self.all_of(owner_id)
        return [fact.to_dict() for fact in facts if fact.subject.casefold().startswith(start)]

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity, whole words, as subject or object."""
        facts = await self.all_of(owner_id)
        return [
            fact.to_dict()
            for fact in facts
            if mentions(fact.subject, entity) or mentions(fact.object_, entity)
        ]

    async def update_confidence(
        self, fact_id: str, confidence: float, *, owner_id: str = ""
    ) -> None:
        """Change the confidence of a fact of an owner.

        Raises:
            ValueError: The confidence is out of bounds.
            MemoryStoreError: The owner has no such fact, or the store failed.
        """
        found = await self._query(owner_id, fact_id)
        if not found:
            raise MemoryStoreError(f"fact {fact_id!r} does not exist", _SOURCE)
        await self._pin(fact_id, owner_id, found[0].payload, confidence, found[0].metadata)

    async def delete(self, fact_id: str, *, owner_id: str = "") -> None:
        """Remove a fact of an owner; one that does not exist is ignored. The ledger keeps it."""
        if await self._query(owner_id, fact_id):
            await self._unpin(fact_id)

    async def clear(self, *, owner_id: str = "") -> None:
        """Remove all facts of an owner."""
        for fact in await self._query(owner_id):
            await self._unpin(fact.id)

    async def count(self) -> int:
        """Return the number of facts of all owners."""
        try:
            await self._store.bootstrap()
            return len(await self._store.query(FactPattern(agent=self._agent)))
        except SlumberdError as error:
            raise MemoryStoreError(str(error), _SOURCE) from error

    async def _query(self, owner_id: str, fact_id: str | None = None) -> list[Fact]:
        pattern = FactPattern(user=user_of(owner_id), agent=self._agent, id=fact_id)
        try:
            await self._store.bootstrap()
            return await self._store.query(pattern)
        except SlumberdError as error:
            raise MemoryStoreError(str(error), _SOURCE) from error

    async def _unpin(self, fact_id: str) -> None:
        try:
            await self._store.unpin(fact_id)
        except SlumberdError as error:
            raise MemoryStoreError(str(error), _SOURCE) from error

    async def _pin(  # the parts of a fact
        self,
        fact_id: str,
        owner_id: str,
        payload: Mapping[str, Any],
        confidence: float,
        metadata: Mapping[str, Any],
        sources: Sequence[str] = (),
    ) -> None:
        if not 0 <= confidence <= 1:
            raise ValueError(f"confidence is {confidence!r}, not 0 to 1")
        now = self._clock.now()
        before = await self._query(owner_id, fact_id)
        fact = Fact(
            id=fact_id,
            user=user_of(owner_id),
            agent=self._agent,
            payload={"timestamp": now.isoformat(), **payload},
            lineage=[self._entry(sources, now)],
            confidence=confidence,
            # Of two declarations at one instant, the store would keep the first.
            pinned_at=max([now, *(fact.pinned_at + timedelta(microseconds=1) for fact in before)]),
            metadata=dict(metadata),
        )
        try:
            await self._store.pin(fact)
        except SlumberdError as error:
            raise MemoryStoreError(str(error), _SOURCE) from error

    def _entry(self, sources: Sequence[str], at: datetime) -> dict[str, Any]:
        """Return the lineage of a fact that the program declares."""
        return {
            "rule_id": self._agent,
            "source_episode_ids": [*sources],
            "promotion_ts": at.isoformat(),
            "reason": "semantic memory",
        }


def _stored(fact: Fact) -> StoredFact:
    subject, predicate, object_ = (
        value if isinstance(value, str) else canonical(value)
        for value in map(fact.payload.get, ("subject", "predicate", "object"))
    )
    return StoredFact(fact.id, subject, predicate, object_, fact.confidence, fact.metadata)


def mentions(text: str, phrase: str) -> bool:
    """Return whether a text has the words of a phrase, whole and in order; case is ignored."""
    words, wanted = (_WORD.findall(part.casefold()) for part in (text, phrase))
    places = range(len(words) - len(wanted) + 1)
    return bool(wanted) and any(words[place : place + len(wanted)] == wanted for place in places)

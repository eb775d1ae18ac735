"""Stores of facts: one in the process, and one in slumberd's own store of facts."""

from __future__ import annotations

import copy
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from slumberd.clock import Clock
from slumberd.integrations.tiers.entries import StoredFact, Triple, is_json, user_of
from slumberd.integrations.tiers.errors import MemoryStoreError
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.errors import SlumberdError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import canonical
from slumberd.storage.facts.store import EngineFactStore

_SOURCE = "facts"
_WORD = re.compile(r"\w+")


class FactStore:
    """Keeps triples in the process, without a file.

    `DurableFactStore` keeps them in slumberd's store of facts.
    """

    def __init__(self) -> None:
        self._owned: defaultdict[str, dict[str, StoredFact]] = defaultdict(dict)

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
        """Store a triple of an owner; return its id, which depends on owner and triple alone.

        The same triple again gets the new confidence and metadata.

        Raises:
            ValueError: A part of the triple is empty, or the confidence is out of bounds.
        """
        triple = _check_triple(subject, predicate, object_)
        check_confidence(confidence)
        fact_id = _fact_id([owner_id, *triple])
        kept = copy.deepcopy(metadata or {})
        self._owned[owner_id][fact_id] = StoredFact(fact_id, *triple, confidence, kept)
        return fact_id

    def query_by_subject(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text; case is ignored."""
        return _of_subject(self._all_of(owner_id), subject)

    def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity, whole words, as subject or object."""
        return _of_entity(self._all_of(owner_id), entity)

    def update_confidence(self, fact_id: str, confidence: float, *, owner_id: str = "") -> None:
        """Change the confidence of a fact of an owner.

        Raises:
            ValueError: The confidence is out of bounds.
            MemoryStoreError: The owner has no such fact.
        """
        check_confidence(confidence)
        facts = self._owned.get(owner_id, {})
        if fact_id not in facts:
            raise MemoryStoreError(f"fact {fact_id!r} does not exist", _SOURCE)
        facts[fact_id] = replace(facts[fact_id], confidence=confidence)

    def delete(self, fact_id: str, *, owner_id: str = "") -> None:
        """Remove a fact of an owner; one that does not exist is ignored."""
        self._owned.get(owner_id, {}).pop(fact_id, None)

    def clear(self, *, owner_id: str = "") -> None:
        """Remove all facts of an owner."""
        self._owned.pop(owner_id, None)

    def count(self) -> int:
        """Return the number of facts of all owners."""
        return sum(map(len, self._owned.values()))

    def _all_of(self, owner_id: str) -> list[StoredFact]:
        return [*self._owned.get(owner_id, {}).values()]


def _check_triple(*triple: str) -> Triple:
    if not all(part.strip() for part in triple):
        raise ValueError(f"a part of the triple {triple!r} is empty")
    subject, predicate, object_ = triple
    return subject, predicate, object_


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is out of bounds.

    Raises:
        ValueError: It is not 0 to 1.
    """
    if not 0 <= confidence <= 1:  # NaN lies outside too
        raise ValueError(f"confidence is {confidence!r}, not 0 to 1")


def _fact_id(parts: Sequence[str]) -> str:
    return f"fact-{hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]}"


def _of_subject(facts: Iterable[StoredFact], subject: str) -> list[dict[str, Any]]:
    start = subject.casefold()
    return [fact.to_dict() for fact in facts if fact.subject.casefold().startswith(start)]


def _of_entity(facts: Iterable[StoredFact], entity: str) -> list[dict[str, Any]]:
    return [
        fact.to_dict()
        for fact in facts
        if mentions(fact.subject, entity) or mentions(fact.object_, entity)
    ]


def _check_json(value: object) -> None:
    """Refuse what the database would not return.

    Raises:
        MemoryStoreError: JSON cannot hold a value.
    """
    try:
        canonical(value)
    except TypeError as error:
        raise MemoryStoreError(f"the fact is not JSON: {error}", _SOURCE) from error
    if not is_json(value):
        raise MemoryStoreError("the fact has a value that JSON cannot hold", _SOURCE)


class DurableFactStore:
    """Keeps triples as declared facts, which do not compete: a subject may like two things.

    It has the methods of `FactStore`, and they are async.

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
        _check_triple(subject, predicate, object_)
        _check_json([subject, predicate, object_, owner_id, metadata or {}])
        fact_id = self.id_of((subject, predicate, object_), owner_id)
        payload = {"subject": subject, "predicate": predicate, "object": object_}
        await self._pin(fact_id, owner_id, payload, confidence, metadata or {}, sources)
        return fact_id

    def id_of(self, triple: Triple, owner_id: str = "") -> str:
        """Return the id that a triple of an owner has, or would have."""
        return _fact_id([user_of(owner_id), self._agent, *triple])

    async def all_of(self, owner_id: str = "") -> list[StoredFact]:
        """Return all facts of an owner, by id."""
        return [_stored(fact) for fact in await self._query(owner_id)]

    async def query_by_subject(self, subject: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner whose subject begins with a text; case is ignored."""
        return _of_subject(await self.all_of(owner_id), subject)

    async def get_entity_facts(self, entity: str, *, owner_id: str = "") -> list[dict[str, Any]]:
        """Return the facts of an owner that name an entity, whole words, as subject or object."""
        return _of_entity(await self.all_of(owner_id), entity)

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
        check_confidence(confidence)
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

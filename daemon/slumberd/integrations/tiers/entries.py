"""The values of the tiered memory API, and what its stores and their helpers promise."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from slumberd.clock import Clock
from slumberd.consolidation.stages.entries import USUAL_IMPORTANCE, Entry
from slumberd.model.episode import microseconds
from slumberd.model.scope import canonical

Triple = tuple[str, str, str]
"""A subject, a predicate and an object."""

_STATED = ("subject", "predicate", "object", "intent")


@dataclass(frozen=True)
class MemoryEntry:
    """One memory of one owner.

    Attributes:
        id: Unique among the entries of its owner.
        content: What is remembered.
        role: Who said it.
        timestamp: When it happened; aware.
        importance: 0 to 1.
        metadata: Free form. ``session_id`` names the session; ``subject``, ``predicate`` and
            ``object`` are what the entry states.
        embedding: Of the content; None without one.
        owner_id: Whose memory it is; entries of different owners are never compared.
        expires_at: From this instant on, stores do not return it; None lets the store decide.

    Raises:
        ValueError: An instant is naive, or the importance lies outside of 0..1.
    """

    id: str
    content: str
    role: str
    timestamp: datetime
    importance: float = USUAL_IMPORTANCE
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: list[float] | None = None
    owner_id: str = ""
    expires_at: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.timestamp.tzinfo is None:
            raise ValueError(f"timestamp of entry {self.id!r} is naive; give it an offset")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError(f"expires_at of entry {self.id!r} is naive; give it an offset")
        if not 0 <= self.importance <= 1:  # NaN lies outside too
            raise ValueError(f"importance of entry {self.id!r} is {self.importance!r}, not 0 to 1")

    @property
    def session_id(self) -> str:
        """The session in the metadata; empty without one."""
        found = self.metadata.get("session_id")
        return "" if found is None else str(found)


def copy_of(entry: MemoryEntry) -> MemoryEntry:
    """Return an entry that shares no value with another one; tuples become lists, as in JSON."""
    embedding = None if entry.embedding is None else [*entry.embedding]
    return replace(entry, metadata=_plain(entry.metadata), embedding=embedding)


def _plain(value: Any) -> Any:  # noqa: ANN401 # any value of JSON
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def entry_for_stages(entry: MemoryEntry) -> Entry:
    """Return an entry as the stages of a rule see it."""
    stated = {key: entry.metadata[key] for key in _STATED if key in entry.metadata}
    return Entry(
        id=entry.id,
        session=entry.session_id,
        content=entry.content,
        at=microseconds(entry.timestamp),
        importance=entry.importance,
        triple=canonical(stated) if stated else None,
    )


def is_json(value: Any) -> bool:  # noqa: ANN401 # any value
    """Return whether JSON can hold a value."""
    match value:
        case None | bool() | int() | str():
            return True
        case float():
            return math.isfinite(value)
        case Mapping():
            return all(isinstance(key, str) and is_json(part) for key, part in value.items())
        case list() | tuple():
            return all(map(is_json, value))
        case _:
            return False


@dataclass(frozen=True)
class MemoryQuery:
    """A search in the memories of one owner.

    Attributes:
        query: The text to search for; without one, all entries are equally relevant.
        top_k: The most results, 0 or more.
        min_relevance: The least relevance of a result to the text, 0 to 1.
        recency_weight: The weight of the recency in a score, 0 or more.
        importance_weight: The weight of the importance in a score, 0 or more.
        relevance_weight: The weight of the relevance in a score, 0 or more.
        filters: The metadata that a result has, by key; 1, 1.0 and true are different.
        time_range: The first and the last instant of a result; aware.
        owner_id: Whose memories are searched.

    Raises:
        ValueError: A value is out of bounds.
    """

    query: str
    top_k: int = 10
    min_relevance: float = 0.0
    recency_weight: float = 0.3
    importance_weight: float = 0.3
    relevance_weight: float = 0.4
    filters: Mapping[str, Any] = field(default_factory=dict)
    time_range: tuple[datetime, datetime] | None = None
    owner_id: str = ""

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, not 0 or more")
        if not 0 <= self.min_relevance <= 1:
            raise ValueError(f"min_relevance is {self.min_relevance!r}, not 0 to 1")
        for name in ("recency_weight", "importance_weight", "relevance_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not 0 or more")
        if self.time_range is not None and None in {at.tzinfo for at in self.time_range}:
            raise ValueError("time_range has a naive instant; give it an offset")


@dataclass(frozen=True)
class MemorySearchResult:
    """One entry that a search found.

    Attributes:
        score: What the results of its source are sorted by.
        source: The store that found it.
        relevance: The relevance to the text alone, 0 to 1; None when the source does not say.
    """

    entry: MemoryEntry
    score: float
    source: str
    relevance: float | None = None

    @property
    def raw_score(self) -> float:
        """The relevance to the text; the score of a source that does not say."""
        return self.score if self.relevance is None else self.relevance


@dataclass(frozen=True)
class StoredFact:
    """One fact of one owner.

    Attributes:
        id: Its id in the store of facts.
        subject: What it is about.
        predicate: The relation.
        object_: What the subject is related to.
        confidence: 0 to 1.
        metadata: Free form.
    """

    id: str
    subject: str
    predicate: str
    object_: str
    confidence: float = 1.0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as a JSON object."""
        return {**asdict(self), "metadata": dict(self.metadata)}


@dataclass(frozen=True)
class ConsolidationResult:
    """What one pass did.

    Attributes:
        entries_processed: Entries that were old enough.
        entries_consolidated: Entries that a summary replaced.
        entries_pruned: Entries that were removed: duplicates, and old or unimportant ones.
        entities_extracted: Triples that were found in the entries that are left.
        duration_ms: Milliseconds.
    """

    entries_processed: int
    entries_consolidated: int
    entries_pruned: int
    entities_extracted: int
    duration_ms: float


class HealthStatus(StrEnum):
    """How a component is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class HealthCheckResult:
    """The health of one component.

    Attributes:
        status: How it is.
        message: What it did last; None before its first work.
        error: Why its last work failed; None when it did not.
        duration_ms: How long the check took, in milliseconds.
        details: Further values.
        checked_at: When it was checked; None when that is unknown.
        category: What the check is for.
    """

    component: str
    status: HealthStatus = HealthStatus.HEALTHY
    message: str | None = None
    error: str | None = None
    duration_ms: float = 0.0
    details: Mapping[str, Any] | None = None
    checked_at: datetime | None = None
    category: str = "readiness"

    def is_healthy(self) -> bool:
        """Return whether the component works."""
        return self.status == HealthStatus.HEALTHY

    def is_degraded(self) -> bool:
        """Return whether the component works in part."""
        return self.status == HealthStatus.DEGRADED

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        checked_at = None if self.checked_at is None else self.checked_at.isoformat()
        return {**asdict(self), "status": str(self.status), "checked_at": checked_at}


@runtime_checkable
class SearchableProtocol(Protocol):
    """What can be searched: the part of a store that a retriever needs."""

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best results of one owner, best first."""
        ...


@runtime_checkable
class MemoryStoreProtocol(SearchableProtocol, Protocol):
    """A store of entries. One that knows owners is an `OwnedStoreProtocol`."""

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: The store failed, or cannot return the entry unchanged.
            MemoryCapacityError: The store is full.
        """
        ...

    async def get_recent(self, n: int) -> list[MemoryEntry]:
        """Return the latest entries, newest first; none when `n` is below 1."""
        ...

    async def delete(self, entry_id: str) -> None:
        """Delete an entry; one that does not exist is ignored."""
        ...

    async def clear(self) -> None:
        """Delete all entries."""
        ...


@runtime_checkable
class OwnedStoreProtocol(MemoryStoreProtocol, Protocol):
    """A store of the entries of many owners; no call sees entries of two owners."""

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


@runtime_checkable
class EpisodicMemoryProtocol(Protocol):
    """A tier that records entries and recalls them."""

    async def record(self, entry: MemoryEntry) -> None:
        """Store an entry."""
        ...

    async def recall(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best entries, best first."""
        ...

    async def forget(self, entry_id: str) -> None:
        """Delete an entry."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the tier."""
        ...


@runtime_checkable
class SemanticMemoryProtocol(Protocol):
    """A tier of facts; a fact is a dict, as `StoredFact.to_dict` returns."""

    async def store_fact(
        self, subject: str, predicate: str, object_: str, confidence: float = 1.0
    ) -> str:
        """Store a fact; return its id."""
        ...

    async def query_facts(self, subject: str) -> list[dict[str, Any]]:
        """Return the facts whose subject begins with a text."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the tier."""
        ...


@runtime_checkable
class WorkingMemoryProtocol(Protocol):
    """A tier that assembles the context of an answer."""

    async def assemble(
        self, query: str, token_budget: int, session_id: str | None = None
    ) -> list[MemoryEntry]:
        """Return the context of an answer."""
        ...

    async def add(self, entry: MemoryEntry) -> None:
        """Add an entry as the newest."""
        ...

    async def get_context_entries(self) -> list[MemoryEntry]:
        """Return the entries that are in the context now."""
        ...

    async def flush(self) -> None:
        """Remove all entries from the context."""
        ...

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the tiers below."""
        ...


@runtime_checkable
class MemoryConsolidatorProtocol(Protocol):
    """Consolidates entries that it is given."""

    async def consolidate(self, entries: list[MemoryEntry]) -> ConsolidationResult:
        """Consolidate entries; return what was done."""
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


_MARK = "-"
"""Begins a user that is not the text of its owner: users of slumberd's stores are never empty."""


def user_of(owner_id: str) -> str:
    """Return the user of an owner: the same text, or a marked one; different owners differ."""
    return owner_id if owner_id and not owner_id.startswith(_MARK) else _MARK + owner_id


def owner_of_user(user: str) -> str:
    """Return the owner whom `user_of` named."""
    return user.removeprefix(_MARK)


Probe = Callable[[], Awaitable[Mapping[str, Any]]]
"""Uses a component, and returns details of it."""


async def check_health(
    component: str, probe: Probe, timeout_seconds: float, clock: Clock
) -> HealthCheckResult:
    """Return whether a probe succeeds in time; it is degraded when it fails or is late."""
    began = clock.monotonic()
    details, error = None, None
    try:
        async with asyncio.timeout(timeout_seconds):
            details = await probe()
    except TimeoutError:
        error = f"no answer within {timeout_seconds:g} s"
    except Exception as failure:  # noqa: BLE001 # whatever a component raises is its state
        error = f"{type(failure).__name__}: {failure}"
    return HealthCheckResult(
        component,
        HealthStatus.HEALTHY if error is None else HealthStatus.DEGRADED,
        message=error,
        error=error,
        duration_ms=1_000 * (clock.monotonic() - began),
        details=details,
        checked_at=clock.now(),
    )

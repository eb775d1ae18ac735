"""The values of the tiered memory API: entries, results and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from slumberd.hygiene.entries import USUAL_IMPORTANCE, Entry
from slumberd.model.episode import microseconds
from slumberd.model.fact_ids import canonical

Triple = tuple[str, str, str]
"""A subject, a predicate and an object."""

_STATED = ("subject", "predicate", "object", "intent")


@dataclass(frozen=True)
class MemoryEntry:
    """One memory of one owner.

    Attributes:
        id: Unique in its store, over all owners.
        content: What is remembered.
        role: Who said it.
        timestamp: When it happened; aware.
        importance: 0 to 1.
        metadata: Free form. ``session_id`` names the session; ``subject``, ``predicate`` and
            ``object`` are what the entry states.
        embedding: Of the content; None without one.
        owner_id: Whose memory it is; entries of different owners are never compared.

    Raises:
        ValueError: The timestamp is naive, or the importance lies outside of 0..1.
    """

    id: str
    content: str
    role: str
    timestamp: datetime
    importance: float = USUAL_IMPORTANCE
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: list[float] | None = None
    owner_id: str = ""

    def __post_init__(self) -> None:
        if self.timestamp.tzinfo is None:
            raise ValueError(f"timestamp of entry {self.id!r} is naive; give it an offset")
        if not 0 <= self.importance <= 1:  # NaN lies outside too
            raise ValueError(f"importance of entry {self.id!r} is {self.importance!r}, not 0 to 1")

    @property
    def session_id(self) -> str:
        """The session in the metadata; empty without one."""
        return str(self.metadata.get("session_id", ""))


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


class ConsolidationConfig(BaseModel):
    """The configuration of consolidation; an unknown key is an error.

    Attributes:
        enabled: Whether the scheduler runs.
        interval_seconds: The time from the begin of one pass to that of the next, above 0.
        age_threshold_hours: Younger entries are left alone, and this is the half-life of the
            recency of the others; above 0.
        recency_threshold: Entries with a lower recency are pruned, 0 to 1.
        protect_importance: Entries of at least this importance do not become too old, 0 to 1.
        importance_prune_threshold: Entries of a lower importance are pruned, 0 to 1.
        similarity_threshold: Entries that are this similar are duplicates, above 0, at most 1.
        batch_size: When more entries of a session are left, they are summarised so many at a
            time; 2 or more.
        max_summary_tokens: The most tokens of a summary, 1 or more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    interval_seconds: float = Field(default=3_600, gt=0, allow_inf_nan=False)
    age_threshold_hours: float = Field(default=24, gt=0, allow_inf_nan=False)
    recency_threshold: float = Field(default=0.05, ge=0, le=1, allow_inf_nan=False)
    protect_importance: float = Field(default=0.8, ge=0, le=1, allow_inf_nan=False)
    importance_prune_threshold: float = Field(default=0.1, ge=0, le=1, allow_inf_nan=False)
    similarity_threshold: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    batch_size: int = Field(default=100, ge=2)
    max_summary_tokens: int = Field(default=200, ge=1)


@dataclass(frozen=True, kw_only=True)
class MemoryConsolidatedHook:
    """Passed on after each strategy of a pass.

    Attributes:
        strategy: ``deduplication``, ``recency_decay``, ``importance`` or ``summarisation``.
    """

    strategy: str


class HealthStatus(StrEnum):
    """How a component is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class HealthCheckResult:
    """The health of one component.

    Attributes:
        component: Its name.
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

"""Which entries a query selects, and in which order. The ranking of every store is here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter

from slumberd.model.fact_ids import canonical
from slumberd.tiers.entries import MemoryEntry, MemoryQuery, MemorySearchResult

_DAY_SECONDS = 86_400


def recency_of(entry: MemoryEntry, at: datetime) -> float:
    """Return the recency of an entry at an instant: 1 when it is new, 1/e after a day."""
    age = max(0.0, (at - entry.timestamp).total_seconds())
    return math.exp(-age / _DAY_SECONDS)


def score_of(entry: MemoryEntry, relevance: float, query: MemoryQuery, at: datetime) -> float:
    """Return the weighted sum of the recency, the importance and the relevance of an entry."""
    return (
        query.recency_weight * recency_of(entry, at)
        + query.importance_weight * entry.importance
        + query.relevance_weight * relevance
    )


def is_expired(entry: MemoryEntry, at: datetime) -> bool:
    """Return whether an entry has expired at an instant."""
    return entry.expires_at is not None and entry.expires_at <= at


def selects(query: MemoryQuery, entry: MemoryEntry) -> bool:
    """Return whether an entry has the owner, the metadata and the instant of a query."""
    if entry.owner_id != query.owner_id:
        return False
    if query.time_range is not None:
        first, last = query.time_range
        if not first <= entry.timestamp <= last:
            return False
    return all(
        key in entry.metadata and canonical(entry.metadata[key]) == canonical(value)
        for key, value in query.filters.items()
    )


def best(
    found: Iterable[tuple[MemoryEntry, float]], query: MemoryQuery, at: datetime, source: str
) -> list[MemorySearchResult]:
    """Return the best of some entries with their relevance, at most `top_k` of the query."""
    results = [
        MemorySearchResult(entry, score_of(entry, relevance, query, at), source, relevance)
        for entry, relevance in found
        if relevance >= query.min_relevance and selects(query, entry)
    ]
    return in_order(results)[: query.top_k]


def in_order(results: Iterable[MemorySearchResult]) -> list[MemorySearchResult]:
    """Return results by score, then by instant and id, the highest first."""
    key = attrgetter("score", "entry.timestamp", "entry.id")
    return sorted(results, key=key, reverse=True)


def newest_first(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """Return entries from the newest on; equal instants by id, descending."""
    return sorted(entries, key=attrgetter("timestamp", "id"), reverse=True)

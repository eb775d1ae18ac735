"""Which entries a query selects, how relevant they are, and in which order they come.

The ranking and the search of texts of every store are here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter

from slumberd.model.episode import microseconds
from slumberd.model.fact_ids import canonical
from slumberd.retrieval.scope_index import WHOLE, IndexedTurn, ScopeIndex
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


class EntryIndex:
    """Knows how relevant some entries are to a text; an entry is known by any name.

    Args:
        language: The language of the texts, one of `slumberd.retrieval.terms.LANGUAGES`; None
            stems no word.

    Raises:
        UsageError: The language is unknown.
    """

    def __init__(self, language: str | None = None) -> None:
        self._index = ScopeIndex(language=language)

    def put(self, named: Iterable[tuple[str, MemoryEntry]]) -> None:
        """Add entries by name; an entry replaces the one of its name."""
        self._index.put(
            IndexedTurn(name, entry.content, entry.session_id, microseconds(entry.timestamp))
            for name, entry in named
        )

    def drop(self, names: Iterable[str]) -> None:
        """Remove entries; unknown names are ignored."""
        self._index.drop(names)

    def relevances(self, text: str) -> dict[str, float]:
        """Return the relevance of each entry that has any, 0 to 1, by name.

        A short entry that has each word of the text once is fully relevant.
        """
        found = self._index.search(text, limit=len(self._index))
        return {match.id: min(1.0, match.score / WHOLE) for match in found}


def relevances_of(entries: Sequence[MemoryEntry], text: str) -> list[float]:
    """Return the relevance of each entry to a text, 0 to 1; without a text it is 1 for each."""
    if not text.strip():
        return [1.0] * len(entries)
    index = EntryIndex()
    index.put((str(number), entry) for number, entry in enumerate(entries))
    found = index.relevances(text)
    return [found.get(str(number), 0.0) for number in range(len(entries))]

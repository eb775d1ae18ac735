"""Search: which entries a query selects, how relevant they are, and in which order they come.

The ranking of every store is here, and the search of several stores at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from slumberd.clock import Clock
from slumberd.integrations.tiers.entries import (
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    SearchableProtocol,
)
from slumberd.integrations.tiers.errors import (
    HOST_ERRORS,
    MemoryStoreError,
    log_source_failure,
    raise_if_cancelled,
)
from slumberd.integrations.tiers.stores import owned_store
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.episode import microseconds
from slumberd.model.scope import canonical
from slumberd.search.scope_index import IndexedTurn, ScopeIndex

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
        language: The language of the texts, one of `slumberd.model.texts.LANGUAGES`; None
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

        An entry with this text has the relevance 1, a short one with each of its words once 0.9.
        The scale is that of all searches.
        """
        found = self._index.search(text, limit=len(self._index))
        return {match.id: match.score for match in found}


def relevances_of(entries: Sequence[MemoryEntry], text: str) -> list[float]:
    """Return the relevance of each entry to a text, 0 to 1; without a text it is 1 for each."""
    if not text.strip():
        return [1.0] * len(entries)
    index = EntryIndex()
    index.put((str(number), entry) for number, entry in enumerate(entries))
    found = index.relevances(text)
    return [found.get(str(number), 0.0) for number in range(len(entries))]


_TOP_ENTRIES = 10


class RelevanceRanker:
    """Ranks results by the weights of a query: relevance, recency and importance, each once.

    Args:
        clock: The time of the recency.
    """

    def __init__(self, *, clock: Clock = CLOCK) -> None:
        self._clock = clock

    def rank(
        self, results: Iterable[MemorySearchResult], query: MemoryQuery
    ) -> list[MemorySearchResult]:
        """Return the results with new scores, best first."""
        at = self._clock.now()
        return in_order(
            replace(result, score=score_of(result.entry, result.raw_score, query, at))
            for result in results
        )

    def top_k(
        self, results: Iterable[MemorySearchResult], query: MemoryQuery, k: int | None = None
    ) -> list[MemorySearchResult]:
        """Return the best `k` results; None takes the number of the query."""
        return self.rank(results, query)[: max(0, query.top_k if k is None else k)]


class MemoryRetriever:
    """Searches several stores at once; one that fails does not fail the search.

    Args:
        sources: The stores.
        ranker: Ranks the results of all stores; None takes the weights of the query.
    """

    def __init__(
        self, sources: Sequence[SearchableProtocol], ranker: RelevanceRanker | None = None
    ) -> None:
        self._sources = [_by_owner(source) for source in sources]
        self._ranker = ranker or RelevanceRanker()
        self._counts: dict[str, Counter[str]] = {}
        self._failures = 0

    def add_source(self, source: SearchableProtocol) -> None:
        """Search one more store from now on."""
        self._sources.append(_by_owner(source))

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best results of all stores, best first; each entry once.

        A store that fails is logged as ``tiers.source_failed``.

        Raises:
            MemoryStoreError: All stores failed.
        """
        answers = await asyncio.gather(*(self._ask(source, query) for source in self._sources))
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        self._failures += len(failures)
        if failures and len(failures) == len(self._sources):
            raise MemoryStoreError("every source of the search failed") from failures[0]
        best: dict[str, MemorySearchResult] = {}
        for answer in answers:
            for result in () if isinstance(answer, BaseException) else answer:
                known = best.get(result.entry.id)
                if result.entry.owner_id == query.owner_id and (
                    known is None or known.raw_score < result.raw_score
                ):
                    best[result.entry.id] = result
        found = self._ranker.top_k(best.values(), query)
        counts = self._counts.setdefault(query.owner_id, Counter())
        counts.update(result.entry.id for result in found)
        return found

    async def _ask(
        self, source: SearchableProtocol, query: MemoryQuery
    ) -> list[MemorySearchResult] | BaseException:
        try:
            return await source.retrieve(query)
        except HOST_ERRORS as error:  # the other stores still answer
            raise_if_cancelled(error)
            log_source_failure(error)
            return error

    def get_retrieval_count(self, entry_id: str, *, owner_id: str = "") -> int:
        """Return how often an entry of an owner was a result; 0 when it never was."""
        return self._counts.get(owner_id, Counter())[entry_id]

    def get_retrieval_stats(self, *, owner_id: str = "") -> dict[str, Any]:
        """Return the counts of an owner, and how often a source has failed for any owner."""
        counts = self._counts.get(owner_id, Counter())
        return {
            "total_retrievals": counts.total(),
            "unique_entries": len(counts),
            "top_entries": counts.most_common(_TOP_ENTRIES),
            "failed_sources": self._failures,
        }

    def reset_stats(self) -> None:
        """Set all counts to 0."""
        self._counts.clear()
        self._failures = 0


def _by_owner(source: SearchableProtocol) -> SearchableProtocol:
    """Return a source that finds enough of one owner, also in a store that knows no owners."""
    return owned_store(source) if isinstance(source, MemoryStoreProtocol) else source

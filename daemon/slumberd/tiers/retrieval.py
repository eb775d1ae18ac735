"""Search several stores at once, and rank what they find."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from slumberd.clock import Clock
from slumberd.tiers.entries import MemoryQuery, MemorySearchResult, SearchableProtocol
from slumberd.tiers.errors import MemoryStoreError, log_source_failure
from slumberd.tiers.scoring import in_order, score_of
from slumberd.tiers.strategies import CLOCK

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
        self._sources = [*sources]
        self._ranker = ranker or RelevanceRanker()
        self._counts: dict[str, Counter[str]] = {}
        self._failures = 0

    def add_source(self, source: SearchableProtocol) -> None:
        """Search one more store from now on."""
        self._sources.append(source)

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best results of all stores, best first; each entry once.

        A store that fails is logged as ``tiers.source_failed``.

        Raises:
            MemoryStoreError: All stores failed.
        """
        answers = await asyncio.gather(*(self._ask(source, query) for source in self._sources))
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        self._failures += len(failures)
        if failures and len(failures) == len(self._sources):
            raise MemoryStoreError("every source of the search failed") from failures[0]
        best: dict[str, MemorySearchResult] = {}
        for answer in answers:
            for result in () if isinstance(answer, Exception) else answer:
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
    ) -> list[MemorySearchResult] | Exception:
        try:
            return await source.retrieve(query)
        except Exception as error:  # noqa: BLE001 # the other stores still answer
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

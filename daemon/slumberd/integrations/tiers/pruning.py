"""Choose entries within a budget of tokens, and divide a budget into sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slumberd.integrations.tiers.configs import WorkingMemoryConfig
from slumberd.integrations.tiers.entries import MemoryEntry, RelevanceScorerProtocol
from slumberd.integrations.tiers.search import relevances_of
from slumberd.search.context import TokenCounter

_FULL_LENGTH = 1_000
"""From so many characters on, a text counts as long."""


class PruningStrategy(StrEnum):
    """Which entries are kept first."""

    RECENCY = "recency"
    RELEVANCE = "relevance"
    HYBRID = "hybrid"


class RecencyScorerImpl:
    """Scores entries by their instant."""

    def score(self, entry: MemoryEntry, query: str | None = None) -> float:
        """Return the instant of an entry, in seconds since 1970; the query does not count."""
        del query
        return entry.timestamp.timestamp()


class RelevanceScorerImpl:
    """Scores entries by their relevance to a text."""

    def score_batch(self, entries: Sequence[MemoryEntry], query: str | None = None) -> list[float]:
        """Return the relevance of each entry, 0 to 1; without a text it is 1 for each."""
        return relevances_of(entries, query or "")

    def score(self, entry: MemoryEntry, query: str | None = None) -> float:
        """Return the relevance of an entry, 0 to 1; without a text it is 1."""
        return self.score_batch([entry], query)[0]


class HybridScorerImpl:
    """Scores entries by their recency and their length: long entries count as relevant."""

    def __init__(self, recency_weight: float = 0.6, relevance_weight: float = 0.4) -> None:
        self._recency_weight = recency_weight
        self._relevance_weight = relevance_weight

    def score_batch(self, entries: Sequence[MemoryEntry], query: str | None = None) -> list[float]:
        """Return a score for each entry; the oldest one has no recency, the newest one all.

        The query does not count.
        """
        del query
        return self.blend(entries, _lengths(entries))

    def blend(self, entries: Sequence[MemoryEntry], relevances: Sequence[float]) -> list[float]:
        """Return the weighted sum of the recency and of a relevance, for each entry."""
        if not entries:
            return []
        instants = [entry.timestamp.timestamp() for entry in entries]
        first, last = min(instants), max(instants)
        span = last - first or 1.0
        return [
            self._recency_weight * (instant - first) / span + self._relevance_weight * relevance
            for instant, relevance in zip(instants, relevances, strict=True)
        ]

    def score(self, entry: MemoryEntry, query: str | None = None) -> float:
        """Return the score of one entry, without its recency, which depends on the others.

        The query does not count.
        """
        del query
        return self._relevance_weight * _lengths([entry])[0]


def _lengths(entries: Sequence[MemoryEntry]) -> list[float]:
    return [min(len(entry.content) / _FULL_LENGTH, 1.0) for entry in entries]


@dataclass(frozen=True)
class PruningResult:
    """What is left of some entries.

    Attributes:
        kept: The entries that fit, best first.
        pruned_count: How many do not.
        original_count: How many there were.
        token_budget: The most tokens.
        strategy: Which entries were kept first; a scorer if one decided.
        metadata: ``remaining_budget``, ``scorer_type``, and ``nothing_fits``: whether there were
            entries, and each alone is larger than the budget.
    """

    kept: list[MemoryEntry]
    pruned_count: int
    original_count: int
    token_budget: int
    strategy: PruningStrategy | RelevanceScorerProtocol
    metadata: Mapping[str, Any] = field(default_factory=dict)


class DynamicContextPruner:
    """Keeps the best entries that fit into a budget of tokens, which it never exceeds.

    Args:
        default_strategy: Which entries are kept first, unless a call says so; a scorer keeps those
            with the highest scores.
    """

    def __init__(
        self,
        token_counter: TokenCounter,
        default_strategy: PruningStrategy | RelevanceScorerProtocol = PruningStrategy.HYBRID,
    ) -> None:
        self._counter = token_counter
        self._default = _chosen(default_strategy)

    async def prune(
        self,
        entries: Sequence[MemoryEntry],
        token_budget: int,
        query: str | None = None,
        strategy: PruningStrategy | RelevanceScorerProtocol | str | None = None,
        **kwargs: object,
    ) -> PruningResult:
        """Keep the best entries that fit; one that does not fit is left out, and smaller ones stay.

        Args:
            token_budget: The most tokens, 0 or more.
            query: What the entries should be relevant to.
            strategy: Which entries are kept first, or a scorer; None takes the default.
            kwargs: Without an effect, for callers that pass more.

        Raises:
            ValueError: The strategy is unknown, or the budget is negative.
        """
        del kwargs
        if token_budget < 0:
            raise ValueError(f"token_budget is {token_budget}, not 0 or more")
        chosen = self._default if strategy is None else _chosen(strategy)
        scorer, scores = _scores(chosen, entries, query)
        best = sorted(range(len(entries)), key=lambda number: -scores[number])
        kept, left = fitting([entries[number] for number in best], token_budget, self._counter)
        return PruningResult(
            kept=kept,
            pruned_count=len(entries) - len(kept),
            original_count=len(entries),
            token_budget=token_budget,
            strategy=chosen,
            metadata={
                "remaining_budget": left,
                "scorer_type": scorer,
                "nothing_fits": bool(entries) and not kept,
            },
        )


def _chosen(
    strategy: PruningStrategy | RelevanceScorerProtocol | str,
) -> PruningStrategy | RelevanceScorerProtocol:
    return PruningStrategy(strategy) if isinstance(strategy, str) else strategy


def _scores(
    strategy: PruningStrategy | RelevanceScorerProtocol,
    entries: Sequence[MemoryEntry],
    query: str | None,
) -> tuple[str, list[float]]:
    """Return the name of the scorer of a strategy, and its scores."""
    match strategy:
        case PruningStrategy.RECENCY:
            recency = RecencyScorerImpl()
            return type(recency).__name__, [recency.score(entry) for entry in entries]
        case PruningStrategy.RELEVANCE:
            relevance = RelevanceScorerImpl()
            return type(relevance).__name__, relevance.score_batch(entries, query)
        case PruningStrategy.HYBRID:
            hybrid = HybridScorerImpl()
            if query and query.strip():
                return type(hybrid).__name__, hybrid.blend(entries, relevances_of(entries, query))
            return type(hybrid).__name__, hybrid.score_batch(entries)
        case scorer:
            return type(scorer).__name__, [scorer.score(entry, query) for entry in entries]


def fitting(
    entries: Sequence[MemoryEntry], token_budget: int, counter: TokenCounter
) -> tuple[list[MemoryEntry], int]:
    """Return the entries, in order, that fit together into a budget, and what is left of it."""
    kept: list[MemoryEntry] = []
    for entry in entries:
        tokens = counter.count_tokens(entry.content)
        if tokens <= token_budget:
            kept.append(entry)
            token_budget -= tokens
    return kept, token_budget


class TokenBudgetAllocator:
    """Divides a budget of tokens into sections.

    Args:
        config: The fractions; None takes the defaults.
    """

    def __init__(self, config: WorkingMemoryConfig | None = None) -> None:
        self._config = config or WorkingMemoryConfig()

    def allocate(self, total_tokens: int) -> dict[str, int]:
        """Return the tokens of each section; together they are the budget.

        ``system`` has a fixed number, ``recent``, ``episodic``, ``semantic`` and ``tools`` have
        fractions of the rest. What rounding leaves goes to the largest of these. ``reserve`` is
        what the fractions leave when their sum is below 1.

        Raises:
            ValueError: The budget is negative.
        """
        if total_tokens < 0:
            raise ValueError(f"total_tokens is {total_tokens}, not 0 or more")
        system = min(self._config.system_prompt_tokens, total_tokens)
        rest = total_tokens - system
        fractions = self._config.fractions
        sections = {name: int(rest * fraction) for name, fraction in fractions.items()}
        # Rounded, since a sum of fractions may be 0.9999999.
        divided = min(rest, int(round(rest * sum(fractions.values()), 6)))
        largest = max(sections, key=lambda name: fractions[name])
        sections[largest] += divided - sum(sections.values())
        reserve = {"reserve": rest - divided} if rest > divided else {}
        return {"system": system, **sections, **reserve}

    def budget_for(self, section: str, total_tokens: int) -> int:
        """Return the tokens of one section; 0 for an unknown one."""
        return self.allocate(total_tokens).get(section, 0)

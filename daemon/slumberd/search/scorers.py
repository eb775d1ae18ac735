"""Score the salience of episodes, with or without the meaning of their texts."""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

from slumberd.clock import Clock, SystemClock
from slumberd.model.arguments import require_object
from slumberd.model.episode import Episode
from slumberd.model.salience import SalienceContext, cosine, importance_of, salience
from slumberd.search.vectors import Embedder


@runtime_checkable
class SalienceScorer(Protocol):
    """Scores how much an episode is worth keeping, as the specification defines it."""

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1."""
        ...


class RuleBasedScorer:
    """Scores by recency, reads, matches and importance. Relevance is always 0.

    Implements `SalienceScorer`.

    Args:
        clock: Gives the time; by default the system's clock.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1; its metadata gives the importance."""
        _require_inputs(memory, context)
        return salience(context, at=self._clock.now(), importance=importance_of(memory.metadata))


class EmbeddingScorer:
    """Scores as `RuleBasedScorer`, and by relevance: how near a text is to the query.

    Implements `SalienceScorer`.

    Args:
        embedder: The embedder that made the `query_embedding` of the contexts. The relevance is 0
            when the vectors have different numbers of dimensions.
        clock: Gives the time; by default the system's clock.
    """

    def __init__(self, embedder: Embedder, *, clock: Clock | None = None) -> None:
        self._embedder = embedder
        self._clock = clock or SystemClock()

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1; relevance is 0 without a query."""
        _require_inputs(memory, context)
        relevance = 0.0
        if context.query_embedding is not None:
            [vector] = await asyncio.to_thread(self._embedder.embed, [memory.content])
            relevance = cosine(context.query_embedding, vector)
        return salience(
            context,
            at=self._clock.now(),
            relevance=relevance,
            importance=importance_of(memory.metadata),
        )


def _require_inputs(memory: object, context: object) -> None:
    require_object("memory", memory, "Episode")
    require_object("context", context, "SalienceContext")

"""Scorers of salience: the formula with a clock, and with what texts mean."""

from __future__ import annotations

import asyncio

from slumberd.clock import Clock, SystemClock
from slumberd.model.episode import Episode
from slumberd.model.salience import SalienceContext, cosine, importance_of, salience
from slumberd.retrieval.protocols import Embedder


class RuleBasedScorer:
    """Scores by recency, reads and matches, and importance; implements ``ports.SalienceScorer``.

    Relevance is 0, whatever it weighs.

    Args:
        clock: What time it is; the machine's when it is left out.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1; importance is that of its metadata."""
        return salience(context, at=self._clock.now(), importance=importance_of(memory.metadata))


class EmbeddingScorer:
    """Scores relevance, too: how near a text is to the query; implements ``ports.SalienceScorer``.

    Args:
        embedder: The one that made the contexts' `query_embedding`: of vectors with another
            number of dimensions none is near.
        clock: What time it is; the machine's when it is left out.
    """

    def __init__(self, embedder: Embedder, *, clock: Clock | None = None) -> None:
        self._embedder = embedder
        self._clock = clock or SystemClock()

    async def score(self, memory: Episode, context: SalienceContext) -> float:
        """Return an episode's salience, 0 to 1; relevance is 0 without a query."""
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

"""What a rule's gate holds back of what it is about to meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from slumberd.core.episode import EpisodeVersion
from slumberd.core.rule import ConsolidationRule
from slumberd.core.salience import NEVER, Access, Gate, cosine, importance_of
from slumberd.errors import ExtraMissingError
from slumberd.ports import Embedder, EpisodeLog

Embedding = Callable[[], Embedder]
"""Makes an embedder, when one is needed.

Raises:
    ExtraMissingError: There can be none.
"""


def no_embedder() -> Embedder:
    """Make none.

    Raises:
        ExtraMissingError: Always.
    """
    raise ExtraMissingError("vectors", "relevance cannot be measured")


class Gatekeeper:
    """Judges by what is known of reads, and by what texts mean.

    Args:
        episodes: Knows how they were read.
        embedding: Makes what relevance is measured with.
    """

    def __init__(self, episodes: EpisodeLog, embedding: Embedding) -> None:
        self._episodes = episodes
        self._embedding = embedding

    async def judged(
        self, versions: Sequence[EpisodeVersion], rule: ConsolidationRule, at: datetime
    ) -> Sequence[EpisodeVersion]:
        """Return versions, those that fall short with how.

        Args:
            versions: What the rule is about to meet.
            rule: The rule; without a gate all pass.
            at: The firing's instant.

        Raises:
            ExtraMissingError: The gate measures relevance, which takes an extra.
        """
        gate = rule.salience
        candidates = {
            place: one
            for place, one in enumerate(versions)
            if gate is not None and one.matched and not one.fault
        }
        if gate is None or not candidates:
            return versions
        accesses = await self._episodes.accesses([one.id for one in candidates.values()])
        judged = await asyncio.to_thread(self._judge, gate, candidates, accesses, at)
        return [judged.get(place, one) for place, one in enumerate(versions)]

    def _judge(
        self,
        gate: Gate,
        versions: Mapping[int, EpisodeVersion],
        accesses: Mapping[str, Access],
        at: datetime,
    ) -> dict[int, EpisodeVersion]:
        relevance = self._relevance(gate, versions)
        return {
            place: one._replace(
                gated=gate.judge(
                    one.at,
                    accesses.get(one.id, NEVER),
                    at=at,
                    relevance=relevance.get(place, 0.0),
                    importance=importance_of(one.metadata),
                )
            )
            for place, one in versions.items()
        }

    def _relevance(self, gate: Gate, versions: Mapping[int, EpisodeVersion]) -> dict[int, float]:
        if not gate.embeds:
            return {}
        texts = [one.content for one in versions.values()]
        about, *told = self._embedding().embed([gate.about, *texts])
        return {place: cosine(about, one) for place, one in zip(versions, told, strict=True)}

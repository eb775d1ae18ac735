"""Hold back the episodes whose salience is below the minimum of their rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from slumberd.consolidation.incoming import UNBOUNDED, Bounds
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import ExtraMissingError, StoppedError
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import NEVER, Access, Gate, cosine, importance_of
from slumberd.search.vectors import Embedder

Embedding = Callable[[], Embedder]
"""Makes an embedder, when one is needed.

Raises:
    ExtraMissingError: The optional dependency is not installed.
"""

RELEVANCE_FAILED = "relevance_failed"
"""The reason of a quarantine: the embedder fails on the content of an episode."""


_CHARACTERS_AT_ONCE = 65_536
"""Characters of the texts that are embedded between two checks for cancellation."""


def no_embedder() -> Embedder:
    """Raise, because there is no embedder.

    Raises:
        ExtraMissingError: Always.
    """
    raise ExtraMissingError("vectors", "relevance cannot be measured")


class SalienceGate:
    """Holds back episodes whose salience is below their rule's minimum.

    Args:
        episodes: The episode log, which knows how often episodes were read.
        embedding: Makes the embedder that measures relevance.
    """

    def __init__(self, episodes: EpisodeLog, embedding: Embedding) -> None:
        self._episodes = episodes
        self._embedding = embedding

    async def apply(
        self,
        versions: Sequence[EpisodeVersion],
        rule: ConsolidationRule,
        at: datetime,
        *,
        bounds: Bounds = UNBOUNDED,
    ) -> Sequence[EpisodeVersion]:
        """Return the versions; `gated` of those that the gate holds back is set.

        A version whose relevance cannot be measured has a fault.

        Args:
            versions: The versions that the rule is about to evaluate.
            rule: The rule; without a gate all versions pass.
            at: The firing's instant.
            bounds: What ends the measuring early. After ``enough`` only the first versions are
                returned, at least one of them.

        Raises:
            ExtraMissingError: The gate measures relevance, and the extra for it is not installed.
            StoppedError: The bounds cancelled the firing.
        """
        gate = rule.salience
        matched = {
            index: version
            for index, version in enumerate(versions)
            if gate is not None and version.matched and not version.fault
        }
        if gate is None or not matched:
            return versions
        accesses = await self._episodes.accesses([version.id for version in matched.values()])
        texts = {index: version.content for index, version in matched.items()}
        relevance = await asyncio.to_thread(self._relevance, gate, texts, bounds)
        gated = {
            index: _apply_to_version(
                version, gate, accesses.get(version.id, NEVER), at, relevance[index]
            )
            for index, version in matched.items()
            if index in relevance
        }
        # Only the versions before the first one whose relevance was not measured.
        end = min((index for index in matched if index not in relevance), default=len(versions))
        return [gated.get(index, version) for index, version in enumerate(versions[:end])]

    def _relevance(
        self, gate: Gate, texts: Mapping[int, str], bounds: Bounds
    ) -> dict[int, float | str]:
        """Return the relevance of the first texts, or why it cannot be measured, by index."""
        if not gate.embeds:
            return dict.fromkeys(texts, 0.0)
        embedder = self._embedding()
        [about] = embedder.embed([gate.about])
        found: dict[int, float | str] = {}
        for indexes in _group_by_length(texts):
            if bounds.cancelled():
                raise StoppedError("the firing was cancelled")
            if found and bounds.enough():
                break
            vectors = _vectors(embedder, [texts[index] for index in indexes])
            for index, vector in zip(indexes, vectors, strict=True):
                found[index] = vector if isinstance(vector, str) else cosine(about, vector)
        return found


def _apply_to_version(
    version: EpisodeVersion, gate: Gate, access: Access, at: datetime, relevance: float | str
) -> EpisodeVersion:
    if isinstance(relevance, str):
        return version._replace(fault=f"{RELEVANCE_FAILED}: {relevance}")
    importance = importance_of(version.metadata)
    gated = gate.judge(version.at, access, at=at, relevance=relevance, importance=importance)
    return version._replace(gated=gated)


def _vectors(embedder: Embedder, texts: Sequence[str]) -> Sequence[tuple[float, ...] | str]:
    """Return the vectors of texts; the reason for a text that makes the embedder fail."""
    try:
        return embedder.embed(texts)
    except Exception as error:  # noqa: BLE001 - of the embedder: one text must not stop the others
        if len(texts) == 1:
            return [f"the content cannot be compared: {type(error).__name__}"]
    return [vector for text in texts for vector in _vectors(embedder, [text])]


def _group_by_length(texts: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the indexes of texts in order, in groups that take a fraction of a second each."""
    group: list[int] = []
    characters = 0
    for index, text in texts.items():
        if group and characters + len(text) > _CHARACTERS_AT_ONCE:
            yield group
            group, characters = [], 0
        group.append(index)
        characters += len(text)
    if group:
        yield group

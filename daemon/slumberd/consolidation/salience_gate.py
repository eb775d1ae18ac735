"""What a rule's gate holds back of what it is about to meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from slumberd.consolidation.protocols import EpisodeLog
from slumberd.errors import ExtraMissingError, StoppedError
from slumberd.model.episode import EpisodeVersion
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import NEVER, Access, Gate, cosine, importance_of
from slumberd.retrieval.protocols import Embedder

Embedding = Callable[[], Embedder]
"""Makes an embedder, when one is needed.

Raises:
    ExtraMissingError: There can be none.
"""


Asked = Callable[[], bool]
"""Says whether something is so, in any thread."""

RELEVANCE_FAILED = "relevance_failed"
"""The reason of a quarantine: the model fails on the content of an episode."""

_TOGETHER = 65_536
"""Characters of texts that are measured between two questions whether it is late."""


def never() -> bool:
    """Return False."""
    return False


def no_embedder() -> Embedder:
    """Make none.

    Raises:
        ExtraMissingError: Always.
    """
    raise ExtraMissingError("vectors", "relevance cannot be measured")


class SalienceGate:
    """Judges by what is known of reads, and by what texts mean.

    Args:
        episodes: Knows how they were read.
        embedding: Makes what relevance is measured with.
    """

    def __init__(self, episodes: EpisodeLog, embedding: Embedding) -> None:
        self._episodes = episodes
        self._embedding = embedding

    async def judged(
        self,
        versions: Sequence[EpisodeVersion],
        rule: ConsolidationRule,
        at: datetime,
        *,
        late: Asked = never,
        enough: Asked = never,
    ) -> Sequence[EpisodeVersion]:
        """Return versions, those that fall short with how.

        A version whose relevance cannot be measured has a fault.

        Args:
            versions: What the rule is about to meet.
            rule: The rule; without a gate all pass.
            at: The firing's instant.
            late: Says, in any thread, that it must end.
            enough: Says, in any thread, that what is judged is enough: then only the first of the
                versions are returned, at least one of them.

        Raises:
            ExtraMissingError: The gate measures relevance, which takes an extra.
            StoppedError: It was `late`.
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
        texts = {place: one.content for place, one in candidates.items()}
        relevance = await asyncio.to_thread(self._relevance, gate, texts, late, enough)
        judged = {
            place: _judged(one, gate, accesses.get(one.id, NEVER), at, relevance[place])
            for place, one in candidates.items()
            if place in relevance
        }
        # Those before the first that was not judged.
        end = min((place for place in candidates if place not in relevance), default=len(versions))
        return [judged.get(place, one) for place, one in enumerate(versions[:end])]

    def _relevance(
        self, gate: Gate, texts: Mapping[int, str], late: Asked, enough: Asked
    ) -> dict[int, float | str]:
        """Return the relevance of the first of some texts, or why it cannot be measured."""
        if not gate.embeds:
            return dict.fromkeys(texts, 0.0)
        embedder = self._embedding()
        [about] = embedder.embed([gate.about])
        found: dict[int, float | str] = {}
        for places in _groups(texts):
            if late():
                raise StoppedError("it was too late to go on")
            if found and enough():
                break
            told = _vectors(embedder, [texts[place] for place in places])
            for place, one in zip(places, told, strict=True):
                found[place] = one if isinstance(one, str) else cosine(about, one)
        return found


def _judged(
    version: EpisodeVersion, gate: Gate, access: Access, at: datetime, relevance: float | str
) -> EpisodeVersion:
    if isinstance(relevance, str):
        return version._replace(fault=f"{RELEVANCE_FAILED}: {relevance}")
    importance = importance_of(version.metadata)
    gated = gate.judge(version.at, access, at=at, relevance=relevance, importance=importance)
    return version._replace(gated=gated)


def _vectors(embedder: Embedder, texts: Sequence[str]) -> Sequence[tuple[float, ...] | str]:
    """Return the vectors of texts; of one that the model fails on, why."""
    try:
        return embedder.embed(texts)
    except Exception as error:  # noqa: BLE001 - of the model: one text must not stop the others
        if len(texts) == 1:
            return [f"the content cannot be compared: {type(error).__name__}"]
    return [one for text in texts for one in _vectors(embedder, [text])]


def _groups(texts: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the places of texts in order, in groups that are measured within a part of a second."""
    group: list[int] = []
    characters = 0
    for place, text in texts.items():
        if group and characters + len(text) > _TOGETHER:
            yield group
            group, characters = [], 0
        group.append(place)
        characters += len(text)
    if group:
        yield group

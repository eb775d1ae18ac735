"""Make the batch of a window: read its versions, apply the salience gate, and evaluate them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from slumberd.consolidation.incoming import (
    UNBOUNDED,
    Bounds,
    Candidate,
    DeltaBatch,
    evaluate,
    set_aside_future,
)
from slumberd.consolidation.marks import evaluate_marks
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS, PERSON, EpisodeVersion, latest_at
from slumberd.model.errors import ExtraMissingError, StoppedError
from slumberd.model.extraction import ModelSummariser, RecordedSummary
from slumberd.model.firing import Firing, Position, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import NEVER, Access, Gate, cosine, importance_of
from slumberd.model.stages import KnownMarks
from slumberd.search.vectors import Embedder, Rows

EVALUATED_AT_ONCE = 500
"""Versions that are evaluated between two checks for cancellation."""

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


class WindowReader:
    """Turns windows of an episode log into batches of requested deltas.

    Args:
        embedding: Makes the embedder, when a salience gate or a stage first needs it.
        at_once: Versions that it evaluates between two checks for cancellation.
        person: The speakers whose words are those of the user.
        future_tolerance_seconds: A version whose instant lies further ahead of the firing's instant
            is still to come.
    """

    def __init__(
        self,
        log: EpisodeLog,
        embedding: Embedding = no_embedder,
        at_once: int = EVALUATED_AT_ONCE,
        person: Collection[str] = PERSON,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._person = person
        self._log = log
        self._future_tolerance_seconds = future_tolerance_seconds
        self._gate = SalienceGate(log, embedding)
        self._embedding = embedding
        self._at_once = at_once

    async def consolidate(
        self,
        rule: ConsolidationRule,
        window: Window,
        *,
        at: datetime,
        bounds: Bounds = UNBOUNDED,
    ) -> DeltaBatch:
        """Return what a rule requests for a window.

        Unless it is a dry run, all that was read survives a power cut afterwards, and the
        episodes that the gate holds back are logged again once they are read.

        Args:
            at: The firing's instant.
            bounds: What ends the reading early.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
            LogRestoredError: The window begins after a row that is not in the log any more.
            StoppedError: The bounds cancelled the reading.
        """
        if window.marks is not None:
            return await self._mark(rule, window, window.marks, at)
        read = await self._log.window(rule, window)
        wanted = self._wanted(read.versions, window, at)
        versions = await self._gate.apply(wanted, rule, at, bounds=bounds)
        if len(versions) < len(wanted):
            # Each log row has at most one version. The embedder has cached their vectors.
            read = await self._log.window(rule, window._replace(limit=len(versions)))
            versions = await self._gate.apply(
                self._wanted(read.versions, window, at), rule, at, bounds=Bounds(bounds.cancelled)
            )
        candidates: dict[str, list[Candidate]] = {name: [] for name in rule.channels}
        if versions:
            candidates = await asyncio.to_thread(self._evaluate, versions, rule, bounds)
        firing = _firing_of(rule, window.after, read.upto, at)
        waits = read.recorded_upto is not None
        batch = DeltaBatch(firing, candidates, versions, newest=read.newest, unrecorded=waits)
        # A window without versions is synced, too: the watermark moves over its rows.
        if not window.dry_run and (versions or not batch.is_empty):
            await self._secure(batch)
        return batch

    async def _mark(
        self, rule: ConsolidationRule, window: Window, known: KnownMarks, at: datetime
    ) -> DeltaBatch:
        """Return the batch of what a rule's stages change about marks."""
        read = await self._log.window(rule, window)
        recorded: Mapping[str, RecordedSummary] = {}
        if isinstance(rule.summariser, ModelSummariser):
            ids = [version.id for version in read.versions]
            recorded = await self._log.recorded_summaries(ids)
        marks = await asyncio.to_thread(
            evaluate_marks,
            self._wanted(read.versions, window, at),
            rule,
            known,
            at,
            embed=self._embed,
            recorded=recorded,
            person=self._person,
        )
        firing = _firing_of(rule, window.after, read.upto, at)
        candidates = {name: marks.candidates.get(name, []) for name in rule.channels}
        # The watermark has passed these episodes, so they are synced to disk.
        return DeltaBatch(
            replace(firing, marks=True, min_similarity=None),
            candidates,
            unsummarised=marks.unsummarised,
            summary_questions=marks.questions,
        )

    def _wanted(
        self, versions: Sequence[EpisodeVersion], window: Window, at: datetime
    ) -> Sequence[EpisodeVersion]:
        """Return the versions of a window; those that are still to come are set aside."""
        latest = None
        if window.future == "quarantine":
            latest = latest_at(at, self._future_tolerance_seconds)
        return set_aside_future(_between(versions, window), latest)

    def _embed(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts; only here a stage makes the embedder."""
        return self._embedding().rows(texts)

    def _evaluate(
        self, versions: Sequence[EpisodeVersion], rule: ConsolidationRule, bounds: Bounds
    ) -> dict[str, list[Candidate]]:
        found: dict[str, list[Candidate]] = {name: [] for name in rule.channels}
        for first in range(0, len(versions), self._at_once):
            if bounds.cancelled():
                raise StoppedError("the firing was cancelled")
            for name, candidates in evaluate(versions[first : first + self._at_once], rule).items():
                found[name] += candidates
        return found

    async def _secure(self, batch: DeltaBatch) -> None:
        # Before the store of facts records what the gate holds back. In the other order, a crash
        # in between would leave episodes that no rule evaluates again, even after a read.
        if seen := batch.reads_of_held_back:
            await self._log.log_again_after_read(seen)
        # The episodes must survive a power cut before their facts do. Otherwise the log would give
        # their numbers to new episodes, which the watermark has passed already.
        await self._log.fsync()


def _between(versions: Sequence[EpisodeVersion], window: Window) -> Sequence[EpisodeVersion]:
    if window.between is None:
        return versions
    first, end = window.between
    return [version for version in versions if first <= version.at < end]


def _firing_of(rule: ConsolidationRule, after: Position, upto: Position, at: datetime) -> Firing:
    return Firing(
        rule.id,
        rule.content_hash,
        "manual",
        at,
        after,
        upto,
        limits=rule.limits,
        min_similarity=None if rule.similarity is None else rule.similarity.min,
    )

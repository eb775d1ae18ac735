"""Consolidate a window: read its versions, apply the salience gate, and evaluate them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from slumberd.consolidation.delta_batch import UNBOUNDED, Bounds, DeltaBatch
from slumberd.consolidation.incoming import Candidate, evaluate, set_aside_future
from slumberd.consolidation.marks import evaluate_marks
from slumberd.consolidation.protocols import EpisodeReads
from slumberd.consolidation.salience_gate import Embedding, SalienceGate, no_embedder
from slumberd.errors import StoppedError
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS, EpisodeVersion, latest_at
from slumberd.model.extraction import ModelSummariser, RecordedSummary
from slumberd.model.firing import Firing, Position, ReadWindow, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.speaker import PERSON
from slumberd.model.stages import KnownMarks
from slumberd.retrieval.vectors import Rows

EVALUATED_AT_ONCE = 500
"""Versions that are evaluated between two checks for cancellation."""

NEWEST = 2**63 - 1
"""In place of the number of a log row: the end of the log."""


class WindowReader:
    """Turns windows of an episode log into batches of requested deltas.

    Args:
        log: The episode log.
        embedding: Makes the embedder, when a salience gate or a stage first needs it.
        at_once: Versions that it evaluates between two checks for cancellation.
        person: The speakers whose words are those of the user.
        future_tolerance_seconds: A version whose instant lies further ahead of the firing's instant
            is still to come.
    """

    def __init__(
        self,
        log: EpisodeReads,
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
            rule: The rule.
            window: The window.
            at: The firing's instant.
            bounds: What ends the reading early.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
            LogRestoredError: The window begins after a row that is not in the log any more.
            StoppedError: The bounds cancelled the reading.
        """
        if window.marks is not None:
            return await self._mark(rule, window, window.marks, at)
        read = await self._read(rule, window)
        wanted = self._wanted(read.versions, window, at)
        versions = await self._gate.apply(wanted, rule, at, bounds=bounds)
        if len(versions) < len(wanted):
            # Each log row has at most one version. The embedder has cached their vectors.
            read = await self._read(rule, window._replace(limit=len(versions)))
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
        read = await self._read(rule, window)
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

    async def _read(self, rule: ConsolidationRule, window: Window) -> ReadWindow:
        if window.episodes is None:
            return await self._read_log(rule, window)
        upto = NEWEST if window.upto is None else window.upto
        versions = await self._log.reread(rule, window.episodes, upto=upto)
        if window.marks is None:
            versions = _recorded(versions)
        return ReadWindow(window.after, window.after, versions)

    async def _read_log(self, rule: ConsolidationRule, window: Window) -> ReadWindow:
        """Read a window up to the first episode that waits for a language model, or without it."""
        cut: int | None = None
        while True:
            upto = window.upto if cut is None else cut
            read = await self._log.select(rule, after=window.after, limit=window.limit, upto=upto)
            if read.recorded_upto is None:
                return replace(read, recorded_upto=cut)
            if window.unrecorded == "skip":
                return replace(read, versions=_recorded(read.versions))
            # Read again: only the log knows the position of its last row before that episode.
            cut = read.recorded_upto

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


def _recorded(versions: Sequence[EpisodeVersion]) -> list[EpisodeVersion]:
    """Return the versions that do not wait for the answer of a language model."""
    return [version for version in versions if not version.unrecorded]


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

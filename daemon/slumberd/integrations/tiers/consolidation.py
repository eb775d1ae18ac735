"""Decide what a consolidation of entries changes. Writes nothing: see `scheduling`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import ConsolidationConfig
from slumberd.integrations.tiers.entries import (
    ConsolidationResult,
    HealthCheckResult,
    HealthStatus,
    MemoryEntry,
    Triple,
)
from slumberd.integrations.tiers.events import MemoryConsolidatedHook, Publisher, Subscriber
from slumberd.integrations.tiers.extraction import EntityExtractor, EpisodicCompressor, SummariseFn
from slumberd.integrations.tiers.stores import (
    refuse_repeated_ids,
)
from slumberd.integrations.tiers.strategies import (
    CLOCK,
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    DuplicateGroup,
    Parts,
    RecencyDecayStrategy,
)


@dataclass(frozen=True)
class ConsolidationPlan:
    """What a pass changes.

    Attributes:
        processed: How many entries the pass looked at.
        pruned: Entries to delete.
        summaries: Entries to store, each with the entries that it replaces.
        updated: Entries with the importance of a duplicate, which replace those of their ids.
        triples: Triples of the entries that are left, by entry.
        duplicates: Those of the pruned entries that say the same as a kept one, with their group.
    """

    processed: int
    pruned: list[MemoryEntry] = field(default_factory=list)
    summaries: list[tuple[MemoryEntry, list[MemoryEntry]]] = field(default_factory=list)
    updated: list[MemoryEntry] = field(default_factory=list)
    triples: dict[str, list[Triple]] = field(default_factory=dict)
    duplicates: list[tuple[DuplicateGroup, list[MemoryEntry]]] = field(default_factory=list)

    def result(self, seconds: float = 0) -> ConsolidationResult:
        """Return the counts of the plan."""
        return ConsolidationResult(
            entries_processed=self.processed,
            entries_consolidated=sum(len(replaced) for _, replaced in self.summaries),
            entries_pruned=len(self.pruned),
            entities_extracted=sum(map(len, self.triples.values())),
            duration_ms=1_000 * seconds,
        )


class MemoryConsolidator:
    """Decides what a pass changes: duplicates, decay, importance, summaries, triples.

    Args:
        config: The configuration; None takes the defaults.
        summarise_fn: Returns one entry for several; None summarises none.
        extractor: Extracts triples from the entries that are left; None extracts none.
        on_strategy: Called with an event of each strategy that ran, after the pass.
        clock: Gives the ages of entries.
    """

    def __init__(
        self,
        config: ConsolidationConfig | None = None,
        summarise_fn: SummariseFn | None = None,
        *,
        extractor: EntityExtractor | None = None,
        on_strategy: Subscriber | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.config = config or ConsolidationConfig()
        self._compressor = None if summarise_fn is None else EpisodicCompressor(summarise_fn)
        self._extractor = extractor
        self._on_strategy = on_strategy
        self._clock = clock
        self._last: str | None = None
        self._error: str | None = None

    async def consolidate(self, entries: list[MemoryEntry]) -> ConsolidationResult:
        """Return what a pass over entries would change; the entries stay as they are.

        Raises:
            ConsolidationError: Two entries have the same id, or a summary failed.
            FactExtractionError: An extraction failed.
        """
        began = self._clock.monotonic()
        plan = await self.plan(entries)
        self.tell()
        return plan.result(self._clock.monotonic() - began)

    def tell(self) -> None:
        """Publish an event for each strategy of a pass that has happened."""
        summarisation = () if self._compressor is None else ("summarisation",)
        publisher = Publisher(self._on_strategy)
        for strategy in ("deduplication", "recency_decay", "importance", *summarisation):
            publisher.publish(MemoryConsolidatedHook(strategy=strategy))

    def due(self, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
        """Return the entries that are old enough and no summaries, in the order of the passes.

        Raises:
            ConsolidationError: Two entries have the same id.
        """
        refuse_repeated_ids(entries)
        latest = self._clock.now() - timedelta(hours=self.config.age_threshold_hours)
        found = (
            entry
            for entry in entries
            if entry.timestamp <= latest and entry.metadata.get("type") != "summary"
        )
        return sorted(found, key=place_of)

    def groups(self, due: Sequence[MemoryEntry]) -> list[DuplicateGroup]:
        """Return the due entries that have duplicates, with them; the newest one is kept."""
        strategy = DeduplicationStrategy(self.config.similarity_threshold)
        return strategy.groups(_newest_first(due))

    async def plan(self, entries: Sequence[MemoryEntry]) -> ConsolidationPlan:
        """Return what a pass changes: it looks at the first `batch_size` due entries.

        Entries that are younger than the age threshold are left alone. So are summaries. Of equal
        entries the newest is kept, also when the pass does not look at it.

        Raises:
            ConsolidationError: Two entries have the same id, or a summary failed.
            FactExtractionError: An extraction failed.
        """
        with self._noted_failure():
            due = self.due(entries)
            groups = self.groups(due)
        return await self.plan_batch(due[: self.config.batch_size], groups)

    async def plan_batch(
        self, batch: Sequence[MemoryEntry], groups: Sequence[DuplicateGroup]
    ) -> ConsolidationPlan:
        """Return what a pass changes that looks at a batch of due entries.

        Args:
            batch: The entries.
            groups: The duplicates among all due entries.

        Raises:
            ConsolidationError: A summary failed.
            FactExtractionError: An extraction failed.
        """
        with self._noted_failure():
            plan = await self._plan(batch, groups)
        self._last, self._error = f"{plan.processed} entries", None
        return plan

    @contextmanager
    def _noted_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            raise

    async def _plan(
        self, batch: Sequence[MemoryEntry], groups: Sequence[DuplicateGroup]
    ) -> ConsolidationPlan:
        looked_at = {entry.id for entry in batch}
        found = ((group, [one for one in group.others if one.id in looked_at]) for group in groups)
        duplicates = [(group, going) for group, going in found if going]
        gone = {entry.id: entry for _, going in duplicates for entry in going}
        raised = {group.kept.id: group.raised for group, _ in duplicates}
        kept, pruned = self._prune([
            raised.get(entry.id, entry) for entry in _newest_first(batch) if entry.id not in gone
        ])  # fmt: skip
        summaries = [summary async for summary in self._summaries(kept)]
        triples = {}
        if self._extractor is not None:
            triples = {entry.id: await self._extractor.extract(entry) for entry in kept}
        return ConsolidationPlan(
            len(batch),
            [*gone.values(), *pruned],
            summaries,
            [group.raised for group, _ in duplicates if group.raised is not group.kept],
            triples,
            duplicates,
        )

    def _prune(self, entries: Sequence[MemoryEntry]) -> Parts:
        """Return the entries that are kept, and those that are too old or unimportant."""
        config = self.config
        decay = RecencyDecayStrategy(
            config.age_threshold_hours,
            config.recency_threshold,
            protect_importance=config.protect_importance,
            clock=self._clock,
        )
        kept, old = decay.filter(entries)
        floor = AccessFrequencyStrategy(config.importance_prune_threshold)
        kept, unimportant = floor.filter(kept)
        return kept, [*old, *unimportant]

    async def _summaries(
        self, kept: Sequence[MemoryEntry]
    ) -> AsyncIterator[tuple[MemoryEntry, list[MemoryEntry]]]:
        if self._compressor is None:
            return
        size = max(2, min(self.config.summary_size, self.config.batch_size))
        tokens = self.config.max_summary_tokens
        sessions: dict[tuple[str, str], list[MemoryEntry]] = defaultdict(list)
        for entry in reversed(kept):
            sessions[entry.owner_id, entry.session_id].append(entry)
        for entries in sessions.values():
            for first in range(0, len(entries) - size + 1, size):
                some = entries[first : first + size]
                yield await self._compressor.compress(some, max_tokens=tokens), some

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return whether the last pass succeeded; at once, so the timeout has no effect."""
        del timeout
        status = HealthStatus.HEALTHY if self._error is None else HealthStatus.DEGRADED
        return HealthCheckResult(
            "memory_consolidator",
            status,
            self._last,
            self._error,
            checked_at=self._clock.now(),
        )


def _newest_first(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    return sorted(entries, key=lambda one: (one.timestamp, one.id), reverse=True)


Place = tuple[str, datetime, str]
"""Where the passes come to an entry: its session, its instant and its id."""


def place_of(entry: MemoryEntry) -> Place:
    """Return the place of an entry; those of one session are together, for its summaries."""
    return entry.session_id, entry.timestamp, entry.id

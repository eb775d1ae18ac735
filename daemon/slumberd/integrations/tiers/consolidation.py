"""Consolidate the entries of a memory, once or at intervals."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from slumberd.clock import Clock, set_within
from slumberd.integrations.tiers.configs import ConsolidationConfig
from slumberd.integrations.tiers.entries import (
    ConsolidationResult,
    HealthCheckResult,
    HealthStatus,
    MemoryEntry,
    Triple,
)
from slumberd.integrations.tiers.errors import (
    MemorySystemError,
    log_consolidation_failure,
)
from slumberd.integrations.tiers.events import MemoryConsolidatedHook
from slumberd.integrations.tiers.extraction import EntityExtractor, EpisodicCompressor, SummariseFn
from slumberd.integrations.tiers.stores import (
    ConsolidatedStore,
    delete_entries,
    owned_store,
    refuse_repeated_ids,
    replace_entries,
)
from slumberd.integrations.tiers.strategies import (
    CLOCK,
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    Parts,
    RecencyDecayStrategy,
)

StoreTriple = Callable[[Triple, MemoryEntry], Awaitable[object]]
"""Stores a triple of an entry."""

Wait = Callable[[asyncio.Event, float], Awaitable[bool]]
"""Waits for an event for so many seconds; returns whether it is set."""

Hook = Callable[[MemoryConsolidatedHook], None]
"""Is told of each strategy that ran."""


@dataclass(frozen=True)
class ConsolidationPlan:
    """What a pass changes.

    Attributes:
        processed: How many entries were old enough.
        pruned: Entries to delete.
        updated: Entries with the importance of a duplicate, which replace those of their ids.
        summaries: Entries to store, each with the entries that it replaces.
        triples: Triples of the entries that are left, by entry.
    """

    processed: int
    pruned: list[MemoryEntry] = field(default_factory=list)
    summaries: list[tuple[MemoryEntry, list[MemoryEntry]]] = field(default_factory=list)
    updated: list[MemoryEntry] = field(default_factory=list)
    triples: dict[str, list[Triple]] = field(default_factory=dict)

    def result(self, seconds: float) -> ConsolidationResult:
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
        summarise_fn: Returns one entry for several; None takes sentences of the entries.
        extractor: Extracts triples from the entries that are left; None extracts none.
        on_strategy: Is told of each strategy that ran.
        clock: Is read once a pass for the ages of entries.
    """

    def __init__(
        self,
        config: ConsolidationConfig | None = None,
        summarise_fn: SummariseFn | None = None,
        *,
        extractor: EntityExtractor | None = None,
        on_strategy: Hook | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.config = config or ConsolidationConfig()
        self._compressor = EpisodicCompressor(summarise_fn)
        self._extractor = extractor
        self._on_strategy = on_strategy
        self._clock = clock
        self._last: str | None = None
        self._error: str | None = None

    async def consolidate(self, entries: Sequence[MemoryEntry]) -> ConsolidationResult:
        """Return what a pass over entries would change; the entries stay as they are.

        Raises:
            ConsolidationError: Two entries have the same id, or a summary failed.
            FactExtractionError: An extraction failed.
        """
        began = self._clock.monotonic()
        plan = await self.plan(entries)
        return plan.result(self._clock.monotonic() - began)

    async def plan(self, entries: Sequence[MemoryEntry]) -> ConsolidationPlan:
        """Return what a pass over entries changes.

        Entries that are younger than the age threshold are left alone. So are summaries. Of equal
        entries the newest is kept.

        Raises:
            ConsolidationError: Two entries have the same id, or a summary failed.
            FactExtractionError: An extraction failed.
        """
        try:
            plan = await self._plan(entries)
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            raise
        self._last, self._error = f"{plan.processed} entries", None
        return plan

    async def _plan(self, entries: Sequence[MemoryEntry]) -> ConsolidationPlan:
        due, now = self._due(entries)
        kept, pruned = self._prune(due, now)
        summaries = [summary async for summary in self._summaries(kept)]
        self._tell("summarisation")
        triples = {}
        if self._extractor is not None:
            triples = {entry.id: await self._extractor.extract(entry) for entry in kept}
        before = {entry.id: entry for entry in due}
        replaced = {entry.id for _, some in summaries for entry in some}
        updated = [one for one in kept if one is not before[one.id] and one.id not in replaced]
        return ConsolidationPlan(len(due), pruned, summaries, updated, triples)

    def _due(self, entries: Sequence[MemoryEntry]) -> tuple[list[MemoryEntry], datetime]:
        """Return the entries that are old enough, newest first, and the instant of the pass.

        Raises:
            ConsolidationError: Two entries have the same id.
        """
        refuse_repeated_ids(entries)
        now = self._clock.now()
        latest = now - timedelta(hours=self.config.age_threshold_hours)
        newest_first = sorted(entries, key=lambda one: (one.timestamp, one.id), reverse=True)
        return [
            entry
            for entry in newest_first
            if entry.timestamp <= latest and entry.metadata.get("type") != "summary"
        ], now

    def _prune(self, due: Sequence[MemoryEntry], now: datetime) -> Parts:
        """Return the entries that are kept, and those that are pruned."""
        config = self.config
        kept, duplicates = DeduplicationStrategy(config.similarity_threshold).deduplicate(due)
        self._tell("deduplication")
        decay = RecencyDecayStrategy(
            config.age_threshold_hours,
            config.recency_threshold,
            protect_importance=config.protect_importance,
        )
        kept, old = decay.filter(kept, now)
        self._tell("recency_decay")
        floor = AccessFrequencyStrategy(config.importance_prune_threshold)
        kept, unimportant = floor.filter(kept)
        self._tell("importance")
        return kept, [*duplicates, *old, *unimportant]

    async def _summaries(
        self, kept: Sequence[MemoryEntry]
    ) -> AsyncIterator[tuple[MemoryEntry, list[MemoryEntry]]]:
        size = self.config.batch_size
        sessions: dict[tuple[str, str], list[MemoryEntry]] = defaultdict(list)
        for entry in reversed(kept):
            sessions[entry.owner_id, entry.session_id].append(entry)
        for entries in sessions.values():
            if len(entries) <= size:
                continue
            for first in range(0, len(entries) - size + 1, size):
                some = entries[first : first + size]
                tokens = self.config.max_summary_tokens
                yield await self._compressor.compress(some, max_tokens=tokens), some

    def _tell(self, strategy: str) -> None:
        if self._on_strategy is not None:
            self._on_strategy(MemoryConsolidatedHook(strategy=strategy))

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


class ConsolidationScheduler:
    """Consolidates the entries of a store at intervals, and writes the result back.

    Args:
        consolidator: Decides what a pass changes.
        config: The configuration; None takes that of the consolidator.
        store_triple: Stores each triple that was extracted; None drops them.
        clock: Measures the intervals.
        wait: Waits between passes.
    """

    def __init__(  # one for each part
        self,
        store: ConsolidatedStore,
        consolidator: MemoryConsolidator,
        config: ConsolidationConfig | None = None,
        *,
        store_triple: StoreTriple | None = None,
        clock: Clock = CLOCK,
        wait: Wait = set_within,
    ) -> None:
        self._store = owned_store(store)
        self._consolidator = consolidator
        self._config = config or consolidator.config
        self._store_triple = store_triple
        self._clock = clock
        self._wait = wait
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the scheduler runs."""
        return self._task is not None

    async def start(self) -> None:
        """Begin with a pass now; nothing when it is disabled, or runs already."""
        if self._config.enabled and not self.running:
            self._stopping.clear()
            # No group can hold the task: `start` begins it, and `stop` waits for it.
            self._task = asyncio.create_task(self._run())  # noqa: TID251 # see above

    async def stop(self) -> None:
        """End the loop; a pass that is under way ends first."""
        self._stopping.set()
        task, self._task = self._task, None
        if task is not None:
            await task

    async def run_once(self) -> ConsolidationResult:
        """Consolidate all entries of the store that are old enough; count what was written.

        An owner whose entries cannot be consolidated is logged, and the others go on. An entry that
        is written while a pass runs stays. What a summary replaces is deleted with the write of the
        summary, in one transaction.

        Raises:
            ConsolidationError: Two entries have the same id, of whichever owners.
        """
        began = self._clock.monotonic()
        written = [
            await self._consolidate_owner(owner_id, entries)
            async for owner_id, entries in self._entries_by_owner()
        ]
        together = ConsolidationPlan(
            sum(plan.processed for plan in written),
            [entry for plan in written for entry in plan.pruned],
            [summary for plan in written for summary in plan.summaries],
            triples={
                f"{number} {name}": found
                for number, plan in enumerate(written)
                for name, found in plan.triples.items()
            },
        )
        return together.result(self._clock.monotonic() - began)

    async def _entries_by_owner(self) -> AsyncIterator[tuple[str, Sequence[MemoryEntry]]]:
        """Yield each owner with its entries."""
        for owner in await self._store.owners():
            try:
                entries = await self._store.get_recent(sys.maxsize, owner_id=owner)
            except MemorySystemError as error:  # the other owners can still be read
                log_consolidation_failure(error)
            else:
                yield owner, entries

    async def _consolidate_owner(
        self, owner_id: str, entries: Sequence[MemoryEntry]
    ) -> ConsolidationPlan:
        """Write what a pass changes about one owner; return what was written."""
        written = ConsolidationPlan(0)
        try:
            plan = await self._consolidator.plan(entries)
            written = ConsolidationPlan(plan.processed)
            await self._write(plan, written, owner_id, {entry.id: entry for entry in entries})
            await self._store_triples(plan, written, {entry.id: entry for entry in entries})
        except Exception as error:  # noqa: BLE001 # one owner must not stop the others
            log_consolidation_failure(error)
        return written

    async def _write(
        self,
        plan: ConsolidationPlan,
        written: ConsolidationPlan,
        owner_id: str,
        entries: Mapping[str, MemoryEntry],
    ) -> None:
        """Write a plan; what has changed since it was made stays, and the next pass sees it."""
        replace = partial(replace_entries, self._store, owner_id=owner_id)
        # What replaces other entries comes first: a crash in between loses nothing.
        for entry in plan.updated:
            await replace([entries[entry.id]], [entry])
        for summary, replaced in plan.summaries:
            if await replace(replaced, [summary]):
                written.summaries.append((summary, replaced))
        await delete_entries(self._store, plan.pruned, written.pruned, owner_id=owner_id)

    async def _store_triples(
        self, plan: ConsolidationPlan, written: ConsolidationPlan, entries: dict[str, MemoryEntry]
    ) -> None:
        if self._store_triple is None:
            return
        for entry_id, triples in plan.triples.items():
            for triple in triples:
                await self._store_triple(triple, entries[entry_id])
                written.triples.setdefault(entry_id, []).append(triple)

    async def _run(self) -> None:
        begin = self._clock.monotonic()
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 # the next pass tries again
                log_consolidation_failure(error)
            # Not from the end of the pass: passes do not drift.
            begin = max(begin + self._config.interval_seconds, self._clock.monotonic())
            await self._wait(self._stopping, begin - self._clock.monotonic())

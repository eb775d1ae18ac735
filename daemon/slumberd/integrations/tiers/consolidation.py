"""Consolidate the entries of a memory, once or at intervals."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from slumberd.clock import Clock, set_within
from slumberd.integrations.tiers.configs import ConsolidationConfig
from slumberd.integrations.tiers.entries import (
    ConsolidationResult,
    HealthCheckResult,
    HealthStatus,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    Triple,
)
from slumberd.integrations.tiers.errors import (
    ConsolidationError,
    MemorySystemError,
    log_consolidation_failure,
)
from slumberd.integrations.tiers.events import MemoryConsolidatedHook, Publisher, Subscriber
from slumberd.integrations.tiers.extraction import EntityExtractor, EpisodicCompressor, SummariseFn
from slumberd.integrations.tiers.stores import (
    ConsolidatedStore,
    OwnerEntries,
    owned_store,
    refuse_repeated_ids,
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


@dataclass(frozen=True)
class ConsolidationPlan:
    """What a pass changes.

    Attributes:
        processed: How many entries the pass looked at.
        pruned: Entries to delete.
        summaries: Entries to store, each with the entries that it replaces.
        updated: Entries with the importance of a duplicate, which replace those of their ids.
        triples: Triples of the entries that are left, by entry.
        duplicates: The entries to delete that say the same as a kept entry, by its id.
    """

    processed: int
    pruned: list[MemoryEntry] = field(default_factory=list)
    summaries: list[tuple[MemoryEntry, list[MemoryEntry]]] = field(default_factory=list)
    updated: list[MemoryEntry] = field(default_factory=list)
    triples: dict[str, list[Triple]] = field(default_factory=dict)
    duplicates: dict[str, list[MemoryEntry]] = field(default_factory=dict)

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
        on_strategy: Is told of each strategy that ran, after the pass.
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
        """Tell of each strategy of a pass; what is told of has happened."""
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

    async def plan(
        self, entries: Sequence[MemoryEntry], batch: Sequence[MemoryEntry] | None = None
    ) -> ConsolidationPlan:
        """Return what a pass changes.

        Entries that are younger than the age threshold are left alone. So are summaries. Of equal
        entries the newest is kept, also when the pass does not look at it.

        Args:
            entries: All entries that are compared.
            batch: The due entries that the pass looks at; None takes the first `batch_size`.

        Raises:
            ConsolidationError: Two entries have the same id, or a summary failed.
            FactExtractionError: An extraction failed.
        """
        try:
            due = self.due(entries)
            batch = due[: self.config.batch_size] if batch is None else batch
            plan = await self._plan(due, batch)
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            raise
        self._last, self._error = f"{plan.processed} entries", None
        return plan

    async def _plan(
        self, due: Sequence[MemoryEntry], batch: Sequence[MemoryEntry]
    ) -> ConsolidationPlan:
        looked_at = {entry.id for entry in batch}
        newest_first = sorted(due, key=lambda one: (one.timestamp, one.id), reverse=True)
        duplicates, raised = self._duplicates(newest_first, looked_at)
        gone = {entry.id for some in duplicates.values() for entry in some}
        kept = [
            raised.get(entry.id, entry)
            for entry in newest_first
            if entry.id in looked_at and entry.id not in gone
        ]
        kept, pruned = self._prune(kept)
        summaries = [summary async for summary in self._summaries(kept)]
        triples = {}
        if self._extractor is not None:
            triples = {entry.id: await self._extractor.extract(entry) for entry in kept}
        before = {entry.id: entry for entry in due}
        return ConsolidationPlan(
            len(batch),
            [*(entry for some in duplicates.values() for entry in some), *pruned],
            summaries,
            [entry for entry in raised.values() if entry is not before[entry.id]],
            triples,
            duplicates,
        )

    def _duplicates(
        self, newest_first: Sequence[MemoryEntry], looked_at: Container[str]
    ) -> tuple[dict[str, list[MemoryEntry]], dict[str, MemoryEntry]]:
        """Return the duplicates that go, by the id of the kept entry, and the kept entries."""
        strategy = DeduplicationStrategy(self.config.similarity_threshold)
        duplicates, raised = {}, {}
        for _, kept, numbers in strategy.groups(newest_first):
            same = [newest_first[number] for number in numbers]
            if going := [entry for entry in same if entry.id in looked_at]:
                duplicates[kept.id] = going
                raised[kept.id] = kept
        return duplicates, raised

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


Place = tuple[str, datetime, str]
"""Where the passes come to an entry: its session, its instant and its id."""


def place_of(entry: MemoryEntry) -> Place:
    """Return the place of an entry; those of one session are together, for its summaries."""
    return entry.session_id, entry.timestamp, entry.id


class ConsolidationScheduler:
    """Consolidates the entries of a store at intervals, and writes the result back.

    One pass looks at `batch_size` entries at most, and the next one goes on after them. When the
    interval has elapsed, passes follow each other until each entry was looked at once.

    Args:
        store: Any store of entries.
        consolidator: Decides what a pass changes. One of the host's gets all entries, so many at a
            time, and does with them what it wants; what it returns is counted.
        config: The configuration; None takes that of the consolidator.
        store_triple: Stores each triple that was extracted; None drops them.
        clock: Measures the intervals.
        wait: Waits between passes.
    """

    def __init__(  # one for each part
        self,
        store: ConsolidatedStore,
        consolidator: MemoryConsolidatorProtocol,
        config: ConsolidationConfig | None = None,
        *,
        store_triple: StoreTriple | None = None,
        clock: Clock = CLOCK,
        wait: Wait = set_within,
    ) -> None:
        self._store = owned_store(store)
        self._consolidator = consolidator
        # A class of the host may inherit ours, and consolidate in another way.
        consolidates = type(consolidator).consolidate
        ours = consolidates is MemoryConsolidator.consolidate
        self._planner = cast("MemoryConsolidator", consolidator) if ours else None
        own = getattr(consolidator, "config", None)
        usual = own if isinstance(own, ConsolidationConfig) else ConsolidationConfig()
        self._config = config or usual
        self._store_triple = store_triple
        self._clock = clock
        self._wait = wait
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_places: dict[str, Place] = {}
        self._finished: set[str] = set()

    @property
    def running(self) -> bool:
        """Whether the scheduler runs."""
        return self._task is not None

    async def start(self) -> None:
        """Begin to wait for the first pass; nothing when it is disabled, or runs already."""
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
        """Run one pass over at most `batch_size` entries; count what was written.

        It begins where the last pass ended, and after all entries with the first again. An owner
        whose entries cannot be consolidated is logged, and the others go on. An entry that is
        written while a pass runs stays. What a summary replaces is deleted with the write of the
        summary, in one transaction.

        Raises:
            ConsolidationError: Two entries have the same id, of whichever owners.
        """
        began = self._clock.monotonic()
        results = await self._pass()
        return ConsolidationResult(
            sum(result.entries_processed for result in results),
            sum(result.entries_consolidated for result in results),
            sum(result.entries_pruned for result in results),
            sum(result.entities_extracted for result in results),
            1_000 * (self._clock.monotonic() - began),
        )

    async def _pass(self) -> list[ConsolidationResult]:
        """Look at the next entries, owner by owner; begin anew after the last ones."""
        left, results = self._config.batch_size, []
        all_finished = True
        for owner in await self._store.owners():
            if owner in self._finished:
                continue
            if left < 1:
                all_finished = False
                break
            try:
                found = await self._store.get_recent(sys.maxsize, owner_id=owner)
                entries, batch = self._next(owner, found, left)
            except MemorySystemError as error:  # the other owners can still be read
                log_consolidation_failure(error)
                self._finished.add(owner)
                continue
            left -= len(batch)
            all_finished &= owner in self._finished
            if batch:
                results.append(await self._consolidate_owner(owner, entries, batch))
        if all_finished:
            self._finished.clear()
            self._last_places.clear()
        if self._planner and any(result.entries_processed for result in results):
            self._planner.tell()
        return results

    def _next(
        self, owner_id: str, found: Sequence[MemoryEntry], most: int
    ) -> tuple[list[MemoryEntry], list[MemoryEntry]]:
        """Return the entries of an owner that no pass has looked at, and those of this pass."""
        planner = self._planner
        waiting = sorted(found, key=place_of) if planner is None else planner.due(found)
        if (last := self._last_places.get(owner_id)) is not None:
            waiting = [entry for entry in waiting if place_of(entry) > last]
        batch = waiting[:most]
        if len(batch) == len(waiting):
            self._finished.add(owner_id)
        else:
            self._last_places[owner_id] = place_of(batch[-1])
        return waiting, batch

    async def _consolidate_owner(
        self, owner_id: str, entries: Sequence[MemoryEntry], batch: list[MemoryEntry]
    ) -> ConsolidationResult:
        """Write what a pass changes about one owner; count what was written."""
        written = ConsolidationPlan(0)
        try:
            if self._planner is None:
                return _check_result(await self._consolidator.consolidate(batch))
            plan = await self._planner.plan(entries, batch)
            written = ConsolidationPlan(plan.processed)
            by_id = {entry.id: entry for entry in entries}
            await self._write(plan, written, OwnerEntries(self._store, owner_id), by_id)
            await self._store_triples(plan, written, by_id)
        except Exception as error:  # noqa: BLE001 # one owner must not stop the others
            log_consolidation_failure(error)
        return written.result()

    async def _write(
        self,
        plan: ConsolidationPlan,
        written: ConsolidationPlan,
        owned: OwnerEntries,
        entries: Mapping[str, MemoryEntry],
    ) -> None:
        """Write a plan; what has changed since it was made stays, and a later pass sees it."""
        raised = {entry.id: entry for entry in plan.updated}
        for kept_id, same in plan.duplicates.items():
            kept = entries[kept_id]
            # With the kept entry: without it, its duplicates would be lost.
            if await owned.replace([kept, *same], [raised.get(kept_id, kept)]):
                written.pruned.extend(same)
        for summary, replaced in plan.summaries:
            if await owned.replace(replaced, [summary]):
                written.summaries.append((summary, replaced))
        gone = {entry.id for same in plan.duplicates.values() for entry in same}
        others = [entry for entry in plan.pruned if entry.id not in gone]
        await owned.delete(others, written.pruned)

    async def _store_triples(
        self,
        plan: ConsolidationPlan,
        written: ConsolidationPlan,
        entries: Mapping[str, MemoryEntry],
    ) -> None:
        if self._store_triple is None:
            return
        for entry_id, triples in plan.triples.items():
            for triple in triples:
                await self._store_triple(triple, entries[entry_id])
                written.triples.setdefault(entry_id, []).append(triple)

    async def _run(self) -> None:
        begin = self._clock.monotonic()
        while True:
            # Not from the end of the pass: passes do not drift.
            begin = max(begin + self._config.interval_seconds, self._clock.monotonic())
            if await self._wait(self._stopping, begin - self._clock.monotonic()):
                return
            try:
                await self._pass()
                while (self._finished or self._last_places) and not self._stopping.is_set():
                    await self._pass()
            except Exception as error:  # noqa: BLE001 # the next pass tries again
                log_consolidation_failure(error)


def _check_result(found: object) -> ConsolidationResult:
    """Return what a consolidator of a host returned.

    Raises:
        ConsolidationError: It is no result.
    """
    if not isinstance(found, ConsolidationResult):
        kind = type(found).__name__
        raise ConsolidationError(f"the consolidator returned {kind}, not a ConsolidationResult")
    return found

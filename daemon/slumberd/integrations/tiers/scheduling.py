"""Run the consolidation of a store at intervals, pass by pass, and write the result back."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from slumberd.clock import Clock, set_within
from slumberd.integrations.tiers.configs import ConsolidationConfig
from slumberd.integrations.tiers.consolidation import (
    ConsolidationPlan,
    MemoryConsolidator,
    Place,
    place_of,
)
from slumberd.integrations.tiers.entries import (
    ConsolidationResult,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    Triple,
)
from slumberd.integrations.tiers.errors import (
    HOST_ERRORS,
    ConsolidationError,
    log_consolidation_failure,
    raise_if_cancelled,
)
from slumberd.integrations.tiers.stores import (
    ConsolidatedStore,
    OwnerEntries,
    Unfinished,
    owned_store,
)
from slumberd.integrations.tiers.strategies import CLOCK, DuplicateGroup

StoreTriple = Callable[[Triple, MemoryEntry], Awaitable[object]]
"""Stores a triple of an entry."""

Wait = Callable[[asyncio.Event, float], Awaitable[bool]]
"""Waits for an event for so many seconds; returns whether it is set."""


@dataclass
class _Waiting:
    """The entries of one owner that no pass has looked at.

    Attributes:
        entries: In the order of the passes.
        groups: The duplicates among them.
    """

    owner_id: str
    entries: list[MemoryEntry]
    groups: Sequence[DuplicateGroup]


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
        consolidates = getattr(type(consolidator), "consolidate", None)
        ours = consolidates is MemoryConsolidator.consolidate
        self._planner = cast("MemoryConsolidator", consolidator) if ours else None
        own = getattr(consolidator, "config", None)
        usual = own if isinstance(own, ConsolidationConfig) else ConsolidationConfig()
        self._config = config or usual
        self._store_triple = store_triple
        self._clock = clock
        self._wait = wait
        self._passing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_places: dict[str, Place] = {}
        self._finished: set[str] = set()
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(dict)
        self._owners: list[str] | None = None
        self._waiting: _Waiting | None = None

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

        It begins where the last pass ended, and after all entries with the first again. It waits
        for a pass that is under way. An owner
        whose entries cannot be consolidated is logged, and the others go on. An entry that is
        written while a pass runs stays. What a summary replaces is deleted with the write of the
        summary, in one transaction.

        Raises:
            ConsolidationError: Two entries have the same id, of whichever owners.
        """
        began = self._clock.monotonic()
        async with self._passing:
            self._forget_reads()  # since the last call, the host may have deleted what was read
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
        if self._owners is None:
            self._owners = await self._store.owners()
        left, results = self._config.batch_size, list[ConsolidationResult]()
        for owner in [owner for owner in self._owners if owner not in self._finished]:
            if left < 1:
                break
            batch, groups = await self._next(owner, left)
            left -= len(batch)
            if batch:
                results.append(await self._consolidate_owner(owner, batch, groups))
        if self._finished.issuperset(self._owners):
            self._finished.clear()
            self._last_places.clear()
        if self._planner and any(result.entries_processed for result in results):
            self._planner.tell()
        return results

    def _forget_reads(self) -> None:
        self._owners = self._waiting = None

    async def _next(
        self, owner_id: str, most: int
    ) -> tuple[list[MemoryEntry], Sequence[DuplicateGroup]]:
        """Return the next entries of an owner, and the duplicates among all of its due entries."""
        waiting = self._waiting
        if waiting is None or waiting.owner_id != owner_id:
            try:
                waiting = await self._read(owner_id)
            except HOST_ERRORS as error:  # the other owners can still be read
                raise_if_cancelled(error)
                log_consolidation_failure(error)
                waiting = _Waiting(owner_id, [], ())
        batch, waiting.entries = waiting.entries[:most], waiting.entries[most:]
        if waiting.entries:
            self._waiting = waiting
            self._last_places[owner_id] = place_of(batch[-1])
        else:
            self._waiting = None
            self._finished.add(owner_id)
        return batch, waiting.groups

    async def _read(self, owner_id: str) -> _Waiting:
        """Return the entries of an owner that come after those of the last pass."""
        await self._owned(owner_id).finish()
        found = await self._store.get_recent(sys.maxsize, owner_id=owner_id)
        planner = self._planner
        due = sorted(found, key=place_of) if planner is None else planner.due(found)
        if (last := self._last_places.get(owner_id)) is not None:
            due = [entry for entry in due if place_of(entry) > last]
        return _Waiting(owner_id, due, () if planner is None else planner.groups(due))

    def _owned(self, owner_id: str) -> OwnerEntries:
        return OwnerEntries(self._store, owner_id, self._unfinished[owner_id])

    async def _consolidate_owner(
        self, owner_id: str, batch: list[MemoryEntry], groups: Sequence[DuplicateGroup]
    ) -> ConsolidationResult:
        """Write what a pass changes about one owner; count what was written."""
        written = ConsolidationPlan(0)
        try:
            if self._planner is None:
                return _check_result(await self._consolidator.consolidate(batch))
            plan = await self._planner.plan_batch(batch, groups)
            written = ConsolidationPlan(plan.processed)
            await self._write(plan, written, self._owned(owner_id))
            await self._store_triples(plan, written, {entry.id: entry for entry in batch})
        except HOST_ERRORS as error:  # one owner must not stop the others
            raise_if_cancelled(error)
            log_consolidation_failure(error)
        return written.result()

    async def _write(
        self, plan: ConsolidationPlan, written: ConsolidationPlan, owned: OwnerEntries
    ) -> None:
        """Write a plan; what has changed since it was made stays, and a later pass sees it."""
        for group, going in plan.duplicates:
            raised = group.raised
            # With the kept entry: without it, its duplicates would be lost.
            if await owned.replace([group.kept, *going], [raised]):
                group.kept = raised
                written.pruned.extend(going)
        for summary, replaced in plan.summaries:
            if await owned.replace(replaced, [summary]):
                written.summaries.append((summary, replaced))
        gone = {entry.id for _, going in plan.duplicates for entry in going}
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
            async with self._passing:
                await self._pass_through()

    async def _pass_through(self) -> None:
        """Run passes until each entry was looked at once."""
        self._forget_reads()
        try:
            await self._pass()
            while (self._finished or self._last_places) and not self._stopping.is_set():
                await self._pass()
        except HOST_ERRORS as error:  # the next pass tries again
            raise_if_cancelled(error)
            log_consolidation_failure(error)
        self._forget_reads()


def _check_result(found: object) -> ConsolidationResult:
    """Return what a consolidator of a host returned.

    Raises:
        ConsolidationError: It is no result.
    """
    if not isinstance(found, ConsolidationResult):
        kind = type(found).__name__
        raise ConsolidationError(f"the consolidator returned {kind}, not a ConsolidationResult")
    return found

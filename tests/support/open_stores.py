"""A memory store, a fact store and a consolidator, on an engine."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from slumberd.clock import Clock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import PERSON, Episode
from slumberd.model.fact import FactPattern
from slumberd.model.firing import NO_LIMITS, Limits, Report
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.changes import Operations
from slumberd.operations.stores import Stores
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.rule_loader import RuleSet
from slumberd.search.vectors import TextComparer
from slumberd.storage.episodes.salience_gate import Embedding, no_embedder
from slumberd.storage.facts.apply import BACKLOG_ROWS
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.providers import (
    AnyFactStore,
    AnyMemoryStore,
    Provider,
    SQLiteProvider,
    copy_empty_files,
)


@dataclass
class OpenStores:
    """A memory store, a fact store and a consolidator."""

    memory: AnyMemoryStore
    facts: AnyFactStore
    log: FakeDeltaLog
    consolidator: Consolidator

    async def put(self, *episodes: Episode) -> None:
        await self.memory.put_many(episodes)

    async def fire(
        self, fired: ConsolidationRule | None = None, *, when: datetime = START
    ) -> Report:
        return await self.consolidator.fire(FireRequest(fired or rule("all"), "manual", when))

    def operations(self, *rules: ConsolidationRule, clock: Clock) -> Operations:
        in_force = RuleSet(rules, {}, {})
        stores = Stores(self.memory, self.facts)
        runner = RuleRunner(stores, self.consolidator)
        return Operations(stores, runner, lambda: in_force, clock)

    async def objects(self) -> dict[str, object]:
        facts = await self.facts.query(FactPattern())
        return {fact.id: fact.payload.get("object") for fact in facts}


@asynccontextmanager
async def open_stores(
    place: Path | Provider,
    *,
    batch: int = 5_000,
    limits: Limits = NO_LIMITS,
    clock: Clock | None = None,
    embedding: Embedding = no_embedder,
    person: Collection[str] = PERSON,
    backlog_rows: int = BACKLOG_ROWS,
    comparer: Callable[[], TextComparer] | None = None,
    future_tolerance_seconds: float = math.inf,
) -> AsyncIterator[OpenStores]:
    """Open the stores of a provider, or those in the files of a folder."""
    if isinstance(place, Path):
        copy_empty_files(place)
    provider = SQLiteProvider(place) if isinstance(place, Path) else place
    async with (
        provider.memory(
            clock=clock,
            embedding=embedding,
            person=person,
            future_tolerance_seconds=future_tolerance_seconds,
        ) as memory,
        provider.facts(backlog_rows=backlog_rows, comparer=comparer) as facts,
    ):
        await facts.bootstrap()
        log = FakeDeltaLog()
        clock = clock or FakeClock()
        consolidator = Consolidator(memory, facts, log, clock, batch=batch, limits=limits)
        yield OpenStores(memory, facts, log, consolidator)


def stream(count: int) -> Sequence[Episode]:
    return [triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(count)]

"""A state directory joined as the daemon joins it, with as many fact stores as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import FactsSettings, Settings
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.service.composition import Stores, branches_of, opened
from slumberd.service.fact_stores import Branches
from slumberd.service.operations import Operations
from tests.support.builders import at
from tests.support.fakes import FakeClock, FakeLogs

OTHERS = {"work": Path("work.db"), "notes": Path("work.db"), "home": Path("home.db")}
"""Two channels that share a store, and one with its own."""


@dataclass
class Estate:
    """The stores of a state directory, and what is done in them."""

    stores: Stores
    branches: Branches
    operations: Operations
    logs: FakeLogs
    clock: FakeClock
    rules: list[ConsolidationRule]

    async def fire(self, rule: ConsolidationRule) -> None:
        self.clock.advance(60)
        await self.branches.fire(rule, "manual", self.clock.now())

    async def facts(self) -> list[Fact]:
        """Return the facts of all stores, by id."""
        found = [
            fact
            for store in self.stores.facts.values()
            for fact in await store.query(FactPattern())
        ]
        return sorted(found, key=lambda fact: fact.id)

    async def ids(self, store: str) -> list[str]:
        return [fact.id for fact in await self.stores.facts[store].query(FactPattern())]

    async def marks(self) -> dict[str, dict[str, int]]:
        """Return how far each rule has read, by store."""
        return {
            name: {rule: at.seq for rule, (at, _) in (await store.watermarks()).items()}
            for name, store in self.stores.facts.items()
        }


@asynccontextmanager
async def estate(
    folder: Path,
    rules: Sequence[ConsolidationRule],
    channels: Mapping[str, Path] = OTHERS,
    *,
    multi_valued: Mapping[str, frozenset[str]] | None = None,
    batch: int = 8_000,
    **settings: Any,
) -> AsyncIterator[Estate]:
    """Open a state directory; several may be opened one after the other on one folder."""
    clock, logs, owned = FakeClock(at(3600)), FakeLogs(), list(rules)
    facts = FactsSettings(channels=dict(channels), batch=batch)
    told = Settings(state_dir=folder, rules_dir=folder, facts=facts, **settings)

    def in_force() -> RuleSet:
        return RuleSet(tuple(owned), multi_valued or {}, {})

    async with opened(told, clock, told.facts_paths) as stores:
        branches = branches_of(told, stores, logs, clock, in_force)
        for branch in branches:
            await branch.facts.take_over()
        await branches.set_channels(multi_valued or {}, clock.now())
        operations = Operations(stores.memory, branches, in_force, clock)
        yield Estate(stores, branches, operations, logs, clock, owned)

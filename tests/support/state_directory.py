"""A state directory, opened with the composition of the daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slumberd.consolidation.firing import FireRequest
from slumberd.daemon.composition import open_stores, rule_runner_of
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.changes import Operations
from slumberd.operations.stores import Stores
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import FactsSettings
from tests.support.builders import at
from tests.support.fakes import FakeClock, FakeLogs


@dataclass
class StateDirectory:
    """The open stores of a state directory, with a rule runner and the operations."""

    stores: Stores
    runner: RuleRunner
    operations: Operations
    logs: FakeLogs
    clock: FakeClock
    rules: list[ConsolidationRule]

    async def fire(self, rule: ConsolidationRule) -> None:
        self.clock.advance(60)
        await self.runner.fire(FireRequest(rule, "manual", self.clock.now()))

    async def facts(self) -> list[Fact]:
        """Return the facts, by id."""
        return await self.stores.facts.query(FactPattern())

    async def ids(self) -> list[str]:
        return [fact.id for fact in await self.facts()]


@asynccontextmanager
async def state_directory(
    folder: Path,
    rules: Sequence[ConsolidationRule],
    *,
    multi_valued: Mapping[str, frozenset[str]] | None = None,
    batch: int = 8_000,
    **settings: Any,
) -> AsyncIterator[StateDirectory]:
    """Open a state directory; the same folder may be opened again afterwards."""
    clock, logs, owned = FakeClock(at(3600)), FakeLogs(), list(rules)
    facts = FactsSettings(batch=batch)
    configured = Settings(state_dir=folder, rules_dir=folder, facts=facts, **settings)

    def in_force() -> RuleSet:
        return RuleSet(tuple(owned), multi_valued or {}, {})

    async with open_stores(configured, clock, configured.facts_path) as stores:
        runner = rule_runner_of(configured, stores, logs, clock)
        await stores.facts.transactions.take_over()
        await stores.facts.ledger.set_channels(multi_valued or {}, at=clock.now())
        operations = Operations(stores, runner, in_force, clock)
        yield StateDirectory(stores, runner, operations, logs, clock, owned)

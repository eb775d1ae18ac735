"""Fire a rule on two stores."""

from __future__ import annotations

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START
from tests.support.fakes import FakeClock, FakeDeltaLog


async def fire(memory: SQLiteMemoryStore, facts: SQLiteFactStore, rule: ConsolidationRule) -> None:
    """Evaluate all pending episodes."""
    await facts.bootstrap()
    consolidator = Consolidator(memory, facts, FakeDeltaLog(), FakeClock(), batch=1_000)
    await consolidator.fire(FireRequest(rule, "cron", START))

"""A filter over its time limit delays its own rule only, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Position
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.filters import sandbox
from slumberd.rules.filters.sandbox import check_filter
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.filter_fragments import BOMBS, LONG

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HEAVY = rule("heavy", when_filter=BOMBS[1] + " OR content LIKE 'plain%'")
LIGHT = rule("light", when_filter="predicate = 'likes'", then_emits=["light"])
BUDGET = 0.3


class ProcessorClock:
    """A clock of the processor time of this thread, which other processes do not advance."""

    monotonic = staticmethod(time.thread_time)


def stream(content: str, seconds: int) -> list[Episode]:
    return [
        triple(f"e{n}", f"s{n}", "likes", n, content=content, timestamp=at(seconds + n))
        for n in range(30)
    ]


async def test_filter_over_its_budget_delays_only_its_own_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "time", ProcessorClock())
    check_filter(HEAVY.id, HEAVY.when_filter)
    clock, stop = FakeClock(), asyncio.Event()
    async with (
        SQLiteMemoryStore(tmp_path / "memory.db", filter_seconds=BUDGET) as memory,
        SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as facts,
    ):
        await facts.bootstrap()
        consolidator = Consolidator(memory, facts, FakeDeltaLog(), clock, batch=5_000)
        scheduler = _scheduler(clock, memory, facts, consolidator, [HEAVY, LIGHT])
        await memory.put_many(stream(LONG, 0))

        with structlog.testing.capture_logs() as logs:
            await scheduler.turn(stop)

        failed = [line for line in logs if line["event"] == "firing.failed"]
        assert [(line["rule_id"], line["error"]) for line in failed] == [("heavy", "FilterError")]
        assert failed[0]["message"].endswith(f"ran over its budget of {BUDGET:g} s")
        assert await facts.watermarks.position("heavy") in (None, Position())
        assert await _channels(facts) == {"light": 30}

        await memory.put_many(stream("plain words", 100))
        clock.advance(60)
        await scheduler.turn(stop)

        newest = await memory.newest()
        assert [await facts.watermarks.position(rule_id) for rule_id in ("heavy", "light")] == [
            newest,
            newest,
        ]
        assert await _channels(facts) == {"light": 30, "facts": 30}


def _scheduler(
    clock: FakeClock,
    memory: SQLiteMemoryStore,
    facts: SQLiteFactStore,
    consolidator: Consolidator,
    rules: Sequence[ConsolidationRule],
) -> Scheduler:
    async def fire(fired: ConsolidationRule, due: Due, instant: datetime) -> None:
        await consolidator.fire(FireRequest(fired, due.trigger, instant))

    scheduler = Scheduler(clock=clock, episodes=memory, watermarks=facts.watermarks, fire=fire)
    scheduler.replace(rules, "UTC")
    return scheduler


async def _channels(facts: SQLiteFactStore) -> dict[str, int]:
    found = [fact.id for fact in await facts.query(FactPattern())]
    light = sum(fact_id.startswith("@light/") for fact_id in found)
    return {name: n for name, n in (("light", light), ("facts", len(found) - light)) if n}

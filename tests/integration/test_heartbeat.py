"""The heartbeat: what it tells of stores, rules and process, and that it stays short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from slumberd import heartbeat
from slumberd.assembly import branches_of, opened
from slumberd.branches import Branches
from slumberd.core.firing import START as BEGINNING
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import StoreError
from slumberd.heartbeat import Body, Heartbeat
from slumberd.lines import MOST_BYTES, json_line
from slumberd.ports import EpisodeLog
from slumberd.rulebook import RuleSet
from slumberd.settings import Settings
from slumberd.stores.memory import SQLiteMemoryStore
from tests.builders import at, rule, triple
from tests.fakes import FakeClock, FakeEpisodeLog, FakeLogs

MINUTE = 60.0


class Patient:
    """Stores, rules over them, and a heartbeat; it is tired after two."""

    def __init__(
        self, memory: SQLiteMemoryStore, branches: Branches, rules: RuleSet, settings: Settings
    ) -> None:
        self.clock = FakeClock(at(0))
        self.memory, self.branches = memory, branches
        self.dropped = 0
        self.beats = 0
        self.tired = asyncio.Event()
        files = [settings.memory_path, *settings.facts_paths.values()]
        self._body = (branches, lambda: (rules.rules, "UTC"), files, self._count_beat)
        self.heart = self.heart_on(memory)

    def _count_beat(self) -> int:
        self.beats += 1
        if self.beats == 2:
            self.tired.set()
        return self.dropped

    def heart_on(self, episodes: EpisodeLog) -> Heartbeat:
        return Heartbeat(Body(episodes, *self._body), self.clock)

    async def beat(self) -> dict[str, Any]:
        with capture_logs() as logs:
            await self.heart.beat()
        [told] = logs
        return dict(told)


@asynccontextmanager
async def _patient(folder: Path, *rules: ConsolidationRule) -> AsyncIterator[Patient]:
    settings = Settings(state_dir=folder, rules_dir=folder)
    found, clock = RuleSet(rules, {}, {}), FakeClock(at(0))
    async with opened(settings, clock, settings.facts_paths) as stores:
        branches = branches_of(settings, stores, FakeLogs(), clock, lambda: found)
        for one in rules:
            await branches.begin(one.id, BEGINNING, served=at(0))
        yield Patient(stores.memory, branches, found, settings)


async def test_beat_tells_what_is_pending_and_for_how_long(tmp_path: Path) -> None:
    done, waiting = rule("done"), rule("waiting", cadence={"cron": "0 3 * * *"})
    async with _patient(tmp_path, done, waiting) as patient:
        await patient.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        await patient.branches.fire(done, "every", at(0))
        age = (at(0) - triple("e0", "alice", "likes", 0).timestamp).total_seconds()
        patient.clock.advance(MINUTE)

        told = await patient.beat()

    assert told["rules"] == 2
    assert told["pending"] == 3
    assert told["oldest_pending_seconds"] == age + MINUTE
    assert told["behind"] == [{"rule_id": "waiting", "pending": 3, "oldest_seconds": age + MINUTE}]
    assert told["last_success_seconds"] == MINUTE
    assert told["next_at"].endswith("T03:00:00.000000Z")


async def test_beat_of_a_daemon_that_has_nothing_to_do_is_quiet(tmp_path: Path) -> None:
    async with _patient(tmp_path) as patient:
        told = await patient.beat()

    assert told["pending"] == told["held"] == told["quarantined"] == told["dropped"] == 0
    assert told["behind"] == []
    assert told["oldest_pending_seconds"] is told["next_at"] is told["last_success_seconds"] is None


async def test_beat_tells_how_the_process_is(tmp_path: Path) -> None:
    async with _patient(tmp_path) as patient:
        patient.clock.advance(90)
        patient.dropped = 7
        patient.heart.measured(0.25)
        patient.heart.measured(0.125)

        first, second = await patient.beat(), await patient.beat()

    assert first["uptime_seconds"] == 90
    assert first["dropped"] == 7
    assert first["rss_bytes"] > 2**20
    assert first["wal_bytes"] > 0
    assert (first["loop_lag_seconds"], second["loop_lag_seconds"]) == (0.25, 0.0)


async def test_beat_over_many_rules_names_those_that_lag_most(tmp_path: Path) -> None:
    rules = [rule(f"{'r' * 50}{n}") for n in range(40)]
    async with _patient(tmp_path, *rules) as patient:
        await patient.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        for one in rules[:35]:
            await patient.branches.fire(one, "every", at(0))
        await patient.memory.put_many([triple("e9", "alice", "likes", 9)])

        told = await patient.beat()

    assert told["pending"] == 35 + 5 * 4
    assert [one["pending"] for one in told["behind"]] == [4] * 5 + [1] * 5
    assert len(json_line(told)) < MOST_BYTES


async def test_beat_does_not_mind_a_filter_that_fails(tmp_path: Path) -> None:
    broken = rule("broken", when_filter="no_such_column = 1")
    async with _patient(tmp_path, broken) as patient:
        await patient.memory.put_many([triple("e1", "alice", "likes", "tea")])

        told = await patient.beat()

    assert [one["rule_id"] for one in told["behind"]] == ["broken"]


async def test_beat_of_stores_in_trouble_is_a_warning(tmp_path: Path) -> None:
    async with _patient(tmp_path, rule("tea")) as patient:
        episodes = FakeEpisodeLog()
        episodes.fault = StoreError("the disk is gone")
        patient.heart = patient.heart_on(episodes)

        told = await patient.beat()

    assert told["event"] == "heartbeat.failed"
    assert told["message"] == "the disk is gone"


async def test_heart_beats_until_it_is_told_to_stop(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_SECONDS", 0)
    async with _patient(tmp_path) as patient:
        with capture_logs() as logs:
            async with asyncio.timeout(60):
                await patient.heart.keep(patient.tired)

    assert [one["event"] for one in logs] == ["daemon.heartbeat"] * 2

"""The heartbeat: what it tells of stores, rules and process, and that it stays short."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings
from slumberd.consolidation.fire_request import FireRequest
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.errors import StoreError
from slumberd.model.episode import Episode
from slumberd.model.firing import START as BEGINNING
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import MOST_BYTES, json_line
from slumberd.scheduling.due import FailureTracker
from slumberd.service.composition import opened, rule_runner_of
from slumberd.service.health_metrics import MOST_PENDING, HealthSources
from slumberd.service.heartbeat import Heartbeat
from slumberd.service.rule_runner import RuleRunner
from slumberd.storage.episodes.store import SQLiteMemoryStore
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock, FakeEpisodeLog, FakeLogs
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

MINUTE = 60.0


class DoctorContext:
    """Stores, rules over them, and a heartbeat; it is tired after two."""

    def __init__(
        self, memory: SQLiteMemoryStore, runner: RuleRunner, rules: RuleSet, settings: Settings
    ) -> None:
        self.clock = FakeClock(at(0))
        self.memory, self.runner = memory, runner
        self.dropped = 0
        self.beats = 0
        self.tired = asyncio.Event()
        files = [settings.memory_path, settings.facts_path]
        self.asleep: set[str] = set()
        self.troubles = FailureTracker()
        self.textfile: Callable[[bytes], None] | None = None
        self._files = files
        self._rules = rules
        self.heart = self.heart_on(memory)

    def _count_beat(self) -> int:
        self.beats += 1
        if self.beats == 2:
            self.tired.set()
        return self.dropped

    def heart_on(self, episodes: EpisodeLog) -> Heartbeat:
        body = HealthSources(
            episodes,
            self.runner.facts,
            rules=lambda: (self._rules.rules, "UTC"),
            awake=lambda rules: [one for one in rules if one.id not in self.asleep],
            troubles=lambda: self.troubles.by_rule,
            files=self._files,
            dropped=self._count_beat,
            failed=lambda: self.troubles.totals,
            counted=self.textfile is not None,
            batches_at_once=2,
        )
        return Heartbeat(body, self.clock, self.textfile)

    async def beat(self) -> dict[str, Any]:
        with capture_logs() as logs:
            await self.heart.beat()
        [told] = logs
        return dict(told)


@asynccontextmanager
async def _patient(folder: Path, *rules: ConsolidationRule) -> AsyncIterator[DoctorContext]:
    settings = Settings(state_dir=folder, rules_dir=folder)
    found, clock = RuleSet(rules, {}, {}), FakeClock(at(0))
    async with opened(settings, clock, settings.facts_path) as stores:
        runner = rule_runner_of(settings, stores, FakeLogs(), clock)
        for one in rules:
            await runner.facts.begin(one.id, BEGINNING, served=at(0))
        yield DoctorContext(stores.memory, runner, found, settings)


async def test_beat_tells_what_is_pending_and_for_how_long(tmp_path: Path) -> None:
    done, waiting = rule("done"), rule("waiting", cadence={"cron": "0 3 * * *"})
    async with _patient(tmp_path, done, waiting) as context:
        await context.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        await context.runner.fire(FireRequest(done, "every", at(0)))
        age = (at(0) - triple("e0", "alice", "likes", 0).timestamp).total_seconds()
        context.clock.advance(MINUTE)

        told = await context.beat()

    assert told["rules"] == 2
    assert told["pending"] == 3
    assert told["oldest_pending_seconds"] == age + MINUTE
    assert told["behind"] == [{"rule_id": "waiting", "pending": 3, "oldest_seconds": age + MINUTE}]
    assert told["last_success_seconds"] == MINUTE
    assert told["next_at"].endswith("T03:00:00.000000Z")


async def test_beat_of_a_daemon_that_has_nothing_to_do_is_quiet(tmp_path: Path) -> None:
    async with _patient(tmp_path) as context:
        told = await context.beat()

    assert told["pending"] == told["held"] == told["quarantined"] == told["dropped"] == 0
    assert told["behind"] == []
    assert told["oldest_pending_seconds"] is told["next_at"] is told["last_success_seconds"] is None


async def test_beat_tells_how_the_process_is(tmp_path: Path) -> None:
    async with _patient(tmp_path) as context:
        context.clock.advance(90)
        context.dropped = 7
        context.heart.measured(0.25)
        context.heart.measured(0.125)

        first, second = await context.beat(), await context.beat()

    assert first["uptime_seconds"] == 90
    assert first["dropped"] == 7
    assert first["rss_bytes"] > 2**20
    assert first["wal_bytes"] > 0
    assert (first["loop_lag_seconds"], second["loop_lag_seconds"]) == (0.25, 0.0)


async def test_beat_over_many_rules_names_those_that_lag_most(tmp_path: Path) -> None:
    rules = [rule(f"{'r' * 50}{n}") for n in range(40)]
    async with _patient(tmp_path, *rules) as context:
        await context.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        for one in rules[:35]:
            await context.runner.fire(FireRequest(one, "every", at(0)))
        await context.memory.put_many([triple("e9", "alice", "likes", 9)])

        told = await context.beat()

    assert told["pending"] == 35 + 5 * 4
    assert [one["pending"] for one in told["behind"]] == [4] * 5 + [1] * 5
    assert len(json_line(told)) < MOST_BYTES


async def test_beat_does_not_mind_a_filter_that_fails(tmp_path: Path) -> None:
    broken = rule("broken", when_filter="no_such_column = 1")
    async with _patient(tmp_path, broken) as context:
        await context.memory.put_many([triple("e1", "alice", "likes", "tea")])

        told = await context.beat()

    assert [one["rule_id"] for one in told["behind"]] == ["broken"]


async def test_beat_tells_for_how_long_a_rule_has_been_due(tmp_path: Path) -> None:
    rules = [rule("full", cadence={"every": 3}), rule("filling", cadence={"every": 4})]
    async with _patient(tmp_path, *rules) as context:
        await context.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(2)])
        context.clock.advance(60 * MINUTE)
        await context.memory.put_many([triple("e2", "alice", "likes", 2, timestamp=at(3600))])
        late = []
        for _ in range(3):
            late.append((await context.beat())["late_seconds"])
            context.clock.advance(MINUTE)
        await context.runner.fire(FireRequest(rules[0], "every", at(0)))

        told = await context.beat()

    assert late == [0.0, MINUTE, 2 * MINUTE]
    assert (told["late_seconds"], told["pending"]) == (0.0, 3)


async def test_rule_that_has_something_to_read_at_every_look_is_not_late(tmp_path: Path) -> None:
    busy = rule("busy")
    async with _patient(tmp_path, busy) as context:
        late = []
        for n in range(4):
            now = context.clock.now()
            await context.memory.put_many([triple(f"e{n}", "alice", "likes", n, timestamp=now)])
            context.clock.advance(1)
            late.append((await context.beat())["late_seconds"])
            await context.runner.fire(FireRequest(busy, "every", context.clock.now()))
            context.clock.advance(MINUTE)

    assert late == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("count", "late"), [(MOST_PENDING + 1, MINUTE), (MOST_PENDING + 2, 0.0)])
async def test_rule_that_fires_seldom_is_counted_to_its_end(
    tmp_path: Path, count: int, late: float
) -> None:
    class Long(FakeEpisodeLog):
        async def pending(self, after: int, *, at_most: int) -> int:
            return min(MOST_PENDING + 1, at_most)

    async with _patient(tmp_path, rule("seldom", cadence={"every": count})) as context:
        context.heart = context.heart_on(Long("e1"))
        await context.beat()
        context.clock.advance(MINUTE)

        assert (await context.beat())["late_seconds"] == late


async def test_beat_tells_for_how_long_an_instant_is_not_served(tmp_path: Path) -> None:
    nightly = rule("nightly", cadence={"cron": "0 3 * * *"})
    async with _patient(tmp_path, nightly) as context:
        before = await context.beat()
        context.clock.advance(16 * 60 * MINUTE)  # from noon to four in the morning

        told = await context.beat()

    assert (before["late_seconds"], told["late_seconds"]) == (0.0, 60 * MINUTE)


@pytest.mark.parametrize("at_rest", ["disabled", "paused", "held", "awake"])
async def test_rule_that_is_to_rest_is_not_late(tmp_path: Path, at_rest: str) -> None:
    resting = rule("resting", enabled=at_rest != "disabled", limits={"max_deletes": 0})
    async with _patient(tmp_path, resting) as context:
        await context.memory.put_many([triple("e1", "alice", "likes", "tea")])
        await context.runner.fire(FireRequest(resting, "every", at(0)))
        taken = {"intent": "delete", "replaces": "e1"}
        await context.memory.put_many([triple("e2", "alice", "likes", "tea", metadata=taken)])
        if at_rest == "held":
            await context.runner.fire(FireRequest(resting, "every", at(0)))
        if at_rest == "paused":
            context.asleep.add("resting")
        await context.beat()
        context.clock.advance(MINUTE)

        told = await context.beat()

    assert told["late_seconds"] == (MINUTE if at_rest == "awake" else 0)
    assert told["held"] == (at_rest == "held")


async def test_beat_counts_rules_that_fail(tmp_path: Path) -> None:
    async with _patient(tmp_path, rule("once"), rule("ever"), rule("never")) as context:
        for name in ("once", "ever", "ever", "ever"):
            context.troubles.failed(name, at(0), "StoreError")

        told = await context.beat()

    assert (told["failing"], told["degraded"]) == (2, 1)


async def test_beat_hands_the_same_figures_to_prometheus(tmp_path: Path) -> None:
    written: list[bytes] = []
    async with _patient(tmp_path, rule("tea")) as context:
        context.textfile = written.append
        context.heart = context.heart_on(context.memory)
        await context.memory.put_many([triple("e1", "alice", "likes", "tea")])

        await context.beat()

    assert b'slumberd_rule_pending_episodes{rule="tea"} 1\n' in written[0]


def counters(text: bytes) -> dict[str, float]:
    """Return what only grows, of a rule and of the daemon."""
    return {
        "/".join([sample.name, *sample.labels.values()]).removeprefix("slumberd_"): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.endswith("_total")
    }


async def test_counters_of_the_textfile_go_on_over_a_restart(tmp_path: Path) -> None:
    written: list[bytes] = []
    tea, bad = rule("tea"), {"intent": "shout"}

    async def live(*episodes: Episode) -> None:
        async with _patient(tmp_path, tea) as context:
            context.textfile = written.append
            context.heart = context.heart_on(context.memory)
            await context.beat()
            for one in episodes:
                await context.memory.put_many([one])
                await context.runner.fire(FireRequest(tea, "every", at(0)))
            context.troubles.failed("tea", at(0), "StoreError")
            await context.beat()

    await live(*(triple(f"e{n}", "alice", "likes", n, timestamp=at(n)) for n in range(5)))
    await live(triple("odd", "alice", "likes", 1, metadata=bad), triple("e9", "bob", "is", 1))

    first, stopped, started, last = map(counters, written)
    failures = "rule_failures_total/tea"
    assert first["rule_batches_total/tea"] == 0
    assert stopped == {
        **started,
        failures: 1,
    }
    assert started[failures] == 0
    assert (stopped["rule_batches_total/tea"], last["rule_batches_total/tea"]) == (5, 7)
    assert (stopped["rule_versions_read_total/tea"], stopped["episode_versions_total"]) == (5, 5)
    assert (stopped["facts_changed_total"], last["rule_facts_changed_total/tea"]) == (5, 6)
    assert last["rule_versions_quarantined_total/tea"] == 1
    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
        (rows,) = connection.execute("SELECT max(seq) FROM slumberd_ledger").fetchone()
    assert last["ledger_rows_total"] == rows


async def test_textfile_that_cannot_be_written_is_told_once_until_it_can(tmp_path: Path) -> None:
    trouble = [True, True, False, True]

    def write(_: bytes) -> None:
        if trouble.pop(0):
            raise OSError("the disk is full")

    async with _patient(tmp_path, rule("tea")) as context:
        context.textfile = write
        context.heart = context.heart_on(context.memory)
        with capture_logs() as logs:
            for _ in range(4):
                await context.heart.beat()

    beat, failed = "daemon.heartbeat", "metrics.failed"
    assert [one["event"] for one in logs] == [beat, failed, beat, beat, beat, failed]


async def test_beat_of_stores_in_trouble_is_a_warning(tmp_path: Path) -> None:
    async with _patient(tmp_path, rule("tea")) as context:
        episodes = FakeEpisodeLog()
        episodes.fault = StoreError("the disk is gone")
        context.heart = context.heart_on(episodes)

        told = await context.beat()

    assert told["event"] == "heartbeat.failed"
    assert told["message"] == "the disk is gone"


async def test_heart_beats_until_it_is_told_to_stop(tmp_path: Path) -> None:
    async with _patient(tmp_path) as context:
        with capture_logs() as logs:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await context.heart.keep(context.tired, every_seconds=0)

    assert [one["event"] for one in logs] == ["daemon.heartbeat"] * 2

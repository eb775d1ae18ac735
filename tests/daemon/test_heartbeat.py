"""The heartbeat reports the state of stores, rules and the process, in a short line."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.daemon.composition import open_stores, rule_runner_of
from slumberd.daemon.heartbeat import HealthCollector, HealthSources, Heartbeat, StandbyHeartbeat
from slumberd.daemon.stores import inspections_of
from slumberd.logs.lines import MOST_BYTES, json_line
from slumberd.model.episode import Episode
from slumberd.model.errors import StoreError
from slumberd.model.firing import START as BEGINNING
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.reads.rule_states import MOST_PENDING
from slumberd.operations.stores import Stores
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.workers.scheduling.due import FailureTracker
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock, FakeEpisodeLog, FakeLogs
from tests.support.waiting import PATIENCE_SECONDS
from tests.tools.diagnostics.test_database_limits import WELL

pytestmark = pytest.mark.integration

MINUTE = 60.0


class MonitoredStores:
    """Stores, rules on them, and a heartbeat; `finished` is set after two beats."""

    def __init__(
        self, memory: EngineMemoryStore, runner: RuleRunner, rules: RuleSet, settings: Settings
    ) -> None:
        self.clock = FakeClock(at(0))
        self.memory, self.runner = memory, runner
        self.dropped = 0
        self.beats = 0
        self.finished = asyncio.Event()
        inspections = inspections_of(settings)
        self.paused: set[str] = set()
        self.troubles = FailureTracker()
        self.textfile: Callable[[bytes], None] | None = None
        self._inspections = inspections
        self._rules = rules
        self.heartbeat = self.heartbeat_on(memory)

    def _count_beat(self) -> int:
        self.beats += 1
        if self.beats == 2:
            self.finished.set()
        return self.dropped

    def heartbeat_on(self, episodes: EpisodeLog) -> Heartbeat:
        return Heartbeat(
            HealthCollector(self.heartbeat_sources(episodes), self.clock).collect,
            self.clock,
            self.textfile,
        )

    def heartbeat_sources(self, episodes: EpisodeLog) -> HealthSources:
        return HealthSources(
            episodes,
            Stores(self.memory, self.runner.facts),
            rules=lambda: (self._rules.rules, "UTC"),
            awake=lambda rules: [rule for rule in rules if rule.id not in self.paused],
            troubles=lambda: self.troubles.by_rule,
            inspections=self._inspections,
            dropped=self._count_beat,
            failed=lambda: self.troubles.totals,
            counted=self.textfile is not None,
            batches_at_once=2,
        )

    async def beat(self) -> dict[str, Any]:
        with capture_logs() as logs:
            await self.heartbeat.beat()
        [line] = logs
        return dict(line)


@asynccontextmanager
async def open_monitored(folder: Path, *rules: ConsolidationRule) -> AsyncIterator[MonitoredStores]:
    settings = Settings(state_dir=folder, rules_dir=folder)
    found, clock = RuleSet(rules, {}, {}), FakeClock(at(0))
    async with open_stores(settings, clock, settings.facts_path) as stores:
        runner = rule_runner_of(settings, stores, FakeLogs(), clock)
        for rule in rules:
            await runner.facts.watermarks.begin(rule.id, BEGINNING, served=at(0))
        yield MonitoredStores(stores.memory, runner, found, settings)


async def test_beat_reports_what_is_pending_and_how_old_it_is(tmp_path: Path) -> None:
    done, waiting = rule("done"), rule("waiting", cadence={"cron": "0 3 * * *"})
    async with open_monitored(tmp_path, done, waiting) as monitored:
        await monitored.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        await monitored.runner.fire(FireRequest(done, "every", at(0)))
        age = (at(0) - triple("e0", "alice", "likes", 0).timestamp).total_seconds()
        monitored.clock.advance(MINUTE)

        line = await monitored.beat()

    assert line["rules"] == 2
    assert line["pending"] == 3
    assert line["oldest_pending_seconds"] == age + MINUTE
    assert line["behind"] == [{"rule_id": "waiting", "pending": 3, "oldest_seconds": age + MINUTE}]
    assert line["last_success_seconds"] == MINUTE
    assert line["next_at"].endswith("T03:00:00.000000Z")


async def test_beat_of_a_daemon_without_work_reports_no_figures(tmp_path: Path) -> None:
    async with open_monitored(tmp_path) as monitored:
        line = await monitored.beat()

    assert line["pending"] == line["held"] == line["quarantined"] == line["dropped"] == 0
    assert line["behind"] == []
    assert line["oldest_pending_seconds"] is line["next_at"] is line["last_success_seconds"] is None


async def test_beat_reports_the_state_of_the_process(tmp_path: Path) -> None:
    async with open_monitored(tmp_path) as monitored:
        monitored.clock.advance(90)
        monitored.dropped = 7
        monitored.heartbeat.record_lag(0.25)
        monitored.heartbeat.record_lag(0.125)

        first, second = await monitored.beat(), await monitored.beat()

    assert first["uptime_seconds"] == 90
    assert first["dropped"] == 7
    assert first["rss_bytes"] > 2**20
    assert first["wal_bytes"] > 0
    assert (first["loop_lag_seconds"], second["loop_lag_seconds"]) == (0.25, 0.0)


@pytest.mark.slow
async def test_beat_names_the_rules_with_most_pending_episodes(tmp_path: Path) -> None:
    rules = [rule(f"{'r' * 50}{n}") for n in range(40)]
    async with open_monitored(tmp_path, *rules) as monitored:
        await monitored.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(3)])
        for done in rules[:35]:
            await monitored.runner.fire(FireRequest(done, "every", at(0)))
        await monitored.memory.put_many([triple("e9", "alice", "likes", 9)])

        line = await monitored.beat()

    assert line["pending"] == 35 + 5 * 4
    assert [behind["pending"] for behind in line["behind"]] == [4] * 5 + [1] * 5
    assert len(json_line(line)) < MOST_BYTES


async def test_beat_runs_no_filter_of_a_rule(tmp_path: Path) -> None:
    broken = rule("broken", when_filter="no_such_column = 1")
    async with open_monitored(tmp_path, broken) as monitored:
        await monitored.memory.put_many([triple("e1", "alice", "likes", "tea")])

        line = await monitored.beat()

    assert [behind["rule_id"] for behind in line["behind"]] == ["broken"]


async def test_beat_reports_for_how_long_a_rule_has_been_due(tmp_path: Path) -> None:
    rules = [rule("full", cadence={"every": 3}), rule("filling", cadence={"every": 4})]
    async with open_monitored(tmp_path, *rules) as monitored:
        await monitored.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(2)])
        monitored.clock.advance(60 * MINUTE)
        await monitored.memory.put_many([triple("e2", "alice", "likes", 2, timestamp=at(3600))])
        late = []
        for _ in range(3):
            late.append((await monitored.beat())["late_seconds"])
            monitored.clock.advance(MINUTE)
        now = monitored.clock.now()
        await monitored.runner.fire(FireRequest(rules[0], "every", now))

        line = await monitored.beat()

    assert late == [0.0, MINUTE, 2 * MINUTE]
    assert (line["late_seconds"], line["pending"]) == (0.0, 3)


async def test_rule_with_new_episodes_at_every_beat_is_not_late(tmp_path: Path) -> None:
    busy = rule("busy")
    async with open_monitored(tmp_path, busy) as monitored:
        late = []
        for n in range(4):
            now = monitored.clock.now()
            await monitored.memory.put_many([triple(f"e{n}", "alice", "likes", n, timestamp=now)])
            monitored.clock.advance(1)
            late.append((await monitored.beat())["late_seconds"])
            await monitored.runner.fire(FireRequest(busy, "every", monitored.clock.now()))
            monitored.clock.advance(MINUTE)

    assert late == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("count", "late"), [(MOST_PENDING + 1, MINUTE), (MOST_PENDING + 2, 0.0)])
async def test_rule_with_a_large_count_is_late_once_so_many_are_pending(
    tmp_path: Path, count: int, late: float
) -> None:
    class Long(FakeEpisodeLog):
        async def pending(self, after: int, *, at_most: int, rule_id: str = "") -> int:
            return min(MOST_PENDING + 1, at_most)

    async with open_monitored(tmp_path, rule("seldom", cadence={"every": count})) as monitored:
        monitored.heartbeat = monitored.heartbeat_on(Long("e1"))
        await monitored.beat()
        monitored.clock.advance(MINUTE)

        assert (await monitored.beat())["late_seconds"] == late


async def test_beat_reports_for_how_long_an_instant_is_not_served(tmp_path: Path) -> None:
    nightly = rule("nightly", cadence={"cron": "0 3 * * *"})
    async with open_monitored(tmp_path, nightly) as monitored:
        before = await monitored.beat()
        monitored.clock.advance(16 * 60 * MINUTE)  # from noon to four in the morning

        line = await monitored.beat()

    assert (before["late_seconds"], line["late_seconds"]) == (0.0, 60 * MINUTE)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["disabled", "paused", "held", "awake"])
async def test_rule_that_must_not_fire_is_not_late(tmp_path: Path, state: str) -> None:
    resting = rule("resting", enabled=state != "disabled", limits={"max_deletes": 0})
    async with open_monitored(tmp_path, resting) as monitored:
        await monitored.memory.put_many([triple("e1", "alice", "likes", "tea")])
        await monitored.runner.fire(FireRequest(resting, "every", at(0)))
        taken = {"intent": "delete", "replaces": "e1"}
        await monitored.memory.put_many([triple("e2", "alice", "likes", "tea", metadata=taken)])
        if state == "held":
            await monitored.runner.fire(FireRequest(resting, "every", at(0)))
        if state == "paused":
            monitored.paused.add("resting")
        await monitored.beat()
        monitored.clock.advance(MINUTE)

        line = await monitored.beat()

    assert line["late_seconds"] == (MINUTE if state == "awake" else 0)
    assert line["held"] == (state == "held")


async def test_beat_counts_rules_that_fail(tmp_path: Path) -> None:
    async with open_monitored(tmp_path, rule("once"), rule("ever"), rule("never")) as monitored:
        for name in ("once", "ever", "ever", "ever"):
            monitored.troubles.record_failure(name, at(0), "StoreError")

        line = await monitored.beat()

    assert (line["failing"], line["degraded"]) == (2, 1)


async def test_beat_writes_the_same_figures_for_prometheus(tmp_path: Path) -> None:
    written: list[bytes] = []
    async with open_monitored(tmp_path, rule("tea")) as monitored:
        monitored.textfile = written.append
        monitored.heartbeat = monitored.heartbeat_on(monitored.memory)
        await monitored.memory.put_many([triple("e1", "alice", "likes", "tea")])

        await monitored.beat()

    assert b'slumberd_rule_pending_episodes{rule="tea"} 1\n' in written[0]


def counters(text: bytes) -> dict[str, float]:
    """Return the counters of the rule and of the daemon."""
    return {
        "/".join([sample.name, *sample.labels.values()]).removeprefix("slumberd_"): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.endswith("_total")
    }


async def test_counters_of_the_textfile_continue_after_a_restart(tmp_path: Path) -> None:
    written: list[bytes] = []
    tea, bad = rule("tea"), {"intent": "shout"}

    async def live(*episodes: Episode) -> None:
        async with open_monitored(tmp_path, tea) as monitored:
            monitored.textfile = written.append
            monitored.heartbeat = monitored.heartbeat_on(monitored.memory)
            await monitored.beat()
            for episode in episodes:
                await monitored.memory.put_many([episode])
                await monitored.runner.fire(FireRequest(tea, "every", at(0)))
            monitored.troubles.record_failure("tea", at(0), "StoreError")
            await monitored.beat()

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


async def test_unwritable_textfile_is_logged_once_until_it_can_be_written(tmp_path: Path) -> None:
    trouble = [True, True, False, True]

    def write(_: bytes) -> None:
        if trouble.pop(0):
            raise OSError("the disk is full")

    async with open_monitored(tmp_path, rule("tea")) as monitored:
        monitored.textfile = write
        monitored.heartbeat = monitored.heartbeat_on(monitored.memory)
        with capture_logs() as logs:
            for _ in range(4):
                await monitored.heartbeat.beat()

    beat, failed = "daemon.heartbeat", "metrics.failed"
    assert [line["event"] for line in logs] == [beat, failed, beat, beat, beat, failed]


async def test_beat_logs_a_warning_when_a_store_cannot_be_read(tmp_path: Path) -> None:
    async with open_monitored(tmp_path, rule("tea")) as monitored:
        episodes = FakeEpisodeLog()
        episodes.fault = StoreError("the disk is gone")
        monitored.heartbeat = monitored.heartbeat_on(episodes)

        line = await monitored.beat()

    assert line["event"] == "heartbeat.failed"
    assert line["message"] == "the disk is gone"


async def test_heartbeat_beats_until_it_is_stopped(tmp_path: Path) -> None:
    async with open_monitored(tmp_path) as monitored:
        with capture_logs() as logs:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await monitored.heartbeat.run(monitored.finished, every_seconds=0)

    assert [line["event"] for line in logs] == ["daemon.heartbeat"] * 2


async def test_beat_reports_the_database(tmp_path: Path) -> None:
    async with open_monitored(tmp_path) as monitored:
        sources = monitored.heartbeat_sources(monitored.memory)
        beating = Heartbeat(
            HealthCollector(replace(sources, database=lambda: WELL), monitored.clock).collect,
            monitored.clock,
        )
        with capture_logs() as logs:
            await beating.beat()

    assert logs[0]["database"] == {
        "daemons": 2,
        "unheld": 0,
        "unnumbered": 10,
        "unnumbered_seconds": 60.0,
        "requests": 0,
        "oldest_transaction_seconds": 600.0,
    }


def test_standby_logs_a_line_a_minute_and_writes_its_metrics() -> None:
    clock, written = FakeClock(at(0)), list[bytes]()
    standby = StandbyHeartbeat(clock, written.append)

    with capture_logs() as logs:
        standby.beat_if_due("a/1")
        clock.advance(MINUTE / 2)
        standby.beat_if_due("a/1")
        clock.advance(MINUTE / 2)
        standby.beat_if_due("b/2")

    assert [line["holder"] for line in logs] == ["a/1", "b/2"]
    assert [b"slumberd_standby 1" in text for text in written] == [True, True]
    assert b"slumberd_uptime_seconds 60" in written[1]


def test_standby_warns_once_of_a_textfile_that_it_cannot_write() -> None:
    def refuse(_: bytes) -> None:
        raise OSError("full")

    clock = FakeClock(at(0))
    standby = StandbyHeartbeat(clock, refuse)

    with capture_logs() as logs:
        for _ in range(3):
            standby.beat_if_due("a/1")
            clock.advance(MINUTE)

    assert [line["event"] for line in logs].count("metrics.failed") == 1


async def test_textfile_is_written_at_the_start_and_no_line_is(tmp_path: Path) -> None:
    written: list[bytes] = []
    stop = asyncio.Event()

    def write(text: bytes) -> None:
        written.append(text)
        stop.set()

    async with open_monitored(tmp_path, rule("tea")) as monitored:
        monitored.textfile = write
        monitored.heartbeat = monitored.heartbeat_on(monitored.memory)
        with capture_logs() as logs:
            await monitored.heartbeat.run(stop)

    assert len(written) == 1
    assert logs == []

"""The scheduler fires due rules, turn by turn, with a stopped clock and fake stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog

from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.errors import (
    DatabaseUnreachableError,
    FilterError,
    FiringTimeoutError,
    StaleWriterError,
    StoppedError,
    StoreBusyError,
    StoreError,
    StoreReplacedError,
)
from slumberd.model.firing import Firing, Position, Trigger
from slumberd.model.rule import ConsolidationRule
from slumberd.workers.scheduling.alarm import Alarm
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock, FakeEpisodeLog, FakeLedger
from tests.support.frozen_time import freeze_time
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

NOON = START
MINUTE = timedelta(minutes=1)
DAILY = {"cron": "0 3 * * *"}
MINUTELY = {"cron": "* * * * *"}
AT_03_00 = datetime(2026, 1, 2, 3, tzinfo=UTC)


class SchedulerHarness:
    """A scheduler with fake stores, whose firings can be made to fail.

    Attributes:
        fired: ``(rule id, trigger)`` of every firing that began.
        dues: The due rule of each firing.
        instants: The instant of each firing.
        faults: The errors that the firings of a rule raise.
        idle: Rules whose firings succeed without moving the watermark.
        most: How many log rows one firing consolidates.
        during: Called in the middle of every firing.
    """

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.episodes = FakeEpisodeLog()
        self.ledger = FakeLedger()
        self.fired: list[tuple[str, Trigger]] = []
        self.dues: list[Due] = []
        self.instants: list[datetime] = []
        self.faults: dict[str, Exception] = {}
        self.idle: set[str] = set()
        self.most = 1000
        self.during: Any = lambda: None
        self.stop = asyncio.Event()
        self.scheduler = Scheduler(
            clock=self.clock,
            episodes=self.episodes,
            watermarks=self.ledger,
            fire=self.fire,
            poll_seconds=0.001,
        )

    async def fire(self, rule: ConsolidationRule, due: Due, at: datetime) -> None:
        self.fired.append((rule.id, due.trigger))
        self.dues.append(due)
        self.instants.append(at)
        self.during()
        if rule.id in self.faults:
            raise self.faults[rule.id]
        if rule.id not in self.idle:
            await self.consolidate(rule, due.trigger, at)

    async def consolidate(self, rule: ConsolidationRule, trigger: Trigger, at: datetime) -> None:
        after = await self.ledger.position(rule.id) or Position()
        if await self.episodes.episode_at(after.seq) != (after.eid or None):
            after = Position()
        window = await self.episodes.select(rule, after=after, limit=self.most)
        firing = Firing(rule.id, rule.content_hash, trigger, at, after, window.upto)
        await self.ledger.apply_deltas(DeltaBatch(firing, {}))

    async def turn(self) -> list[str]:
        """Run one turn; return the ids of the rules that fired."""
        already = len(self.fired)
        await self.scheduler.turn(self.stop)
        return [rule_id for rule_id, _ in self.fired[already:]]

    async def prepare(self, *rules: ConsolidationRule) -> SchedulerHarness:
        """Run one turn with these rules, then clear the recorded firings and queries."""
        self.scheduler.replace(rules, "UTC")
        await self.turn()
        self.fired.clear()
        self.forget_queries()
        return self

    def forget_queries(self) -> None:
        self.episodes.queries.clear()
        self.ledger.queries.clear()


@pytest.fixture(autouse=True)
def capture_logs_quickly() -> Iterator[None]:
    """Render no tracebacks: rendering takes longer than the tests."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
async def harness() -> SchedulerHarness:
    return SchedulerHarness()


# rules that count


async def test_counting_rule_fires_when_enough_episodes_are_pending(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence={"every": 3}))
    harness.episodes.append("e1", "e2")
    assert await harness.turn() == []

    harness.episodes.append("e3")

    assert await harness.turn() == ["r1"]
    assert harness.fired == [("r1", "every")]
    assert harness.instants == [NOON]


async def test_new_counting_rule_reads_earlier_episodes(
    harness: SchedulerHarness,
) -> None:
    harness.episodes.append("e1", "e2")
    harness.scheduler.replace([rule("r1")], "UTC")

    await harness.turn()

    assert await harness.ledger.position("r1") == Position(2, "e2")


async def test_rule_that_starts_now_skips_history(harness: SchedulerHarness) -> None:
    harness.episodes.append("e1", "e2")
    harness.scheduler.replace([rule("r1", start="now")], "UTC")

    assert await harness.turn() == []
    assert await harness.ledger.position("r1") == Position(2, "e2")


async def test_restarted_scheduler_counts_earlier_pending_episodes(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence={"every": 3}))
    harness.episodes.append("e1", "e2")
    await harness.turn()
    later = SchedulerHarness()
    later.episodes, later.ledger = harness.episodes, harness.ledger
    later.episodes.append("e3")
    successor = Scheduler(
        clock=later.clock, episodes=later.episodes, watermarks=later.ledger, fire=later.fire
    )

    successor.replace([rule("r1", cadence={"every": 3})], "UTC")
    await successor.turn(later.stop)

    assert later.fired == [("r1", "every")]


async def test_start_of_a_rule_that_starts_now_is_durable(
    harness: SchedulerHarness,
) -> None:
    harness.episodes.append("e1")
    harness.scheduler.replace([rule("r1", start="now")], "UTC")

    await harness.turn()

    assert "fsync" in harness.episodes.queries


async def test_unchanged_log_costs_no_query(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(*(rule(f"r{n}") for n in range(1000)))

    await harness.turn()

    assert harness.episodes.queries == []
    assert harness.ledger.queries == []


async def test_scheduler_does_not_count_too_few_new_episodes(harness: SchedulerHarness) -> None:
    await harness.prepare(*(rule(f"r{n}", cadence={"every": 10}) for n in range(20)))
    harness.episodes.append_many(9)

    await harness.turn()

    assert harness.episodes.queries == ["newest"]
    assert harness.ledger.queries == ["positions", "future_of_rules", "held"]


async def test_rule_fires_until_it_is_not_due(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1"))
    harness.episodes.append("e1")
    arrivals = iter(["e2", "e3"])
    harness.during = lambda: harness.episodes.append(*(id for id in [next(arrivals, "")] if id))

    fired = await harness.turn()

    assert set(fired) == {"r1"}
    assert await harness.ledger.position("r1") == await harness.episodes.newest()


async def test_rule_fires_again_when_enough_episodes_are_left(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence={"every": 2}))
    harness.most = 2
    harness.episodes.append_many(5)

    assert await harness.turn() == ["r1", "r1"]
    assert await harness.ledger.position("r1") == Position(4, "e4")


async def test_due_rules_fire_in_order_of_their_ids(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("b"), rule("c"), rule("a"))
    harness.episodes.append("e1")

    assert await harness.turn() == ["a", "b", "c"]


async def test_disabled_rule_does_not_fire(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1", enabled=False), rule("r2", enabled=False, cadence=MINUTELY))
    harness.episodes.append("e1")
    harness.clock.advance(3600)
    harness.scheduler.nudge()

    assert await harness.turn() == []
    assert harness.ledger.queries == []


async def test_firing_that_moves_no_watermark_is_not_repeated_until_a_change(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1"))
    harness.idle.add("r1")
    harness.episodes.append("e1")
    assert await harness.turn() == ["r1"]
    harness.scheduler.nudge()
    assert await harness.turn() == []

    harness.episodes.append("e2")

    assert await harness.turn() == ["r1"]


async def test_restored_log_triggers_a_firing_that_moves_the_watermark_back(
    harness: SchedulerHarness,
) -> None:
    harness.episodes.append_many(5)
    await harness.prepare(rule("r1", cadence={"every": 2}))
    assert await harness.ledger.position("r1") == Position(5, "e5")

    harness.episodes.restore(3)

    assert await harness.turn() == ["r1"]
    assert await harness.ledger.position("r1") == Position(3, "e3")


@pytest.mark.parametrize("since", ["the last look", "the last start"])
@pytest.mark.parametrize("newer", [2, 3, 12])
async def test_restored_log_with_new_rows_is_read_from_the_last_common_row(
    harness: SchedulerHarness, newer: int, since: str
) -> None:
    counting = rule("r1", cadence={"every": 5})
    harness.episodes.append_many(5)
    await harness.prepare(counting)
    if since == "the last start":
        harness, before = SchedulerHarness(), harness
        harness.episodes, harness.ledger = before.episodes, before.ledger
        harness.scheduler = Scheduler(
            clock=harness.clock,
            episodes=harness.episodes,
            watermarks=harness.ledger,
            fire=harness.fire,
        )
        harness.scheduler.replace([counting], "UTC")

    harness.episodes.restore(3)
    harness.episodes.append(*(f"f{n}" for n in range(newer)))

    assert await harness.turn() == ["r1"], "although few episodes lie above the watermark"
    assert await harness.ledger.position("r1") == Position(3 + newer, f"f{newer - 1}")


async def test_rule_with_an_outdated_watermark_fires_before_others(
    harness: SchedulerHarness,
) -> None:
    harness.episodes.append_many(5)
    await harness.prepare(rule("ahead", cadence={"every": 5}))
    harness.scheduler.replace([rule("a-late"), rule("ahead", cadence={"every": 5})], "UTC")
    harness.episodes.restore(3)
    harness.episodes.append("f4", "f5", "f6")

    assert await harness.turn() == ["ahead", "a-late"]


async def test_grown_log_costs_one_row_look_up(harness: SchedulerHarness) -> None:
    rules = [rule(f"r{n}", cadence={"every": 5}) for n in range(9)]
    harness.episodes.append_many(4)
    await harness.prepare(*rules)
    harness.episodes.append("e5")
    await harness.prepare(*rules)
    harness.episodes.append("e6")

    await harness.turn()

    assert harness.episodes.queries.count("episode_at") == 1


# cron


async def test_cron_rule_does_not_fire_for_instants_before_its_first_turn(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))

    assert harness.fired == []
    assert await harness.ledger.served("r1") == NOON


async def test_cron_rule_fires_once_for_an_instant(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()

    assert await harness.turn() == ["r1"]
    harness.scheduler.nudge()
    assert await harness.turn() == []
    assert harness.fired == [("r1", "cron")]
    assert harness.instants == [AT_03_00]
    assert await harness.ledger.served("r1") == AT_03_00


@pytest.mark.parametrize(
    ("cadence", "passes"),
    [
        pytest.param(DAILY, timedelta(days=30), id="a month of nights"),
        pytest.param(DAILY, timedelta(hours=15, seconds=61), id="one night, a minute late"),
        pytest.param(MINUTELY, timedelta(days=366), id="a year of minutes"),
    ],
)
async def test_downtime_is_caught_up_in_one_firing(
    harness: SchedulerHarness, cadence: dict[str, Any], passes: timedelta
) -> None:
    await harness.prepare(rule("r1", cadence=cadence))
    harness.clock.set(NOON + passes)
    harness.scheduler.nudge()

    await harness.turn()

    assert harness.fired == [("r1", "catchup")]


async def test_catchup_logs_the_number_of_instants_and_the_lateness(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.clock.set(AT_03_00 + timedelta(days=2, minutes=5))
    harness.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        await harness.turn()

    assert logs == [
        {
            "event": "firing.served",
            "log_level": "info",
            "rule_id": "r1",
            "trigger": "catchup",
            "first": "2026-01-02T03:00:00.000000Z",
            "upto": "2026-01-04T03:00:00.000000Z",
            "missed_count": 3,
            "lateness_ms": 300_000,
        }
    ]


async def test_ledger_records_a_success_without_episodes_but_not_a_failure(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY), rule("r2", cadence=DAILY))
    harness.faults["r2"] = RuntimeError()
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()

    await harness.turn()

    assert harness.ledger.successes == {"r1": AT_03_00}


async def test_count_of_missed_instants_is_at_most_a_thousand(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1", cadence=MINUTELY))
    harness.clock.set(NOON + timedelta(days=30))
    harness.scheduler.nudge()

    await harness.turn()

    assert [due.missed for due in harness.dues] == [1_000]
    assert await harness.ledger.served("r1") == NOON + timedelta(days=30)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        pytest.param({"on_missed": "skip"}, "on_missed", id="missed instants are skipped"),
        pytest.param({"catchup_window": "1h"}, "catchup_window", id="too long ago"),
    ],
)
async def test_skipped_instants_are_logged_and_lose_no_episode(
    harness: SchedulerHarness, keys: dict[str, str], reason: str
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY, **keys))
    harness.episodes.append("e1")
    harness.clock.set(AT_03_00 + timedelta(days=1, hours=2))
    harness.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        assert await harness.turn() == []

    (line,) = logs
    assert (line["event"], line["reason"], line["missed_count"]) == ("firing.skipped", reason, 2)
    assert await harness.ledger.served("r1") == AT_03_00 + timedelta(days=1)
    harness.clock.advance(86_400 - 7_200)
    harness.scheduler.nudge()
    assert await harness.turn() == ["r1"]
    assert await harness.ledger.position("r1") == await harness.episodes.newest()


async def test_rule_that_waits_for_another_rule_is_not_skipped(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("a", cadence=DAILY), rule("b", cadence=DAILY, on_missed="skip"))
    harness.clock.advance(15 * 3_600)
    harness.during = lambda: harness.clock.advance(7_200)
    harness.scheduler.nudge()

    assert await harness.turn() == ["a", "b"]
    assert [due.missed for due in harness.dues] == [1, 1]


async def test_instants_during_a_firing_are_served_by_one_firing(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=MINUTELY))
    passes = iter([300.0])
    harness.during = lambda: harness.clock.advance(next(passes, 0))
    harness.clock.advance(60)
    harness.scheduler.nudge()

    assert await harness.turn() == ["r1", "r1"]
    assert [due.missed for due in harness.dues] == [1, 5]


async def test_each_instant_after_a_step_back_beyond_the_tolerance_fires_once(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    nights = [AT_03_00 + timedelta(days=day) for day in range(5)]
    for now in (nights[2], nights[0], nights[2], nights[3], nights[1], nights[4]):
        harness.clock.set(now)
        harness.scheduler.nudge()
        await harness.turn()

    assert [(due.since, due.upto, due.missed) for due in harness.dues] == [
        (nights[0], nights[2], 3),
        (nights[1], nights[2], 2),
        (nights[3], nights[3], 1),
        (nights[2], nights[4], 3),
    ]


async def test_no_instant_fires_twice_when_the_clock_moves_back_a_little(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()
    await harness.turn()

    harness.clock.set(AT_03_00 - timedelta(minutes=5))
    harness.scheduler.nudge()
    assert await harness.turn() == []
    harness.clock.set(AT_03_00 + timedelta(seconds=1))
    harness.scheduler.nudge()

    assert await harness.turn() == []


async def test_rules_fire_in_the_order_of_their_due_instants(harness: SchedulerHarness) -> None:
    await harness.prepare(
        rule("a", cadence={"cron": "0 4 * * *"}), rule("b", cadence=DAILY), rule("0")
    )
    harness.episodes.append("e1")
    harness.clock.set(AT_03_00 + timedelta(hours=2))
    harness.scheduler.nudge()

    assert await harness.turn() == ["b", "a", "0"]


@pytest.mark.parametrize(
    ("own", "hour"),
    [
        pytest.param(None, 2, id="the configured zone"),
        pytest.param("Asia/Tokyo", 18, id="the zone of the rule"),
    ],
)
async def test_cron_rule_uses_its_time_zone_or_the_configured_one(
    harness: SchedulerHarness, own: str | None, hour: int
) -> None:
    cadence = DAILY | ({"timezone": own} if own else {})
    harness.scheduler.replace([rule("r1", cadence=cadence)], "Europe/Berlin")
    await harness.turn()
    harness.clock.set(NOON + timedelta(days=1))
    harness.scheduler.nudge()

    await harness.turn()

    served = await harness.ledger.served("r1")
    assert served is not None
    assert served.hour == hour


async def test_invalid_cron_rule_does_not_stop_other_rules(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("bad", cadence={"cron": "no cron at all !"}), rule("good"))
    harness.episodes.append("e1")
    harness.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        fired = await harness.turn()

    assert fired == ["good"]
    assert [(line["event"], line["rule_id"]) for line in logs] == [("alarm.failed", "bad")]


# failures


async def test_logged_failure_has_the_first_500_characters_of_its_message(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = RuntimeError("m" * 501)
    harness.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await harness.turn()

    assert [line["message"] for line in logs if line["log_level"] != "debug"] == ["m" * 500]


async def test_failed_firing_is_logged_once_and_moves_no_watermark(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = RuntimeError("out of cheese")
    harness.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await harness.turn()

    (line,) = [line for line in logs if line["log_level"] != "debug"]
    assert line["event"] == "firing.failed"
    assert (line["rule_id"], line["error"], line["message"]) == (
        "r1",
        "RuntimeError",
        "out of cheese",
    )
    assert line["retry_seconds"] == pytest.approx(1, rel=0.2)
    assert line["retry_seconds"] == round(line["retry_seconds"], 3)
    assert "exc_info" not in line
    assert await harness.ledger.position("r1") == Position()


async def test_failing_rule_does_not_block_other_rules(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("bad"), rule("good"))
    harness.faults["bad"] = RuntimeError()
    for id in ("e1", "e2", "e3"):
        harness.episodes.append(id)
        await harness.turn()

    assert harness.fired == [
        ("bad", "every"),
        ("good", "every"),
        ("good", "every"),
        ("good", "every"),
    ]


async def test_failing_rule_retries_with_growing_pauses_then_waits_for_episodes(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence={"every": 2}))
    harness.faults["r1"] = RuntimeError()
    harness.episodes.append("e1", "e2")

    attempts = [second for second in range(200) if await tick(harness)]

    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps == [pytest.approx(1, abs=1), pytest.approx(5, abs=2), pytest.approx(25, abs=6)]
    harness.episodes.append("e3")
    assert await harness.turn() == []
    harness.episodes.append("e4")
    assert await harness.turn() == ["r1"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StoreBusyError("facts.db", 5.0), id="a lock"),
        pytest.param(StoreError("database or disk is full"), id="a full disk"),
        pytest.param(OSError(28, "No space left on device"), id="a full disk of the log"),
    ],
)
async def test_rule_is_retried_until_its_store_recovers(
    harness: SchedulerHarness, fault: Exception
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()
    harness.faults["r1"] = fault

    attempts = [second for second in range(400) if await tick(harness)]
    harness.faults.clear()
    for _ in range(75):
        await tick(harness)

    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps[3:] == [pytest.approx(60, abs=13)] * len(gaps[3:])
    assert len(gaps) > 6
    assert harness.scheduler.troubles.by_rule == {}
    assert await harness.ledger.served("r1") == AT_03_00


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FilterError("r1", "took too long"), id="a filter"),
        pytest.param(FiringTimeoutError("r1", 1.0), id="a timeout"),
    ],
)
async def test_rule_with_its_own_fault_stops_retrying(
    harness: SchedulerHarness, fault: Exception
) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = fault
    harness.episodes.append("e1")

    attempts = [second for second in range(300) if await tick(harness)]

    assert len(attempts) == 4


async def test_rule_that_fails_repeatedly_is_degraded_until_it_recovers(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1"), rule("r2"))
    harness.faults["r1"] = RuntimeError("out of cheese")
    harness.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            await tick(harness)
        trouble = harness.scheduler.troubles.by_rule["r1"]
        harness.faults.clear()
        for _ in range(60):
            await tick(harness)

    changes = [line for line in logs if line["event"].startswith("rule.")]
    assert [(line["event"], line["log_level"]) for line in changes] == [
        ("rule.degraded", "warning"),
        ("rule.recovered", "info"),
    ]
    assert (changes[0]["rule_id"], changes[0]["failures"]) == ("r1", 3)
    assert changes[0]["message"] == "out of cheese"
    assert (trouble.failures, trouble.since, trouble.degraded) == (3, NOON, True)
    assert harness.scheduler.troubles.by_rule == {}


async def test_single_failure_does_not_degrade_a_rule(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = RuntimeError()
    harness.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await harness.turn()
        harness.faults.clear()
        harness.clock.advance(2)
        await harness.turn()

    assert [line["event"] for line in logs if line["event"].startswith("rule.")] == []
    assert harness.scheduler.troubles.by_rule == {}


async def test_failures_are_kept_when_rules_are_replaced_but_not_for_removed_rules(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("a"), rule("b"))
    harness.faults |= {"a": RuntimeError(), "b": RuntimeError()}
    harness.episodes.append("e1")
    await harness.turn()

    harness.scheduler.replace([rule("b")], "UTC")

    assert list(harness.scheduler.troubles.by_rule) == ["b"]


async def tick(harness: SchedulerHarness) -> list[str]:
    """Run one turn, then advance the clock by a second."""
    fired = await harness.turn()
    harness.clock.advance(1)
    return fired


async def test_failed_cron_rule_fires_at_its_next_instant_when_retries_are_used_up(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.faults["r1"] = RuntimeError()
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()
    for _ in range(200):
        await tick(harness)
    assert len(harness.fired) == 4
    harness.faults.clear()
    harness.scheduler.nudge()
    assert await harness.turn() == []

    harness.clock.set(AT_03_00 + timedelta(days=1))
    harness.scheduler.nudge()

    assert await harness.turn() == ["r1"]
    assert harness.fired[-1] == ("r1", "catchup")


async def test_failed_firing_does_not_serve_its_instant(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1", cadence=DAILY))
    harness.faults["r1"] = RuntimeError()
    harness.clock.set(AT_03_00)
    harness.scheduler.nudge()

    await harness.turn()

    assert await harness.ledger.served("r1") == NOON


async def test_failed_rule_that_is_no_longer_due_is_not_retried(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = RuntimeError()
    harness.episodes.append("e1")
    await harness.turn()
    await harness.consolidate(rule("r1"), "manual", NOON)
    harness.clock.advance(10)
    await harness.turn()
    harness.forget_queries()

    harness.clock.advance(10)

    assert await harness.turn() == []
    assert harness.ledger.queries == []


async def test_failed_rule_is_retried_when_rules_are_replaced(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = RuntimeError()
    harness.episodes.append("e1")
    await harness.turn()
    harness.faults.clear()

    harness.scheduler.replace([rule("r1")], "UTC")

    assert await harness.turn() == ["r1"]


async def test_stopped_firing_is_not_a_failure(harness: SchedulerHarness) -> None:
    await harness.prepare(rule("r1"))
    harness.faults["r1"] = StoppedError("the daemon stops")
    harness.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await harness.turn()

    assert [line["event"] for line in logs] == ["firing.stopped"]


SUPERSEDED = [
    pytest.param(StaleWriterError("facts.db", 1, 2), id="by a daemon"),
    pytest.param(StoreReplacedError("facts.db", "is another file"), id="by a file"),
]


@pytest.mark.parametrize("fault", SUPERSEDED)
async def test_superseded_writer_ends_the_scheduler(
    harness: SchedulerHarness, fault: StoreError
) -> None:
    harness.scheduler.replace([rule("r1")], "UTC")
    harness.faults["r1"] = fault
    harness.episodes.append("e1")

    with pytest.raises(type(fault)):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await harness.scheduler.run(harness.stop)


async def test_rule_fires_when_an_unreadable_store_recovers(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r1"))
    harness.episodes.append("e1")
    harness.ledger.fault = StoreError("disk on fire")
    with pytest.raises(StoreError):
        await harness.turn()

    harness.ledger.fault = None

    assert await harness.turn() == ["r1"]


# run


async def test_run_fires_on_new_episodes_and_ends_when_stop_is_set(
    harness: SchedulerHarness,
) -> None:
    harness.scheduler.replace([rule("r1")], "UTC")
    harness.during = harness.stop.set
    harness.episodes.append("e1")

    async with asyncio.timeout(PATIENCE_SECONDS):
        await harness.scheduler.run(harness.stop)

    assert harness.fired == [("r1", "every")]
    assert harness.scheduler.firing is None


async def test_run_polls_for_new_episodes(harness: SchedulerHarness) -> None:
    harness.scheduler.replace([rule("r1")], "UTC")
    fired = asyncio.Event()
    harness.during = fired.set

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(harness.scheduler.run(harness.stop))
        await asyncio.sleep(0)
        harness.episodes.append("e1")
        await fired.wait()
        harness.stop.set()

    assert harness.fired == [("r1", "every")]


async def test_no_firing_begins_once_the_scheduler_is_stopping(harness: SchedulerHarness) -> None:
    harness.scheduler.replace([rule("a"), rule("b")], "UTC")
    harness.episodes.append("e1")
    harness.during = harness.stop.set

    async with asyncio.timeout(PATIENCE_SECONDS):
        await harness.scheduler.run(harness.stop)

    assert harness.fired == [("a", "every")]


async def test_run_ends_only_after_the_current_firing(harness: SchedulerHarness) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def fire(rule: ConsolidationRule, due: Due, at: datetime) -> None:
        begun.set()
        await let_go.wait()

    scheduler = Scheduler(
        clock=harness.clock, episodes=harness.episodes, watermarks=harness.ledger, fire=fire
    )
    scheduler.replace([rule("r1")], "UTC")
    harness.episodes.append("e1")
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(scheduler.run(harness.stop))
        await begun.wait()
        harness.stop.set()
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert done == set()
        assert scheduler.firing == "r1"

        let_go.set()
        await running

    assert scheduler.firing is None


async def test_stopping_does_not_wait_for_the_next_poll(harness: SchedulerHarness) -> None:
    scheduler = Scheduler(
        clock=harness.clock,
        episodes=harness.episodes,
        watermarks=harness.ledger,
        fire=harness.fire,
        poll_seconds=3600,
    )

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(scheduler.run(harness.stop))
        await asyncio.sleep(0)
        harness.stop.set()

    assert running.done()


async def test_nudge_does_not_wait_for_the_next_poll(harness: SchedulerHarness) -> None:
    scheduler = Scheduler(
        clock=harness.clock,
        episodes=harness.episodes,
        watermarks=harness.ledger,
        fire=harness.fire,
        poll_seconds=3600,
    )
    scheduler.replace([rule("r1", cadence=DAILY)], "UTC")
    await scheduler.turn(harness.stop)
    harness.during = harness.stop.set

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(scheduler.run(harness.stop))
        await asyncio.sleep(0)
        harness.clock.set(AT_03_00)
        scheduler.nudge()

    assert harness.fired == [("r1", "cron")]


async def test_rules_are_replaced_between_two_firings(harness: SchedulerHarness) -> None:
    harness.scheduler.replace([rule("a"), rule("b")], "UTC")
    harness.episodes.append("e1")
    harness.during = lambda: (
        harness.scheduler.replace([rule("c")], "UTC") if len(harness.fired) == 1 else None
    )

    await harness.turn()

    assert [rule_id for rule_id, _ in harness.fired] == ["a", "c"]


async def test_unreadable_store_pauses_the_loop(harness: SchedulerHarness, tmp_path: Path) -> None:
    harness.scheduler.replace([rule("r1")], "UTC")
    harness.episodes.append("e1")
    harness.episodes.fault = StoreBusyError(str(tmp_path / "memory.db"), 5)
    harness.during = harness.stop.set

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(harness.scheduler.run(harness.stop))
            await harness.episodes.failed.wait()
            harness.episodes.fault = None
            harness.clock.advance(1.1)

    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["look.failed"]
    assert harness.fired == [("r1", "every")]


async def test_pause_grows_with_each_failed_look_until_one_succeeds(
    harness: SchedulerHarness,
) -> None:
    busy = StoreBusyError("memory.db", 5)

    with structlog.testing.capture_logs() as logs:
        for harness.episodes.fault in (busy, busy, busy, busy, None, busy):
            await harness.scheduler._try_turn(harness.stop)

    assert [line["retry_seconds"] for line in logs] == [1.0, 5.0, 25.0, 25.0, 1.0]


async def test_server_that_is_away_is_tried_each_second_and_logged_rarely(
    harness: SchedulerHarness,
) -> None:
    away = DatabaseUnreachableError("postgresql://db/memory", "no route")
    paused: list[float] = []

    with structlog.testing.capture_logs() as logs:
        for harness.episodes.fault in [away] * 26:
            before = harness.clock.monotonic()
            await harness.scheduler._try_turn(harness.stop)
            paused.append(harness.scheduler._paused_until - before)

    assert set(paused) == {1.0}
    assert len(logs) == 2


async def test_alarm_wakes_the_scheduler(harness: SchedulerHarness) -> None:
    rules = [rule("r1", cadence=DAILY)]
    await harness.prepare(*rules)
    harness.during = harness.stop.set
    with freeze_time(NOON, real_asyncio=True) as frozen:
        async with (
            Alarm(harness.clock, harness.scheduler.nudge) as alarm,
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            alarm.arm(rules, "UTC")
            async with asyncio.TaskGroup() as group:
                group.create_task(harness.scheduler.run(harness.stop))
                harness.clock.set(AT_03_00)
                frozen.move_to(AT_03_00)
                alarm._scheduler.wakeup()

    assert harness.fired == [("r1", "cron")]


WRONG = datetime(2098, 1, 1, 0, 0, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(WRONG, id="decades ahead"),
        pytest.param(NOON + timedelta(hours=3), id="three hours ahead"),
        pytest.param(NOON + timedelta(seconds=301), id="just beyond the tolerance"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_each_instant_fires_once_after_a_wrong_clock_was_corrected(
    harness: SchedulerHarness, wrong: datetime, restarted: bool
) -> None:
    harness.clock.set(wrong)
    await harness.prepare(rule("r", cadence=MINUTELY))
    harness.clock.advance(61)
    harness.scheduler.nudge()
    assert await harness.turn() == ["r"]

    harness.clock.set(NOON)
    if restarted:
        harness.scheduler = Scheduler(
            clock=harness.clock,
            episodes=harness.episodes,
            watermarks=harness.ledger,
            fire=harness.fire,
        )
        harness.scheduler.replace([rule("r", cadence=MINUTELY)], "UTC")
    harness.dues.clear()
    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            harness.scheduler.nudge()
            await harness.turn()
            harness.clock.advance(30)

    assert [due.upto for due in harness.dues] == [NOON + n * MINUTE for n in range(1, 10)]
    ahead = [line for line in logs if line["event"] == "clock.ahead"]
    assert [line["rule_id"] for line in ahead] == ["r"]


async def test_served_instant_within_the_tolerance_never_fires_again(
    harness: SchedulerHarness,
) -> None:
    harness.clock.set(NOON + timedelta(seconds=240))
    await harness.prepare(rule("r", cadence=MINUTELY))

    harness.clock.set(NOON)
    harness.dues.clear()
    for _ in range(11):
        harness.scheduler.nudge()
        await harness.turn()
        harness.clock.advance(30)

    assert [due.upto for due in harness.dues] == [NOON + 5 * MINUTE]


async def test_rule_that_cannot_fire_loses_its_instant_of_a_wrong_clock(
    harness: SchedulerHarness,
) -> None:
    await harness.ledger.begin("paused", Position(), served=WRONG)

    await harness.prepare(rule("r", cadence=MINUTELY))

    assert await harness.ledger.served("paused") == NOON


async def test_rule_is_due_when_the_instant_of_a_quarantined_episode_comes(
    harness: SchedulerHarness,
) -> None:
    await harness.prepare(rule("r", cadence={"every": 100}), rule("other", cadence={"every": 100}))
    harness.ledger.future = {"r": {"e1": NOON + timedelta(hours=1)}}
    harness.idle = {"r"}
    harness.scheduler.nudge()
    assert await harness.turn() == []

    harness.clock.advance(3600 - 301)
    assert await harness.turn() == []
    harness.clock.advance(1)
    harness.during = harness.ledger.future["r"].clear

    assert await harness.turn() == ["r"]
    assert await harness.turn() == []


async def test_paused_or_held_rules_are_not_due_for_arrived_episodes(
    harness: SchedulerHarness,
) -> None:
    harness.ledger.future = {"gone": {"e1": NOON - timedelta(hours=1)}}

    await harness.prepare(rule("r", cadence={"every": 100}))
    harness.clock.advance(60)

    assert await harness.turn() == []
    assert harness.ledger.queries == []

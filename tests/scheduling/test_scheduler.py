"""When rules fire: driven turn by turn, with a stopped clock and stores in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
from freezegun import freeze_time

from slumberd.errors import (
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
from slumberd.scheduling.due import Due
from slumberd.scheduling.scheduler import Alarm, Scheduler
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock, FakeEpisodeLog, FakeLedger
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

NOON = START
DAILY = {"cron": "0 3 * * *"}
MINUTELY = {"cron": "* * * * *"}
AT_03_00 = datetime(2026, 1, 2, 3, tzinfo=UTC)


class Den:
    """A scheduler with everything it needs, and a firing that can be told to fail.

    Attributes:
        fired: ``(rule id, trigger)`` of every firing that was begun.
        dues: Why each of them was.
        instants: When each of them was.
        faults: What the firings of a rule raise.
        idle: Rules whose firings succeed and move nothing.
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
            ledger=self.ledger,
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
        await self.ledger.commit(firing, {})

    async def turn(self) -> list[str]:
        """Turn once; return the ids of the rules that fired."""
        already = len(self.fired)
        await self.scheduler.turn(self.stop)
        return [rule_id for rule_id, _ in self.fired[already:]]

    async def settled(self, *rules: ConsolidationRule) -> Den:
        """Let the scheduler meet these rules, and forget what came of it."""
        self.scheduler.replace(rules, "UTC")
        await self.turn()
        self.fired.clear()
        self.forget_queries()
        return self

    def forget_queries(self) -> None:
        self.episodes.queries.clear()
        self.ledger.queries.clear()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Render no tracebacks: that takes longer than all the rest."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
async def den() -> Den:
    return Den()


# rules that count


async def test_counting_rule_fires_when_enough_is_pending(den: Den) -> None:
    await den.settled(rule("r1", cadence={"every": 3}))
    den.episodes.append("e1", "e2")
    assert await den.turn() == []

    den.episodes.append("e3")

    assert await den.turn() == ["r1"]
    assert den.fired == [("r1", "every")]
    assert den.instants == [NOON]


async def test_counting_rule_reads_the_history_that_was_there_before_it(den: Den) -> None:
    den.episodes.append("e1", "e2")
    den.scheduler.replace([rule("r1")], "UTC")

    await den.turn()

    assert await den.ledger.position("r1") == Position(2, "e2")


async def test_rule_that_starts_now_skips_history(den: Den) -> None:
    den.episodes.append("e1", "e2")
    den.scheduler.replace([rule("r1", start="now")], "UTC")

    assert await den.turn() == []
    assert await den.ledger.position("r1") == Position(2, "e2")


async def test_restarted_scheduler_fires_what_was_pending(den: Den) -> None:
    await den.settled(rule("r1", cadence={"every": 3}))
    den.episodes.append("e1", "e2")
    await den.turn()
    later = Den()
    later.episodes, later.ledger = den.episodes, den.ledger
    later.episodes.append("e3")
    successor = Scheduler(
        clock=later.clock, episodes=later.episodes, ledger=later.ledger, fire=later.fire
    )

    successor.replace([rule("r1", cadence={"every": 3})], "UTC")
    await successor.turn(later.stop)

    assert later.fired == [("r1", "every")]


async def test_rule_that_starts_now_begins_where_the_log_ends_after_a_power_cut_too(
    den: Den,
) -> None:
    den.episodes.append("e1")
    den.scheduler.replace([rule("r1", start="now")], "UTC")

    await den.turn()

    assert "fsync" in den.episodes.queries


async def test_unchanged_log_costs_no_query_whatever_the_number_of_rules(den: Den) -> None:
    await den.settled(*(rule(f"r{n}") for n in range(1000)))

    await den.turn()

    assert den.episodes.queries == []
    assert den.ledger.queries == []


async def test_too_few_new_episodes_are_not_even_counted(den: Den) -> None:
    await den.settled(*(rule(f"r{n}", cadence={"every": 10}) for n in range(20)))
    den.episodes.append_many(9)

    await den.turn()

    assert den.episodes.queries == ["newest"]
    assert den.ledger.queries == ["positions", "held"]


async def test_rule_fires_until_nothing_is_due(den: Den) -> None:
    await den.settled(rule("r1"))
    den.episodes.append("e1")
    arrivals = iter(["e2", "e3"])
    den.during = lambda: den.episodes.append(*(id for id in [next(arrivals, "")] if id))

    fired = await den.turn()

    assert set(fired) == {"r1"}
    assert await den.ledger.position("r1") == await den.episodes.newest()


async def test_rule_fires_again_at_once_when_a_firing_left_enough_behind(den: Den) -> None:
    await den.settled(rule("r1", cadence={"every": 2}))
    den.most = 2
    den.episodes.append_many(5)

    assert await den.turn() == ["r1", "r1"]
    assert await den.ledger.position("r1") == Position(4, "e4")


async def test_due_rules_fire_in_order_of_their_ids(den: Den) -> None:
    await den.settled(rule("b"), rule("c"), rule("a"))
    den.episodes.append("e1")

    assert await den.turn() == ["a", "b", "c"]


async def test_disabled_rule_does_not_fire(den: Den) -> None:
    await den.settled(rule("r1", enabled=False), rule("r2", enabled=False, cadence=MINUTELY))
    den.episodes.append("e1")
    den.clock.advance(3600)
    den.scheduler.nudge()

    assert await den.turn() == []
    assert den.ledger.queries == []


async def test_firing_that_moves_nothing_is_not_repeated_until_something_changes(
    den: Den,
) -> None:
    await den.settled(rule("r1"))
    den.idle.add("r1")
    den.episodes.append("e1")
    assert await den.turn() == ["r1"]
    den.scheduler.nudge()
    assert await den.turn() == []

    den.episodes.append("e2")

    assert await den.turn() == ["r1"]


async def test_restored_log_is_fired_on_so_that_the_watermark_can_walk_back(den: Den) -> None:
    den.episodes.append_many(5)
    await den.settled(rule("r1", cadence={"every": 2}))
    assert await den.ledger.position("r1") == Position(5, "e5")

    den.episodes.restore(3)

    assert await den.turn() == ["r1"]
    assert await den.ledger.position("r1") == Position(3, "e3")


@pytest.mark.parametrize("since", ["the last look", "the last start"])
@pytest.mark.parametrize("newer", [2, 3, 12])
async def test_restored_log_that_has_grown_again_is_read_from_where_it_agrees(
    den: Den, newer: int, since: str
) -> None:
    effective_claims = rule("r1", cadence={"every": 5})
    den.episodes.append_many(5)
    await den.settled(effective_claims)
    if since == "the last start":
        den, before = Den(), den
        den.episodes, den.ledger = before.episodes, before.ledger
        den.scheduler = Scheduler(
            clock=den.clock, episodes=den.episodes, ledger=den.ledger, fire=den.fire
        )
        den.scheduler.replace([effective_claims], "UTC")

    den.episodes.restore(3)
    den.episodes.append(*(f"f{n}" for n in range(newer)))

    assert await den.turn() == ["r1"], "however few lie above the watermark"
    assert await den.ledger.position("r1") == Position(3 + newer, f"f{newer - 1}")


async def test_who_has_read_what_is_gone_fires_before_who_has_not(den: Den) -> None:
    den.episodes.append_many(5)
    await den.settled(rule("ahead", cadence={"every": 5}))
    den.scheduler.replace([rule("a-late"), rule("ahead", cadence={"every": 5})], "UTC")
    den.episodes.restore(3)
    den.episodes.append("f4", "f5", "f6")

    assert await den.turn() == ["ahead", "a-late"]


async def test_log_that_has_only_grown_is_asked_for_one_row(den: Den) -> None:
    rules = [rule(f"r{n}", cadence={"every": 5}) for n in range(9)]
    den.episodes.append_many(4)
    await den.settled(*rules)
    den.episodes.append("e5")
    await den.settled(*rules)
    den.episodes.append("e6")

    await den.turn()

    assert den.episodes.queries.count("episode_at") == 1


# cron


async def test_cron_rule_does_not_fire_for_instants_before_it_was_seen(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))

    assert den.fired == []
    assert await den.ledger.served("r1") == NOON


async def test_cron_rule_fires_once_for_an_instant_that_has_come(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.clock.set(AT_03_00)
    den.scheduler.nudge()

    assert await den.turn() == ["r1"]
    den.scheduler.nudge()
    assert await den.turn() == []
    assert den.fired == [("r1", "cron")]
    assert den.instants == [AT_03_00]
    assert await den.ledger.served("r1") == AT_03_00


@pytest.mark.parametrize(
    ("cadence", "passes"),
    [
        pytest.param(DAILY, timedelta(days=30), id="a month of nights"),
        pytest.param(DAILY, timedelta(hours=15, seconds=61), id="one night, a minute late"),
        pytest.param(MINUTELY, timedelta(days=366), id="a year of minutes"),
    ],
)
async def test_downtime_is_caught_up_in_one_firing(
    den: Den, cadence: dict[str, Any], passes: timedelta
) -> None:
    await den.settled(rule("r1", cadence=cadence))
    den.clock.set(NOON + passes)
    den.scheduler.nudge()

    await den.turn()

    assert den.fired == [("r1", "catchup")]


async def test_catching_up_says_how_many_and_how_late(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.clock.set(AT_03_00 + timedelta(days=2, minutes=5))
    den.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        await den.turn()

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


async def test_firing_with_nothing_to_do_is_a_success_and_a_failure_is_none(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY), rule("r2", cadence=DAILY))
    den.faults["r2"] = RuntimeError()
    den.clock.set(AT_03_00)
    den.scheduler.nudge()

    await den.turn()

    assert den.ledger.successes == {"r1": AT_03_00}


async def test_counting_what_was_missed_ends_at_a_thousand(den: Den) -> None:
    await den.settled(rule("r1", cadence=MINUTELY))
    den.clock.set(NOON + timedelta(days=30))
    den.scheduler.nudge()

    await den.turn()

    assert [due.missed for due in den.dues] == [1_000]
    assert await den.ledger.served("r1") == NOON + timedelta(days=30)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        pytest.param({"on_missed": "skip"}, "on_missed", id="missed ones are skipped"),
        pytest.param({"catchup_window": "1h"}, "catchup_window", id="too long ago"),
    ],
)
async def test_skipped_instants_are_told_and_lose_nothing(
    den: Den, keys: dict[str, str], reason: str
) -> None:
    await den.settled(rule("r1", cadence=DAILY, **keys))
    den.episodes.append("e1")
    den.clock.set(AT_03_00 + timedelta(days=1, hours=2))
    den.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        assert await den.turn() == []

    (line,) = logs
    assert (line["event"], line["reason"], line["missed_count"]) == ("firing.skipped", reason, 2)
    assert await den.ledger.served("r1") == AT_03_00 + timedelta(days=1)
    den.clock.advance(86_400 - 7_200)
    den.scheduler.nudge()
    assert await den.turn() == ["r1"]
    assert await den.ledger.position("r1") == await den.episodes.newest()


async def test_what_is_late_because_others_took_long_runs_all_the_same(den: Den) -> None:
    await den.settled(rule("a", cadence=DAILY), rule("b", cadence=DAILY, on_missed="skip"))
    den.clock.advance(15 * 3_600)
    den.during = lambda: den.clock.advance(7_200)
    den.scheduler.nudge()

    assert await den.turn() == ["a", "b"]
    assert [due.missed for due in den.dues] == [1, 1]


async def test_rule_that_is_due_many_times_while_it_runs_runs_once_more(den: Den) -> None:
    await den.settled(rule("r1", cadence=MINUTELY))
    passes = iter([300.0])
    den.during = lambda: den.clock.advance(next(passes, 0))
    den.clock.advance(60)
    den.scheduler.nudge()

    assert await den.turn() == ["r1", "r1"]
    assert [due.missed for due in den.dues] == [1, 5]


async def test_clock_that_jumps_ahead_and_back_serves_every_instant_once(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    nights = [AT_03_00 + timedelta(days=day) for day in range(5)]
    for now in (nights[2], nights[0], nights[2], nights[3], nights[1], nights[4]):
        den.clock.set(now)
        den.scheduler.nudge()
        await den.turn()

    assert [(due.since, due.upto, due.missed) for due in den.dues] == [
        (nights[0], nights[2], 3),
        (nights[3], nights[3], 1),
        (nights[4], nights[4], 1),
    ]


async def test_clock_that_steps_back_fires_nothing_twice(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.clock.set(AT_03_00)
    den.scheduler.nudge()
    await den.turn()

    den.clock.set(AT_03_00 - timedelta(hours=1))
    den.scheduler.nudge()
    assert await den.turn() == []
    den.clock.set(AT_03_00 + timedelta(seconds=1))
    den.scheduler.nudge()

    assert await den.turn() == []


async def test_what_came_due_first_fires_first(den: Den) -> None:
    await den.settled(rule("a", cadence={"cron": "0 4 * * *"}), rule("b", cadence=DAILY), rule("0"))
    den.episodes.append("e1")
    den.clock.set(AT_03_00 + timedelta(hours=2))
    den.scheduler.nudge()

    assert await den.turn() == ["b", "a", "0"]


@pytest.mark.parametrize(
    ("own", "hour"),
    [pytest.param(None, 2, id="the configured"), pytest.param("Asia/Tokyo", 18, id="its own")],
)
async def test_cron_rule_lives_in_a_time_zone(den: Den, own: str | None, hour: int) -> None:
    cadence = DAILY | ({"timezone": own} if own else {})
    den.scheduler.replace([rule("r1", cadence=cadence)], "Europe/Berlin")
    await den.turn()
    den.clock.set(NOON + timedelta(days=1))
    den.scheduler.nudge()

    await den.turn()

    served = await den.ledger.served("r1")
    assert served is not None
    assert served.hour == hour


async def test_cron_rule_that_cannot_be_read_stops_no_other(den: Den) -> None:
    await den.settled(rule("bad", cadence={"cron": "no cron at all !"}), rule("good"))
    den.episodes.append("e1")
    den.scheduler.nudge()

    with structlog.testing.capture_logs() as logs:
        fired = await den.turn()

    assert fired == ["good"]
    assert [(line["event"], line["rule_id"]) for line in logs] == [("alarm.failed", "bad")]


# failures


async def test_failed_firing_is_logged_once_and_moves_nothing(den: Den) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = RuntimeError("out of cheese")
    den.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await den.turn()

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
    assert await den.ledger.position("r1") == Position()


async def test_failing_rule_starves_no_other(den: Den) -> None:
    await den.settled(rule("bad"), rule("good"))
    den.faults["bad"] = RuntimeError()
    for id in ("e1", "e2", "e3"):
        den.episodes.append(id)
        await den.turn()

    assert den.fired == [("bad", "every"), ("good", "every"), ("good", "every"), ("good", "every")]


async def test_failing_rule_tries_again_later_and_later_then_waits_for_more(den: Den) -> None:
    await den.settled(rule("r1", cadence={"every": 2}))
    den.faults["r1"] = RuntimeError()
    den.episodes.append("e1", "e2")

    attempts = [second for second in range(200) if await tick(den)]

    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps == [pytest.approx(1, abs=1), pytest.approx(5, abs=2), pytest.approx(25, abs=6)]
    den.episodes.append("e3")
    assert await den.turn() == []
    den.episodes.append("e4")
    assert await den.turn() == ["r1"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StoreBusyError(Path("facts.db"), 5.0), id="a lock"),
        pytest.param(StoreError("database or disk is full"), id="a full disk"),
        pytest.param(OSError(28, "No space left on device"), id="a full disk of the log"),
    ],
)
async def test_rule_whose_store_fails_is_tried_until_the_store_is_well(
    den: Den, fault: Exception
) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.clock.set(AT_03_00)
    den.scheduler.nudge()
    den.faults["r1"] = fault

    attempts = [second for second in range(400) if await tick(den)]
    den.faults.clear()
    for _ in range(75):
        await tick(den)

    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps[3:] == [pytest.approx(60, abs=13)] * len(gaps[3:])
    assert len(gaps) > 6
    assert den.scheduler.troubles.by_rule == {}
    assert await den.ledger.served("r1") == AT_03_00


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FilterError("r1", "took too long"), id="a filter"),
        pytest.param(FiringTimeoutError("r1", 1.0), id="a timeout"),
    ],
)
async def test_rule_that_fails_by_itself_waits_for_its_next_turn(
    den: Den, fault: Exception
) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = fault
    den.episodes.append("e1")

    attempts = [second for second in range(300) if await tick(den)]

    assert len(attempts) == 4


async def test_rule_that_fails_again_and_again_is_degraded_until_it_recovers(den: Den) -> None:
    await den.settled(rule("r1"), rule("r2"))
    den.faults["r1"] = RuntimeError("out of cheese")
    den.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            await tick(den)
        trouble = den.scheduler.troubles.by_rule["r1"]
        den.faults.clear()
        for _ in range(60):
            await tick(den)

    told = [line for line in logs if line["event"].startswith("rule.")]
    assert [(line["event"], line["log_level"]) for line in told] == [
        ("rule.degraded", "warning"),
        ("rule.recovered", "info"),
    ]
    assert (told[0]["rule_id"], told[0]["failures"]) == ("r1", 3)
    assert told[0]["message"] == "out of cheese"
    assert (trouble.failures, trouble.since, trouble.degraded) == (3, NOON, True)
    assert den.scheduler.troubles.by_rule == {}


async def test_one_failure_is_no_degradation(den: Den) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = RuntimeError()
    den.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await den.turn()
        den.faults.clear()
        den.clock.advance(2)
        await den.turn()

    assert [line["event"] for line in logs if line["event"].startswith("rule.")] == []
    assert den.scheduler.troubles.by_rule == {}


async def test_trouble_outlives_new_rules_but_not_its_own(den: Den) -> None:
    await den.settled(rule("a"), rule("b"))
    den.faults |= {"a": RuntimeError(), "b": RuntimeError()}
    den.episodes.append("e1")
    await den.turn()

    den.scheduler.replace([rule("b")], "UTC")

    assert list(den.scheduler.troubles.by_rule) == ["b"]


async def tick(den: Den) -> list[str]:
    """Turn, then let a second pass."""
    fired = await den.turn()
    den.clock.advance(1)
    return fired


async def test_failed_cron_rule_fires_at_its_next_instant_when_retries_are_used_up(
    den: Den,
) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.faults["r1"] = RuntimeError()
    den.clock.set(AT_03_00)
    den.scheduler.nudge()
    for _ in range(200):
        await tick(den)
    assert len(den.fired) == 4
    den.faults.clear()
    den.scheduler.nudge()
    assert await den.turn() == []

    den.clock.set(AT_03_00 + timedelta(days=1))
    den.scheduler.nudge()

    assert await den.turn() == ["r1"]
    assert den.fired[-1] == ("r1", "catchup")


async def test_instant_is_not_served_by_a_firing_that_failed(den: Den) -> None:
    await den.settled(rule("r1", cadence=DAILY))
    den.faults["r1"] = RuntimeError()
    den.clock.set(AT_03_00)
    den.scheduler.nudge()

    await den.turn()

    assert await den.ledger.served("r1") == NOON


async def test_failed_rule_that_is_no_longer_due_is_left_alone(den: Den) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = RuntimeError()
    den.episodes.append("e1")
    await den.turn()
    await den.consolidate(rule("r1"), "manual", NOON)
    den.clock.advance(10)
    await den.turn()
    den.forget_queries()

    den.clock.advance(10)

    assert await den.turn() == []
    assert den.ledger.queries == []


async def test_new_rules_try_at_once_what_failed(den: Den) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = RuntimeError()
    den.episodes.append("e1")
    await den.turn()
    den.faults.clear()

    den.scheduler.replace([rule("r1")], "UTC")

    assert await den.turn() == ["r1"]


async def test_stopped_firing_is_no_failure(den: Den) -> None:
    await den.settled(rule("r1"))
    den.faults["r1"] = StoppedError("told to stop")
    den.episodes.append("e1")

    with structlog.testing.capture_logs() as logs:
        await den.turn()

    assert [line["event"] for line in logs] == ["firing.stopped"]


SUPERSEDED = [
    pytest.param(StaleWriterError(Path("facts.db"), 1, 2), id="by a daemon"),
    pytest.param(StoreReplacedError(Path("facts.db"), "is another file"), id="by a file"),
]


@pytest.mark.parametrize("fault", SUPERSEDED)
async def test_whoever_is_superseded_ends_the_scheduler(den: Den, fault: StoreError) -> None:
    den.scheduler.replace([rule("r1")], "UTC")
    den.faults["r1"] = fault
    den.episodes.append("e1")

    with pytest.raises(type(fault)):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await den.scheduler.run(den.stop)


async def test_unreadable_store_is_asked_again_and_nothing_is_forgotten(den: Den) -> None:
    await den.settled(rule("r1"))
    den.episodes.append("e1")
    den.ledger.fault = StoreError("disk on fire")
    with pytest.raises(StoreError):
        await den.turn()

    den.ledger.fault = None

    assert await den.turn() == ["r1"]


# run


async def test_run_fires_what_arrives_and_ends_when_told(den: Den) -> None:
    den.scheduler.replace([rule("r1")], "UTC")
    den.during = den.stop.set
    den.episodes.append("e1")

    async with asyncio.timeout(PATIENCE_SECONDS):
        await den.scheduler.run(den.stop)

    assert den.fired == [("r1", "every")]
    assert den.scheduler.firing is None


async def test_run_notices_new_episodes_by_itself(den: Den) -> None:
    den.scheduler.replace([rule("r1")], "UTC")
    fired = asyncio.Event()
    den.during = fired.set

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(den.scheduler.run(den.stop))
        await asyncio.sleep(0)
        den.episodes.append("e1")
        await fired.wait()
        den.stop.set()

    assert den.fired == [("r1", "every")]


async def test_no_firing_begins_once_the_scheduler_is_stopping(den: Den) -> None:
    den.scheduler.replace([rule("a"), rule("b")], "UTC")
    den.episodes.append("e1")
    den.during = den.stop.set

    async with asyncio.timeout(PATIENCE_SECONDS):
        await den.scheduler.run(den.stop)

    assert den.fired == [("a", "every")]


async def test_run_ends_only_after_the_firing_under_way(den: Den) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def fire(rule: ConsolidationRule, due: Due, at: datetime) -> None:
        begun.set()
        await let_go.wait()

    scheduler = Scheduler(clock=den.clock, episodes=den.episodes, ledger=den.ledger, fire=fire)
    scheduler.replace([rule("r1")], "UTC")
    den.episodes.append("e1")
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(scheduler.run(den.stop))
        await begun.wait()
        den.stop.set()
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert done == set()
        assert scheduler.firing == "r1"

        let_go.set()
        await running

    assert scheduler.firing is None


async def test_stopping_does_not_wait_for_the_next_poll(den: Den) -> None:
    scheduler = Scheduler(
        clock=den.clock,
        episodes=den.episodes,
        ledger=den.ledger,
        fire=den.fire,
        poll_seconds=3600,
    )

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(scheduler.run(den.stop))
        await asyncio.sleep(0)
        den.stop.set()

    assert running.done()


async def test_nudge_does_not_wait_for_the_next_poll(den: Den) -> None:
    scheduler = Scheduler(
        clock=den.clock,
        episodes=den.episodes,
        ledger=den.ledger,
        fire=den.fire,
        poll_seconds=3600,
    )
    scheduler.replace([rule("r1", cadence=DAILY)], "UTC")
    await scheduler.turn(den.stop)
    den.during = den.stop.set

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(scheduler.run(den.stop))
        await asyncio.sleep(0)
        den.clock.set(AT_03_00)
        scheduler.nudge()

    assert den.fired == [("r1", "cron")]


async def test_rules_are_swapped_between_two_firings(den: Den) -> None:
    den.scheduler.replace([rule("a"), rule("b")], "UTC")
    den.episodes.append("e1")
    den.during = lambda: den.scheduler.replace([rule("c")], "UTC") if len(den.fired) == 1 else None

    await den.turn()

    assert [rule_id for rule_id, _ in den.fired] == ["a", "c"]


async def test_store_that_cannot_be_read_pauses_the_loop(den: Den, tmp_path: Path) -> None:
    den.scheduler.replace([rule("r1")], "UTC")
    den.episodes.append("e1")
    den.episodes.fault = StoreBusyError(tmp_path / "memory.db", 5)
    den.during = den.stop.set

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(den.scheduler.run(den.stop))
            await den.episodes.failed.wait()
            den.episodes.fault = None
            den.clock.advance(1.1)

    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["look.failed"]
    assert den.fired == [("r1", "every")]


async def test_alarm_wakes_the_scheduler_which_fires(den: Den) -> None:
    rules = [rule("r1", cadence=DAILY)]
    await den.settled(*rules)
    den.during = den.stop.set
    with freeze_time(NOON, real_asyncio=True) as frozen:
        async with (
            Alarm(den.clock, den.scheduler.nudge) as alarm,
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            alarm.arm(rules, "UTC")
            async with asyncio.TaskGroup() as group:
                group.create_task(den.scheduler.run(den.stop))
                den.clock.set(AT_03_00)
                frozen.move_to(AT_03_00)
                alarm._scheduler.wakeup()

    assert den.fired == [("r1", "cron")]

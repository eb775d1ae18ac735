"""The alarm rings at each cron instant and after each jump of the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from slumberd.workers.scheduling.alarm import Alarm, CronTrigger
from tests.support.builders import START, at, rule
from tests.support.fakes import FakeClock
from tests.support.frozen_time import freeze_time
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

NOON = START
DAILY = {"cron": "0 3 * * *"}
AT_03_00 = datetime(2026, 1, 2, 3, tzinfo=UTC)


class Bell:
    """A bell that counts how often it rings."""

    def __init__(self) -> None:
        self.rung = 0
        self.ringing = asyncio.Event()

    def ring(self) -> None:
        self.rung += 1
        self.ringing.set()

    async def rings(self) -> None:
        """Wait for the next ring."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.ringing.wait()
        self.ringing.clear()


@pytest.fixture
async def bell() -> Bell:
    return Bell()


@pytest.fixture
async def alarm(bell: Bell) -> AsyncIterator[tuple[Alarm, FakeClock]]:
    clock = FakeClock(NOON)
    async with Alarm(clock, bell.ring) as alarm:
        yield alarm, clock


def jobs(alarm: Alarm) -> dict[str, str]:
    """Return the next instant of each rule."""
    return {job.id: job.next_run_time.isoformat() for job in alarm._scheduler.get_jobs()}


@pytest.mark.slow
async def test_alarm_rings_for_each_instant_even_if_late(bell: Bell) -> None:
    with freeze_time(NOON, real_asyncio=True) as frozen:
        async with Alarm(FakeClock(NOON), bell.ring) as alarm:
            alarm.arm([rule("r1", cadence=DAILY)], "UTC")
            for late in (timedelta(0), timedelta(days=1, hours=7), timedelta(days=9)):
                frozen.move_to(AT_03_00 + late)
                alarm._scheduler.wakeup()
                await bell.rings()

    assert bell.rung == 3


@pytest.mark.slow
async def test_alarm_is_set_for_enabled_cron_rules_in_their_time_zones(bell: Bell) -> None:
    rules = [
        rule("utc", cadence=DAILY),
        rule("tokyo", cadence=DAILY | {"timezone": "Asia/Tokyo"}),
        rule("off", cadence=DAILY, enabled=False),
        rule("count"),
    ]

    with freeze_time(NOON, real_asyncio=True):
        async with Alarm(FakeClock(NOON), bell.ring) as alarm:
            alarm.arm(rules, "UTC")
            expected = {"tokyo": "2026-01-01T18:00:00+00:00", "utc": "2026-01-02T03:00:00+00:00"}
            assert jobs(alarm) == expected

            alarm.arm(rules[:1], "Europe/Berlin")
            assert jobs(alarm) == {"utc": "2026-01-02T02:00:00+00:00"}


async def test_alarm_continues_after_an_invalid_rule(bell: Bell) -> None:
    rules = [rule("bad", cadence={"cron": "no cron at all !"}), rule("good", cadence=DAILY)]

    with freeze_time(NOON, real_asyncio=True) as frozen, structlog.testing.capture_logs() as logs:
        async with Alarm(FakeClock(NOON), bell.ring) as alarm:
            alarm.arm(rules, "UTC")
            frozen.move_to(AT_03_00)
            alarm._scheduler.wakeup()
            await bell.rings()

    assert [(line["event"], line["rule_id"]) for line in logs] == [("alarm.failed", "bad")]


def test_trigger_never_returns_an_earlier_instant() -> None:
    trigger = CronTrigger("r1", "0 3 * * *", "UTC")

    assert trigger.get_next_fire_time(AT_03_00, NOON) == AT_03_00 + timedelta(days=1)
    assert trigger.get_next_fire_time(NOON, AT_03_00) == AT_03_00 + timedelta(days=1)


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 2.5], ids=["forward", "back", "just enough"])
async def test_jump_of_the_wall_clock_rings_the_bell(
    alarm: tuple[Alarm, FakeClock], bell: Bell, jump: float
) -> None:
    sleeper, clock = alarm
    clock.advance(5)
    clock.set(at(5 + jump))

    with structlog.testing.capture_logs() as logs:
        sleeper.beat()

    assert [(line["event"], line["delta_seconds"]) for line in logs] == [("clock.jumped", jump)]
    assert bell.rung == 1
    sleeper.beat()
    assert bell.rung == 1


async def test_passing_time_is_not_a_jump(alarm: tuple[Alarm, FakeClock], bell: Bell) -> None:
    sleeper, clock = alarm
    clock.advance(86_400)
    clock.set(at(86_400 + 1.9))

    sleeper.beat()

    assert bell.rung == 0


async def test_alarm_is_set_again_after_the_clock_moves_back(bell: Bell) -> None:
    clock = FakeClock(NOON + timedelta(days=1))
    with freeze_time(NOON + timedelta(days=1), real_asyncio=True) as frozen:
        async with Alarm(clock, bell.ring) as alarm:
            alarm.arm([rule("r1", cadence=DAILY)], "UTC")
            frozen.move_to(NOON)
            clock.set(NOON)

            alarm.beat()

            assert jobs(alarm) == {"r1": AT_03_00.isoformat()}


async def test_heartbeat_runs_until_it_is_stopped(
    alarm: tuple[Alarm, FakeClock], bell: Bell
) -> None:
    sleeper, clock = alarm
    stop = asyncio.Event()

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(sleeper.heartbeat(stop, every_seconds=0.001))
        clock.set(at(100))
        await bell.rings()
        stop.set()

    assert bell.rung == 1


async def test_closed_alarm_does_not_ring(bell: Bell) -> None:
    with freeze_time(NOON, real_asyncio=True) as frozen:
        async with Alarm(FakeClock(NOON), bell.ring) as alarm:
            alarm.arm([rule("r1", cadence=DAILY)], "UTC")
            assert alarm._scheduler.running
        assert not alarm._scheduler.running
        frozen.move_to(AT_03_00 + timedelta(days=1))
        await alarm.close()
        await asyncio.sleep(0)

    assert bell.rung == 0

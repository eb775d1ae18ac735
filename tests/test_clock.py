"""The contract of clocks, and the system clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from slumberd.clock import Clock, SystemClock, synchronised_time
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.frozen_time import freeze_time

pytestmark = pytest.mark.unit


def test_system_clock_returns_utc_between_two_readings_of_the_machine() -> None:
    clock: Clock = SystemClock()
    before = datetime.now(UTC)  # noqa: TID251 - the expected value

    now = clock.now()

    assert now.tzinfo is UTC
    assert 0 <= (now - before).total_seconds() < 5


def test_orjson_encodes_the_system_clocks_datetimes_when_time_is_frozen() -> None:
    with freeze_time(START):
        now = SystemClock().now()

        assert type(now).__module__ == "datetime"
        assert orjson.loads(orjson.dumps(now)) == START.isoformat()


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_wall_clock_is_a_plain_utc_datetime(clock: Clock) -> None:
    now = clock.now()

    assert type(now) is datetime
    assert now.tzinfo is UTC


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_monotonic_clock_never_steps_back(clock: Clock) -> None:
    first, second = clock.monotonic(), clock.monotonic()

    assert first <= second


def test_fake_wall_clock_steps_back_without_the_monotonic_clock() -> None:
    clock = FakeClock()
    first = clock.monotonic()

    clock.set(START - timedelta(days=1))

    assert clock.now() < START
    assert clock.monotonic() == first


def test_kernel_gives_its_time_only_when_it_is_synchronised() -> None:
    found = synchronised_time()

    assert found is None or abs((found - SystemClock().now()).total_seconds()) < 3600

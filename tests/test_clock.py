"""The one reader of the time."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest
from freezegun import freeze_time

from slumberd.clock import Clock, SystemClock
from tests.support.builders import START

pytestmark = pytest.mark.unit


def test_system_clock_tells_utc_between_two_readings_of_the_machine() -> None:
    clock: Clock = SystemClock()
    before = datetime.now(UTC)  # noqa: TID251 - what it is compared with

    now = clock.now()

    assert now.tzinfo is UTC
    assert 0 <= (now - before).total_seconds() < 5


def test_system_clock_gives_plain_datetimes_to_orjson_also_when_time_is_frozen() -> None:
    with freeze_time(START):
        now = SystemClock().now()

        assert type(now).__module__ == "datetime"
        assert orjson.loads(orjson.dumps(now)) == START.isoformat()


def test_monotonic_clock_does_not_step_back() -> None:
    clock = SystemClock()

    first, second = clock.monotonic(), clock.monotonic()

    assert first <= second

"""Places of sliders and their instants, and the instants that people write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.errors import UsageError
from slumberd.web.console.time_range import (
    STEPS,
    TimeRange,
    instant_at,
    read_instant,
    write_instant,
)

NOW = datetime(2026, 11, 27, 8, 30, 15, tzinfo=UTC)
INSTANTS = st.datetimes(
    min_value=datetime(1980, 1, 1),  # noqa: DTZ001 # the strategy adds the time zone
    max_value=datetime(2026, 11, 27),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(INSTANTS)
def test_range_reaches_from_the_day_of_the_start_to_now(start: datetime) -> None:
    found = TimeRange.between(start, NOW)

    assert found.low <= start.timestamp()
    assert found.high == int(NOW.timestamp())
    assert found.high - found.low == STEPS * found.step
    assert found.low > start.timestamp() - 2 * 86_400 - STEPS


@given(INSTANTS, INSTANTS)
def test_place_is_the_nearest_step_to_an_instant(start: datetime, at: datetime) -> None:
    found = TimeRange.between(min(start, at), NOW)

    place = found.place_of(at)

    assert (place - found.low) % found.step == 0
    assert abs(place - at.timestamp()) <= found.step / 2


def test_instant_outside_of_the_range_is_at_its_end() -> None:
    found = TimeRange.between(NOW - timedelta(days=9), NOW)

    assert found.place_of(NOW - timedelta(days=900)) == found.low
    assert found.place_of(NOW + timedelta(days=900)) == found.high


def test_end_of_the_slider_means_now() -> None:
    high = int(NOW.timestamp())

    assert instant_at(high, high) is None
    assert instant_at(high + 1, high) is None
    assert instant_at(high - 15, high) == NOW - timedelta(seconds=15)
    assert TimeRange.between(NOW, NOW).place_of(None) == high


@pytest.mark.parametrize("place", [-(10**30), -(10**12)])
def test_place_that_is_no_instant_is_refused(place: int) -> None:
    with pytest.raises(UsageError, match="is no instant"):
        instant_at(place, 0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("2026-03-01", "2026-03-01T00:00:00Z", id="day"),
        pytest.param("2026-03-01 10:15", "2026-03-01T10:15:00Z", id="without an offset"),
        pytest.param("2026-03-01T10:15:00+02:00", "2026-03-01T08:15:00Z", id="offset"),
        pytest.param("2026-03-01T10:15:00.25Z", "2026-03-01T10:15:00.250000Z", id="fraction"),
    ],
)
def test_person_writes_an_instant_as_a_day_or_exactly(text: str, wanted: str) -> None:
    assert write_instant(read_instant("valid_at", text)) == wanted


@pytest.mark.parametrize("text", ["March", "2026-13-01", "0001-01-01T00:00+23:00", "9999-01-01"])
def test_text_that_is_no_instant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"valid_at: .* is not an instant; write 2026-03-01"):
        read_instant("valid_at", text)


def test_empty_field_is_no_instant() -> None:
    assert read_instant("valid_at", None) is None
    assert write_instant(None) == ""

"""Instants and dates are read in the forms that other programs write."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.interchange.instants import dates_in, end_of, read_instant

pytestmark = pytest.mark.unit

TEN = datetime(2025, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2025-01-01T10:00:00Z",
        "2025-01-01t10:00:00z",
        "2025-01-01T10:00:00Z[UTC]",
        "2025-01-01T11:00:00+01:00[Europe/Berlin]",
        "2025-01-01T11:00:00[Europe/Berlin]",
        "2025-01-01T10:00:00Z[Nowhere/Land]",
        "2025-01-01T10:00:00+0000",
        "2025-01-01 10:00:00.000+00",
        "2025-01-01T10:00:00.000000000Z",
        "2025-01-01 10:00:00 UTC",
        "Wed, 01 Jan 2025 10:00:00 GMT",
        " 2025-01-01T10:00Z ",
        1735725600,
        1735725600.0,
        1735725600000,
        "1735725600000",
        1735725600000000,
        1735725600000000000,
        {"$date": "2025-01-01T10:00:00Z"},
        {"$date": {"$numberLong": "1735725600000"}},
    ],
    ids=str,
)
def test_every_form_of_an_instant_is_read(value: object) -> None:
    assert read_instant(value) == TEN


@pytest.mark.parametrize(
    "value",
    [
        "", "May", "2025-13-01", 0, 7, True, None, [], {}, 1e30, float("nan"), float("inf"),
        "2025-01-01T10:00:00[Nowhere/Land]", "9" * 101, "0001-01-01T00:00:00[Asia/Tokyo]",
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_instant_is_an_error(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # any message
        read_instant(value)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["$date", "$numberLong"]), inner, max_size=1),
    max_leaves=4,
))  # fmt: skip
def test_no_value_raises_anything_else(value: Any) -> None:
    with suppress(ValueError):
        assert isinstance(read_instant(value), datetime)


def test_date_on_which_something_ends_is_its_last_day() -> None:
    assert end_of("2025-01-31") == datetime(2025, 2, 1, tzinfo=UTC)
    assert end_of("9999-12-31") == datetime.max.replace(tzinfo=UTC)
    assert end_of("2025-01-31T10:00:00Z").hour == 10


MAY = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2024-05-01-trip", 0),
        ("20240501", 0),
        ("2024_05_01 notes", 0),
        ("2024/05/01.md", 0),
        ("Met Bob (2024-05-01)", 0),
        ("1 May 2024", 0),
        ("Wednesday, May 1st, 2024", 0),
        ("01.05.2024: Besuch", 0),
        ("202405011000", 10),
        ("IMG_20240501100000", 10),
        ("2024-05-01T10-00-00-rollout", 10),
        ("2024-05-01 10:00", 10),
        ("2024-05-01T10:00:00+02:00", 8),
    ],
)
def test_date_in_a_name_or_heading_is_found(text: str, hours: int) -> None:
    assert [*dates_in(text)] == [MAY.replace(hour=hours)]


@pytest.mark.parametrize(
    "text",
    ["", "Notes", "v1.2024.05.01", "2024-13-01", "12024-05-01", "a20240501f", "2024", "May 2024",
     "99 May 2024", "10.99.2024", "05/01/2024", "12345678901234"],
)  # fmt: skip
def test_other_numbers_are_no_date(text: str) -> None:
    assert [*dates_in(text)] == []


def test_date_with_slashes_is_read_where_its_day_cannot_be_a_month() -> None:
    assert [*dates_in("12/25/2024")] == [*dates_in("25/12/2024")] == [*dates_in("2024-12-25")]


def test_later_date_is_none_on_which_a_text_was_written() -> None:
    assert [*dates_in("2024-05-01, due 2024-06-01", MAY)] == [MAY]


@given(st.text(max_size=40))
def test_any_text_has_dates_or_none(text: str) -> None:
    assert all(each.tzinfo is UTC for each in dates_in(text))

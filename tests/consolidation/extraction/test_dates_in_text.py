"""The dates that a text names, and relative dates that are written out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.normalisers import find_dates, parts_between, write_dates_out

MONDAY = 1_773_050_400_000_000
"""Monday, 9 March 2026, 10:00 UTC."""


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("see you tomorrow, or on Friday", [("2026-03-10",), ("2026-03-13",)]),
        ("the day after tomorrow", [("2026-03-11",)]),
        ("from 3 May 2026 to June 2026", [("2026-05-03",), ("2026-06",)]),
        ("in 1990.", [("1990",)]),
        ("in April", [("2025-04", "2026-04")]),
        ("in March", [("2026-03",)]),
        ("may I?", [("2025-05", "2026-05")]),
        ("nothing of the kind, 12 or 12345", []),
        ("", []),
    ],
)
def test_dates_of_a_text_are_found(text: str, dates: list[tuple[str, ...]]) -> None:
    assert [one.dates for one in find_dates(text, MONDAY)] == dates


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("dentist next Friday at ten", "dentist 2026-03-13 at ten"),
        ("dentist on Friday", "dentist on 2026-03-13"),
        ("tomorrow and in two weeks", "2026-03-10 and 2026-03-23"),
        ("a trip 3 days ago", "a trip 2026-03-06"),
        ("a trip next month", "a trip 2026-04"),
        ("a trip in April", "a trip in April"),
        ("a trip in March 2026", "a trip in March 2026"),
        ("Last Friday Night", "Last Friday Night"),
        ("Friday night football", "Friday night football"),
        ("", ""),
    ],
)
def test_relative_dates_are_written_out(text: str, written: str) -> None:
    assert write_dates_out(text, MONDAY) == written


def test_rest_of_a_text_has_no_words_that_lead_to_a_date() -> None:
    text = "trip (on 2026-03-13) to Rome, in 2027"

    assert parts_between(text, find_dates(text, MONDAY)) == ["trip", "to Rome"]


@given(
    st.lists(
        st.sampled_from(["next", "Friday", "on", "in", "two", "weeks", "ago", "May", "3", "2026",
                         "tomorrow", "tea", ",", "\u0130", "2026-03-13", "last", "year"]),
        max_size=9,
    ).map(" ".join),
    st.integers(-(10**17), 10**17),
)  # fmt: skip
@example("May", -62_135_596_800_000_001)
@example("May", -61_125_753_600_000_001)
@example("May", 253_402_300_799_000_000)
def test_any_text_can_be_read(text: str, at: int) -> None:
    found = find_dates(text, at)

    assert all(0 <= one.start < one.end <= len(text) and one.dates for one in found)
    assert all(one.end <= two.start for one, two in pairwise(found))
    assert write_dates_out(write_dates_out(text, at), at) == write_dates_out(text, at)
    assert all(part in text for part in parts_between(text, found))

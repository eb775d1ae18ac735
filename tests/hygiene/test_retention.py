"""Retention: an archived entry expires after its time, and not before."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.hygiene.decay import ArchivedEntry, find_expired
from slumberd.model.episode import microseconds
from tests.support.builders import START

pytestmark = pytest.mark.unit

NOW = microseconds(START)
DAY = 86_400

some_marks = st.lists(
    st.builds(ArchivedEntry, st.text(max_size=3), st.integers(NOW - 10**9, NOW + 10**9)),
    unique_by=lambda mark: mark.id,
)


def test_entry_expires_at_the_microsecond_of_its_time() -> None:
    limit = NOW - 30 * DAY * 1_000_000
    marks = [ArchivedEntry("kept", limit + 1), ArchivedEntry("expired", limit)]

    assert find_expired(marks, START, purge_after_seconds=30 * DAY) == ["expired"]


@pytest.mark.slow
@given(some_marks, st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_exactly_the_marks_that_are_old_enough_expire_oldest_first(
    marks: list[ArchivedEntry], duration: int, chance: random.Random
) -> None:
    old = [mark for mark in marks if NOW - mark.archived_at >= duration]

    expired = find_expired(
        chance.sample(marks, len(marks)), START, purge_after_seconds=duration / 1_000_000
    )

    assert expired == [m.id for m in sorted(old, key=lambda mark: (mark.archived_at, mark.id))]


def test_newest_mark_of_an_entry_counts() -> None:
    marks = [ArchivedEntry("e1", NOW), ArchivedEntry("e1", NOW - 10 * DAY * 1_000_000)]

    assert find_expired(marks, START, purge_after_seconds=DAY) == []


def test_mark_from_the_future_is_not_expired() -> None:
    assert find_expired([ArchivedEntry("e1", NOW + 1)], START, purge_after_seconds=0) == []


def test_duration_of_all_years_expires_nothing() -> None:
    assert find_expired([ArchivedEntry("e1", 0)], START, purge_after_seconds=1e308) == []


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_duration_out_of_bounds_is_an_error(seconds: float) -> None:
    with pytest.raises(ValueError, match="purge_after_seconds"):
        find_expired([], START, purge_after_seconds=seconds)

"""Importance: what is below the limit is archived, whatever the order of the entries."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.stages.decay import find_unimportant
from slumberd.consolidation.stages.entries import Archive, Entry

pytestmark = pytest.mark.unit

fractions = st.floats(0, 1)
some_entries = st.lists(
    st.builds(Entry, st.text(max_size=3), st.just("s1"), st.just("text"), st.integers(), fractions),
    unique_by=lambda entry: entry.id,
)


def entry(id: str, importance: float, *, at: int = 0) -> Entry:
    return Entry(id, "s1", "text", at, importance)


def test_entry_at_the_limit_is_kept() -> None:
    below = math.nextafter(0.1, 0)

    assert find_unimportant([entry("kept", 0.1), entry("low", below)]) == [
        Archive("low", "unimportant", below)
    ]


@pytest.mark.slow
@given(some_entries, fractions, st.randoms(use_true_random=False))
def test_exactly_the_entries_below_the_limit_are_archived_oldest_first(
    entries: list[Entry], below: float, chance: random.Random
) -> None:
    expected = [
        Archive(id, "unimportant", importance)
        for _, id, importance in sorted((e.at, e.id, e.importance) for e in entries)
        if importance < below
    ]

    assert find_unimportant(chance.sample(entries, len(entries)), below) == expected


@pytest.mark.parametrize("below", [-0.1, 1.1, math.nan])
def test_limit_out_of_bounds_is_an_error(below: float) -> None:
    with pytest.raises(ValueError, match="below"):
        find_unimportant([], below)


@pytest.mark.parametrize("importance", [-0.1, 99.0, math.nan])
def test_importance_out_of_bounds_is_an_error(importance: float) -> None:
    with pytest.raises(ValueError, match="importance of 'e1'"):
        find_unimportant([entry("e1", importance)])


def test_entry_that_is_given_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="entry 'e1' is given twice"):
        find_unimportant([entry("e1", 0.5), entry("e1", 0.5, at=1)])

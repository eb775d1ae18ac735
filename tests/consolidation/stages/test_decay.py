"""Decay and retention: the formula, its bounds, and when an archived entry expires."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from decimal import Decimal, localcontext

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slumberd.consolidation.stages.decay import (
    ArchivedEntry,
    archive_age,
    archive_before,
    find_decayed,
    find_expired,
    recency,
    reweighted,
)
from slumberd.consolidation.stages.entries import Archive, Entry, Reweight
from slumberd.model.episode import microseconds
from tests.support.builders import START

pytestmark = pytest.mark.unit

HOUR = 3_600.0
NOW = microseconds(START)
ANY_INSTANT = st.integers(-(10**400), 10**400)

fractions = st.floats(0, 1)
half_lives = st.floats(0, exclude_min=True, allow_infinity=False)
usual_half_lives = st.floats(1, 10 * 365 * 24 * HOUR)


def entry(id: str = "e1", *, age: float = 0.0, importance: float = 0.5) -> Entry:
    return Entry(id, "s1", "text", NOW - round(age * 1_000_000), importance)


def entries_of(instants: st.SearchStrategy[int]) -> st.SearchStrategy[list[Entry]]:
    return st.lists(
        st.builds(Entry, st.text(max_size=3), st.just("s1"), st.just("text"), instants, fractions),
        max_size=8,
        unique_by=lambda entry: entry.id,
    )


def exact_recency(age_seconds: float, half_life_seconds: float) -> Decimal:
    """The published formula, exp(-ln 2 * age / half-life), to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return (-Decimal(2).ln() * Decimal(age_seconds) / Decimal(half_life_seconds)).exp()


@given(st.floats(0, 1e12), usual_half_lives)
def test_recency_is_the_published_formula(age: float, half_life: float) -> None:
    assert recency(age, half_life) == pytest.approx(
        float(exact_recency(age, half_life)), rel=1e-9, abs=1e-300
    )


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), half_lives)
def test_recency_is_a_fraction_and_never_increases_with_age(
    one: float, other: float, half_life: float
) -> None:
    younger, older = sorted([one, other])

    assert 1 >= recency(younger, half_life) >= recency(older, half_life) >= 0


@pytest.mark.parametrize("halvings", range(8))
def test_recency_halves_exactly_with_each_half_life(halvings: int) -> None:
    assert recency(halvings * 12 * HOUR, 12 * HOUR) == 0.5**halvings


@given(st.floats(0, 1e12), usual_half_lives, fractions, fractions)
def test_entry_decays_exactly_when_the_formula_says_so(
    age: float, half_life: float, threshold: float, importance: float
) -> None:
    old = entry(age=age, importance=importance)
    score = exact_recency((NOW - old.at) / 1_000_000, half_life)
    assume(abs(score - Decimal(threshold)) > Decimal(threshold) * Decimal("1e-6"))

    decayed = find_decayed(
        [old],
        START,
        half_life_seconds=half_life,
        threshold=threshold,
        protect_importance=0.7,
    )

    assert bool(decayed) == (score < threshold and importance < 0.7)


def test_defaults_archive_after_four_and_a_third_days() -> None:
    limit = 24 * HOUR * math.log2(20)

    decayed = find_decayed([entry("old", age=limit + 1), entry("new", age=limit - 1)], START)

    [archive] = decayed
    assert archive == Archive("old", "decayed", archive.score)
    assert archive.score == pytest.approx(0.05, rel=1e-4)


def test_entry_at_the_threshold_is_kept() -> None:
    entries = [entry("at", age=HOUR), entry("after", age=HOUR + 0.000_001)]

    decayed = find_decayed(entries, START, half_life_seconds=HOUR, threshold=0.5)

    assert [archive.id for archive in decayed] == ["after"]


def test_entry_of_full_importance_never_decays() -> None:
    assert find_decayed([entry(age=1e12, importance=1.0)], START) == []


def test_entry_of_the_protected_importance_is_kept() -> None:
    entries = [entry("kept", age=1e9, importance=0.8), entry("old", age=1e9, importance=0.79)]

    decayed = find_decayed(entries, START, protect_importance=0.8)

    assert [archive.id for archive in decayed] == ["old"]


@given(st.floats(0, 1e9), fractions)
def test_entry_from_the_future_has_age_zero(ahead: float, threshold: float) -> None:
    future = entry(age=-ahead)

    assert find_decayed([future], START, threshold=threshold) == []
    assert reweighted([future], START) == []


@pytest.mark.slow
@given(
    entries_of(ANY_INSTANT),
    st.datetimes(timezones=st.just(UTC)),
    half_lives,
    fractions,
    fractions,
)
def test_store_that_selects_by_instant_finds_all_that_decays(
    entries: list[Entry], at: datetime, half_life: float, threshold: float, protect: float
) -> None:
    before = archive_before(at, half_life_seconds=half_life, threshold=threshold)
    selected = {
        entry.id
        for entry in entries
        if before is not None and entry.at < before and entry.importance < protect
    }

    decayed = find_decayed(
        entries,
        at,
        half_life_seconds=half_life,
        threshold=threshold,
        protect_importance=protect,
    )

    assert {archive.id for archive in decayed} == selected
    assert all(0 <= archive.score <= 1 for archive in decayed)


@given(usual_half_lives, st.floats(1e-9, 1), st.floats(1e-6, 100))
def test_archive_age_separates_kept_from_decayed(
    half_life: float, threshold: float, share: float
) -> None:
    limit = archive_age(half_life, threshold)
    age = limit * share
    assume(abs(age - limit) > 1e-3)

    decayed = find_decayed(
        [entry(age=age)], START, half_life_seconds=half_life, threshold=threshold
    )

    assert bool(decayed) == (age > limit)


def test_archive_age_of_threshold_zero_is_infinite() -> None:
    assert archive_age(HOUR, 0.0) == math.inf
    assert archive_before(START, half_life_seconds=HOUR, threshold=0.0) is None


def test_archive_age_of_threshold_one_is_zero() -> None:
    assert str(archive_age(HOUR, 1.0)) == "0.0"


@pytest.mark.slow
@given(entries_of(ANY_INSTANT), st.randoms(use_true_random=False))
def test_decisions_do_not_depend_on_the_order(entries: list[Entry], chance: random.Random) -> None:
    shuffled = chance.sample(entries, len(entries))

    assert find_decayed(shuffled, START) == find_decayed(entries, START)
    assert reweighted(shuffled, START) == reweighted(entries, START)


@pytest.mark.slow
@given(entries_of(ANY_INSTANT))
def test_decay_of_what_is_left_archives_nothing(entries: list[Entry]) -> None:
    gone = {archive.id for archive in find_decayed(entries, START)}

    assert find_decayed([entry for entry in entries if entry.id not in gone], START) == []


@given(st.floats(0, 1e9), fractions, fractions, usual_half_lives)
def test_reweighted_importance_is_the_published_formula(
    age: float, importance: float, floor: float, half_life: float
) -> None:
    old = entry(age=age, importance=importance)
    halvings = (NOW - old.at) / 1_000_000 / half_life
    expected = max(importance * math.exp(-math.log(2) * halvings), min(floor, importance))

    weights = reweighted([old], START, half_life_seconds=half_life, floor=floor)

    found = weights[0].importance if weights else importance
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert found <= importance


def test_reweighted_lists_only_what_changes() -> None:
    entries = [
        entry("new"),
        entry("week", age=168 * HOUR, importance=0.8),
        entry("old", age=1e9, importance=0.8),
        entry("floor", age=1e8, importance=0.005),
    ]

    assert reweighted(entries, START) == [Reweight("old", 0.01), Reweight("week", 0.4)]


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.inf, math.nan])
def test_half_life_out_of_bounds_is_an_error(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life_seconds"):
        recency(1.0, half_life)
    with pytest.raises(ValueError, match="half_life_seconds"):
        find_decayed([], START, half_life_seconds=half_life)
    with pytest.raises(ValueError, match="half_life_seconds"):
        reweighted([], START, half_life_seconds=half_life)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_fraction_out_of_bounds_is_an_error(fraction: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        find_decayed([], START, threshold=fraction)
    with pytest.raises(ValueError, match="protect_importance"):
        find_decayed([], START, protect_importance=fraction)
    with pytest.raises(ValueError, match="floor"):
        reweighted([], START, floor=fraction)


def test_age_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="age_seconds"):
        recency(math.nan, HOUR)


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

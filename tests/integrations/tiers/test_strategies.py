"""The strategies of the tiered memory API: bounds, owners, and what is never merged."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.tiers import (
    AccessFrequencyStrategy,
    DeduplicationStrategy,
    MemoryEntry,
    RecencyDecayStrategy,
    TimeDecayStrategy,
)
from tests.support.builders import START
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.unit


def entry(id: str = "e1", content: str = "Ann likes tea", **fields: Any) -> MemoryEntry:
    return MemoryEntry(id, content, "user", fields.pop("timestamp", START), **fields)


def aged(hours: float, **fields: Any) -> MemoryEntry:
    return entry(timestamp=START - timedelta(hours=hours), **fields)


def ids(entries: list[MemoryEntry]) -> list[str]:
    return [one.id for one in entries]


@pytest.mark.parametrize("importance", [-0.1, 1.1, 99, math.nan])
def test_importance_out_of_bounds_is_refused(importance: float) -> None:
    with pytest.raises(ValueError, match="importance of entry 'e1'"):
        entry(importance=importance)


def test_naive_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="timestamp of entry 'e1' is naive"):
        entry(timestamp=datetime(2026, 1, 1))  # noqa: DTZ001 # what is refused


def test_low_importance_is_pruned_below_the_threshold_only() -> None:
    strategy = AccessFrequencyStrategy()
    low, edge, high = (entry(f"e{n}", importance=n / 20) for n in (1, 2, 3))

    assert strategy.filter([high, low, edge]) == ([high, edge], [low])
    assert [strategy.should_prune(one) for one in (low, edge, high)] == [True, False, False]


def test_recency_is_pruned_below_the_threshold_only() -> None:
    strategy = RecencyDecayStrategy(clock=FakeClock())
    hours = 24 * math.log2(20)  # the recency is 0.05

    assert not strategy.should_prune(aged(hours - 0.001))
    assert strategy.should_prune(aged(hours + 0.001))
    assert not strategy.should_prune(aged(-9_999))


def test_no_importance_protects_by_default() -> None:
    old = entry(timestamp=datetime(2000, 1, 1, tzinfo=UTC), importance=1.0)

    assert RecencyDecayStrategy().should_prune(old)
    assert not RecencyDecayStrategy(protect_importance=1.0).should_prune(old)


def test_important_entry_is_protected_from_decay() -> None:
    strategy = RecencyDecayStrategy(protect_importance=0.8, clock=FakeClock())
    kept, pruned = strategy.filter([aged(9_999, id="a", importance=0.8), aged(9_999, id="b")])

    assert (ids(kept), ids(pruned)) == (["a"], ["b"])


def test_clock_is_read_once_for_all_entries() -> None:
    readings = []

    class Counting(FakeClock):
        def now(self) -> datetime:
            readings.append(1)
            return super().now()

    strategy = RecencyDecayStrategy(clock=Counting())
    readings.clear()
    strategy.filter([aged(n, id=str(n)) for n in range(9)])

    assert len(readings) == 1


@pytest.mark.parametrize(
    ("left", "right", "merged"),
    [
        ("likes dogs but not cats", "likes cats but not dogs", False),
        ("10 EUR", "10 EUR.", True),
        ("10 EUR", "20 EUR", False),
        ("", "", True),
        ("我喜欢茶", "我喜欢茶", True),
        ("我喜欢茶", "我讨厌茶", False),
    ],
)
def test_texts_are_merged_only_when_they_say_the_same(left: str, right: str, merged: bool) -> None:
    kept, duplicates = DeduplicationStrategy().deduplicate([entry("a", left), entry("b", right)])

    assert (ids(kept), ids(duplicates)) == ((["a"], ["b"]) if merged else (["a", "b"], []))


def test_entries_of_different_owners_are_never_merged() -> None:
    entries = [entry("a", owner_id="ann"), entry("b", owner_id="bob"), entry("c", owner_id="ann")]

    kept, duplicates = DeduplicationStrategy().deduplicate(entries)

    assert (ids(kept), ids(duplicates)) == (["a", "b"], ["c"])


def test_different_triples_are_never_merged() -> None:
    entries = [entry(id, metadata={"subject": "ann", "object": id}) for id in "ab"]

    assert DeduplicationStrategy().deduplicate(entries)[1] == []


def test_first_of_the_list_is_kept_with_the_highest_importance() -> None:
    entries = [
        entry("new", importance=0.2),
        entry("old", importance=0.9, timestamp=START - timedelta(days=1)),
        entry("other", "Bob sells cars", importance=0.3),
    ]

    kept, duplicates = DeduplicationStrategy().deduplicate(entries)

    assert [(one.id, one.importance) for one in kept] == [("new", 0.9), ("other", 0.3)]
    assert ids(duplicates) == ["old"]


@pytest.mark.slow
@given(
    st.lists(
        st.builds(
            entry,
            st.sampled_from("abcdef"),
            st.sampled_from(["tea", "milk", "cake"]),
            importance=st.floats(0, 1),
            owner_id=st.sampled_from("xy"),
        ),
        max_size=9,
    )
)
def test_no_entry_is_lost_by_deduplication(entries: list[MemoryEntry]) -> None:
    kept, duplicates = DeduplicationStrategy().deduplicate(entries)

    assert len(kept) + len(duplicates) == len(entries)
    texts = {(one.owner_id, one.content): one.importance for one in kept}
    assert len(texts) == len(kept)
    for one in entries:
        assert texts[one.owner_id, one.content] >= one.importance


def test_importance_decays_with_age_and_orders_the_entries() -> None:
    week = 168.0
    entries = [
        aged(week, id="old", importance=0.8),
        aged(0, id="new", importance=0.5),
        aged(99 * week, id="ancient", importance=0.9),
        aged(99 * week, id="poor", importance=0.001),
        aged(-5, id="future", importance=0.45),
    ]

    found = TimeDecayStrategy(clock=FakeClock()).apply(entries)

    assert [one.id for one in found] == ["new", "future", "old", "ancient", "poor"]
    assert [one.importance for one in found] == pytest.approx([0.5, 0.45, 0.4, 0.01, 0.001])


@pytest.mark.parametrize(
    "make",
    [
        lambda: AccessFrequencyStrategy(1.5),
        lambda: RecencyDecayStrategy(0),
        lambda: RecencyDecayStrategy(threshold=2),
        lambda: RecencyDecayStrategy(protect_importance=-1),
        lambda: DeduplicationStrategy(0),
        lambda: DeduplicationStrategy(method="best"),  # type: ignore[arg-type] # refused
        lambda: TimeDecayStrategy(-1),
        lambda: TimeDecayStrategy(floor=2),
    ],
)
def test_parameter_out_of_bounds_is_refused_at_once(make: Any) -> None:
    with pytest.raises(ValueError, match="not"):
        make()


def test_system_clock_is_the_default() -> None:
    assert RecencyDecayStrategy().should_prune(entry(timestamp=datetime(2000, 1, 1, tzinfo=UTC)))

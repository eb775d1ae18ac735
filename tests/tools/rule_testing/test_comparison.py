"""The comparison checks only the expected keys and accepts entries in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slumberd.tools.rule_testing.comparison import Entry, Line, compare

pytestmark = pytest.mark.unit

KEYS = ("episode", "rule", "kind", "replaces")


def _delta(episode: str, kind: str = "add", **more: Any) -> Entry:
    return {"episode": episode, "rule": "tea", "channel": "facts", "kind": kind, **more}


def _agree(lines: list[Line]) -> bool:
    return all(line.same for line in lines)


def test_comparison_ignores_keys_that_are_not_expected() -> None:
    lines = compare("deltas", [{"episode": "e1"}], [_delta("e1", "noop", reason="stale")])

    assert _agree(lines)


def test_comparison_lists_unexpected_entries_last() -> None:
    lines = compare("deltas", [{"episode": "e2"}], [_delta("e1"), _delta("e2"), _delta("e3")])

    assert lines == [
        Line({"episode": "e2"}, _delta("e2")),
        Line(None, _delta("e1")),
        Line(None, _delta("e3")),
    ]


def test_comparison_pairs_differing_entries_and_names_their_keys() -> None:
    expected = {"episode": "e1", "kind": "add", "replaces": []}
    got = _delta("e1", "update", replaces=["e0"])

    assert compare("deltas", [expected], [_delta("e0"), got]) == [
        Line(expected, got, ("kind", "replaces")),
        Line(None, _delta("e0")),
    ]


def test_comparison_does_not_pair_deltas_of_different_rules() -> None:
    expected = {"episode": "e1", "rule": "coffee", "kind": "add"}

    assert compare("deltas", [expected], [_delta("e1")]) == [
        Line(expected, None),
        Line(None, _delta("e1")),
    ]


def test_comparison_pairs_a_fact_without_id_with_the_most_similar_one() -> None:
    expected = {"subject": "alice", "predicate": "likes", "object": "tea"}
    home = {"id": "e1", "subject": "alice", "predicate": "lives_in", "object": "Porto"}
    taste = {"id": "e2", "subject": "alice", "predicate": "likes", "object": "coffee"}

    assert compare("facts", [expected], [home, taste]) == [
        Line(expected, taste, ("object",)),
        Line(None, home),
    ]


def test_comparison_does_not_pair_facts_without_equal_keys() -> None:
    lines = compare("facts", [{"object": "tea"}], [{"id": "e1", "object": "coffee"}])

    assert [line.got for line in lines] == [None, {"id": "e1", "object": "coffee"}]


def test_general_expectation_leaves_a_specific_one_its_only_match() -> None:
    facts = [{"id": "e1", "object": "tea"}, {"id": "e2", "object": "tea"}]
    wide, narrow = {"object": "tea"}, {"id": "e1"}

    assert _agree(compare("facts", [wide, narrow], facts))
    assert _agree(compare("facts", [narrow, wide], facts))


def test_comparison_finds_the_largest_matching() -> None:
    got = [{"id": f"e{n}", "object": n, "content": n + 1} for n in range(3)]
    expected = [{"object": 0}, {"content": 1}, {"content": 2}]

    assert not _agree(compare("facts", expected, got))
    assert _agree(compare("facts", [{}, {"object": 0}, {"content": 2}], got))


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        pytest.param(None, None, True, id="nothing"),
        pytest.param(1, True, False, id="number and truth"),
        pytest.param(1, 1.0, False, id="whole number and fraction"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="order of keys"),
        pytest.param(["a", "b"], ["b", "a"], False, id="order of entries"),
        pytest.param("tea", "Tea", False, id="case"),
    ],
)
def test_objects_are_equal_when_their_canonical_json_is(
    expected: object, got: object, same: bool
) -> None:
    lines = compare("facts", [{"id": "e1", "object": expected}], [{"id": "e1", "object": got}])

    assert _agree(lines) is same


def test_missing_key_is_null() -> None:
    assert _agree(compare("facts", [{"id": "e1", "object": None}], [{"id": "e1"}]))


entries = st.fixed_dictionaries(
    {
        "episode": st.sampled_from(["e1", "e2", "e3"]),
        "rule": st.sampled_from(["tea", "coffee"]),
        "kind": st.sampled_from(["add", "update", "noop"]),
        "replaces": st.sampled_from([[], ["e1"], ["e1", "e2"]]),
    }
)
masks = st.sets(st.sampled_from(KEYS))


def _select_keys(entry: Entry, keys: set[str]) -> Entry:
    return {key: entry[key] for key in KEYS if key in keys}


@st.composite
def matching_entries(draw: st.DrawFn) -> tuple[list[Entry], list[Entry]]:
    """Return actual entries, and some keys of each in another order as expected."""
    got: list[Entry] = [*draw(st.lists(entries, max_size=8))]
    expected = [_select_keys(entry, draw(masks)) for entry in got]
    return draw(st.permutations(expected)), got


@pytest.mark.slow
@given(matching_entries())
def test_subset_of_the_entries_matches_in_any_order(
    both: tuple[list[Entry], list[Entry]],
) -> None:
    expected, got = both

    assert _agree(compare("deltas", expected, got))


@pytest.mark.slow
@given(matching_entries(), st.data())
def test_missing_or_additional_entry_always_differs(
    both: tuple[list[Entry], list[Entry]], data: st.DataObject
) -> None:
    expected, got = both
    assume(got)
    gone = data.draw(st.integers(0, len(got) - 1))

    assert not _agree(compare("deltas", expected, got[:gone] + got[gone + 1 :]))
    assert not _agree(compare("deltas", expected[:gone] + expected[gone + 1 :], got))


@pytest.mark.slow
@given(st.lists(entries, min_size=1, max_size=8), st.data())
def test_one_altered_value_always_differs(got: list[Entry], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(got) - 1))
    key = data.draw(st.sampled_from(KEYS))
    altered = [dict(entry) for entry in got]
    altered[number][key] = "another"

    assert not _agree(compare("deltas", altered, got))


@given(st.lists(entries, max_size=6), st.lists(entries, max_size=6))
def test_every_entry_has_exactly_one_line(expected: list[Entry], got: list[Entry]) -> None:
    lines = compare("deltas", expected, got)

    entries_got = [line.got for line in lines if line.got is not None]
    assert [line.expected for line in lines if line.expected is not None] == expected
    assert sorted(map(repr, entries_got)) == sorted(map(repr, got))
    assert all(line.got is not None for line in lines if line.differing)

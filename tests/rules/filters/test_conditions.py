"""A filter is split into conditions that together mean what the filter means."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.rules.filters.conditions import MOST_CONDITIONS, condition_of, describe_unmet
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.unit, pytest.mark.sampled]

STARTER = "(predicate IS NOT NULL AND confidence >= 0.5) OR intent IS NOT NULL"
NOTHING_STATED = {"subject", "predicate", "object", "intent"}


def lacking(fragment: str, *unmet: str, unstated: set[str] = NOTHING_STATED) -> list[str]:
    condition = condition_of(fragment)
    assert condition is not None
    return describe_unmet(condition, unmet, unstated)


@pytest.mark.parametrize(
    ("fragment", "unmet", "words"),
    [
        pytest.param(
            "predicate IS NOT NULL", ["predicate IS NOT NULL"], ["a predicate"], id="a column"
        ),
        pytest.param("predicate LIKE 'a%'", ["predicate LIKE 'a%'"], ["a predicate"], id="a LIKE"),
        pytest.param(
            STARTER,
            ["predicate IS NOT NULL", "intent IS NOT NULL"],
            ["a predicate, or an intent"],
            id="one of two",
        ),
        pytest.param(
            "subject = 'a' AND predicate = 'b' AND length(content) > 3",
            ["subject = 'a'", "predicate = 'b'"],
            ["a subject", "a predicate"],
            id="several",
        ),
        pytest.param(
            "length(content) > 3", ["length(content) > 3"], ["`length(content) > 3`"], id="others"
        ),
        pytest.param(
            "confidence BETWEEN 0.5 AND 1",
            ["confidence BETWEEN 0.5 AND 1"],
            ["`confidence BETWEEN 0.5 AND 1`"],
            id="an AND that joins nothing",
        ),
        pytest.param(
            "json_extract(metadata, '$.triples') IS NOT NULL",
            ["json_extract(metadata, '$.triples') IS NOT NULL"],
            ["`triples` in the metadata"],
            id="a key of the metadata",
        ),
        pytest.param("NOT (subject = 'a' OR agent = 'b')", [], [], id="nothing"),
    ],
)
def test_unmet_conditions_are_named(fragment: str, unmet: list[str], words: list[str]) -> None:
    assert lacking(fragment, *unmet) == words


def test_stated_column_with_another_value_is_named_by_its_condition() -> None:
    condition = "predicate = 'likes'"

    assert lacking(condition, condition, unstated=set()) == ["`predicate = 'likes'`"]


@pytest.mark.parametrize("fragment", ["", "  ", "predicate = 'a", "(predicate"])
def test_filter_without_conditions_has_none(fragment: str) -> None:
    assert condition_of(fragment) is None


def test_filter_of_many_conditions_stays_whole() -> None:
    fragment = " AND ".join(f"agent != '{n}'" for n in range(MOST_CONDITIONS + 1))

    found = condition_of(fragment)

    assert found is not None
    assert [one.text for one in found.singles()] == [fragment]


ROW = {"subject": "'a'", "predicate": "NULL", "agent": "'b'", "confidence": "0.5"}
SINGLES = st.sampled_from(
    [
        "subject = 'a'", "subject = 'b'", "predicate IS NOT NULL", "predicate = 'a'", "predicate",
        "agent IN ('b', 'or')", "NOT agent = 'b'", "confidence >= 0.5", "confidence > 0.5",
        "confidence BETWEEN 0.1 AND 0.4", "CASE WHEN agent = 'b' AND 1 THEN 1 ELSE 0 END",
        "agent = ' and '", "1", "0", "NULL",
    ]
)  # fmt: skip
FILTERS = st.recursive(
    SINGLES,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "OR", "and"]), inner).map(" ".join)
        | inner.map("({})".format)
        | inner.map("NOT ({})".format)
    ),
    max_leaves=8,
)


@settings(max_examples=amount(200, full=2_000), deadline=None)
@given(FILTERS)
def test_episode_lacks_something_exactly_when_the_filter_does_not_select_it(fragment: str) -> None:
    condition = condition_of(fragment)
    assert condition is not None
    columns = ", ".join(f"{value} AS {name}" for name, value in ROW.items())
    with closing(sqlite3.connect(":memory:")) as connection:

        def selects(text: str) -> bool:
            found = connection.execute(f"SELECT 1 FROM (SELECT {columns}) WHERE {text}")
            return found.fetchone() is not None

        unmet = {one.text for one in condition.singles() if not selects(one.text)}

        assert bool(describe_unmet(condition, unmet, ())) != selects(fragment)

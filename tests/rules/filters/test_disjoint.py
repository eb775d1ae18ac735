"""Filters that are said to exclude each other never select the same episode."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.rules.filters.conditions import are_disjoint
from tests.support.lists import of_each
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.unit, pytest.mark.sampled]

DISJOINT = [
    ("is_person", "NOT is_person"),
    ("is_person = 1", "is_person = 0 AND content LIKE '%x%'"),
    ("is_person <> 0", "(NOT is_person)"),
    ("is_person IS TRUE", "is_person IS NOT 1"),
    ("speaker = 'user'", "speaker = 'tool'"),
    ("'user' = speaker", "speaker IN ('tool', 'it''s')"),
    ("speaker = 'it''s'", "speaker != 'it''s'"),
    ("user = 'a' AND is_person", "is_person AND user = 'b'"),
    ("predicate IN ('a', 'b')", "predicate NOT IN ('a', 'b', 'c')"),
    ("predicate IS NULL", "predicate = 'a'"),
    ("predicate ISNULL", "predicate NOTNULL AND length(content) > 3"),
    ("agent IS NOT NULL", "agent IS NULL"),
    ("((speaker = 'a') AND (length(content) BETWEEN 1 AND 2))", "speaker IS 'b'"),
    ("speaker = 'a' AND speaker = 'b'", "1"),
]
NOT_PROVED = [
    ("1", "1"),
    ("is_person", "is_person"),
    ("is_person", "1"),
    ("speaker = 'user'", "agent = 'tool'"),
    ("speaker = 'user' OR 1", "speaker = 'tool'"),
    ("speaker = 'user'", "speaker = 'USER' COLLATE NOCASE"),
    ("speaker = 'user'", "NOT speaker = 'user' OR 1"),
    ("object = '1'", "object = '2'"),
    ("confidence = 1", "confidence = 0"),
    ("speaker LIKE 'user'", "speaker = 'USER'"),
    ("speaker BETWEEN 'a' AND speaker = 'b'", "speaker = 'c'"),
    ("CASE WHEN 1 AND speaker = 'a' THEN 1 END", "speaker = 'b'"),
    ("speaker = user", "speaker = 'b'"),
    ("speaker IN (user, 'a')", "speaker = 'b'"),
    ("speaker != 'a'", "speaker != 'b'"),
    ("speaker = 'a' || 'b'", "speaker = 'a'"),
    ("'a' LIKE speaker", "speaker = 'b'"),
    ("speaker ==", "speaker = 'b'"),
    ("", "speaker = 'b'"),
    ("speaker = 'a", "speaker = 'b'"),
]


@of_each(lambda: DISJOINT)
def test_contradiction_about_one_column_is_a_proof(pair: tuple[str, str]) -> None:
    assert are_disjoint(*pair) and are_disjoint(*reversed(pair))


@of_each(lambda: NOT_PROVED)
def test_anything_else_is_no_proof(pair: tuple[str, str]) -> None:
    assert not are_disjoint(*pair) and not are_disjoint(*reversed(pair))


VALUES = st.sampled_from(["'a'", "'A'", "'b'", "''", "NULL", "speaker", "agent", "1"])
COMPARISONS = st.one_of(
    st.tuples(
        st.sampled_from(["speaker", "agent", "is_person", "'a'"]),
        st.sampled_from(["=", "==", "!=", "<>", "IS", "IS NOT", "LIKE", "<", ">="]),
        VALUES,
    ).map(" ".join),
    st.tuples(
        st.sampled_from(["speaker", "agent"]),
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(VALUES, min_size=1, max_size=3).map(lambda each: f"({', '.join(each)})"),
    ).map(" ".join),
    st.sampled_from(
        ["is_person", "NOT is_person", "is_person = 0", "is_person IS NOT TRUE", "agent ISNULL",
         "speaker NOTNULL", "speaker BETWEEN 'a' AND 'b'", "1", "0", "NULL"]
    ),
)  # fmt: skip
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "AND", "OR"]), inner).map(" ".join)
        | inner.map("({})".format)
        | inner.map("NOT {}".format)
        | inner.map("CASE WHEN {} THEN 1 END".format)
        | inner.map("{} COLLATE NOCASE".format)
    ),
    max_leaves=6,
)
ROWS = [
    (person, speaker, agent)
    for person in (0, 1)
    for speaker in (None, "", "a", "A", "b", "1")
    for agent in (None, "a", "b", "1")
]


@settings(max_examples=amount(300, full=20_000))
@given(FILTERS, FILTERS)
def test_no_row_passes_two_filters_that_are_proved_disjoint(one: str, other: str) -> None:
    if not are_disjoint(one, other):
        return

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (is_person, speaker, agent)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
        both = f"SELECT count(*) FROM t WHERE ({one}) AND ({other})"

        assert connection.execute(both).fetchone() == (0,)

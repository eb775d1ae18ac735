"""Doubts name conditions that never hold, and no condition that may be meant as it is."""

from __future__ import annotations

import pytest

from slumberd.model.errors import FilterError
from slumberd.rules.filters.checks import COLUMNS
from slumberd.rules.filters.doubts import find_doubts, needs_stated_triple
from slumberd.rules.filters.sandbox import check_filter, select_samples

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("fragment", "at", "words"),
    [
        ("confidence >= 50", "confidence", "a number from 0 to 1"),
        ("predicate = 'x' AND 1.5 < confidence", "1.5", "a number from 0 to 1"),
        ("confidence BETWEEN 2 AND 5 AND user = 'a'", "confidence", "a number from 0 to 1"),
        ("confidence IN (70, 80)", "confidence", "a number from 0 to 1"),
        ("confidence < 0", "confidence", "a number from 0 to 1"),
        ("NOT confidence <= 1 AND user = 'a'", "NOT", "a number from 0 to 1"),
        ("confidence > 0.8 AND user = 'a' AND confidence < 0.5", "confidence < ", "no confidence"),
        ("confidence >= '0.5'", "'0.5'", "without quotes"),
        ("intent = 'remove'", "intent", "intents are add, update"),
        ("intent = 'Delete'", "intent", "did you mean 'delete'"),
        ("intent IN ('add', 'updat')", "intent", "did you mean 'update'"),
        ("predicate = 'x' OR intent <> 'forget'", "intent", "no intent is 'forget'"),
        ("is_person = 2", "is_person", "1 or 0"),
        ("is_person = 'yes'", "is_person", "1 or 0"),
        ("is_person AND NOT is_person", "NOT", "no is_person meets all"),
        ("user = 'a' AND user IN ('b', 'c')", "user IN", "no user meets all"),
        ("timestamp >= '2026-13-45'", "'2026-13-45'", "is no date or time"),
        ("timestamp >= 'yesterday'", "'yesterday'", "is no date or time"),
        ("'2026-02-30' < timestamp", "'2026-02-30'", "is no date or time"),
        ("timestamp BETWEEN '2026-01-01' AND '2026-31-01'", "'2026-31-01'", "is no date"),
        ("timestamp >= '2026-03-31 08:00'", "'2026-03-31 08:00'", "a space"),
        ("timestamp >= '2026-03-31T08:00:00+02:00'", "'2026-03-31T", "in UTC"),
        ("timestamp = '2026-03-31'", "'2026-03-31'", "write date(timestamp)"),
        ("timestamp > 2026", "2026", "write '2026'"),
        ("date(timestamp) = '2026-03-31T00:00:00'", "'2026-03-31T", "date() answers"),
        ("date(timestamp) >= '2026-3-1'", "'2026-3-1'", "is no date or time"),
        ("datetime(timestamp) > '2026-03-31T08:00:00'", "'2026-03-31T", "datetime() answers"),
        ("timestamp >= datetime('2026-02-31T25:00')", "'2026-02-31T25:00'", "is no date or time"),
        ("strftime('%H', 'noon') = '12'", "'noon'", "is no date or time"),
        ("json_type(metadata, '$.tags') = 'string'", "'string'", "json_type answers"),
        ("typeof(object) = 'number'", "'number'", "typeof answers"),
        ("lower(content) = 'Hello'", "'Hello'", "never answers 'Hello'"),
        ("upper(predicate) IN ('likes')", "'likes'", "never answers 'likes'"),
        ("metadata = 'food'", "'food'", "json_extract"),
        ("user = 5", "5", "write '5'"),
        ("predicate = 'prefers%'", "predicate", "LIKE takes patterns"),
        ("speaker = 'remember'", "speaker", "an interface"),
        ("scope_key = 'ada'", "scope_key", "begins with '/user/'"),
        ("metadata = '{broken'", "'{broken'", "json_extract"),
        ("user = 'a' AND agent = 'b' OR session = 'c'", "OR", "parentheses"),
        ("CASE WHEN user = 'a' AND id = 'b' OR id = 'c' THEN 1 END", "OR", "parentheses"),
        ("ifnull(id = 'a', user = 'a' OR id = 'b' AND id = 'c')", "AND", "parentheses"),
        ("user = 'a' OR (agent = 'b' OR id = 'd' AND session = 'c')", "AND", "parentheses"),
    ],
)
def test_condition_that_is_probably_not_meant_is_a_doubt(
    fragment: str, at: str, words: str
) -> None:
    check_filter("r", fragment)  # valid all the same

    [doubt] = find_doubts(fragment)

    assert words in doubt.problem
    assert doubt.position == fragment.index(at)


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "confidence >= 0.5",
        "confidence = 1",
        "confidence * 100 >= 50",
        "confidence - 0.5 = 0.2",
        "confidence BETWEEN 0.2 AND 0.4 AND user = 'a' AND intent = 'set'",
        "confidence > 0.5 AND confidence < 0.6",
        "confidence > 0.8 OR confidence < 0.2",
        "confidence IS NULL",
        "ifnull(intent, 'none') = 'none'",
        "intent IN ('add', 'delete', 'noop', 'set', 'update') OR intent IS NULL",
        "is_person",
        "NOT is_person",
        "timestamp >= '2026'",
        "timestamp >= '2026-03'",
        "timestamp < '2026-03-31'",
        "timestamp < '2026-03-31T08:00:00+00:00'",
        "timestamp BETWEEN '2026-01-01' AND '2026-01-31T23:59:59Z'",
        "date(timestamp) = '2026-03-31'",
        "date(timestamp) >= '2026-03'",
        "datetime(timestamp) < '2026-03-31 08:00:00'",
        "strftime('%H', timestamp) >= '22'",
        "timestamp LIKE '2026-03%'",
        "timestamp >= date('2026-03-31', '-7 days')",
        "json_type(metadata, '$.tags') = 'array'",
        "lower(content) = 'hello'",
        "lower(content) LIKE 'Hello%'",
        "object = 5",
        "length(content) > 5",
        "json_extract(metadata, '$.topic') = 'food'",
        "predicate LIKE 'prefers%'",
        "(predicate LIKE 'a%' AND confidence >= 0.5) OR intent IS NOT NULL",
        "confidence BETWEEN 0.2 AND 0.5 OR user = 'a'",
        "(timestamp BETWEEN '2026' AND '2027' OR user = 'a') AND agent = 'b'",
        "user = 'a' OR user = 'b'",
        "scope_key LIKE '/user/a%'",
        "lower(subject) = lower('Ada')",
        "lower(content) NOT LIKE 'Hello%'",
        "lower(content) = 'Hello' COLLATE NOCASE",
        "lower(content) = '\u00d6sterreich'",  # SQLite changes the letters of ASCII only
        "upper(content) = 'STRA\u00dfE'",
        "metadata NOT LIKE '%\"private\":true%'",
        "metadata <> 'null' AND metadata <> '[]'",
        "typeof(confidence) IN ('integer', 'real')",
        "coalesce(confidence, 'none') <> 'none'",
        "confidence >= CAST('0.5' AS REAL)",
        "subject = substr(object, 1, 5)",
        "id = 'e' || 5",
        "predicate NOT LIKE 5",
        "timestamp <> '' AND intent <> '' AND scope_key <> '' AND metadata <> ''",
        "timestamp >= '2026-03-31' || 'T00:00:00'",
        "timestamp > datetime('1700000000', 'unixepoch')",
        "CASE WHEN id = 'a' AND user = 'b' THEN 0 WHEN id = 'c' OR user = 'd' THEN 1 ELSE 0 END",
        "user = 'a' AND CASE WHEN agent = 'b' OR agent = 'c' THEN 1 END",
        "iif(user = 'a' AND agent = 'b', is_person OR confidence > 0.5, 0)",
        "is_person is_person 5",
        "a nonsense that is refused",
    ],
)
def test_condition_that_may_hold_is_no_doubt(fragment: str) -> None:
    assert find_doubts(fragment) == []


@pytest.mark.parametrize(
    "fragment",
    [
        "predicate IS NOT NULL",
        "predicate IS NOT NULL AND confidence >= 0.5",
        "subject = 'a' OR (object = 'b' AND user = 'c')",
        "predicate LIKE 'likes%'",
        "json_extract(metadata, '$.predicate') IS NOT NULL",
        "coalesce(subject, predicate) IS NOT NULL",
        "predicate IN ('likes', 'knows') AND is_person",
        "NOT predicate = 'x'",
    ],
)
def test_filter_that_only_stated_triples_pass_needs_one(fragment: str) -> None:
    assert needs_stated_triple(fragment)


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "is_person",
        "predicate IS NULL",
        "predicate IS NOT NULL OR intent IS NOT NULL",
        "ifnull(predicate, 'x') = 'x'",
        "predicate IS NOT 'x'",
        "is_person AND coalesce(subject, predicate, object) IS NULL",
        "predicate = 'x' OR content LIKE '%tea%'",
    ],
)
def test_filter_that_a_plain_text_may_pass_needs_no_triple(fragment: str) -> None:
    assert not needs_stated_triple(fragment)


@pytest.mark.parametrize("column", sorted({*COLUMNS} - {"is_person"}))
def test_presence_of_a_column_is_no_doubt(column: str) -> None:
    assert find_doubts(f"{column} IS NOT NULL") == find_doubts(f"{column} IS NULL") == []


def test_letter_of_another_script_is_named() -> None:
    with pytest.raises(FilterError, match=r"\(U\+0435, cyrillic small letter ie\) has no place"):
        check_filter("r", "predicat\u0435 = 'x'")


def test_samples_differ_by_their_metadata_only() -> None:
    found = select_samples("predicate = 'likes'", [{"predicate": "likes"}, {}])

    assert found == [True, False]

"""A filter selects rows, reports its errors, and leaves the connection unchanged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import Episode
from slumberd.model.errors import FilterError, StoppedError
from slumberd.model.scope import Scope, ScopeMismatch
from slumberd.rules.filters.checks import COLUMNS, FUNCTIONS
from slumberd.rules.filters.sandbox import LARGEST, Filter, FilterResult, check_filter, prepare
from slumberd.sql_statements import statements
from slumberd.storage.episodes.rows import encode
from tests.support.builders import episode
from tests.support.filter_fragments import AGE, BARE, LEGITIMATE, ROWS, TEA
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

EPISODES = statements("episodes")


@contextmanager
def store(*episodes: Episode, afterwards: str = "") -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(EPISODES["create_table"])
        for each in episodes:
            row = encode(
                each,
                Scope(each.user, each.session, each.agent),
                operation="put",
            )
            connection.execute(EPISODES["insert"], row)
        connection.execute(afterwards)
        prepare(connection)
        yield connection


def run_filter(
    fragment: str, *episodes: Episode, mismatch: ScopeMismatch = "quarantine", seconds: float = 5
) -> FilterResult:
    with store(*episodes) as connection:
        row_filter = Filter("r1", fragment, mismatch=mismatch, seconds=seconds)
        return row_filter.select(connection, range(1, len(episodes) + 1))


def select_ids(fragment: str) -> str:
    result = run_filter(fragment, *ROWS)
    assert result.failed == {}
    return " ".join(ROWS[rid - 1].id for rid in sorted(result.matched))


@pytest.mark.parametrize(
    ("fragment", "expected"),
    LEGITIMATE,
    ids=[case.fragment[:60] for case in LEGITIMATE],
)
def test_filter_on_documented_columns_selects_the_expected_episodes(
    fragment: str, expected: str
) -> None:
    check_filter("r1", fragment)

    assert select_ids(fragment) == expected


@pytest.mark.parametrize("mismatch", ["quarantine", "trust_episode"])
def test_malformed_confidence_is_null_and_an_absent_one_is_1(mismatch: ScopeMismatch) -> None:
    values: list[Any] = ["high", "0.9", True, -1, 2, [1], {}, None, 1, 0.75]
    rows = [
        episode(f"e{number}", metadata={"confidence": value}) for number, value in enumerate(values)
    ]
    rows.append(episode("e10"))

    def selected(fragment: str) -> list[int]:
        return [rid - 1 for rid in run_filter(fragment, *rows, mismatch=mismatch).matched]

    assert selected("confidence >= 0.5") == [7, 8, 9, 10]
    assert selected("confidence IS NULL") == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_filter_selects_the_same_episodes_under_trust_episode() -> None:
    expected = [set(case.selects.split()) for case in LEGITIMATE]

    found = [run_filter(case.fragment, *ROWS, mismatch="trust_episode") for case in LEGITIMATE]

    assert [{ROWS[rid - 1].id for rid in result.matched} for result in found] == expected


def test_page_on_filters_lists_every_column_and_function() -> None:
    page = (ROOT / "docs/reference/filters.md").read_text(encoding="utf-8")
    columns, _, functions = page.partition("\n## Operators and functions\n")
    functions = functions.partition("\n## ")[0]

    assert {*COLUMNS} <= {*re.findall(r"\w+", columns.partition("\n## Columns\n")[2])}
    assert {*FUNCTIONS} <= {*re.findall(r"\w+", functions)}


@pytest.mark.parametrize(
    "fragment",
    [
        "date(content) IS NOT NULL",
        "unixepoch(json_extract(metadata, '$.x')) IS NOT NULL",
        "date('no' || 'w') IS NOT NULL",
        "strftime('%s', content) IS NOT NULL",
        "strftime('%s', 'sub' || 'sec') IS NOT NULL",
        "datetime(timestamp, 'local' || 'time') IS NOT NULL",
        "datetime(timestamp, '+1 day', lower('UT') || 'c') IS NOT NULL",
        "julianday(CAST(content AS BLOB)) IS NOT NULL",
        "time(coalesce(NULL, content)) IS NOT NULL",
        "iif(1, date(content COLLATE NOCASE), '') IS NOT NULL",
    ],
)
def test_no_row_makes_a_filter_read_the_clock(fragment: str) -> None:
    row = episode("e1", content="NOW", metadata={"x": "now"})

    assert run_filter(fragment, row) == FilterResult()


def test_date_functions_return_what_sqlite_returns() -> None:
    calls = [
        "date(timestamp, '+1 month', 'weekday 1')",
        "time('12:00')",
        "datetime(2461041.5)",
        "julianday(' 2026-01-01')",
        "unixepoch(timestamp, 'start of year')",
        "strftime('%Y week %W', timestamp)",
        "date('tomorrow')",
        "date(NULL)",
    ]
    with closing(sqlite3.connect(":memory:")) as plain:
        for call in calls:
            expression = call.replace("timestamp", "'2026-01-01T12:00:00+00:00'")
            (value,) = plain.execute(f"SELECT {expression}").fetchone()
            literal = "NULL" if value is None else repr(value)

            assert run_filter(f"{call} IS NOT DISTINCT FROM {literal}", episode()).matched == {1}


@pytest.mark.parametrize("column", ["content", "metadata"])
def test_episode_that_is_too_large_fails_only_when_the_filter_reads_it(
    column: str,
) -> None:
    large = (
        f"UPDATE episodes SET {column} = '{{\"content\": \"{'a' * LARGEST}\"}}' WHERE id = 'tea'"
    )
    with store(TEA, AGE, afterwards=large) as connection:
        read = Filter("r1", f"{column} NOT LIKE '%b'").select(connection, [1, 2])
        unread = Filter("r1", "user = 'alice'").select(connection, [1, 2])

    assert read.matched == {2}
    assert read.failed == {1: "reads or makes a text of more than 1048576 bytes"}
    assert unread == FilterResult(matched={1})


def test_slow_filter_stops_at_its_budget() -> None:
    heavy = episode("big", content="a" * 60_000)
    slow = " OR ".join([f"content LIKE '%{'a' * 90}b'"] * 60)

    with pytest.raises(FilterError, match=r"ran over its budget of 0\.05 s"):
        run_filter(
            slow, *(heavy.model_copy(update={"id": f"e{n}"}) for n in range(20)), seconds=0.05
        )


def test_filter_ends_when_stop_is_set() -> None:
    stop = Event()
    stop.set()
    many = [episode(f"e{n}") for n in range(200)]

    with store(*many) as connection, pytest.raises(StoppedError):
        Filter("r1", "content LIKE '%x%'", stop=stop).select(connection, range(1, 201))


@pytest.mark.parametrize(
    ("fragment", "position", "advice"),
    [
        ("predicat = 'x'", 0, "did you mean 'predicate'?"),
        ("user = 'x' AND sesion = 'y'", 15, "did you mean 'session'?"),
        ("user = 'x' AND lenght(id) > 1", 15, "did you mean 'length'?"),
        ('user = "alice"', 7, "texts take single quotes"),
        ("user = 'x' -- all", 11, "comments are not allowed"),
        ("user = 'x')", 10, "')' closes nothing"),
        ("user = ('x'", 7, "'(' is never closed"),
        ("user = 'x", 7, "has no end"),
        ("user = 'x'; 1", 10, "without ';'"),
        ("user = 'x' agent", 11, "'agent' does not fit here"),
        ("user = 'x' user", 11, "'user' does not fit here"),
        ("user = 'x' AND id = 'y' AND AND id = 'z'", 28, "'AND' does not fit here"),
        ("user = 'x' AND lower(id, id)", 15, "wrong number of arguments"),
        ("user = 'x' OR", 13, "something is missing at its end"),
        ("content LIKE", 12, "something is missing at its end"),
        ("subject = NULL", 8, "'= NULL' is never true; write IS NULL"),
        ("subject <> NULL", 8, "write IS NOT NULL"),
        ("1 AND NULL = subject", 6, "write IS NULL"),
        ("user = 'x' && 1", 11, "write AND for '&&'"),
        ("!confidence", 0, "write NOT, or <> for what is not equal"),
        ("predicate = prefers", 12, "a text takes single quotes"),
        ("metadata.topic = 'x'", 9, "a part of metadata is metadata ->> '$.topic'"),
        ("json_extract(metadata, 'topic') = 'x'", None, "a path begins with '$.'"),
        ("replace(content, 'a', 'b') = 'x'", 0, "one call of it can take seconds or gigabytes"),
        ("count(*) > 1", 0, "a filter sees one episode at a time"),
        ("id IN (SELECT 1)", 7, "a filter reads the columns of its episode, and no table"),
        ("content REGEXP 'x'", 8, "LIKE and GLOB take patterns"),
        ("contains(content, 'x')", 0, "instr(content, 'word') > 0 looks for a word"),
        ("date('now') = '2'", 5, "depends on the machine's clock"),
        ("strftime('%s') > 1", 0, "without a time reads the machine's clock"),
        ("id = id AND " * 70 + "1", 768, "more than 128 times; a list takes IN"),
        ("lower(id) = 'x' AND lower(id, id)", None, "wrong number of arguments"),
        ("user = 'x' AND", 14, "something is missing at its end"),
        ("predicate = likes", 12, "a text takes single quotes"),
        ("user = \u2018x\u2019", 7, "plain single quotes"),
        ("user =\u00a0'x'", 6, "no plain space"),
        ("startswith(user, 'x')", 0, "functions are abs, coalesce"),
    ],
)
def test_filter_error_has_position_and_remedy(
    fragment: str, position: int | None, advice: str
) -> None:
    with pytest.raises(FilterError) as caught:
        check_filter("r1", fragment)

    assert caught.value.position == position
    assert advice in str(caught.value)


def test_date_function_without_a_call_is_reported_once() -> None:
    with pytest.raises(FilterError) as caught:
        check_filter("r1", "date > '2026'")

    assert caught.value.further == ()


def test_every_unknown_name_of_a_filter_is_reported_once() -> None:
    with pytest.raises(FilterError) as caught:
        check_filter("r1", "predikate = 'x' AND lowr(subjekt) = 'y' OR predikate = 'z'")

    errors = [caught.value, *caught.value.further]
    assert [error.position for error in errors] == [0, 20, 25]
    assert "did you mean 'subject'?" in errors[2].problem


def test_filter_error_on_a_row_does_not_affect_other_rows() -> None:
    broken = episode("broken", source_node="{")
    rows = [episode(f"e{n}", source_node='{"kind": "json"}') for n in range(20)]

    result = run_filter("json_extract(source_node, '$.kind') = 'json'", *rows, broken, TEA)

    assert result.matched == set(range(1, 21))
    assert result.failed == {21: "malformed JSON", 22: "malformed JSON"}


@pytest.mark.parametrize(
    "fragment",
    [
        "json_extract(content, '$.topic') = 'food'",
        "json_valid(content) AND json_extract(content, '$.topic') = 'food'",
        "JSON_EXTRACT(\"Content\", '$.topic') = 'food'",
        "json_type(episodes.content) = 'object'",
        "json_array_length(lower(content), '$.tags') = 1",
        "content ->> '$.topic' = 'food'",
        "intent = 'delete' OR [content] -> 'topic' IS NULL",
    ],
)
def test_filter_that_reads_the_content_as_json_is_refused(
    fragment: str,
) -> None:
    with pytest.raises(FilterError, match="'content' is a text and no JSON; name 'metadata'"):
        check_filter("r1", fragment)


def test_filter_that_hides_the_content_from_the_tokenizer_is_refused_by_sqlite() -> None:
    with pytest.raises(FilterError, match="malformed JSON"):
        check_filter("r1", "(content) ->> '$.topic' = 'food'")


def test_filter_may_use_json_valid_on_the_content() -> None:
    check_filter("r1", "json_valid(content) OR json_extract(metadata, '$.content') = content")


def test_row_with_an_unreadable_error_does_not_affect_other_rows() -> None:
    # The fuzzer found it: the message quotes the path, which is not UTF-8.
    mangled = "UPDATE episodes SET id = CAST(x'24ff' AS TEXT) WHERE id = 'tea'"
    with store(TEA, AGE, afterwards=mangled) as connection:
        fragment = "json_extract('{}', CASE WHEN user = 'alice' THEN id ELSE '$' END) = '{}'"
        result = Filter("r1", fragment).select(connection, [1, 2])

    assert result == FilterResult({2}, {1: "fails on a text that is not UTF-8"})


def test_columns_of_an_unparsable_row_are_null() -> None:
    garbage = "UPDATE episodes SET metadata = x'ff', content = '{'"
    with store(TEA, afterwards=garbage) as connection:
        no_columns = "intent IS NULL AND subject IS NULL AND object IS NULL AND metadata IS NULL"

        result = Filter("r1", f"{no_columns} AND content IS NULL AND confidence = 1").select(
            connection, [1]
        )

    assert result == FilterResult(matched={1})


def test_filter_sees_cut_content_but_all_parts_of_long_metadata() -> None:
    long = episode("e1", content="a" * 70_000, metadata={"subject": "s", "x": "b" * 70_000})

    assert run_filter("length(content) = 65536", long).matched == {1}
    assert run_filter("metadata IS NULL AND subject = 's'", long).matched == {1}


@pytest.mark.parametrize(
    ("mismatch", "user"),
    [("quarantine", "alice"), ("trust_scope", "alice"), ("trust_episode", "bob")],
)
def test_filter_sees_the_user_that_the_store_trusts(mismatch: ScopeMismatch, user: str) -> None:
    moved = "UPDATE episodes SET scope_key = replace(scope_key, 'bob', 'alice')"
    with store(episode("e1", user="bob"), afterwards=moved) as connection:
        result = Filter("r1", f"user = '{user}'", mismatch=mismatch).select(connection, [1])

    assert result.matched == {1}


def test_filter_leaves_the_connection_unchanged() -> None:
    with store(TEA) as connection:
        limits = [connection.getlimit(limit) for limit in range(11)]
        Filter("r1", "user = 'alice'").select(connection, [1])

        assert [connection.getlimit(limit) for limit in range(11)] == limits
        assert connection.execute("SELECT count(*), hex(randomblob(1)) FROM episodes").fetchone()
        assert connection.execute("PRAGMA query_only").fetchone() == (1,)


def test_filter_reads_only_the_requested_rows() -> None:
    with store(TEA, AGE, BARE) as connection:
        assert Filter("r1", "1").select(connection, [1, 3]).matched == {1, 3}
        assert Filter("r1", "1").select(connection, []).matched == set()


def test_empty_filter_is_accepted() -> None:
    check_filter("r1", "")
    check_filter("r1", " \n")


WORDS = st.sampled_from(
    [*COLUMNS, *sorted(FUNCTIONS), "(", ")", ",", "'x'", '"id"', "1", "=", "||", "AND", "NOT",
     "IN", "SELECT", "FROM", "episodes", "--", ";", "CASE", "END", "->", ".", "*", "sqlite_master"]
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_random_words_pass_or_raise_a_filter_error(
    fragment: str,
) -> None:
    try:
        check_filter("r1", fragment)
    except FilterError as error:
        assert error.rule_id == "r1"  # noqa: PT017 # both outcomes are correct


@pytest.mark.parametrize(
    ("most", "fragment", "problem"),
    [
        pytest.param(8 * 1024, "1".rjust, "is longer than 8192 bytes", id="bytes"),
        pytest.param(
            20, lambda n: "(" * n + "1" + ")" * n, "nested deeper than 20", id="parentheses"
        ),
        pytest.param(
            128, lambda n: "abs(1) AND " * n + "1", "more than 128 times", id="columns and calls"
        ),
        pytest.param(
            2,
            lambda n: "content" + " || user" * n + " = 'x'",
            "joins more than 3 values",
            id="joined values",
        ),
        pytest.param(
            10,
            lambda n: "metadata" + " -> 'a'" * n + " = '1'",
            "more than 10 '->'",
            id="arrows",
        ),
        pytest.param(
            100, lambda n: f"content LIKE '{'x' * n}'", "pattern too complex", id="pattern"
        ),
        pytest.param(
            100, lambda n: f"instr(content, '{'x' * n}')", "at most 100 characters", id="text"
        ),
        pytest.param(
            100,
            lambda n: f"instr(content, '{'x' * (n - 1)}''')",
            "at most 100 characters",
            id="text with a quotation mark",
        ),
    ],
)
def test_filter_may_reach_each_documented_limit_and_not_exceed_it(
    most: int, fragment: Callable[[int], str], problem: str
) -> None:
    check_filter("r1", fragment(most))

    with pytest.raises(FilterError, match=re.escape(problem)):
        check_filter("r1", fragment(most + 1))

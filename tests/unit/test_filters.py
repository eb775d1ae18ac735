"""The sandbox of when_filter: what it lets through, and what each of its walls holds back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.core.episode import Episode
from slumberd.core.scope import Scope
from slumberd.errors import FilterError, StoppedError
from slumberd.stores import filters
from slumberd.stores.codec import encode
from slumberd.stores.decode import ScopeMismatch
from slumberd.stores.filters import Filter, Verdict, check_filter, prepare
from slumberd.stores.fragments import COLUMNS, FUNCTIONS, LONGEST
from slumberd.stores.queries import statements
from tests.builders import episode, triple

EPISODES = statements("episodes")

TEA = triple("tea", "alice", "likes", "tea", metadata={"confidence": 0.4, "tags": ["hot"]})
AGE = triple("age", "alice", "aged", 42, user="bob", content="Bob is 42")
BARE = episode("bare", user="al/ice%", session="s/2", agent="%", content='{"kind": "json"}')


@contextmanager
def store(*episodes: Episode, afterwards: str = "") -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(EPISODES["create_table"])
    for one in episodes:
        row = encode(one, Scope(one.user, one.session, one.agent), operation="put")
        connection.execute(EPISODES["insert"], row)
    connection.execute(afterwards)
    prepare(connection)
    yield connection
    connection.close()


def judged(
    fragment: str, *episodes: Episode, mismatch: ScopeMismatch = "quarantine", seconds: float = 5
) -> Verdict:
    with store(*episodes) as connection:
        judge = Filter("r1", fragment, mismatch=mismatch, seconds=seconds)
        return judge.judge(connection, range(1, len(episodes) + 1))


def selected(fragment: str) -> list[str]:
    verdict = judged(fragment, TEA, AGE, BARE)
    assert verdict.failed == {}
    return [(TEA, AGE, BARE)[rid - 1].id for rid in sorted(verdict.matched)]


LEGITIMATE = [
    ("1", ["tea", "age", "bare"]),
    ("0", []),
    ("user = 'alice'", ["tea"]),
    ("user = 'al/ice%' AND session = 's/2' AND agent = '%'", ["bare"]),
    ("scope_key LIKE '/user/bob/%'", ["age"]),
    ("id IN ('tea', 'bare')", ["tea", "bare"]),
    ("predicate LIKE 'LIKES'", ["tea"]),
    ("predicate LIKE 'like%' AND confidence >= 0.4", ["tea"]),
    ("confidence < 1", ["tea"]),
    ("object = 42", ["age"]),
    ("object BETWEEN 1 AND 100", ["age"]),
    ("subject IS NULL", ["bare"]),
    ("subject IS NOT DISTINCT FROM 'alice'", ["tea", "age"]),
    ("intent ISNULL AND NOT (subject NOTNULL)", ["bare"]),
    ("content GLOB 'Bob*'", ["age"]),
    ("instr(lower(content), 'bob') > 0", ["age"]),
    ("json_extract(metadata, '$.tags[0]') = 'hot'", ["tea"]),
    ("metadata ->> '$.tags[0]' = 'hot'", ["tea"]),
    ("json_array_length(metadata, '$.tags') = 1", ["tea"]),
    ("json_valid(content) AND json_extract(content, '$.kind') = 'json'", ["bare"]),
    ("CASE WHEN user = 'bob' THEN 1 ELSE 0 END", ["age"]),
    ("coalesce(predicate, 'none') = 'none'", ["bare"]),
    ("substr(user, 1, 2) || session = 'als1'", ["tea"]),
    ("date(timestamp) = '2026-01-01' AND source_node = 'chat'", ["tea", "age", "bare"]),
    ("CAST(object AS TEXT) = '42' COLLATE NOCASE", ["age"]),
    ("\"subject\" = 'alice' AND episodes.user = 'bob'", ["age"]),
    ("content = 'it''s; -- no comment' OR user = 'bob'", ["age"]),
    ("user = 'bob'\n  AND\t(1)", ["age"]),
]


@pytest.mark.parametrize(("fragment", "expected"), LEGITIMATE, ids=[one for one, _ in LEGITIMATE])
def test_a_filter_over_the_documented_columns_selects(fragment: str, expected: list[str]) -> None:
    check_filter("r1", fragment)

    assert selected(fragment) == expected


STRUCTURE = [
    "1; DELETE FROM episodes",
    "1;",
    "1 -- and the rest",
    "1 /* and the rest",
    "1 /**/ AND 1",
    "1) OR (1",
    "1)) UNION SELECT 1 --",
    ")(",
    "((1)",
    "(" * 51 + "1" + ")" * 51,
    "user = 'alice",
    'user = "alice',
    "user = ?",
    "user = ?1",
    "user = :rids",
    "user = @x",
    "user = $x",
    "user = 'a\0b'",
    "user = 'a' \0",
    "user = '\ud800'",
    "user \u00a0= 'alice'",
    "\u0435vil = 1",
    "1 AND " * (LONGEST // 6) + "1 AND 1",
    "user = \\'alice'",
    "#",
]
SUBQUERIES = [
    "(SELECT 1)",
    "EXISTS (SELECT 1 FROM sqlite_master)",
    "id IN (SELECT name FROM pragma_table_info('episodes'))",
    "id IN (SELECT file FROM pragma_database_list)",
    "0 UNION ALL SELECT 'x'",
    "0 INTERSECT SELECT 1",
    "0 EXCEPT VALUES (1)",
    "(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r)",
    "(VALUES (1))",
    "(DELETE FROM episodes RETURNING 1)",
    "id IN sqlite_master",
    "id IN json_each('[1]')",
    "1 ORDER BY id",
    "1 LIMIT 1",
    "1 GROUP BY id HAVING 1",
]
FUNCTIONS_REFUSED = [
    "load_extension('x')",
    "readfile('/etc/passwd')",
    "writefile('x', 'y')",
    "randomblob(1000000000)",
    "zeroblob(1000000000)",
    "printf('%1000000000d', 1)",
    "format('%1000000000d', 1)",
    "replace(content, 'a', content)",
    "trim(content, content)",
    "rtrim(content, content)",
    "hex(content)",
    "quote(content)",
    "group_concat(content)",
    "count(*)",
    "sum(1) OVER ()",
    "random() > 0",
    "sqlite_version()",
    "sqlite_compileoption_get(1)",
    "last_insert_rowid()",
    "changes()",
    "fts3_tokenizer('x')",
    "content REGEXP 'a+'",
    "content MATCH 'a'",
    "RAISE(ABORT, 'x')",
    "instr(content, content)",
    "instr(content, 'a' || content)",
    "instr(content, '" + "a" * 200 + "')",
]
NAMES = [
    "rowid = 1",
    "rid = 1",
    "_rowid_ = 1",
    "main.episodes.id = 'x'",
    "temp.slumberd_batch.rid = 1",
    "predicat = 'x'",
    '"alice" = user',
    "[nope] = 1",
    "`nope` = 1",
    "x'00' = id",
    "1abc = 1",
    "CURRENT_TIMESTAMP > timestamp",
]
CLOCK = [
    "timestamp > datetime('now', '-1 day')",
    "date('NOW ') = '2026-01-01'",
    "date() = '2026-01-01'",
    "unixepoch( ) > 0",
    "time(timestamp, 'localtime') > '12'",
]
COMPILED = [
    "user = 'alice' AND",
    "user 'alice'",
    "lower(user, user) = 'x'",
    "max(user) = 'x'",
    "id IN episodes",
    "user.name = 'x'",
    "CAST(user)",
    "metadata -> '$[' = 'x'",
    "json_extract(metadata, 'x') = 'x'",
    "abs(-9223372036854775807 - 1) > 0",
]
HOSTILE = [*STRUCTURE, *SUBQUERIES, *FUNCTIONS_REFUSED, *NAMES, *CLOCK, *COMPILED]


@pytest.mark.parametrize("fragment", HOSTILE, ids=[repr(one[:40]) for one in HOSTILE])
def test_a_hostile_or_broken_filter_is_refused_when_it_is_loaded(fragment: str) -> None:
    with pytest.raises(FilterError, match="rule 'r1': when_filter") as caught:
        check_filter("r1", fragment)

    assert caught.value.rule_id == "r1"


WITHOUT_THE_FIRST_WALL = [
    "EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'episodes')",
    "id IN (SELECT name FROM pragma_table_info('episodes'))",
    "EXISTS (SELECT content FROM main.episodes)",
    "EXISTS (SELECT rid FROM temp.slumberd_batch)",
    "EXISTS (SELECT value FROM json_each('[1]'))",
    "(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r)",
    "1) UNION ALL SELECT (2",
    "randomblob(10) > 0",
    "replace(content, 'a', 'b') = 'x'",
    "load_extension('x')",
    "trim(content) = 'x'",
    "CURRENT_TIMESTAMP > timestamp",
    "1); DELETE FROM main.episodes WHERE (1",
]


@pytest.mark.parametrize("fragment", WITHOUT_THE_FIRST_WALL)
def test_what_slips_past_the_lexer_is_held_by_the_authorizer(
    fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "tokens_of", lambda *_: [])

    with pytest.raises(FilterError):
        judged(fragment, TEA)


@pytest.mark.parametrize("fragment", [*STRUCTURE, *SUBQUERIES, *FUNCTIONS_REFUSED, *NAMES])
def test_what_slips_past_the_authorizer_is_held_by_the_lexer(
    fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "_authorize", lambda *_: sqlite3.SQLITE_OK)

    with pytest.raises(FilterError):
        check_filter("r1", fragment)


def test_a_filter_that_runs_long_is_stopped_at_its_budget() -> None:
    heavy = episode("big", content="a" * 60_000)
    slow = " OR ".join([f"content LIKE '%{'a' * 90}b'"] * 60)

    with pytest.raises(FilterError, match=r"ran over its budget of 0\.05 s"):
        judged(slow, *(heavy.model_copy(update={"id": f"e{n}"}) for n in range(20)), seconds=0.05)


def test_a_filter_that_is_told_to_stop_stops() -> None:
    stop = Event()
    stop.set()
    many = [episode(f"e{n}") for n in range(200)]

    with store(*many) as connection, pytest.raises(StoppedError):
        Filter("r1", "content LIKE '%x%'", stop=stop).judge(connection, range(1, 201))


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
        ("user = 'x' agent", 11, "syntax error"),
        ("user = 'x' user", None, 'near "user": syntax error'),
        ("user = 'x' AND lower(id, id)", 15, "wrong number of arguments"),
        ("user = 'x' AND", None, "something is missing at its end"),
    ],
)
def test_a_mistake_is_shown_at_its_position_with_its_remedy(
    fragment: str, position: int | None, advice: str
) -> None:
    with pytest.raises(FilterError) as caught:
        check_filter("r1", fragment)

    assert caught.value.position == position
    assert advice in str(caught.value)


def test_a_row_that_the_filter_fails_on_takes_no_other_with_it() -> None:
    broken = episode("broken", content="{")
    rows = [BARE.model_copy(update={"id": f"e{n}"}) for n in range(20)]

    verdict = judged("json_extract(content, '$.kind') = 'json'", *rows, broken, TEA)

    assert verdict.matched == set(range(1, 21))
    assert verdict.failed == {21: "malformed JSON", 22: "malformed JSON"}


def test_rows_that_cannot_be_parsed_have_no_columns_and_raise_nothing() -> None:
    garbage = "UPDATE episodes SET metadata = x'ff', content = '{'"
    with store(TEA, afterwards=garbage) as connection:
        rest = "intent IS NULL AND subject IS NULL AND object IS NULL AND metadata IS NULL"

        verdict = Filter("r1", f"{rest} AND content IS NULL AND confidence = 1").judge(
            connection, [1]
        )

    assert verdict == Verdict(matched={1})


def test_a_long_content_is_cut_and_long_metadata_still_gives_its_parts() -> None:
    long = episode("e1", content="a" * 70_000, metadata={"subject": "s", "x": "b" * 70_000})

    assert judged("length(content) = 65536", long).matched == {1}
    assert judged("metadata IS NULL AND subject = 's'", long).matched == {1}


@pytest.mark.parametrize(
    ("mismatch", "user"),
    [("quarantine", "alice"), ("trust_scope", "alice"), ("trust_episode", "bob")],
)
def test_the_owner_that_a_filter_sees_is_the_one_that_the_store_trusts(
    mismatch: ScopeMismatch, user: str
) -> None:
    moved = "UPDATE episodes SET scope_key = replace(scope_key, 'bob', 'alice')"
    with store(episode("e1", user="bob"), afterwards=moved) as connection:
        verdict = Filter("r1", f"user = '{user}'", mismatch=mismatch).judge(connection, [1])

    assert verdict.matched == {1}


def test_a_judgement_leaves_the_connection_as_it_was() -> None:
    with store(TEA) as connection:
        limits = [connection.getlimit(limit) for limit in range(11)]
        Filter("r1", "user = 'alice'").judge(connection, [1])

        assert [connection.getlimit(limit) for limit in range(11)] == limits
        assert connection.execute("SELECT count(*), hex(randomblob(1)) FROM episodes").fetchone()
        assert connection.execute("PRAGMA query_only").fetchone() == (1,)


def test_only_the_rows_asked_for_are_judged() -> None:
    with store(TEA, AGE, BARE) as connection:
        assert Filter("r1", "1").judge(connection, [1, 3]).matched == {1, 3}
        assert Filter("r1", "1").judge(connection, []).matched == set()


def test_an_empty_filter_needs_no_check() -> None:
    check_filter("r1", "")
    check_filter("r1", " \n")


WORDS = st.sampled_from(
    [*COLUMNS, *sorted(FUNCTIONS), "(", ")", ",", "'x'", '"id"', "1", "=", "||", "AND", "NOT",
     "IN", "SELECT", "FROM", "episodes", "--", ";", "CASE", "END", "->", ".", "*", "sqlite_master"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_whatever_words_are_strung_together_nothing_but_a_filter_error_comes_of_it(
    fragment: str,
) -> None:
    try:
        check_filter("r1", fragment)
    except FilterError as error:
        assert error.rule_id == "r1"  # noqa: PT017 # either outcome is right

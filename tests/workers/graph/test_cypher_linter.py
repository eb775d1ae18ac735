"""The linter accepts portable queries, names each unportable construct, and finds every write."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slumberd.model.errors import UnportableCypherError
from slumberd.workers.graph import cypher_parser
from slumberd.workers.graph.cypher_linter import Linter
from slumberd.workers.graph.cypher_parser import MAX_CHARACTERS, MAX_NESTING, parse, scan
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    from graphglot.dialect import neo4j
else:
    neo4j = LateModule("graphglot.dialect.neo4j")

pytestmark = pytest.mark.unit

READING = (
    "MATCH (n) RETURN n",
    "MATCH (a)-[r]->(b) RETURN a.name AS subject, type(r) AS predicate, b.name AS object",
    "MATCH (a)<-[r:KNOWS|LIKES]-(b {age: 3}) RETURN DISTINCT a.name AS subject, id(r) AS t",
    "MATCH (a)-[:KNOWS*1..3]->(b) RETURN a.name",
    "MATCH (a)-[:KNOWS*3]->(b) RETURN a.name",
    "OPTIONAL MATCH (a)-->(b) RETURN coalesce(a.x, 1)",
    "MATCH (a) WITH a.name AS n, count(*) AS c WHERE c > 1 RETURN n, c ORDER BY c SKIP 1 LIMIT 5",
    "MATCH (a) WHERE NOT a.dead OR a.b IS NULL AND a.name IN ['x', 'y'] RETURN a",
    "MATCH (a) WHERE a.name =~ 'x.*' RETURN a",
    "MATCH (a) WHERE (a)-->(:B) RETURN a",
    "MATCH (a) WHERE EXISTS { MATCH (a)-->(b) RETURN b } RETURN a",
    "MATCH (a) RETURN CASE WHEN a.x > 1 THEN 'a' ELSE 'b' END AS y",
    "UNWIND [1, 2] AS x RETURN x",
    "RETURN $p AS x",
    "MATCH (a) RETURN a.x AS y UNION ALL MATCH (b) RETURN b.y AS y",
    "MATCH (a) RETURN count(DISTINCT a.x), collect(a.y), max(a.z)",
    "MATCH (n) RETURN n;",
    "MATCH (n) WHERE n.text = 'SET DELETE; CREATE // x' RETURN n",
    'MATCH (n:`SET`) WHERE n.`delete` = "it\'s" RETURN n.`create`, n.`b c`',
    "match (a:`Set`|`Delete`) return a.`set`",
    "MATCH (n: Project) RETURN n. start",
    "MATCH (a) RETURN 'tab \\t line \\n back \\\\ slash'",
    "MATCH (n) RETURN n SKIP 5 LIMIT 10",
    "MATCH (n) RETURN n SKIP $first",
    "MATCH (n) WITH n SKIP 1 LIMIT 2 RETURN n",
    "MATCH (n) WHERE EXISTS { MATCH (n)-[:REL]->(m) } RETURN n",
    "MATCH (n) WHERE NOT EXISTS { MATCH (n)-->(m) WHERE m.x = 1 } RETURN n",
    "MATCH (n) WHERE EXISTS { (n)-->(m) WHERE m.x = 1 } RETURN n",
    "MATCH (n) RETURN CASE n.x WHEN 1 THEN 'a' ELSE 'b' END AS y",
    "MATCH p = (a)-[:R*1..3]->(b) RETURN length(p), sqrt(a.x), timestamp()",
    "MATCH (a)-[r]->(b) RETURN startNode(r), endNode(r), trim(a.x), replace(a.x, 'b', 'c')",
)
WRITING = (
    "CREATE (a)",
    "MERGE (a:B {c: 1})",
    "MATCH (a) SET a.x = 1",
    "MATCH (a) SET a:Label",
    "MATCH (a) REMOVE a.x",
    "MATCH (a) DELETE a",
    "MATCH (a) DETACH DELETE a",
    "MATCH (a) SET a.x = 1 RETURN a",
    "create (a)",
    "CREATE (n:Doc {id: $id})",
    "CREATE (a:A:B {x: 1})-[r:R {y: 2}]->(b), (:C)",
    "MATCH (a), (b) CREATE (a)<-[:R]-(b) RETURN a",
    "MERGE (n:Doc {id: $id}) ON CREATE SET n.created = timestamp()",
    "MERGE (n:Doc {id: $id}) ON MATCH SET n.touched = timestamp(), n:Old",
    "MERGE (n {id: 1}) ON CREATE SET n.a = 1 ON MATCH SET n.b = 2 RETURN n",
    "MATCH (n) WHERE EXISTS { MATCH (n)-->(m) } DETACH DELETE n",
    "MATCH (a)-[r]->(b)\nDELETE\tr",
)
REFUSED = {
    "parse-error": (
        "", " ", "MATCH", "SHOW DATABASES", "LOAD CSV FROM 'file:///x' AS l RETURN l",
        "MATCH (a) FOREACH (x IN [1] | SET a.y = x)", "MATCH (a) RETURN a {.name} AS m",
        "MATCH p = shortestPath((a)-[*..3]-(b)) RETURN p", "MATCH ((a)-[:R]->(b)){1,3} RETURN a",
        "MATCH (a)-[:R]->{1,3}(b) RETURN a", "MATCH (a)-[:R]->+(b) RETURN a",
        "MATCH (n) RETURN n // c", "MATCH (n) /* x */ RETURN n", "MATCH (n RETURN n",
        "MATCH (n)) RETURN n", "MATCH (n] RETURN n", "RETURN 'a", "RETURN 'a\\'b'",
        "RETURN 'a\\\\'", "RETURN 'a''b'", "RETURN '\\u0041'", "RETURN \\u0041", "RETURN a\0",
        "RETURN 'a\0'", "RETURN é", "MATCH (n)\x0bRETURN n", "RETURN `", "RETURN ``",
        "RETURN " + "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
        "RETURN '" + "x" * MAX_CHARACTERS + "'",
        "CREATE DATABASE x", "GRANT ROLE x TO y", "COPY x FROM 'a'", "INSTALL json", "COMMIT",
        "EXPORT DATABASE 'x'", "CALL threads=2", "BEGIN TRANSACTION", "CHECKPOINT",
    ),
    "multiple-statements": ("MATCH (n) RETURN n; MATCH (m) DELETE m", "RETURN 1;;", "; RETURN 1"),
    "banned-procedure": (
        "CALL apoc.do.it(1)", "CALL gds.x()", "CALL db.labels() YIELD label RETURN label",
        "MATCH (a) RETURN apoc.text.join(['a'], ',') AS x", "CALL APOC.do.it()",
    ),
    "unknown-procedure": (
        "CALL custom.write.proc()", "CALL custom.write.proc() YIELD x RETURN x", "CALL x()",
    ),
    "unknown-function": (
        "MATCH (a) RETURN my.fn(a)", "RETURN load_extension('x')", "RETURN strange(1)",
    ),
    "varlen-unbounded": (
        "MATCH (a)-[*]->(b) RETURN a", "MATCH (a)-[:K*2..]->(b) RETURN a",
        "MATCH (a) WHERE (a)-[*]->() RETURN a",
    ),
    "yield-star": ("CALL custom.proc() YIELD *", "CALL known.reader() YIELD * RETURN 1"),
    "path-comprehension": ("MATCH (a) RETURN [(a)-->(b) | b.name] AS l",),
    "call-subquery": (
        "MATCH (a) CALL { WITH a MATCH (a)-->(b) RETURN b } RETURN a, b",
        "MATCH (a) CALL (a) { MATCH (a)-->(b) RETURN b } RETURN a, b",
        "MATCH (a) RETURN COUNT { MATCH (n)-->(m) RETURN m } AS c",
        "MATCH (a) RETURN COUNT { (n)-->(m) } AS c",
        "MATCH (a) WHERE count{(a)-->()} > 1 RETURN a",
        "MATCH (a) RETURN COLLECT { MATCH (n)-->(m) RETURN m } AS c",
        "MATCH (a) RETURN VALUE { MATCH (n) DELETE n } AS v",
    ),
    "schema-change": (
        "DROP INDEX foo", "CREATE INDEX foo FOR (n:L) ON (n.x)", "DROP CONSTRAINT c",
        "CREATE CONSTRAINT c FOR (n:L) REQUIRE n.x IS UNIQUE",
    ),
    "query-prefix": ("EXPLAIN MATCH (n) RETURN n", "PROFILE MATCH (n) RETURN n"),
    "graph-selection": ("USE x MATCH (n) RETURN n",),
    "unknown-syntax": (
        "INSERT (a)", "FILTER x", "LET x = 1 RETURN x", "MATCH (n) RETURN n NEXT RETURN 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cypher", READING)
def test_portable_query_that_reads_passes(cypher: str) -> None:
    Linter().check_reading(cypher)


@pytest.mark.parametrize("cypher", WRITING)
def test_portable_query_that_writes_is_refused_for_promotion(cypher: str) -> None:
    linter = Linter()

    linter.check(cypher)
    assert linter.requires_write(cypher)
    with pytest.raises(UnportableCypherError) as refused:
        linter.check_reading(cypher)
    assert refused.value.rule == "write-in-promotion"


@pytest.mark.parametrize(
    ("rule", "cypher"), [(rule, query) for rule, queries in REFUSED.items() for query in queries]
)
def test_unportable_query_is_refused_by_its_rule(rule: str, cypher: str) -> None:
    with pytest.raises(UnportableCypherError) as refused:
        Linter(frozenset({"known.reader"})).check(cypher)

    error = refused.value
    assert (error.rule, error.violation, error.cypher) == (rule, rule, cypher)
    if error.position is not None:
        assert cypher[error.position :].startswith(error.match)
    assert error.exit_code == 78


@pytest.mark.parametrize(
    "cypher",
    [
        *REFUSED["schema-change"], *REFUSED["unknown-procedure"], *REFUSED["banned-procedure"],
        *REFUSED["unknown-function"], *REFUSED["query-prefix"], *REFUSED["unknown-syntax"],
        "MATCH (a) CALL { MATCH (n) DELETE n } RETURN a",
    ],
)  # fmt: skip
def test_query_that_is_not_known_to_only_read_counts_as_a_write(cypher: str) -> None:
    assert Linter().requires_write(cypher)


@pytest.mark.parametrize("cypher", [query for queries in REFUSED.values() for query in queries])
def test_message_names_no_class_of_the_parser(cypher: str) -> None:
    with pytest.raises(UnportableCypherError) as refused:
        Linter(frozenset({"known.reader"})).check(cypher)

    assert not re.search(r"\b_?[A-Z][a-z]+[A-Z]\w*", refused.value.problem)


def test_query_may_call_a_procedure_that_is_known_to_only_read() -> None:
    cypher = "CALL Known.Reader(1) YIELD x AS y RETURN y"

    Linter(frozenset({"known.reader"})).check(cypher)
    with pytest.raises(UnportableCypherError, match="unknown-procedure"):
        Linter().check(cypher)
    assert Linter().requires_write(cypher)


def test_error_names_the_position_of_the_mistake() -> None:
    with pytest.raises(UnportableCypherError) as refused:
        Linter().check("MATCH (a) RETURN my.fn(a) AS x")

    assert (refused.value.position, refused.value.match) == (17, "my.fn(a)")
    assert str(refused.value).startswith("cypher at character 18: unknown-function: 'my.fn'")


@pytest.mark.cases(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "cypher",
    [
        "MATCH (a) WHERE " + "(" * 28 + "a.x=1 OR a.y=2" + " AND a.z=3)" * 28 + " RETURN a",
        "RETURN " + "[" * MAX_NESTING + "1" + "]" * MAX_NESTING,
        pytest.param("RETURN " + "+".join("1" * 2000), marks=pytest.mark.slow, id="sum"),
        "MATCH (a) WHERE " + "NOT " * 900 + "a.x RETURN a",
        "MATCH (a) WHERE " + " OR ".join(f"a.x={n}" for n in range(350)) + " RETURN a",
        "RETURN " + "CASE WHEN true THEN " * 120 + "1" + " END" * 120,
        "MATCH " + "(a)-->" * 600 + "(a) RETURN a",
        "(" * 30 + "a" * 4000,
    ],
)
def test_hostile_query_takes_few_parser_steps(cypher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    bounded = cypher_parser._bounded_parser

    def counting_parser(base: type) -> type:
        class CountingParser(bounded(base)):  # type: ignore[misc]  # of an extra without types
            def _advance(self, times: int = 1) -> None:
                steps.append(times)
                super()._advance(times)

        return CountingParser

    cypher_parser._load_parser.cache_clear()
    monkeypatch.setattr(cypher_parser, "_bounded_parser", counting_parser)
    with suppress(UnportableCypherError):
        Linter().check(cypher)
    cypher_parser._load_parser.cache_clear()
    assert len(steps) <= cypher_parser.MAX_STEPS + 100


@pytest.mark.slow
@pytest.mark.parametrize("cypher", [*READING[:16], *WRITING])
def test_bounded_parser_reads_the_same_tree_as_the_plain_parser(cypher: str) -> None:
    (plain,) = neo4j.Neo4j().parse(cypher)

    assert str(parse(scan(cypher))) == str(plain)


_WORDS = """
    MATCH OPTIONAL_MATCH WHERE RETURN WITH UNWIND AS (n) (a)-[r]->(b) (n:L_{x:1}) --> n a.x n.set
    [x_IN_l_|_x] { } ( ) [ ] , ; * 1 't' " ' `q` AND OR NOT IN EXISTS COUNT UNION YIELD CASE WHEN
    THEN END ORDER_BY_n LIMIT_1 -- // \\ $p : = <> true null toLower(n.x) f(n) a.b.c() n.x=1 é
"""
PIECES = st.sampled_from([word.replace("_", " ") for word in _WORDS.split()])
MUTATING = st.sampled_from(
    [
        "CREATE (x)", "MERGE (x)", "SET n.x = 1", "SET n:L", "REMOVE n.x", "DELETE n",
        "DETACH DELETE n", "DROP INDEX i", "INSERT (x)", "FOREACH (x IN [1] | SET n.y = x)",
        "CALL a.b()", "CALL { CREATE (x) }", "LOAD CSV FROM 'x' AS l", "COPY n TO 'x'",
        "INSTALL json", "CREATE INDEX i FOR (n:L) ON (n.x)", "create (x)", "sEt n.x = 1",
    ]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PIECES, max_size=14).map(" ".join))
@example("MATCH (n) RETURN n LIMIT")
def test_pieces_of_cypher_raise_no_error_but_the_linters_own(cypher: str) -> None:
    _lint(cypher)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=60))
def test_arbitrary_text_raises_no_error_but_the_linters_own(cypher: str) -> None:
    _lint(cypher)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["", "MATCH (n) ", "MATCH (n) WITH n ", "MATCH (a)-->(n) WHERE n.x = 1 "]),
    st.lists(PIECES, max_size=3).map(" ".join),
    MUTATING,
    st.sampled_from(["", " RETURN n", " WITH n RETURN n", "\nRETURN n;", " UNION RETURN 1"]),
    st.lists(PIECES, max_size=2).map(" ".join),
)
def test_query_with_a_part_that_writes_never_counts_as_a_read(
    before: str, some: str, mutating: str, after: str, more: str
) -> None:
    cypher = f"{before}{some} {mutating}{after} {more}"
    # Between quotes, the part that writes would be a text.
    if re.search(r"['\"`\\]|//", some + more):
        return

    assert _lint(cypher) is not False


def _lint(cypher: str) -> bool | None:
    """Return whether a text writes; None when it is refused."""
    linter = Linter()
    try:
        writes = linter.requires_write(cypher)
        linter.check(cypher)
    except UnportableCypherError:
        return None
    return writes


@pytest.mark.slow
def test_nested_parentheses_pass() -> None:
    nested = "(" * 8 + "a.x = 1 OR a.y = 2" + " AND a.z = 3)" * 8

    Linter().check(f"MATCH (a) WHERE {nested} RETURN a")


@pytest.mark.slow
@pytest.mark.parametrize("cypher", WRITING)
def test_keyword_that_writes_is_found_without_the_tree(
    cypher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Linter, "_only_reads", lambda *_: True)

    assert Linter().requires_write(cypher)


@pytest.mark.parametrize(
    "cypher",
    [
        "RETURN range(1, 100000) AS l", "RETURN range(100000, 1, -1) AS l",
        "RETURN range(1, 9223372036854775807, 922337203685477580) AS l",
        "MATCH (n) WITH n.name AS a WITH a+a+a+a+a+a+a+a+a+a AS b RETURN b+b AS c",
        "MATCH (n) WITH collect(n.name) AS l RETURN l, size(l) AS n, l + ['x'] AS m",
        "RETURN reduce(sum = 0, x IN range(1, 1000) | sum + x) AS n",
        "UNWIND range(1, 30000) AS x UNWIND range(1, 30000) AS y RETURN x * y + x * y AS z",
    ],
)  # fmt: skip
def test_query_whose_values_are_bounded_passes(cypher: str) -> None:
    Linter().check_reading(cypher)


@pytest.mark.parametrize(
    "cypher",
    [
        "RETURN range(1, 100001) AS l", "RETURN range(100001, 1, -1) AS l",
        "RETURN range(1, 5 + 5) AS l", "RETURN range(1, $n) AS l", "RETURN range(1, 1e9) AS l",
        "RETURN `range`(1, 200000) AS l", "MATCH (n {l: range(1, 200000)}) RETURN n",
        "MATCH (n) RETURN n ORDER BY size(range(1, 200000))",
        "MATCH (n) RETURN n.x AS x UNION MATCH (n) RETURN size(range(1, 200000)) AS x",
        "RETURN any(x IN range(1, 1000) WHERE any(y IN range(1, 1000) WHERE x < y)) AS n",
        "RETURN [x IN range(1, 1000) | range(1, 1000)] AS n",
        "RETURN reduce(text = 'a', x IN range(1, 50) | text + text) AS n",
        "MATCH (n) WITH collect(n) AS l RETURN l + l + l AS m",
        "MATCH (n) WITH collect(n) AS list RETURN LIST + List + `list` AS m",
    ],
)  # fmt: skip
def test_query_that_may_build_a_huge_value_is_refused_for_promotion(cypher: str) -> None:
    Linter().check(cypher)
    with pytest.raises(UnportableCypherError) as refused:
        Linter().check_reading(cypher)

    assert refused.value.rule == "unbounded-value"


def test_query_has_at_most_4096_characters() -> None:
    query = "RETURN 1".ljust(4_096)

    Linter().check(query)
    with pytest.raises(UnportableCypherError, match="is longer than 4,096 characters"):
        Linter().check(f"{query} ")


def test_brackets_of_a_query_are_nested_at_most_30_deep() -> None:
    Linter().check(f"RETURN {'(' * 30}1{')' * 30}")
    with pytest.raises(UnportableCypherError, match="nested deeper than 30 levels"):
        Linter().check(f"RETURN {'(' * 31}1{')' * 31}")

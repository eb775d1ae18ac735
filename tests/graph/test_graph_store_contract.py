"""The graph store's contract, on the same graph in memory and in a file."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.errors import ExtraMissingError, GraphStoreError, UnportableCypherError
from slumberd.graph import cypher_parser, ladybug_store
from slumberd.graph.ladybug_store import LadybugGraphStore
from slumberd.graph.memory import InMemoryGraphStore
from slumberd.graph.protocols import GraphStore
from slumberd.model.graph import NodeRef
from tests.support.graphs import QUERY
from tests.support.samples import amount
from tests.support.seccomp import without_network

pytestmark = pytest.mark.integration

Store = InMemoryGraphStore | LadybugGraphStore

TRIPLES = (
    ("alice", "knows", "bob", 0.5, "t1"),
    ("bob", "knows", "carol", 0.25, "t2"),
    ("carol", "likes", "Tea", 1.0, "t3"),
    ("alice", "likes", "Tea", 0.75, "t4"),
    ("dave", "likes", 'it\'s "odd"', 0.0, "t5"),
)


async def filled(store: Store) -> Store:
    await store.bootstrap()
    for subject, predicate, what, confidence, id in TRIPLES:
        await store.add_triple(subject, predicate, what, confidence=confidence, id=id)
    return store


@pytest.fixture(params=["memory", "ladybug"])
async def graph(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = (
        InMemoryGraphStore()
        if request.param == "memory"
        else LadybugGraphStore(tmp_path / "graph.lbug")
    )
    await filled(store)
    yield store
    await store.close()


async def column(store: Store, cypher: str, params: dict[str, Any] | None = None) -> list[Any]:
    found = await store.query(cypher, params)
    assert len(found.columns) == 1
    return [value for row in found.rows for value in row.values()]


def test_both_are_graph_stores(tmp_path: Path) -> None:
    assert isinstance(InMemoryGraphStore(), GraphStore)
    assert isinstance(LadybugGraphStore(tmp_path / "none"), GraphStore)


async def test_everything_that_was_added_is_found_by_its_columns(graph: Store) -> None:
    found = await graph.query(f"{QUERY} ORDER BY triple_id")

    assert found.columns == ["subject", "predicate", "object", "confidence", "triple_id"]
    assert [tuple(row.values()) for row in found.rows] == list(TRIPLES)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("f.confidence >= 0.5", ["t1", "t3", "t4"]),
        ("f.confidence < 0.5 OR f.confidence > 0.9", ["t2", "t3", "t5"]),
        ("f.confidence = 1", ["t3"]),
        ("NOT f.confidence <> 0.25", ["t2"]),
        ("s.name = 'alice' AND f.predicate = 'likes'", ["t4"]),
        ("s.name = 'alice' XOR f.predicate = 'likes'", ["t1", "t3", "t5"]),
        ("s.name IN ['alice', 'bob']", ["t1", "t2", "t4"]),
        ("(s.name IN ['alice', 'bob']) AND f.predicate = 'likes'", ["t4"]),
        ("o.name STARTS WITH 'T'", ["t3", "t4"]),
        ("o.name ENDS WITH 'l'", ["t2"]),
        ("o.name CONTAINS 'aro'", ["t2"]),
        ("toLower(o.name) = 'tea'", ["t3", "t4"]),
        ("toUpper(s.name) = 'DAVE'", ["t5"]),
        ("f.predicate IS NULL", []),
        ("f.predicate IS NOT NULL AND s.name = 'dave'", ["t5"]),
        ("coalesce(f.predicate, 'x') = 'likes' AND (s.name = 'carol' OR false)", ["t3"]),
        ('o.name = "it\'s " ', []),
        ("s.name > 'bz'", ["t3", "t5"]),
        ("NOT (s.name = 'alice' OR s.name = 'bob')", ["t3", "t5"]),
        ("-1 < f.confidence AND f.confidence < 0.1", ["t5"]),
    ],
)
async def test_a_condition_means_the_same_in_both(graph: Store, where: str, ids: list[str]) -> None:
    query = f"MATCH (s:Entity)-[f:Fact]->(o:Entity) WHERE {where} RETURN f.id AS id ORDER BY id"

    assert await column(graph, query) == ids


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("MATCH (s)<-[f:Fact]-(o) RETURN o.name AS n ORDER BY f.id LIMIT 2", ["alice", "bob"]),
        ("MATCH (s {name: 'bob'})-[f]-(o) RETURN o.name AS n ORDER BY n", ["alice", "carol"]),
        ("MATCH (s)-[f {id: 't5'}]->() RETURN s.name AS n", ["dave"]),
        ("MATCH (s)-->() RETURN DISTINCT s.name AS n ORDER BY n DESC SKIP 3 LIMIT 9", ["alice"]),
        ("MATCH (a)-[f]->(b)-[g]->(c) RETURN c.name AS n ORDER BY n", ["Tea", "carol"]),
        ("MATCH (a)-[f]->(b), (b)-[g]->(c) WHERE c.name = 'Tea' RETURN a.name AS n", ["bob"]),
        ("MATCH (a)-[f]->(b) MATCH (b)-[g]->(c) WHERE c.name = 'Tea' RETURN a.name AS n", ["bob"]),
        ("MATCH (n:Entity) WHERE n.name < 'b' RETURN n.name AS v ORDER BY v", ["Tea", "alice"]),
        ("MATCH (n:Entity) WHERE n.name = $name RETURN n.name AS n", ["bob"]),
        ("MATCH (n:Entity) WHERE n.name IN $names RETURN n.name AS v ORDER BY v", ["bob", "dave"]),
        ("MATCH (n:Entity {name: 'bob'}) RETURN 'said' AS n", ["said"]),
        ("MATCH (n:Entity {name: 'bob'}) RETURN 2 AS n", [2]),
    ],
)  # fmt: skip
async def test_a_query_finds_the_same_in_both(
    graph: Store, query: str, values: list[object]
) -> None:
    params: dict[str, Any] = {}
    if "$name " in query:
        params = {"name": "bob"}
    elif "$names" in query:
        params = {"names": ["bob", "dave"]}

    assert await column(graph, query, params) == values


async def test_a_node_is_a_reference_and_an_edge_tells_its_kind(graph: Store) -> None:
    (node,) = await column(graph, "MATCH (n {name: 'bob'}) RETURN n")
    (edge,) = await column(graph, "MATCH ()-[f {id: 't1'}]->() RETURN f")

    assert isinstance(node, NodeRef)
    assert node.kind == "Entity"
    assert (edge["kind"], edge["predicate"]) == ("Fact", "knows")


async def test_a_triple_of_a_known_id_takes_the_place_of_the_one_before(graph: Store) -> None:
    await graph.add_triple("alice", "knows", "dave", confidence=0.1, id="t1")

    found = await graph.query("MATCH (s)-[f {id: 't1'}]->(o) RETURN o.name AS o, f.confidence AS c")

    assert found.rows == [{"o": "dave", "c": 0.1}]


async def test_a_triple_that_is_taken_out_is_found_no_more(graph: Store) -> None:
    await graph.remove_triple("t1")
    await graph.remove_triple("never was")

    assert await column(graph, "MATCH (s)-[f {id: 't1'}]->(o) RETURN s.name AS n") == []


async def test_ids_of_triples_without_one_do_not_run_together(graph: Store) -> None:
    await graph.add_triple("a|b", "c", "d")
    await graph.add_triple("a", "b|c", "d")

    assert len(await column(graph, "MATCH ()-[f]->(o {name: 'd'}) RETURN f.id AS id")) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"subject": ""}, {"predicate": " "}, {"object": "nul\0"}, {"object": "\ud800"}, {"id": ""},
        {"confidence": 1.5}, {"confidence": float("nan")}, {"confidence": True},
    ],
)  # fmt: skip
async def test_a_triple_that_is_none_is_refused(graph: Store, bad: dict[str, Any]) -> None:
    parts = {"subject": "s", "predicate": "p", "object": "o"} | bad
    said = [parts.pop(name) for name in ("subject", "predicate", "object")]

    with pytest.raises(ValueError, match=next(iter(bad))):
        await graph.add_triple(*said, **parts)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE (n:Entity {name: 'x'})",
        "MATCH (n) DETACH DELETE n",
        "MATCH (n) SET n.name = 'x'",
        "MERGE (n:Entity {name: 'x'})",
        "MATCH ()-[f]->() DELETE f",
        "MATCH (n) REMOVE n.name",
        "DROP TABLE Entity",
        "COPY (MATCH (n) RETURN n.name) TO '{out}'",
        "EXPORT DATABASE '{out}'",
        "INSTALL json",
        "LOAD EXTENSION json",
        "LOAD FROM '{out}' RETURN *",
        "CALL show_tables() RETURN *",
        "CALL threads=2",
        "ATTACH '{out}' AS other (dbtype duckdb)",
        "MATCH (n) RETURN n; MATCH (n) DETACH DELETE n",
        "CHECKPOINT",
        "BEGIN TRANSACTION",
    ],
)
async def test_nothing_but_reading_is_done(graph: Store, tmp_path: Path, query: str) -> None:
    out = tmp_path / "out.csv"

    with pytest.raises(UnportableCypherError):
        await graph.query(query.replace("{out}", str(out)))

    assert not out.exists()
    found = await graph.query(f"{QUERY} ORDER BY triple_id")
    assert [tuple(row.values()) for row in found.rows] == list(TRIPLES)


async def test_health_tells_how_many_nodes_there_are(graph: Store) -> None:
    health = await graph.health()

    assert (health.ok, health.node_count, health.warnings) == (True, 6, [])


async def test_queries_at_once_do_not_get_into_each_others_way(graph: Store) -> None:
    found = await asyncio.gather(*(graph.query(QUERY) for _ in range(10)))

    assert [len(one.rows) for one in found] == [5] * 10


async def test_what_is_closed_opens_again(graph: Store) -> None:
    await graph.close()

    assert len((await graph.query(QUERY)).rows) == 5


def test_one_store_serves_several_event_loops(tmp_path: Path) -> None:
    store = LadybugGraphStore(tmp_path / "graph.lbug")

    asyncio.run(_filled_and_read(store))
    asyncio.run(_filled_and_read(store))


async def _filled_and_read(store: LadybugGraphStore) -> None:
    await filled(store)
    await asyncio.gather(store.query(QUERY), store.query(QUERY))
    await store.close()


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.tuples(TEXTS, TEXTS, TEXTS).filter(lambda parts: all(part.strip() for part in parts)))
async def test_any_text_comes_back_as_it_was(tmp_path: Path, parts: tuple[str, str, str]) -> None:
    subject, predicate, what = parts
    for store in (InMemoryGraphStore(), LadybugGraphStore(tmp_path / "texts.lbug")):
        await store.bootstrap()
        await store.add_triple(subject, predicate, what, id="it")
        found = await store.query(
            "MATCH (s)-[f {id: 'it'}]->(o) RETURN s.name, f.predicate, o.name"
        )
        await store.close()
        assert [tuple(row.values()) for row in found.rows] == [parts]


NAMES = st.sampled_from(["a", "b", "c", "d"])
GRAPHS = st.lists(
    st.tuples(NAMES, st.sampled_from(["p", "q"]), NAMES, st.sampled_from([0.0, 0.5, 1.0])),
    max_size=8,
)
LEAVES = st.sampled_from(
    [
        "f.confidence > 0.4", "f.confidence = 1", "f.predicate = 'p'", "s.name < o.name",
        "s.name <> 'a'", "o.name IS NULL", "f.predicate IS NOT NULL", "(o.name IN ['a', 'b'])",
        "s.name STARTS WITH 'a'", "true", "false",
    ]
)  # fmt: skip
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda one: f"NOT ({one})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        # Beside OR, the one in memory asks which comes first.
        st.tuples(inner, inner).map(lambda parts: f"(({parts[0]}) XOR ({parts[1]}))"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
    ),
    max_leaves=4,
)


@pytest.mark.sampled
@settings(max_examples=amount(10, full=100), deadline=None, suppress_health_check=list(HealthCheck))
@given(GRAPHS, CONDITIONS, st.sampled_from(["-[f]->", "<-[f]-", "-[f:Fact]->"]))
def test_any_condition_on_any_graph_means_the_same_in_both(
    tmp_path_factory: pytest.TempPathFactory,
    triples: list[tuple[str, str, str, float]],
    condition: str,
    edge: str,
) -> None:
    query = f"MATCH (s:Entity){edge}(o:Entity) WHERE {condition} RETURN f.id AS id ORDER BY id"

    async def answers() -> list[list[Any]]:
        found = []
        folder = tmp_path_factory.mktemp("graph")
        for store in (InMemoryGraphStore(), LadybugGraphStore(folder / "graph.lbug")):
            await store.bootstrap()
            for subject, predicate, what, confidence in triples:
                await store.add_triple(subject, predicate, what, confidence=confidence)
            found.append(await column(store, query))
            await store.close()
        return found

    in_memory, in_file = asyncio.run(answers())
    assert in_memory == in_file


@pytest.mark.parametrize(
    "query",
    [
        "MATCH (n) RETURN count(*) AS n",
        "OPTIONAL MATCH (n) RETURN n.name AS n",
        "MATCH (n) WITH n.name AS m RETURN m",
        "UNWIND [1] AS n RETURN n",
        "MATCH (n)-[*1..2]->(m) RETURN n.name AS n",
        "MATCH p = (n)-->(m) RETURN p",
        "MATCH (n) WHERE n.name IN ['a'] AND n.name = 'a' RETURN n.name AS n",
        "MATCH (n) WHERE n.name = 'a' OR n.name = 'b' XOR true RETURN n.name AS n",
        "MATCH (n) RETURN n.name + 'x' AS n",
        "MATCH (n) RETURN 1 + 2 AS n",
        "MATCH (n) WHERE n.name =~ 'a.*' RETURN n.name AS n",
        "MATCH (n) WHERE EXISTS { MATCH (n)-->(m) RETURN m } RETURN n.name AS n",
        "MATCH (n) WHERE (n)-->() RETURN n.name AS n",
        "MATCH (n) RETURN CASE WHEN true THEN 1 ELSE 2 END AS n",
        "MATCH (n:!Entity) RETURN n.name AS n",
        "MATCH (n WHERE n.name = 'a') RETURN n.name AS n",
        "MATCH (n) RETURN n.name AS n UNION MATCH (m) RETURN m.name AS n",
        "MATCH (n) RETURN *",
        "MATCH (n) RETURN m.name AS n",
        "MATCH (n)-[n]->(m) RETURN m.name AS n",
        "MATCH (a)-[f]->(b)-[f]->(c) RETURN a.name AS n",
        "MATCH (n) RETURN n.name AS n, n.name AS n",
        "MATCH (n) RETURN DISTINCT n.name AS m ORDER BY n.name",
        "MATCH (n) WHERE n.name = $missing RETURN n.name AS n",
        "MATCH (n) WHERE 1 < n.name < 3 RETURN n.name AS n",
        "MATCH (n) RETURN -n.name AS n",
        "MATCH (n) RETURN n.name.first AS n",
        "MATCH (n) RETURN toLower(1) AS n",
        "RETURN date() AS n",
    ],
)
async def test_what_memory_cannot_answer_it_refuses(query: str) -> None:
    store = await filled(InMemoryGraphStore())

    with pytest.raises(UnportableCypherError) as refused:
        await store.query(query)

    assert refused.value.rule == "not-evaluated"


@pytest.mark.parametrize(
    "query",
    [
        "MATCH (n) RETURN n.name AS n LIMIT -1",
        "MATCH (n) RETURN n.name AS n SKIP 'x'",
        "MATCH (n) RETURN coalesce(n.x, 1) AS n, n.name AS m ORDER BY n",
    ],
)
async def test_an_order_or_a_page_that_is_none_is_refused(query: str) -> None:
    store = InMemoryGraphStore()
    await store.add_triple("a", "b", "c")
    if "coalesce" in query:
        query = query.replace("coalesce(n.x, 1)", "n")

    with pytest.raises((GraphStoreError, UnportableCypherError)):
        await store.query(query)


@pytest.mark.slow
async def test_a_search_that_would_never_end_is_given_up() -> None:
    store = InMemoryGraphStore()
    for number in range(60):
        await store.add_triple(f"s{number}", "p", f"o{number}")

    with pytest.raises(GraphStoreError, match="narrow it"):
        await store.query("MATCH (a), (b), (c), (d) WHERE a.name = 'x' RETURN a.name AS n")


async def test_what_is_unknown_is_neither_true_nor_false() -> None:
    store = await filled(InMemoryGraphStore())

    for where in (
        "n.age > 1",
        "NOT n.age > 1",
        "n.age = 1 OR n.age <> 1",
        "n.age IN [1]",
        "n.name > 1",
    ):
        assert await column(store, f"MATCH (n) WHERE {where} RETURN n.name AS n") == []
    assert len(await column(store, "MATCH (n) WHERE n.name <> 1 RETURN n.name AS n")) == 6


async def test_an_edge_is_taken_once_in_a_match_in_memory() -> None:
    store = InMemoryGraphStore()
    await store.add_triple("a", "p", "b")

    assert await column(store, "MATCH (x)-[f]-(y)-[g]-(z) RETURN x.name AS n") == []
    assert await column(store, "MATCH (x)-[f]-(y) MATCH (y)-[g]-(z) RETURN x.name AS n") == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("kind", ["missing", "directory", "corrupt"])
async def test_a_file_that_is_no_graph_is_told_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "graph.lbug"
    if kind == "directory":
        path.mkdir()
    elif kind == "corrupt":
        path.write_bytes(b"no graph at all " * 1000)
    store = LadybugGraphStore(path, read_only=True)

    health = await store.health()
    with pytest.raises(GraphStoreError) as refused:
        await store.query(QUERY)

    assert not health.ok
    assert health.warnings == [str(refused.value)]
    assert str(path) in str(refused.value)
    assert path.exists() is (kind != "missing")


async def test_what_the_graph_says_is_not_in_its_errors(tmp_path: Path) -> None:
    store = await filled(LadybugGraphStore(tmp_path / "graph.lbug"))

    with pytest.raises(GraphStoreError) as refused:
        await store.query("MATCH (n:Entity) WHERE n.name = 1 RETURN n.name AS n")
    await store.close()

    assert "alice" not in str(refused.value)
    assert "cast" in str(refused.value).lower()


async def test_a_query_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    await (await filled(LadybugGraphStore(tmp_path / "graph.lbug"))).close()
    # A thousand times what the second query takes.
    store = LadybugGraphStore(tmp_path / "graph.lbug", timeout_seconds=1)

    with pytest.raises(GraphStoreError, match=r"after 1 s"):
        await store.query(ENDLESS)
    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


ENDLESS = (
    "UNWIND range(1, 30000) AS x UNWIND range(1, 30000) AS y WITH x, y WHERE x * y < 0"
    " RETURN x AS n"
)


async def test_who_is_cancelled_stops_the_query_under_way(tmp_path: Path) -> None:
    store = await filled(LadybugGraphStore(tmp_path / "graph.lbug"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await store.query(ENDLESS)

    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


async def test_who_gives_up_before_its_turn_waits_for_nobody_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(LadybugGraphStore(tmp_path / "graph.lbug"))
    stopped: list[object] = []
    monkeypatch.setattr(ladybug_store._driver().Connection, "interrupt", stopped.append)

    with store._lock, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.query(QUERY)

    assert stopped == []
    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


async def test_a_graph_that_is_only_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "graph.lbug"
    writing = await filled(LadybugGraphStore(path))
    await writing.close()
    before = path.read_bytes()
    store = LadybugGraphStore(path, read_only=True)

    await store.bootstrap()
    with pytest.raises(GraphStoreError, match="read-only"):
        await store.add_triple("a", "b", "c")
    assert len((await store.query(QUERY)).rows) == 5
    await store.close()

    assert path.read_bytes() == before


USES_A_GRAPH = """
async def use():
    store = LadybugGraphStore(Path(sys.argv[1]))
    await store.bootstrap()
    await store.add_triple("alice", "likes", "tea", confidence=1.0, id="t1")
    print(len((await store.query("MATCH (n:Entity) RETURN n.name AS n")).rows))
    await store.close()

asyncio.run(use())
"""
OPENS_A_SOCKET = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"


def test_no_network_is_used(tmp_path: Path) -> None:
    graph, proof = (
        without_network(USES_A_GRAPH, tmp_path),
        without_network(OPENS_A_SOCKET, tmp_path),
    )

    assert (graph.returncode, graph.stdout) == (0, "2\n"), graph.stderr
    assert proof.returncode == -signal.SIGSYS


def test_nothing_of_the_extra_is_loaded_before_it_is_used() -> None:
    program = (
        "import sys, slumberd.graph.cypher_linter, slumberd.graph.memory;"
        "import slumberd.graph.ladybug_store;"
        "sys.exit(bool({'graphglot', 'ladybug'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_without_the_extra_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ladybug", None)
    monkeypatch.setitem(sys.modules, "graphglot.ast.base", None)
    ladybug_store._driver.cache_clear()
    cypher_parser._parser.cache_clear()
    store = LadybugGraphStore(tmp_path / "graph.lbug")
    try:
        with pytest.raises(ExtraMissingError, match=r"slumberd\[graph\]"):
            await store.bootstrap()
        with pytest.raises(ExtraMissingError, match="Cypher cannot be read"):
            await store.query(QUERY)
        assert not (await store.health()).ok
    finally:
        ladybug_store._driver.cache_clear()
        cypher_parser._parser.cache_clear()

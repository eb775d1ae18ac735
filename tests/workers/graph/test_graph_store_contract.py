"""The contract of graph stores.

Ladybug must pass all tests, in a file and in memory. The fake must pass those that need no Cypher
engine.
"""

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

from slumberd.model.errors import ExtraMissingError, GraphStoreError, UnportableCypherError
from slumberd.model.graph import GraphPath, NodeRef
from slumberd.workers.graph import cypher_parser, ladybug_store
from slumberd.workers.graph.ladybug_store import LadybugGraphStore
from slumberd.workers.graph.promotion import GraphStore
from tests.support.graph_stores import QUERY, FakeGraphStore, result
from tests.support.seccomp import without_network

pytestmark = pytest.mark.integration

TRIPLES = (
    ("alice", "knows", "bob", 0.5, "t1"),
    ("bob", "knows", "carol", 0.25, "t2"),
    ("carol", "likes", "Tea", 1.0, "t3"),
    ("alice", "likes", "Tea", 0.75, "t4"),
    ("dave", "likes", 'it\'s "odd"', 0.0, "t5"),
)
COLUMNS = ("subject", "predicate", "object", "confidence", "triple_id")
ORDERED = f"{QUERY} ORDER BY triple_id"
NOTHING = "MATCH (n:Entity {name: 'absent'}) RETURN n.name AS name"
RECORDED = {
    ORDERED: result([dict(zip(COLUMNS, triple, strict=True)) for triple in TRIPLES]),
    NOTHING: result([], columns=["name"]),
}
"""The answers of a graph of `TRIPLES`; the fake returns them, and the tests compare Ladybug's."""


async def fill(store: LadybugGraphStore) -> LadybugGraphStore:
    await store.bootstrap()
    for subject, predicate, object_, confidence, id in TRIPLES:
        await store.add_triple(subject, predicate, object_, confidence=confidence, id=id)
    return store


@pytest.fixture(params=["file", "memory"])
async def graph(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LadybugGraphStore]:
    path = tmp_path / "graph.lbug" if request.param == "file" else ":memory:"
    store = await fill(LadybugGraphStore(path))
    yield store
    await store.close()


@pytest.fixture(params=["file", "memory", "fake"])
async def any_graph(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GraphStore]:
    store: GraphStore
    if request.param == "fake":
        store = FakeGraphStore(answers=RECORDED)
    else:
        path = tmp_path / "graph.lbug" if request.param == "file" else ":memory:"
        store = await fill(LadybugGraphStore(path))
    yield store
    await store.close()


async def column(store: GraphStore, cypher: str, params: dict[str, Any] | None = None) -> list[Any]:
    found = await store.query(cypher, params)
    assert len(found.columns) == 1
    return [value for row in found.rows for value in row.values()]


async def test_every_provider_is_a_graph_store(any_graph: GraphStore) -> None:
    assert isinstance(any_graph, GraphStore)


@pytest.mark.slow
async def test_query_returns_its_columns_and_its_rows_in_order(any_graph: GraphStore) -> None:
    found = await any_graph.query(ORDERED)

    assert found == RECORDED[ORDERED]
    assert [tuple(row) for row in found.rows] == [COLUMNS] * len(TRIPLES)


async def test_query_that_finds_nothing_returns_its_columns(any_graph: GraphStore) -> None:
    found = await any_graph.query(NOTHING)

    assert found == RECORDED[NOTHING]


async def test_second_bootstrap_changes_nothing(any_graph: GraphStore) -> None:
    await any_graph.bootstrap()

    assert (await any_graph.query(ORDERED)).rows == RECORDED[ORDERED].rows


async def test_query_of_an_unknown_label_raises_a_graph_store_error(any_graph: GraphStore) -> None:
    with pytest.raises(GraphStoreError):
        await any_graph.query("MATCH (n:Absent) RETURN n.name AS name")


async def test_healthy_store_has_no_warnings(any_graph: GraphStore) -> None:
    health = await any_graph.health()

    assert (health.ok, health.warnings) == (True, [])


async def test_concurrent_queries_do_not_disturb_each_other(any_graph: GraphStore) -> None:
    found = await asyncio.gather(*(any_graph.query(ORDERED) for _ in range(10)))

    assert [len(answer.rows) for answer in found] == [5] * 10


@pytest.mark.slow
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
async def test_condition_selects_triples(
    graph: LadybugGraphStore, where: str, ids: list[str]
) -> None:
    query = f"MATCH (s:Entity)-[f:Fact]->(o:Entity) WHERE {where} RETURN f.id AS id ORDER BY id"

    assert await column(graph, query) == ids


@pytest.mark.slow
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
        ("MATCH (n:Entity {name: 'bob'}) RETURN 'text' AS n", ["text"]),
        ("MATCH (n:Entity {name: 'bob'}) RETURN 2 AS n", [2]),
    ],
)  # fmt: skip
async def test_query_matches_a_pattern(
    graph: LadybugGraphStore, query: str, values: list[object]
) -> None:
    params: dict[str, Any] = {}
    if "$name " in query:
        params = {"name": "bob"}
    elif "$names" in query:
        params = {"names": ["bob", "dave"]}

    assert await column(graph, query, params) == values


async def test_query_returns_a_node_as_a_reference_and_an_edge_with_its_kind(
    graph: LadybugGraphStore,
) -> None:
    (node,) = await column(graph, "MATCH (n {name: 'bob'}) RETURN n")
    (edge,) = await column(graph, "MATCH ()-[f {id: 't1'}]->() RETURN f")

    assert isinstance(node, NodeRef)
    assert node.kind == "Entity"
    assert (edge["kind"], edge["predicate"]) == ("Fact", "knows")


async def test_query_returns_a_path_as_its_nodes_and_edges(graph: LadybugGraphStore) -> None:
    (path,) = await column(graph, "MATCH p = (a {name: 'alice'})-[f {id: 't1'}]->(b) RETURN p")
    (bob,) = await column(graph, "MATCH (n {name: 'bob'}) RETURN n")
    (edge,) = await column(graph, "MATCH ()-[f {id: 't1'}]->() RETURN f")

    assert isinstance(path, GraphPath)
    assert (len(path.nodes), path.nodes[1], path.edges) == (2, bob, [edge])
    assert {*edge} == {"id", "kind", "predicate", "confidence"}


async def test_triple_with_a_known_id_replaces_the_earlier_triple(
    graph: LadybugGraphStore,
) -> None:
    await graph.add_triple("alice", "knows", "dave", confidence=0.1, id="t1")

    found = await graph.query("MATCH (s)-[f {id: 't1'}]->(o) RETURN o.name AS o, f.confidence AS c")

    assert found.rows == [{"o": "dave", "c": 0.1}]


async def test_removed_triple_is_not_found(graph: LadybugGraphStore) -> None:
    await graph.remove_triple("t1")
    await graph.remove_triple("unknown")

    assert await column(graph, "MATCH (s)-[f {id: 't1'}]->(o) RETURN s.name AS n") == []


async def test_different_triples_without_ids_get_different_ids(graph: LadybugGraphStore) -> None:
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
async def test_invalid_triple_is_refused(graph: LadybugGraphStore, bad: dict[str, Any]) -> None:
    parts = {"subject": "s", "predicate": "p", "object": "o"} | bad
    values = [parts.pop(name) for name in ("subject", "predicate", "object")]

    with pytest.raises(ValueError, match=next(iter(bad))):
        await graph.add_triple(*values, **parts)


@pytest.mark.slow
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
async def test_query_that_writes_is_refused_and_changes_nothing(
    any_graph: GraphStore, tmp_path: Path, query: str
) -> None:
    out = tmp_path / "out.csv"

    with pytest.raises(UnportableCypherError):
        await any_graph.query(query.replace("{out}", str(out)))

    assert not out.exists()
    found = await any_graph.query(ORDERED)
    assert [tuple(row.values()) for row in found.rows] == list(TRIPLES)


async def test_health_counts_the_nodes(graph: LadybugGraphStore) -> None:
    health = await graph.health()

    assert (health.ok, health.node_count, health.warnings) == (True, 6, [])


async def test_closed_file_opens_again(tmp_path: Path) -> None:
    store = await fill(LadybugGraphStore(tmp_path / "graph.lbug"))
    await store.close()

    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


async def test_graph_in_memory_is_empty_after_it_is_closed() -> None:
    store = await fill(LadybugGraphStore(":memory:"))
    await store.close()

    await store.bootstrap()

    assert (await store.query(QUERY)).rows == []
    await store.close()


def test_one_store_serves_several_event_loops(tmp_path: Path) -> None:
    store = LadybugGraphStore(tmp_path / "graph.lbug")

    asyncio.run(_fill_and_read(store))
    asyncio.run(_fill_and_read(store))


async def _fill_and_read(store: LadybugGraphStore) -> None:
    await fill(store)
    await asyncio.gather(store.query(QUERY), store.query(QUERY))
    await store.close()


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.tuples(TEXTS, TEXTS, TEXTS).filter(lambda parts: all(part.strip() for part in parts)))
async def test_query_returns_every_text_unchanged(
    tmp_path: Path, parts: tuple[str, str, str]
) -> None:
    for store in (LadybugGraphStore(":memory:"), LadybugGraphStore(tmp_path / "texts.lbug")):
        await store.bootstrap()
        await store.add_triple(*parts, id="it")
        found = await store.query(
            "MATCH (s)-[f {id: 'it'}]->(o) RETURN s.name, f.predicate, o.name"
        )
        await store.close()
        assert [tuple(row.values()) for row in found.rows] == [parts]


@pytest.mark.parametrize("kind", ["missing", "directory", "corrupt"])
async def test_file_that_is_no_graph_is_reported_and_not_changed(tmp_path: Path, kind: str) -> None:
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


async def test_errors_do_not_quote_the_content_of_the_graph(tmp_path: Path) -> None:
    store = await fill(LadybugGraphStore(tmp_path / "graph.lbug"))

    with pytest.raises(GraphStoreError) as refused:
        await store.query("MATCH (n:Entity) WHERE n.name = 1 RETURN n.name AS n")
    await store.close()

    assert "alice" not in str(refused.value)
    assert "cast" in str(refused.value).lower()


@pytest.mark.slow
async def test_query_that_exceeds_the_time_limit_is_stopped(tmp_path: Path) -> None:
    await (await fill(LadybugGraphStore(tmp_path / "graph.lbug"))).close()
    # The limit is a thousand times the duration of the second query.
    store = LadybugGraphStore(tmp_path / "graph.lbug", timeout_seconds=1)

    with pytest.raises(GraphStoreError, match=r"after 1 s"):
        await store.query(ENDLESS)
    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


ENDLESS = (
    "UNWIND range(1, 30000) AS x UNWIND range(1, 30000) AS y WITH x, y WHERE x * y < 0"
    " RETURN x AS n"
)


@pytest.mark.slow
async def test_cancelled_caller_stops_its_running_query(tmp_path: Path) -> None:
    store = await fill(LadybugGraphStore(tmp_path / "graph.lbug"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await store.query(ENDLESS)

    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


async def test_caller_that_is_cancelled_while_it_waits_stops_no_other_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await fill(LadybugGraphStore(tmp_path / "graph.lbug"))
    stopped: list[object] = []
    monkeypatch.setattr(ladybug_store._load_driver().Connection, "interrupt", stopped.append)

    with store._lock, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.query(QUERY)

    assert stopped == []
    assert len((await store.query(QUERY)).rows) == 5
    await store.close()


async def test_read_only_store_does_not_write_its_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.lbug"
    writing = await fill(LadybugGraphStore(path))
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


@pytest.mark.nightly
def test_no_network_is_used(tmp_path: Path) -> None:
    graph, proof = (
        without_network(USES_A_GRAPH, tmp_path),
        without_network(OPENS_A_SOCKET, tmp_path),
    )

    assert (graph.returncode, graph.stdout) == (0, "2\n"), graph.stderr
    assert proof.returncode == -signal.SIGSYS


@pytest.mark.slow
def test_import_of_the_modules_does_not_load_the_extra() -> None:
    program = (
        "import sys, slumberd.workers.graph.cypher_linter, slumberd.workers.graph.ladybug_store;"
        "sys.exit(bool({'graphglot', 'ladybug'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_error_without_the_extra_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ladybug", None)
    monkeypatch.setitem(sys.modules, "graphglot.ast.base", None)
    ladybug_store._load_driver.cache_clear()
    cypher_parser._load_parser.cache_clear()
    store = LadybugGraphStore(tmp_path / "graph.lbug")
    try:
        with pytest.raises(ExtraMissingError, match=r"slumberd\[graph\]"):
            await store.bootstrap()
        with pytest.raises(ExtraMissingError, match="Cypher cannot be read"):
            await store.query(QUERY)
        assert not (await store.health()).ok
    finally:
        ladybug_store._load_driver.cache_clear()
        cypher_parser._load_parser.cache_clear()

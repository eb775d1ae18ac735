"""Graph stores for tests: one that returns recorded answers, and a real one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slumberd.model.errors import GraphStoreError
from slumberd.model.graph import ResultSet
from slumberd.model.store_status import StoreHealth
from slumberd.workers.graph.cypher_linter import Linter
from slumberd.workers.graph.ladybug_store import LadybugGraphStore

QUERY = (
    "MATCH (s:Entity)-[f:Fact]->(o:Entity) RETURN s.name AS subject, f.predicate AS predicate,"
    " o.name AS object, f.confidence AS confidence, f.id AS triple_id"
)
"""Returns all triples of a graph."""

BARE = "MATCH (s)-[f]->(o) RETURN s.name AS subject, f.predicate AS predicate, o.name AS object"
"""Returns the same, without ids and confidences."""


class FakeGraphStore:
    """Returns recorded answers; implements `GraphStore`.

    Attributes:
        path: Named by errors and by the source of a fact.
        answers: The result of each query that it can answer.
        queries: The queries that it received, in order.
        fails: Whether every query raises `GraphStoreError`.
        closed: How often it was closed.

    Args:
        rows: The answer to `QUERY`.
        path: See the attribute.
        answers: The answers to further queries.
    """

    def __init__(
        self,
        *rows: Mapping[str, Any],
        path: str = "/var/graphs/team (1).db",
        answers: Mapping[str, ResultSet] | None = None,
    ) -> None:
        self.path = path
        self.answers = {QUERY: result(rows), **(answers or {})}
        self.queries: list[str] = []
        self.fails = False
        self.closed = 0
        self._linter = Linter()

    async def bootstrap(self) -> None:
        """Do nothing: the answers are recorded already."""

    async def health(self) -> StoreHealth:
        return StoreHealth(ok=True, version=1, fs_type="memory", lock_state="free")

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        self.queries.append(cypher)
        if self.fails:
            raise GraphStoreError(self.path, "the graph is not available")
        self._linter.check_reading(cypher)
        if params or cypher not in self.answers:
            raise GraphStoreError(self.path, f"no answer is recorded for {cypher!r} with {params}")
        return self.answers[cypher]

    async def close(self) -> None:
        self.closed += 1


def result(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> ResultSet:
    """Return an answer; its columns are those of the first row when none are given."""
    names = [*columns] or [name for row in rows[:1] for name in row]
    return ResultSet(rows=[dict(row) for row in rows], columns=names)


def row(subject: str, predicate: str, what: object, **others: Any) -> dict[str, Any]:
    """Return a row as a promotion reads it."""
    return {"subject": subject, "predicate": predicate, "object": what, **others}


async def graph_in_memory(*triples: Sequence[str]) -> LadybugGraphStore:
    """Return a real graph that holds triples: subject, predicate, object, and perhaps an id."""
    graph = LadybugGraphStore(":memory:")
    await graph.bootstrap()
    for subject, predicate, what, *id in triples:
        await graph.add_triple(subject, predicate, what, id=next(iter(id), None))
    return graph

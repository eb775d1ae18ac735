"""Graphs for tests: one that answers with given rows, and one that says given triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slumberd.errors import GraphStoreError
from slumberd.graph.memory import InMemoryGraphStore
from slumberd.model.graph import ResultSet
from slumberd.model.health import StoreHealth

QUERY = (
    "MATCH (s:Entity)-[f:Fact]->(o:Entity) RETURN s.name AS subject, f.predicate AS predicate,"
    " o.name AS object, f.confidence AS confidence, f.id AS triple_id"
)
"""Everything that a graph of triples says."""

BARE = "MATCH (s)-[f]->(o) RETURN s.name AS subject, f.predicate AS predicate, o.name AS object"
"""The same, without ids and confidences."""


class FakeGraph:
    """Answers any query with the rows it is given; implements ``ports.GraphStore``."""

    def __init__(self, *rows: Mapping[str, Any], path: str = "/var/graphs/team (1).db") -> None:
        self.rows = [dict(row) for row in rows]
        self.path = path
        self.fails = False
        self.asked: list[str] = []
        self.closed = 0

    async def bootstrap(self) -> None:
        """Do nothing."""

    async def health(self) -> StoreHealth:
        return StoreHealth(ok=True, version=1, fs_type="memory", lock_state="free")

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        self.asked.append(cypher)
        if self.fails:
            raise GraphStoreError(self.path, "it is away")
        return ResultSet(rows=self.rows, columns=list(self.rows[0]) if self.rows else [])

    async def close(self) -> None:
        self.closed += 1


def row(subject: str, predicate: str, what: object, **others: Any) -> dict[str, Any]:
    """Return a row as a promotion reads it."""
    return {"subject": subject, "predicate": predicate, "object": what, **others}


async def saying(*triples: Sequence[str]) -> InMemoryGraphStore:
    """Return a graph that says triples."""
    graph = InMemoryGraphStore()
    for subject, predicate, what, *id in triples:
        await graph.add_triple(subject, predicate, what, id=next(iter(id), None))
    return graph

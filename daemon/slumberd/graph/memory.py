"""A graph in memory: for tests, for examples, and for what need not outlive a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Lock
from typing import Any

from slumberd.graph.cypher_linter import Linter
from slumberd.graph.search import Edge, Graph, Vertex, answered
from slumberd.graph.subset import query_of
from slumberd.graph.triples import EDGE, NODE, checked_triple
from slumberd.model.graph import ResultSet
from slumberd.model.health import StoreHealth


class InMemoryGraphStore:
    """Triples as ``(:Entity {name})-[:Fact {id, predicate, confidence}]->(:Entity {name})``.

    It answers the subset of Cypher that `graph.subset` describes, and refuses the rest; an edge is
    taken once in a ``MATCH``, as openCypher has it. Implements ``ports.GraphStore``.

    Attributes:
        source: What provenance calls it.
    """

    source = "memory_graph"

    def __init__(self) -> None:
        self._graph = Graph()
        self._linter = Linter()
        self._lock = Lock()

    async def bootstrap(self) -> None:
        """Do nothing: there is nothing to create."""

    async def health(self) -> StoreHealth:
        """Say how many nodes there are."""
        nodes = len(self._graph.vertices)
        return StoreHealth(
            ok=True, version=1, node_count=nodes, fs_type="memory", lock_state="free"
        )

    async def query(self, cypher: str, params: Mapping[str, Any] | None = None) -> ResultSet:
        """Return what a query finds.

        Args:
            cypher: One statement that only reads.
            params: What ``$name`` stands for.

        Raises:
            UnportableCypherError: The query is not portable, not of the subset, or writes.
            GraphStoreError: It would take too long, or asks for an order that is none.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        return await asyncio.to_thread(self._answered, cypher, dict(params or {}))

    def _answered(self, cypher: str, parameters: dict[str, Any]) -> ResultSet:
        self._linter.check_reading(cypher)
        query = query_of(cypher, parameters)
        with self._lock:
            return answered(self._graph, query)

    async def add_triple(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 # the specification's word
        *,
        confidence: float = 1.0,
        id: str | None = None,
    ) -> None:
        """Say a triple; in the place of what has its id.

        Args:
            subject: The name of a node; it is made when there is none.
            predicate: What is said.
            object: The name of another.
            confidence: 0 to 1.
            id: Of the triple; made of its parts for None.

        Raises:
            ValueError: A part is empty or no valid text, or the confidence lies outside 0..1.
        """
        triple = checked_triple(subject, predicate, object, confidence, id)
        said = {"id": triple.id, "predicate": triple.predicate, "confidence": triple.confidence}
        edge = Edge(triple.id, EDGE, triple.subject, triple.object, said)
        await asyncio.to_thread(self._put, edge)

    def _put(self, edge: Edge) -> None:
        with self._lock:
            for name in (edge.source, edge.target):
                self._graph.vertices.setdefault(name, Vertex(name, NODE, {"name": name}))
            self._graph.put(edge)

    async def remove_triple(self, id: str) -> None:
        """Take a triple out; nothing happens when there is none of that id."""
        await asyncio.to_thread(self._drop, id)

    def _drop(self, id: str) -> None:
        with self._lock:
            self._graph.drop(id)

    async def close(self) -> None:
        """Do nothing: there is nothing open."""

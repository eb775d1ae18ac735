"""Look for patterns in a graph that is in memory, and return what a query asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from slumberd.errors import GraphStoreError
from slumberd.graph.subset import Element, Query
from slumberd.graph.values import ORDERED, Row, Value, equal, sort_of, truth
from slumberd.model.graph import NodeRef, ResultSet

MOST_STEPS = 2_000_000
"""Nodes and edges that one query may look at; some seconds."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node.

    Attributes:
        id: Unique among the nodes.
        label: Its one label.
        properties: By name.
    """

    id: str
    label: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge.

    Attributes:
        id: Unique among the edges.
        label: Its kind.
        source: The id of the node that it leads from.
        target: Of the one that it leads to.
        properties: By name.
    """

    id: str
    label: str
    source: str
    target: str
    properties: Mapping[str, Any]


@dataclass(slots=True)
class Graph:
    """Nodes and edges by their ids, and the ids of the edges at each node."""

    vertices: dict[str, Vertex] = field(default_factory=dict)
    edges: dict[str, Edge] = field(default_factory=dict)
    out: dict[str, dict[str, None]] = field(default_factory=dict)
    into: dict[str, dict[str, None]] = field(default_factory=dict)

    def put(self, edge: Edge) -> None:
        """Put an edge between nodes that are there, in the place of what has its id."""
        self.drop(edge.id)
        self.edges[edge.id] = edge
        self.out.setdefault(edge.source, {})[edge.id] = None
        self.into.setdefault(edge.target, {})[edge.id] = None

    def drop(self, id: str) -> None:
        """Take an edge out, if it is there."""
        edge = self.edges.pop(id, None)
        if edge is not None:
            del self.out[edge.source][id]
            del self.into[edge.target][id]


def answered(graph: Graph, query: Query) -> ResultSet:
    """Return what a query finds in a graph, which must not change meanwhile.

    Raises:
        GraphStoreError: It would take too long, or asks for an order that is none.
    """
    return _returned(query, _Search(graph).rows(query.matches))


class _Search:
    """Looks for patterns, one node or edge after the other."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._steps = 0

    def rows(
        self, matches: Sequence[tuple[list[list[Element]], Value | None]]
    ) -> Iterator[dict[str, Any]]:
        """Yield what variables are bound to wherever all patterns match."""
        found: Iterator[dict[str, Any]] = iter(({},))
        for paths, where in matches:
            found = self._narrowed(found, paths, where)
        return found

    def _narrowed(
        self, rows: Iterator[dict[str, Any]], paths: list[list[Element]], where: Value | None
    ) -> Iterator[dict[str, Any]]:
        for row in rows:
            for found, _ in self._paths(row, paths, frozenset()):
                if where is None or truth(where(found)) is True:
                    yield found

    def _paths(
        self, row: dict[str, Any], paths: Sequence[list[Element]], used: frozenset[str]
    ) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
        if not paths:
            yield row, used
            return
        first, *rest = paths
        for vertex in self._vertices(first[0], row):
            bound = _bound(row, first[0], vertex)
            for found, taken in self._along(bound, vertex, first[1:], used):
                yield from self._paths(found, rest, taken)

    def _vertices(self, element: Element, row: Row) -> Iterator[Vertex]:
        known = row.get(element.variable)
        candidates = [known] if isinstance(known, Vertex) else self._graph.vertices.values()
        for vertex in candidates:
            self._step()
            if _fits(element, vertex, row):
                yield vertex

    def _along(
        self, row: dict[str, Any], at: Vertex, rest: Sequence[Element], used: frozenset[str]
    ) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
        if not rest:
            yield row, used
            return
        edge_pattern, vertex_pattern, *further = rest
        for edge, other in self._edges(at, edge_pattern.way):
            self._step()
            known = row.get(vertex_pattern.variable)
            if edge.id in used or not _fits(edge_pattern, edge, row):
                continue
            if (known is not None and known is not other) or not _fits(vertex_pattern, other, row):
                continue
            bound = _bound(_bound(row, edge_pattern, edge), vertex_pattern, other)
            yield from self._along(bound, other, further, used | {edge.id})

    def _edges(self, at: Vertex, way: str) -> Iterator[tuple[Edge, Vertex]]:
        graph = self._graph
        out = graph.out.get(at.id, ()) if way in ">-" else ()
        for id in out:
            edge = graph.edges[id]
            yield edge, graph.vertices[edge.target]
        into = graph.into.get(at.id, ()) if way in "<-" else ()
        for id in into:
            edge = graph.edges[id]
            if way == "<" or edge.source != edge.target:
                yield edge, graph.vertices[edge.source]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            problem = f"the query looks at more than {MOST_STEPS:,} nodes and edges; narrow it"
            raise GraphStoreError("", problem)


def _fits(element: Element, one: Vertex | Edge, row: Row) -> bool:
    if not element.labels(one.label):
        return False
    wanted = ((name, value(row)) for name, value in element.properties)
    return all(equal(one.properties.get(name), value) is True for name, value in wanted)


def _bound(row: dict[str, Any], element: Element, one: Vertex | Edge) -> dict[str, Any]:
    return {**row, element.variable: one} if element.variable else row


def _returned(query: Query, rows: Iterator[dict[str, Any]]) -> ResultSet:
    """Return the columns of what was found, ordered, each once if wanted, and cut to a page."""
    found = list(rows)
    for key, descending in reversed(query.order):
        found.sort(key=cmp_to_key(_by(key)), reverse=descending)
    told = [{item.name: _told(item.value(row)) for item in query.items} for row in found]
    if query.distinct:
        told = list({repr(_frozen(one)): one for one in told[::-1]}.values())[::-1]
    skip, limit = (_count(one) for one in (query.skip, query.limit))
    end = None if limit is None else (skip or 0) + limit
    return ResultSet(rows=told[skip or 0 : end], columns=[item.name for item in query.items])


def _by(key: Value) -> Callable[[Row, Row], int]:
    def compare(one: Row, other: Row) -> int:
        left, right = key(one), key(other)
        if left is None or right is None:
            return (left is None) - (right is None)  # null is the largest
        if sort_of(left) != sort_of(right) or sort_of(left) not in ORDERED:
            raise GraphStoreError("", "values of several kinds have no order")
        return bool(left > right) - bool(left < right)

    return compare


def _count(value: Value | None) -> int | None:
    if value is None:
        return None
    count = value({})
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise GraphStoreError("", f"SKIP and LIMIT take a whole number, not {count!r}")
    return count


def _told(value: object) -> object:
    match value:
        case Vertex():
            return NodeRef(id=value.id, kind=value.label)
        case Edge():
            return {"id": value.id, "kind": value.label, **value.properties}
        case _:
            return value


def _frozen(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(name, sort_of(value), _plain(value)) for name, value in row.items()]


def _plain(value: object) -> str:
    same_number = isinstance(value, float) and value.is_integer()
    return repr(int(value) if same_number and isinstance(value, float) else value)

"""Parse Cypher, in bounded time, into a tree that others walk by the names of its nodes.

The parser is that of the extra ``graph``. It tries again whatever it has tried before, so that a
few parentheses take it minutes: what it has found at a place is kept, and its steps are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from slumberd.errors import ExtraMissingError, UnportableCypherError
from slumberd.graph.texts import PARSE_ERROR, Text

MOST_STEPS = 5_000
"""Steps of the parser for one query, at most; up to a millisecond each."""

Node = Any
"""A node of the tree, of a class of the parser's."""


class _TooLongError(Exception):
    """The parser has taken too many steps."""


class _Parser(NamedTuple):
    """What the extra brings.

    Attributes:
        parse: Takes a query; returns one tree for each statement.
        errors: What it raises.
        node: The class of every node.
    """

    parse: Callable[[str], list[Node]]
    errors: tuple[type[Exception], ...]
    node: type


@lru_cache(maxsize=8)  # each query is looked at several times over
def parsed(text: Text) -> Node:
    """Return the tree of a query's one statement; nobody may change it.

    Raises:
        UnportableCypherError: It is none, or takes too long to be read.
        ExtraMissingError: The extra ``graph`` is not installed.
    """
    parser = _parser()
    try:
        trees = parser.parse(text.cypher)
    except _TooLongError:
        problem = "it takes too long to be read; write it simpler, with fewer parentheses"
        raise UnportableCypherError(text.cypher, "too-complex", problem) from None
    except parser.errors as error:
        raise _refused(text, error) from error
    if len(trees) != 1:
        raise UnportableCypherError(text.cypher, PARSE_ERROR, "one statement is needed")
    return trees[0]


def _refused(text: Text, error: Exception) -> UnportableCypherError:
    places = getattr(error, "errors", None) or [vars(error)]
    start = places[0].get("start_offset")
    problem = "this is no Cypher that every graph database reads"
    if start is None:
        return UnportableCypherError(text.cypher, PARSE_ERROR, problem)
    end = max(start + 1, places[0].get("end_offset") or 0)
    return text.refused(PARSE_ERROR, problem, start, end)


def kind(node: Node) -> str:
    """Return the name of a node's class; of anything else, that of its type."""
    return type(node).__name__


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes right below one, in the order of the grammar; of what is none, nothing."""
    for name, value in getattr(node, "__dict__", {}).items():
        if not name.startswith("_"):
            yield from _nodes_in(value)


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _nodes_in(one)
    elif isinstance(value, _parser().node):
        yield value


def walked(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(children(one))


def place_of(node: Node) -> tuple[int, int] | None:
    """Return where in the query a node stands, as offsets; None when the parser does not tell."""
    first, last = getattr(node, "_start_token", None), getattr(node, "_end_token", None)
    if first is None or last is None:
        return None
    return first.start, last.end + 1


@cache
def _parser() -> _Parser:
    try:
        # Of an extra, and slow.
        from graphglot.ast.base import Expression
        from graphglot.dialect.neo4j import Neo4j
        from graphglot.error import GraphGlotError
    except ImportError as error:
        raise ExtraMissingError("graph", "Cypher cannot be read") from error
    dialect = Neo4j()
    bounded = _bounded(Neo4j.parser_class)

    def parse(cypher: str) -> list[Node]:
        tokens = dialect.tokenize(cypher)
        trees = bounded(dialect=dialect).parse(tokens, cypher)
        return [tree for tree in trees if tree is not None]

    errors = (
        GraphGlotError,
        RecursionError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
    )
    return _Parser(parse, errors, Expression)


def _bounded(base: type[Node]) -> type[Node]:
    """Return a parser that keeps what it has found, and gives up in the end."""

    class Bounded(base):  # type: ignore[misc]  # the extra may not be there
        def reset(self) -> None:
            super().reset()
            self._steps = 0
            self._found: dict[tuple[int, object, int], tuple[Node, int]] = {}

        def _advance(self, times: int = 1) -> None:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise _TooLongError
            super()._advance(times)

        def try_parse(self, parser: object, retreat: bool = False) -> Node:
            # What a parser makes of a place does not depend on how it came there.
            start = self._index
            key = id(self._tokens), parser, start
            if key not in self._found:
                node = super().try_parse(parser)
                self._found[key] = node, self._index
            node, end = self._found[key]
            self._retreat(start if retreat or not node else end)
            return node

    return Bounded

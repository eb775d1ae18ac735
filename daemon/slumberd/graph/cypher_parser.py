"""Parse Cypher, in bounded time, into a tree that others walk by the names of its nodes.

The parser is that of the extra ``graph``. It tries again whatever it has tried before, so that a
few parentheses take it minutes: what it has found at a place is kept, and its steps are counted.

Look at a Cypher query as a text, before any parser does.

Parsers do not agree on comments, escapes and the ends of strings, and what one takes for a word
another may take for a query. Only what all of them split alike is let through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from slumberd.errors import ExtraMissingError, UnportableCypherError

LONGEST = 4_096
"""Characters of a query at most."""

DEEPEST = 30
"""Brackets within brackets at most."""

PARSE_ERROR = "parse-error"

_QUOTES = "'\"`"
_CLOSING = {")": "(", "]": "[", "}": "{"}
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<comment>//|/\*)|(?P<bracket>[()\[\]{}])|(?P<end>;)|(?P<open>['"`])|(?P<odd>[^\t\n\r\x20-\x7e]|\\)""",
    re.DOTALL,
)
_ESCAPES = ("\\\\", "\\n", "\\t")


class Text(NamedTuple):
    """A query that every parser splits alike.

    Attributes:
        cypher: The query.
        bare: The same with everything between quotes blanked out; of the same length.
    """

    cypher: str
    bare: str

    def refused(self, rule: str, problem: str, start: int, end: int) -> UnportableCypherError:
        """Return the error for a part of the query."""
        match = self.cypher[start:end]
        return UnportableCypherError(self.cypher, rule, problem, match=match, position=start)


def text_of(cypher: str) -> Text:
    """Return a query that has a plain form.

    Raises:
        UnportableCypherError: It is empty, too long, nested too deep, or holds comments, several
            statements or characters that parsers read differently.
    """
    if not cypher.strip() or len(cypher) > LONGEST:
        what = "is empty" if not cypher.strip() else f"is longer than {LONGEST:,} characters"
        raise UnportableCypherError(cypher, PARSE_ERROR, f"the query {what}")
    scan = _Scan(cypher)
    for found in _TOKEN.finditer(cypher):
        scan.see(found)
    scan.finish()
    return Text(cypher, "".join(scan.bare))


class _Scan:
    """One query being looked at."""

    def __init__(self, cypher: str) -> None:
        self.bare = list(cypher)
        self._text = Text(cypher, "")
        self._open: list[tuple[str, int]] = []
        self._text_end = -1

    def see(self, found: re.Match[str]) -> None:
        """Take the next thing that has a meaning of its own."""
        match found.lastgroup:
            case "text":
                self._quoted(found)
            case "bracket":
                self._bracket(found)
            case "end":
                self._statement_end(found)
            case "comment":
                self._refuse(found, "comments are not taken: parsers end them differently")
            case "open":
                self._refuse(found, "the text that begins here does not end")
            case _:
                self._refuse(found, "this character is taken between quotes only")

    def finish(self) -> None:
        """See to it that nothing is left open."""
        if self._open:
            bracket, at = self._open[-1]
            raise self._text.refused(PARSE_ERROR, f"{bracket!r} is not closed", at, at + 1)

    def _refuse(self, found: re.Match[str], problem: str) -> None:
        raise self._text.refused(PARSE_ERROR, problem, *found.span())

    def _quoted(self, found: re.Match[str]) -> None:
        if found.start() == self._text_end:
            self._refuse(
                found, "two texts meet here: write a quote within the other kind of quotes"
            )
        for escape in re.finditer(r"\\.", found[0][:-1], re.DOTALL):
            after = found[0][escape.end() : escape.end() + 1]
            if escape[0] not in _ESCAPES or (escape[0] == "\\\\" and after in (*_QUOTES, "")):
                self._refuse(found, r"of escapes only \\, \n and \t are read everywhere alike")
        if "\0" in found[0] or (found[0][0] == "`" and found[0] == "``"):
            self._refuse(found, "a name or a text holds what no parser takes")
        self._text_end = found.end()
        self.bare[found.start() : found.end()] = " " * len(found[0])

    def _bracket(self, found: re.Match[str]) -> None:
        bracket = found[0]
        if bracket not in _CLOSING:
            self._open.append((bracket, found.start()))
            if len(self._open) > DEEPEST:
                self._refuse(found, f"brackets are nested deeper than {DEEPEST} levels")
        elif not self._open or self._open.pop()[0] != _CLOSING[bracket]:
            self._refuse(found, f"{bracket!r} closes nothing")

    def _statement_end(self, found: re.Match[str]) -> None:
        if found.string[found.end() :].strip():
            problem = "one statement only is taken"
            raise self._text.refused("multiple-statements", problem, *found.span())


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

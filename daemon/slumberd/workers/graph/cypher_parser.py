"""Parse a Cypher query into a tree, in bounded time.

Parsers disagree on comments, escapes and where strings end. So a text scan first refuses what two
parsers may split differently. Then the parser of the extra ``graph`` builds the tree, and callers
identify its nodes by class name. That parser backtracks: some parentheses take it minutes. So its
intermediate results are cached, and its steps are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from slumberd.model.arguments import require_text
from slumberd.model.errors import ExtraMissingError, UnportableCypherError

MAX_CHARACTERS = 4_096
"""The most characters of a query."""

MAX_NESTING = 30
"""The most levels of nested brackets."""

MAX_STEPS = 5_000
"""The most steps of the parser for one query; a step takes up to a millisecond."""

PARSE_ERROR = "parse-error"
"""The rule that an unreadable query breaks."""

Node = Any
"""A node of the tree; its class belongs to the parser."""

_QUOTES = "'\"`"
_CLOSING = {")": "(", "]": "[", "}": "{"}
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<comment>//|/\*)|(?P<bracket>[()\[\]{}])|(?P<end>;)|(?P<open>['"`])|(?P<odd>[^\t\n\r\x20-\x7e]|\\)""",
    re.DOTALL,
)
_ESCAPES = ("\\\\", "\\n", "\\t")


class QueryText(NamedTuple):
    """A query that every parser splits into the same tokens.

    Attributes:
        unquoted: The query with blanks in place of quoted text; the length is the same.
    """

    cypher: str
    unquoted: str

    def error(self, rule: str, problem: str, start: int, end: int) -> UnportableCypherError:
        """Return the error for a part of the query."""
        match = self.cypher[start:end]
        return UnportableCypherError(self.cypher, rule, problem, match=match, position=start)


def scan(cypher: str) -> QueryText:
    """Check the text of a query before any parser reads it.

    Raises:
        UnportableCypherError: The query is empty, too long or nested too deeply, or it holds
            comments, several statements, or characters that parsers read differently.
    """
    require_text("cypher", cypher)
    if not cypher.strip() or len(cypher) > MAX_CHARACTERS:
        problem = (
            "is empty" if not cypher.strip() else f"is longer than {MAX_CHARACTERS:,} characters"
        )
        raise UnportableCypherError(cypher, PARSE_ERROR, f"the query {problem}")
    scanner = _Scanner(cypher)
    for token in _TOKEN.finditer(cypher):
        scanner.add(token)
    scanner.finish()
    return QueryText(cypher, "".join(scanner.unquoted))


class _Scanner:
    """Checks the tokens of one query in order."""

    def __init__(self, cypher: str) -> None:
        self.unquoted = list(cypher)
        self._text = QueryText(cypher, "")
        self._open: list[tuple[str, int]] = []
        self._quote_end = -1

    def add(self, token: re.Match[str]) -> None:
        """Check the next token."""
        match token.lastgroup:
            case "text":
                self._add_quoted(token)
            case "bracket":
                self._add_bracket(token)
            case "end":
                self._end_statement(token)
            case "comment":
                self._refuse(token, "comments are not accepted: parsers end them differently")
            case "open":
                self._refuse(token, "this quote is not closed")
            case _:
                self._refuse(token, "this character is accepted between quotes only")

    def finish(self) -> None:
        """Check that every bracket is closed."""
        if self._open:
            bracket, at = self._open[-1]
            raise self._text.error(PARSE_ERROR, f"{bracket!r} is not closed", at, at + 1)

    def _refuse(self, token: re.Match[str], problem: str) -> None:
        raise self._text.error(PARSE_ERROR, problem, *token.span())

    def _add_quoted(self, token: re.Match[str]) -> None:
        if token.start() == self._quote_end:
            self._refuse(
                token,
                "two quoted texts follow each other; write a quote inside the other kind of quotes",
            )
        for escape in re.finditer(r"\\.", token[0][:-1], re.DOTALL):
            after = token[0][escape.end() : escape.end() + 1]
            if escape[0] not in _ESCAPES or (escape[0] == "\\\\" and after in (*_QUOTES, "")):
                self._refuse(token, r"only the escapes \\, \n and \t are portable")
        if "\0" in token[0] or (token[0][0] == "`" and token[0] == "``"):
            self._refuse(token, "a name must not be empty, and no text may hold NUL")
        self._quote_end = token.end()
        self.unquoted[token.start() : token.end()] = " " * len(token[0])

    def _add_bracket(self, token: re.Match[str]) -> None:
        bracket = token[0]
        if bracket not in _CLOSING:
            self._open.append((bracket, token.start()))
            if len(self._open) > MAX_NESTING:
                self._refuse(token, f"brackets are nested deeper than {MAX_NESTING} levels")
        elif not self._open or self._open.pop()[0] != _CLOSING[bracket]:
            self._refuse(token, f"{bracket!r} closes no bracket")

    def _end_statement(self, token: re.Match[str]) -> None:
        if token.string[token.end() :].strip():
            problem = "only one statement is accepted"
            raise self._text.error("multiple-statements", problem, *token.span())


class _TooManyStepsError(Exception):
    """The parser has taken more than `MAX_STEPS` steps."""


class _Parser(NamedTuple):
    """The parser of the extra.

    Attributes:
        parse: Returns one tree for each statement of a query.
        errors: The exceptions that `parse` raises for a query that it cannot read.
        node: The base class of all nodes.
    """

    parse: Callable[[str], list[Node]]
    errors: tuple[type[Exception], ...]
    node: type


@lru_cache(maxsize=8)  # callers parse each query several times
def parse(text: QueryText) -> Node:
    """Return the tree of the query's one statement; callers must not change it.

    Raises:
        UnportableCypherError: The query is not valid Cypher, or takes too long to parse.
        ExtraMissingError: The extra ``graph`` is not installed.
    """
    parser = _load_parser()
    try:
        trees = parser.parse(text.cypher)
    except _TooManyStepsError:
        problem = "the query takes too long to parse; simplify it, and use fewer parentheses"
        raise UnportableCypherError(text.cypher, "too-complex", problem) from None
    except parser.errors as error:
        raise _describe(text, error) from error
    if len(trees) != 1:
        raise UnportableCypherError(text.cypher, PARSE_ERROR, "one statement is needed")
    return trees[0]


def _describe(text: QueryText, error: Exception) -> UnportableCypherError:
    places = getattr(error, "errors", None) or [vars(error)]
    start = places[0].get("start_offset")
    problem = "this is not Cypher that every graph database reads"
    if start is None:
        return UnportableCypherError(text.cypher, PARSE_ERROR, problem)
    end = max(start + 1, places[0].get("end_offset") or 0)
    return text.error(PARSE_ERROR, problem, start, end)


def kind(node: Node) -> str:
    """Return the name of a node's class, or of the type of any other value."""
    return type(node).__name__


def children(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node, in the order of the grammar."""
    for name, value in getattr(node, "__dict__", {}).items():
        if not name.startswith("_"):
            yield from _nodes_in(value)


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _nodes_in(item)
    elif isinstance(value, _load_parser().node):
        yield value


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(children(current))


def spans(node: Node) -> Iterator[tuple[int, int]]:
    """Yield the offsets in the query of a node and of its descendants, where they are known."""
    for part in walk(node):
        first, last = getattr(part, "_start_token", None), getattr(part, "_end_token", None)
        if first is not None and last is not None:
            yield first.start, last.end + 1


@cache
def _load_parser() -> _Parser:
    try:
        # Part of an extra, and slow to import.
        from graphglot.ast.base import Expression
        from graphglot.dialect.neo4j import Neo4j
        from graphglot.error import GraphGlotError
    except ImportError as error:
        raise ExtraMissingError("graph", "Cypher cannot be read") from error
    dialect = Neo4j()
    bounded = _bounded_parser(Neo4j.parser_class)

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


def _bounded_parser(base: type[Node]) -> type[Node]:
    """Return a parser class that caches its results and limits its steps."""

    class Bounded(base):  # type: ignore[misc]  # the extra may not be installed
        def reset(self) -> None:
            super().reset()
            self._steps = 0
            self._results: dict[tuple[int, object, int], tuple[Node, int]] = {}

        def _advance(self, times: int = 1) -> None:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise _TooManyStepsError
            super()._advance(times)

        def try_parse(self, parser: object, retreat: bool = False) -> Node:
            # The result of a parser at a position does not depend on the path to it.
            start = self._index
            key = id(self._tokens), parser, start
            if key not in self._results:
                node = super().try_parse(parser)
                self._results[key] = node, self._index
            node, end = self._results[key]
            self._retreat(start if retreat or not node else end)
            return node

    return Bounded

"""Parse LogQL queries; unknown syntax is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from tests.support.logql import (
    AGGREGATED,
    OVER_LINES,
    OVER_TIME,
    Aggregate,
    Binary,
    Expr,
    Json,
    Log,
    LogQLError,
    Matcher,
    Number,
    Range,
)

Item = TypeVar("Item")

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<duration>\d+[smhd]\b)|(?P<number>\d+(?:\.\d+)?)
    |(?P<word>[A-Za-z_]\w*)|(?P<sign>=~|!~|!=|>=|<=|==|[{}()\[\],|=<>]))""",
    re.VERBOSE,
)


@dataclass
class _Reader:
    """Parses a query, token by token."""

    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        end = 0
        while self.text[end:].strip():
            found = _TOKEN.match(self.text, end)
            if not found or found.lastgroup is None:
                raise LogQLError(f"cannot be read: {self.text[end:]!r}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            end = found.end()

    def next(self, *kinds: str) -> str:
        """Take the next token; it must have one of these kinds, or be one of these texts."""
        if not self.tokens or not {self.tokens[0][0], self.tokens[0][1]} & {*kinds}:
            raise LogQLError(
                f"{' or '.join(kinds)} is wanted, not {self.tokens[:4]} in {self.text!r}"
            )
        return self.tokens.pop(0)[1]

    def has(self, *words: str) -> bool:
        return bool(self.tokens) and self.tokens[0][1] in words

    def expr(self) -> Expr:
        found = self._set_operations()
        while self.has("or"):
            found = Binary(self.next("or"), found, self._set_operations())
        return found

    def _set_operations(self) -> Expr:
        found = self._comparison()
        while self.has("unless", "and"):
            found = Binary(self.next("unless", "and"), found, self._comparison())
        return found

    def _comparison(self) -> Expr:
        found = self._operand()
        while self.has(">", ">=", "<", "<=", "==", "!="):
            found = Binary(self.next("sign"), found, self._operand())
        return found

    def _operand(self) -> Expr:
        if self.tokens and self.tokens[0][0] == "number":
            return Number(float(self.next("number")))
        if self.has("("):
            self.next("(")
            found = self.expr()
            self.next(")")
            return found
        function = self.next(*AGGREGATED, *OVER_LINES, *OVER_TIME)
        return self._aggregate(function) if function in AGGREGATED else self._range(function)

    def _aggregate(self, function: str) -> Expr:
        by: list[str] = []
        if self.has("by"):
            self.next("by")
            self.next("(")
            by = self._list(lambda: self.next("word"), ")")
        self.next("(")
        of = self.expr()
        self.next(")")
        return Aggregate(function, by, of)

    def _range(self, function: str) -> Expr:
        self.next("(")
        log, unwrapped = self.log()
        if (unwrapped is None) != (function in OVER_LINES):
            raise LogQLError(f"{function} is of lines or of numbers, not of both: {self.text!r}")
        self.next("[")
        duration = self.next("duration")
        self.next("]")
        self.next(")")
        return Range(function, log, seconds(duration), unwrapped)

    def log(self) -> tuple[Log, str | None]:
        self.next("{")
        stream = self._list(self._matcher, "}")
        stages: list[Json | Matcher] = []
        while self.has("|"):
            self.next("|")
            if self.has("unwrap"):
                self.next("unwrap")
                return Log(stream, stages), self.next("word")
            stages.append(self._json() if self.has("json") else self._matcher())
        return Log(stream, stages), None

    def _json(self) -> Json:
        self.next("json")
        paths: dict[str, str] = {}
        while self.tokens and self.tokens[0][0] == "word":
            paths.update([self._path()])
            if not self.has(","):
                break
            self.next(",")
        return Json(paths)

    def _path(self) -> tuple[str, str]:
        name = self.next("word")
        if not self.has("="):
            return name, name
        self.next("=")
        return name, orjson.loads(self.next("text"))

    def _matcher(self) -> Matcher:
        name, op = self.next("word"), self.next("=", "!=", "=~", "!~", ">", ">=", "<", "<=", "==")
        if self.tokens and self.tokens[0][0] == "number":
            return Matcher(name, op, float(self.next("number")))
        return Matcher(name, op, orjson.loads(self.next("text")))

    def _list(self, read: Callable[[], Item], end: str) -> list[Item]:
        found = [read()]
        while self.has(","):
            self.next(",")
            found.append(read())
        self.next(end)
        return found


def seconds(duration: str) -> float:
    """Return how long ``5m`` is."""
    return int(duration[:-1]) * _UNITS[duration[-1]]


def metric(query: str) -> Expr:
    """Parse a query for numbers.

    Raises:
        LogQLError: The query is invalid, or this parser does not know its syntax.
    """
    reader = _Reader(query)
    found = reader.expr()
    if reader.tokens:
        raise LogQLError(f"unexpected {reader.tokens[:4]} in {query!r}")
    return found


def lines(query: str) -> Log:
    """Parse a query for lines.

    Raises:
        LogQLError: The query is invalid, or this parser does not know its syntax.
    """
    reader = _Reader(query)
    found, unwrapped = reader.log()
    if reader.tokens or unwrapped:
        raise LogQLError(f"unexpected {reader.tokens[:4]} in {query!r}")
    return found

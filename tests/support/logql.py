"""Evaluate the part of LogQL that the monitoring kit uses, on lines of a log.

Unknown syntax is refused, so that no test passes without a check.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Labels = Mapping[str, str]
Series = frozenset[tuple[str, str]]
Vector = dict[Series, float]


class LogQLError(Exception):
    """A query that cannot be read, or that Loki would answer with an error."""


@dataclass(frozen=True)
class Entry:
    """A line that a collector has sent, in seconds of any clock, with the labels of its stream."""

    at: float
    labels: Labels
    line: str


@dataclass(frozen=True)
class Matcher:
    """``name op value``; a value without quotes is a number."""

    name: str
    op: str
    value: str | float

    def fits(self, labels: Labels) -> bool:
        found = labels.get(self.name, "")
        if isinstance(self.value, float):
            return bool(found) and _COMPARED[self.op](_number(found, self.name), self.value)
        match self.op:
            case "=" | "!=":
                return (found == self.value) == (self.op == "=")
            case _:
                return bool(re.fullmatch(self.value, found)) == (self.op == "=~")

    @property
    def values(self) -> list[str]:
        """The values that the matcher lists; empty when it does not list them."""
        if self.op == "=":
            return [str(self.value)]
        return str(self.value).replace("[.]", ".").split("|") if self.op == "=~" else []


@dataclass(frozen=True)
class Json:
    """``| json``: extracts the given paths, or everything except lists."""

    paths: Mapping[str, str]

    def extracted(self, entry: Entry) -> dict[str, str]:
        try:
            value = orjson.loads(entry.line)
        except orjson.JSONDecodeError as error:
            raise LogQLError(f"JSONParserErr: {entry.line!r}") from error
        if self.paths:
            found = {name: _at(value, path) for name, path in self.paths.items()}
        else:
            found = dict(_flat(value))
        renamed = {
            f"{name}_extracted" if name in entry.labels else name: v for name, v in found.items()
        }
        return {name: _text(value) for name, value in renamed.items()}


@dataclass(frozen=True)
class Log:
    """A stream selector, and the stages that its lines pass."""

    stream: Sequence[Matcher]
    stages: Sequence[Json | Matcher] = ()

    def lines(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, str]]]:
        for entry in entries:
            if all(matcher.fits(entry.labels) for matcher in self.stream):
                labels = dict(entry.labels)
                if self._passed(entry, labels):
                    yield entry, labels

    def _passed(self, entry: Entry, labels: dict[str, str]) -> bool:
        for stage in self.stages:
            if isinstance(stage, Json):
                labels.update(stage.extracted(entry))
            elif not stage.fits(labels):
                return False
        return True


class Expr:
    """Something with a value at an instant."""

    def at(self, now: float, entries: Sequence[Entry]) -> Vector | float:
        raise NotImplementedError

    def parts(self) -> Iterator[Expr]:
        """Yield this expression and its parts."""
        yield self

    def logs(self) -> list[Log]:
        """Return the queries for lines within it."""
        return [part.log for part in self.parts() if isinstance(part, Range)]


@dataclass(frozen=True)
class Number(Expr):
    """A constant."""

    value: float

    def at(self, now: float, entries: Sequence[Entry]) -> float:
        return self.value


@dataclass(frozen=True)
class Range(Expr):
    """A function over the lines, or over one number of each, of ``(now - seconds, now]``."""

    function: str
    log: Log
    seconds: float
    unwrapped: str | None = None

    def at(self, now: float, entries: Sequence[Entry]) -> Vector:
        within = [entry for entry in entries if now - self.seconds < entry.at <= now]
        values: dict[Series, list[float]] = defaultdict(list)
        for _, labels in self.log.lines(sorted(within, key=lambda entry: entry.at)):
            if self.unwrapped is None:
                values[frozenset(labels.items())].append(1)
            elif found := labels.pop(self.unwrapped, ""):
                values[frozenset(labels.items())].append(_number(found, self.unwrapped))
        if self.function == "absent_over_time":
            equal = frozenset((m.name, str(m.value)) for m in self.log.stream if m.op == "=")
            return {} if values else {equal: 1.0}
        return {series: OVER_TIME[self.function](some) for series, some in values.items()}


@dataclass(frozen=True)
class Aggregate(Expr):
    """``sum by (...) (...)`` and its like."""

    function: str
    by: Sequence[str]
    of: Expr

    def at(self, now: float, entries: Sequence[Entry]) -> Vector:
        groups: dict[Series, list[float]] = defaultdict(list)
        for series, value in _vector(self.of.at(now, entries)).items():
            groups[frozenset(label for label in series if label[0] in self.by)].append(value)
        return {series: AGGREGATED[self.function](some) for series, some in groups.items()}

    def parts(self) -> Iterator[Expr]:
        yield self
        yield from self.of.parts()


@dataclass(frozen=True)
class Binary(Expr):
    """Two expressions, matched by all of their labels."""

    op: str
    left: Expr
    right: Expr

    def at(self, now: float, entries: Sequence[Entry]) -> Vector:
        left, right = _vector(self.left.at(now, entries)), self.right.at(now, entries)
        if self.op in _COMPARED:
            compared = _COMPARED[self.op]
            others = dict.fromkeys(left, right) if isinstance(right, float) else right
            return {s: v for s, v in left.items() if s in others and compared(v, others[s])}
        others = _vector(right)
        match self.op:
            case "or":
                return {**others, **left}
            case "and":
                return {s: v for s, v in left.items() if s in others}
            case _:
                return {s: v for s, v in left.items() if s not in others}

    def parts(self) -> Iterator[Expr]:
        yield self
        yield from self.left.parts()
        yield from self.right.parts()


_COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
AGGREGATED: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": len,
}
OVER_LINES = {"count_over_time", "absent_over_time"}
OVER_TIME: dict[str, Callable[[Sequence[float]], float]] = {
    "count_over_time": len,
    "sum_over_time": sum,
    "max_over_time": max,
    "min_over_time": min,
    "last_over_time": lambda values: values[-1],
}


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise LogQLError(f"SampleExtractionErr: {name} is {text!r}") from error


def _vector(value: Vector | float) -> Vector:
    if isinstance(value, float):
        raise LogQLError("a number is given where series are needed")
    return value


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return orjson.dumps(value).decode()


def _at(value: Any, path: str) -> object:
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{before}{name}_")
        elif not isinstance(item, list):
            yield before + name, item

"""Find triples in turns with a function of the operator, and check what it returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from slumberd.consolidation.extraction.turns import arrange
from slumberd.model.extraction import Extracted, Failed, Turn
from slumberd.model.rule import RuleFunction, describe_exception

MOST_RESULTS = 1_000
"""Results of one turn that are read; the function is not asked for more."""

MOST_DEPTH = 50
"""Levels of lists and objects that the object of a triple may have."""


class _WrongResultError(Exception):
    """A function returned something else than triples; only used in this module."""


@dataclass(frozen=True, slots=True)
class FunctionExtractor:
    """Finds triples with a function of the operator.

    Attributes:
        function: Takes a turn and the turn before, or None, and returns an iterable of `Extracted`.
    """

    function: RuleFunction

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted] | Failed]:
        """Return the triples of each turn, or why it has none; see `Extractor`."""
        return [self._find(*pair) for pair in zip(turns, before, strict=True)]

    def _find(self, turn: Turn, before: Turn | None) -> list[Extracted] | Failed:
        name = self.function.name
        try:
            return arrange(_check_results(self.function.call(turn, before), turn, name))
        except _WrongResultError as error:
            return Failed(f"{name} returned {error}")
        # Without SystemExit, one episode could end the daemon at each start.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the function may raise anything
            return Failed(f"{name} raised {describe_exception(error)}")


def _check_results(found: object, turn: Turn, name: str) -> Iterator[Extracted]:
    if not isinstance(found, Iterable):
        raise _WrongResultError(f"{_kind(found)}; return a list of slumberd.Extracted")
    for number, one in enumerate(islice(found, MOST_RESULTS), start=1):
        if not isinstance(one, Extracted):
            raise _WrongResultError(f"{_kind(one)} as result {number}, not slumberd.Extracted")
        if problem := _find_problem(one, len(turn.content)):
            raise _WrongResultError(f"result {number} with {problem}")
        yield one._replace(
            object=_plain(one.object, number),
            span=(int(one.span[0]), int(one.span[1])),
            by=one.by or name,
            confidence=float(one.confidence),
            object_words=tuple(one.object_words),
            replaces=tuple(one.replaces),
        )


def _find_problem(one: Extracted, length: int) -> str:
    """Return what is wrong with the fields of a result, besides its object; empty if nothing is."""
    texts = (_find_problem_of_text(one, field) for field in ("subject", "predicate", "by"))
    if problem := next(filter(None, texts), ""):
        return problem
    if one.intent not in ("add", "delete"):
        return "another intent than 'add' or 'delete'"
    names = (_find_problem_of_names(one, field) for field in ("object_words", "replaces"))
    if problem := next(filter(None, names), ""):
        return problem
    if one.object_words and one.replaces:
        return "object_words and replaces; give one of them"
    if not _is_span(one.span, length):
        return f"a span that is not start and end within the {length} characters of the content"
    if not _is_number(one.confidence) or not 0 <= one.confidence <= 1:
        return "a confidence that is not 0 to 1"
    return ""


def _find_problem_of_text(one: Extracted, field: str) -> str:
    text = getattr(one, field)
    if not isinstance(text, str):
        return f"{field} of type {type(text).__name__}, not text"
    if not text.strip() and field != "by":
        return f"an empty {field}"
    return "" if _is_unicode(text) else f"a {field} that is not valid Unicode"


def _find_problem_of_names(one: Extracted, field: str) -> str:
    names = getattr(one, field)
    if not isinstance(names, tuple | list):
        return f"{field} of type {type(names).__name__}, not a tuple of texts"
    if not all(isinstance(name, str) and _is_unicode(name) for name in names):
        return f"{field} that are not all texts of valid Unicode"
    if not all(re.search(r"\w" if field == "object_words" else r"\S", name) for name in names):
        return f"an empty text in {field}"
    if names and one.intent != "delete":
        return f"{field} in an add; only a delete has them"
    if names and one.object is not None:
        return f"{field} beside an object; give one of them"
    return ""


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_span(span: object, length: int) -> bool:
    match span:
        case (int(start), int(end)) if not isinstance(start, bool) and not isinstance(end, bool):
            return 0 <= start <= end <= length
        case _:
            return False


def _plain(value: object, number: int) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy of a value of JSON.

    Raises:
        _WrongResultError: JSON has no such value, or it is nested too deep.
    """
    try:
        copy = orjson.loads(orjson.dumps(value))
    except TypeError:
        copy = None
    if copy != value:
        raise _WrongResultError(f"result {number} with an object that is not JSON")
    if _depth(copy) > MOST_DEPTH:
        raise _WrongResultError(
            f"result {number} with an object of more than {MOST_DEPTH} levels of JSON"
        )
    return copy


def _depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return 1 + max(map(_depth, value), default=0)
        case _:
            return 0


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"

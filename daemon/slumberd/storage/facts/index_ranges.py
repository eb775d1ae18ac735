"""Turn the form of a slot into an index range, and an expression into a check of whole texts.

An index range contains every match, and may contain more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.model.fact_ids import canonical
from slumberd.model.pattern import Equals, Glob, InvalidGlobError, Matches, OneOf, Prefix
from slumberd.model.pattern import literal_prefix as start_of_glob
from slumberd.retrieval.expressions import compile_expression

_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}]*")


def whole_text_check(slot: str, expression: str) -> Callable[[str], bool]:
    """Return a function that returns whether an expression matches a whole text.

    Args:
        slot: The slot of the expression, for errors.
        expression: In RE2's syntax.

    Raises:
        PatternError: The expression is invalid.
        ExtraMissingError: The extra ``regex`` is not installed.
    """
    fullmatch = compile_expression(slot, expression).fullmatch
    return lambda text: fullmatch(text) is not None


def literal_prefix(expression: str) -> str:
    """Return a prefix, which may be empty, of every text that an expression matches whole."""
    if "|" in expression:
        return ""
    expression = expression.removeprefix("^")
    found = _PLAIN.match(expression)
    start = found[0] if found else ""
    # A quantifier applies to the character before it.
    return start[:-1] if expression[len(start) : len(start) + 1] in tuple("?*+{") else start


FIRST, BEYOND = "", b""
"""A value below every text, and one above: SQLite sorts every blob after every text."""

_MAX_EXACT_INTEGER = 2**53
"""Up to this integer every reader of JSON reads the same number."""
_READING_ERROR = 1e-14
"""The most by which two readings of one number differ, relative to its size."""
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)


class Text(NamedTuple):
    """Exactly one text."""

    text: str


class Span(NamedTuple):
    """All values from `low` to below `high`."""

    low: Any
    high: Any


class Among(NamedTuple):
    """Any of some values; they are a JSON array."""

    values: str


class Missing(NamedTuple):
    """No value, or null."""


IndexRange = Text | Span | Among | Missing | None
"""The values to look up in an index; None when no index helps."""


def index_range(form: object) -> IndexRange:
    """Return the index range of a slot's form.

    Raises:
        UnicodeEncodeError: A text of the form is invalid Unicode.
    """
    match form:
        case str():
            return _range_of_text(form)
        case Prefix(prefix=start):
            return _range_of_prefix(start)
        case Glob(glob=glob):
            return _range_of_glob(glob)
        case Matches(matches=expression):
            return _range_of_prefix(literal_prefix(expression))
        case OneOf(one_of=values):
            return _range_of_values(values)
        case Equals(equals=value):
            return _range_of_value(value)
        case _:
            return None


def _range_of_text(text: str) -> IndexRange:
    text.encode()
    # Some versions of SQLite end a text of JSON at NUL.
    return _range_of_prefix(text) if "\0" in text else Text(text)


def _range_of_glob(glob: str) -> IndexRange:
    try:
        start, whole = start_of_glob(glob)
    except InvalidGlobError:
        return None  # the matcher raises the error
    return _range_of_text(start) if whole else _range_of_prefix(start)


def _range_of_prefix(start: str) -> IndexRange:
    start.encode()
    start = start.partition("\0")[0]
    return Span(start, upper_bound(start)) if start else None


def upper_bound(start: str) -> Any:  # noqa: ANN401 # a text, or `BEYOND`
    """Return the least value above every text with this prefix.

    UTF-8 sorts as code points do. So the last character is replaced by the next character;
    surrogates are no characters, and the last code point has no next one.
    """
    shortened = start.rstrip(_LAST)
    if not shortened:
        return BEYOND
    following = ord(shortened[-1]) + 1
    return shortened[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _range_of_values(values: Sequence[Any]) -> IndexRange:
    for value in values:
        if isinstance(value, str):
            value.encode()
    return Among(orjson.dumps(list(values)).decode()) if all(map(_is_simple, values)) else None


def _is_simple(value: object) -> bool:
    """Return whether every version of SQLite reads a value from JSON unchanged."""
    match value:
        case str():
            return "\0" not in value
        case int():  # a bool, too
            return -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER
        case _:
            return False


def _range_of_value(value: object) -> IndexRange:
    match value:
        case None:
            return Missing()
        case str():
            return _range_of_text(value)
        case int() | float():
            # Readers may read different numbers from the same digits.
            error = abs(float(value)) * _READING_ERROR + 1e-300
            return Span(float(value) - error, float(value) + error)
        case _:
            start = canonical(value)[0]  # "{" or "[": the keys of an object may have any order
            return Span(start, upper_bound(start))

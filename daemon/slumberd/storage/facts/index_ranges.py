"""What an index can find of a form: a span of texts or numbers, or a set. Too much, never less.

Regular expressions of patterns: by an engine that takes linear time, of the extra ``regex``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import orjson

from slumberd.errors import ExtraMissingError, PatternError
from slumberd.model.fact_ids import canonical
from slumberd.model.pattern import Equals, Glob, InvalidGlobError, Matches, OneOf, Prefix
from slumberd.model.pattern import literal_prefix as start_of_glob

_MOST_MEMORY = 8 * 2**20
"""Bytes of one expression; with less the engine is slower, and still linear."""

_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}]*")


class _Compiled(Protocol):
    def fullmatch(self, text: str) -> object: ...


def compiled(slot: str, expression: str) -> Callable[[str], bool]:
    """Return what says whether a text matches an expression whole.

    Args:
        slot: Where it stands, for errors.
        expression: In RE2's syntax.

    Raises:
        PatternError: It cannot be read.
        ExtraMissingError: The extra ``regex`` is not installed.
    """
    try:
        import re2  # of an extra
    except ImportError as error:
        lost = f"{slot} {expression!r} is a regular expression, and there is no engine for them"
        raise ExtraMissingError("regex", lost) from error
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    try:
        fullmatch = cast("_Compiled", re2.compile(expression, options)).fullmatch
    except re2.error as error:
        raise _error(slot, expression, error.args[0]) from error
    return lambda text: fullmatch(text) is not None


def _error(slot: str, expression: str, told: bytes | str) -> PatternError:
    problem = told.decode(errors="replace") if isinstance(told, bytes) else told
    # The engine names what it stumbled over, and not where that is.
    _, _, culprit = problem.partition(": ")
    place = expression.find(culprit) if culprit else -1
    return PatternError(slot, expression, problem, place if place >= 0 else None)


def literal_prefix(expression: str) -> str:
    """Return a text that everything begins with that an expression matches whole; may be empty."""
    if "|" in expression:
        return ""
    expression = expression.removeprefix("^")
    found = _PLAIN.match(expression)
    start = found[0] if found else ""
    # What may be missing, or be there several times, is what comes last before the sign for it.
    return start[:-1] if expression[len(start) : len(start) + 1] in tuple("?*+{") else start


FIRST, BEYOND = "", b""
"""Below every text, and above all of them: to SQLite a blob is more than any text."""

_SURE = 2**53
"""Whole numbers up to here are the same to whoever reads them."""
_ABOUT = 1e-14
"""How far apart two readings of one number may be, of its size."""
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)


class Text(NamedTuple):
    """One text, and nothing else."""

    text: str


class Span(NamedTuple):
    """All from `low` to below `high`."""

    low: Any
    high: Any


class Among(NamedTuple):
    """Any of some values, as a JSON array."""

    values: str


class Missing(NamedTuple):
    """Nothing, or null."""


Narrow = Text | Span | Among | Missing | None
"""None is what no index helps with."""


def narrowed(form: object) -> Narrow:
    """Return what an index can find of a form of a slot.

    Raises:
        UnicodeEncodeError: A text of it is no valid Unicode.
    """
    match form:
        case str():
            return _text(form)
        case Prefix(prefix=start):
            return _beginning(start)
        case Glob(glob=glob):
            return _glob(glob)
        case Matches(matches=expression):
            return _beginning(literal_prefix(expression))
        case OneOf(one_of=values):
            return _among(values)
        case Equals(equals=value):
            return _value(value)
        case _:
            return None


def _text(text: str) -> Narrow:
    text.encode()
    # Whether SQLite reads a text of JSON behind NUL depends on its version.
    return _beginning(text) if "\0" in text else Text(text)


def _glob(glob: str) -> Narrow:
    try:
        start, whole = start_of_glob(glob)
    except InvalidGlobError:
        return None  # whoever matches with it tells of it
    return _text(start) if whole else _beginning(start)


def _beginning(start: str) -> Narrow:
    start.encode()
    start = start.partition("\0")[0]
    return Span(start, upper_bound(start)) if start else None


def upper_bound(start: str) -> Any:  # noqa: ANN401 # a text, or `BEYOND`
    """Return the least that is more than every text that begins like this.

    UTF-8 sorts as code points do: it is the text with its last character replaced by the next
    one, surrogates left out, for they are none; the last of all characters has no next one.
    """
    kept = start.rstrip(_LAST)
    if not kept:
        return BEYOND
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _among(values: Sequence[Any]) -> Narrow:
    for value in values:
        if isinstance(value, str):
            value.encode()
    return Among(orjson.dumps(list(values)).decode()) if all(map(_is_simple, values)) else None


def _is_simple(value: object) -> bool:
    """Say whether SQLite takes a value from JSON as it is, whatever its version."""
    match value:
        case str():
            return "\0" not in value
        case int():  # a bool, too
            return -_SURE <= value <= _SURE
        case _:
            return False


def _value(value: object) -> Narrow:
    match value:
        case None:
            return Missing()
        case str():
            return _text(value)
        case int() | float():
            # Not all readers take the same number from the same digits.
            about = abs(float(value)) * _ABOUT + 1e-300
            return Span(float(value) - about, float(value) + about)
        case _:
            start = canonical(value)[0]  # of an object or an array: its keys may be in any order
            return Span(start, upper_bound(start))

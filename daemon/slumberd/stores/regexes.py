"""Regular expressions of patterns: by an engine that takes linear time, of the extra ``regex``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, cast

from slumberd.errors import ExtraMissingError, PatternError

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


def literal_start(expression: str) -> str:
    """Return a text that everything begins with that an expression matches whole; may be empty."""
    if "|" in expression:
        return ""
    expression = expression.removeprefix("^")
    found = _PLAIN.match(expression)
    start = found[0] if found else ""
    # What may be missing, or be there several times, is what comes last before the sign for it.
    return start[:-1] if expression[len(start) : len(start) + 1] in tuple("?*+{") else start

"""Compile regular expressions on the engine of the extra ``regex``, which takes linear time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from slumberd.errors import ExtraMissingError, PatternError


class Match(Protocol):
    """One match of an expression. Offsets count characters of the text, from 0."""

    def start(self) -> int:
        """Return where the match begins."""
        ...

    def end(self) -> int:
        """Return where the match ends."""
        ...

    def groupdict(self) -> dict[str, str | None]:
        """Return the text of each named group; None for a group that took no part."""
        ...


class Expression(Protocol):
    """A compiled expression. No text takes more than linear time; lone surrogates are refused."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The number of each named group."""
        ...

    def fullmatch(self, text: str) -> Match | None:
        """Return the match of the whole text."""
        ...

    def search(self, text: str) -> Match | None:
        """Return the first match in the text."""
        ...

    def finditer(self, text: str) -> Iterator[Match]:
        """Yield the matches in the text that do not overlap. Each one takes linear time."""
        ...


def compile_expression(slot: str, text: str, *, ignore_case: bool = False) -> Expression:
    """Return a compiled expression.

    Args:
        slot: What the expression belongs to, for errors.
        text: In RE2's syntax.
        ignore_case: Whether upper and lower case are the same.

    Raises:
        PatternError: The expression is invalid.
        ExtraMissingError: The extra ``regex`` is not installed.
    """
    try:
        import re2  # of an extra
    except ImportError as error:
        problem = f"{slot} {text!r} is a regular expression, and there is no engine for them"
        raise ExtraMissingError("regex", problem) from error
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return cast("Expression", re2.compile(text, options))
    except re2.error as error:
        raise _error(slot, text, error.args[0]) from error


def _error(slot: str, text: str, message: Any) -> PatternError:  # noqa: ANN401 # bytes or str
    problem = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    # The engine quotes the invalid part, and does not report its position.
    _, _, invalid = problem.partition(": ")
    place = text.find(invalid) if invalid else -1
    return PatternError(slot, text, problem, place if place >= 0 else None)

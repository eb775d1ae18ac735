"""Read plain scalars of YAML, refuse ambiguous ones, and locate their characters in the source.

Every scalar style keeps visible characters and their order: folding and stripping only change white
space. So the n-th visible character of a value is the n-th visible one of its source, after quotes
and escapes are decoded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

Scalar = None | bool | int | float | str

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")

_INVISIBLE = r"\u00a0\u00ad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"

# Words that YAML 1.1 and 1.2 read differently, and words that are most likely a mistake.
_TRAPS = [
    (re.compile(pattern), problem)
    for pattern, problem in (
        (r"(?i:y|n|yes|no|on|off)", "is a boolean to some YAML readers"),
        (r"[-+]?0[0-9_]+", "has a leading 0, and is octal to some YAML readers"),
        (r"[-+]?0[xob][0-9a-fA-F_]+", "is not a decimal number"),
        (
            r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?",
            "is a number to the base 60 to some YAML readers",
        ),
        (r"[-+]?[0-9][0-9_]*_[0-9_.]*", "contains '_', and is a number to some YAML readers"),
        (r"[-+]?\.(?i:inf)|\.(?i:nan)", "is not a finite number"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?", "is a date to some YAML readers"),
        (r"[-+]?[0-9]{19,}", "has more digits than a 64-bit number"),
        (
            rf".*[{_INVISIBLE}].*",
            "contains an invisible character, or a space that YAML does not know",
        ),
    )
]

_HEADER = re.compile(r"[^\n\r]*(\r\n|\n|\r|$)")
_UNITS = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r\n|.)|.", re.DOTALL),
}
_INVISIBLE_ESCAPES = frozenset("tnr_NLPvfbae0 \t\r\n")
"""The characters after a backslash that escape an invisible character."""


def trap(text: str) -> str | None:
    """Return why a plain word is ambiguous; None when it has one meaning."""
    return next((problem for pattern, problem in _TRAPS if pattern.fullmatch(text)), None)


def plain(text: str) -> Scalar:
    """Return the value of a plain word: null, a boolean, a number, or else the word."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


class SourceSpan(NamedTuple):
    """The place of a scalar in a text.

    Attributes:
        start: The position of its first character, from 0, quote or block indicator included.
        end: The position after its last character.
        style: ``'``, ``"``, ``|`` or ``>``; empty for a plain scalar.
    """

    start: int
    end: int
    style: str


def source_of(text: str, span: SourceSpan, value: str, offset: int) -> int | None:
    """Return the position in the text of a character of a value; None when it is unknown.

    Args:
        span: The place of the scalar in the source.
        value: The value of the scalar.
        offset: The position in the value, from 0. The length of the value means the position after
            its last visible character.
    """
    visible = sum(not character.isspace() for character in value[:offset])
    if not value[offset:].strip():
        return _position_after(text, span, visible)
    return next(
        (
            place
            for number, (place, _) in enumerate(_visible_spans(text, span))
            if number == visible
        ),
        None,
    )


def _position_after(text: str, span: SourceSpan, visible: int) -> int | None:
    ends = [end for _, end in _visible_spans(text, span)]
    return ends[visible - 1] if 0 < visible <= len(ends) else None


def _visible_spans(text: str, span: SourceSpan) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every visible character of a value, in its source."""
    start, end = _inner_bounds(text, span)
    if span.style not in _UNITS:
        yield from ((n, n + 1) for n in range(start, end) if not text[n].isspace())
        return
    for unit in _UNITS[span.style].finditer(text, start, end):
        if not _is_invisible(unit.group()):
            yield unit.span()


def _inner_bounds(text: str, span: SourceSpan) -> tuple[int, int]:
    if span.style in _UNITS:
        return span.start + 1, span.end - 1
    if span.style in ("|", ">"):
        # The first line contains the block indicator, and may contain a comment.
        header = _HEADER.match(text, span.start)
        return (header.end() if header else span.start), span.end
    return span.start, span.end


def _is_invisible(unit: str) -> bool:
    if not unit.startswith("\\") or len(unit) == 1:
        return unit.isspace()
    sign, digits = unit[1], unit[2:]
    if sign in "xuU" and digits:
        return chr(int(digits, 16)).isspace()
    return sign in _INVISIBLE_ESCAPES

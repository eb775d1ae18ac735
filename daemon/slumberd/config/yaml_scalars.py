"""What a plain word of YAML stands for, and which words are traps.

Where a character of a YAML scalar's value stands in the text that it was read from.

Every style of YAML keeps what is no white space, and its order: folding and stripping only touch
white space. So the n-th visible character of a value is the n-th of its source, once quotes and
escapes are told apart.
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

# What YAML 1.1 and 1.2 read differently, or what nobody means.
_TRAPS = [
    (re.compile(pattern), problem)
    for pattern, problem in (
        (r"(?i:y|n|yes|no|on|off)", "is a boolean to some YAML readers"),
        (r"[-+]?0[0-9_]+", "has a leading 0, and is octal to some YAML readers"),
        (r"[-+]?0[xob][0-9a-fA-F_]+", "is no decimal number"),
        (
            r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?",
            "is a number to the base 60 to some YAML readers",
        ),
        (r"[-+]?[0-9][0-9_]*_[0-9_.]*", "holds '_', and is a number to some YAML readers"),
        (r"[-+]?\.(?i:inf)|\.(?i:nan)", "is no finite number"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?", "is a date to some YAML readers"),
        (r"[-+]?[0-9]{19,}", "has more digits than can be counted with"),
        (rf".*[{_INVISIBLE}].*", "holds an invisible character, or a space that is none of YAML's"),
    )
]


def trap(text: str) -> str | None:
    """Return what is wrong with a plain word; None when it means one thing only."""
    return next((problem for pattern, problem in _TRAPS if pattern.fullmatch(text)), None)


def plain(text: str) -> Scalar:
    """Return what a plain word stands for: null, a boolean, a number, or else itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


_HEADER = re.compile(r"[^\n\r]*(\r\n|\n|\r|$)")
_UNITS = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r\n|.)|.", re.DOTALL),
}
_BLANKS = frozenset("tnr_NLPvfbae0 \t\r\n")
"""What follows a backslash for a character that cannot be seen."""


class Span(NamedTuple):
    """A scalar in a text.

    Attributes:
        start: Its first character, from 0; a quote or the sign of a block, if it has one.
        end: After its last.
        style: ``'``, ``"``, ``|``, ``>``, or nothing for a plain one.
    """

    start: int
    end: int
    style: str


def source_of(text: str, span: Span, value: str, offset: int) -> int | None:
    """Return where a character of a value stands in the text; None when it cannot be told.

    Args:
        text: What was read.
        span: The scalar in it.
        value: The scalar's value.
        offset: Into the value, from 0; its length means its end, after all that can be seen.
    """
    visible = sum(not character.isspace() for character in value[:offset])
    if not value[offset:].strip():
        return _after(text, span, visible)
    return next(
        (place for number, (place, _) in enumerate(_visible(text, span)) if number == visible),
        None,
    )


def _after(text: str, span: Span, visible: int) -> int | None:
    ends = [end for _, end in _visible(text, span)]
    return ends[visible - 1] if 0 < visible <= len(ends) else None


def _visible(text: str, span: Span) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every visible character of a value, in its source."""
    start, end = _inner(text, span)
    if span.style not in _UNITS:
        yield from ((n, n + 1) for n in range(start, end) if not text[n].isspace())
        return
    for unit in _UNITS[span.style].finditer(text, start, end):
        if not _is_blank(unit.group()):
            yield unit.span()


def _inner(text: str, span: Span) -> tuple[int, int]:
    if span.style in _UNITS:
        return span.start + 1, span.end - 1
    if span.style in ("|", ">"):
        # The first line holds the sign, and may hold a comment.
        header = _HEADER.match(text, span.start)
        return (header.end() if header else span.start), span.end
    return span.start, span.end


def _is_blank(unit: str) -> bool:
    if not unit.startswith("\\") or len(unit) == 1:
        return unit.isspace()
    sign, digits = unit[1], unit[2:]
    if sign in "xuU" and digits:
        return chr(int(digits, 16)).isspace()
    return sign in _BLANKS

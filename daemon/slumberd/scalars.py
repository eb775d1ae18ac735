"""What a plain word of YAML stands for, and which words are traps."""

from __future__ import annotations

import math
import re

Scalar = None | bool | int | float | str

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")

# What YAML 1.1 and 1.2 read differently, or what nobody means.
_TRAPS = [
    (re.compile(pattern), problem)
    for pattern, problem in (
        (
            r"(?i:y|n|yes|no|on|off)",
            "is a boolean to some YAML readers; quote it, or write true or false",
        ),
        (r"[-+]?0[0-9_]+", "is octal to some YAML readers; leave out the leading 0, or quote it"),
        (r"[-+]?0[xob][0-9a-fA-F_]+", "is no decimal number; write it in decimal, or quote it"),
        (
            r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?",
            "is a number to the base 60 to some YAML readers; quote it",
        ),
        (r"[-+]?[0-9][0-9_]*_[0-9_.]*", "holds '_'; leave it out of a number, or quote it"),
        (r"[-+]?\.(?i:inf)|\.(?i:nan)", "is no finite number; write one, or quote it"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?", "is a date to some YAML readers; quote it"),
        (r"[-+]?[0-9]{19,}", "has more digits than can be counted with; write fewer, or quote it"),
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

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

"""The names of Python functions in rule files. Imports nothing of the operator's."""

from __future__ import annotations

import re

PREFIX = "python:"
"""With it begins the name of a function."""

SHAPE = f"{PREFIX}package.module:function"
"""The name of a function, as messages show it."""

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"

FUNCTION = rf"^{PREFIX}{_WORD}(\.{_WORD})*:{_WORD}$"
"""The pattern of the names of functions."""


def is_function(name: str) -> bool:
    """Return whether a text is the name of a function."""
    return re.fullmatch(FUNCTION, name) is not None

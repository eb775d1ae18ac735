"""The optional parts of slumberd, and whether they are installed."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "fathom": "fathom",
    "graph": "graphglot",
    "regex": "re2",
    "vectors": "wordllama",
}
"""By its name, as pip takes it, a package that comes with each."""


def is_installed(extra: str) -> bool:
    """Say whether an optional part can be used; nothing of it is imported."""
    try:
        return find_spec(EXTRAS[extra]) is not None
    except ValueError:  # it stands among the modules as one that must not be imported
        return False

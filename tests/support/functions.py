"""Modules with functions of an operator, for rules that name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE = "operators_functions"
"""The name of the module that tests write."""

FIND = """
from slumberd import Extracted

def find(turn, before):
    word = turn.content.rpartition(" ")[2]
    end = len(turn.content)
    if "drinks" in turn.content:
        yield Extracted(turn.user, "drinks", word, "add", (end - len(word), end))
"""
"""A module whose function `find` finds what a user drinks."""


def write_module(folder: Path, source: str, name: str = MODULE) -> Path:
    """Write a module; return its file."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make the modules of a folder importable, and forget them afterwards."""
    known = {*sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in {*sys.modules} - known:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(folder)):
                del sys.modules[name]

"""Start the command line, or one hook without it: a coding agent waits for each hook."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

_FOR_PEOPLE = frozenset({"-h", "--help", "--version"})


def main() -> NoReturn:
    """Run the command of this process, and end the process."""
    words = sys.argv[1:]
    is_hook = words[:1] == ["hook"] and _FOR_PEOPLE.isdisjoint(words)
    # The command line takes ten times as long to import as a hook.
    import_module("slumberd.hooks.command" if is_hook else "slumberd.cli").main()
    raise AssertionError("a command ends the process")

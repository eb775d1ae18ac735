"""Start the command line, or one hook without it: a coding agent waits for each hook."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn

_FOR_PEOPLE = frozenset({"-h", "--help", "--version"})

_STANDARD_ERROR = 2


def main() -> NoReturn:
    """Run the command of this process, and end the process."""
    words = sys.argv[1:]
    is_hook = words[:1] == ["hook"] and _FOR_PEOPLE.isdisjoint(words)
    _replace_closed_streams()
    try:
        # The command line takes ten times as long to import as a hook.
        import_module("slumberd.integrations.hooks.command" if is_hook else "slumberd.cli").main()
    finally:
        _discard_unwritable_output()
    raise AssertionError("a command ends the process")


def _replace_closed_streams() -> None:
    """Discard the output for a stream that the parent process closed.

    Otherwise the next open file takes the descriptor of the stream, and ``print`` writes messages
    to standard output for a missing standard error.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123


def _discard_unwritable_output() -> None:
    """Keep the exit code: Python flushes both streams again when it ends, and fails with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, stream.fileno())
            os.close(null_device)

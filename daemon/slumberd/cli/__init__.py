"""The command line: parse, call one function, print, and turn an error into an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from slumberd.cli import exit_codes
from slumberd.cli.registry import NAME, program

_COMPLETION = "_SLUMBERD_COMPLETE"

_OWNER_ALONE, _OWNER_AND_GROUP, _GROUP = 0o077, 0o007, 0o070

_COLLECT_EVERY = (100_000, 50, 100)
"""Thresholds of the collector: with Python's own it walks the many live objects of a start or of a
batch again and again, a fifth of the time of the one and a tenth of the other."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process.

    Args:
        arguments: What follows the name of the program; None takes the process's own.
    """
    gc.set_threshold(*_COLLECT_EVERY)
    os.umask(_narrowed(os.umask(_OWNER_ALONE)))
    code = call(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # what is left goes with the process: to walk it took a tenth of a second
    sys.exit(code)


def _narrowed(mask: int) -> int:
    """Return a umask under which files are for the owner, or for a group that may write them too.

    Whoever may only read a database of SQLite cannot even do that while it is written.
    """
    return _OWNER_ALONE if mask & _GROUP else _OWNER_AND_GROUP


def call(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; what goes wrong is told on standard error."""
    _prepare_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 # the one place that tells it
        return exit_codes.told(error)
    return code


def _prepare_streams() -> None:
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 # for as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal cannot show must not end a command.
            stream.reconfigure(errors="backslashreplace")


def _dispatch(arguments: Sequence[str]) -> int:
    command = program()
    if _COMPLETION in os.environ:  # a shell asks what may follow, and is answered
        command.main(prog_name=NAME, complete_var=_COMPLETION)
    try:
        with command.make_context(NAME, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0

"""The command line: parse, call one function, print, and turn an error into an exit code."""

from __future__ import annotations

import contextvars
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
"""Thresholds of the garbage collector. With Python's own, it walks the live objects of a start and
of a batch again and again: a fifth of the time of a start, a tenth of the time of a batch."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process.

    Args:
        arguments: The arguments after the name of the program; None takes those of the process.
    """
    gc.set_threshold(*_COLLECT_EVERY)
    os.umask(_narrow_umask(os.umask(_OWNER_ALONE)))
    code = call(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the process ends: a last collection took a tenth of a second for nothing
    sys.exit(code)


def _narrow_umask(mask: int) -> int:
    """Return the umask for files of the owner, or of a group that may also write.

    A group that may only read cannot read a SQLite database while another process writes it.
    """
    return _OWNER_ALONE if mask & _GROUP else _OWNER_AND_GROUP


def call(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; report its failure on standard error."""
    # What a command notes about itself ends with it.
    return contextvars.copy_context().run(_call, arguments)


def _call(arguments: Sequence[str]) -> int:
    _prepare_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 # reports every failure
        # The command has imported the rest of the package already, or failed before any store.
        from slumberd.cli.context import explain_by_damage

        return exit_codes.report_failure(explain_by_damage(error))
    return code


def _prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal cannot show must not end a command.
            stream.reconfigure(errors="backslashreplace")


def _dispatch(arguments: Sequence[str]) -> int:
    command = program()
    if _COMPLETION in os.environ:  # a shell completes a command line
        command.main(prog_name=NAME, complete_var=_COMPLETION)
    try:
        with command.make_context(NAME, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0

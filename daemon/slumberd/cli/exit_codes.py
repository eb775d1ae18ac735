"""The exit code and the message of a command that fails."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress

import typer

from slumberd.cli.environment import is_debugging
from slumberd.model.errors import SlumberdError

USAGE = 64
BUG = 70
INPUT_OUTPUT = 74
PERMISSION = 77
INTERRUPTED = 130
BROKEN_PIPE = 141

_UsageError: type = typer.BadParameter.__mro__[1]
"""The class of the parser's errors; typer has no public name for it."""


def report_failure(error: BaseException) -> int:
    """Report an error on standard error, and return the exit code."""
    if is_debugging():
        print_to_people("".join(traceback.format_exception(error)), end="")
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader has seen enough, as `head` does
        return BROKEN_PIPE
    code, message = _explain(error)
    if "pip install" in message:
        from slumberd.cli.own_installation import name_own_pip

        message = name_own_pip(message)
    say(message)
    return code


def say(message: str) -> None:
    """Write a message to standard error, each line after the name of the program."""
    for line in message.splitlines() or [""]:
        print_to_people(f"slumberd: {line}")


def print_to_people(text: str, *, end: str = "\n") -> None:
    """Write a text to standard error; if that fails, the exit code stays the same."""
    with suppress(OSError):
        print(text, end=end, file=sys.stderr)


def is_unexpected(error: BaseException) -> bool:
    """Return whether an error is not of a kind that commands report."""
    return isinstance(error, Exception) and _explain(error)[0] == BUG


def _explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if isinstance(error, SlumberdError):
        return error.exit_code, str(error)
    if isinstance(error, _UsageError):
        return USAGE, _usage_message(error)
    if isinstance(error, UnicodeEncodeError):  # an argument whose bytes are not valid Unicode
        return USAGE, f"{error.object!r} is not valid Unicode"
    if isinstance(error, OSError):
        return _explain_os_error(error)
    remedy = "" if is_debugging() else "; SLUMBERD_DEBUG=1 shows where"
    return BUG, f"{type(error).__name__}: {error} (this is a bug{remedy})"


def _usage_message(error: object) -> str:
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "slumberd"
    return f"{message}\nsee `{command} --help`"


def _explain_os_error(error: OSError) -> tuple[int, str]:
    code = PERMISSION if isinstance(error, PermissionError) else INPUT_OUTPUT
    subject = f"{error.filename!r}: " if error.filename else ""
    return code, f"{subject}{error.strerror or error}"

"""Ask a person on the terminal before a command goes on."""

from __future__ import annotations

import sys

from slumberd.cli.exit_codes import print_to_people, say
from slumberd.model.errors import NotConfirmedError, UsageError


def require_confirmation(question: str, done: str) -> None:
    """Ask a person on the terminal a question that must be answered with yes.

    Args:
        done: What is not done without that answer, as ``erased``.

    Raises:
        UsageError: Standard input is not a terminal.
        NotConfirmedError: The person did not confirm.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("not a terminal; add --yes to confirm")
    if not _confirms(question, done):
        raise NotConfirmedError(done)


def _confirms(question: str, done: str) -> bool:
    """Return whether a person on the terminal answers yes; the end of input means no.

    Raises:
        KeyboardInterrupt: The person interrupted the question.
    """
    try:
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print_to_people("")
        say(str(NotConfirmedError(done)))
        raise
    if not answer.endswith("\n"):
        print_to_people("")
    return answer.strip().lower() in ("y", "yes")

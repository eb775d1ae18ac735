"""What of the environment the command line reads; no other module does."""

from __future__ import annotations

import os

RESERVED = frozenset({"SLUMBERD_DEBUG", "SLUMBERD_TEST_DATA"})
"""Variables that begin as settings do and are none: for us, and for our tests."""


def settings_variables() -> dict[str, str]:
    """Return the variables that may be settings."""
    return {name: value for name, value in os.environ.items() if name not in RESERVED}


def debugging() -> bool:
    """Say whether a failure is to show its traceback."""
    return bool(os.environ.get("SLUMBERD_DEBUG"))


def watchdog_seconds() -> float | None:
    """Return how long a service manager waits for news of this process; None when it does not."""
    wait, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not wait.isdecimal() or int(wait) == 0 or pid not in (None, str(os.getpid())):
        return None
    return int(wait) / 1_000_000


def notify_socket() -> str | None:
    """Return where a service manager listens; None when none does."""
    return os.environ.get("NOTIFY_SOCKET")


def journal_stream() -> str:
    """Return which file leads to systemd's journal; nothing when none does."""
    return os.environ.get("JOURNAL_STREAM", "")


def takes_colors() -> bool:
    """Say whether a person has not asked for none, by ``$NO_COLOR``."""
    return not os.environ.get("NO_COLOR")


def columns_of(descriptor: int) -> int:
    """Return how many characters fit into a line of a terminal; ``$COLUMNS`` overrules it.

    Raises:
        OSError: The file is no terminal.
    """
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) else os.get_terminal_size(descriptor)[0]

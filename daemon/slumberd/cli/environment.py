"""Read environment variables; no other module does."""

from __future__ import annotations

import os
from pathlib import Path

RESERVED = frozenset(
    {
        "SLUMBERD_DEBUG",
        "SLUMBERD_REQUIRE_BROWSER",
        "SLUMBERD_REQUIRE_POSTGRES",
        "SLUMBERD_TEST_AXE",
        "SLUMBERD_TEST_DATA",
        "SLUMBERD_TEST_POSTGRES",
        "SLUMBERD_TEST_TENANTS",
    }
)
"""Variables that begin as settings do, and are not settings: for debugging, and for tests."""


def settings_variables() -> dict[str, str]:
    """Return the variables that may be settings."""
    return {name: value for name, value in os.environ.items() if name not in RESERVED}


def is_debugging() -> bool:
    """Return whether a failure shows its traceback."""
    return bool(os.environ.get("SLUMBERD_DEBUG"))


def watchdog_seconds() -> float | None:
    """Return the watchdog interval of the service manager; None without a watchdog."""
    wait, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not wait.isdecimal() or int(wait) == 0 or pid not in (None, str(os.getpid())):
        return None
    return int(wait) / 1_000_000


def notify_socket() -> str | None:
    """Return the address of the service manager's socket; None without one."""
    return os.environ.get("NOTIFY_SOCKET")


def journal_stream() -> str:
    """Return which file systemd connected to its journal; an empty text without one."""
    return os.environ.get("JOURNAL_STREAM", "")


def takes_colors() -> bool:
    """Return whether colours are allowed: ``$NO_COLOR`` forbids them."""
    return not os.environ.get("NO_COLOR")


def forces_colors() -> bool:
    """Return whether a variable asks for colours where standard output is no terminal."""
    return bool(os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE"))


def directory_named(variable: str, default: Path) -> Path:
    """Return the directory that a variable names; a default when it is not set or empty."""
    return Path(os.environ.get(variable) or default)


def variable_named(variable: str) -> str | None:
    """Return the value of a variable that a person names; None when it is not set."""
    return os.environ.get(variable)


def columns_of(descriptor: int) -> int:
    """Return the width of a terminal in characters; ``$COLUMNS`` overrides it.

    Raises:
        OSError: The file is not a terminal.
    """
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) else os.get_terminal_size(descriptor)[0]

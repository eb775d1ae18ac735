"""The environment: the one place that reads it."""

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


def notify_socket() -> str | None:
    """Return where a service manager listens; None when none does."""
    return os.environ.get("NOTIFY_SOCKET")


def takes_colors() -> bool:
    """Say whether a person has not asked for none, by ``$NO_COLOR``."""
    return not os.environ.get("NO_COLOR")

"""Wait for a condition, with a limit that only a failure reaches, even on a busy machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
"""How long a test waits before it fails: a hundred times what it takes on a free machine."""

_LOOK_SECONDS = 0.005
_NEVER = threading.Event()


def wait_until(true: Callable[[], bool]) -> None:
    """Return as soon as a condition holds; leave the processor to others between two looks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        _NEVER.wait(_LOOK_SECONDS)

"""Wait for a condition, with a limit that only a failure reaches, even on a busy machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0
"""How long a test waits before it fails: only a failure takes as long, even on a busy machine."""

_LOOK_SECONDS = 0.005
_NEVER = threading.Event()


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as a condition holds; sleep between two checks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        _NEVER.wait(_LOOK_SECONDS)

"""Events that are set after a number of checks, to stop work in the middle."""

from __future__ import annotations

import asyncio
import threading


class StopAfter(asyncio.Event):
    """An event of a loop that is set after so many checks."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


class ThreadStopAfter(threading.Event):
    """An event of threads that is set after so many checks.

    Attributes:
        left: How many more checks find it unset; negative when it was set.
    """

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.left = checks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0

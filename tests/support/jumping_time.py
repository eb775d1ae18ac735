"""Run coroutines on an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, and a timer waits, set the clock to the timer."""
        if timeout is None:  # another thread wakes the loop
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the seconds since the loop began, as its timers count them."""
        return self._clock.now


def run_without_waiting(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; it sleeps and times out at exact instants, in no time.

    While a timer waits, it must not wait for another thread or process.
    """
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)

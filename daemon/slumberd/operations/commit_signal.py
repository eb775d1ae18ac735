"""Wake what waits for the next commit of the facts."""

from __future__ import annotations

import asyncio


class CommitSignal:
    """Wakes all waiting tasks at once, each time that something was committed."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """What the next commit sets. Take it before you read, so that no commit is missed."""
        return self._next

    def announce(self) -> None:
        """Wake all tasks that wait."""
        self._next.set()
        self._next = asyncio.Event()

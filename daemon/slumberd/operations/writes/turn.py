"""Let one request at a time change the facts; a dry run gives way to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from slumberd.consolidation.firing import DryRunBounds
from slumberd.errors import StoppedError

GIVES_WAY = 3
"""How often a dry run ends for a change that waits; the next time, the change waits for it."""

PART = 4
"""Each further attempt of a dry run reads at most this part of the rows of the one before."""

T = TypeVar("T")


class Turn:
    """A lock that each change of the facts holds: ``async with turn``.

    A dry run holds it, too, since it writes in a transaction that is rolled back. Without giving
    way, a long one would delay each firing that becomes due.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._wanted = asyncio.Event()

    async def __aenter__(self) -> None:
        self._waiting += 1
        self._wanted.set()
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted.clear()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def run_dry(self, work: Callable[[DryRunBounds], Awaitable[T]]) -> T:
        """Run a dry run at its turn, and return its result.

        When a change waits for its turn, the dry run ends. It begins anew after the change, with
        fewer rows. The last attempt reads few rows, and does not end for a change.

        Args:
            work: Writes nothing. Raises `StoppedError` soon after the stop of its bounds is set.
        """
        for attempt in range(GIVES_WAY):
            async with self._lock:
                try:
                    return await work(DryRunBounds(self._wanted, PART**attempt))
                except StoppedError:
                    if not self._wanted.is_set():
                        raise
        async with self._lock:
            return await work(DryRunBounds(None, PART**GIVES_WAY))

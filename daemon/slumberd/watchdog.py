"""Tell the service manager that the daemon is alive, as long as everything in it gets on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from slumberd.clock import set_within
from slumberd.errors import StoreError

BEATS = 3
"""How often it is told within the time that the service manager waits."""

Pulse = Callable[[], Awaitable[int]]
"""Returns when the threads of a database have answered; the number grows with what was written."""

_log = structlog.get_logger("slumberd")


class Watchdog:
    """Tells, only when scheduler and databases have got on since it last told.

    The scheduler stands still while a rule fires, but then each batch writes. A database whose
    thread is stuck does not answer, so nothing is told, however long that takes; one whose thread
    is at work on a batch answers after it.

    Args:
        tell: Says that the daemon is alive.
        turned_at: Returns when the scheduler last came round.
        pulses: One for each database.
    """

    def __init__(
        self, tell: Callable[[], None], turned_at: Callable[[], float], pulses: Sequence[Pulse]
    ) -> None:
        self._tell = tell
        self._turned_at = turned_at
        self._pulses = pulses
        self._seen: tuple[float, list[int]] | None = None

    async def keep(self, stop: asyncio.Event, *, within_seconds: float | None) -> None:
        """Beat until `stop` is set.

        Args:
            stop: Ends it.
            within_seconds: How long the service manager waits; None when it does not.
        """
        while within_seconds is not None and not stop.is_set():
            await self.beat()
            await set_within(stop, within_seconds / BEATS)

    async def beat(self) -> None:
        """Tell, or warn that nothing moves."""
        written = [await _answered(pulse) for pulse in self._pulses]
        now = (self._turned_at(), written)
        if now == self._seen:
            _log.warning("watchdog.withheld", reason="the scheduler does not get on")
            return
        self._seen = now
        self._tell()


async def _answered(pulse: Pulse) -> int:
    try:
        return await pulse()
    except StoreError:  # an answer too; whoever needs the database tells what is wrong with it
        return 0

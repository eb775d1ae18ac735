"""Read the time, and wait for events with a time limit. No other module reads the time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """The clocks of the machine; implements `Clock`."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, to the microsecond."""
        # Not datetime.now(): under freezegun that is a subclass which orjson refuses.
        return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Return seconds that never step back; CLOCK_MONOTONIC, as systemd wants it."""
        return time.monotonic()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most `seconds`; return whether it is set."""
    # Not wait_for(), which creates a task each time in Python 3.11: idle daemons call this often.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, a plain ``datetime``."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step back."""
        ...

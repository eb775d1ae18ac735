"""The one place that reads the time.

Wait for an event, but not for ever.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """The machine's clocks; implements ``ports.Clock``."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, to the microsecond."""
        # Not datetime.now(): under freezegun that is a subclass which orjson refuses.
        return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Return seconds that never step back; CLOCK_MONOTONIC, as systemd wants it."""
        return time.monotonic()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event is set, as soon as it is, or after so many seconds."""
    # Not wait_for(), which takes a task of its own in Python 3.11: an idle daemon does little else.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Clock(Protocol):
    """What time it is."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC, a plain ``datetime``."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step back."""
        ...

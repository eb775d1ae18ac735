"""Wait for an event, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event is set, as soon as it is, or after so many seconds."""
    # Not wait_for(), which takes a task of its own in Python 3.11: an idle daemon does little else.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()

"""Wait for an event, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event is set, as soon as it is, or after so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()

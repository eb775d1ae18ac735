"""Notice, for as long as the daemon runs, what other programs change in the facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from slumberd.clock import set_within
from slumberd.errors import StoreError, SupersededError

EVERY_SECONDS = 0.5
"""How long a change may go unnoticed, when no rule fires: a look takes a third of a millisecond."""

_log = structlog.get_logger("slumberd")


async def keep_noticing(
    notice: Callable[[], Awaitable[int]],
    stop: asyncio.Event,
    *,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Look again and again, until `stop` is set.

    Args:
        notice: Records what was changed; returns how many rows that took.
        stop: Ends it.
        every_seconds: How long it rests between two looks.

    Raises:
        SupersededError: Another daemon has taken over, or a store was replaced.
    """
    failing = False
    while not stop.is_set():
        try:
            rows = await notice()
        except SupersededError:
            raise
        except (StoreError, OSError) as error:  # a full disk of the log, too
            if not failing:
                _log.error("external.failed", error=type(error).__name__, message=str(error))
            failing = True
        else:
            failing = False
            if rows:
                _log.info("external.noticed", rows=rows)
        await set_within(stop, every_seconds)

"""Notice, for as long as the daemon runs, what other programs change in the facts.

Effects: rules that read and read, and nothing ever comes of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

from slumberd.clock import set_within
from slumberd.consolidation.consolidator import Report
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
        SupersededError: Another daemon has taken over, or the store was replaced.
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


PATIENCE = 3
"""So many firings in a row that read something and did nothing are told of."""


class Effects:
    """Logs ``rule.ineffective``, once until the rule has an effect again."""

    def __init__(self) -> None:
        self._in_vain: Counter[str] = Counter()

    def see(self, rule_id: str, report: Report, *, gated: bool = False) -> None:
        """Take notice of what one firing did.

        Args:
            rule_id: The rule.
            report: What it did.
            gated: Whether a gate may hold back all that the rule selects, as it is meant to.
        """
        counts = report.channels.values()
        if any(one.added or one.updated or one.deleted or one.restored for one in counts):
            del self._in_vain[rule_id]
        elif gated and any(one.noop for one in counts):
            return
        elif read := max((one.read for one in counts), default=0):
            self._in_vain[rule_id] += 1
            if self._in_vain[rule_id] == PATIENCE:
                _log.warning("rule.ineffective", rule_id=rule_id, firings=PATIENCE, read=read)

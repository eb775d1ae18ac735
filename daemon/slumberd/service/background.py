"""Record external changes of the facts in the background, and report ineffective rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

from slumberd.clock import set_within
from slumberd.errors import StoreError, SupersededError
from slumberd.model.record import Report

EVERY_SECONDS = 0.5
"""The interval between two searches for external changes; a search takes about 0.3 ms."""

EVERY_SECONDS_OF_A_DATABASE = 30.0
"""The same for a database, whose facts no other program writes. The search then only checks that
this daemon may still write, as each of its transactions does, too."""

MOST_INEFFECTIVE = 3
"""After this many ineffective firings in a row, a rule may be reported."""

MOST_READ = 100
"""The least number of episodes without an effect, too: most turns of a chat state nothing."""

_log = structlog.get_logger("slumberd")


async def record_external_changes(
    record: Callable[[], Awaitable[int]],
    stop: asyncio.Event,
    *,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Record external changes of the facts repeatedly, until `stop` is set.

    Args:
        record: Records the changes; returns the number of ledger rows.
        stop: Ends the loop.
        every_seconds: The pause between two searches.

    Raises:
        SupersededError: Another daemon has taken over, or the store was replaced.
    """
    failing = False
    while not stop.is_set():
        try:
            rows = await record()
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


class EffectTracker:
    """Logs ``rule.ineffective`` once for a rule whose firings have no effect, until one has."""

    def __init__(self) -> None:
        self._firings: Counter[str] = Counter()
        self._read: Counter[str] = Counter()

    def record(self, rule_id: str, report: Report, *, gated: bool = False) -> None:
        """Count a firing as effective or not.

        Args:
            rule_id: The rule.
            report: What the firing did.
            gated: Whether the rule has a salience gate, which may hold back all it selects.
        """
        counts = report.channels.values()
        if any(each.added or each.updated or each.deleted or each.restored for each in counts):
            del self._firings[rule_id], self._read[rule_id]
        elif gated and any(each.noop for each in counts):
            return
        elif read := max((each.read for each in counts), default=0):
            known = self._is_ineffective(rule_id)
            self._firings[rule_id] += 1
            self._read[rule_id] += read
            if self._is_ineffective(rule_id) and not known:
                firings, total = self._firings[rule_id], self._read[rule_id]
                _log.warning("rule.ineffective", rule_id=rule_id, firings=firings, read=total)

    def _is_ineffective(self, rule_id: str) -> bool:
        return self._firings[rule_id] >= MOST_INEFFECTIVE and self._read[rule_id] >= MOST_READ

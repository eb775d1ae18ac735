"""Log that many facts went within a day, whatever caused it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from slumberd.clock import Clock, set_within
from slumberd.errors import StoreError
from slumberd.model.episode import microseconds
from slumberd.model.record import WITHIN, Reduction
from slumberd.operations.ledger_reader import LedgerReader

EVERY_SECONDS = 10.0
"""The pause between two looks at the ledger; without new rows a look reads one row."""

_log = structlog.get_logger("slumberd")


class ReductionAlarm:
    """Logs ``facts.reduced`` once for each alarming reduction, until it is over.

    Args:
        reads: Reads the ledger.
        fraction: Returns the setting ``limits.alarm_fraction``.
        clock: The time.
        rows: So many rows of the ledger need no look.
    """

    def __init__(
        self,
        reads: LedgerReader,
        fraction: Callable[[], float | None],
        clock: Clock,
        *,
        rows: int = -1,
    ) -> None:
        self._reads = reads
        self._fraction = fraction
        self._clock = clock
        self._rows = rows
        self._known: set[str | None] = set()

    async def check(self) -> None:
        """Look for reductions, when the ledger has new rows."""
        rows = await self._reads.ledger_rows()
        if rows == self._rows:
            return
        shrinkage = await self._reads.shrinkage(microseconds(self._clock.now() - WITHIN))
        self._rows = rows
        found = [*shrinkage.reductions(self._fraction())]
        fresh = [reduction for reduction in found if reduction.user not in self._known]
        self._known = {reduction.user for reduction in found}
        if fresh:
            _log_reductions(fresh)

    async def run(self, stop: asyncio.Event, *, every_seconds: float = EVERY_SECONDS) -> None:
        """Check repeatedly, until `stop` is set."""
        while not stop.is_set():
            with suppress(StoreError):  # a firing reports a ledger that cannot be read
                await self.check()
            await set_within(stop, every_seconds)


def _log_reductions(found: list[Reduction]) -> None:
    """Log reductions in one line, without the users; the facts of all come first."""
    users = [reduction for reduction in found if reduction.user is not None]
    counted = found[:1] if found[0].user is None else users
    _log.warning(
        "facts.reduced",
        before=sum(reduction.before for reduction in counted),
        now=sum(reduction.now for reduction in counted),
        users=len(users),
    )

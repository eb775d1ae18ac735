"""Write the log lines of committed ledger rows, and the ledger's head at intervals.

A truncated or rewritten ledger is consistent in itself. Only a log outside of the file, with more
rows or another head, shows what was changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from slumberd.clock import Clock
from slumberd.consolidation.protocols import DeltaLog, Ledger
from slumberd.model.record import Outcome, Record

ROWS = 10_000
"""A checkpoint follows the first batch after this many rows."""

SECONDS = 60.0
"""A checkpoint follows the first batch after this many seconds."""


class DeltaLines:
    """Writes a log line for each ledger row, after its commit.

    Attributes:
        behind: Whether ledger rows have no log lines yet.

    Args:
        ledger: The ledger.
        log: The log that gets the lines.
        clock: Measures the time between checkpoints.
        at_once: At most this many lines are written, and at most this many pending ones are read,
            between two checks for a cancellation.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock, *, at_once: int) -> None:
        self._ledger = ledger
        self._log = log
        self._at_once = at_once
        self._checkpoints = Checkpoints(ledger, log, clock)
        self.behind = False

    async def complete(
        self, outcome: Outcome, *, cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Log that a batch is committed; write its lines first.

        Args:
            outcome: The batch.
            cancelled: Once it returns True, the other lines are written later, or at the next
                start.
        """
        if cancelled is not None and cancelled():
            self.behind = True
        elif self.behind:
            await self.write_pending(cancelled)
        else:
            await self._write([*outcome.noticed, *outcome.records], cancelled)
        self._log.completed(outcome)

    async def write_pending(self, cancelled: Callable[[], bool] | None = None) -> int:
        """Write the pending lines, as long as the log takes them; return how many."""
        written = 0
        while (records := await self._ledger.watermarks.unlogged(limit=self._at_once)) and (
            await self._write(records, cancelled)
        ):
            written += len(records)
        return written

    async def checkpoint(self) -> None:
        """Log the ledger's number of rows and its head."""
        await self._checkpoints.write()

    async def _write(self, records: Sequence[Record], cancelled: Callable[[], bool] | None) -> bool:
        """Write the lines of records; return False when some of them must be written later."""
        # Until all are written, the next attempt begins after the last record that is marked.
        self.behind = True
        count = await self._write_portions(records, cancelled)
        if not count:
            return False
        await self._ledger.watermarks.mark_logged(records[count - 1].seq)
        await self._checkpoints.follow(records[count - 1].seq)
        self.behind = count < len(records)
        return not self.behind

    async def _write_portions(
        self, records: Sequence[Record], cancelled: Callable[[], bool] | None
    ) -> int:
        """Write lines until a cancellation, or until the log takes no more; return how many."""
        for first in range(0, len(records), self._at_once):
            if cancelled is not None and cancelled():
                return first
            portion = records[first : first + self._at_once]
            if not await asyncio.to_thread(self._try_to_write, portion):
                return first
        return len(records)

    def _try_to_write(self, records: Sequence[Record]) -> bool:
        """Write the lines of some records; return False when the log reader is too slow."""
        try:
            self._log.applied(records)
        except TimeoutError:
            return False
        return True


class Checkpoints:
    """Decides when a checkpoint is due, and writes it.

    Args:
        ledger: The ledger.
        log: The log that gets the checkpoint.
        clock: Measures the time between checkpoints.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock) -> None:
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._rows = 0
        self._at = clock.monotonic()

    async def follow(self, rows: int) -> None:
        """Write a checkpoint if one is due; `rows` is the ledger's number of rows."""
        grown, since = rows - self._rows, self._clock.monotonic() - self._at
        if grown >= ROWS or since >= SECONDS:
            await self.write()

    async def write(self) -> None:
        """Write a checkpoint."""
        head = await self._ledger.head()
        self._log.checkpointed(head)
        self._rows, self._at = head.rows, self._clock.monotonic()

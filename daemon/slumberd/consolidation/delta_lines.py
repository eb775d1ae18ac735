"""Write the log lines of committed ledger rows, and the ledger's head at intervals.

A truncated or rewritten ledger is consistent in itself. Only a log outside of the file, with more
rows or another head, shows what was changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
        at_once: At most this many pending lines are read from the ledger at once.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock, *, at_once: int) -> None:
        self._ledger = ledger
        self._log = log
        self._at_once = at_once
        self._checkpoints = Checkpoints(ledger, log, clock)
        self.behind = False

    async def complete(self, outcome: Outcome, *, defer: bool) -> None:
        """Log that a batch is committed; write its lines first, unless `defer`."""
        if defer:
            self.behind = True
        elif self.behind:
            await self.write_pending()
        else:
            await self._write([*outcome.noticed, *outcome.records])
        self._log.completed(outcome)

    async def write_pending(self) -> int:
        """Write the pending lines, as long as the log takes them; return how many."""
        written = 0
        while (records := await self._ledger.watermarks.unlogged(limit=self._at_once)) and (
            await self._write(records)
        ):
            written += len(records)
        return written

    async def checkpoint(self) -> None:
        """Log the ledger's number of rows and its head."""
        await self._checkpoints.write()

    async def _write(self, records: Sequence[Record]) -> bool:
        """Write the lines of records; return False when the log reader is too slow."""
        # Until they are written, the next attempt must begin with these records.
        self.behind = True
        try:
            await asyncio.to_thread(self._log.applied, records)
        except TimeoutError:
            return False
        await self._ledger.watermarks.mark_logged(records[-1].seq)
        self.behind = False
        await self._checkpoints.follow(records[-1].seq)
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

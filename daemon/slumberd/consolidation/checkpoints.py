"""Write the ledger's head to the log at intervals.

A truncated or rewritten ledger is consistent in itself. Only a log outside of the file, with more
rows or another head, shows what was changed.
"""

from __future__ import annotations

from slumberd.clock import Clock
from slumberd.consolidation.protocols import DeltaLog, Ledger

ROWS = 10_000
"""A checkpoint follows the first batch after this many rows."""

SECONDS = 60.0
"""A checkpoint follows the first batch after this many seconds."""


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

"""Checkpoints: the ledger's head goes to the log now and then, out of reach of who has the file.

A ledger that was cut short, or written anew, verifies by itself. It does not against a log that
saw more of it, or another head.
"""

from __future__ import annotations

from slumberd.clock import Clock
from slumberd.consolidation.protocols import DeltaLog, Ledger

ROWS = 10_000
"""After so many rows the next batch is followed by a checkpoint."""

SECONDS = 60.0
"""After so long the next batch is followed by a checkpoint."""


class Checkpoints:
    """Decides when a checkpoint is written, and writes it.

    Args:
        ledger: Whose head it is.
        log: Where it goes.
        clock: For the time in between.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock) -> None:
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._rows = 0
        self._at = clock.monotonic()

    async def follow(self, rows: int) -> None:
        """Write a checkpoint when it is time, now that the ledger has so many rows."""
        grown, since = rows - self._rows, self._clock.monotonic() - self._at
        if grown >= ROWS or since >= SECONDS:
            await self.write()

    async def write(self) -> None:
        """Write a checkpoint."""
        head = await self._ledger.head()
        self._log.checkpointed(head)
        self._rows, self._at = head.rows, self._clock.monotonic()

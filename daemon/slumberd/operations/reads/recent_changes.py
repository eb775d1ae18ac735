"""Keep the sums of recent times, so that a report reads only what is new in the ledger."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime

from slumberd.operations.forms import MOST
from slumberd.operations.reads.change_report import PAGE_ROWS, ChangeCounter, ChangeReport
from slumberd.storage.facts.reads import FactReader

_TIMES = 4
"""So many lengths of time are kept; a further one replaces the least recently used."""


class _RecentTime:
    """The sums of one time, which moves on: later rows enter it, and early rows leave it.

    Args:
        reads: Reads the ledger.
    """

    def __init__(self, reads: FactReader) -> None:
        self._reads = reads
        self._turn = asyncio.Lock()
        self._start(0)

    def _start(self, after: int) -> None:
        """Start again, after a row."""
        self._counter = ChangeCounter(2 * MOST)
        self._after = self._last = after
        self._erasure: int | None = None

    async def report(self, since: datetime, most: int) -> ChangeReport:
        """Return what the rows from an instant on changed."""
        async with self._turn:
            after = await self._reads.last_row_before(since)
            await self._move_to(after)
            if not self._counter.covers(most):
                self._start(after)
                await self._move_to(after)
            return self._counter.finish(most)

    async def _move_to(self, after: int) -> None:
        """Let rows up to a number leave, and all new rows enter."""
        while not await self._try_to_move_to(after):
            self._start(after)

    async def _try_to_move_to(self, after: int) -> bool:
        """Return whether the sums are right; they are not once an erasure changed rows."""
        if not self._after <= after <= self._last:
            return False
        while self._after < after:
            found = await self._reads.group_changes(after=self._after, limit=PAGE_ROWS, upto=after)
            if found.erasure != self._erasure:
                return False
            self._counter.remove(found.groups)
            self._after = found.last
        while True:
            found = await self._reads.group_changes(after=self._last, limit=PAGE_ROWS)
            if self._erasure not in (None, found.erasure):
                return False
            self._erasure = found.erasure
            if found.last == self._last:
                return True
            self._counter.add(found.groups)
            self._last = found.last


class RecentChanges:
    """Sums up what changed in recent times, in all memory.

    Args:
        reads: Reads the ledger.
    """

    def __init__(self, reads: FactReader) -> None:
        self._reads = reads
        self._times: OrderedDict[int, _RecentTime] = OrderedDict()

    async def report(self, since: datetime, *, days: int, most: int) -> ChangeReport:
        """Return what the ledger's rows from an instant on changed, as `read_changes` does.

        The report is valid until the next call.

        Args:
            since: The instant, inclusive.
            days: The length of the time; each length has sums of its own.
            most: At most this many of the largest batches.
        """
        time = self._times.pop(days, None) or _RecentTime(self._reads)
        self._times[days] = time
        if len(self._times) > _TIMES:
            self._times.popitem(last=False)
        return await time.report(since, most)

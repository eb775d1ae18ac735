"""Record reads of episodes in memory, and write them later, so that no read waits for a write.

An episode that a rule's gate holds back is marked in the same table. When it is read, the
transaction that writes the read logs it again, as a row without a rowid: not as a new version.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from slumberd.model.errors import SlumberdError
from slumberd.model.salience import Access
from slumberd.storage.engine import EpisodeEngine, Session


class AccessLimits(NamedTuple):
    """How many reads are recorded before they are written, and for how long.

    Attributes:
        seconds: How long reads wait until they are written, while their event loop runs.
        written_at_once: So many reads are written at once, unless others were written within the
            last `seconds`.
        most_waiting: So many reads wait at most; more are not recorded. Writing a read takes as
            long as reading, 9 us: without this limit, a caller that reads without a pause would
            take twice the time.
    """

    seconds: float = 2.0
    written_at_once: int = 5_000
    most_waiting: int = 10_000


_WAIT_SECONDS = 0.1
"""How long the recorder waits for another program's lock. Puts wait behind it."""


class AccessRecorder:
    """Records reads, and writes them after a while, when they are many, and at the end.

    Reads that cannot be written, since the file is locked or read-only, are kept up to a limit.

    Args:
        limits: How many reads are recorded, and for how long.
    """

    def __init__(
        self,
        engine: EpisodeEngine,
        limits: AccessLimits = AccessLimits(),  # noqa: B008 # immutable
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._reads: deque[tuple[int, list[str]]] = deque()
        self._count = 0
        self._begun_at = -math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many reads are not written yet."""
        return self._count

    def note(self, eids: list[str], at: int) -> None:
        """Record that episodes were read; in a running event loop.

        Args:
            at: When, microseconds since 1970 UTC.
        """
        if accepted := eids[: self._limits.most_waiting - self._count]:
            self._reads.append((at, accepted))
            self._count += len(accepted)
            self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a write of the recorded reads."""
        if self._loop is not loop:  # the last one may have ended before its alarm
            self._loop, self._alarm, self._writing, self._begun_at = loop, None, None, -math.inf
        seconds, many, _ = self._limits
        if self._count >= many and loop.time() - self._begun_at >= seconds:
            self._begin()
        elif self._alarm is None:
            self._alarm = loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._begun_at = loop.time()
        if self._writing is None or self._writing.done():
            # No TaskGroup: a timer starts the task, in no block that could wait for it. The
            # recorder keeps the task, and `close` waits for it and writes what it has left.
            self._writing = asyncio.create_task(self._write_some(loop))  # noqa: TID251

    async def _write_some(self, loop: asyncio.AbstractEventLoop) -> None:
        await self.write()
        if self._reads:
            self._schedule(loop)

    async def close(self) -> None:
        """Write what can be written, and drop the rest."""
        if self._loop is asyncio.get_running_loop() and self._writing is not None:
            await asyncio.wait([self._writing])
        if self._alarm is not None:
            self._alarm.cancel()
        await self.write()
        self._reads.clear()
        self._count, self._loop, self._alarm, self._writing = 0, None, None, None

    async def write(self) -> None:
        """Write the recorded reads; keep those that cannot be written."""
        some = list(self._reads)
        if not some:
            return
        with suppress(SlumberdError):
            is_logged_again = await self._engine.write(
                partial(_write_reads, noted=some), wait_seconds=_WAIT_SECONDS
            )
            if is_logged_again:
                self._engine.notify()
            # Only the loop's thread changes the count, or concurrent changes would be lost.
            for _, eids in some:
                self._reads.popleft()
                self._count -= len(eids)


def _write_reads(session: Session, noted: Sequence[tuple[int, list[str]]]) -> bool:
    """Write reads within the caller's transaction; return whether an episode was logged again."""
    reads: dict[str, tuple[int, int]] = {}
    for at, eids in noted:
        for eid in eids:
            count, last = reads.get(eid, (0, at))
            reads[eid] = count + 1, max(last, at)
    rows = [(eid, *read) for eid, read in reads.items()]
    session.do("accesses.read", {"noted": rows})
    return _log_again(session, reads)


def _log_again(session: Session, eids: Iterable[str]) -> bool:
    parameters = {"ids": [*eids]}
    logged = session.do("accesses.log_again", parameters) > 0
    if logged:
        session.do("accesses.let_go", parameters)
    return logged


def accesses(session: Session, eids: Sequence[str]) -> dict[str, Access]:
    """Return how often some episodes were read; episodes that were never read are left out."""
    parameters = {"ids": [*eids]}
    found = session.rows("accesses.accesses", parameters)
    return {eid: Access(count, last) for eid, count, last in found}


def hold(session: Session, seen: Mapping[str, int]) -> bool:
    """Mark episodes that a gate holds back, within the caller's transaction.

    Args:
        session: In a transaction.
        seen: By episode, the number of reads that the gate knew.

    Returns:
        Whether an episode was read since then, and so was logged again.
    """
    ids = [*seen]
    session.do("accesses.hold", {"ids": ids})
    now = accesses(session, ids)
    missed = [eid for eid, access in now.items() if access.reads > seen[eid]]
    return bool(missed) and _log_again(session, missed)


def erase(session: Session, eids: Iterable[str]) -> int:
    """Erase the reads of erased episodes; return the number of erased rows."""
    parameters = {"ids": [*eids]}
    return session.do("accesses.erase", parameters)

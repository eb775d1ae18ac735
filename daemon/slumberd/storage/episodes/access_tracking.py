"""How episodes were read: noted in memory, written later, and never waited for.

What a rule's gate holds back is marked here. Whoever reads it lets the episode log tell of it
once more, in the transaction that writes the read: a row without the number of a row of
``episodes``, which rules know as no new version.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import orjson

from slumberd.errors import SlumberdError
from slumberd.model.salience import Access
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import transaction

_SQL = statements("accesses")

SECONDS = 2.0
"""After so long reads are written, while the loop that they came from runs."""

MANY = 5_000
"""So many are written at once, when nothing was for as long."""

MOST = 10_000
"""So many are kept meanwhile; more are not noted. To write one takes as long as to read it, 9 us:
were all written of who reads without a pause, reads would take twice their time."""

_WAIT_MILLISECONDS = 100
"""For another's lock: what is put meanwhile waits behind."""

Write = Callable[[Callable[[sqlite3.Connection], None]], Awaitable[None]]
"""Runs a function in the writing connection's thread, and returns or raises as it does."""


class AccessRecorder:
    """Notes what is read, and has it written: after a while, when it is much, and at the end.

    What cannot be written, as the file is locked or may only be read, is kept up to `MOST`; of
    what is lost nothing but the count knows.

    Args:
        write: Has something done by whoever writes the file.
        prepare: Called with the connection, in the transaction, before anything is written.
        tell: Called once an episode was logged again.
    """

    def __init__(
        self,
        write: Write,
        prepare: Callable[[sqlite3.Connection], None],
        tell: Callable[[], None],
    ) -> None:
        self._write = write
        self._prepare = prepare
        self._tell = tell
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
        """Note that episodes were read; in a running event loop.

        Args:
            eids: Their ids.
            at: When, microseconds since 1970 UTC.
        """
        if kept := eids[: MOST - self._count]:
            self._reads.append((at, kept))
            self._count += len(kept)
            self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let what is noted be written soon."""
        if self._loop is not loop:  # the last one may have ended before its alarm
            self._loop, self._alarm, self._writing, self._begun_at = loop, None, None, -math.inf
        if self._count >= MANY and loop.time() - self._begun_at >= SECONDS:
            self._begin()
        elif self._alarm is None:
            self._alarm = loop.call_later(SECONDS, self._begin)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._begun_at = loop.time()
        if self._writing is None or self._writing.done():
            # Kept here; what it does not come to is done by the next, or at the end.
            self._writing = asyncio.create_task(self._write_some(loop))  # noqa: TID251

    async def _write_some(self, loop: asyncio.AbstractEventLoop) -> None:
        await self.write()
        if self._reads:
            self._schedule(loop)

    async def close(self) -> None:
        """Write what can be written, and let go of the rest."""
        if self._loop is asyncio.get_running_loop() and self._writing is not None:
            await asyncio.wait([self._writing])
        if self._alarm is not None:
            self._alarm.cancel()
        await self.write()
        self._reads.clear()
        self._count, self._loop, self._alarm, self._writing = 0, None, None, None
        self._begun_at = -math.inf

    async def write(self) -> None:
        """Write what is noted; what cannot be written is kept."""
        some = list(self._reads)
        if not some:
            return
        with suppress(SlumberdError, sqlite3.Error):
            await self._write(partial(self._flush, some))
            # Only the loop's own thread counts: others could lose what it counts meanwhile.
            for _, eids in some:
                self._reads.popleft()
                self._count -= len(eids)

    def _flush(self, some: Sequence[tuple[int, list[str]]], connection: sqlite3.Connection) -> None:
        with _short_busy_timeout(connection), transaction(connection):
            self._prepare(connection)
            logged = _write_reads(connection, some)
        if logged:
            self._tell()


@contextmanager
def _short_busy_timeout(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the block wait for others' locks but a moment."""
    usual: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {_WAIT_MILLISECONDS:d}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual:d}")


def _write_reads(connection: sqlite3.Connection, noted: Sequence[tuple[int, list[str]]]) -> bool:
    """Write reads within the caller's transaction; say whether an episode was logged again."""
    reads: dict[str, tuple[int, int]] = {}
    for at, eids in noted:
        for eid in eids:
            count, last = reads.get(eid, (0, at))
            reads[eid] = count + 1, max(last, at)
    told = [(eid, *read) for eid, read in reads.items()]
    connection.execute(_SQL["read"], {"noted": orjson.dumps(told).decode()})
    return _log_again(connection, reads)


def _log_again(connection: sqlite3.Connection, eids: Iterable[str]) -> bool:
    asked = {"ids": orjson.dumps([*eids]).decode()}
    logged = connection.execute(_SQL["log_again"], asked).rowcount > 0
    if logged:
        connection.execute(_SQL["let_go"], asked)
    return logged


def accesses(connection: sqlite3.Connection, eids: Sequence[str]) -> dict[str, Access]:
    """Return how some episodes were read; those that never were are left out."""
    asked = {"ids": orjson.dumps(eids).decode()}
    found = connection.execute(_SQL["accesses"], asked).fetchall()
    return {eid: Access(count, last) for eid, count, last in found}


def hold(connection: sqlite3.Connection, seen: Mapping[str, int]) -> bool:
    """Mark episodes that are held back, within the caller's transaction.

    Args:
        connection: In a transaction.
        seen: By episode, how many reads its gate knew of.

    Returns:
        Whether one was read since, and is logged again for that.
    """
    ids = [*seen]
    connection.execute(_SQL["hold"], {"ids": orjson.dumps(ids).decode()})
    now = accesses(connection, ids)
    missed = [eid for eid, access in now.items() if access.reads > seen[eid]]
    return bool(missed) and _log_again(connection, missed)


def erase(connection: sqlite3.Connection, eids: Iterable[str]) -> int:
    """Erase how episodes were read that are there no more; return how many rows went."""
    asked = {"ids": orjson.dumps([*eids]).decode()}
    return connection.execute(_SQL["erase"], asked).rowcount

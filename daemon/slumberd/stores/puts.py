"""Write rows of episodes: what changes is written, what is there already is left alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Literal, NamedTuple

import orjson

from slumberd.core.episode import microseconds
from slumberd.core.forgotten import Forgotten
from slumberd.core.scope import scope_of
from slumberd.errors import ForgottenError, MemoryScopeError
from slumberd.stores.codec import Row, same
from slumberd.stores.forgetting import forgotten
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import transaction

Write = Callable[[Callable[[sqlite3.Connection], None]], Awaitable[None]]
"""Runs a function in the writing connection's thread."""

Change = Literal["new", "changed", "unchanged"]

_SQL = statements("episodes")
_LOOKED_UP = 1_000
"""Rows that are compared with the table at a time."""


class PutCounts(NamedTuple):
    """What became of many episodes.

    Attributes:
        new: Ids that were not there.
        changed: Ids that were, with something else.
        unchanged: Ids that were, with the same.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0


def write(connection: sqlite3.Connection, rows: Sequence[Row]) -> PutCounts:
    """Write rows within the caller's transaction.

    Raises:
        MemoryScopeError: An id belongs to another scope.
    """
    counts = PutCounts()
    past = forgotten(connection)
    for first in range(0, len(rows), _LOOKED_UP):
        some = rows[first : first + _LOOKED_UP]
        stored = _stored(connection, some)
        changes = [_refusal(row, past) or _change(row, stored) for row in some]
        for change in changes:
            if isinstance(change, MemoryScopeError):
                raise change
        _execute(connection, some, changes)
        counts = PutCounts(*map(sum, zip(counts, _counted(changes), strict=True)))
    return counts


def _counted(changes: Sequence[Change | MemoryScopeError]) -> PutCounts:
    return PutCounts(*(changes.count(kind) for kind in ("new", "changed", "unchanged")))


def _stored(connection: sqlite3.Connection, rows: Sequence[Row]) -> dict[str, Row]:
    ids = orjson.dumps([row.id for row in rows]).decode()
    found = connection.execute(_SQL["by_ids"], {"ids": ids}).fetchall()
    return {row[0]: Row(*row) for row in found}


def _change(row: Row, stored: dict[str, Row]) -> Change | MemoryScopeError:
    """Decide about one row, and let the next of the same id know."""
    before = stored.get(row.id)
    if before is not None and before.scope_key != row.scope_key:
        conflict = _conflict(row, before)
        if conflict is not None:
            return conflict
    if before is not None and same(row, before):
        return "unchanged"
    stored[row.id] = row
    return "new" if before is None else "changed"


def _refusal(row: Row, past: Forgotten | None) -> MemoryScopeError | None:
    """Say why a row must not be written at all."""
    scope = scope_of(row.scope_key)
    if past is None or scope is None:
        return None
    at = microseconds(datetime.fromisoformat(row.timestamp))
    return ForgottenError(tuple(scope), row.id) if past.covers(*scope, at) else None


def _conflict(row: Row, before: Row) -> MemoryScopeError | None:
    ours, theirs = scope_of(row.scope_key), scope_of(str(before.scope_key))
    if ours == theirs:
        return None
    # Nothing of the other scope is told: it may be another tenant's.
    return MemoryScopeError(
        tuple(ours or ()), "put", f"episode {row.id!r} belongs to another scope"
    )


def _execute(
    connection: sqlite3.Connection,
    rows: Sequence[Row],
    changes: Sequence[Change | MemoryScopeError],
) -> None:
    # All inserts go first: an update in the same batch may be of a row that one of them makes.
    for kind, name in (("new", "insert"), ("changed", "update")):
        chosen = [row for row, change in zip(rows, changes, strict=True) if change == kind]
        if chosen:
            connection.executemany(_SQL[name], chosen)


class Waiting:
    """One put on its way: committed when `change` is set, refused when `error` is."""

    __slots__ = ("change", "error", "loop", "row", "woken")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.change: Change | None = None
        self.error: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self.woken = self.loop.create_future()

    @property
    def settled(self) -> bool:
        """Whether it needs no flush any more."""
        return self.change is not None or self.error is not None


class GroupCommit:
    """Puts that wait for the writing connection share the next transaction.

    The first put to come asks the connection's thread for a flush. Puts that come before that
    flush runs only wait: it takes all that are there. A flush that is lost on the way, as with
    its caller, wakes the others, and one of them asks for the next.

    Args:
        prepare: Called with the connection before anything is written.
        tell: Called once it is.
    """

    def __init__(
        self, prepare: Callable[[sqlite3.Connection], None], tell: Callable[[], None]
    ) -> None:
        self._prepare = prepare
        self._tell = tell
        self._queue: deque[Waiting] = deque()
        self._asked = Lock()

    async def put(self, row: Row, write: Write) -> None:
        """Return when the row is committed.

        Args:
            row: What to write.
            write: Runs a function in the writing connection's thread.
        """
        waiting = Waiting(row)
        self._queue.append(waiting)
        try:
            while not waiting.settled:
                await self._flushed(waiting, write)
        except BaseException:
            self._withdraw(waiting)
            raise
        if waiting.error is not None:
            raise waiting.error

    async def _flushed(self, waiting: Waiting, write: Write) -> None:
        if not self._asked.acquire(blocking=False):
            # Whoever holds it is still to take what waits, this put included.
            await waiting.woken
            waiting.woken = waiting.loop.create_future()
            return
        begun = Lock()
        try:
            await write(partial(self._flush, begun))
        finally:
            if begun.acquire(blocking=False):
                self._asked.release()
                _wake(self._queue.copy())

    def _flush(self, begun: Lock, connection: sqlite3.Connection) -> None:
        if not begun.acquire(blocking=False):
            return
        self._asked.release()
        puts = self._take()
        try:
            self._prepare(connection)
            _write_together(connection, puts)
        except Exception as error:  # noqa: BLE001 # it belongs to every put, not to one caller
            for put in puts:
                put.change, put.error = None, error
        self._tell()
        _wake(puts)

    def _withdraw(self, waiting: Waiting) -> None:
        # A flush that runs now takes it first; then there is nothing to remove.
        with suppress(ValueError, IndexError):
            self._queue.remove(waiting)

    def _take(self) -> list[Waiting]:
        puts: list[Waiting] = []
        with suppress(IndexError):
            while True:
                puts.append(self._queue.popleft())
        return puts


def _wake(puts: Iterable[Waiting]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
    for put in puts:
        by_loop.setdefault(put.loop, []).append(put)
    for loop, some in by_loop.items():
        # A loop that has ended has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resume, some)


def _resume(puts: Sequence[Waiting]) -> None:
    for put in puts:
        if not put.woken.done():
            put.woken.set_result(None)


def _write_together(connection: sqlite3.Connection, puts: Sequence[Waiting]) -> None:
    try:
        with transaction(connection):
            _write_each(connection, puts)
    except sqlite3.IntegrityError:
        # A constraint or trigger that is not ours refused one of them; find out which.
        for put in puts:
            _write_alone(connection, put)


def _write_alone(connection: sqlite3.Connection, put: Waiting) -> None:
    try:
        with transaction(connection):
            _write_each(connection, [put])
    except sqlite3.IntegrityError as error:
        put.change, put.error = None, error


def _write_each(connection: sqlite3.Connection, puts: Sequence[Waiting]) -> None:
    rows = [put.row for put in puts]
    stored = _stored(connection, rows)
    past = forgotten(connection)
    changes = [_refusal(row, past) or _change(row, stored) for row in rows]
    _execute(connection, rows, changes)
    for put, change in zip(puts, changes, strict=True):
        if isinstance(change, MemoryScopeError):
            put.error = change
        else:
            put.change = change

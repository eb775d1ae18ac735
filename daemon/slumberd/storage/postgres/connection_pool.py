"""Share a few connections to each server among the shards that one process serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Literal, TypeVar

from slumberd.storage.connection_thread import ConnectionThread
from slumberd.storage.postgres.connection import Connection, connect

T = TypeVar("T")

Use = Literal["read", "write", "lease", "requests"]
"""What a connection is for: reads, transactions, or single statements about leases and hosts, and
about requests, whose answers may be long."""

_SINGLE: tuple[Use, ...] = ("lease", "requests")
"""The uses that have one connection, which commits each statement and keeps its plan."""

MOST_OF_EACH_USE = 4
"""How many connections for reads, and for transactions, the shards of a process share."""

NOTIFY_SECONDS = 0.05
"""The least time between two notifications of one process: each one makes commits wait."""

_CLOSE_SECONDS = 5.0
"""How long what was begun may take when a process ends."""

_shared: dict[str, ConnectionPool] | None = None


@dataclass(eq=False, slots=True)
class _Opened:
    """A connection, and the works that it has; changed under the lock of the pool.

    Attributes:
        thread: The connection, with its thread.
        use: What it is for.
        schema: The schema of its last work.
        queues: The queue of each work that it has not finished.
        used: The number of its last work; the connection used least recently has the lowest.
        is_ready: Whether it could be opened; without a result while it is being opened.
    """

    thread: ConnectionThread[Connection]
    use: Use
    schema: str = ""
    queues: list[str] = field(default_factory=list)
    used: int = 0
    is_ready: Future[bool] = field(default_factory=Future)

    @property
    def is_usable(self) -> bool:
        """Whether works may be queued: it is open, or is being opened."""
        return not self.is_ready.done() or not _is_broken(self.thread)


class ConnectionPool:
    """Opens connections when they are needed; each one has a thread of its own.

    The server plans the statements of a connection anew when it gets another schema. So a work gets
    a free connection that has its schema already; else a new one, while there are few; else the
    free one that was used least recently. Works of one queue follow each other on one connection.

    Args:
        address: The address of the database.
        most: How many connections there may be for reads, and how many for transactions.
        is_shared: Whether several stores use it, so that none of them closes it.
    """

    def __init__(self, address: str, *, most: int = 1, is_shared: bool = False) -> None:
        self._address = address
        self._most = most
        self._is_shared = is_shared
        self._lock = Lock()
        self._open: list[_Opened] = []
        self._works = 0
        self._notified_at = float("-inf")

    async def run(
        self,
        use: Use,
        work: Callable[[Connection], T],
        *,
        schema: str | None = None,
        queue: str = "",
    ) -> T:
        """Return the result of `work`, which runs in the thread of a connection.

        Args:
            use: What the connection is for.
            work: The work; what it raises is raised here.
            schema: The schema whose tables it names without a prefix; None if it names none.
            queue: Works of one queue run one after another; empty for a work of no queue.

        Raises:
            StoreError: The server does not answer, or refuses.
        """
        opened = await self._get(use, schema, queue)
        try:
            return await opened.thread.run(self._counted(opened, work, schema, queue))
        finally:
            if not opened.is_usable:
                self._forget(opened)

    async def connect(self, use: Use, schema: str) -> None:
        """Open a connection for the next work with a schema, unless one is open already.

        Raises:
            StoreError: The server does not answer, or refuses.
        """
        if not self.is_open(use):
            await self.run(use, lambda _: None, schema=schema)

    async def post(
        self, use: Use, work: Callable[[Connection], None], *, schema: str, queue: str
    ) -> None:
        """Queue `work`, which must not raise and lets the connection use the schema itself.

        Raises:
            StoreError: The server does not answer, or refuses; nothing is queued.
        """
        opened = await self._get(use, schema, queue)
        opened.thread.post(self._counted(opened, work, None, queue))

    def notify(self, work: Callable[[Connection], None]) -> None:
        """Queue `work`, which must not raise, unless one was queued just now; from any thread.

        Whoever is notified also looks by itself. So nothing is queued without an open connection.
        """
        with self._lock:
            now = time.monotonic()
            ready = [one for one in self._usable("write") if one.is_ready.done()]
            if not ready or now - self._notified_at < NOTIFY_SECONDS:
                return
            self._notified_at = now
            opened = min(ready, key=lambda one: len(one.queues))
            opened.queues.append("")
            opened.thread.post(self._counted(opened, work, None, ""))

    def is_open(self, use: Use) -> bool:
        """Return whether a connection is open."""
        with self._lock:
            return any(one.is_ready.done() for one in self._usable(use))

    async def leave(self) -> None:
        """Close all connections once what was begun has ended, unless other stores use them."""
        if not self._is_shared:
            await self.close()

    def leave_at_once(self) -> None:
        """Close all connections without waiting, unless other stores use them."""
        if not self._is_shared:
            self.release()

    def release(self) -> None:
        """Close all connections without waiting."""
        for opened in self._take_all():
            opened.thread.release()

    async def close(self) -> None:
        """Close all connections once what was begun has ended; the next use opens them again."""
        for opened in self._take_all():
            await opened.thread.close()

    def _take_all(self) -> list[_Opened]:
        with self._lock:
            taken, self._open = self._open, []
        return [one for one in taken if one.is_ready.done()]

    async def _get(self, use: Use, schema: str | None, queue: str) -> _Opened:
        """Return the connection for a work, to which it is assigned."""
        while True:
            with self._lock:
                found = self._choose(use, schema, queue)
                opened = found or self._begin(use, schema)
                self._assign(opened, schema, queue)
            if found is None:
                await self._connect(opened)
            if await asyncio.shield(asyncio.wrap_future(opened.is_ready)):
                return opened

    def _choose(self, use: Use, schema: str | None, queue: str) -> _Opened | None:
        """Return the connection for a work; None when a new one must be opened."""
        usable = self._usable(use)
        if queue and (ours := [one for one in usable if queue in one.queues]):
            return ours[0]
        free = [one for one in usable if not one.queues]
        same = [one for one in free if schema in (None, one.schema)]
        if not same and len(usable) < (1 if use in _SINGLE else self._most):
            return None
        if same or free:
            return min(same or free, key=lambda one: one.used)
        return min(usable, key=lambda one: (len(one.queues), one.schema != schema))

    def _begin(self, use: Use, schema: str | None) -> _Opened:
        """Return a new connection, which is not open yet."""
        connecting = partial(
            connect,
            self._address,
            schema or "",
            read_only=use == "read",
            autocommit=use in _SINGLE,
            keeps_plans=use in _SINGLE,
        )
        opened = _Opened(ConnectionThread(connecting, f"slumberd-{use}"), use)
        self._open.append(opened)
        return opened

    async def _connect(self, opened: _Opened) -> None:
        """Open a connection; those who wait for it try again if that fails."""
        try:
            await opened.thread.open()
        except BaseException:
            self._forget(opened)
            opened.is_ready.set_result(False)
            raise
        with self._lock:
            is_kept = opened in self._open  # the pool may have been closed meanwhile
        if not is_kept:
            opened.thread.release()
        opened.is_ready.set_result(is_kept)

    def _usable(self, use: Use) -> list[_Opened]:
        return [one for one in self._open if one.use == use and one.is_usable]

    def _assign(self, opened: _Opened, schema: str | None, queue: str) -> None:
        self._works += 1
        opened.used = self._works
        opened.schema = opened.schema if schema is None else schema
        opened.queues.append(queue)

    def _counted(
        self, opened: _Opened, work: Callable[[Connection], T], schema: str | None, queue: str
    ) -> Callable[[Connection], T]:
        """Return a work that uses its schema, and that the connection has no more at its end."""

        def run(connection: Connection) -> T:
            try:
                if schema is not None:
                    connection.use(schema)
                return work(connection)
            finally:
                with self._lock:
                    opened.queues.remove(queue)

        return run

    def _forget(self, opened: _Opened) -> None:
        """Remove a connection that is broken; the next work opens another one."""
        with self._lock:
            if opened in self._open:
                self._open.remove(opened)
        opened.thread.release()


def _is_broken(opened: ConnectionThread[Connection]) -> bool:
    """Return whether a connection was lost or closed."""
    connection = opened.connection
    return connection is None or connection.closed or connection.broken


def pool_for(address: str) -> ConnectionPool:
    """Return the connections that this process shares for a database, or new ones."""
    if _shared is None:
        return ConnectionPool(address)
    if address not in _shared:
        _shared[address] = ConnectionPool(address, most=MOST_OF_EACH_USE, is_shared=True)
    return _shared[address]


@asynccontextmanager
async def share_connections() -> AsyncIterator[None]:
    """Let all stores and leases that are made in the block share the connections of each server."""
    global _shared  # stores are made in many places, by functions of a configuration
    pools = _shared = {}
    try:
        yield
    finally:
        _shared = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for pool in pools.values():
                    await pool.close()
        for pool in pools.values():
            pool.release()

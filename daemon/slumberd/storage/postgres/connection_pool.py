"""Share a few connections among the shards that one process serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Literal

from slumberd.storage.connection_thread import ConnectionThread
from slumberd.storage.postgres.connection import Connection, connect

Use = Literal["read", "write", "lease"]
"""What a connection is for: reads, transactions, or single statements about leases and hosts."""

MOST_OF_EACH_USE = 4
"""How many connections for reads, and for transactions, the shards of a process share."""

_CLOSE_SECONDS = 5.0
"""How long what was begun may take when a process ends."""

_shared: dict[str, ConnectionPool] = {}


class ConnectionPool:
    """Opens connections when they are needed; each one has a thread of its own.

    Args:
        address: The address of the database.
        most: How many connections there may be for reads, and how many for transactions.
        is_shared: Whether several stores use it, so that none of them closes it.
    """

    def __init__(self, address: str, *, most: int = 1, is_shared: bool = False) -> None:
        self._address = address
        self._most = most
        self._is_shared = is_shared
        self._open: dict[tuple[Use, int], ConnectionThread[Connection]] = {}

    def opened(self, use: Use, shard: int = 0) -> ConnectionThread[Connection] | None:
        """Return the open connection of a shard for a use; None when there is none that works."""
        key = self._key(use, shard)
        found = self._open.get(key)
        if found is not None and is_broken(found):
            self.forget(found)
            return None
        return found

    async def get(self, use: Use, shard: int = 0) -> ConnectionThread[Connection]:
        """Return the connection of a shard for a use; open it when there is none that works.

        Raises:
            StoreError: The server does not answer, or refuses.
        """
        if (found := self.opened(use, shard)) is not None:
            return found
        connecting = partial(
            connect, self._address, read_only=use == "read", autocommit=use == "lease"
        )
        opened = await ConnectionThread(connecting, f"slumberd-{use}").open()
        # Two callers may open at once; the first one's connection is kept.
        kept = self._open.setdefault(self._key(use, shard), opened)
        if kept is not opened:
            await opened.close()
        return kept

    def forget(self, broken: ConnectionThread[Connection]) -> None:
        """Close a connection that is broken, and open another one at the next use."""
        for key, one in tuple(self._open.items()):
            if one is broken:
                del self._open[key]
        broken.release()

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
        while self._open:
            self._open.popitem()[1].release()

    async def close(self) -> None:
        """Close all connections once what was begun has ended; the next use opens them again."""
        while self._open:
            _, opened = self._open.popitem()
            await opened.close()

    def _key(self, use: Use, shard: int) -> tuple[Use, int]:
        return use, 0 if use == "lease" else shard % self._most


def is_broken(opened: ConnectionThread[Connection]) -> bool:
    """Return whether a connection was lost or closed."""
    connection = opened.connection
    return connection is None or connection.closed or connection.broken


def pool_for(address: str) -> ConnectionPool:
    """Return the connections that this process shares for a database, or new ones."""
    return _shared.get(address) or ConnectionPool(address)


@asynccontextmanager
async def share_connections(address: str) -> AsyncIterator[None]:
    """Let all stores and leases that are made in the block share the connections of a database."""
    pool = _shared[address] = ConnectionPool(address, most=MOST_OF_EACH_USE, is_shared=True)
    try:
        yield
    finally:
        del _shared[address]
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await pool.close()
        pool.release()

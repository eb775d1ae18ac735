"""Hold a shard of a database for a time, by the clock of the database.

The lease keeps two daemons from working on one shard at the same time, and says which one works. It
does not make writing safe: the epoch does, which each transaction checks. The lease is in another
row than the epoch, so that a long transaction does not delay its renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import orjson
import psycopg

from slumberd.errors import DatabaseUnreachableError
from slumberd.storage.engine import Row
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, translate_errors
from slumberd.storage.postgres.connection_pool import ConnectionPool, pool_for
from slumberd.storage.postgres.shard_map import Shard, shards_of

T = TypeVar("T")

_address_of = attrgetter("address")

_CLAIM = b"""
UPDATE lease
SET holder = $1, held_until = clock_timestamp() + make_interval(secs => $2), host = $3::jsonb
WHERE held_until < clock_timestamp()
  OR holder = $1
"""
_RENEW = b"""
UPDATE lease
SET held_until = clock_timestamp() + make_interval(secs => $2)
WHERE holder = $1
"""
_RELEASE = b"""
UPDATE lease
SET holder = NULL, held_until = least(held_until, clock_timestamp()), host = '{}',
  last_holder = holder, released_at = clock_timestamp()
WHERE holder = $1
"""
_SHORTEN = b"""
UPDATE lease
SET held_until = clock_timestamp()
  + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600))
WHERE held_until > clock_timestamp()
  + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600))
"""
"""No lease lasts longer than its holder said. One that does is of a clock that was set back since.

A holder that lives renews it in time. A holder of 0.2.0 did not say how long: an hour at most.
"""
_HOLDER = b"SELECT holder, host FROM lease WHERE held_until >= clock_timestamp()"
_HOST = b"""
INSERT INTO slumberd.hosts (name, seen_at, state)
VALUES ($1, clock_timestamp(), $2::jsonb)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state
RETURNING (SELECT coalesce(max(version), 0) FROM slumberd.rule_sets)
"""
_FORGET_HOST = b"DELETE FROM slumberd.hosts WHERE name = $1"
_FORGET_OLD_HOSTS = b"""
DELETE FROM slumberd.hosts
WHERE seen_at < clock_timestamp() - interval '1 hour'
  OR seen_at > clock_timestamp() + interval '1 hour'
"""
"""An instant of the future is of a clock that was set back; a host that lives tells again."""
_RULES_OF_OTHERS = b"""
SELECT name, state ->> 'rules_hash'
FROM slumberd.hosts
WHERE name != $1
  AND seen_at > clock_timestamp() - interval '1 minute'
  AND seen_at < clock_timestamp() + interval '1 minute'
  AND state ->> 'rules_hash' != ''
"""
_HOSTS = b"""
SELECT name
FROM slumberd.hosts
WHERE seen_at >= clock_timestamp() - make_interval(secs => $1)
  AND seen_at <= clock_timestamp() + make_interval(secs => $1)
ORDER BY name
"""
_NOW = b"SELECT extract(epoch FROM clock_timestamp())::float8"


class Holder(NamedTuple):
    """Who holds a shard now.

    Attributes:
        name: Its name: the host, and the process.
        is_daemon: Whether it is a daemon, which answers requests; else a command.
    """

    name: str
    is_daemon: bool


class ClusterView(NamedTuple):
    """Who uses a database at one instant.

    Attributes:
        shards: All shards whose databases answer, by number.
        holders: The holder of each of them, by its number; None for a free one.
        hosts: The names of the daemons that are alive.
    """

    shards: dict[int, Shard]
    holders: dict[int, str | None]
    hosts: list[str]


class HostTable:
    """The table of the processes that use a database.

    Args:
        address: The address of the database.
        name: The name of this process, which no other process has.
    """

    def __init__(self, address: str, name: str) -> None:
        self.name = name
        self.address = address
        self._pools: dict[str, ConnectionPool] = {}

    async def tell_host(self, state: Mapping[str, Any]) -> int:
        """Record that this process is alive, and its state.

        Returns:
            The newest version of the published rules; 0 when none were published.
        """
        row = await self._row(_HOST, (self.name, orjson.dumps(state).decode()))
        await self._run(_FORGET_OLD_HOSTS, ())
        return int(row[0]) if row else 0

    async def rules_of_others(self) -> list[tuple[str, str]]:
        """Return each other host that is alive, and the hash of its rules."""

        def work(connection: Connection) -> list[tuple[str, str]]:
            with psycopg.RawCursor(connection) as cursor:
                return [(row[0], row[1]) for row in cursor.execute(_RULES_OF_OTHERS, (self.name,))]

        return await self._call(work)

    async def forget_host(self) -> None:
        """Remove the record of this process."""
        await self._run(_FORGET_HOST, (self.name,))

    async def view(self, seconds: float) -> ClusterView:
        """Return who holds each shard, and which hosts are alive.

        A shard whose database does not answer is missing.

        Args:
            seconds: A host is alive that told of itself so recently.
        """

        def work(connection: Connection) -> tuple[list[Shard], list[str]]:
            with psycopg.RawCursor(connection) as cursor:
                hosts = [row[0] for row in cursor.execute(_HOSTS, (seconds,))]
            return shards_of(connection, self.address), hosts

        shards, hosts = await self._call(work)
        holders: dict[int, str | None] = {}
        for address, own in groupby(sorted(shards, key=_address_of), _address_of):
            try:
                holders |= await self._holders([*own], address)
            except DatabaseUnreachableError:
                if address == self.address:
                    raise
        answering = {shard.number: shard for shard in shards if shard.number in holders}
        return ClusterView(answering, dict(sorted(holders.items())), hosts)

    async def _holders(self, shards: list[Shard], address: str) -> dict[int, str | None]:
        """Return the holders of the shards of one database."""

        def work(connection: Connection) -> dict[int, str | None]:
            found: dict[int, str | None] = {}
            with psycopg.RawCursor(connection) as cursor:
                for shard in shards:
                    connection.use(shard.schema)
                    cursor.execute(_SHORTEN)
                    row = cursor.execute(_HOLDER).fetchone()
                    found[shard.number] = None if row is None else row[0]
            return found

        return await self._call(work, address)

    async def database_time(self) -> float:
        """Return the clock of the database, in seconds since 1970 UTC."""
        row = await self._row(_NOW, ())
        return float(row[0]) if row else 0.0

    async def close(self) -> None:
        """Close the connections, without waiting for a server that does not answer."""
        while self._pools:
            self._pools.popitem()[1].leave_at_once()

    async def _run(self, sql: bytes, values: tuple[Any, ...]) -> int:
        def work(connection: Connection) -> int:
            with psycopg.RawCursor(connection) as cursor:
                return cursor.execute(sql, values).rowcount

        return await self._call(work)

    async def _row(self, sql: bytes, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        def work(connection: Connection) -> tuple[Any, ...] | None:
            with psycopg.RawCursor(connection) as cursor:
                return cursor.execute(sql, values).fetchone()

        return await self._call(work)

    async def _call(self, work: Callable[[Connection], T], address: str | None = None) -> T:
        place = address or self.address
        if place not in self._pools:
            self._pools[place] = pool_for(place)
        opened = await self._pools[place].get("lease")
        with translate_errors(where(place)):
            return await opened.run(work)


class Lease:
    """The lease of one shard, taken by one process.

    Args:
        shard: The shard.
        name: The name of this process, which no other process has.
        seconds: How long the lease lasts without a renewal.
        is_daemon: Whether this process answers requests.
    """

    def __init__(self, shard: Shard, name: str, *, seconds: float, is_daemon: bool) -> None:
        self.seconds = seconds
        self._name = name
        self._shard = shard
        self._is_daemon = is_daemon
        self._pool: ConnectionPool | None = None

    async def claim(self) -> Holder | None:
        """Take the lease if it is free; return who holds it otherwise."""
        host = orjson.dumps({"daemon": self._is_daemon, "seconds": self.seconds}).decode()
        holder = None
        while holder is None:  # it may run out between the attempt and the look
            if await self._run(_CLAIM, self._name, self.seconds, host):
                return None
            await self._run(_SHORTEN)
            holder = await self.holder()
        return holder

    async def holder(self) -> Holder | None:
        """Return who holds the lease now; None when nobody does."""

        def work(connection: Connection) -> Row | None:
            return connection.execute(_HOLDER).fetchone()

        row = await self._call(work)
        return None if row is None else Holder(row[0], bool(row[1].get("daemon")))

    async def renew(self) -> bool:
        """Renew the lease; return whether this process still holds it."""
        return await self._run(_RENEW, self._name, self.seconds) > 0

    async def release(self) -> None:
        """Give the lease back, if this process holds it."""
        await self._run(_RELEASE, self._name)

    async def close(self) -> None:
        """Close the connection, without waiting for a server that does not answer."""
        if self._pool is not None:
            self._pool.leave_at_once()
            self._pool = None

    async def _run(self, sql: bytes, *values: object) -> int:
        def work(connection: Connection) -> int:
            with psycopg.RawCursor(connection) as cursor:
                return cursor.execute(sql, values).rowcount

        return await self._call(work)

    async def _call(self, work: Callable[[Connection], T]) -> T:
        if self._pool is None:
            self._pool = pool_for(self._shard.address)
        opened = await self._pool.get("lease")

        def run(connection: Connection) -> T:
            connection.use(self._shard.schema)
            return work(connection)

        with translate_errors(self._shard.where):
            return await opened.run(run)

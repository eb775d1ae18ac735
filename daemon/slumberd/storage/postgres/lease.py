"""Hold a shard of a database for a time, by the clock of the database.

The lease keeps two daemons from working on one shard at the same time, and says which one works. It
does not make writing safe: the epoch does, which each transaction checks. The lease is in another
row than the epoch, so that a long transaction does not delay its renewal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import orjson
import psycopg

from slumberd.model.errors import DatabaseUnreachableError, StoreError
from slumberd.storage.postgres.connection import Connection, translate_errors, where
from slumberd.storage.postgres.connection_pool import ConnectionPool, pool_for
from slumberd.storage.postgres.shard_map import Shard, shards_of

T = TypeVar("T")

_address_of = attrgetter("address")

_CLAIM = """
UPDATE {schema}.lease
SET holder = $1, held_until = clock_timestamp() + make_interval(secs => $2), host = $3::jsonb
WHERE held_until < clock_timestamp()
  OR holder = $1
"""
_RENEW = """
renewed_{number} AS (
  UPDATE {schema}.lease
  SET held_until = clock_timestamp() + make_interval(secs => $2)
  WHERE id IN (SELECT id FROM {schema}.lease WHERE holder = $1 FOR UPDATE SKIP LOCKED)
  RETURNING 1
)"""
"""A row that is locked stays as it is: it must not delay the renewal of the others."""
_RENEWED = """
SELECT {number}, lease.holder
FROM {schema}.lease
WHERE NOT EXISTS (SELECT 1 FROM renewed_{number})
  AND lease.holder IS DISTINCT FROM $1
"""
"""The shard, if its lease is lost. A row of the holder that is locked is none of these."""
_RELEASE = """
UPDATE {schema}.lease
SET holder = NULL, held_until = least(held_until, clock_timestamp()), host = '{{}}',
  last_holder = holder, released_at = clock_timestamp()
WHERE holder = $1
"""
_IS_TOO_LONG = """
held_until > clock_timestamp()
  + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600))
"""
"""No lease lasts longer than its holder said. One that does is of a clock that was set back since.

A holder that lives renews it in time. A holder of 0.2.0 did not say how long: an hour at most.
"""
_SHORTEN = """
UPDATE {schema}.lease
SET held_until = clock_timestamp()
  + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600))
WHERE {is_too_long}
"""
_HOLDER = """
SELECT {number}, CASE WHEN held_until >= clock_timestamp() THEN holder END,
  host ->> 'daemon' = 'true', {is_too_long}
FROM {schema}.lease
"""
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
_FORGET_SECONDS = 60.0
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
        shards: All shards that can be read, by number.
        holders: The holder of each of them, by its number; None for a free one.
        hosts: The names of the daemons that are alive.
        problems: Why other shards cannot be read.
    """

    shards: dict[int, Shard]
    holders: dict[int, str | None]
    hosts: list[str]
    problems: list[StoreError]


@lru_cache(maxsize=256)
def _join(template: str, separator: str, shards: tuple[Shard, ...]) -> str:
    """Return a part of a statement for each of some shards."""
    each = (
        template.format(number=one.number, schema=one.schema, is_too_long=_IS_TOO_LONG)
        for one in shards
    )
    return separator.join(each)


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
        self._forgotten_at = float("-inf")

    async def tell_host(self, state: Mapping[str, Any]) -> int:
        """Record that this process is alive, and its state.

        Returns:
            The newest version of the published rules; 0 when none were published.
        """
        row = await self._row(_HOST, (self.name, orjson.dumps(state).decode()))
        if (now := time.monotonic()) - self._forgotten_at > _FORGET_SECONDS:
            await self._run(_FORGET_OLD_HOSTS, ())
            self._forgotten_at = now
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

        Args:
            seconds: A host is alive that told of itself so recently.

        Raises:
            StoreError: The database of the map cannot be read.
        """

        def work(connection: Connection) -> tuple[list[Shard], list[str]]:
            with psycopg.RawCursor(connection) as cursor:
                hosts = [row[0] for row in cursor.execute(_HOSTS, (seconds,))]
            return shards_of(connection, self.address), hosts

        shards, hosts = await self._call(work)
        found: dict[Shard, Holder | None] = {}
        problems: list[StoreError] = []
        for address, own in groupby(sorted(shards, key=_address_of), _address_of):
            found |= await self._holders(address, [*own], problems)
        readable = {shard.number: shard for shard in sorted(found)}
        holders = {number: _name_of(found[shard]) for number, shard in readable.items()}
        return ClusterView(readable, holders, hosts, problems)

    async def _holders(
        self, address: str, shards: Sequence[Shard], problems: list[StoreError]
    ) -> dict[Shard, Holder | None]:
        """Return the holders of shards of one server; add why some cannot be read."""
        work = partial(read_holders, shards=shards)
        try:
            return await self._call(work, address)
        except StoreError as error:
            is_away = isinstance(error, DatabaseUnreachableError)
            if is_away and address == self.address:
                raise
            if is_away or len(shards) == 1:
                problems.append(error)
                return {}
        found: dict[Shard, Holder | None] = {}
        for shard in shards:  # one of them has not its table; the others are read
            found |= await self._holders(address, [shard], problems)
        return found

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
        with translate_errors(where(place)):
            return await self._pools[place].run("lease", work)


def _name_of(holder: Holder | None) -> str | None:
    return None if holder is None else holder.name


def read_holders(connection: Connection, shards: Collection[Shard]) -> dict[Shard, Holder | None]:
    """Return who holds shards of a server now, in one statement; None for who nobody holds."""
    if not shards:
        return {}
    every = {shard.number: shard for shard in shards}
    rows = connection.execute(_join(_HOLDER, "UNION ALL", (*shards,)).encode()).fetchall()
    for number, _, _, is_too_long in rows:
        if is_too_long:
            connection.execute(_join(_SHORTEN, "", (every[number],)).encode())
    return {
        every[number]: None if name is None else Holder(name, bool(is_daemon))
        for number, name, is_daemon, _ in rows
    }


class Leases:
    """The leases of shards of one server, taken by one process.

    Args:
        address: The address of the server's database.
        name: The name of this process, which no other process has.
        seconds: How long a lease lasts without a renewal.
        is_daemon: Whether this process answers requests.
    """

    def __init__(self, address: str, name: str, *, seconds: float, is_daemon: bool) -> None:
        self.address = address
        self.seconds = seconds
        self._name = name
        self._is_daemon = is_daemon
        self._pool: ConnectionPool | None = None

    async def claim(self, shard: Shard) -> Holder | None:
        """Take the lease of a shard if it is free; return who holds it otherwise."""
        host = orjson.dumps({"daemon": self._is_daemon, "seconds": self.seconds}).decode()
        holder = None
        while holder is None:  # it may run out between the attempt and the look
            if await self._change(_CLAIM, shard, self._name, self.seconds, host):
                return None
            holder = await self.holder(shard)
        return holder

    async def holder(self, shard: Shard) -> Holder | None:
        """Return who holds a shard now; None when nobody does."""
        found = await self._call(partial(read_holders, shards=[shard]))
        return found[shard]

    async def renew(self, shards: Iterable[Shard]) -> dict[Shard, str]:
        """Renew the leases of shards in one statement.

        Returns:
            The shards that this process has lost, each with its holder; empty for a free one.
        """
        some = tuple(shards)
        if not some:
            return {}
        every = {shard.number: shard for shard in some}
        renewals = _join(_RENEW, ",", some)
        sql = f"WITH {renewals} {_join(_RENEWED, 'UNION ALL', some)}"

        def work(connection: Connection) -> dict[Shard, str]:
            with psycopg.RawCursor(connection) as cursor:
                rows = cursor.execute(sql.encode(), (self._name, self.seconds)).fetchall()
            return {every[number]: holder or "" for number, holder in rows}

        return await self._call(work)

    async def release(self, shard: Shard) -> None:
        """Give the lease of a shard back, if this process holds it."""
        await self._change(_RELEASE, shard, self._name)

    async def close(self) -> None:
        """Close the connection, without waiting for a server that does not answer."""
        if self._pool is not None:
            self._pool.leave_at_once()
            self._pool = None

    async def _change(self, template: str, shard: Shard, *values: object) -> int:
        sql = _join(template, "", (shard,)).encode()

        def work(connection: Connection) -> int:
            with psycopg.RawCursor(connection) as cursor:
                return cursor.execute(sql, values).rowcount

        return await self._call(work)

    async def _call(self, work: Callable[[Connection], T]) -> T:
        if self._pool is None:
            self._pool = pool_for(self.address)
        with translate_errors(where(self.address)):
            return await self._pool.run("lease", work)

"""Report the health of a shard, and the state of the databases that several hosts use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal

import orjson

from slumberd.model.errors import SlumberdError
from slumberd.model.store_status import (
    DatabaseStatus,
    HostStatus,
    OldestTransaction,
    ShardHolder,
    StoreHealth,
)
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors, where
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard, ShardMap


async def health(shard: Shard, table: Literal["episodes", "facts"]) -> StoreHealth:
    """Report the health of one store of a shard; never raises for the state of the database."""
    return await asyncio.to_thread(_examine, shard, table)


def _examine(shard: Shard, table: Literal["episodes", "facts"]) -> StoreHealth:
    try:
        with (
            connect(shard.address, shard.schema, read_only=True) as connection,
            translate_errors(shard.where),
        ):
            installation.check_shard(connection, shard)
            session = PostgresSession(connection, shard.where)
            count: int = session.value(f"health.count_{table}")
            version: int | None = session.value("health.migrated_to", (table,))
            is_held: bool = session.value("health.is_held")
    except SlumberdError as error:
        return StoreHealth(
            ok=False, version=1, fs_type="postgresql", lock_state="free", warnings=[str(error)]
        )
    return StoreHealth(
        ok=True,
        version=version or 1,
        fragment_count=count,
        fs_type="postgresql",
        lock_state="held" if is_held else "free",
    )


def read_database_status(address: str, *, most_xids: int, few_dead_rows: int) -> DatabaseStatus:
    """Return the state of the database of the map, and of all databases that have shards.

    Counts and sizes are the sums of all databases. Of the rest, the worst one counts.

    Args:
        address: The address of the database of the map.
        most_xids: A transaction is reported first when more transactions began after it.
        few_dead_rows: Tables with at most so many old versions of rows are not reported.

    Raises:
        StoreError: A database cannot be read.
    """
    by_address = attrgetter("address")
    with closing(ShardMap(address)) as shard_map:
        shards = sorted(shard_map.shards(), key=by_address)
    found = {
        place: _read(place, [*own], most_xids, few_dead_rows, has_map=place == address)
        for place, own in groupby(shards, by_address)
    }
    own = found.get(address) or _read(address, [], most_xids, few_dead_rows, has_map=True)
    return _joined(own, [*found.values()])


def _joined(own: DatabaseStatus, every: Sequence[DatabaseStatus]) -> DatabaseStatus:
    """Return the state of the database of the map with the sums of all databases."""
    oldest = [one.oldest_transaction for one in every if one.oldest_transaction]
    return DatabaseStatus(
        where=own.where,
        server=own.server,
        bytes=sum(one.bytes for one in every),
        shards=sorted(chain.from_iterable(one.shards for one in every), key=attrgetter("shard")),
        hosts=own.hosts,
        unnumbered=sum(one.unnumbered for one in every),
        unnumbered_seconds=max((one.unnumbered_seconds for one in every), default=0.0),
        requests=sum(one.requests for one in every),
        oldest_transaction=max(oldest, key=lambda one: one.seconds or 0.0, default=None),
        dead_rows={name: rows for one in every for name, rows in one.dead_rows.items()},
        transaction_age=max(one.transaction_age for one in (own, *every)),
        is_durable=all(one.is_durable for one in (own, *every)),
        is_read_only=any(one.is_read_only for one in (own, *every)),
    )


def _read(
    address: str, shards: Sequence[Shard], most_xids: int, few_dead_rows: int, *, has_map: bool
) -> DatabaseStatus:
    """Return the state of one database, with those shards that lie in it."""
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        session = PostgresSession(connection, place)
        holders = []
        unnumbered, unnumbered_seconds, requests = 0, 0.0, 0
        for shard in shards:
            installation.check_shard(connection, shard)
            connection.use(shard.schema)
            holder, held_seconds, free_seconds = session.rows("hosts.holder")[0]
            holders.append(ShardHolder(shard.number, holder, held_seconds, free_seconds))
            count, seconds = session.rows("hosts.inbox")[0]
            unnumbered += count
            unnumbered_seconds = max(unnumbered_seconds, seconds)
            requests += session.value("hosts.open_requests")
        server, age, is_durable, is_read_only, size = session.rows("hosts.server")[0]
        oldest = session.one("hosts.oldest_transaction", {"xids": most_xids})
        dead = session.rows("hosts.dead_rows", {"rows": few_dead_rows})
        hosts = session.rows("hosts.hosts") if has_map else []
    return DatabaseStatus(
        where=place,
        server=server,
        bytes=size,
        shards=holders,
        hosts=[_host_of(name, seen, orjson.loads(state)) for name, seen, state in hosts],
        unnumbered=unnumbered,
        unnumbered_seconds=unnumbered_seconds,
        requests=requests,
        oldest_transaction=OldestTransaction(*oldest) if oldest else None,
        dead_rows={name: (rows, count) for name, rows, count in dead},
        transaction_age=age,
        is_durable=is_durable,
        is_read_only=is_read_only,
    )


def _host_of(name: str, seen_seconds: float, state: dict[str, Any]) -> HostStatus:
    return HostStatus(
        name,
        seen_seconds,
        str(state.get("role", "")),
        str(state.get("version", "")),
        str(state.get("rules_hash", "")),
        state.get("rules_version"),
        float(state.get("clock_offset_seconds", 0.0)),
    )

"""Report the health of a shard: usable or not, how many rows, who holds it."""

from __future__ import annotations

import asyncio
from typing import Literal

from slumberd.errors import SlumberdError
from slumberd.model.health import StoreHealth
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard


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

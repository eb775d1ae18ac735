"""A host that puts into a PostgreSQL database, and waits for each fact.

``python -m tests.bench.postgres_puts ADDRESS COUNT`` prints the seconds from each put to its fact
as JSON. Another process must consolidate the episodes.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import orjson
import psycopg

from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import triple

_APART_SECONDS = 0.05
_LOOK_SECONDS = 0.000_5
_FACT = b"SELECT 1 FROM slumberd_0.facts WHERE fact_id = $1"


async def put_and_wait(address: str, count: int) -> list[float]:
    """Put episodes, one after another; return the seconds until each is a fact."""
    async with PostgresMemoryStore(address) as memory:
        with connect(address, autocommit=True) as connection:
            return [await _put(memory, connection, f"put-{n:06}") for n in range(count)]


async def _put(memory: PostgresMemoryStore, connection: psycopg.Connection, id: str) -> float:
    episode = triple(id, id, "is", "put")
    await asyncio.sleep(random.uniform(0, _APART_SECONDS))
    began = time.monotonic()
    await memory.put(episode, user=episode.user, session=episode.session, agent=episode.agent)
    with psycopg.RawCursor(connection) as cursor:
        while cursor.execute(_FACT, (id,)).fetchone() is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(put_and_wait(sys.argv[1], int(sys.argv[2])))).decode())

"""Find and fill the shards of the databases of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing

from slumberd.model.episode import Episode
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import ShardMap, position_of


def shard_of(user: str, shards: int) -> int:
    """Return the shard of a user in a new database with so many shards."""
    return position_of(user) % shards


async def put_by_user(address: str, episodes: Iterable[Episode]) -> None:
    """Put each episode into the shard of its user."""
    parts = defaultdict[int, list[Episode]](list)
    with closing(ShardMap(address)) as shards:
        for episode in episodes:
            parts[shards.find(episode.user).number].append(episode)
    for shard, part in parts.items():
        async with PostgresMemoryStore(address, shard=shard) as memory:
            await memory.put_many(part)

"""Put episodes into the shards of their users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from slumberd.model.episode import Episode
from slumberd.operations.writes.put_once import OncePutter, PutOnce
from slumberd.storage.episodes.store import EngineMemoryStore


class UserStores:
    """Opens the memory store of a user's shard when it is first needed.

    Args:
        find: Returns the number of the shard of a user.
        memory_of: Returns the memory store of a shard.
    """

    def __init__(
        self, find: Callable[[str], int], memory_of: Callable[[int], EngineMemoryStore]
    ) -> None:
        self._find = find
        self._memory_of = memory_of
        self._stores: dict[int, EngineMemoryStore] = {}

    async def shards_of(self, users: Collection[str]) -> dict[str, int]:
        """Return the number of each user's shard; one thread reads all of them.

        Raises:
            UserMovingError: A user is being moved to another shard.
            StoreError: The database cannot be read.
        """
        return await asyncio.to_thread(lambda: {user: self._find(user) for user in users})

    def memory(self, shard: int) -> EngineMemoryStore:
        """Return the memory store of a shard."""
        if shard not in self._stores:
            self._stores[shard] = self._memory_of(shard)
        return self._stores[shard]

    async def close(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            await store.close()


class ShardPutter:
    """Puts each episode once into the shard of its user; implements ``PutsOnce``.

    Args:
        stores: The memory stores.
    """

    def __init__(self, stores: UserStores) -> None:
        self._stores = stores
        self._putters: dict[int, OncePutter] = {}

    async def put(self, episodes: Sequence[Episode]) -> PutOnce:
        """Put those episodes whose ids their users do not have yet.

        Raises:
            UserMovingError: A user is being moved to another shard; nothing is put.
            StoreError: The database cannot be written; it may hold some of them.
        """
        shards = await self._stores.shards_of({episode.user for episode in episodes})
        parts: dict[int, list[Episode]] = {}
        for episode in episodes:
            parts.setdefault(shards[episode.user], []).append(episode)
        results = [await self._putter(shard).put(part) for shard, part in sorted(parts.items())]
        return PutOnce(
            sum(result.new for result in results),
            sum(result.known for result in results),
            {id: reason for result in results for id, reason in result.refused.items()},
            sum(result.erased for result in results),
        )

    def _putter(self, shard: int) -> OncePutter:
        if shard not in self._putters:
            self._putters[shard] = OncePutter(self._stores.memory(shard))
        return self._putters[shard]

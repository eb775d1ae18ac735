"""Put episodes once each into the shards of a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from slumberd.model.episode import Episode
from slumberd.operations.protocols import Episodes
from slumberd.operations.writes.put_once import OncePutter, PutOnce
from slumberd.storage.postgres.shards import shard_of


class ShardPutter:
    """Puts each episode into the shard of its user and agent; implements ``PutsOnce``.

    Args:
        shards: How many shards the database has.
        memory_of: Returns the memory store of a shard.
    """

    def __init__(self, shards: int, memory_of: Callable[[int], Episodes]) -> None:
        self._shards = shards
        self._memory_of = memory_of
        self._stores: dict[int, Episodes] = {}
        self._putters: dict[int, OncePutter] = {}

    async def put(self, episodes: Sequence[Episode]) -> PutOnce:
        """Put those episodes whose ids their users do not have yet.

        Raises:
            StoreError: The database cannot be written; it may hold some of them.
        """
        parts: dict[int, list[Episode]] = defaultdict(list)
        for episode in episodes:
            parts[shard_of(episode.user, episode.agent, self._shards)].append(episode)
        results = [await self._putter(shard).put(part) for shard, part in sorted(parts.items())]
        return PutOnce(
            sum(result.new for result in results),
            sum(result.known for result in results),
            {id: reason for result in results for id, reason in result.refused.items()},
            sum(result.erased for result in results),
        )

    async def close(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            await store.close()

    def _putter(self, shard: int) -> OncePutter:
        if shard not in self._putters:
            self._stores[shard] = self._memory_of(shard)
            self._putters[shard] = OncePutter(self._stores[shard])
        return self._putters[shard]

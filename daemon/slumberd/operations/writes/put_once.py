"""Put episodes whose ids say what they hold: a stored one stays, in whatever session it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, MemoryScopeError
from slumberd.operations.episodes import newest_versions
from slumberd.storage.episodes.store import EngineMemoryStore


class PutOnce(NamedTuple):
    """What became of some episodes.

    Attributes:
        new: How many were put.
        known: How many were stored before, or occur twice.
        refused: Why the store refuses an episode, by the id of the episode.
        erased: How many were erased by their ids before; nothing of them is stored.
    """

    new: int = 0
    known: int = 0
    refused: Mapping[str, str] = {}
    erased: int = 0


class PutsOnce(Protocol):
    """Puts episodes, of which a stored one stays."""

    async def put(self, episodes: Sequence[Episode]) -> PutOnce:
        """Put those episodes whose ids their users do not have yet."""
        ...


class OncePutter:
    """Puts episodes, one request at a time, so that no two requests put the same id.

    Args:
        memory: The episodes.
    """

    def __init__(self, memory: EngineMemoryStore) -> None:
        self._memory = memory
        self._turn = asyncio.Lock()

    async def put(self, episodes: Sequence[Episode]) -> PutOnce:
        """Put those episodes whose ids their users do not have yet.

        An id that another user has is refused: somebody may have taken it on purpose.

        Raises:
            StoreError: The store cannot be written; it may hold some of them.
        """
        by_id = {episode.id: episode for episode in reversed(episodes)}
        async with self._turn:
            stored = await newest_versions(self._memory, [*by_id])
            # In the order of the request, in which the log then numbers them.
            wanted = [
                each
                for id, each in reversed(by_id.items())
                if id not in stored or stored[id].user != each.user
            ]
            erased, refused = await self._put(wanted)
        new = len(wanted) - len(refused) - erased
        return PutOnce(new, len(episodes) - len(wanted), refused, erased)

    async def _put(self, episodes: list[Episode]) -> tuple[int, dict[str, str]]:
        """Put episodes in one transaction; if it is refused, each half, down to single ones.

        Returns:
            How many were erased before, and why the store refuses some.
        """
        if not episodes:
            return 0, {}
        try:
            counts = await self._memory.put_many(episodes, strict=True)
        except (InputError, MemoryScopeError) as error:
            if len(episodes) == 1:
                return 0, {episodes[0].id: str(error)}
        else:
            return counts.erased, {}
        middle = len(episodes) // 2
        erased, refused = await self._put(episodes[:middle])
        more_erased, more_refused = await self._put(episodes[middle:])
        return erased + more_erased, refused | more_refused


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

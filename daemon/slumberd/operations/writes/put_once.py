"""Put episodes whose ids say what they hold: a stored one stays, in whatever session it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, MemoryScopeError
from slumberd.operations.reads.newest_versions import newest_versions
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

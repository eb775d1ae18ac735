"""A store that condenses its older entries into summaries."""

from __future__ import annotations

from slumberd.tiers.entries import MemoryEntry, MemoryQuery, MemorySearchResult
from slumberd.tiers.errors import MemorySystemError
from slumberd.tiers.extraction import EpisodicCompressor, SummariseFn
from slumberd.tiers.failures import log_summary_failure
from slumberd.tiers.protocols import MemoryStoreProtocol
from slumberd.tiers.stores.kept_entries import KeptEntries, results_of

_SUMMARY_SCORE = 0.9


class SummaryMemoryStore:
    """Keeps the latest entries of each owner, and summaries of the older ones.

    Args:
        compress_threshold: With so many entries of an owner, some are condensed; 1 or more.
        compress_batch: So many of the oldest entries become one summary, 1 or more.
        summarise_fn: Returns one entry for several; None takes sentences of the entries.
        backend: Keeps the entries beyond the process; None keeps them in the process only.

    Raises:
        ValueError: A number is below 1, or `compress_batch` is above `compress_threshold`.
    """

    def __init__(
        self,
        compress_threshold: int = 20,
        compress_batch: int = 10,
        summarise_fn: SummariseFn | None = None,
        *,
        backend: MemoryStoreProtocol | None = None,
    ) -> None:
        if not 1 <= compress_batch <= compress_threshold:
            raise ValueError(
                f"compress_batch is {compress_batch}, not 1 to {compress_threshold},"
                " the compress_threshold"
            )
        self._threshold = compress_threshold
        self._batch = compress_batch
        self._compressor = EpisodicCompressor(summarise_fn)
        self._kept = KeptEntries(backend)
        self._compressing: set[str] = set()

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the one of its id.

        An error of the summary is logged, and the entries stay; the next write tries again.
        """
        await self._kept.put(entry)
        hot = (await self._hot(entry.owner_id))[::-1]
        if len(hot) < self._threshold or entry.owner_id in self._compressing:
            return
        self._compressing.add(entry.owner_id)
        try:
            await self._compress(entry.owner_id, hot[: self._batch])
        except MemorySystemError as error:
            log_summary_failure(error)
        finally:
            self._compressing.discard(entry.owner_id)

    async def _compress(self, owner_id: str, oldest: list[MemoryEntry]) -> None:
        summary = await self._compressor.compress(oldest)
        kept = await self._kept.of(owner_id)
        # While the summary was made, a caller may have deleted an entry or stored it anew.
        same = [entry for entry in oldest if kept.get(entry.id) is entry]
        if len(same) == len(oldest):
            await self._kept.put(summary)
            await self._kept.drop(owner_id, [entry.id for entry in oldest])

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the latest summaries, at most half of the results, then the latest entries."""
        half = query.top_k // 2
        summaries = (await self._summaries(query.owner_id))[:half][::-1]
        left = query.top_k - len(summaries)
        hot = (await self._hot(query.owner_id))[:left]
        return [
            *results_of(summaries, query, "summary", _SUMMARY_SCORE),
            *results_of(hot, query, "hot", 1.0),
        ]

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner without the summaries, newest first."""
        return (await self._hot(owner_id))[: max(0, n)]

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry or a summary of an owner; one that does not exist is ignored."""
        await self._kept.drop(owner_id, [entry_id])

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries and summaries of an owner."""
        await self._kept.clear(owner_id)

    async def _hot(self, owner_id: str) -> list[MemoryEntry]:
        return [one for one in await self._kept.newest(owner_id) if not _is_summary(one)]

    async def _summaries(self, owner_id: str) -> list[MemoryEntry]:
        return [one for one in await self._kept.newest(owner_id) if _is_summary(one)]


def _is_summary(entry: MemoryEntry) -> bool:
    return entry.metadata.get("type") == "summary"

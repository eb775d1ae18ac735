"""Stores of conversations: a buffer, sessions, entries by entity, a window, and summaries."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    copy_of,
)
from slumberd.integrations.tiers.errors import log_summary_failure
from slumberd.integrations.tiers.extraction import EpisodicCompressor, SummariseFn
from slumberd.integrations.tiers.search import newest_first, relevances_of, selects
from slumberd.integrations.tiers.stores import (
    OwnerEntries,
    Unfinished,
    are_unchanged,
    owned_store,
    without,
)
from slumberd.search.context import EstimatedTokens, TokenCounter

DEFAULT_SESSION = "_default"
"""The session of the entries that name none."""

_ENTITIES = "entities"


class _Store:
    """What the stores of this module share: they keep entries by owner."""

    source = "conversation"

    def __init__(self, backend: MemoryStoreProtocol | None) -> None:
        self._kept = KeptEntries(backend)

    async def owners(self) -> list[str]:
        """Return the owners that may have entries, sorted."""
        return await self._kept.owners()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the back end; a store in the process is always healthy."""
        return await self._kept.health_check(self.source, timeout)

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first."""
        return [*map(copy_of, (await self._kept.newest(owner_id))[: max(0, n)])]

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others; nothing when one of `old` has changed.

        No entry is displaced, also in a full store: what replaces some entries takes their places.
        """
        return await self._kept.replace(owner_id, old, new)

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        await self._kept.drop(owner_id, [entry_id])

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner."""
        await self._kept.clear(owner_id)


class BufferMemoryStore(_Store):
    """Keeps the entries of each owner that were stored last.

    Args:
        max_entries: The most entries of one owner, 1 or more.
        backend: Keeps the entries beyond the process; None keeps them in the process only.

    Raises:
        ValueError: `max_entries` is below 1.
    """

    source = "buffer"

    def __init__(
        self, max_entries: int = 100, *, backend: MemoryStoreProtocol | None = None
    ) -> None:
        super().__init__(backend)
        self._most = _check_positive("max_entries", max_entries)

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry as the newest; it replaces the one of its id, or the oldest one."""
        await self._kept.put(entry)
        entry_ids = [*await self._kept.of(entry.owner_id)]
        await self._kept.drop(entry.owner_id, entry_ids[: -self._most])

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the latest entries of an owner, newest first, each with the score 1."""
        return results_of(await self._newest(query), query, self.source, 1.0)

    async def _newest(self, query: MemoryQuery) -> Sequence[MemoryEntry]:
        return await self.get_recent(query.top_k, owner_id=query.owner_id)


class ConversationMemoryStore(_Store):
    """Keeps the turns of each session of each owner.

    ``metadata.session_id`` names the session of an entry; without one it is ``_default``.

    Args:
        max_turns_per_session: The most turns of one session, 1 or more.
        backend: Keeps the entries beyond the process; None keeps them in the process only.

    Raises:
        ValueError: `max_turns_per_session` is below 1.
    """

    def __init__(
        self, max_turns_per_session: int = 1_000, *, backend: MemoryStoreProtocol | None = None
    ) -> None:
        super().__init__(backend)
        self._most = _check_positive("max_turns_per_session", max_turns_per_session)

    async def store(self, entry: MemoryEntry) -> None:
        """Store a turn as the newest of its session; the oldest one may have to go."""
        await self._kept.put(entry)
        session = entry.session_id or DEFAULT_SESSION
        turns = await self.get_session_entries(session, owner_id=entry.owner_id)
        await self._kept.drop(entry.owner_id, [turn.id for turn in turns[: -self._most]])

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the latest turns, of one session with ``session_id`` in the filters."""
        turns = await self._kept.newest(query.owner_id)
        found = [turn for turn in turns if selects(query, _with_session(turn))]
        return results_of(found[: query.top_k], query, self.source, 1.0)

    async def get_session_entries(
        self, session_id: str, *, owner_id: str = ""
    ) -> list[MemoryEntry]:
        """Return the turns of a session of an owner, in the order in which they were stored."""
        turns = (await self._kept.of(owner_id)).values()
        found = (turn for turn in turns if (turn.session_id or DEFAULT_SESSION) == session_id)
        return [*map(copy_of, found)]


def _with_session(turn: MemoryEntry) -> MemoryEntry:
    if turn.session_id:
        return turn
    return replace(turn, metadata={**turn.metadata, "session_id": DEFAULT_SESSION})


class EntityMemoryStore(_Store):
    """Keeps entries with the entities that they mention.

    Args:
        backend: Keeps the entries beyond the process; None keeps them in the process only.
    """

    source = "entity"

    def __init__(self, *, backend: MemoryStoreProtocol | None = None) -> None:
        super().__init__(backend)

    async def store(self, entry: MemoryEntry, entities: Sequence[str] | None = None) -> None:
        """Store an entry; it replaces the one of its id, with its entities.

        Args:
            entities: What it mentions, which ``metadata.entities`` then has; None takes what the
                metadata have already.
        """
        if entities is not None:
            entry = replace(entry, metadata={**entry.metadata, _ENTITIES: [*entities]})
        await self._kept.put(entry)

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the most important entries of an owner that have what the query filters by."""
        entries = await self._kept.newest(query.owner_id)
        found = [entry for entry in entries if selects(query, entry)]
        best = sorted(found, key=lambda entry: -entry.importance)
        return results_of(best[: query.top_k], query, self.source)

    async def get_by_entity(self, entity: str, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the entries of an owner that mention an entity, newest first; case is ignored."""
        entries = (await self._kept.of(owner_id)).values()
        found = (entry for entry in entries if entity.casefold() in _entities_of(entry))
        return [*map(copy_of, newest_first(found))]


def _entities_of(entry: MemoryEntry) -> set[str]:
    entities = entry.metadata.get(_ENTITIES)
    return {str(entity).casefold() for entity in entities} if isinstance(entities, list) else set()


class ConversationBuffer:
    """The latest turns of one conversation, within a number of turns and of tokens.

    Args:
        max_turns: The most turns, 1 or more.
        max_tokens: The most tokens, unless the newest turn alone has more; 0 for any number.
        token_counter: Counts tokens; None estimates them.

    Raises:
        ValueError: A limit is out of bounds.
    """

    def __init__(
        self,
        max_turns: int = 20,
        max_tokens: int = 4_096,
        *,
        token_counter: TokenCounter | None = None,
    ) -> None:
        if max_tokens < 0:
            raise ValueError(f"max_tokens is {max_tokens}, not 0 or more")
        self._most = _check_positive("max_turns", max_turns)
        self._most_tokens = max_tokens
        self._counter = token_counter or EstimatedTokens()
        self._turns: deque[tuple[MemoryEntry, int]] = deque()
        self._tokens = 0

    async def add(self, entry: MemoryEntry) -> None:
        """Add a turn as the newest; it replaces the one of its owner and id."""
        name = entry.owner_id, entry.id
        for turn in [turn for turn in self._turns if (turn[0].owner_id, turn[0].id) == name]:
            self._turns.remove(turn)
            self._tokens -= turn[1]
        tokens = self._counter.count_tokens(entry.content)
        self._turns.append((copy_of(entry), tokens))
        self._tokens += tokens
        while len(self._turns) > 1 and self._is_over():
            self._tokens -= self._turns.popleft()[1]

    def _is_over(self) -> bool:
        return len(self._turns) > self._most or 0 < self._most_tokens < self._tokens

    def get_context(self) -> list[MemoryEntry]:
        """Return the turns, the oldest first."""
        return [entry for entry, _ in self._turns]

    def clear(self) -> None:
        """Remove all turns."""
        self._turns.clear()
        self._tokens = 0

    @property
    def size(self) -> int:
        """The number of turns."""
        return len(self._turns)

    @property
    def total_tokens(self) -> int:
        """The number of tokens of all turns."""
        return self._tokens


def _check_positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} is {value}, not 1 or more")
    return value


_SUMMARY_SCORE = 0.9


class SummaryMemoryStore(_Store):
    """Keeps the latest entries of each owner, and summaries of the older ones.

    Args:
        compress_threshold: With so many entries of an owner, some are condensed; 1 or more.
        compress_batch: So many of the oldest entries become one summary, 1 or more.
        summarise_fn: Returns one entry for several; None takes sentences of the entries.
        backend: Keeps the entries beyond the process; None keeps them in the process only.

    Raises:
        ValueError: A number is below 1, or `compress_batch` is above `compress_threshold`.
    """

    source = "summary"

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
        super().__init__(backend)
        self._threshold = compress_threshold
        self._batch = compress_batch
        self._compressor = EpisodicCompressor(summarise_fn)
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
        except Exception as error:  # noqa: BLE001 # the entry itself is stored
            log_summary_failure(error)
        finally:
            self._compressing.discard(entry.owner_id)

    async def _compress(self, owner_id: str, oldest: list[MemoryEntry]) -> None:
        summary = await self._compressor.compress(oldest)
        # While the summary was made, a caller may have deleted an entry or stored it anew.
        await self._kept.replace(owner_id, oldest, [summary])

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the latest summaries, at most half of the results, then the latest entries."""
        half = query.top_k // 2
        summaries = (await self._summaries(query.owner_id))[:half][::-1]
        left = query.top_k - len(summaries)
        hot = (await self._hot(query.owner_id))[:left]
        return [
            *results_of(summaries, query, self.source, _SUMMARY_SCORE),
            *results_of(hot, query, "hot", 1.0),
        ]

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner without the summaries, newest first."""
        return [*map(copy_of, (await self._hot(owner_id))[: max(0, n)])]

    async def _hot(self, owner_id: str) -> list[MemoryEntry]:
        return [one for one in await self._kept.newest(owner_id) if not _is_summary(one)]

    async def _summaries(self, owner_id: str) -> list[MemoryEntry]:
        return [one for one in await self._kept.newest(owner_id) if _is_summary(one)]


def _is_summary(entry: MemoryEntry) -> bool:
    return entry.metadata.get("type") == "summary"


class KeptEntries:
    """The entries of each owner by id, in the order in which they were stored.

    Args:
        backend: Keeps the entries beyond the process; None keeps them in the process only. The
            entries of an owner are read once, so only one process should write them.
    """

    def __init__(self, backend: MemoryStoreProtocol | None) -> None:
        self._backend = None if backend is None else owned_store(backend)
        self._owned: dict[str, dict[str, MemoryEntry]] = {}
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(dict)
        self._using: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, owner_id: str) -> dict[str, MemoryEntry]:
        """Return the entries of an owner, by id, the oldest first."""
        async with self._using[owner_id]:
            return await self._load(owner_id)

    async def _load(self, owner_id: str) -> dict[str, MemoryEntry]:
        if owner_id not in self._owned:
            found: Sequence[MemoryEntry] = []
            if self._backend is not None:
                await OwnerEntries(self._backend, owner_id, self._unfinished[owner_id]).finish()
                found = await self._backend.get_recent(sys.maxsize, owner_id=owner_id)
            self._owned[owner_id] = {entry.id: entry for entry in reversed(found)}
        return self._owned[owner_id]

    @asynccontextmanager
    async def _changing(self, owner_id: str) -> AsyncIterator[dict[str, MemoryEntry]]:
        """Give the entries of an owner to one change at a time; read all again if it fails."""
        async with self._using[owner_id]:
            owned = await self._load(owner_id)
            try:
                yield owned
            except BaseException:  # also a cancelled call: the back end may have done a part
                if self._backend is not None:
                    self._owned.pop(owner_id, None)
                raise

    async def owners(self) -> list[str]:
        """Return the owners that may have entries, sorted."""
        if self._backend is not None:
            return await self._backend.owners()
        return sorted(owner for owner, entries in self._owned.items() if entries)

    async def health_check(self, store: str, timeout: float) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of the back end, under the name of a store without one."""
        if self._backend is not None:
            return await self._backend.health_check(timeout)
        return HealthCheckResult(store)

    async def put(self, entry: MemoryEntry) -> None:
        """Add an entry as the newest; it replaces the one of its owner and id."""
        async with self._changing(entry.owner_id) as owned:
            if self._backend is not None:
                await self._backend.store(entry)
            owned.pop(entry.id, None)
            owned[entry.id] = copy_of(entry)

    async def drop(self, owner_id: str, entry_ids: Iterable[str]) -> None:
        """Remove entries of an owner; unknown ids are ignored."""
        async with self._changing(owner_id) as owned:
            for entry_id in entry_ids:
                if self._backend is not None:
                    await self._backend.delete(entry_id, owner_id=owner_id)
                owned.pop(entry_id, None)

    async def replace(
        self, owner_id: str, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry]
    ) -> bool:
        """Remove entries of an owner and add others; return False when one has changed."""
        async with self._changing(owner_id) as owned:
            if not are_unchanged(old, owned):
                return False
            if self._backend is not None and not await OwnerEntries(
                self._backend, owner_id, self._unfinished[owner_id]
            ).replace(old, new):
                del self._owned[owner_id]  # another program has written: read all again
                return False
            for entry_id in without(old, new):
                del owned[entry_id]
            owned.update({entry.id: copy_of(entry) for entry in new})
            return True

    async def clear(self, owner_id: str) -> None:
        """Remove all entries of an owner."""
        async with self._changing(owner_id) as owned:
            if self._backend is not None:
                await self._backend.clear(owner_id=owner_id)
            owned.clear()

    async def newest(self, owner_id: str) -> list[MemoryEntry]:
        """Return the entries of an owner, the newest first."""
        return [*(await self.of(owner_id)).values()][::-1]


def results_of(
    entries: Sequence[MemoryEntry], query: MemoryQuery, source: str, score: float | None = None
) -> list[MemorySearchResult]:
    """Return entries as results with their relevance; without a score it is the importance."""
    return [
        MemorySearchResult(
            copy_of(entry), entry.importance if score is None else score, source, relevance
        )
        for entry, relevance in zip(entries, relevances_of(entries, query.query), strict=True)
    ]

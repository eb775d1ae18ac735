"""Entries as episodes of slumberd's own store, one SQLite file by default."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

from slumberd.clock import Clock
from slumberd.consolidation.stages.entries import USUAL_IMPORTANCE
from slumberd.integrations.tiers.backends.in_memory import OwnedEntries, storable
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    check_health,
    owner_of_user,
    user_of,
)
from slumberd.integrations.tiers.errors import MemoryStoreError
from slumberd.integrations.tiers.search import is_expired
from slumberd.integrations.tiers.stores import is_unchanged
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.episode import Episode, EpisodeVersion, instant, microseconds, speaker_of
from slumberd.model.errors import MemoryScopeError, SlumberdError
from slumberd.model.feed import FeedPlace, NumberedVersion
from slumberd.model.salience import importance_of
from slumberd.model.scope import ScopeFilter, escape
from slumberd.storage.episodes.store import EngineMemoryStore

_SOURCE = "database"
_BLOCK = "memory_entry"
"""The key of an episode's metadata for what only an entry has."""

_DEFAULT_SESSION = "_default"
_NODE = "slumberd.tiers"


_MANY = 200
"""More entries than this are taken from memory, where they then stay."""

_MOST_OWNERS = 64
"""The entries of so many owners stay in memory: those that were searched last."""

_MOST_CHANGES = 5_000
"""After more changes than this, reading all again takes no longer than following them."""


class _Scope:
    """The entries of one owner in memory.

    Args:
        scope: The user and the agent.
        entries: The entries, none so far.
    """

    def __init__(self, scope: ScopeFilter, entries: OwnedEntries) -> None:
        self.entries = entries
        self.eids: dict[str, str] = {}
        self._scope = scope
        self._ids: dict[int, str] = {}

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes."""
        self.entries.drop([self._ids.pop(row) for row in rows if row in self._ids])
        for row, version in versions:
            if self._scope.holds(version):
                entry = _entry_of(version, instant(version.at))
                self._ids[row] = entry.id
                self.eids[entry.id] = version.id
                self.entries.put(entry)


DatabaseProviderProtocol = EngineMemoryStore
"""What keeps entries as episodes: `SQLiteMemoryStore`, or `PostgresMemoryStore`."""


class DatabaseMemoryBackend:
    """Keeps entries as episodes; implements `OwnedStoreProtocol`.

    The owner is the user of an episode, and ``session_id`` its session. So rules promote entries
    to facts as all episodes. Other episodes of the same user and agent are entries, too. The
    process keeps the entries of the owners that it searched last, with an index. Each search first
    reads what any program has written or deleted since.

    Args:
        provider: The store of episodes; the caller closes it.
        agent: The agent of the episodes.
        ttl_seconds: How long an entry is kept that does not say when it expires; 0 for ever.
        language: The language of the texts, to stem their words; None stems none.
        clock: The time of scores and expiries.
    """

    source = _SOURCE

    def __init__(
        self,
        provider: DatabaseProviderProtocol,
        *,
        agent: str = "ai_memory",
        ttl_seconds: float = 0,
        language: str | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._store = provider
        self._agent = agent
        self._ttl = ttl_seconds
        self._new_entries = partial(OwnedEntries, language)
        self._clock = clock
        self._place: FeedPlace | None = None
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._lock = asyncio.Lock()

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: The store failed, or cannot return the entry unchanged.
        """
        episode = self._episode_of(storable(entry, self._ttl, self._clock.now(), _SOURCE))
        scope = {"user": episode.user, "session": episode.session, "agent": episode.agent}
        with _translated_errors():
            try:
                await self._store.put(episode, **scope)
            except MemoryScopeError:  # perhaps it is in another session so far
                await self._store.owned.move(episode)

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others; nothing when one of `old` has changed.

        Raises:
            MemoryStoreError: The store failed, or cannot return an entry unchanged.
        """
        at = self._clock.now()
        episodes = [self._episode_of(storable(entry, self._ttl, at, _SOURCE)) for entry in new]
        wanted = {entry.id: entry for entry in old}

        def unchanged(version: EpisodeVersion) -> bool:
            entry = _entry_of(version, instant(version.at))
            return entry.id in wanted and is_unchanged(wanted[entry.id], entry)

        # An episode of another program has no id of ours.
        eids = [[self._episode_id(owner_id, id), id] for id in wanted]
        with _translated_errors():
            return await self._store.owned.replace(
                user_of(owner_id), self._agent, eids, unchanged, episodes
            )

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best entries of an owner, best first; the store records these reads."""
        at = self._clock.now()
        async with self._lock:
            loaded = await self._load(query.owner_id)
            found = loaded.entries.search(query, at, _SOURCE)
            eids = [loaded.eids[result.entry.id] for result in found]
        self._store.owned.record_reads(eids, microseconds(at))
        return found

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first."""
        if n < 1:
            return []
        if n <= _MANY:
            with _translated_errors():
                user = user_of(owner_id)
                episodes = await self._store.owned.newest(user, self._agent, limit=n)
            found = [_entry_of(episode, episode.timestamp) for episode in episodes]
            at = self._clock.now()
            if not any(is_expired(entry, at) for entry in found):
                return found
        async with self._lock:
            return (await self._load(owner_id)).entries.newest(n)

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        # An episode of another program has no id of ours.
        await self._delete(owner_id, [self._episode_id(owner_id, entry_id), entry_id])

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner; facts that they were promoted to stay."""
        with _translated_errors():
            await self._store.owned.delete_all(user_of(owner_id), self._agent)

    async def owners(self) -> list[str]:
        """Return the owners that have episodes of the agent, sorted."""
        with _translated_errors():
            return sorted(map(owner_of_user, await self._store.owned.users(self._agent)))

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return whether the store answers a read."""
        return await check_health(_SOURCE, self._probe, timeout, self._clock)

    async def _probe(self) -> Mapping[str, Any]:
        await self._store.bootstrap()  # a file that does not exist yet is no fault
        await self._store.pulse()
        return {"where": self._store.where}

    async def _load(self, owner_id: str) -> _Scope:
        """Return the entries of an owner that have not expired, and delete those that have."""
        with _translated_errors():
            await self._follow()
            if owner_id not in self._scopes:
                await self._read(owner_id)
        self._scopes.move_to_end(owner_id)
        loaded = self._scopes[owner_id]
        if expired := loaded.entries.drop_expired(self._clock.now()):
            await self._delete(owner_id, [loaded.eids[entry_id] for entry_id in expired])
        return loaded

    async def _read(self, owner_id: str) -> None:
        """Read all entries of an owner; drop those of the owner that was searched first."""
        scope = ScopeFilter.of(user_of(owner_id), None, self._agent)
        reading = await self._store.feed.read_scope(scope)
        # Earlier owners go on from their own place; to read a change twice does no harm.
        self._place = self._place or reading.place
        loaded = _Scope(scope, self._new_entries())
        await asyncio.to_thread(loaded.replace, (), reading.versions)
        self._scopes[owner_id] = loaded
        if len(self._scopes) > _MOST_OWNERS:
            self._scopes.popitem(last=False)

    async def _follow(self) -> None:
        """Read what was written or deleted; forget all entries when the store cannot tell."""
        if self._place is None:
            return
        changes = await self._store.feed.changes(self._place, most=_MOST_CHANGES)
        if changes is None:
            self._scopes.clear()
            self._place = None
            return
        for loaded in self._scopes.values():
            loaded.replace(changes.rows, changes.versions)
        self._place = changes.place

    async def _delete(self, owner_id: str, eids: list[str]) -> None:
        with _translated_errors():
            await self._store.owned.delete(user_of(owner_id), self._agent, eids)

    def _episode_id(self, owner_id: str, entry_id: str) -> str:
        """Return the id of an entry's episode: unique over all owners and agents."""
        return f"{escape(user_of(owner_id))}/{escape(self._agent)}/{entry_id}"

    def _episode_of(self, entry: MemoryEntry) -> Episode:
        own: dict[str, Any] = {"id": entry.id, "role": entry.role}
        if entry.embedding is not None:
            own["embedding"] = entry.embedding
        if entry.expires_at is not None:
            own["expires_at"] = entry.expires_at.isoformat()
        covered = {
            key: entry.metadata[key]
            for key in ("importance", "role", _BLOCK)
            if key in entry.metadata
        }
        if covered:
            own["metadata"] = covered
        spoken: dict[str, Any] = {}
        if speaker_of(None, entry.metadata) is None:
            # Rules and searches read it as that of any other episode.
            spoken = {"role": entry.role}
            own["adds_role"] = True
        return Episode(
            id=self._episode_id(entry.owner_id, entry.id),
            content=entry.content,
            timestamp=entry.timestamp,
            source_node=_NODE,
            agent=self._agent,
            user=user_of(entry.owner_id),
            session=entry.session_id or _DEFAULT_SESSION,
            metadata={**entry.metadata, **spoken, "importance": entry.importance, _BLOCK: own},
        )


def _entry_of(episode: Episode | EpisodeVersion, at: datetime) -> MemoryEntry:
    """Return an episode as an entry."""
    own = episode.metadata.get(_BLOCK)
    if isinstance(own, dict):
        with suppress(KeyError, TypeError, ValueError):  # another program has changed it
            return _own_entry(episode, at, own)
    metadata = {key: value for key, value in episode.metadata.items() if key != _BLOCK}
    return MemoryEntry(
        id=episode.id,
        content=episode.content,
        role=str(metadata.get("role", "user")),
        timestamp=at,
        importance=importance_of(metadata, USUAL_IMPORTANCE),
        metadata={"session_id": episode.session, **metadata},
        owner_id=owner_of_user(episode.user),
    )


def _own_entry(
    episode: Episode | EpisodeVersion, at: datetime, own: Mapping[str, Any]
) -> MemoryEntry:
    """Return the entry that was stored as an episode."""
    expires_at, embedding = own.get("expires_at"), own.get("embedding")
    importance = importance_of(episode.metadata, USUAL_IMPORTANCE)
    ours = ("importance", _BLOCK, *(("role",) if own.get("adds_role") else ()))
    metadata = {key: value for key, value in episode.metadata.items() if key not in ours}
    return MemoryEntry(
        id=str(own["id"]),
        content=episode.content,
        role=str(own["role"]),
        timestamp=at,
        importance=importance,
        metadata={**metadata, **own.get("metadata", {})},
        embedding=None if embedding is None else [float(value) for value in embedding],
        owner_id=owner_of_user(episode.user),
        expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
    )


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise a failure of the store as a `MemoryStoreError`.

    Raises:
        MemoryStoreError: The store failed.
    """
    try:
        yield
    except SlumberdError as error:
        raise MemoryStoreError(str(error), _SOURCE) from error

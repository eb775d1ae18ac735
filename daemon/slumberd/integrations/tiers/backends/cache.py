"""Entries in Redis 7, for several processes and hosts. Needs the extra ``redis``."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from slumberd.clock import Clock
from slumberd.integrations.tiers.backends.in_memory import OwnedEntries, storable
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    check_health,
)
from slumberd.integrations.tiers.errors import MemoryCapacityError, MemoryStoreError
from slumberd.integrations.tiers.search import is_expired, newest_first
from slumberd.integrations.tiers.stores import are_unchanged, without
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.episode import microseconds
from slumberd.model.errors import ExtraMissingError

_SOURCE = "cache"
_MONTH_SECONDS = 2_592_000
_PAGE = 500
"""So many entries are read at once."""

_MILLISECOND = timedelta(milliseconds=1)

Client = Any
"""A ``redis.asyncio.Redis``. Its annotations hold for blocking clients as well, so they do not help
here."""


class CacheBackendProtocol(Protocol):
    """The part of a ``redis.asyncio.Redis`` that keeps entries; it has transactions."""

    def pipeline(self, transaction: bool = True) -> Client:
        """Return what collects commands for one transaction."""
        ...

    def get(self, name: str) -> Client:
        """Return the value of a key."""
        ...

    def mget(self, keys: list[str]) -> Client:
        """Return the values of keys."""
        ...

    def zrevrange(self, name: str, start: int, end: int) -> Client:
        """Return members of a sorted set, the highest first."""
        ...

    def smembers(self, name: str) -> Client:
        """Return the members of a set."""
        ...

    def exists(self, *names: str) -> Client:
        """Return how many of some keys exist."""
        ...

    def ping(self) -> Client:
        """Ask whether Redis answers."""
        ...


def open_cache(url: str) -> Client:
    """Return a client of the Redis at an address; it connects at its first use.

    Raises:
        ExtraMissingError: The extra ``redis`` is not installed.
    """
    try:
        from redis import asyncio as redis  # of the extra
    except ImportError as error:
        raise ExtraMissingError("redis", "no entry can be kept in Redis") from error
    # This pool lets a command wait for a connection; the usual one refuses it.
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url))


class _Keys(NamedTuple):
    """The keys of one owner.

    Attributes:
        by_instant: A sorted set: the ids of entries by instant.
        version: A text that changes with each write.
        entry: The beginning of the key of an entry.
    """

    by_instant: str
    version: str
    entry: str

    def of(self, entry_ids: Sequence[str]) -> list[str]:
        """Return the keys of some entries."""
        return [self.entry + _quoted(entry_id) for entry_id in entry_ids]


class CacheMemoryBackend:
    """Keeps entries in Redis, with an expiry; implements `OwnedStoreProtocol`.

    Each write is one transaction: an entry is either stored and found, or neither. The process
    keeps the entries that it has searched, and reads them again after a write of any process.

    Args:
        cache: A ``redis.asyncio.Redis``; the caller closes it.
        ttl: How many seconds an entry is kept that does not say when it expires; 0 for ever.
        namespace: Divides the memories in one Redis.
        language: The language of the texts, to stem their words; None stems none.
        clock: The time of scores and expiries.
    """

    source = _SOURCE

    def __init__(
        self,
        cache: CacheBackendProtocol,
        ttl: float = _MONTH_SECONDS,
        *,
        namespace: str = "ai_memory",
        language: str | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._cache = cache
        self._ttl = ttl
        self._prefix = f"slumberd:{_quoted(namespace)}"
        self._new_entries = partial(OwnedEntries, language)
        self._clock = clock
        self._loaded: dict[str, tuple[bytes | None, OwnedEntries]] = {}

    def _keys(self, owner_id: str) -> _Keys:
        # Quoted texts have no colon, so no two owners, or ids, have equal keys.
        kinds = ("by_instant", "version", "entry")
        index, version, entry = (f"{self._prefix}:{kind}:{_quoted(owner_id)}" for kind in kinds)
        return _Keys(index, version, f"{entry}:")

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry; it replaces the entry of the same owner and id.

        Raises:
            MemoryStoreError: Redis failed, or the entry has values that JSON cannot hold.
            MemoryCapacityError: Redis has no memory left.
        """
        at = self._clock.now()
        kept = storable(entry, self._ttl, at, _SOURCE)
        if is_expired(kept, at):
            await self.delete(entry.id, owner_id=entry.owner_id)
            return
        async with self._transaction() as work:
            self._set(work, kept, at)

    def _set(self, work: Client, entry: MemoryEntry, at: datetime) -> None:
        """Add the commands that store an entry, which has not expired, to a transaction."""
        keys = self._keys(entry.owner_id)
        left = None if entry.expires_at is None else max(1, (entry.expires_at - at) // _MILLISECOND)
        work.set(keys.of([entry.id])[0], _document(entry), px=left)
        work.zadd(keys.by_instant, {entry.id: microseconds(entry.timestamp)})
        work.sadd(f"{self._prefix}:owners", _quoted(entry.owner_id))
        work.set(keys.version, uuid.uuid4().hex, keepttl=True)
        for key in (keys.by_instant, keys.version) if self._ttl > 0 and left is not None else ():
            # Together: what is there longest decides.
            work.pexpire(key, left, nx=True)
            work.pexpire(key, left, gt=True)

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others; nothing when one of `old` has changed.

        Raises:
            MemoryStoreError: Redis failed, or an entry has values that JSON cannot hold.
            MemoryCapacityError: Redis has no memory left.
        """
        from redis.exceptions import WatchError  # of the extra, which made the client

        at = self._clock.now()
        kept = [storable(entry, self._ttl, at, _SOURCE) for entry in new]
        keys = self._keys(owner_id)
        names = keys.of([entry.id for entry in old])
        async with self._cache.pipeline(transaction=True) as work:
            with _translated_errors():
                documents = []
                if names:
                    await work.watch(*names)
                    documents = await work.mget(names)
                stored = [_entry(text) for text in documents if text is not None]
                if not are_unchanged(old, {entry.id: entry for entry in stored}):
                    return False
                work.multi()
                if gone := without(old, new):
                    self._remove(work, keys, gone)
                for entry in kept:
                    self._set(work, entry, at)
                try:
                    await work.execute()
                except WatchError:  # another process has written one of the old entries
                    return False
        return True

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best entries of an owner, best first."""
        entries = await self._load(query.owner_id)
        return entries.search(query, self._clock.now(), _SOURCE)

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first; only these are read."""
        keys, at, first = self._keys(owner_id), self._clock.now(), 0
        found: list[MemoryEntry] = []
        gone: list[str] = []
        with _translated_errors():
            while len(found) < n:
                entry_ids = await self._ids(owner_id, first, first + min(n, _PAGE) - 1)
                documents = await self._cache.mget(keys.of(entry_ids)) if entry_ids else []
                entries = [_entry(document) for document in documents if document is not None]
                found += [entry for entry in entries if not is_expired(entry, at)]
                gone += [id for id, text in zip(entry_ids, documents, strict=True) if text is None]
                first += min(n, _PAGE)
                if len(entry_ids) < min(n, _PAGE):
                    break
            await self._forget_expired(keys, gone)
        return newest_first(found)[: max(0, n)]

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner; one that does not exist is ignored."""
        await self._delete(owner_id, [entry_id])

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner."""
        with _translated_errors():
            entry_ids = await self._ids(owner_id, 0, -1)
        if entry_ids:
            await self._delete(owner_id, entry_ids)

    async def owners(self) -> list[str]:
        """Return the owners that may have entries, sorted."""
        with _translated_errors():
            names = await self._cache.smembers(f"{self._prefix}:owners")
            owners = sorted(unquote(name.decode()) for name in names)
            return [
                name for name in owners if await self._cache.exists(self._keys(name).by_instant)
            ]

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return whether Redis answers a ping."""
        return await check_health(_SOURCE, self._probe, timeout, self._clock)

    async def _probe(self) -> Mapping[str, Any]:
        await self._cache.ping()
        return {"namespace": self._prefix}

    async def _load(self, owner_id: str) -> OwnedEntries:
        """Return the entries of an owner that have not expired."""
        with _translated_errors():
            version = await self._cache.get(self._keys(owner_id).version)
        before, entries = self._loaded.get(owner_id, (None, self._new_entries()))
        if version is None or version != before:
            entries.replace_all(await self.get_recent(sys.maxsize, owner_id=owner_id))
            self._loaded[owner_id] = version, entries
        if expired := entries.drop_expired(self._clock.now()):
            await self._delete(owner_id, expired)
        return entries

    async def _ids(self, owner_id: str, first: int, last: int) -> list[str]:
        found = await self._cache.zrevrange(self._keys(owner_id).by_instant, first, last)
        return [entry_id.decode() for entry_id in found]

    async def _forget_expired(self, keys: _Keys, entry_ids: Sequence[str]) -> None:
        """Remove the ids of entries that Redis has let expire."""
        from redis.exceptions import WatchError  # of the extra, which made the client

        if not entry_ids:
            return
        async with self._cache.pipeline(transaction=True) as work:
            await work.watch(keys.version)
            documents = await work.mget(keys.of(entry_ids))
            work.multi()
            for entry_id, document in zip(entry_ids, documents, strict=True):
                if document is None:
                    work.zrem(keys.by_instant, entry_id)
            with suppress(WatchError):  # another process wrote; a later read tries again
                await work.execute()

    async def _delete(self, owner_id: str, entry_ids: Sequence[str]) -> None:
        keys = self._keys(owner_id)
        async with self._transaction() as work:
            self._remove(work, keys, entry_ids)

    def _remove(self, work: Client, keys: _Keys, entry_ids: Sequence[str]) -> None:
        """Add the commands that delete entries to a transaction."""
        work.delete(*keys.of(entry_ids))
        work.zrem(keys.by_instant, *entry_ids)
        work.set(keys.version, uuid.uuid4().hex, keepttl=True)

    def _transaction(self) -> _Transaction:
        return _Transaction(self._cache.pipeline(transaction=True))


class _Transaction:
    """Runs the commands of a block in one transaction, at its end."""

    def __init__(self, pipeline: Client) -> None:
        self._pipeline = pipeline

    async def __aenter__(self) -> Client:
        return self._pipeline

    async def __aexit__(self, kind: object, *_: object) -> None:
        async with self._pipeline as pipeline:
            if kind is None:
                with _translated_errors():
                    await pipeline.execute()


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise a failure of Redis as an error of this package.

    Raises:
        MemoryStoreError: Redis failed.
        MemoryCapacityError: Redis has no memory left.
    """
    from redis import exceptions  # of the extra, which made the client

    try:
        yield
    except exceptions.OutOfMemoryError as error:
        raise MemoryCapacityError(f"redis has no memory left: {error}") from error
    except (exceptions.RedisError, OSError) as error:
        raise MemoryStoreError(f"redis failed: {error}", _SOURCE) from error


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _document(entry: MemoryEntry) -> str:
    expires_at = None if entry.expires_at is None else entry.expires_at.isoformat()
    return json.dumps({
        "id": entry.id,
        "content": entry.content,
        "role": entry.role,
        "timestamp": entry.timestamp.isoformat(),
        "importance": entry.importance,
        "metadata": entry.metadata,
        "embedding": entry.embedding,
        "owner_id": entry.owner_id,
        "expires_at": expires_at,
    })  # fmt: skip


def _entry(document: bytes) -> MemoryEntry:
    fields = json.loads(document)
    expires_at = fields.pop("expires_at")
    entry = MemoryEntry(**{**fields, "timestamp": datetime.fromisoformat(fields["timestamp"])})
    return replace(
        entry, expires_at=None if expires_at is None else datetime.fromisoformat(expires_at)
    )

"""Entries that are found by the vectors of their texts, in any other back end."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slumberd.clock import Clock
from slumberd.integrations.tiers.backends.in_memory import InMemoryMemoryBackend
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    check_health,
)
from slumberd.integrations.tiers.errors import EmbeddingError
from slumberd.integrations.tiers.search import best
from slumberd.integrations.tiers.stores import OwnerEntries, Unfinished, owned_store
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.model.salience import cosine
from slumberd.search.embeddings import WordEmbedder

_SOURCE = "vector"

EmbedFn = Callable[[str], Awaitable[Sequence[float]]]
"""Returns the vector of a text."""


def word_embed_fn() -> EmbedFn:
    """Return a function that embeds texts with the model of the extra ``vectors``.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
    """
    embedder = WordEmbedder()

    async def embed(text: str) -> Sequence[float]:
        return embedder.embed([text])[0]

    return embed


DocumentVectorStoreProtocol = MemoryStoreProtocol
"""What keeps entries with their vectors: any store of entries, as a vector is a part of one."""


class VectorMemoryBackend:
    """Finds entries by the vectors of their texts; implements `OwnedStoreProtocol`.

    The vector is a part of its entry, which another back end keeps. So both are stored or neither,
    and whatever deletes the entry deletes the vector. A search compares all entries of the owner.

    Args:
        vector_store: Keeps the entries; None keeps them in the process.
        embed_fn: Returns the vector of a text; None allows only entries with a vector.
        clock: The time of scores.
    """

    source = _SOURCE

    def __init__(
        self,
        vector_store: DocumentVectorStoreProtocol | None = None,
        embed_fn: EmbedFn | None = None,
        *,
        clock: Clock = CLOCK,
    ) -> None:
        self._entries = (
            InMemoryMemoryBackend(clock=clock)
            if vector_store is None
            else owned_store(vector_store)
        )
        self._embed_fn = embed_fn
        self._clock = clock
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(dict)

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry with its vector; it replaces the entry of the same owner and id.

        Raises:
            EmbeddingError: The entry has no vector, and none can be made; nothing is stored.
            MemoryStoreError: The store failed.
        """
        await self._entries.store(await self._with_vector(entry))

    async def _with_vector(self, entry: MemoryEntry) -> MemoryEntry:
        if entry.embedding is not None:
            return entry
        return replace(entry, embedding=await self._embed(entry.content))

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others; nothing when one of `old` has changed.

        Raises:
            EmbeddingError: A vector cannot be made; nothing is done.
            MemoryStoreError: The store failed.
        """
        embedded = [await self._with_vector(entry) for entry in new]
        return await self._owned(owner_id).replace(old, embedded)

    def _owned(self, owner_id: str) -> OwnerEntries:
        return OwnerEntries(self._entries, owner_id, self._unfinished[owner_id])

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best entries of an owner, best first.

        An entry with a vector of another number of dimensions has no relevance.

        Raises:
            EmbeddingError: The text of the query cannot be embedded.
        """
        entries = await self.get_recent(sys.maxsize, owner_id=query.owner_id)
        if query.query.strip():
            wanted = await self._embed(query.query)
            relevances = [max(0.0, cosine(wanted, entry.embedding or ())) for entry in entries]
        else:
            relevances = [1.0] * len(entries)
        found = zip(entries, relevances, strict=True)
        return best(found, query, self._clock.now(), _SOURCE)

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first."""
        await self._owned(owner_id).finish()
        return await self._entries.get_recent(n, owner_id=owner_id)

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry of an owner with its vector; one that does not exist is ignored."""
        await self._entries.delete(entry_id, owner_id=owner_id)

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner with their vectors."""
        await self._entries.clear(owner_id=owner_id)

    async def owners(self) -> list[str]:
        """Return the owners that may have entries, sorted."""
        return await self._entries.owners()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return whether a text can be embedded, and whether the store of the entries answers."""
        return await check_health(_SOURCE, self._probe, timeout, self._clock)

    async def _probe(self) -> Mapping[str, Any]:
        dimensions = None if self._embed_fn is None else len(await self._embed("a test"))
        kept = await self._entries.health_check()
        if kept.error is not None:
            raise EmbeddingError(f"the store of the entries is {kept.status}: {kept.error}")
        return {"dimensions": dimensions, "entries": kept.component}

    async def _embed(self, text: str) -> list[float]:
        """Return the vector of a text.

        Raises:
            EmbeddingError: There is no function, or it failed.
        """
        if self._embed_fn is None:
            raise EmbeddingError("there is no embed_fn: give one, or entries with an embedding")
        try:
            return [float(value) for value in await self._embed_fn(text)]
        except Exception as error:  # whatever a function of the caller raises
            raise EmbeddingError(f"embed_fn failed: {type(error).__name__}: {error}") from error

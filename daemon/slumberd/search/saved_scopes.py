"""Save the followed indexes of one kind in files, and begin with what was saved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from slumberd.garbage_collection import collection_paused
from slumberd.model.feed import Changes, FactPlace, FeedPlace, NumberedFact, NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.search.followed_scopes import (
    MOST_CHANGES,
    Batch,
    Feed,
    FollowedScopes,
    MemoryBound,
    UserThreads,
)
from slumberd.search.hits import Kind
from slumberd.search.kept_texts import SavableIndex
from slumberd.search.saved_indexes import SavedIndexes

I = TypeVar("I", bound=SavableIndex[Any])  # noqa: E741 # an index
V = TypeVar("V", bound=NumberedVersion | NumberedFact)


class SavedScopes(FollowedScopes[I, V]):
    """The indexes of the scopes that were read last. A scope that was saved is not read whole.

    Args:
        kind: What they are of.
        read_place: Returns a place of the feed that was saved.
        saved: The files; None saves nothing.
        is_of_store: Returns whether the store has what was loaded, but for the rows that changed.
            None when the feed is certain of it.
    """

    def __init__(  # noqa: PLR0913 # those of `FollowedScopes`, and what is saved
        self,
        feed: Feed[Any, V],
        make: Callable[[ScopeFilter], I],
        threads: UserThreads,
        bound: MemoryBound,
        *,
        kind: Kind,
        read_place: Callable[[list[Any]], FeedPlace | FactPlace],
        saved: SavedIndexes | None,
        is_of_store: Callable[[I, frozenset[Any]], Awaitable[bool]] | None = None,
    ) -> None:
        super().__init__(feed, make, threads, bound)
        self._kind: Kind = kind
        self._read_place = read_place
        self._saved = saved
        self._is_of_store = is_of_store

    async def _begin(self, scope: ScopeFilter) -> I:
        index = await self._read_saved(self._saved, scope) if self._saved is not None else None
        return await super()._begin(scope) if index is None else index

    async def _read_saved(self, saved: SavedIndexes, scope: ScopeFilter) -> I | None:
        """Return what was saved of a scope, brought up to date; None when it cannot be."""
        loaded = await self._threads.run(scope.user, lambda: self._load(saved, scope))
        if loaded is None:
            return None
        place, index = loaded
        most = max(MOST_CHANGES, len(index) // 2)
        changes: Changes[Any, V] | None = await self._feed.changes(place, most=most)
        if changes is None:
            return None
        if self._is_of_store is not None and not await self._is_of_store(index, changes.rows):
            return None
        batches = [Batch(changes.rows, changes.versions)] if changes.rows else []
        await self._replace(scope, index, batches, changes.find_rows)
        return index

    def _load(
        self, saved: SavedIndexes, scope: ScopeFilter
    ) -> tuple[FeedPlace | FactPlace, I] | None:
        found = saved.load(self._kind, scope)
        if found is None:
            return None
        index = self._make(scope)
        place, parts = found
        try:
            with collection_paused():
                index.load(parts)
            return self._read_place(place), index
        except (LookupError, TypeError, ValueError):  # it was written by other code
            return None

    def to_save(self) -> list[ScopeFilter]:
        """Return the scopes of which much is not saved yet, or a saved text must go."""
        return [scope for scope, index in self.kept() if index.is_to_save]

    async def save(self, saved: SavedIndexes, scope: ScopeFilter) -> None:
        """Save the index of a scope. Searches of its user wait only while it is copied."""
        user = scope.user
        with saved.writing(user) as writer:
            async with self._threads.turn(user):
                # What was erased before is gone from the index now. After it, nothing is saved.
                before = self.place
                index = await self.current(scope)
                # Others may follow the store meanwhile: the index knows one of both places, or more
                # than the first. So both must be places that can be saved.
                place = before.saved() if self.place.saved() is not None else None
                if writer is None or place is None:
                    return
                has_gone = index.has_gone
                parts = await self._threads.run(user, index.parts)
                index.note_saved()
            work = asyncio.to_thread(writer.save, self._kind, scope, place, parts)
            writing = asyncio.ensure_future(work)
            try:
                is_saved = await asyncio.shield(writing)
            finally:  # also when it is cancelled: the thread needs the open directory
                await asyncio.wait([writing])
            if has_gone and not is_saved:
                writer.remove(self._kind, scope)

"""Keep what was made of the scopes that were read last, and let it follow the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar

from slumberd.garbage_collection import collection_paused
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import FeedChanges, FeedPlace, NumberedVersion, ScopeReading
from slumberd.model.scope import ScopeFilter
from slumberd.model.superseded import QuotedEpisode, SupersededByEpisode

_MOST_CHANGES = 5_000
"""After more changes than this, reading a scope again takes no longer than following them."""

T = TypeVar("T")
L = TypeVar("L")

Loaded = tuple[FeedPlace, L]
"""What was made of a scope earlier, and up to where it knows the episodes."""


class EpisodeFeed(Protocol):
    """Tells indexes what a store of episodes holds."""

    async def read_scope(self, scope: ScopeFilter) -> ScopeReading:
        """Return all readable episodes of a scope."""
        ...

    async def changes(self, place: FeedPlace, *, most: int) -> FeedChanges | None:
        """Return what changed after a place; None when that is unknown, or more than `most`."""
        ...


class SearchedEpisodes(Protocol):
    """A store of episodes that a search reads."""

    @property
    def feed(self) -> EpisodeFeed:
        """What its indexes read."""
        ...


class SearchedFacts(Protocol):
    """A store of facts that a search reads."""

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts that match a pattern, now or as of an instant."""
        ...

    async def find_superseded(
        self, episodes: Sequence[QuotedEpisode], *, valid_at: datetime | None = None
    ) -> SupersededByEpisode:
        """Return which claims of quoted episodes are not current any more, by episode."""
        ...


class OneThread:
    """Runs work in one thread of its own, one piece after the other.

    A caller that is cancelled does not wait for its work, but later work does. So no two pieces
    change an index at the same time.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "slumberd-search")

    async def run(self, work: Callable[[], T]) -> T:
        """Run work, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class RowIds:
    """The ids of the episodes in the rows of a table.

    Args:
        ids: Rows, and the id that is in each.
    """

    def __init__(self, ids: Iterable[tuple[int, str]] = ()) -> None:
        self._ids = dict(ids)
        self._rows = {id: row for row, id in self._ids.items()}

    def by_id(self) -> Mapping[str, int]:
        """Return the row of each id."""
        return self._rows

    def are_others(self, rows: Collection[int]) -> bool:
        """Return whether none of these rows has an id."""
        return self._ids.keys().isdisjoint(rows)

    def take(self, rows: Iterable[int]) -> list[str]:
        """Remove rows; return the ids that were in them."""
        found = [self._ids.pop(row) for row in rows if row in self._ids]
        for id in found:
            del self._rows[id]
        return found

    def put(self, row: int, id: str) -> None:
        """Note what is in a row. A row that had the same id before is gone."""
        before = self._rows.get(id)
        if before is not None:
            del self._ids[before]
        self._ids[row] = id
        self._rows[id] = row


class Followed(Protocol):
    """What is made of the episodes of one scope."""

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        ...

    def __len__(self) -> int:
        """Return the number of episodes that it has something of."""
        ...

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes.

        Args:
            rows: The rows, of any scopes.
            versions: What is in these rows now, of any scopes.
        """
        ...


F = TypeVar("F", bound=Followed)


class FollowedScopes(Generic[F]):
    """What was made of the scopes that were read last. One call at a time.

    Args:
        feed: The store.
        make: Makes what an empty scope has.
        thread: Runs all work on it.
        most_bytes: About how much memory all of it may take; the last one always stays.
        load: Returns what was made of a scope and saved, if anything.
    """

    def __init__(
        self,
        feed: EpisodeFeed,
        make: Callable[[ScopeFilter], F],
        thread: OneThread,
        *,
        most_bytes: int,
        load: Callable[[ScopeFilter], Loaded[F] | None] | None = None,
    ) -> None:
        self._feed = feed
        self._load = load
        self._make = make
        self._thread = thread
        self._most_bytes = most_bytes
        self._place: FeedPlace | None = None
        self._kept: OrderedDict[ScopeFilter, F] = OrderedDict()

    @property
    def place(self) -> FeedPlace | None:
        """Up to where all that is kept knows the episodes; None when nothing is kept."""
        return self._place

    def kept(self) -> list[tuple[ScopeFilter, F]]:
        """Return what is kept, by scope."""
        return [*self._kept.items()]

    async def current(self, scope: ScopeFilter) -> F:
        """Return what is made of a scope as the store is now."""
        await self._follow()
        if scope not in self._kept:
            with collection_paused():
                self._kept[scope] = await self._read(scope)
        self._kept.move_to_end(scope)
        while len(self._kept) > 1 and self._size_bytes() > self._most_bytes:
            self._kept.popitem(last=False)
        return self._kept[scope]

    def drop(self, user: str) -> None:
        """Drop what was made of the scopes of a user."""
        for scope in [scope for scope in self._kept if scope.user == user]:
            del self._kept[scope]

    async def _read(self, scope: ScopeFilter) -> F:
        found = await self._read_saved(scope)
        if found is not None:
            return found
        reading = await self._feed.read_scope(scope)
        if self._place is None:
            self._place = reading.place
        return await self._thread.run(lambda: self.make(scope, reading.versions))

    async def _read_saved(self, scope: ScopeFilter) -> F | None:
        """Return what was saved of a scope, brought up to date; None when it cannot be."""
        if self._load is None:
            return None
        loaded = await self._thread.run(partial(self._load, scope))
        if loaded is None:
            return None
        place, made = loaded
        changes = await self._feed.changes(place, most=max(_MOST_CHANGES, len(made) // 2))
        # A store that was restored from a backup may have had fewer deletions.
        if changes is None or changes.place.deletion < place.deletion:
            return None
        if changes.rows:
            await self._thread.run(partial(made.replace, changes.rows, changes.versions))
        if self._place is None:
            self._place = changes.place
        return made

    def make(self, scope: ScopeFilter, versions: Iterable[NumberedVersion]) -> F:
        """Return what is made of a scope with some episodes."""
        made = self._make(scope)
        made.replace((), versions)
        return made

    async def _follow(self) -> None:
        """Bring all scopes up to date; forget them when the store cannot tell what changed."""
        if self._place is None:
            return
        changes = await self._feed.changes(self._place, most=_MOST_CHANGES)
        if changes is None:
            self._kept.clear()
            self._place = None
            return
        if changes.rows:
            await self._thread.run(lambda: self._apply(changes))
        self._place = changes.place

    def _apply(self, changes: FeedChanges) -> None:
        for one in self._kept.values():
            one.replace(changes.rows, changes.versions)

    def _size_bytes(self) -> int:
        return sum(one.size_bytes for one in self._kept.values())

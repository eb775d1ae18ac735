"""Keep what was made of the scopes that were read last, and let it follow the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from slumberd.garbage_collection import collection_paused
from slumberd.model.fact import Fact, FactPattern, QuotedEpisode, SupersededByEpisode
from slumberd.model.feed import (
    Changes,
    FactPlace,
    FeedPlace,
    FindRows,
    NumberedFact,
    NumberedVersion,
    Reading,
)
from slumberd.model.scope import ScopeFilter

MOST_CHANGES = 5_000
"""After more changes than this, reading a scope again takes no longer than following them."""

_BYTES_OF_A_CHANGE = 3_000
"""About the bytes of a change that waits until its scope is searched."""

_THREADS = 4
"""Long work for so many users goes on at once; they share the interpreter."""

FEW_TEXTS = 1_000
"""A search of so few texts takes less than a millisecond, so it needs no thread."""

T = TypeVar("T")
P = TypeVar("P")
V = TypeVar("V", bound=NumberedVersion | NumberedFact)


class Feed(Protocol[P, V]):
    """Tells indexes what a store holds."""

    async def place(self) -> P:
        """Return where a reader that reads scopes from now on goes on later."""
        ...

    async def read_scope(self, scope: ScopeFilter) -> Reading[P, V]:
        """Return all that is readable in a scope."""
        ...

    async def changes(self, place: P, *, most: int) -> Changes[P, V] | None:
        """Return what changed after a place; None when that is unknown, or more than `most`."""
        ...


class EpisodeFeed(Feed[FeedPlace, NumberedVersion], Protocol):
    """Tells indexes which episodes a store holds."""

    async def versions(self, rows: Iterable[int]) -> list[NumberedVersion]:
        """Return what is readable in some rows."""
        ...


class SearchedEpisodes(Protocol):
    """A store of episodes that a search reads."""

    @property
    def feed(self) -> EpisodeFeed:
        """What its indexes read."""
        ...


class SearchedFacts(Protocol):
    """A store of facts that a search reads."""

    @property
    def feed(self) -> Feed[FactPlace, NumberedFact]:
        """What its indexes read: the current facts and marks."""
        ...

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


class UserThreads:
    """Runs work in threads; the work for one user runs one piece after the other.

    A caller that is cancelled does not wait for its work, but later work for the same user does.
    So no two pieces change an index at the same time. No user waits for another's work.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, "slumberd-search")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: WeakValueDictionary[str, Future[Any]] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait until no other caller uses what is made for a user, and let others wait."""
        lock = self._locks.setdefault(user, asyncio.Lock())
        async with lock:
            yield

    async def run(self, user: str, work: Callable[[], T], *, is_short: bool = False) -> T:
        """Run work for a user, and return its result.

        Args:
            is_short: Whether the work takes a millisecond at most. It runs in the caller's thread:
                while other threads work, each change of the thread takes longer.
        """
        while (left := self._running.get(user)) is not None and not left.done():
            await _end_of(left)
        if is_short:
            return work()
        running = self._executor.submit(work)
        self._running[user] = running
        return await asyncio.wrap_future(running)


async def _end_of(left: Future[Any]) -> None:
    """Wait for the work of a caller that was cancelled."""
    try:
        await asyncio.wrap_future(left)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not left.cancelled() or (task is not None and task.cancelling()):
            raise
    except Exception:  # noqa: BLE001, S110 # nobody waits for its result
        pass


class MemoryBound:
    """How much memory all that is kept may take, whatever kinds of it there are.

    Attributes:
        most_bytes: About how much it may take. What was used last of each kind always stays.

    Args:
        kinds: How many kinds.
    """

    def __init__(self, most_bytes: int, *, kinds: int = 1) -> None:
        self.most_bytes = most_bytes
        self._kinds = kinds
        self._sizes: OrderedDict[tuple[ScopeFilter, Callable[[ScopeFilter], None]], int] = (
            OrderedDict()
        )
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """About how much memory is taken."""
        return self._size_bytes

    def use(self, scope: ScopeFilter, drop: Callable[[ScopeFilter], None], size: int) -> None:
        """Note that what is made of a scope is used now; drop what was used longest ago.

        Args:
            drop: Drops it; one function for each kind.
            size: The bytes that it takes.
        """
        self._sizes[scope, drop] = self._sizes.pop((scope, drop), 0)
        self.resize(scope, drop, size)

    def resize(self, scope: ScopeFilter, drop: Callable[[ScopeFilter], None], size: int) -> None:
        """Note how many bytes something takes now, if it is kept."""
        if (scope, drop) not in self._sizes:
            return
        self._size_bytes += size - self._sizes[scope, drop]
        self._sizes[scope, drop] = size
        while len(self._sizes) > self._kinds and self._size_bytes > self.most_bytes:
            (first, drop_first), _ = next(iter(self._sizes.items()))
            drop_first(first)

    def forget(self, scope: ScopeFilter, drop: Callable[[ScopeFilter], None]) -> None:
        """Note that what was made of a scope is not kept any more."""
        self._size_bytes -= self._sizes.pop((scope, drop), 0)


class RowIds:
    """The ids of what is in the rows of a table.

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

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def among(self, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that have an id here."""
        return [row for row in rows if row in self._ids]

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
    """What is made of one scope."""

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        ...

    def __len__(self) -> int:
        """Return of how many episodes or facts it has something."""
        ...

    def rows(self) -> Iterable[Any]:
        """Return the rows that something in it comes from."""
        ...

    def rows_among(self, rows: Iterable[Any]) -> Iterable[Any]:
        """Return those of some rows that something in it comes from; another thread may change it.

        Args:
            rows: The rows, of any scopes.
        """
        ...

    def replace(self, rows: Iterable[Any], versions: Iterable[Any]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes.

        Args:
            rows: The rows.
            versions: What is in these rows now, of any scopes.
        """
        ...


F = TypeVar("F", bound=Followed)


class Batch(NamedTuple, Generic[V]):
    """What was written at once: rows, and what was in them then, of any scopes."""

    rows: frozenset[Any]
    versions: Sequence[V]


class _Kept(Generic[F, V]):
    """What is made of a scope, and what has changed since.

    Attributes:
        made: None while the scope is read.
        changes: What has changed since, in order.
        rows: The rows of these changes.
        find_rows: Returns the rows that the scope has now, when others may be gone; else None.
    """

    def __init__(self) -> None:
        self.made: F | None = None
        self.changes: list[Batch[V]] = []
        self.rows: set[Any] = set()
        self.find_rows: FindRows | None = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes, with the changes."""
        made = 0 if self.made is None else self.made.size_bytes
        return made + _BYTES_OF_A_CHANGE * len(self.rows)

    def rows_among(self, rows: frozenset[Any]) -> frozenset[Any]:
        """Return those of some rows that something in it, or in the changes, may come from."""
        return rows if self.made is None else (rows & self.rows).union(self.made.rows_among(rows))

    def add(self, rows: frozenset[Any], versions: Sequence[V]) -> None:
        """Note a change."""
        self.changes.append(Batch(rows, versions))
        self.rows |= rows

    def end(self, count: int) -> None:
        """Forget the first changes, which are applied."""
        del self.changes[:count]
        self.rows = {row for batch in self.changes for row in batch.rows}


class FollowedScopes(Generic[F, V]):
    """What was made of the scopes that were read last. For each user, one call at a time.

    Args:
        feed: The store.
        make: Makes what an empty scope has.
        threads: Runs all work on it.
        bound: How much memory all of it may take.
    """

    def __init__(
        self,
        feed: Feed[Any, V],
        make: Callable[[ScopeFilter], F],
        threads: UserThreads,
        bound: MemoryBound,
    ) -> None:
        self._feed: Feed[Any, V] = feed
        self._make = make
        self._threads = threads
        self._bound = bound
        self._place: Any = None
        self._kept: dict[ScopeFilter, _Kept[F, V]] = {}
        self._following = asyncio.Lock()
        self._begun = self._done = 0

    @property
    def place(self) -> Any:  # noqa: ANN401 # as the feed has it
        """Up to where changes are noted; None before the first. A later `current` has them."""
        return self._place

    def kept(self) -> list[tuple[ScopeFilter, F]]:
        """Return what is kept, by scope."""
        return [(scope, one.made) for scope, one in self._kept.items() if one.made is not None]

    async def current(self, scope: ScopeFilter) -> F:
        """Return what is made of a scope as the store is now."""
        await self._follow()
        kept = self._kept.get(scope)
        if kept is None or kept.made is None:
            return await self._read(scope)
        made = kept.made
        await self._apply(scope, kept, made)
        if self._kept.get(scope) is kept:
            self._bound.use(scope, self._drop, kept.size_bytes)
        return made

    def drop(self, user: str) -> None:
        """Drop what was made of the scopes of a user."""
        for scope in [scope for scope in self._kept if scope.user == user]:
            self._drop(scope)

    def _drop(self, scope: ScopeFilter) -> None:
        del self._kept[scope]
        self._bound.forget(scope, self._drop)

    async def _read(self, scope: ScopeFilter) -> F:
        """Read a scope, which takes long; its changes are noted meanwhile."""
        kept = self._kept[scope] = _Kept[F, V]()
        try:
            made = await self._begin(scope)
            if kept.changes:  # some may be older than the reading; together they are exact
                await self._follow()
        except BaseException:
            if self._kept.get(scope) is kept:
                self._drop(scope)
            raise
        if self._kept.get(scope) is kept:
            kept.made = made
            await self._apply(scope, kept, made)
            self._bound.use(scope, self._drop, kept.size_bytes)
        return made

    async def _begin(self, scope: ScopeFilter) -> F:
        """Return what is made of a scope, as the store is now or later."""
        reading = await self._feed.read_scope(scope)
        with collection_paused():
            return await self._threads.run(scope.user, lambda: self.make(scope, reading.versions))

    def make(self, scope: ScopeFilter, versions: Iterable[V]) -> F:
        """Return what is made of a scope that has this."""
        made = self._make(scope)
        made.replace((), versions)
        return made

    async def _apply(self, scope: ScopeFilter, kept: _Kept[F, V], made: F) -> None:
        changes, find_rows = [*kept.changes], kept.find_rows
        await self._replace(scope, made, changes, find_rows)
        kept.end(len(changes))
        if kept.find_rows is find_rows:
            kept.find_rows = None

    async def _replace(
        self,
        scope: ScopeFilter,
        made: F,
        changes: Sequence[Batch[V]],
        find_rows: FindRows | None,
    ) -> None:
        """Apply changes in order, then remove the rows that the scope does not have any more."""
        there = None if find_rows is None else await find_rows(scope)
        if not changes and there is None:
            return

        def apply() -> None:
            for batch in changes:
                made.replace(batch.rows, batch.versions)
            if there is not None:
                made.replace([row for row in made.rows() if row not in there], ())

        await self._threads.run(scope.user, apply)

    async def _follow(self) -> None:
        """Note what has changed in all scopes; forget them when the store cannot tell.

        Callers that wait together need only one reading that began after their calls.
        """
        asked = self._begun
        async with self._following:
            if self._done > asked:
                return
            self._begun += 1
            begun = self._begun
            await self._read_changes()
            self._done = begun

    async def _read_changes(self) -> None:
        if self._place is not None:
            changes = await self._feed.changes(self._place, most=MOST_CHANGES)
            if changes is not None:
                self._place = changes.place
                self._note(changes)
                return
        for scope in [*self._kept]:
            self._drop(scope)
        # At once: what is read from now on is no older.
        self._place = await self._feed.place()

    def _note(self, changes: Changes[Any, V]) -> None:
        """Note changes at the scopes that they concern."""
        if changes.find_rows is not None:
            for kept in self._kept.values():
                kept.find_rows = changes.find_rows
        if not changes.rows:
            return
        by_user: dict[str, list[V]] = defaultdict(list)
        for one in changes.versions:
            by_user[one.version.user].append(one)
        for scope, kept in [*self._kept.items()]:
            own = by_user.get(scope.user, [])
            rows = kept.rows_among(changes.rows)
            if own or rows:
                kept.add(rows.union(one.row for one in own), own)
                self._bound.resize(scope, self._drop, kept.size_bytes)

"""Use any store of entries as one of many owners, and replace entries in any store.

A store of a host may have only the methods of `MemoryStoreProtocol`, which know no owners.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    OwnedStoreProtocol,
    SearchableProtocol,
)
from slumberd.integrations.tiers.errors import ConsolidationError, MemoryStoreError
from slumberd.model.scope import canonical

Found = TypeVar("Found", MemoryEntry, MemorySearchResult)

_DELETED_AT_ONCE = 100


class ConsolidatedStore(Protocol):
    """The least that a consolidation needs of a store; a `MemoryStoreProtocol` has more."""

    async def store(self, entry: MemoryEntry) -> object:
        """Store an entry; one with the same id is replaced."""
        ...

    async def get_recent(self, n: int) -> Sequence[MemoryEntry]:
        """Return at most so many entries, newest first."""
        ...

    async def delete(self, entry_id: str) -> object:
        """Delete an entry; one that does not exist is ignored."""
        ...


@runtime_checkable
class ReplacingStoreProtocol(Protocol):
    """A store that replaces entries in one step."""

    async def replace_entries(
        self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry], *, owner_id: str = ""
    ) -> bool:
        """Delete entries of an owner and store others, all or nothing.

        Returns:
            False, and nothing is done, when an entry of `old` was changed or deleted since it was
            read.
        """
        ...


Unfinished = dict[str, tuple[MemoryEntry, str]]
"""Entries that a store must still delete, by id, each with the id of its stored summary."""


class OwnerEntries:
    """Replaces and deletes entries of one owner, unless they have changed since they were read.

    Each change is one transaction in a store that has `replace_entries`. Any other store is read
    once, before the first change: what is written to it later is not seen. What is new is stored
    there before anything is deleted, so an end of the process in between loses nothing.

    Args:
        store: The store.
        owner_id: The owner.
        unfinished: Outlives this object: the entries of the owner that a failing store has not
            deleted yet, each with the id of its stored summary.
    """

    def __init__(
        self, store: OwnedStoreProtocol, owner_id: str, unfinished: Unfinished | None = None
    ) -> None:
        self._store = store
        self._owner_id = owner_id
        self._unfinished: Unfinished = {} if unfinished is None else unfinished
        self._stored: dict[str, MemoryEntry] | None = None

    async def replace(self, old: Sequence[MemoryEntry], new: Sequence[MemoryEntry]) -> bool:
        """Delete entries and store others; return False, and do nothing, when one has changed."""
        store = self._store
        if isinstance(store, ReplacingStoreProtocol):
            return await store.replace_entries(old, new, owner_id=self._owner_id)
        stored = await self._load()
        if not are_unchanged(old, stored):
            return False
        # Before the write: one that fails may have written all the same.
        gone, known = without(old, new), {entry.id: entry for entry in old}
        for summary in [entry for entry in new if entry.id not in known]:
            self._unfinished.update({id: (known[id], summary.id) for id in gone})
        # The owner is known to have these ids, so a store without owners need not be asked again.
        host = store.host if isinstance(store, _PlainStore) else None
        for entry in new:
            into = host if host is not None and entry.id in stored else store
            await into.store(entry)
            stored[entry.id] = entry
        delete: Callable[..., Awaitable[object]] = (store if host is None else host).delete
        whose = _whose(delete, self._owner_id)
        for entry_id in gone:
            await delete(entry_id, **whose)
            del stored[entry_id]
            self._unfinished.pop(entry_id, None)
        return True

    async def finish(self) -> None:
        """Delete what a stored summary replaces, if both are as they were: a call before failed."""
        if self._unfinished:
            stored = await self._load()
            for entry_id, (entry, summary_id) in [*self._unfinished.items()]:
                if summary_id in stored:
                    await self.replace([entry], [])
                self._unfinished.pop(entry_id, None)

    async def _load(self) -> dict[str, MemoryEntry]:
        if self._stored is None:
            found = await self._store.get_recent(sys.maxsize, owner_id=self._owner_id)
            self._stored = {entry.id: entry for entry in found}
        return self._stored

    async def delete(self, entries: Sequence[MemoryEntry], deleted: list[MemoryEntry]) -> None:
        """Delete those of some entries that have not changed.

        Args:
            entries: What goes.
            deleted: Gets each entry that is gone, also when an error ends the call.
        """
        one_step = isinstance(self._store, ReplacingStoreProtocol)
        size = _DELETED_AT_ONCE if one_step else 1
        for first in range(0, len(entries), size):
            some = entries[first : first + size]
            if await self.replace(some, []):
                deleted.extend(some)
                continue
            for entry in some if size > 1 else ():
                if await self.replace([entry], []):
                    deleted.append(entry)  # noqa: PERF401 # it must be there when the next fails


def without(old: Sequence[MemoryEntry], new: Sequence[MemoryEntry]) -> list[str]:
    """Return the ids of entries that no new entry replaces in place: they are deleted."""
    stored = {entry.id for entry in new}
    return [entry.id for entry in old if entry.id not in stored]


def are_unchanged(entries: Sequence[MemoryEntry], stored: Mapping[str, MemoryEntry]) -> bool:
    """Return whether a store still has all of some entries as they were."""
    return all(is_unchanged(entry, stored.get(entry.id)) for entry in entries)


def is_unchanged(entry: MemoryEntry, stored: MemoryEntry | None) -> bool:
    """Return whether a store still has an entry as it was; lists and tuples count as equal."""
    if stored is None:
        return False
    if entry is stored:
        return True
    # The database returns tuples as lists, and a host's vectors may be arrays.
    plain, other = (replace(one, metadata={}, embedding=None) for one in (entry, stored))
    try:
        if plain != other or vector_of(entry) != vector_of(stored):
            return False
        same = bool(entry.metadata == stored.metadata)
        return same or canonical(entry.metadata) == canonical(stored.metadata)
    except (TypeError, ValueError):  # a store of a host keeps values that JSON does not have
        return False


def vector_of(entry: MemoryEntry) -> list[float] | None:
    """Return the vector of an entry as numbers; that of a host may be an array."""
    return None if entry.embedding is None else [float(value) for value in entry.embedding]


def owned_store(store: ConsolidatedStore) -> OwnedStoreProtocol:
    """Return a store whose methods take an owner: the same one if its methods do."""
    if isinstance(store, OwnedStoreProtocol) and takes(store.delete, "owner_id"):
        return store
    return _PlainStore(store)


def takes(function: Callable[..., object], parameter: str) -> bool:
    """Return whether a function of a host has a parameter of a name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _whose(method: Callable[..., object], owner_id: str) -> dict[str, Any]:
    """Return the owner as an argument of a method that takes one."""
    return {"owner_id": owner_id} if takes(method, "owner_id") else {}


class _PlainStore:
    """A store with methods that take no owner, used by owner; implements `OwnedStoreProtocol`.

    The entries say whose they are. No call sees or deletes entries of two owners. A method that
    takes an owner gets it.

    Args:
        host: The store.
    """

    def __init__(self, host: ConsolidatedStore) -> None:
        self.host = host
        self.source = getattr(host, "source", type(host).__name__)
        self._may_have_owners = True

    async def store(self, entry: MemoryEntry) -> None:
        """Store an entry.

        All entries are read first, but not for an entry without an owner in a store in which no
        entry had one at the last such write.

        Raises:
            MemoryStoreError: Another owner has an entry of that id, which would be lost.
        """
        asks = entry.owner_id or self._may_have_owners
        if asks and not takes(self.host.get_recent, "owner_id"):
            # A store without owners would replace it by its id.
            self._may_have_owners = True
            stored = await self.host.get_recent(sys.maxsize)
            if not entry.owner_id:
                self._may_have_owners = any(one.owner_id for one in stored)
            if any(one.id == entry.id and one.owner_id != entry.owner_id for one in stored):
                message = f"another owner has an entry with the id {entry.id!r}"
                raise MemoryStoreError(message, self.source)
        await self.host.store(entry)

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        """Return the best results of one owner, best first.

        Raises:
            MemoryStoreError: The store has no method `retrieve`.
        """
        store = self.host
        if not isinstance(store, SearchableProtocol):
            raise MemoryStoreError("the store has no method retrieve", self.source)

        async def ask(number: int) -> Sequence[MemorySearchResult]:
            return await store.retrieve(replace(query, top_k=number))

        return await _first(query.top_k, ask, lambda one: one.entry.owner_id == query.owner_id)

    async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the latest entries of an owner, newest first."""
        recent = partial(self.host.get_recent, **_whose(self.host.get_recent, owner_id))
        return await _first(n, recent, lambda entry: entry.owner_id == owner_id)

    async def delete(self, entry_id: str, *, owner_id: str = "") -> None:
        """Delete an entry, unless it is of another owner."""
        if whose := _whose(self.host.delete, owner_id):
            await self.host.delete(entry_id, **whose)
            return
        entries = await self.host.get_recent(sys.maxsize)
        if all(entry.owner_id == owner_id for entry in entries if entry.id == entry_id):
            await self.host.delete(entry_id)

    async def clear(self, *, owner_id: str = "") -> None:
        """Delete all entries of an owner."""
        whose = _whose(self.host.delete, owner_id)
        for entry in await self.get_recent(sys.maxsize, owner_id=owner_id):
            await self.host.delete(entry.id, **whose)

    async def owners(self) -> list[str]:
        """Return the owners that have entries, sorted.

        Raises:
            ConsolidationError: Two entries have the same id, of whichever owners.
            MemoryStoreError: The store knows its owners, and does not tell them.
        """
        tells = getattr(self.host, "owners", None)
        if tells is not None:
            found: list[str] = await tells()
            return found
        if takes(self.host.get_recent, "owner_id"):
            message = "the store takes an owner_id, but has no method owners, which lists them"
            raise MemoryStoreError(message, self.source)
        entries = await self.host.get_recent(sys.maxsize)
        refuse_repeated_ids(entries)
        return sorted({entry.owner_id for entry in entries})

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health that the store tells; one that tells none must answer a read."""
        tells = getattr(self.host, "health_check", None)
        if tells is None:
            await self.host.get_recent(1)
            return HealthCheckResult(self.source)
        found: HealthCheckResult = await tells(timeout)
        return found


async def _first(
    number: int, ask: Callable[[int], Awaitable[Sequence[Found]]], accept: Callable[[Found], bool]
) -> list[Found]:
    """Return the first results that are accepted; ask for more while others take their places."""
    wanted = max(0, number)
    while True:
        found = await ask(wanted)
        accepted = [one for one in found if accept(one)]
        if len(accepted) >= number or len(found) < wanted:
            return accepted[: max(0, number)]
        wanted *= 2


def refuse_repeated_ids(entries: Sequence[MemoryEntry]) -> None:
    """Refuse entries with the same id: to delete one would delete the other, of any owner.

    Raises:
        ConsolidationError: Two entries have the same id.
    """
    counts = Counter(entry.id for entry in entries)
    if repeated := sorted(id for id, count in counts.items() if count > 1):
        raise ConsolidationError(f"two entries have the id {repeated[0]!r}")

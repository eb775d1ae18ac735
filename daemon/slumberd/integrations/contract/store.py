"""The synchronous memory contract, and a store that keeps each record as an episode."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from heapq import nlargest
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from slumberd.client.portal import Portal
from slumberd.clock import Clock, SystemClock
from slumberd.integrations.contract.records import (
    Draft,
    MemoryRecord,
    MemorySearchQuery,
    MemoryWriteRecord,
    are_equal,
    draft_records,
    episode_id_of,
    episodes_of,
    json_problem,
    record_of,
    scope_of_namespace,
)
from slumberd.model.feed import NumberedVersion
from slumberd.model.scope import Scope, ScopeFilter
from slumberd.model.texts import AUTO
from slumberd.search.followed_scopes import FollowedScopes, MemoryBound, RowIds, UserThreads
from slumberd.search.scope_index import FoundText, IndexedTurn, ScopeIndex
from slumberd.storage.episodes.owned import write_revision
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore


@runtime_checkable
class MemoryStore(Protocol):
    """A synchronous store of records in namespaces."""

    def write(
        self, records: Sequence[MemoryWriteRecord], *, namespace: str = "default"
    ) -> list[MemoryRecord]:
        """Write all of the records or none; return them as they are stored, in the same order."""
        ...

    def search(self, query: MemorySearchQuery) -> list[MemoryRecord]:
        """Return the records that answer a question, best first."""
        ...

    def close(self) -> None:
        """Release what the store holds; a store that holds nothing does nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> bool | None:
        self.close()
        return None


_MOST_BYTES = 500_000_000
"""About how much memory the namespaces may take; the last one always stays."""


class EpisodeMemoryStore(MemoryStore):
    """Records in slumberd's ``memory.db``; implements `MemoryStore`.

    A namespace is a user there, with the session ``records`` and the agent ``contract``. The store
    may be used from any threads. Other stores and processes may use the same file.

    Args:
        path: The file; the first call creates it and its directories.
        language: The language of the texts, for the stems of words; ``auto`` recognises it in each
            namespace; None stems no word.
        vectors: Whether meanings count, too; needs the extra ``vectors``.
        clock: The time of writes.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
        UsageError: The language is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        language: str | None = AUTO,
        vectors: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        new_index = partial(ScopeIndex, language=language, vectors=vectors)
        new_index()  # raises now what the first search would raise
        self._clock = clock or SystemClock()
        self._memory = SQLiteMemoryStore(self.path, clock=self._clock)
        self._namespaces = FollowedScopes[Namespace, NumberedVersion](
            self._memory.feed,
            lambda namespace: Namespace(namespace, new_index()),
            UserThreads(),
            MemoryBound(_MOST_BYTES),
        )
        self._following = asyncio.Lock()
        self._portal = Portal(str(self.path))

    def write(
        self, records: Sequence[MemoryWriteRecord], *, namespace: str = "default"
    ) -> list[MemoryRecord]:
        """Write all of the records or none; return them as they are stored, in the same order.

        A record replaces that of the same namespace and id, and keeps its ``created_at``. All are
        committed when this returns. They survive the end of the process.

        Args:
            namespace: Where they go, without spaces around it; blank means ``default``.

        Raises:
            MemoryScopeError: The namespace is no text, or holds a control character.
            RecordRefusedError: A value is no record, JSON would change a value, or two records have
                the same id.
            StoreClosedError: The store is closed.
        """
        scope = scope_of_namespace(namespace, operation="write")
        drafts = draft_records(records, scope.user)
        return self._portal.call(partial(self._write, drafts, scope))

    async def _write(self, drafts: Sequence[Draft], scope: Scope) -> list[MemoryRecord]:
        if not drafts:
            return []
        revise = partial(episodes_of, drafts, scope, at=self._clock.now())
        ids = [draft.episode_id for draft in drafts]
        written = await self._memory.engine.write(partial(write_revision, ids=ids, revise=revise))
        self._memory.engine.notify()
        return [record for episode in written if (record := record_of(episode))]

    def search(self, query: MemorySearchQuery) -> list[MemoryRecord]:
        """Return the records that answer a question, best first.

        Equal scores are ordered by ``updated_at``, then by ``item_id``, both descending. The
        records are as they are in the file now, whoever wrote them.

        Raises:
            MemoryScopeError: The namespace is no text, or holds a control character.
            StoreClosedError: The store is closed.
            ValueError: ``top_k`` is below 1, ``min_score`` is no number, a filter has a value that
                no metadata can have, or a value is of another type.
        """
        _check(query)
        scope = scope_of_namespace(query.namespace, operation="search")
        asked = replace(query, metadata_filters=deepcopy(query.metadata_filters))
        return self._portal.call(partial(self._search, asked, scope))

    async def _search(self, query: MemorySearchQuery, scope: Scope) -> list[MemoryRecord]:
        return (await self._current(scope)).search(query)

    async def _current(self, scope: Scope) -> Namespace:
        async with self._following:
            return await self._namespaces.current(ScopeFilter(*scope))

    def get(self, item_id: str, *, namespace: str = "default") -> MemoryRecord | None:
        """Return the record with an id, without a score; None when there is none.

        Raises:
            MemoryScopeError: The namespace is no text, or holds a control character.
            StoreClosedError: The store is closed.
            ValueError: The id is no text.
        """
        if problem := json_problem(item_id, "item_id"):
            raise ValueError(problem)
        if type(item_id) is not str:
            raise ValueError(f"item_id is {type(item_id).__name__}, not str")
        scope = scope_of_namespace(namespace, operation="get")
        return self._portal.call(partial(self._get, item_id, scope))

    async def _get(self, item_id: str, scope: Scope) -> MemoryRecord | None:
        return (await self._current(scope)).get(episode_id_of(scope.user, item_id.strip()))

    def recent(self, limit: int, *, namespace: str = "default") -> list[MemoryRecord]:
        """Return the records that were updated last, newest first, without scores.

        Raises:
            MemoryScopeError: The namespace is no text, or holds a control character.
            StoreClosedError: The store is closed.
            ValueError: The limit is below 1.
        """
        _check_number("limit", limit)
        scope = scope_of_namespace(namespace, operation="recent")
        return self._portal.call(partial(self._recent, limit, scope))

    async def _recent(self, limit: int, scope: Scope) -> list[MemoryRecord]:
        return (await self._current(scope)).recent(limit)

    def close(self) -> None:
        """Let running calls finish, and close the file; later calls raise `StoreClosedError`."""
        self._portal.close(self._memory.close)


def _check(query: object) -> None:
    if not isinstance(query, MemorySearchQuery):
        raise ValueError(f"{type(query).__name__} is no MemorySearchQuery")  # noqa: TRY004 # as for other wrong values
    text: object = query.text
    filters: object = query.metadata_filters
    if not isinstance(text, str):
        raise ValueError(f"text is {type(text).__name__}, not str")  # noqa: TRY004 # see above
    if not isinstance(filters, dict):
        raise ValueError(f"metadata_filters is {type(filters).__name__}, not dict")  # noqa: TRY004
    _check_number("top_k", query.top_k)
    least: object = query.min_score
    if not isinstance(least, int | float | None) or (
        isinstance(least, float) and math.isnan(least)
    ):
        raise ValueError("min_score is no number")
    if problem := json_problem(query.metadata_filters, "metadata_filters"):
        raise ValueError(problem)


def _check_number(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be at least 1")


_BYTES_OF_A_RECORD = 1_000

_ABOVE_ALL = 2.0
"""No score is as high; a whole number of any size is a `min_score`."""

_MOST_EQUAL = 150
"""So many texts are scored anyway. More equal scores than this need another search."""


class Namespace:
    """The records of one namespace, with their index.

    Args:
        scope: The scope that holds the namespace.
        index: An empty index.
    """

    def __init__(self, scope: ScopeFilter, index: ScopeIndex) -> None:
        self._scope = scope
        self._index = index
        self._records: dict[str, MemoryRecord] = {}
        self._rows = RowIds()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """About how much memory the records and the index take."""
        return self._index.size_bytes + _BYTES_OF_A_RECORD * len(self._records)

    def rows(self) -> list[int]:
        """Return the rows of the records."""
        return [*self._rows]

    def rows_among(self, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that a record is in."""
        return self._rows.among(rows)

    def replace(self, rows: Iterable[int], versions: Iterable[NumberedVersion]) -> None:
        """Read rows again: what was in them goes, and what is in them now comes."""
        gone = self._rows.take(rows)
        for id in gone:
            del self._records[id]
        self._index.drop(gone)
        turns = []
        for row, version in versions:
            if self._scope.holds(version) and (record := record_of(version)):
                self._rows.put(row, version.id)
                self._records[version.id] = record
                # Without a session and a date: only its own words and meaning find a record.
                turns.append(IndexedTurn(version.id, record.content))
        self._index.put(turns)

    def search(self, query: MemorySearchQuery) -> list[MemoryRecord]:
        """Return the records that answer a question, best first; equal ones newest first."""
        found = [self._hit(match) for match in self._matches(query)]
        found.sort(key=_rank, reverse=True)
        return found[: query.top_k]

    def get(self, id: str) -> MemoryRecord | None:
        """Return a copy of the record that an episode keeps."""
        return None if (record := self._records.get(id)) is None else _copy(record)

    def recent(self, limit: int) -> list[MemoryRecord]:
        """Return the records that were updated last; newest first."""
        return [_copy(record) for record in nlargest(limit, self._records.values(), key=_rank)]

    def _matches(self, query: MemorySearchQuery) -> list[FoundText]:
        """Return the best matches, and all others that are as good as the last one."""
        found = self._best(query, limit := max(query.top_k, _MOST_EQUAL))
        if len(found) < limit or found[-1].score < found[query.top_k - 1].score:
            return found
        return self._best(query, len(self._records))

    def _best(self, query: MemorySearchQuery, limit: int) -> list[FoundText]:
        filters = query.metadata_filters
        return self._index.search(
            query.text,
            limit=limit,
            least=min(max(query.min_score or 0.0, 0.0), _ABOVE_ALL),
            accept=(lambda id: self._passes(id, filters)) if filters else None,
        )

    def _passes(self, id: str, filters: Mapping[str, object]) -> bool:
        metadata = self._records[id].metadata
        return all(
            key in metadata and are_equal(metadata[key], value) for key, value in filters.items()
        )

    def _hit(self, match: FoundText) -> MemoryRecord:
        """Return a copy of a record with its scores."""
        return replace(
            _copy(self._records[match.id]),
            score=match.score,
            lexical_score=match.lexical,
            # Texts with opposite directions have no more in common than those with none.
            vector_score=None if match.vector is None else max(match.vector, 0.0),
        )


def _copy(record: MemoryRecord) -> MemoryRecord:
    return replace(record, metadata=deepcopy(record.metadata))


def _rank(record: MemoryRecord) -> tuple[float, str, str]:
    return record.score or 0.0, record.updated_at or "", record.item_id

"""A synchronous store of records that keeps each record as an episode."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

from slumberd.clock import Clock, SystemClock
from slumberd.contract.namespaces import Namespace
from slumberd.contract.protocols import MemoryStore
from slumberd.contract.records import (
    Draft,
    draft_records,
    episodes_of,
    json_problem,
    record_of,
    scope_of_namespace,
)
from slumberd.contract.values import MemoryRecord, MemorySearchQuery, MemoryWriteRecord
from slumberd.model.scope import Scope, ScopeFilter
from slumberd.portal import Portal
from slumberd.retrieval.followed_scopes import FollowedScopes, OneThread
from slumberd.retrieval.languages import AUTO
from slumberd.retrieval.scope_index import ScopeIndex
from slumberd.storage.episodes.owned import write_revision
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore

_MOST_BYTES = 500_000_000
"""About how much memory the namespaces may take; the last one always stays."""


class EpisodeMemoryStore(MemoryStore):
    """Records in slumberd's ``memory.db``; implements `MemoryStore`.

    A namespace is a user there, with the session ``records`` and the agent ``contract``. The store
    may be used from any threads. Other stores and processes may use the same file.

    Attributes:
        path: The file.

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
        self._namespaces = FollowedScopes[Namespace](
            self._memory.feed,
            lambda namespace: Namespace(namespace, new_index()),
            OneThread(),
            most_bytes=_MOST_BYTES,
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
            records: The records.
            namespace: Where they go, without spaces around it; blank means ``default``.

        Raises:
            MemoryScopeError: The namespace holds a control character.
            RecordRefusedError: JSON would change a value, or two records have the same id.
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

        Args:
            query: The question.

        Raises:
            MemoryScopeError: The namespace holds a control character.
            StoreClosedError: The store is closed.
            ValueError: ``top_k`` is below 1, ``min_score`` is no number, or a filter has a value
                that no metadata can have.
        """
        scope = scope_of_namespace(query.namespace, operation="search")
        _check(query)
        asked = replace(query, metadata_filters=deepcopy(query.metadata_filters))
        return self._portal.call(partial(self._search, asked, scope))

    async def _search(self, query: MemorySearchQuery, scope: Scope) -> list[MemoryRecord]:
        async with self._following:
            namespace = await self._namespaces.current(ScopeFilter(*scope))
        return namespace.search(query)

    def close(self) -> None:
        """Let running calls finish, and close the file; later calls raise `StoreClosedError`."""
        self._portal.close(self._memory.close)


def _check(query: MemorySearchQuery) -> None:
    if query.top_k < 1:
        raise ValueError(f"top_k is {query.top_k}; it must be at least 1")
    if query.min_score is not None and math.isnan(query.min_score):
        raise ValueError("min_score is no number")
    if problem := json_problem(query.metadata_filters, "metadata_filters"):
        raise ValueError(problem)

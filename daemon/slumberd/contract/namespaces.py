"""Keep the records of one namespace in memory, with their index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace

from slumberd.contract.records import are_equal, record_of
from slumberd.contract.values import MemoryRecord, MemorySearchQuery
from slumberd.model.feed import NumberedVersion
from slumberd.model.scope import ScopeFilter
from slumberd.retrieval.followed_scopes import RowIds
from slumberd.retrieval.scope_index import FoundText, IndexedTurn, ScopeIndex

_BYTES_OF_A_RECORD = 1_000

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

    @property
    def size_bytes(self) -> int:
        """About how much memory the records and the index take."""
        return self._index.size_bytes + _BYTES_OF_A_RECORD * len(self._records)

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
            least=query.min_score or 0.0,
            accept=(lambda id: self._passes(id, filters)) if filters else None,
        )

    def _passes(self, id: str, filters: Mapping[str, object]) -> bool:
        metadata = self._records[id].metadata
        return all(
            key in metadata and are_equal(metadata[key], value) for key, value in filters.items()
        )

    def _hit(self, match: FoundText) -> MemoryRecord:
        """Return a copy of a record with its scores."""
        record = self._records[match.id]
        return replace(
            record,
            metadata=deepcopy(record.metadata),
            score=match.score,
            lexical_score=match.lexical,
            # Texts with opposite directions have no more in common than those with none.
            vector_score=None if match.vector is None else max(match.vector, 0.0),
        )


def _rank(record: MemoryRecord) -> tuple[float, str, str]:
    return record.score or 0.0, record.updated_at or "", record.item_id

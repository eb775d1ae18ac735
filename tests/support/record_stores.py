"""The stores that the suite of the memory contract runs on, and a small one in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slumberd.clock import Clock
from slumberd.contract import (
    EpisodeMemoryStore,
    MemoryRecord,
    MemorySearchQuery,
    MemoryStore,
    MemoryWriteRecord,
)
from slumberd.integrations.contract.records import are_equal, draft_records, json_problem
from slumberd.model.errors import StoreClosedError


class RecordsInMemory(MemoryStore):
    """Scores a record by how many of the words of the question it has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[tuple[str, str], MemoryRecord] = {}
        self._is_open = True

    def write(
        self, records: Sequence[MemoryWriteRecord], *, namespace: str = "default"
    ) -> list[MemoryRecord]:
        self._check_open()
        home, now = namespace.strip() or "default", self._clock.now().isoformat()
        written = []
        for draft in draft_records(records, home):
            key = (home, draft.item_id)
            before = self._records.get(key)
            created = before.created_at if before else now
            record = MemoryRecord(
                item_id=draft.item_id, namespace=home, content=draft.content,
                metadata=draft.metadata, created_at=created, updated_at=now,
            )  # fmt: skip
            self._records[key] = record
            written.append(replace(record, metadata=dict(record.metadata)))
        return written

    def search(self, query: MemorySearchQuery) -> list[MemoryRecord]:
        self._check_open()
        if query.top_k < 1 or query.min_score != query.min_score:
            raise ValueError(query)
        if problem := json_problem(query.metadata_filters, "filters"):
            raise ValueError(problem)
        asked, found = _words(query.text), []
        for record in self._records.values():
            score = len(asked & _words(record.content)) / max(len(asked), 1)
            least = score > 0 and score >= (query.min_score or 0.0)
            if least and record.namespace == (query.namespace.strip() or "default"):
                found.append(replace(record, score=score, lexical_score=score))
        wanted = query.metadata_filters.items()
        passing = [one for one in found if all(_has(one, key, value) for key, value in wanted)]
        return sorted(passing, key=_rank, reverse=True)[: query.top_k]

    def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreClosedError("memory")


def _has(record: MemoryRecord, key: str, value: object) -> bool:
    return key in record.metadata and are_equal(record.metadata[key], value)


def _rank(record: MemoryRecord) -> tuple[object, ...]:
    return record.score, record.updated_at, record.item_id


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


OpenStore = Callable[[Path, Clock], MemoryStore]

STORES: Mapping[str, OpenStore] = {
    "episodes": lambda folder, clock: EpisodeMemoryStore(folder / "memory.db", clock=clock),
    "memory": lambda _, clock: RecordsInMemory(clock),
}
"""By name, how a test opens an empty store."""


def record(content: str, item_id: str | None = None, **metadata: object) -> MemoryWriteRecord:
    """Return a record to write."""
    return MemoryWriteRecord(content=content, item_id=item_id, metadata=metadata)


def ask(text: str, **fields: object) -> MemorySearchQuery:
    """Return a question."""
    return MemorySearchQuery(text=text, **fields)  # type: ignore[arg-type] # of any field


def ids(records: Sequence[MemoryRecord]) -> list[str]:
    """Return the item ids of records, in their order."""
    return [one.item_id for one in records]

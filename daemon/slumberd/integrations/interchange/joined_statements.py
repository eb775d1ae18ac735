"""Keep statements that stand side by side in a file from replacing each other in the facts.

In some formats every statement holds until the file says that it ended. Statements of one subject
and predicate with one instant become the triples of one episode, whose claims hold together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from slumberd.consolidation.claim import MOST_TRIPLES
from slumberd.integrations.interchange.instants import INSTANT_FROM
from slumberd.integrations.interchange.records import ImportedRecord, triples_in, without
from slumberd.model.episode import Episode

_SLOTS = ("subject", "predicate", "object")
_TRIPLE = frozenset(_SLOTS)

_Key = tuple[str, str, str, Any, Any]


def join_statements(records: Iterable[ImportedRecord]) -> Iterator[ImportedRecord]:
    """Yield the records; those of single statements that hold still come last, joined."""
    joined: dict[tuple[_Key, datetime], list[ImportedRecord]] = {}
    for record in records:
        key = _key_of(record)
        if key is None:
            yield record
        else:
            joined.setdefault((key, record.episodes[0].timestamp), []).append(record)
    for found in joined.values():
        for first in range(0, len(found), MOST_TRIPLES + 1):
            yield _join(found[first : first + MOST_TRIPLES + 1])


def _key_of(record: ImportedRecord) -> _Key | None:
    """Return the scope, subject and predicate of a record that is one statement, and holds."""
    if len(record.episodes) != 1 or record.until is not None:
        return None
    [episode] = record.episodes
    metadata = episode.metadata
    if not _TRIPLE.issubset(metadata) or "triples" in metadata or "intent" in metadata:
        return None
    return (
        episode.user, episode.agent, episode.session, metadata["subject"], metadata["predicate"],
    )  # fmt: skip


def _join(records: list[ImportedRecord]) -> ImportedRecord:
    """Return one record of several; its id is the lowest, whatever the order in the file."""
    if len(records) == 1:
        return records[0]
    episodes = {record.episodes[0].id: record.episodes[0] for record in records}
    first, *others = (episodes[id] for id in sorted(episodes))
    triples = [without(other.metadata, [INSTANT_FROM]) for other in others]
    whole = first.model_copy(
        update={
            "content": "\n".join(episode.content for episode in (first, *others)),
            "metadata": {**first.metadata, "triples": triples} if triples else first.metadata,
        }
    )
    return records[0]._replace(episodes=(whole,))


class ReplacingStatements:
    """Counts the statements that other statements of a file would replace in the facts.

    Args:
        holds_several: Returns whether a predicate holds several values at once.
    """

    def __init__(self, holds_several: Callable[[str], bool]) -> None:
        self._holds_several = holds_several
        self._episodes: dict[tuple[str, str, Any, str], str] = {}
        self.count = 0
        self.predicates: set[str] = set()

    def watch(self, records: Iterable[ImportedRecord]) -> Iterator[ImportedRecord]:
        """Yield records, and count what they would replace."""
        for record in records:
            if record.until is None:
                for episode in record.episodes:
                    self._add(episode)
            yield record

    def _add(self, episode: Episode) -> None:
        counted: dict[tuple[str, str, Any, str], int] = {}
        for triple in triples_in(episode):
            subject, predicate, _ = (triple.get(slot) for slot in _SLOTS)
            if not (isinstance(subject, str) and isinstance(predicate, str)):
                continue
            if triple.get("object") is not None and not self._holds_several(predicate):
                key = (episode.user, episode.agent, subject, predicate)
                counted[key] = counted.get(key, 0) + 1
        for key, statements in counted.items():
            if self._episodes.setdefault(key, episode.id) != episode.id:
                self.count += statements
                self.predicates.add(key[3])

"""Read the facts of Graphiti and Zep: edges with the interval in which each is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from slumberd.interchange.json_records import read_records
from slumberd.interchange.records import (
    Defaults,
    Record,
    instant_in,
    is_before,
    optional_text,
    text_in,
    without,
)
from slumberd.model.episode import Episode

NAME = "graphiti"
KEYS = ("facts", "edges", "nodes")

ENDED = ":ended"
"""What the id of the episode that retracts a fact adds to that of the fact."""


def read_graphiti(stream: BinaryIO, defaults: Defaults) -> Iterator[Record]:
    """Yield the facts of an export.

    Raises:
        WrongFormatError: It begins with neither an array nor an object with facts or edges.
    """
    return read_records(stream, NAME, KEYS, _Facts(defaults).convert, defaults.secrets)


class _Facts:
    """Makes records of facts, and knows the names of the nodes before them."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._names: dict[str, str] = {}
        self._named_by_uuid = False

    def convert(self, key: str, record: dict[str, Any]) -> Record | None:
        """Return the record of a fact; None for a node."""
        if key == "nodes":
            self._learn(record)
            return None
        begin, until = _interval(record)
        asserted = self._assertion(record, begin or self._defaults.instant())
        if until is None:
            return Record(0, (asserted,))
        if is_before(until, asserted.timestamp):
            raise ValueError("the fact ends before it begins")
        return Record(0, (asserted, _retraction(asserted, until)), until=until)

    def _learn(self, node: Mapping[str, Any]) -> None:
        if self._named_by_uuid:
            raise ValueError("the nodes come after facts that name them by uuid; put nodes first")
        self._names[text_in(node, "uuid")] = text_in(node, "name")

    def _assertion(self, record: Mapping[str, Any], at: datetime) -> Episode:
        scope = self._defaults.scope.of(optional_text(record, "group_id"), None, None)
        return Episode(
            id=f"{NAME}:{text_in(record, 'uuid')}",
            content=text_in(record, "fact"),
            timestamp=at,
            source_node=NAME,
            metadata={**self._triple(record), NAME: without(record, ["fact", "fact_embedding"])},
            **scope,
        )

    def _triple(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the triple of a fact; empty when the fact does not name both of its nodes."""
        predicate = optional_text(record, "name")
        subject, target = self._name(record, "source"), self._name(record, "target")
        if not (subject and predicate and target):
            return {}
        return {"subject": subject, "predicate": predicate, "object": target}

    def _name(self, record: Mapping[str, Any], end: str) -> str | None:
        name = optional_text(record, f"{end}_node_name")
        uuid = optional_text(record, f"{end}_node_uuid")
        if name or not uuid:
            return name
        self._named_by_uuid = self._named_by_uuid or uuid not in self._names
        return self._names.get(uuid, uuid)


def _interval(record: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return since when a fact is valid, and since when no longer; None where unknown."""
    begin = instant_in(record, "valid_at", "created_at")
    return begin, instant_in(record, "invalid_at", "expired_at")


def _retraction(asserted: Episode, at: datetime) -> Episode:
    return asserted.model_copy(
        update={
            "id": f"{asserted.id}{ENDED}",
            "content": f"No longer: {asserted.content}",
            "timestamp": at,
            # The triple lets it pass the filters that its fact passes.
            "metadata": {**_triple_of(asserted), "intent": "delete", "replaces": asserted.id},
        }
    )


def _triple_of(episode: Episode) -> dict[str, Any]:
    return without(episode.metadata, [NAME])

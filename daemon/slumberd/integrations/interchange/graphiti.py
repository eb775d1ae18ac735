"""Read the facts of Graphiti and Zep: edges with the interval in which each is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from slumberd.integrations.interchange.instants import INSTANT_FROM
from slumberd.integrations.interchange.json_documents import read_records
from slumberd.integrations.interchange.records import (
    Defaults,
    ImportedRecord,
    end_in,
    instant_in,
    is_before,
    optional_text,
    retraction,
    text_in,
    without,
)
from slumberd.model.episode import Episode

NAME = "graphiti"
KEYS = ("facts", "edges", "nodes")


def read_graphiti(stream: BinaryIO, defaults: Defaults) -> Iterator[ImportedRecord]:
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

    def convert(self, key: str, record: dict[str, Any]) -> ImportedRecord | None:
        """Return the record of a fact; None for a node."""
        if key == "nodes":
            self._learn(record)
            return None
        valid = instant_in(record, "valid_at")
        until = end_in(record, "invalid_at", "expired_at")
        at, source = self._defaults.dated(valid or instant_in(record, "created_at"))
        asserted = self._assertion(record, at, source)
        if until is None:
            return ImportedRecord(0, (asserted,))
        if not is_before(until, at):
            return ImportedRecord(0, (asserted, retraction(asserted, until, NAME)), until=until)
        if valid is None:
            return ImportedRecord(0, (_end_only(asserted, until),), until=until)
        raise ValueError("the fact ends before it begins")

    def _learn(self, node: Mapping[str, Any]) -> None:
        if self._named_by_uuid:
            raise ValueError("the nodes come after facts that name them by uuid; put nodes first")
        self._names[text_in(node, "uuid")] = text_in(node, "name")

    def _assertion(
        self, record: Mapping[str, Any], at: datetime, source: Mapping[str, str]
    ) -> Episode:
        scope = self._defaults.scope.of(optional_text(record, "group_id"), None, None)
        return Episode(
            id=f"{NAME}:{text_in(record, 'uuid')}",
            content=text_in(record, "fact"),
            timestamp=at,
            source_node=NAME,
            metadata={
                **source,
                **self._triple(record),
                NAME: without(record, ["fact", "fact_embedding"]),
            },
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


def _end_only(asserted: Episode, until: datetime) -> Episode:
    """Return a fact of which only the end is known: it retracts what others said before.

    Without a triple it is a text, and says so itself.
    """
    ends = {"intent": "delete"} if "subject" in asserted.metadata else {}
    metadata = {**without(asserted.metadata, [INSTANT_FROM]), **ends}
    return asserted.model_copy(update={"timestamp": until, "metadata": metadata})

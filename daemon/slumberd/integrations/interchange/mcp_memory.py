"""Read the file of the MCP memory server: entities with observations, and relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

from slumberd.consolidation.claim import MOST_TRIPLES
from slumberd.integrations.interchange.json_documents import read_records
from slumberd.integrations.interchange.records import Defaults, ImportedRecord, made_id, text_in
from slumberd.model.episode import Episode

NAME = "mcp-memory"

TYPE = "is_a"
"""The predicate of an entity's type."""

OBSERVATION = "observation"
"""The predicate of an entity's observations; it has many objects."""


def read_mcp_memory(stream: BinaryIO, defaults: Defaults) -> Iterator[ImportedRecord]:
    """Yield the entities and relations of a file.

    Raises:
        WrongFormatError: It begins with something that is no JSON object.
    """
    convert = partial(_convert, defaults)
    return read_records(stream, NAME, ("entities", "relations"), convert, defaults.secrets)


def _convert(defaults: Defaults, key: str, record: dict[str, Any]) -> ImportedRecord:
    kind = {"entities": "entity", "relations": "relation"}.get(key) or text_in(record, "type")
    if kind == "entity":
        return ImportedRecord(0, tuple(_entity(record, defaults)))
    if kind == "relation":
        return ImportedRecord(0, (_relation(record, defaults),))
    raise ValueError(f"key 'type' is {kind[:40]!r}; 'entity' or 'relation' is needed")


def _entity(record: Mapping[str, Any], defaults: Defaults) -> Iterator[Episode]:
    """Yield the episodes of an entity: one, unless it has too many observations for that."""
    name, type_name = text_in(record, "name"), text_in(record, "entityType")
    observations = _observations(record)
    for first in range(0, max(1, len(observations)), MOST_TRIPLES):
        some = observations[first : first + MOST_TRIPLES]
        yield _episode(
            defaults,
            ["entity", name] if not first else ["entity", name, str(first)],
            "\n".join([f"{name} ({type_name})", *(f"- {text}" for text in some)]),
            {
                # The type is the triple of the episode itself: a filter sees no triple of the list.
                "subject": name,
                "predicate": TYPE,
                "object": type_name,
                "triples": [
                    {"subject": name, "predicate": OBSERVATION, "object": text} for text in some
                ],
            },
        )


def _observations(record: Mapping[str, Any]) -> Sequence[str]:
    found = record.get("observations")
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError("key 'observations' holds no array of texts")
    return found


def _relation(record: Mapping[str, Any], defaults: Defaults) -> Episode:
    subject, predicate, target = (text_in(record, key) for key in ("from", "relationType", "to"))
    return _episode(
        defaults,
        ["relation", subject, predicate, target],
        f"{subject} {predicate} {target}",
        {"subject": subject, "predicate": predicate, "object": target},
    )


def _episode(
    defaults: Defaults, parts: Sequence[str], content: str, metadata: dict[str, Any]
) -> Episode:
    scope = defaults.scope.of(None, None, None)
    at, source = defaults.dated(None)
    return Episode(
        id=made_id(NAME, scope, *parts),
        content=content,
        timestamp=at,
        source_node=NAME,
        metadata={**source, **metadata},
        **scope,
    )

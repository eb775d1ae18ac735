"""Read what mem0 holds: the memories and relations that its ``get_all`` and its export return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO

from slumberd.integrations.interchange.json_documents import read_records
from slumberd.integrations.interchange.records import (
    Defaults,
    ImportedRecord,
    instant_in,
    made_id,
    objects_in,
    optional_text,
    text_in,
    with_end,
    without,
)
from slumberd.model.episode import Episode

NAME = "mem0"
KEYS = ("results", "memories", "relations")

_EDITED = ("previous_memory", "old_memory")
"""The keys that a memory has when its text was edited."""

_ENDS = ("expiration_date", "deleted_at")
"""The keys that say when a memory ended. mem0 counts the date of the first one as a whole day."""

_SPEAKERS = {"actor_id": "speaker", "role": "role"}
"""The keys of mem0 that name who said a memory, with those that a search reads."""


def read_mem0(stream: BinaryIO, defaults: Defaults) -> Iterator[ImportedRecord]:
    """Yield the memories and relations of an export.

    Raises:
        WrongFormatError: It begins with neither an array nor an object with ``results``.
    """
    return read_records(stream, NAME, KEYS, partial(_convert, defaults=defaults), defaults.secrets)


def _convert(key: str, record: dict[str, Any], *, defaults: Defaults) -> ImportedRecord:
    if key == "relations":
        return ImportedRecord(0, (_relation(record, defaults),))
    return with_end(_memory(record, defaults), record, _ENDS, NAME)


def _memory(record: Mapping[str, Any], defaults: Defaults) -> Episode:
    first, *others = [*_triples(record)] or [{}]
    said_by = {ours: record[key] for key, ours in _SPEAKERS.items() if record.get(key)}
    at, source = _instant(record, defaults)
    return Episode(
        id=f"{NAME}:{text_in(record, 'id')}",
        content=text_in(record, "memory"),
        timestamp=at,
        source_node=NAME,
        metadata={
            **source,
            **said_by,
            # One triple is that of the episode itself: a filter sees no triple of the list.
            **first,
            **({"triples": others} if others else {}),
            NAME: without(record, ["memory"]),
        },
        **_scope(record, defaults),
    )


def _instant(record: Mapping[str, Any], defaults: Defaults) -> tuple[datetime, dict[str, str]]:
    """Return when a memory was said: when it was created, unless its text was edited.

    mem0 moves ``updated_at`` also when nobody edits the text. A memory that was added with an
    instant of its own has it in ``created_at``.
    """
    created, updated = instant_in(record, "created_at"), instant_in(record, "updated_at")
    if updated is not None and any(record.get(key) for key in _EDITED):
        return updated, {}
    return defaults.dated(created, updated)


def _triples(record: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the relations of one memory, which name the entities of the memory by id."""
    names = {
        optional_text(entity, "id"): optional_text(entity, "name")
        for entity in objects_in(record, "entities")
    }
    for relation in objects_in(record, "relations"):
        source, predicate, target = _relation_in(relation)
        yield {
            "subject": names.get(source) or source,
            "predicate": predicate,
            "object": names.get(target) or target,
        }


def _relation(record: Mapping[str, Any], defaults: Defaults) -> Episode:
    source, predicate, target = _relation_in(record)
    scope = _scope(record, defaults)
    at, found_in = _instant(record, defaults)
    return Episode(
        id=made_id(NAME, scope, source, predicate, target),
        content=f"{source} {predicate} {target}",
        timestamp=at,
        source_node=NAME,
        metadata={
            **found_in,
            "subject": source,
            "predicate": predicate,
            "object": target,
            NAME: dict(record),
        },
        **scope,
    )


def _relation_in(relation: Mapping[str, Any]) -> tuple[str, str, str]:
    # A search of mem0 calls the target ``destination``.
    target = "destination" if "destination" in relation else "target"
    return text_in(relation, "source"), text_in(relation, "relationship"), text_in(relation, target)


def _scope(record: Mapping[str, Any], defaults: Defaults) -> dict[str, str]:
    keys = ("user_id", "agent_id", "run_id")
    return defaults.scope.of(*(optional_text(record, key) for key in keys))

"""Read the items of a LangGraph store: what ``Item.dict()`` returns, or rows of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, BinaryIO

import orjson

from slumberd.integrations.interchange.json_documents import read_records
from slumberd.integrations.interchange.records import (
    Defaults,
    ImportedRecord,
    aware,
    instant_in,
    made_id,
    text_in,
    with_end,
)
from slumberd.model.episode import Episode, is_visible
from slumberd.storage.strict_json import read_object

NAME = "langgraph"
KEYS = ("items",)

TEXTS = ("content", "text", "data", "memory")
"""The keys of a value whose text is the content of its episode; the first one counts.

A value without such a text may hold another value under one of them, as LangMem's do. Without any
text, the content is the triple of the value, or else its JSON.
"""

_NESTING = (*TEXTS, "value", "kwargs")
"""The keys under which a value holds another one: those of LangMem, and of LangChain's dumps."""

_DEEPEST = 8

_TRIPLE = ("subject", "predicate", "object")

_NO_TEXT = (
    f"the value has no text under {', '.join(TEXTS)}, so its JSON is the content of the episode"
)
_SAME = timedelta(seconds=1)
"""The store reads its clock twice when it writes an item; it waits no longer in between."""

_MESSAGES = ("human", "ai", "system", "tool", "function")
"""The types of LangChain's messages; each says who spoke."""


def read_langgraph(stream: BinaryIO, defaults: Defaults) -> Iterator[ImportedRecord]:
    """Yield the items of a dump.

    Raises:
        WrongFormatError: It begins with neither an item, an array, nor an object with ``items``.
    """
    return read_records(stream, NAME, KEYS, partial(_convert, defaults), defaults.secrets)


def _convert(defaults: Defaults, _: str, record: dict[str, Any]) -> ImportedRecord:
    namespace, value = _namespace(record), _value(record)
    scope = defaults.scope.of(_user(namespace, defaults), None, None)
    key, triple = text_in(record, "key"), _triple(value)
    text = _text(value) or " ".join(triple.values())
    at, source = _instant(record, defaults)
    episode = Episode(
        id=made_id(NAME, scope, *namespace, key),
        content=text or orjson.dumps(value).decode(),
        timestamp=at,
        source_node=NAME,
        metadata={
            **source,
            **_spoken_by(value),
            **triple,
            NAME: {"namespace": namespace, "key": key, "value": value},
        },
        **scope,
    )
    found = with_end(episode, record, ["expires_at"], NAME)
    return found if text else found._replace(doubts=(*found.doubts, _NO_TEXT))


def _instant(record: Mapping[str, Any], defaults: Defaults) -> tuple[datetime, dict[str, str]]:
    """Return when the value of an item was written.

    Every put of the item moves ``updated_at``, and replaces the value, also by an equal one.
    """
    created, updated = instant_in(record, "created_at"), instant_in(record, "updated_at")
    if created is not None and updated is not None:
        is_new = abs(aware(updated) - aware(created)) <= _SAME
        return defaults.dated(updated if is_new else None, updated)
    return defaults.dated(created, updated)


def _namespace(record: Mapping[str, Any]) -> list[str]:
    if "prefix" in record:  # a row of the table, which joins the labels; no label has a dot
        return text_in(record, "prefix").split(".")
    found = record.get("namespace")
    if isinstance(found, list) and found and all(isinstance(label, str) for label in found):
        return found
    raise ValueError("key 'namespace' holds no array of texts")


def _user(namespace: list[str], defaults: Defaults) -> str | None:
    place = defaults.user_at
    if place is None:
        return None
    if place > len(namespace):
        raise ValueError(f"the namespace has {len(namespace)} labels, so none at {place}")
    return namespace[place - 1]


def _value(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("value")
    if isinstance(found, str):  # how some clients print a column of JSON
        return _decoded(found)
    if isinstance(found, dict):
        return found
    raise ValueError("key 'value' holds no JSON object")


def _decoded(text: str) -> dict[str, Any]:
    try:
        return read_object(text)
    except ValueError as error:
        raise ValueError(f"key 'value': {error}") from error


def _spoken_by(value: Mapping[str, Any]) -> dict[str, str]:
    """Return who spoke a value: its speaker and role, or the type of a message of LangChain."""
    for level in _levels(value):
        names = {"speaker": level.get("speaker"), "role": level.get("role")}
        if found := {key: name for key, name in names.items() if is_visible(name)}:
            return found
        if level.get("type") in _MESSAGES:
            return {"role": level["type"]}
    return {}


def _text(value: Mapping[str, Any]) -> str:
    """Return the text of a value; empty when it has none."""
    for level in _levels(value):
        for key in TEXTS:
            found = level.get(key)
            if isinstance(found, list):
                found = "\n".join(_text_parts(found))
            if isinstance(found, str) and found:
                return found
    return ""


def _text_parts(parts: list[Any]) -> Iterator[str]:
    """Yield the texts of a content that is a list, as that of a message with pictures."""
    for part in parts:
        found = part.get("text") if isinstance(part, dict) else part
        if isinstance(found, str):
            yield found


def _triple(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the triple of a value, or of a value within it; empty when it has none."""
    for found in _levels(value):
        if all(isinstance(found.get(slot), str) and found[slot] for slot in _TRIPLE):
            return {slot: found[slot] for slot in _TRIPLE}
    return {}


def _levels(value: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a value, and the values within it, outer ones first."""
    yield value
    for key in _NESTING:
        inner = value.get(key)
        if isinstance(inner, dict) and depth < _DEEPEST:
            yield from _levels(inner, depth + 1)

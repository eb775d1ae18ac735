"""Read the items of a LangGraph store: what ``Item.dict()`` returns, or rows of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

import orjson

from slumberd.interchange.json_records import read_records
from slumberd.interchange.records import Defaults, Record, instant_in, made_id, text_in
from slumberd.model.episode import Episode
from slumberd.model.speaker import is_visible
from slumberd.storage.strict_json import read_object

NAME = "langgraph"
KEYS = ("items",)

TEXTS = ("content", "text", "data", "memory")
"""The keys of a value whose text is the content of its episode; the first one counts.

Without such a text, the content is the triple of the value, or else its JSON.
"""

_TRIPLE = ("subject", "predicate", "object")

_MESSAGES = ("human", "ai", "system", "tool", "function")
"""The types of LangChain's messages; each says who spoke."""


def read_langgraph(stream: BinaryIO, defaults: Defaults) -> Iterator[Record]:
    """Yield the items of a dump.

    Raises:
        WrongFormatError: It begins with neither an item, an array, nor an object with ``items``.
    """
    return read_records(stream, NAME, KEYS, partial(_convert, defaults), defaults.secrets)


def _convert(defaults: Defaults, _: str, record: dict[str, Any]) -> Record:
    namespace, value = _namespace(record), _value(record)
    scope = defaults.scope.of(_user(namespace, defaults), None, None)
    key, triple = text_in(record, "key"), _triple(value)
    episode = Episode(
        id=made_id(NAME, scope, *namespace, key),
        content=_content(value, triple),
        timestamp=instant_in(record, "updated_at", "created_at") or defaults.instant(),
        source_node=NAME,
        metadata={
            **_spoken_by(value),
            **triple,
            NAME: {"namespace": namespace, "key": key, "value": value},
        },
        **scope,
    )
    return Record(0, (episode,))


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
    names = {"speaker": value.get("speaker"), "role": value.get("role")}
    found = {key: name for key, name in names.items() if is_visible(name)}
    kind = value.get("type")
    return {"role": kind} if not found and kind in _MESSAGES else found


def _content(value: Mapping[str, Any], triple: Mapping[str, str]) -> str:
    for key in TEXTS:
        found = value.get(key)
        if isinstance(found, str) and found:
            return found
    return " ".join(triple.values()) or orjson.dumps(value).decode()


def _triple(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the triple of a value, or of its content; empty when it has none."""
    content = value.get("content")
    for found in (value, content if isinstance(content, dict) else {}):
        if all(isinstance(found.get(slot), str) and found[slot] for slot in _TRIPLE):
            return {slot: found[slot] for slot in _TRIPLE}
    return {}

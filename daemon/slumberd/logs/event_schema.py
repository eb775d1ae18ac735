"""The JSON Schema of the log lines of an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_OPTIONAL = {"exception"}

# The schemas of fields.
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
INSTANT: Schema = {"type": "string", "format": "date-time"}
TEXTS: Schema = {"type": "array", "items": TEXT}


@dataclass(frozen=True, slots=True)
class EventKind:
    """One event of the catalogue.

    Attributes:
        name: As in the ``event`` of a line.
        levels: The levels that its lines may have.
        meaning: What happened, in one or two sentences.
        fields: The JSON Schema of each field besides ``ts``, ``level`` and ``event``. Only a
            traceback may be missing. Every line of a daemon that holds several shards of a database
            has ``shard``, too.
    """

    name: str
    levels: tuple[str, ...]
    meaning: str
    fields: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its lines; a shortened line keeps ``ts``, ``level`` and ``event``."""
        always = {"ts": INSTANT, "level": {"enum": [*self.levels]}, "event": {"const": self.name}}
        known = {**always, "shard": COUNT, **self.fields}
        cut: Schema = {key: {} for key in ["shard", *self.fields]} | {"truncated": {"const": True}}
        return {
            "$schema": DIALECT,
            "title": self.name,
            "description": self.meaning,
            "if": {"required": ["truncated"]},
            "then": _object(always | cut, [*always, "truncated"]),
            "else": _object(known, [*always, *(self.fields.keys() - _OPTIONAL)]),
        }


def _object(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(required),
        "additionalProperties": False,
    }


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null."""
    return {**schema, "type": [schema["type"], "null"]}


def object_of(properties: Schema) -> Schema:
    """Return the schema of an object that has these fields, all of them, and no others."""
    return _object(properties, [*properties])

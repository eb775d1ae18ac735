"""JSON Schemas of the files that slumberd reads, generated from the forms that check them.

The description of a key comes from the docstring of its form.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from slumberd.rules.docstrings import describe_attributes
from slumberd.rules.pattern_schema import PatternFile, PatternTestFile, TriplesAnswer
from slumberd.rules.rule_schema import RuleFile
from slumberd.rules.settings import Settings
from slumberd.tools.rule_testing.case_schema import CaseFile

Schema = dict[str, Any]


class Shipped(NamedTuple):
    """One schema.

    Attributes:
        form: The form that it is generated from.
        file: The name of its file in ``config/``.
    """

    form: type[BaseModel]
    file: str


SHIPPED = {
    "rules": Shipped(RuleFile, "rules.schema.json"),
    "config": Shipped(Settings, "config.schema.json"),
    "tests": Shipped(CaseFile, "tests.schema.json"),
    "patterns": Shipped(PatternFile, "patterns.schema.json"),
    "triples": Shipped(TriplesAnswer, "triples.schema.json"),
    "pattern-tests": Shipped(PatternTestFile, "pattern-tests.schema.json"),
}
"""Every schema, by its name in `slumberd schema`."""


def schema_text(name: str) -> str:
    """Return the text of the file of one of the `SHIPPED`."""
    return json.dumps(schema_of(SHIPPED[name].form), indent=2, ensure_ascii=False) + "\n"


def schema_of(form: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a form, without references into itself."""
    schema = form.model_json_schema(schema_generator=_Generator)
    definitions = schema.pop("$defs", {})
    return {"$schema": _Generator.schema_dialect, **_inline(schema, definitions)}


class _Generator(GenerateJsonSchema):
    """Take descriptions from docstrings, and leave out the titles that pydantic invents.

    The overrides give the same schemas with every version of pydantic.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 # any kind of schema
        """Generate no titles from the names of fields."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Return the schema of a form, with the descriptions of its docstring."""
        plain = super().model_schema(schema)
        summary, keys = describe_attributes(schema["cls"])
        for name, value in plain["properties"].items():
            value["description"] = keys[name]
            if isinstance(value.get("default"), dict):
                del value["default"]
        complete = {
            **plain,
            "description": summary,
            "title": "",
            "required": plain.get("required"),
        }
        return {key: value for key, value in complete.items() if value or value is False}

    def dict_schema(self, schema: core_schema.DictSchema) -> Schema:
        """Return the schema of names with values."""
        names, values = schema["keys_schema"], schema["values_schema"]
        return {
            "type": "object",
            "propertyNames": self.generate_inner(names),
            "additionalProperties": self.generate_inner(values),
        }

    def sort(self, value: Schema, parent_key: str | None = None) -> Schema:
        """Return the schema as it is; `_in_order` sorts it."""
        return value


def _inline(schema: Any, definitions: Schema) -> Any:  # noqa: ANN401 # any piece of JSON
    """Return a schema with its definitions in the places that refer to them."""
    match schema:
        case {"$ref": str(reference), **others}:
            name = reference.rpartition("/")[2]
            return _inline({**definitions[name], **others}, definitions)
        case {"properties": dict(properties), **others}:
            inlined = {name: _inline(value, definitions) for name, value in properties.items()}
            return _in_order({**_inline(others, definitions), "properties": inlined})
        case dict():
            return _in_order({key: _inline(value, definitions) for key, value in schema.items()})
        case list():
            return [_inline(value, definitions) for value in schema]
        case _:
            return schema


_FIRST = ("description", "type", "enum", "default")
_LAST = ("required", "properties", "items", "additionalProperties", "oneOf")


def _in_order(schema: Schema) -> Schema:
    """Return a schema in the order for a reader: its description first, its parts last."""
    others = sorted(key for key in schema if key not in _FIRST + _LAST)
    return {key: schema[key] for key in (*_FIRST, *others, *_LAST) if key in schema}

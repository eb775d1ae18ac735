"""JSON Schemas of what people write, made from the very forms that it is held against.

What an editor shows of a key is what the form's docstring says of it.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from slumberd.config.rule_schema import RuleFile
from slumberd.config.settings import Settings
from slumberd.rule_testing.case_schema import CaseFile

Schema = dict[str, Any]


class Shipped(NamedTuple):
    """One schema.

    Attributes:
        form: What it is made from.
        file: Its name below ``config/``.
    """

    form: type[BaseModel]
    file: str


SHIPPED = {
    "rules": Shipped(RuleFile, "rules.schema.json"),
    "config": Shipped(Settings, "config.schema.json"),
    "tests": Shipped(CaseFile, "tests.schema.json"),
}
"""Every schema, by what `slumberd schema` calls it."""


def schema_text(name: str) -> str:
    """Return one of the `SHIPPED` as its file holds it."""
    return json.dumps(schema_of(SHIPPED[name].form), indent=2, ensure_ascii=False) + "\n"


def schema_of(form: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a form: whole, without references into itself."""
    made = form.model_json_schema(schema_generator=_Generator)
    definitions = made.pop("$defs", {})
    return {"$schema": _Generator.schema_dialect, **_whole(made, definitions)}


class _Generator(GenerateJsonSchema):
    """Takes descriptions from docstrings, and leaves out what pydantic makes up.

    What differs from one version of pydantic to the next is made here, so that the shipped files
    do not depend on it.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 # any kind of schema
        """Leave the names of fields as they are."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Return the schema of a form, with what its docstring says."""
        made = super().model_schema(schema)
        summary, keys = described(schema["cls"])
        for name, value in made["properties"].items():
            value["description"] = keys[name]
            if isinstance(value.get("default"), dict):
                del value["default"]
        whole = {
            **made,
            "description": summary,
            "title": "",
            "required": made.get("required"),
        }
        return {key: value for key, value in whole.items() if value or value is False}

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


_SECTION = re.compile(r"\n\nAttributes:\n(.*?)(?:\n\n|\Z)", re.DOTALL)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


def described(form: type) -> tuple[str, dict[str, str]]:
    """Return a docstring's first line, and what it says of each attribute."""
    text = inspect.getdoc(form) or ""
    section = _SECTION.search(text)
    entries = _ENTRY.findall(section[1]) if section else []
    return text.partition("\n")[0], {name: " ".join(said.split()) for name, said in entries}


def _whole(schema: Any, definitions: Schema) -> Any:  # noqa: ANN401 # any piece of JSON
    match schema:
        case {"$ref": str(reference), **rest}:
            name = reference.rpartition("/")[2]
            return _whole({**definitions[name], **rest}, definitions)
        case {"properties": dict(properties), **rest}:
            whole = {name: _whole(value, definitions) for name, value in properties.items()}
            return _in_order({**_whole(rest, definitions), "properties": whole})
        case dict():
            return _in_order({key: _whole(value, definitions) for key, value in schema.items()})
        case list():
            return [_whole(value, definitions) for value in schema]
        case _:
            return schema


_FIRST = ("description", "type", "enum", "default")
_LAST = ("required", "properties", "items", "additionalProperties", "oneOf")


def _in_order(schema: Schema) -> Schema:
    """Return a schema as a person reads it: what it is first, what it holds last."""
    rest = sorted(key for key in schema if key not in _FIRST + _LAST)
    return {key: schema[key] for key in (*_FIRST, *rest, *_LAST) if key in schema}

"""JSON Schemas of the arguments and results of tools, generated from the forms."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from slumberd.rules.docstrings import describe_attributes

Schema = dict[str, Any]


def schema_of_arguments(form: type[BaseModel], hidden: Collection[str]) -> Schema:
    """Return the JSON Schema of a tool's arguments.

    Args:
        form: The form of the operation's requests.
        hidden: The fields that are no arguments.
    """
    schema = form.model_json_schema(schema_generator=_Described)
    for name in hidden:
        schema["properties"].pop(name, None)
    required = [name for name in schema.pop("required", []) if name not in hidden]
    if required:
        schema["required"] = required
    return _inlined(schema)


def schema_of_result(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a tool's result."""
    schema = model.model_json_schema(schema_generator=_Described, mode="serialization")
    return _inlined(schema)


def _inlined(schema: Schema) -> Schema:
    definitions = schema.pop("$defs", {})
    return {key: _without_references(one, definitions) for key, one in schema.items()}


def _without_null(field: Schema) -> Schema:
    """Return the schema of an argument that is left out rather than null.

    A client that fills in the default would otherwise send a value that nobody chose.
    """
    if "default" not in field or field["default"] is not None:
        return field
    others = {key: value for key, value in field.items() if key not in ("default", "anyOf")}
    chosen = [one for one in field.get("anyOf", []) if one != {"type": "null"}]
    return {**(chosen[0] if chosen else {}), **others}


class _Described(GenerateJsonSchema):
    """Take the descriptions of fields from docstrings, and leave out the invented titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 # any kind of schema
        """Generate no titles from the names of fields."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Return the schema of a form, with the descriptions of its docstring."""
        return self._described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        """Return the schema of a dataclass, with the descriptions of its docstring."""
        return self._described(super().dataclass_schema(schema), schema["cls"])

    def _described(self, plain: Schema, form: type) -> Schema:
        known = [describe_attributes(one)[1] for one in reversed(form.__mro__)]
        described = {name: text for texts in known for name, text in texts.items()}
        arguments = self.mode == "validation"
        for name, field in plain["properties"].items():
            text = described.get(name, "").replace("``", "`")
            shown = _without_null(field) if arguments else field
            plain["properties"][name] = {**shown, **({"description": text} if text else {})}
        return {key: value for key, value in plain.items() if key not in ("title", "description")}


def _without_references(schema: Any, definitions: Schema) -> Any:  # noqa: ANN401 # any piece of JSON
    """Return a schema with its definitions in the places that refer to them.

    Some clients read no references.
    """
    match schema:
        case {"$ref": str(reference), **others}:
            name = reference.rpartition("/")[2]
            return _without_references({**definitions[name], **others}, definitions)
        case dict():
            return {key: _without_references(one, definitions) for key, one in schema.items()}
        case list():
            return [_without_references(one, definitions) for one in schema]
        case _:
            return schema

"""Defaults of arguments and fields, bounds of models, and constants, read from imported code.

A test compares them with the table in `tests/defaults.txt`, so that none of them changes by
accident. To write the table again, and see what changed:

    python -m tests.support.defaults && git diff tests/defaults.txt
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import slumberd
from tests.support.repository import TESTS

TABLE = TESTS / "defaults.txt"

_NONE = (inspect.Parameter.empty, MISSING, PydanticUndefined)
_PINNED = (int, float, timedelta, Path)
_MOST = 10
"""Parts of a value that a person can check."""
_LONG = 10**20
"""A number whose digits nobody counts."""


def all_defaults() -> list[str]:
    """Return a line for each class or function with defaults that are not empty.

    None, False, 0 and empty values are left out: a change of one adds it to a line. Left out are
    names that begin with an underscore, protocols, and values without a short form. A model with
    bounds has another line for them. So has each constant of a module that is a number, a word or
    a path.
    """
    return sorted({line for module in _modules() for line in _lines_in(module)})


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(slumberd.__path__, "slumberd."):
        if not found.name.endswith("__main__"):
            yield import_module(found.name)


def _lines_in(module: ModuleType) -> Iterator[str]:
    yield from _defaults_in(module)
    yield from _constants_in(module)


def _constants_in(module: ModuleType) -> Iterator[str]:
    """Yield the numbers, words and paths that the module itself assigns to names in capitals.

    Flags are left out, because they differ between processors.
    """
    tree = ast.parse(inspect.getsource(module))
    for statement in tree.body:
        for name in _assigned(statement):
            value, is_pinned = vars(module)[name], name.isupper() and "FLAGS" not in name
            if is_pinned and (isinstance(value, _PINNED) or _is_of_words(value)):
                yield f"{module.__name__.removeprefix('slumberd.')}.{name} = {_written(value)}"


def _written(value: object) -> str:
    """Return a value as a person would write it, instead of hundreds of equal characters."""
    match value:
        case int() if value > _LONG and value == 10 ** (len(str(value)) - 1):
            return f"10**{len(str(value)) - 1}"
        case str() if len(value) > _MOST and value == value[0] * len(value):
            return f"{value[0]!a} * {len(value)}"
        case _:
            return f"{value!a}"


def _is_of_words(value: object) -> bool:
    """Return whether a value is a word, or a few words: names of files, keys and kinds."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or len(words) > _MOST:
        return False
    return all(isinstance(word, str) and word and " " not in word for word in words)


def _assigned(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return [name]
        case _:
            return []


def _defaults_in(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__:
            place = f"{module.__name__.removeprefix('slumberd.')}.{name}"
            if inspect.isclass(value):
                yield from _defaults_of_class(value, place)
            elif inspect.isfunction(value):
                yield from _lines(place, _arguments(value))


def _defaults_of_class(kind: type, place: str) -> Iterator[str]:
    if getattr(kind, "_is_protocol", False):
        return
    yield from _lines(place, defaults_of(kind))
    if issubclass(kind, BaseModel):
        yield from _lines(f"{place}.bounds", _bounds_of(kind))
    for name, method in dict(vars(kind)).items():
        function = getattr(method, "__func__", method)
        if not name.startswith("_") and inspect.isfunction(function):
            yield from _lines(f"{place}.{name}", _arguments(function))


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the defaults of a model's or a class's fields; else those of its constructor."""
    if issubclass(kind, BaseModel):
        found = {name: field.default for name, field in kind.model_fields.items()}
    elif is_dataclass(kind):
        found = {field.name: field.default for field in fields(kind)}
    elif issubclass(kind, tuple):
        found = dict(getattr(kind, "_field_defaults", {}))
    else:
        found = _arguments(vars(kind).get("__init__", _nothing))
    return {name: value for name, value in found.items() if value not in _NONE}


def _bounds_of(kind: type[BaseModel]) -> dict[str, list[Any]]:
    """Return the bounds of a model's fields: numbers, lengths and patterns."""
    return {
        name: [bound.__dict__ if hasattr(bound, "__dict__") else bound for bound in field.metadata]
        for name, field in kind.model_fields.items()
    }


def models() -> list[type[BaseModel]]:
    """Return every model of the package, private ones too."""
    own = [value for module in _modules() for value in vars(module).values()]
    kinds = {kind for kind in own if inspect.isclass(kind) and issubclass(kind, BaseModel)}
    own_kinds = {kind for kind in kinds if kind.__module__.startswith("slumberd.")}
    return sorted(own_kinds, key=lambda kind: (kind.__module__, kind.__name__))


def _nothing() -> None:
    """Stand for the constructor of a class that has none of its own."""


def _arguments(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    found = {parameter.name: parameter.default for parameter in parameters}
    return {name: value for name, value in found.items() if value not in _NONE}


def _lines(place: str, defaults: Mapping[str, Any]) -> Iterator[str]:
    shown = {name: _shown(value) for name, value in defaults.items()}
    if words := [f"{name}={value}" for name, value in shown.items() if value]:
        yield f"{place}({', '.join(words)})"


def _shown(value: Any) -> str:
    """Return a value that a person can check; nothing for an empty one, or a function."""
    short = isinstance(value, tuple | list | dict) and len(value) < _MOST
    if value and (short or isinstance(value, int | float | str | bytes)):
        shown = repr(value)
        return "" if " at 0x" in shown else shown
    return ""


def main() -> None:
    """Write the table again."""
    TABLE.write_text("\n".join(all_defaults()) + "\n")


if __name__ == "__main__":
    main()

"""Make values of models whose fields are known to be right, without looking at them again."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_set = object.__setattr__  # models are frozen


@cache
def _names(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)


def made(kind: type[Model], fields: dict[str, Any]) -> Model:
    """Return what ``kind.model_construct(**fields)`` does, in a quarter of its time.

    Args:
        kind: Without aliases, private attributes and fields of its caller's choosing.
        fields: All of them; the value keeps this very mapping.
    """
    value = kind.__new__(kind)
    _set(value, "__dict__", fields)
    # All values of a kind share it. Nothing changes it: they are frozen, and copies copy it.
    _set(value, "__pydantic_fields_set__", _names(kind))
    _set(value, "__pydantic_extra__", None)
    _set(value, "__pydantic_private__", None)
    return value

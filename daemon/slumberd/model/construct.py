"""Make values of models whose fields are known to be right, without looking at them again."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_new = object.__new__
# Models are frozen: these are pydantic's own slots, and quicker than object.__setattr__.
_set_fields = BaseModel.__dict__["__dict__"].__set__
_set_names = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


@cache
def _names(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)


def made(kind: type[Model], fields: dict[str, Any]) -> Model:
    """Return what ``kind.model_construct(**fields)`` does, in a fifth of its time.

    Args:
        kind: Without aliases, private attributes and fields of its caller's choosing.
        fields: All of them; the value keeps this very mapping.
    """
    value = _new(kind)
    _set_fields(value, fields)
    # All values of a kind share it. Nothing changes it: they are frozen, and copies copy it.
    _set_names(value, _names(kind))
    _set_extra(value, None)
    _set_private(value, None)
    return value

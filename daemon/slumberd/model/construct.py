"""Construct pydantic models from fields that are known to be valid, faster than pydantic does."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_new = object.__new__
# Models are frozen. These setters of pydantic's own slots are faster than object.__setattr__.
_set_fields = BaseModel.__dict__["__dict__"].__set__
_set_names = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


@cache
def _names(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)


def construct(kind: type[Model], fields: dict[str, Any]) -> Model:
    """Return the same value as ``kind.model_construct(**fields)``.

    With pydantic's own constructors, reading many facts takes 1.3 to 1.7 times as long, and reading
    many episodes 1.2 times. A firing takes the same time.

    Args:
        kind: A model without aliases, private attributes and extra fields.
        fields: The values of all fields. The model keeps this mapping and does not copy it.
    """
    value = _new(kind)
    _set_fields(value, fields)
    # All values of a kind share this set. Frozen models do not change it, and copies copy it.
    _set_names(value, _names(kind))
    _set_extra(value, None)
    _set_private(value, None)
    return value

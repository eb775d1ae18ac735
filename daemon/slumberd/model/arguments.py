"""Refuse arguments of another kind, with the remedy, before a store reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from slumberd.model.errors import UsageError

PLAIN = frozenset({str, bytes, bool, int, float, list, tuple, dict, set, frozenset, type(None)})
"""Classes of which no argument is where an object is needed."""


def plain_value_error(name: str, value: object, kind: str) -> UsageError:
    """Return the error for an argument of a class of `PLAIN` in place of an object."""
    return UsageError(f"{name} is {value!r:.100}; give an object of the class {kind}")


def require_object(name: str, value: object, kind: str) -> None:
    """Refuse a plain value where an object is needed.

    A host may have a class of its own with the same attributes, so any other class is taken.

    Args:
        name: The argument.
        kind: The class of slumberd that it needs.

    Raises:
        UsageError: It is a text, a number, a list, a dictionary or nothing.
    """
    if type(value) in PLAIN:
        raise plain_value_error(name, value, kind)


def require_objects(name: str, values: object, kind: str) -> None:
    """Refuse what is no list of objects.

    Raises:
        UsageError: It is no list or tuple, or one of its entries is a plain value.
    """
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise UsageError(f"{name} is {values!r:.100}; give a list of objects of the class {kind}")
    for position, value in enumerate(values):
        require_object(f"{name}[{position}]", value, kind)


def require_iterable(name: str, values: object) -> None:
    """Refuse what has no entries.

    Raises:
        UsageError: It is a text, or cannot be iterated.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise UsageError(f"{name} is {values!r:.100}; give a list")


def require_text(name: str, value: object) -> None:
    """Refuse what is no text.

    Raises:
        UsageError: It is no text.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} is {value!r:.100}; give a text")


def require_whole_number(name: str, value: object) -> None:
    """Refuse what is no whole number.

    Raises:
        UsageError: It is no whole number.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.100}; give a whole number")


def require_instant(name: str, value: object) -> None:
    """Refuse what is neither an instant nor nothing.

    Raises:
        UsageError: It is no datetime, or has no time zone.
    """
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return
    raise UsageError(f"{name} is {value!r:.100}; give a datetime with a time zone")

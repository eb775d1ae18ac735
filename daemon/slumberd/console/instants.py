"""Read instants that people write in forms."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from slumberd.console.links import Fields
from slumberd.errors import UsageError
from slumberd.model.episode import microseconds

_BEFORE_ALL, _AFTER_ALL = -(2**62), 2**62
"""Microseconds around 1970 that no episode reaches."""

NEED = "an instant with an offset is needed, such as 2026-03-01T00:00:00Z"
"""What to write in a field for an instant."""


def read_microseconds(fields: Fields, name: str) -> int:
    """Return the instant in a field as microseconds since 1970 UTC.

    A date alone is its first moment in UTC, as on the command line.

    Raises:
        KeyError: The form has no such field.
        UsageError: The text is no instant, or has no offset.
    """
    text = fields[name]
    try:
        at = _parse(text)
        if at.tzinfo is not None:
            return microseconds(at)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"{name}: {NEED}, not {text[:40]!r}")


def _parse(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        return datetime.fromisoformat(text)


def read_period(fields: Fields) -> list[int] | None:
    """Return the instants in ``from``, inclusive, and ``to``, exclusive; None without any.

    Raises:
        UsageError: One of them is no instant with an offset, or the first is not before the second.
    """
    if "from" not in fields and "to" not in fields:
        return None
    begin = read_microseconds(fields, "from") if "from" in fields else _BEFORE_ALL
    end = read_microseconds(fields, "to") if "to" in fields else _AFTER_ALL
    if begin >= end:
        raise UsageError("to: an instant after the first one is needed")
    return [begin, end]

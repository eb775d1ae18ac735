"""The cursors of pages: where a page ended, as one text that a request passes back."""

from __future__ import annotations

import base64

import orjson

from slumberd.errors import UsageError


def write_cursor(*parts: str) -> str:
    """Return the cursor of a place: letters, digits, ``-`` and ``_``."""
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def read_cursor(operation: str, cursor: str, parts: int) -> tuple[str, ...]:
    """Return the parts of the place that a cursor names.

    Args:
        operation: The operation that is asked for a page.
        cursor: The cursor.
        parts: How many parts a place has.

    Raises:
        UsageError: The operation has not made the cursor.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = orjson.loads(base64.b64decode(padded, b"-_", validate=True))
    except ValueError:
        found = None
    is_place = isinstance(found, list) and all(isinstance(part, str) for part in found)
    if not is_place or len(found) != parts:
        raise UsageError(f"{operation}: {cursor!r} is not a cursor of one of its pages")
    return tuple(found)

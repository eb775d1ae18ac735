"""Read a request as its JSON is read again, so that all transports take the same values."""

from __future__ import annotations

import json
from typing import Any

import orjson

from slumberd.errors import UsageError


def as_json(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as its JSON is read again, so that all transports take the same values.

    Raises:
        UsageError: JSON cannot hold a value: infinity, half a character, a number of over 64 bits.
    """
    try:
        # orjson writes null for infinity.
        json.dumps(request, allow_nan=False)
        found: dict[str, Any] = orjson.loads(orjson.dumps(request))
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    return found

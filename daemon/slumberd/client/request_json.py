"""Read a request as its JSON is read again, so that every way takes the same requests."""

from __future__ import annotations

import json
from typing import Any

from slumberd.errors import UsageError
from slumberd.service.control_socket import encode_request
from slumberd.storage.strict_json import read_object


def as_json(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as its JSON is read again, so that every way takes the same requests.

    Raises:
        RequestTooLargeError: No interface takes so much.
        UsageError: JSON cannot hold a value: infinity, half a character, a number of over 64 bits;
            or values are nested too deep.
    """
    try:
        # orjson writes null for infinity.
        json.dumps(request, allow_nan=False)
        line = encode_request(operation, request)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    except RecursionError:
        raise UsageError("the request is nested too deep to be written as JSON") from None
    try:
        found = read_object(line)
    except ValueError as error:
        raise UsageError(f"the request cannot be read: {error}") from None
    return {name: found[name] for name in request}

"""Show the values of facts as text, and read the values that people write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def show_value(payload: Mapping[str, Any]) -> str:
    """Return what a fact says of its subject: its object, or its content without one."""
    value = payload.get("object", payload.get("content", ""))
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def write_value(value: object) -> str:
    """Return the text that `read_value` reads as this value."""
    if isinstance(value, str) and value.isprintable() and read_value(value) == value:
        return value
    return orjson.dumps(value, default=str).decode()


def read_value(text: str) -> Any:  # noqa: ANN401 # any JSON
    """Return the value that a person wrote: JSON, or the text itself when it is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text

"""Durations: seconds, as a number, or as a number with a unit."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

LONGEST = 366 * 86_400
"""The longest duration, in seconds; a longer one is a typing error."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds_of(value: object) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is not a duration, or not between 0 and a year.
    """
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds <= LONGEST:
        raise ValueError(
            f"{value!r} is not a duration; write seconds, or a number with s, m, h or d, as '10m'"
        )
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else None


Duration = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
                {"type": "string", "pattern": rf"^{_TEXT.pattern}$"},
            ]
        }
    ),
]
"""Seconds; read from a number or from text."""

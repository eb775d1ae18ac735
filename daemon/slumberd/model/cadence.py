"""Read cadences (when a rule is due) and durations (seconds, or a number with a unit)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

MAX_EVERY = 10**9
"""The largest N of ``every: N``; a larger one is a typing error."""


CADENCE_KEYS = ("every", "cron", "interval")
"""The keys of a cadence, of which it has exactly one."""

ONE_CADENCE = "exactly one of 'every', 'cron' and 'interval' is needed"

EPISODES = r"^[1-9][0-9]{0,8} episodes?$"
"""``every`` in words, as ``100 episodes``."""


INTERVALS = {
    **{f"{n}m": f"*/{n} * * * *" for n in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    **{f"{n}h": f"0 */{n} * * *" for n in (1, 2, 3, 4, 6, 8, 12)},
    "1d": "0 0 * * *",
}
"""The values of ``interval``, which divide a day evenly, as cron expressions in UTC."""


@dataclass(frozen=True, slots=True)
class Every:
    """Due when at least `count` versions of episodes lie above the watermark."""

    count: int


@dataclass(frozen=True, slots=True)
class Cron:
    """Due when an instant of the expression has passed since the last one served.

    Attributes:
        expression: Five fields, as in crontab(5), or one of its six macros.
        timezone: An IANA name; None takes the configuration's.
    """

    expression: str
    timezone: str | None = None


Cadence = Every | Cron


def cadence_of(document: Mapping[str, Any]) -> Cadence:
    """Read a rule's ``cadence``; do not check whether a cron expression has instants.

    An interval is a cron expression in UTC.

    Raises:
        ValueError: It has not exactly one of `CADENCE_KEYS`, or a value is out of bounds.
    """
    if unknown := sorted(set(document) - {*CADENCE_KEYS, "timezone"}):
        raise ValueError(f"unknown key {unknown[0]!r}; write 'every: N' or 'cron: \"0 3 * * *\"'")
    if sum(key in document for key in CADENCE_KEYS) != 1:
        raise ValueError(ONE_CADENCE)
    if "cron" in document:
        return _cron(document)
    if "timezone" in document:
        raise ValueError("'timezone' goes with 'cron' only")
    return _interval(document) if "interval" in document else _every(document)


def count_in(every: object) -> object:
    """Return the number in a text such as ``100 episodes``; any other value as it is."""
    if isinstance(every, str) and re.fullmatch(EPISODES, every):
        return int(every.split()[0])
    return every


def _every(document: Mapping[str, Any]) -> Every:
    count = count_in(document["every"])
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_EVERY:
        raise ValueError(
            f"'every' is a whole number from 1 to {MAX_EVERY}, or in words as '100 episodes',"
            f" not {count!r}"
        )
    return Every(count)


def _interval(document: Mapping[str, Any]) -> Cron:
    interval = document["interval"]
    if not isinstance(interval, str) or interval not in INTERVALS:
        raise ValueError(f"'interval' is one of {' '.join(INTERVALS)}, not {interval!r}")
    return Cron(INTERVALS[interval], "UTC")


def _cron(document: Mapping[str, Any]) -> Cron:
    expression, timezone = document["cron"], document.get("timezone")
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError(f"'cron' is an expression in quotes, not {expression!r}")
    if timezone is not None and (not isinstance(timezone, str) or not timezone):
        raise ValueError(f"'timezone' is a name as 'Europe/Berlin', not {timezone!r}")
    return Cron(expression, timezone)


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

"""SQLite's date functions without its clock: what they say depends on what they are given.

A row may hold the text ``now`` where a date is looked for; built in, they would read the time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from slumberd.stores.bounds import DATES, LONGEST_PATTERN

_Value = str | bytes | int | float | None

# A date, a time of day and a day number all begin with a digit; words do not.
_TIME = re.compile(r"\s*[-+.]*\d")
_ZONES = frozenset({"localtime", "utc"})


@contextmanager
def clockless(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the date functions of a connection give NULL where they would read clock or zone.

    Afterwards the connection has no date functions: SQLite never goes back to those it came with.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as calendar:
        for name in DATES:
            connection.create_function(name, -1, partial(_call, calendar, name), deterministic=True)
        yield


def _call(calendar: sqlite3.Connection, name: str, *given: _Value) -> _Value:
    if not _is_told(given[1:] if name == "strftime" else given) or _is_long(given[0]):
        return None
    marks = ", ".join("?" * len(given))
    answer: _Value = calendar.execute(f"SELECT {name}({marks})", given).fetchone()[0]
    return answer


def _is_told(given: tuple[_Value, ...]) -> bool:
    if not given or not all(isinstance(one, str | int | float) for one in given):
        return False
    time, *modifiers = given
    return _TIME.match(str(time)) is not None and _ZONES.isdisjoint(
        str(modifier).strip().lower() for modifier in modifiers
    )


def _is_long(text: _Value) -> bool:
    # No date is, and a long format takes long.
    return isinstance(text, str) and len(text) > LONGEST_PATTERN

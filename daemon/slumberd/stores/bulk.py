"""Write many rows by few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

MOST = 200
"""Rows of one statement: a millisecond or two, after which it can be told to stop."""

_SIZES = (MOST, 20, 4, 1)

Row = tuple[Any, ...]


def insert(connection: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    """Insert rows as ``executemany`` does, whose statement begins with ``INSERT INTO``.

    That wants the interpreter back after every row, and waits for whichever thread has it; this
    does after every two hundredth, so others can work meanwhile. When a row is refused, the whole
    transaction is rolled back.
    """
    first = 0
    for size in _SIZES:
        while len(rows) - first >= size:
            values = tuple(chain.from_iterable(rows[first : first + size]))
            connection.execute(_of_many(sql, size), values)
            first += size


@lru_cache(maxsize=32)
def _of_many(sql: str, size: int) -> str:
    # Could it fail half-way and let the transaction go on, SQLite would keep a copy of every page
    # that it changes: a fifth of the time.
    before, values, after = sql.replace("INSERT", "INSERT OR ROLLBACK", 1).partition("VALUES ")
    row, bracket, rest = after.partition(")")
    return before + values + ", ".join([row + bracket] * size) + rest

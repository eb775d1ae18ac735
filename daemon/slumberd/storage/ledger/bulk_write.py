"""Write many rows by few statements.

Tell our own writing of ``facts`` from other programs': theirs is noted by triggers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

from slumberd.sql_statements import statements

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


MANY = 500
"""For as many rows it is cheaper to take the triggers off than to let them find nothing to do."""

_SQL = statements("external_changes")
_SCHEMA = statements("ledger_schema")
_LOOKING = statements("looking")


@contextmanager
def by_us(connection: sqlite3.Connection, *, rows: int) -> Iterator[None]:
    """Let nothing that the block writes into ``facts`` be noted; inside a transaction.

    Nobody else sees a moment without the notes: what is changed here ends with the block, and the
    transaction ends after it.

    Args:
        connection: It reads nothing meanwhile.
        rows: About how many the block writes.
    """
    # Where a table has a trigger, even one that does nothing, SQLite keeps what each single
    # statement changes, to be able to take that back alone: 3 microseconds a row.
    if rows >= MANY:
        yield from _without_triggers(connection)
    else:
        connection.execute(_SQL["begin_own_write"])
        yield
        connection.execute(_SQL["end_own_write"])


def _without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    for kind in ("insert", "update", "delete"):
        connection.execute(_SQL[f"drop_{kind}"])
    yield
    for kind in ("insert", "update", "delete"):
        connection.execute(_SCHEMA[f"{kind}_trigger"])


def notes_others(connection: sqlite3.Connection) -> bool:
    """Say whether the triggers are there, and are ours, that note what other programs write."""
    found = dict(connection.execute(_LOOKING["triggers"], {"table": "facts"}).fetchall())
    wanted = {
        "slumberd_facts_inserted": _SCHEMA["insert_trigger"],
        "slumberd_facts_updated": _SCHEMA["update_trigger"],
        "slumberd_facts_deleted": _SCHEMA["delete_trigger"],
    }
    return all(found.get(name) == sql.rstrip(";") for name, sql in wanted.items())

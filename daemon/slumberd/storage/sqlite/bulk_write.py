"""Insert many rows with few statements, and mark own writes of ``facts`` for the triggers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain

from slumberd.sql_statements import statements
from slumberd.storage.engine import Row

MOST = 200
"""Rows of one statement: it takes a millisecond or two, and can be stopped afterwards."""

_SIZES = (MOST, 20, 4, 1)


def insert(connection: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    """Insert rows as ``executemany`` does; the statement begins with ``INSERT INTO``.

    ``executemany`` takes the interpreter lock after each row; this function takes it after 200
    rows, so other threads can work. When SQLite refuses a row, it rolls the transaction back.
    """
    first = 0
    for size in _SIZES:
        while len(rows) - first >= size:
            values = tuple(chain.from_iterable(rows[first : first + size]))
            connection.execute(_of_many(sql, size), values)
            first += size


@lru_cache(maxsize=32)
def _of_many(sql: str, size: int) -> str:
    # Without ROLLBACK, SQLite copies every page that the statement changes: a fifth of the time.
    before, values, after = sql.replace("INSERT", "INSERT OR ROLLBACK", 1).partition("VALUES ")
    row, bracket, rest = after.partition(")")
    return before + values + ", ".join([row + bracket] * size) + rest


MANY = 500
"""From so many rows on, dropping the triggers is cheaper than running them."""

_SQL = statements("external_changes")
_SCHEMA = statements("ledger_schema")
_INSPECTION = statements("inspection")


@contextmanager
def own_writes(connection: sqlite3.Connection, *, rows: int) -> Iterator[None]:
    """Keep the triggers from recording what the block writes; inside a transaction.

    Other connections never see the change: the block restores it before the transaction ends.

    Args:
        connection: Without an open cursor.
        rows: About how many rows the block writes.
    """
    # For a table with a trigger SQLite keeps a journal of each statement: 3 microseconds a row.
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


def has_change_triggers(connection: sqlite3.Connection) -> bool:
    """Return whether the triggers that record writes of other programs are in place."""
    found = dict(connection.execute(_INSPECTION["triggers"], {"table": "facts"}).fetchall())
    wanted = {
        "slumberd_facts_inserted": _SCHEMA["insert_trigger"],
        "slumberd_facts_updated": _SCHEMA["update_trigger"],
        "slumberd_facts_deleted": _SCHEMA["delete_trigger"],
    }
    return all(found.get(name) == sql.rstrip(";") for name, sql in wanted.items())

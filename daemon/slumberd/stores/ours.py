"""Tell our own writing of ``facts`` from other programs': theirs is noted by triggers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from slumberd.storage.sqlite.statements import statements

MANY = 500
"""For as many rows it is cheaper to take the triggers off than to let them find nothing to do."""

_SQL = statements("external")
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
        connection.execute(_SQL["ours"])
        yield
        connection.execute(_SQL["not_ours"])


def _without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    for kind in ("insert", "update", "delete"):
        connection.execute(_SQL[f"drop_{kind}"])
    yield
    for kind in ("insert", "update", "delete"):
        connection.execute(_SCHEMA[f"note_{kind}"])


def notes_others(connection: sqlite3.Connection) -> bool:
    """Say whether the triggers are there, and are ours, that note what other programs write."""
    found = dict(connection.execute(_LOOKING["triggers"], {"table": "facts"}).fetchall())
    wanted = {
        "slumberd_facts_inserted": _SCHEMA["note_insert"],
        "slumberd_facts_updated": _SCHEMA["note_update"],
        "slumberd_facts_deleted": _SCHEMA["note_delete"],
    }
    return all(found.get(name) == sql.rstrip(";") for name, sql in wanted.items())

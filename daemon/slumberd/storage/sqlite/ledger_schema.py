"""The tables of facts.db, created where they are missing."""

from __future__ import annotations

import sqlite3

from slumberd.sql_statements import statements
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import require_key
from slumberd.storage.sqlite import migrations
from slumberd.storage.sqlite.connection import transaction
from slumberd.storage.sqlite.health import has_table

_FACTS = statements("facts")
_SCHEMA = statements("ledger_schema")
_COMPONENT = "ledger"
_OLDEST = _NEWEST = 2
"""Versions of the tables that are read; slumberd 0.1.0 wrote version 1."""


def create(connection: sqlite3.Connection, session: Session) -> None:
    """Create the specified table and the tables of the ledger, where they are missing.

    Args:
        connection: Outside of any transaction.
        session: Runs statements on the same connection.

    Raises:
        SchemaError: A newer slumberd wrote the file, or slumberd 0.1.0.
        LedgerKeyError: The connection does not have the key of the ledger.
    """
    check_version(connection)
    with transaction(connection):
        connection.execute(_FACTS["create_facts"])
    steps = [";\n".join(_SCHEMA.values())]
    migrations.upgrade(connection, steps, component=_COMPONENT, oldest=_OLDEST)
    require_key(session)


def find_missing(connection: sqlite3.Connection) -> list[str]:
    """Return the warnings of a file without the tables that `create` makes.

    Raises:
        SchemaError: A newer slumberd wrote the file, or slumberd 0.1.0.
    """
    if _is_newest(connection):
        return []
    return ["there is no ledger yet: `bootstrap` begins one with the current facts"]


def has_ledger(connection: sqlite3.Connection) -> bool:
    """Return whether a file has a ledger.

    Raises:
        SchemaError: A newer slumberd wrote the file, or slumberd 0.1.0.
    """
    check_version(connection)
    return has_table(connection, "slumberd_ledger")


def check_version(connection: sqlite3.Connection) -> None:
    """Refuse a file whose ledger another version of slumberd wrote.

    Raises:
        SchemaError: A newer slumberd wrote the file, or slumberd 0.1.0.
    """
    _is_newest(connection)


def _is_newest(connection: sqlite3.Connection) -> bool:
    return migrations.is_newest(connection, _NEWEST, component=_COMPONENT, oldest=_OLDEST)

"""The tables of facts.db, created where they are missing."""

from __future__ import annotations

import sqlite3

from slumberd.sql_statements import statements
from slumberd.storage.ledger.rows import checked_key
from slumberd.storage.sqlite import migrations
from slumberd.storage.sqlite.connection import transaction
from slumberd.storage.sqlite.health import has_table

_FACTS = statements("facts")
_SCHEMA = statements("ledger_schema")
_LEDGER = statements("ledger")
_COMPONENT = "ledger"
SUCCESSES = "slumberd_successes"
"""The table of each rule's last success; younger than the ledger, which says nothing of it."""


def create(connection: sqlite3.Connection) -> None:
    """Create the specified table and our own beside it; changes nothing where all is there.

    Raises:
        SchemaError: A newer slumberd has been here.
        LedgerKeyError: The connection has not the key that the ledger was begun with.
    """
    with transaction(connection):
        connection.execute(_FACTS["create_facts"])
    migrations.upgrade(connection, [";\n".join(_SCHEMA.values())], component=_COMPONENT)
    checked_key(connection)
    _create_successes(connection)
    _index_owners(connection)


def _create_successes(connection: sqlite3.Connection) -> None:
    # Not a step of the ledger's version: an older slumberd can go on with the file.
    if not has_table(connection, SUCCESSES):
        with transaction(connection):
            connection.execute(_LEDGER["create_successes"])


def _index_owners(connection: sqlite3.Connection) -> None:
    # Neither is this: to an older slumberd it is as good as the index that it made.
    if connection.execute(_LEDGER["has_older_index"]).fetchone():
        with transaction(connection):
            connection.execute(_LEDGER["drop_older_index"])
            connection.execute(_LEDGER["index_owners"])


def lacking(connection: sqlite3.Connection) -> list[str]:
    """Return what a file lacks of what `create` makes, a sentence each.

    Raises:
        SchemaError: A newer slumberd has been here.
    """
    if migrations.is_newest(connection, 1, component=_COMPONENT):
        return []
    return ["there is no ledger yet: `bootstrap` begins one with what stands"]

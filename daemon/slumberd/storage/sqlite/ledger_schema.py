"""The tables of facts.db, created where they are missing, and upgraded where they are older."""

from __future__ import annotations

import sqlite3

from slumberd.sql_statements import statements
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import require_key
from slumberd.storage.sqlite.file_schema import FileSchema, describe_older, find_number, upgrade
from slumberd.storage.sqlite.health import has_table
from slumberd.storage.sqlite.session import transaction

_FACTS = statements("facts")
_TABLES = statements("ledger_schema")

_REMEDY = (
    "a build between 0.1.0 and 0.2.0 wrote it, or another program changed it: restore a backup, or "
    "move it away, and slumberd promotes its facts again from the episodes"
)

SCHEMA = FileSchema(
    "ledger",
    (
        ";\n".join([_FACTS["create_facts"], *_TABLES.values()]),
        # Schema 3 has the tables of schema 2, and memory.db of that release has a number.
        "",
    ),
    unnumbered=None,
    repairs=False,
    remedy=_REMEDY,
)
"""The schemas of facts.db; the first is that of slumberd 0.2.0, and never changes."""


def create(connection: sqlite3.Connection, session: Session) -> int:
    """Create the specified table and the tables of the ledger, or upgrade them.

    Args:
        connection: Outside of any transaction.
        session: Runs statements on the same connection.

    Returns:
        The number of the schema that the file had; 0 when it had none.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
        LedgerKeyError: The connection does not have the key of the ledger.
    """
    with transaction(connection):
        former = upgrade(connection, SCHEMA)
        connection.execute(_FACTS["create_facts"])
        require_key(session)
    return former


def upgrade_older(connection: sqlite3.Connection, session: Session) -> None:
    """Upgrade the tables of a file that an older release made; create none in a file without them.

    Args:
        connection: Outside of any transaction.
        session: Runs statements on the same connection.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
        LedgerKeyError: The connection does not have the key of the ledger; nothing is changed.
    """
    if find_number(connection, SCHEMA) not in (0, SCHEMA.newest):
        create(connection, session)


def find_missing(connection: sqlite3.Connection) -> list[str]:
    """Return the warnings of a file without the tables that `create` makes.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    number = find_number(connection, SCHEMA)
    if not number:
        return ["there is no ledger yet: `bootstrap` begins one with the current facts"]
    return describe_older(number, SCHEMA)


def has_ledger(connection: sqlite3.Connection) -> bool:
    """Return whether a file has a ledger.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    check_version(connection)
    return has_table(connection, "slumberd_ledger")


def check_version(connection: sqlite3.Connection) -> None:
    """Check that this slumberd knows the schema of a file.

    Raises:
        SchemaError: The file has an unknown schema, or tables that do not fit its number.
    """
    find_number(connection, SCHEMA)

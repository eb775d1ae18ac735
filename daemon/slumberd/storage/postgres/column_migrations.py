"""Add the nullable columns that programs request to the specified tables."""

from __future__ import annotations

import psycopg

from slumberd.model.errors import MigrationNotSupportedError
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.added_columns import AddedColumn, added_columns, quoted
from slumberd.storage.postgres.connection import Connection, end_transaction

_RECORD = (
    b"INSERT INTO store_migrations (store, version, applied_at) VALUES ($1, $2, $3)"
    b" ON CONFLICT DO NOTHING"
)


def add_columns(
    connection: Connection, plan: MigrationPlan, *, store: str, table: str, at: str
) -> None:
    """Add a plan's columns in one transaction, as the owner of the schema.

    Args:
        connection: Outside of any transaction.
        plan: The plan; all of it is checked before anything is done.
        store: The store's name, for errors.
        table: The table that may grow.
        at: Recorded with the plan's version, once.

    Raises:
        MigrationNotSupportedError: An operation is not supported; nothing is done.
    """
    columns = added_columns(plan, store=store, tables=[table])
    try:
        connection.execute(b"SET LOCAL ROLE slumberd_owner")
        for column in columns:
            _add(connection, column, store)
        with psycopg.RawCursor(connection) as cursor:
            cursor.execute(_RECORD, (table, plan.target_version, at))
        connection.commit()
    finally:
        end_transaction(connection)


def _add(connection: Connection, column: AddedColumn, store: str) -> None:
    table, name = quoted(column.table), quoted(column.name)
    sql = f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {column.type}"
    try:
        connection.execute(sql.encode())
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise
        problem = f"PostgreSQL says: {str(error).splitlines()[0]}"
        raise MigrationNotSupportedError(store, "add_column", problem) from error

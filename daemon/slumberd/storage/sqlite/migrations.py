"""Add the nullable columns that programs request to the specified tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from slumberd.errors import MigrationNotSupportedError
from slumberd.model.health import MigrationPlan
from slumberd.sql_statements import statements
from slumberd.storage.added_columns import AddedColumn, added_columns, folded, quoted
from slumberd.storage.sqlite.connection import transaction

_SQL = statements("migrations")


def add_columns(
    connection: sqlite3.Connection,
    plan: MigrationPlan,
    *,
    store: str,
    tables: Sequence[str],
    at: str,
) -> None:
    """Add a plan's nullable columns in one transaction; existing columns stay as they are.

    Args:
        connection: Outside of any transaction.
        plan: The plan; all of it is checked before anything is done.
        store: The store's name, for errors.
        tables: The tables that may grow.
        at: Recorded with the plan's version, once.

    Raises:
        MigrationNotSupportedError: An operation is not supported; nothing is done.
    """
    columns = added_columns(plan, store=store, tables=tables)
    with transaction(connection):
        for column in columns:
            if problem := _add(connection, column):
                raise MigrationNotSupportedError(store, "add_column", problem)
        if problem := _record(connection, plan.target_version, at):
            raise MigrationNotSupportedError(store, "target_version", problem)


def _add(connection: sqlite3.Connection, column: AddedColumn) -> str:
    """Add a column unless it is there; return why it cannot be, nothing when it is there now."""
    problem = ""
    if _type_of(connection, column) is None:
        table, name = quoted(column.table), quoted(column.name)
        problem = _attempt(connection, f"ALTER TABLE {table} ADD COLUMN {name} {column.type}")
    # SQLite may read a keyword such as NULL as part of another clause.
    found = _type_of(connection, column)
    if problem or found is None or found.upper() == column.type.upper():
        return problem
    return f"column {column.name!r} has type {found!r} and not {column.type!r}"


def _type_of(connection: sqlite3.Connection, column: AddedColumn) -> str | None:
    """Return the type of a column; None when the table has no such column."""
    found = connection.execute(_SQL["types_of_columns"], [column.table]).fetchall()
    types = {folded(name): kind for name, kind in found}
    return types.get(folded(column.name))


def _attempt(connection: sqlite3.Connection, sql: str, **values: object) -> str:
    """Run a statement; return the error that SQLite reports, an empty text when there is none."""
    try:
        connection.execute(sql, values)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise
        return f"SQLite says: {error}"
    return ""


def _record(connection: sqlite3.Connection, version: int, at: str) -> str:
    """Record a version, once; return why that fails, an empty text when it does not."""
    connection.execute(_SQL["create_migrations"])
    problem = _attempt(connection, _SQL["record_migration"], version=version, at=at)
    if problem or not connection.execute(_SQL["has_migration"], {"version": version}).fetchone():
        return f"table '_migrations' belongs to another program; {problem}".rstrip("; ")
    return ""


def file_of(connection: sqlite3.Connection) -> str:
    """Return the path of a connection's main database, as text."""
    path: str = connection.execute(_SQL["file"]).fetchone()[0]
    return path

"""Change existing tables: add columns that hosts request, and upgrade slumberd's own tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from slumberd.errors import MigrationNotSupportedError, SchemaError
from slumberd.model.health import MigrationPlan
from slumberd.sql_statements import statements
from slumberd.storage.added_columns import AddedColumn, added_columns, folded, quoted
from slumberd.storage.sqlite.connection import transaction
from slumberd.storage.sqlite.health import has_table

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


def is_newest(
    connection: sqlite3.Connection, newest: int, *, component: str, oldest: int = 1
) -> bool:
    """Return whether a component's side tables have the newest version.

    Args:
        connection: Of the file.
        newest: The version that this slumberd writes.
        component: The name under which the file keeps the version.
        oldest: The oldest version that this slumberd reads.

    Raises:
        SchemaError: A newer slumberd wrote the tables, or one that is too old.
    """
    return _check_version(connection, component, oldest, newest) == newest


def upgrade(
    connection: sqlite3.Connection, steps: Sequence[str], *, component: str, oldest: int = 1
) -> None:
    """Bring a component's side tables to the newest version, one transaction a step.

    Args:
        connection: Outside of any transaction.
        steps: SQL scripts; the first creates version `oldest`, each later one the next.
        component: The name under which the file keeps the version.
        oldest: The oldest version that this slumberd reads.

    Raises:
        SchemaError: A newer slumberd wrote the tables, or one that is too old.
    """
    newest = oldest + len(steps) - 1
    if _check_version(connection, component, oldest, newest) == newest:
        return
    with transaction(connection):
        connection.execute(_SQL["create_schema"])
    while (version := _check_version(connection, component, oldest, newest)) < newest:
        _step(connection, steps[max(0, version - oldest + 1)], component, version, oldest)


def _check_version(connection: sqlite3.Connection, component: str, oldest: int, newest: int) -> int:
    """Return the version of a component's tables; 0 without any."""
    version = _version(connection, component)
    if version > newest:
        problem = f"was written by a newer slumberd ({component} {version}, ours is {newest})"
        raise SchemaError(file_of(connection), problem, "use that slumberd, or a newer one")
    if 0 < version < oldest:
        problem = (
            f"was written by slumberd 0.1.0 ({component} {version}, ours is {newest}), and this "
            "version does not read it"
        )
        remedy = (
            "move the file away, and slumberd promotes its facts again from the episodes; only "
            "slumberd 0.1.0 reads the manual edits and the ledger in it"
        )
        raise SchemaError(file_of(connection), problem, remedy)
    return version


def _version(connection: sqlite3.Connection, component: str) -> int:
    if not has_table(connection, "slumberd_schema"):
        return 0
    row = connection.execute(_SQL["component_version"], {"component": component}).fetchone()
    return int(row[0]) if row else 0


def _step(
    connection: sqlite3.Connection, script: str, component: str, version: int, oldest: int
) -> None:
    with transaction(connection):
        # Another process may have taken the step while we waited for the lock.
        if _version(connection, component) != version:
            return
        for sql in _split(script):
            connection.execute(sql)
        connection.execute(
            _SQL["set_component_version"],
            {"component": component, "version": max(oldest, version + 1)},
        )


def _split(script: str) -> Iterator[str]:
    # Not executescript: it commits what is open.
    sql = ""
    for piece in f"{script.rstrip().rstrip(';')};".split(";")[:-1]:
        sql += f"{piece};"
        if sqlite3.complete_statement(sql):
            yield sql
            sql = ""
    if sql.strip(" \n;"):
        raise ValueError(f"a script ends within a statement: {sql[-60:]!r}")


def file_of(connection: sqlite3.Connection) -> str:
    """Return the path of a connection's main database, as text."""
    path: str = connection.execute(_SQL["file"]).fetchone()[0]
    return path

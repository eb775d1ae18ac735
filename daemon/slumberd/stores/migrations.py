"""Change tables that exist: columns that hosts ask for, and our own side tables' versions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slumberd.core.health import MigrationPlan
from slumberd.errors import MigrationNotSupportedError, SchemaError
from slumberd.stores.inspection import has_table
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import transaction

_SQL = statements("migrations")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*( ?\(\d+(, ?\d+)?\))?")


class _Column(NamedTuple):
    table: str
    name: str
    type: str


def add_columns(
    connection: sqlite3.Connection,
    plan: MigrationPlan,
    *,
    store: str,
    tables: Sequence[str],
    at: str,
) -> None:
    """Add a plan's nullable columns in one transaction; those that exist are left alone.

    Args:
        connection: Outside of any transaction.
        plan: Looked through whole before anything is done.
        store: The store's name, for errors.
        tables: The tables that may grow.
        at: Recorded with the plan's version, once.

    Raises:
        MigrationNotSupportedError: An operation is none that is supported; nothing is done.
    """
    columns = [_column(operation, store, tables) for operation in plan.operations]
    with transaction(connection):
        for column in columns:
            _add(connection, column)
        connection.execute(_SQL["create_migrations"])
        connection.execute(_SQL["record_migration"], {"version": plan.target_version, "at": at})


def _column(operation: Mapping[str, Any], store: str, tables: Sequence[str]) -> _Column:
    op = operation.get("op")
    column = _Column(
        operation.get("table", ""), operation.get("column", ""), operation.get("type", "TEXT")
    )
    if reason := _refusal(op, operation, column, tables):
        raise MigrationNotSupportedError(store, str(op), reason)
    return column


def _refusal(
    op: object, operation: Mapping[str, Any], column: _Column, tables: Sequence[str]
) -> str:
    if op != "add_column":
        return "v1-add-column-only"
    if not operation.get("nullable"):
        return "non-nullable-add"
    if not all(map(_usable, column)):
        return "missing-fields"
    if column.table not in tables:
        return f"unknown table {column.table!r}"
    if not _TYPE.fullmatch(column.type):
        return f"unusable type {column.type!r}"
    return ""


def _usable(part: object) -> bool:
    return isinstance(part, str) and part != "" and "\0" not in part


def _add(connection: sqlite3.Connection, column: _Column) -> None:
    present = {name.lower() for (name,) in connection.execute(_SQL["columns"], [column.table])}
    if column.name.lower() in present:
        return
    table, name = _quoted(column.table), _quoted(column.name)
    connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {column.type}")


def _quoted(identifier: str) -> str:
    return '"{}"'.format(identifier.replace('"', '""'))


def upgrade(connection: sqlite3.Connection, steps: Sequence[str], *, component: str) -> None:
    """Bring a component's side tables to the newest version, one transaction a step.

    Args:
        connection: Outside of any transaction.
        steps: SQL scripts; the first makes version 1 of nothing, each later one the next.
        component: The name under which the file keeps the version.

    Raises:
        SchemaError: A newer slumberd has been here.
    """
    if _version(connection, component) == len(steps):
        return
    with transaction(connection):
        connection.execute(_SQL["create_schema"])
    while (version := _version(connection, component)) < len(steps):
        _step(connection, steps[version], component, version)
    if version > len(steps):
        raise SchemaError(
            _file(connection),
            f"was written by a newer slumberd ({component} {version}, ours is {len(steps)})",
        )


def _version(connection: sqlite3.Connection, component: str) -> int:
    if not has_table(connection, "slumberd_schema"):
        return 0
    row = connection.execute(_SQL["component_version"], {"component": component}).fetchone()
    return int(row[0]) if row else 0


def _step(connection: sqlite3.Connection, script: str, component: str, version: int) -> None:
    with transaction(connection):
        # Another process may have taken the step while we waited for the lock.
        if _version(connection, component) != version:
            return
        for sql in _split(script):
            connection.execute(sql)
        connection.execute(
            _SQL["set_component_version"], {"component": component, "version": version + 1}
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


def _file(connection: sqlite3.Connection) -> Path:
    return Path(connection.execute(_SQL["file"]).fetchone()[0])

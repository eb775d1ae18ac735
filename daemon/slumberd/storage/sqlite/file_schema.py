"""Check which schema a file has, by its number and by its real tables; upgrade it, add columns.

The table ``slumberd_schema`` keeps the number: SQLite's ``user_version`` belongs to the host. The
tables that the number promises are computed: the steps up to that number run in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from slumberd.model.errors import MigrationNotSupportedError, SchemaError
from slumberd.model.store_status import MigrationPlan
from slumberd.sql_statements import statements
from slumberd.storage.added_columns import AddedColumn, added_columns, folded, quoted
from slumberd.storage.sqlite.session import snapshot, transaction

_SQL = statements("migrations")

OLDEST = 2
"""The schema of slumberd 0.2.0, the oldest release whose files every later one opens."""

_CARRY_OVER = (
    "`slumberd upgrade --to DIR` carries its facts, manual edits and erased scopes over into new "
    "files, and leaves this one as it is"
)
_ERASED_SCOPES_OF_0_1_0 = "slumberd_forgotten"
_NEWER = "use that slumberd, or a newer one"
_UNKNOWN = "restore a backup, or open it with the program that wrote it"

Forms = dict[str, tuple[Any, ...]]
"""By table or index, its form: the columns of a table, or the statement of an index."""


class FileSchema(NamedTuple):
    """The tables that slumberd keeps in one kind of file.

    Attributes:
        component: The name under which the file keeps the number of its schema.
        steps: SQL scripts; the first creates schema `OLDEST`, each later one makes the next.
        unnumbered: The schema of a file that has tables and no number; None refuses such a file.
        repairs: Whether a missing table or index is created again; else the file is refused.
        remedy: What to do with a file whose tables do not fit its number.
    """

    component: str
    steps: Sequence[str]
    unnumbered: int | None
    repairs: bool
    remedy: str

    @property
    def newest(self) -> int:
        """The number of the schema that this slumberd writes."""
        return OLDEST + len(self.steps) - 1


def find_number(connection: sqlite3.Connection, schema: FileSchema) -> int:
    """Return the number of a file's schema, after comparing its tables; 0 without any tables.

    Raises:
        SchemaError: The number is unknown, or the tables do not fit it.
    """
    if connection.in_transaction:
        return _find_number(connection, schema)
    # Another process may upgrade the file between two statements.
    with snapshot(connection):
        return _find_number(connection, schema)


def _find_number(connection: sqlite3.Connection, schema: FileSchema) -> int:
    where, newest = file_of(connection), schema.newest
    found = _forms_in(connection)
    recorded = _recorded_number(connection, schema.component, found)
    ours = f"{schema.component} {recorded!r}, ours is {newest}"
    if recorded == 1:
        raise SchemaError(where, f"was written by slumberd 0.1.0 ({ours})", _CARRY_OVER)
    if _ERASED_SCOPES_OF_0_1_0 in found:
        raise SchemaError(where, "keeps the erased scopes of slumberd 0.1.0", _CARRY_OVER)
    if recorded is None and not found.keys() & _forms_of(schema, newest).keys():
        return 0
    number = schema.unnumbered if recorded is None else recorded
    if number is None:
        raise SchemaError(where, "has tables of slumberd, but no number of them", schema.remedy)
    if not isinstance(number, int) or number < OLDEST:
        raise SchemaError(where, f"has an unknown schema ({ours})", _UNKNOWN)
    if number > newest:
        raise SchemaError(where, f"was written by a newer slumberd ({ours})", _NEWER)
    difference = _find_difference(found, schema, number, is_numbered=recorded is not None)
    if difference:
        problem = f"does not have the tables of schema {number} ({schema.component}): {difference}"
        raise SchemaError(where, problem, schema.remedy)
    return number


def is_of_0_1_0(connection: sqlite3.Connection) -> bool:
    """Return whether a file has a ledger of slumberd 0.1.0."""
    return _recorded_number(connection, "ledger", _forms_in(connection)) == 1


def _recorded_number(connection: sqlite3.Connection, component: str, found: Forms) -> object:
    """Return what the file keeps as its number; None when it keeps nothing."""
    if "slumberd_schema" not in found:
        return None
    try:
        row = connection.execute(_SQL["component_version"], {"component": component}).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        problem = "has another table 'slumberd_schema' than slumberd makes"
        raise SchemaError(file_of(connection), problem, _UNKNOWN) from error
    if row is None:
        return None
    return row[0] if row[0] is not None else "NULL"


def _find_difference(found: Forms, schema: FileSchema, number: int, *, is_numbered: bool) -> str:
    """Return how the tables of a file differ from those of a schema; empty when they do not."""
    for name, form in sorted(_forms_of(schema, number).items()):
        kind = form[0]
        if name not in found:
            if not (schema.repairs and is_numbered):
                return f"it lacks the {kind} {name!r}"
        elif found[name] != form:
            return f"the {kind} {name!r} has another form"
    return ""


def _forms_in(connection: sqlite3.Connection) -> Forms:
    """Return the forms of all tables and indexes of slumberd in a file.

    Tables and indexes of the specified tables are not among them: their programs may rebuild them.
    """
    forms: Forms = {}
    for kind, name, sql, without_rowid, strict in connection.execute(_SQL["own_objects"]):
        forms[name] = (kind, sql) if kind == "index" else (kind, without_rowid, strict)
    for table, *column in connection.execute(_SQL["own_columns"]):
        forms[table] = (*forms[table], tuple(column))
    return forms


@cache
def _forms_of_steps(steps: tuple[str, ...]) -> Forms:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for step in steps:
            for sql in split(step):
                connection.execute(sql)
        return _forms_in(connection)


def _forms_of(schema: FileSchema, number: int) -> Forms:
    return _forms_of_steps(tuple(schema.steps[: number - OLDEST + 1]))


def describe_older(number: int, schema: FileSchema) -> list[str]:
    """Return a warning when the next start upgrades a file whose schema has this number."""
    if number in (0, schema.newest):
        return []
    return [
        f"the file has schema {number}, and the next start upgrades it to {schema.newest}: make a "
        "copy first with `slumberd backup DIR`, since older releases do not open it afterwards"
    ]


def prepare_reader(connection: sqlite3.Connection, schema: FileSchema) -> None:
    """Let a connection that only reads see the newest tables of a file, empty where it lacks them.

    Raises:
        SchemaError: As `find_number`.
    """
    number = find_number(connection, schema)
    if number in (0, schema.newest):
        return
    newest, older = _forms_of(schema, schema.newest), _forms_of(schema, number)
    missing = [name for name in newest if name not in older and newest[name][0] == "table"]
    connection.execute("PRAGMA query_only = OFF")  # it forbids temporary tables, too
    for name in missing:
        columns = ", ".join(f'"{column}"' for column, *_ in newest[name][3:])
        connection.execute(f'CREATE TEMP TABLE IF NOT EXISTS "{name}" ({columns})')
    connection.execute("PRAGMA query_only = ON")


def upgrade(connection: sqlite3.Connection, schema: FileSchema) -> int:
    """Bring the tables of a file to the newest schema, within the caller's transaction.

    Returns:
        The number that the file had; 0 when it had no tables.

    Raises:
        SchemaError: As `find_number`.
    """
    former = find_number(connection, schema)
    if former == schema.newest:
        return former
    connection.execute(_SQL["create_schema"])
    for step in schema.steps[max(0, former - OLDEST + 1) :]:
        for sql in split(step):
            connection.execute(sql)
    number = {"component": schema.component, "version": schema.newest}
    connection.execute(_SQL["set_component_version"], number)
    return former


def split(script: str) -> Iterator[str]:
    """Yield the statements of a script, of which there may be none."""
    if not script.strip():
        return
    # Not executescript: it commits what is open.
    sql = ""
    for piece in f"{script.rstrip().rstrip(';')};".split(";")[:-1]:
        sql += f"{piece};"
        if sqlite3.complete_statement(sql):
            yield sql
            sql = ""
    if sql.strip(" \n;"):
        raise ValueError(f"a script ends within a statement: {sql[-60:]!r}")


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

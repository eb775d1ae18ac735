"""Create the schema of slumberd in a database, upgrade it, and check it."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

import psycopg

from slumberd.errors import SchemaError, UsageError
from slumberd.model.store_status import DatabaseLogin
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import (
    Connection,
    connect,
    end_transaction,
    translate_errors,
)

LEAST_SERVER = 140_000
"""The oldest version of the server, as ``server_version_num`` says it."""

MOST_SHARDS = 1_024
_INIT = "`slumberd postgres init` creates it"
_MIGRATE = "`slumberd postgres migrate` upgrades it"
_COPY_FIRST = "make a copy with pg_dump first"
_RESTORE = "another program changed it: restore a backup"
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('slumberd.migrations', 0))"
_AS_OWNER = b"SET LOCAL ROLE slumberd_owner"
_HAS_SCHEMA = b"""
SELECT EXISTS (
  SELECT 1
  FROM pg_class AS tables
  INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
  WHERE schemas.nspname = 'slumberd' AND tables.relname = 'migrations'
)
"""
_APPLIED = b"SELECT number, works_with FROM slumberd.migrations ORDER BY number"
_COLUMNS = b"""
SELECT tables.relname || ' ' || columns.attname || ' '
  || format_type(columns.atttypid, columns.atttypmod)
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
INNER JOIN pg_attribute AS columns ON columns.attrelid = tables.oid
WHERE schemas.nspname = 'slumberd'
  AND tables.relkind IN ('r', 'p')
  AND NOT tables.relispartition
  AND columns.attnum > 0
  AND NOT columns.attisdropped
ORDER BY 1
"""
_RECORD = b"""
INSERT INTO slumberd.migrations (number, name, works_with) VALUES ($1::integer, $2, $3::integer)
"""
_WORKS_WITH = re.compile(r"^-- works with: step (\d+)$", re.MULTILINE)


class Migration(NamedTuple):
    """One step of the schema.

    Attributes:
        number: Its number; the steps run in this order.
        name: What it does, in a few words.
        sql: Its statements.
        works_with: A slumberd whose newest step has at least this number works on the schema after
            this step. So hosts of two versions can work side by side.
        columns: The columns of all tables after this step, as ``table column type``.
    """

    number: int
    name: str
    sql: str
    works_with: int
    columns: frozenset[str] = frozenset()


def migrations() -> list[Migration]:
    """Return all steps of the schema, in order."""
    folder = files("slumberd.storage.postgres").joinpath("migrations")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [_migration(name) for name in found if name[:3].isdigit()]


def _migration(file: str) -> Migration:
    number, sql = int(file[:3]), _read(file)
    told = _WORKS_WITH.search(sql)
    works_with = int(told.group(1)) if told else number
    columns = frozenset(_read(f"{file[:3]}.columns").splitlines())
    return Migration(number, file[4:-4].replace("_", " "), sql, works_with, columns)


def roles() -> str:
    """Return the statements that create the roles where they are missing."""
    return _read("roles.sql")


def grants() -> str:
    """Return the statements that grant the roles what they need."""
    return _read("grants.sql")


def _read(name: str) -> str:
    folder = files("slumberd.storage.postgres").joinpath("migrations")
    return folder.joinpath(name).read_text("utf-8")


def installation_script(shards: int) -> str:
    """Return all statements of `install`, for a person who runs them."""
    steps = [f"{step.sql}\n{_record(step)}" for step in migrations()]
    create = f"SELECT slumberd.create_shards({shards:d});"
    schema = "CREATE SCHEMA slumberd AUTHORIZATION slumberd_owner;"
    become = f"{_AS_OWNER.decode()};"
    return "\n".join(["BEGIN;", roles(), schema, become, *steps, create, grants(), "COMMIT;"])


def upgrade_script(address: str) -> str:
    """Return the statements that `upgrade` would run now; write nothing.

    Raises:
        SchemaError: The database has no schema of slumberd, or that of a newer slumberd.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        missing = _find_missing(connection, place)
    if not missing:
        return "-- The schema is the newest."
    steps = [f"{step.sql}\n{_record(step)}" for step in missing]
    return "\n".join(["BEGIN;", f"{_AS_OWNER.decode()};", *steps, grants(), "COMMIT;"])


def _record(step: Migration) -> str:
    return (
        "INSERT INTO slumberd.migrations (number, name, works_with) "  # noqa: S608 # of our own files
        f"VALUES ({step.number:d}, '{step.name}', {step.works_with:d});"
    )


_EXAMINE = b"""
SELECT current_setting('server_version'), current_user,
  (SELECT count(*) FROM pg_class AS tables
   INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
   WHERE schemas.nspname = 'slumberd' AND tables.relname ~ '^ledger_[0-9]+$'),
  has_table_privilege('slumberd.ledger', 'INSERT'),
  has_function_privilege(
    'slumberd.put(text[], text[], bytea[], text[], bytea[])', 'EXECUTE'),
  has_table_privilege('slumberd.facts', 'SELECT')
"""
_RIGHTS = ("consolidate", "put", "read")


def examine(address: str) -> DatabaseLogin:
    """Check the server and the schema, and return what the role may do; write nothing.

    Raises:
        SchemaError: The schema is missing or of another version; or the server cannot hold it.
        PermissionDeniedError: The role may not use the schema at all.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        _check_server(connection, place)
        row = connection.execute(_EXAMINE).fetchone()
        server, role, shards, *allowed = row or ("", "", 0)
        missing = _find_missing(connection, place) if allowed and allowed[0] else []
    if missing:
        problem = f"has an older schema; step {missing[0].number} ({missing[0].name}) is missing"
        raise SchemaError(place, problem, f"{_MIGRATE}; {_COPY_FIRST}")
    rights = [right for right, has in zip(_RIGHTS, allowed, strict=True) if has]
    return DatabaseLogin(server, max(step.number for step in migrations()), shards, role, rights)


def install(address: str, *, shards: int = 1) -> None:
    """Create schema, roles and shards, in one transaction.

    Args:
        address: The address of the database; its role may create schemas and roles.
        shards: How many shards the database has for ever, from 1 to `MOST_SHARDS`.

    Raises:
        UsageError: `shards` is out of range.
        SchemaError: The database has the schema already, or the server cannot hold it.
        PermissionDeniedError: The role may not create them.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise UsageError(f"shards is {shards}; it must be from 1 to {MOST_SHARDS}")
    place = where(address)
    with connect(address) as connection, translate_errors(place):
        _check_server(connection, place)
        connection.execute(_LOCK)
        if has_schema(connection):
            raise SchemaError(place, "has the schema of slumberd already", _MIGRATE)
        connection.execute(roles().encode())
        connection.execute(b"CREATE SCHEMA slumberd AUTHORIZATION slumberd_owner")
        connection.execute(_AS_OWNER)
        _apply(connection, migrations())
        connection.execute(f"SELECT slumberd.create_shards({shards:d})".encode())
        connection.execute(grants().encode())


def upgrade(address: str) -> list[Migration]:
    """Run the steps that the schema lacks, in one transaction; return them.

    Raises:
        SchemaError: The database has no schema of slumberd, or that of a newer slumberd.
    """
    place = where(address)
    with connect(address) as connection, translate_errors(place):
        _check_server(connection, place)
        connection.execute(_LOCK)
        missing = _find_missing(connection, place)
        if missing:
            connection.execute(_AS_OWNER)
            _apply(connection, missing)
            connection.execute(grants().encode())
    return missing


def _apply(connection: Connection, steps: list[Migration]) -> None:
    for step in steps:
        connection.execute(step.sql.encode())
        with psycopg.RawCursor(connection) as cursor:
            cursor.execute(
                _RECORD,
                (step.number, step.name, step.works_with),
            )


def check(connection: Connection, *, place: str) -> None:
    """Check that a database has the schema of this slumberd.

    Args:
        connection: To the database.
        place: The database in words.

    Raises:
        SchemaError: It has none, or that of another version; or the server cannot hold it.
    """
    try:
        _check_server(connection, place)
        missing = _find_missing(connection, place)
    finally:
        end_transaction(connection)
    if missing:
        problem = f"has an older schema; step {missing[0].number} ({missing[0].name}) is missing"
        raise SchemaError(place, problem, f"{_MIGRATE}; {_COPY_FIRST}")


def _check_server(connection: Connection, place: str) -> None:
    version = connection.info.server_version
    if version < LEAST_SERVER:
        problem = f"is a server of version {version // 10_000}"
        raise SchemaError(place, problem, f"slumberd needs {LEAST_SERVER // 10_000} or newer")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        problem = f"has the encoding {encoding}"
        raise SchemaError(place, problem, "create the database with ENCODING 'UTF8'")


def has_schema(connection: Connection) -> bool:
    """Return whether a database has a schema of slumberd, of whatever version.

    The role of the connection needs no right in the schema.
    """
    row = connection.execute(_HAS_SCHEMA).fetchone()
    return bool(row and row[0])


def _find_missing(connection: Connection, place: str) -> list[Migration]:
    if not has_schema(connection):
        raise SchemaError(place, "has no schema of slumberd", _INIT)
    applied: dict[int, int] = dict(connection.execute(_APPLIED).fetchall())
    known = migrations()
    newest = max(step.number for step in known)
    own = sorted(number for number in applied if number <= newest)
    if not own or own != [*range(1, own[-1] + 1)]:
        problem = f"has a schema of unknown steps: {', '.join(map(str, applied)) or 'none'}"
        raise SchemaError(place, problem, _RESTORE)
    newer = [number for number, works_with in applied.items() if works_with > newest]
    if newer:
        raise SchemaError(
            place,
            f"has the schema of a newer slumberd: step {max(newer)} is unknown here",
            "install that version of slumberd",
        )
    _check_columns(connection, place, known[own[-1] - 1])
    return [step for step in known if step.number not in applied]


def columns_of(connection: Connection) -> list[str]:
    """Return the columns of all tables of the schema, as ``table column type``, in order."""
    return [name for (name,) in connection.execute(_COLUMNS).fetchall()]


def _check_columns(connection: Connection, place: str, step: Migration) -> None:
    """Check that the tables have the columns of a step; later steps and programs may add others.

    Raises:
        SchemaError: A column is missing, or has another type.
    """
    missing = sorted(step.columns - {*columns_of(connection)})
    if missing:
        problem = f"does not have the tables of step {step.number}: it lacks {missing[0]!r}"
        raise SchemaError(place, problem, _RESTORE)

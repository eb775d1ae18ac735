"""Create the schema of slumberd in a database, upgrade it, and check it."""

from __future__ import annotations

import re
from importlib.resources import files

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
from slumberd.storage.postgres.shard_map import POSITIONS, Shard, shards_of

LEAST_SERVER = 140_000
"""The oldest version of the server, as ``server_version_num`` says it."""

MOST_SHARDS = 1_024

MAP = "slumberd"
"""The schema of the map of shards."""

STEP = 3
"""The number of the newest step of the schemas."""

_STEP_NAME = "a schema for each shard"
_WORKS_WITH = 3
"""A slumberd whose newest step has at least this number works on the schemas after `STEP`."""

_INIT = "`slumberd postgres init` creates it"
_UPGRADE = "`slumberd postgres upgrade` upgrades it"
_COPY_FIRST = "make a copy with pg_dump first"
_RESTORE = "another program changed it: restore a backup"
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('slumberd.migrations', 0))"
_AS_OWNER = b"SET LOCAL ROLE slumberd_owner"
_HAS_SCHEMA = b"""
SELECT EXISTS (
  SELECT 1
  FROM pg_class AS tables
  INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
  WHERE schemas.nspname = $1 AND tables.relname = 'migrations'
)
"""
_COLUMNS = b"""
SELECT tables.relname || ' ' || columns.attname || ' '
  || format_type(columns.atttypid, columns.atttypmod)
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
INNER JOIN pg_attribute AS columns ON columns.attrelid = tables.oid
WHERE schemas.nspname = $1
  AND tables.relkind IN ('r', 'p')
  AND NOT tables.relispartition
  AND columns.attnum > 0
  AND NOT columns.attisdropped
ORDER BY 1
"""
_OWN_NAME = re.compile(r"\bslumberd_0\b")
"""The schema of a shard in the files of statements, which are those of shard 0."""


def _read(name: str) -> str:
    folder = files("slumberd.storage.postgres").joinpath("schema")
    return folder.joinpath(name).read_text("utf-8")


def _record(schema: str) -> str:
    return (
        f"INSERT INTO {schema}.migrations (number, name, works_with) "  # noqa: S608 # our own words
        f"VALUES ({STEP:d}, '{_STEP_NAME}', {_WORKS_WITH:d});"
    )


def map_statements() -> str:
    """Return the statements that create the map, for the owner of its schema."""
    return f"{_read('map.sql')}\n{_record(MAP)}\n{_read('map_grants.sql')}"


def shard_statements(schema: str) -> str:
    """Return the statements that create the tables of a shard, for the owner of its schema."""
    text = f"{_read('shard.sql')}\n{_read('shard_grants.sql')}"
    return f"{_OWN_NAME.sub(schema, text)}\n{_record(schema)}"


def roles() -> str:
    """Return the statements that create the roles where they are missing."""
    return _read("roles.sql")


def _installation(shards: int) -> list[str]:
    """Return all statements of `install`."""
    schemas = [Shard(number, "").schema for number in range(shards)]
    created = [f"CREATE SCHEMA {name} AUTHORIZATION slumberd_owner;" for name in (MAP, *schemas)]
    each = [shard_statements(schema) for schema in schemas]
    absent = [
        f"INSERT INTO {schema}.absent_positions (position) "  # noqa: S608 # of numbers
        f"SELECT position FROM generate_series(0, {POSITIONS - 1}) AS position "
        f"WHERE position % {shards:d} != {number:d};"
        for number, schema in enumerate(schemas)
    ]
    spread = (
        f"INSERT INTO {MAP}.shards (number) SELECT generate_series(0, {shards - 1:d});\n"
        f"INSERT INTO {MAP}.positions (position, shard) "
        f"SELECT position, position % {shards:d} "
        f"FROM generate_series(0, {POSITIONS - 1}) AS position;\n"
        f"INSERT INTO {MAP}.erasure_key (id, key) "
        "VALUES (1, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));"
    )
    become = f"{_AS_OWNER.decode()};"
    return [roles(), *created, become, map_statements(), *each, spread, *absent]


def installation_script(shards: int) -> str:
    """Return all statements of `install`, for a person who runs them."""
    return "\n".join(["BEGIN;", *_installation(shards), "COMMIT;"])


_EXAMINE = """
SELECT current_setting('server_version'), current_user,
  has_table_privilege('{schema}.slumberd_ledger', 'INSERT'),
  has_function_privilege(
    '{schema}.put(text[], text[], bytea[], text[], bytea[])', 'EXECUTE'),
  has_table_privilege('{schema}.facts', 'SELECT')
"""
_RIGHTS = ("consolidate", "put", "read")


def examine(address: str) -> DatabaseLogin:
    """Check the servers and the schemas, and return what the role may do; write nothing.

    Raises:
        SchemaError: A schema is missing or of another version; or a server cannot hold it.
        PermissionDeniedError: The role may not use the schemas at all.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        _check_server(connection, place)
        _check_schema(connection, MAP, place, "map.columns")
        shards = shards_of(connection, address)
    allowed = [True] * len(_RIGHTS)
    server = role = ""
    for shard in shards:
        with (
            connect(shard.address, shard.schema, read_only=True) as connection,
            translate_errors(shard.where),
        ):
            check_shard(connection, shard)
            row = connection.execute(_EXAMINE.format(schema=shard.schema).encode()).fetchone()
            server, role, *own = row or ("", "")
            allowed = [one and other for one, other in zip(allowed, own, strict=True)]
    rights = [right for right, has in zip(_RIGHTS, allowed, strict=True) if has]
    return DatabaseLogin(server, STEP, len(shards), role, rights)


def install(address: str, *, shards: int = 1) -> None:
    """Create the roles, the map and the first shards, in one transaction.

    Args:
        address: The address of the database; its role may create schemas and roles.
        shards: How many shards there are at first, from 1 to `MOST_SHARDS`.

    Raises:
        UsageError: `shards` is out of range.
        SchemaError: The database has a schema of slumberd already, or the server cannot hold it.
        PermissionDeniedError: The role may not create them.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise UsageError(f"shards is {shards}; it must be from 1 to {MOST_SHARDS}")
    place = where(address)
    with connect(address) as connection, translate_errors(place):
        _check_server(connection, place)
        connection.execute(_LOCK)
        if has_schema(connection, MAP):
            raise SchemaError(place, "has the schema of slumberd already", _UPGRADE)
        for statements in _installation(shards):
            connection.execute(statements.encode())


def create_shard(shard: Shard) -> None:
    """Create the roles, and the schema of a shard without users; a second call does nothing.

    Args:
        shard: The shard; the role of its address may create schemas and roles.

    Raises:
        SchemaError: The server cannot hold it.
        PermissionDeniedError: The role may not create it.
    """
    with connect(shard.address) as connection, translate_errors(shard.where):
        _check_server(connection, shard.where)
        connection.execute(_LOCK)
        if has_schema(connection, shard.schema):
            return
        statements = [
            roles(),
            f"CREATE SCHEMA {shard.schema} AUTHORIZATION slumberd_owner;",
            f"{_AS_OWNER.decode()};",
            shard_statements(shard.schema),
            f"INSERT INTO {shard.schema}.absent_positions (position) "  # our own name
            f"SELECT generate_series(0, {POSITIONS - 1});",
        ]
        for one in statements:
            connection.execute(one.encode())


def check_shard(connection: Connection, shard: Shard) -> None:
    """Check that a shard has the schema of this slumberd.

    Args:
        connection: To its database.
        shard: The shard.

    Raises:
        SchemaError: It has none, or that of another version; or the server cannot hold it.
    """
    try:
        _check_server(connection, shard.where)
        _check_schema(connection, shard.schema, shard.where, "shard.columns")
    finally:
        end_transaction(connection)


def _check_server(connection: Connection, place: str) -> None:
    version = connection.info.server_version
    if version < LEAST_SERVER:
        problem = f"is a server of version {version // 10_000}"
        raise SchemaError(place, problem, f"slumberd needs {LEAST_SERVER // 10_000} or newer")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        problem = f"has the encoding {encoding}"
        raise SchemaError(place, problem, "create the database with ENCODING 'UTF8'")


def has_schema(connection: Connection, schema: str = MAP) -> bool:
    """Return whether a database has a schema of slumberd, of whatever version.

    The role of the connection needs no right in the schema.
    """
    with psycopg.RawCursor(connection) as cursor:
        row = cursor.execute(_HAS_SCHEMA, (schema,)).fetchone()
    return bool(row and row[0])


def _check_schema(connection: Connection, schema: str, place: str, columns: str) -> None:
    """Check that a schema is of this version; later steps and programs may add columns.

    Raises:
        SchemaError: It is not.
    """
    if not has_schema(connection, schema):
        if schema != MAP and has_schema(connection, MAP):
            # A database of slumberd 0.2, or one whose upgrade is not finished.
            problem = f"has no schema {schema}"
            raise SchemaError(place, problem, f"{_UPGRADE}; {_COPY_FIRST}")
        raise SchemaError(place, "has no schema of slumberd", _INIT)
    applied: dict[int, int] = dict(
        connection.execute(f"SELECT number, works_with FROM {schema}.migrations".encode())  # noqa: S608 # our own name
    )
    if STEP not in applied:
        problem = f"has an older schema; step {STEP} ({_STEP_NAME}) is missing"
        raise SchemaError(place, problem, f"{_UPGRADE}; {_COPY_FIRST}")
    newer = [number for number, works_with in applied.items() if works_with > STEP]
    if newer:
        raise SchemaError(
            place,
            f"has the schema of a newer slumberd: step {max(newer)} is unknown here",
            "install that version of slumberd",
        )
    wanted = {*_read(columns).splitlines()}
    missing = sorted(wanted - {*columns_of(connection, schema)})
    if missing:
        problem = f"does not have the tables of step {STEP}: it lacks {missing[0]!r}"
        raise SchemaError(place, problem, _RESTORE)


def columns_of(connection: Connection, schema: str) -> list[str]:
    """Return the columns of all tables of a schema, as ``table column type``, in order."""
    with psycopg.RawCursor(connection) as cursor:
        return [name for (name,) in cursor.execute(_COLUMNS, (schema,))]

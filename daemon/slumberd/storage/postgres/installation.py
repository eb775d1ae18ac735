"""Create the schema of slumberd in a database, upgrade it, and check it."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

import psycopg

from slumberd.model.errors import SchemaError, UsageError
from slumberd.model.store_status import DatabaseLogin
from slumberd.storage.postgres.connection import (
    Connection,
    connect,
    end_transaction,
    translate_errors,
    where,
)
from slumberd.storage.postgres.shard_map import POSITIONS, Shard, shards_of

LEAST_SERVER = 140_000
"""The oldest version of the server, as ``server_version_num`` says it."""

MOST_SHARDS = 64
"""How many shards one transaction creates: each takes some hundred locks of the server."""

MAP = "slumberd"
"""The schema of the map of shards."""

UNFINISHED = 2_147_483_647
"""No slumberd works on a schema after a step that is not finished."""

_INIT = "`slumberd postgres init` creates it"
_UPGRADE = "`slumberd postgres upgrade` upgrades it"
_COPY_FIRST = "make a copy with pg_dump first"
RESTORE = "another program changed it: restore a backup"
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('slumberd.migrations', 0))"
AS_OWNER = "SET LOCAL ROLE slumberd_owner;"
_HAS_SCHEMA = b"""
SELECT EXISTS (
  SELECT 1
  FROM pg_class AS tables
  INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
  WHERE schemas.nspname = $1 AND tables.relname = 'migrations'
)
"""
_COLUMNS = b"""
SELECT tables.relname::text, columns.attname::text,
  format_type(columns.atttypid, columns.atttypmod)
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
INNER JOIN pg_attribute AS columns ON columns.attrelid = tables.oid
WHERE schemas.nspname = $1
  AND tables.relkind IN ('r', 'p')
  AND NOT tables.relispartition
  AND columns.attnum > 0
  AND NOT columns.attisdropped
  AND ($2::boolean OR columns.attgenerated = '' AND columns.attidentity = '')
ORDER BY 1, 2
"""
_OLD_SIZES = b"""
SELECT coalesce(sum(episodes), 0)::bigint, coalesce(sum(size), 0)::bigint,
  coalesce(max(size), 0)::bigint
FROM (
  SELECT
    sum(greatest(reltuples, 0)) FILTER (WHERE relname ~ '^episodes_[0-9]+$'),
    sum(pg_total_relation_size(oid))
  FROM pg_class
  WHERE relnamespace::regnamespace::text = 'slumberd'
    AND relname ~ '^(episodes|episode_log|facts|keys|ledger)_[0-9]+$'
  GROUP BY substring(relname FROM '[0-9]+$')
) AS shards(episodes, size)
"""
"""The rows and the bytes of all shards of 0.2, and the bytes of the largest one."""

_BYTES_A_MINUTE = 1_500_000_000
"""How much the upgrade copies: 560 MB took 18 s on two busy processors."""

_OWN_NAME = re.compile(r"\bslumberd_0\b")
"""The schema of a shard in the files of statements, which are those of shard 0."""

_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX [^;]+;\n", re.MULTILINE)
_WORKS_WITH = re.compile(r"^-- works with: step (\d+)$", re.MULTILINE)


class Step(NamedTuple):
    """One step of the schemas.

    Attributes:
        number: Its number; the steps run in this order.
        name: What it does, in a few words.
        works_with: A slumberd whose newest step has at least this number works on the schemas
            after this step. So hosts of two versions can work side by side.
        map: Its statements for the schema of the map.
        shard: Its statements for the schema of shard 0.
    """

    number: int
    name: str
    works_with: int
    map: str
    shard: str

    def statements(self, schema: str, works_with: int | None = None) -> str:
        """Return the statements for a schema, which record the step, too."""
        return f"{in_schema(self.own(schema), schema)}\n{self.record(schema, works_with)}"

    def own(self, schema: str) -> str:
        """Return the statements for a schema as the file has them."""
        return self.map if schema == MAP else self.shard

    def record(self, schema: str, works_with: int | None = None) -> str:
        """Return the statement that records the step in a schema."""
        least = self.works_with if works_with is None else works_with
        return (
            f"INSERT INTO {schema}.migrations (number, name, works_with) "  # noqa: S608 # our own words
            f"VALUES ({self.number:d}, '{self.name}', {least:d});"
        )


def steps() -> list[Step]:
    """Return all steps, in order.

    The first one is step 3, whose statements create all that there was then. A later step has the
    files ``NNN_name.map.sql`` and ``NNN_name.shard.sql``; one of them may be missing.
    """
    first = Step(3, "a schema for each shard", 3, _read("map.sql"), _read("shard.sql"))
    names = {file.name.partition(".")[0] for file in _folder().iterdir() if file.name[:3].isdigit()}
    return [first, *map(_step, sorted(names))]


def _step(name: str) -> Step:
    texts = [
        file.read_text("utf-8")
        if (file := _folder().joinpath(f"{name}.{part}.sql")).is_file()
        else ""
        for part in ("map", "shard")
    ]
    number = int(name[:3])
    told = _WORKS_WITH.search("\n".join(texts))
    works_with = int(told.group(1)) if told else number
    return Step(number, name[4:].replace("_", " "), works_with, *texts)


def _folder() -> Traversable:
    return files("slumberd.storage.postgres").joinpath("schema")


def _read(name: str) -> str:
    return _folder().joinpath(name).read_text("utf-8")


def in_schema(statements: str, schema: str) -> str:
    """Return statements for shard 0 as those for another shard."""
    return statements if schema == MAP else _OWN_NAME.sub(schema, statements)


def grants(schema: str) -> str:
    """Return the statements that grant the roles what they need in a schema."""
    return in_schema(_read("map_grants.sql" if schema == MAP else "shard_grants.sql"), schema)


def statements_of(schema: str) -> str:
    """Return the statements that create a schema of the newest step, for its owner."""
    return "\n".join([*(step.statements(schema) for step in steps()), grants(schema)])


def split_indexes(statements: str) -> tuple[str, str]:
    """Return statements without those that create indexes, and these."""
    return _INDEX.sub("", statements), "".join(_INDEX.findall(statements))


def listed_columns(schema: str) -> list[str]:
    """Return the columns that a schema of the newest step has, as ``table column type``."""
    return _read("map.columns" if schema == MAP else "shard.columns").splitlines()


def roles() -> str:
    """Return the statements that create the roles where they are missing."""
    return _read("roles.sql")


def _installation(shards: int) -> list[str]:
    """Return all statements of `install`."""
    schemas = [Shard(number, "").schema for number in range(shards)]
    created = [f"CREATE SCHEMA {name} AUTHORIZATION slumberd_owner;" for name in (MAP, *schemas)]
    each = [statements_of(schema) for schema in schemas]
    absent = [absent_positions(number, shards) for number in range(shards)]
    return [
        roles(), *created, AS_OWNER, statements_of(MAP), *each, spread(shards), ERASURE_KEY, *absent
    ]  # fmt: skip


def spread(shards: int) -> str:
    """Return the statements that spread the positions of users evenly over the first shards."""
    return f"""INSERT INTO {MAP}.shards (number) SELECT generate_series(0, {shards - 1:d});
INSERT INTO {MAP}.positions (position, shard)
SELECT position, position % {shards:d} FROM generate_series(0, {POSITIONS - 1}) AS position;
"""  # noqa: S608 # of numbers


def absent_positions(number: int, shards: int) -> str:
    """Return the statement that names the positions of the other shards to a shard."""
    return (
        f"INSERT INTO {Shard(number, '').schema}.absent_positions (position) "  # noqa: S608 # of numbers
        f"SELECT position FROM generate_series(0, {POSITIONS - 1}) AS position "
        f"WHERE position % {shards:d} != {number:d};"
    )


ERASURE_KEY = f"""INSERT INTO {MAP}.erasure_key (id, key)
VALUES (1, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())))
ON CONFLICT DO NOTHING;"""  # noqa: S608 # our own name


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
        check_server(connection, place)
        _check_if_allowed(connection, MAP, place)
        shards = shards_of(connection, address)
    allowed = [True] * len(_RIGHTS)
    server = role = ""
    for shard in shards:
        with connect(shard.address, read_only=True) as connection, translate_errors(shard.where):
            check_server(connection, shard.where)
            _check_if_allowed(connection, shard.schema, shard.where)
            row = connection.execute(_EXAMINE.format(schema=shard.schema).encode()).fetchone()
            server, role, *own = row or ("", "")
            allowed = [one and other for one, other in zip(allowed, own, strict=True)]
    rights = [right for right, has in zip(_RIGHTS, allowed, strict=True) if has]
    return DatabaseLogin(server, steps()[-1].number, len(shards), role, rights)


def _check_if_allowed(connection: Connection, schema: str, place: str) -> None:
    """Check a schema, if the role may read the list of its steps: a host may only put."""
    asked = f"SELECT has_table_privilege('{schema}.migrations', 'SELECT')"
    if not has_schema(connection, schema) or connection.execute(asked.encode()).fetchone() == (
        True,
    ):
        check_schema(connection, schema, place)


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
        check_server(connection, place)
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
        check_server(connection, shard.where)
        connection.execute(_LOCK)
        if has_schema(connection, shard.schema):
            return
        statements = [
            roles(),
            f"CREATE SCHEMA {shard.schema} AUTHORIZATION slumberd_owner;",
            AS_OWNER,
            statements_of(shard.schema),
            f"INSERT INTO {shard.schema}.absent_positions (position) "
            f"SELECT generate_series(0, {POSITIONS - 1});",
        ]
        for one in statements:
            connection.execute(one.encode())


def check_shard(connection: Connection, shard: Shard) -> None:
    """Check that a shard has the schema of this slumberd.

    Args:
        connection: To its database.

    Raises:
        SchemaError: It has none, or that of another version; or the server cannot hold it.
    """
    try:
        check_server(connection, shard.where)
        check_schema(connection, shard.schema, shard.where)
    finally:
        end_transaction(connection)


def check_server(connection: Connection, place: str) -> None:
    """Check that a server can hold a schema of slumberd.

    Raises:
        SchemaError: It is too old, or the database has another encoding.
    """
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


def check_schema(connection: Connection, schema: str, place: str) -> None:
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
    missing = find_missing(connection, schema, place)
    if missing:
        problem = f"has an older schema; step {missing[0].number} ({missing[0].name}) is missing"
        cost = _cost_of_upgrade(connection) if schema == MAP and missing[0] == steps()[0] else ""
        raise SchemaError(place, problem, f"{_UPGRADE}{cost}; {_COPY_FIRST}")
    check_columns(connection, schema, place)


def _cost_of_upgrade(connection: Connection) -> str:
    """Say how long the upgrade of a database of 0.2 takes, and how much free space it needs."""
    row = connection.execute(_OLD_SIZES).fetchone()
    episodes, size, largest = row or (0, 0, 0)
    minutes = max(1, round(size / _BYTES_A_MINUTE))
    return (
        f", without daemons, in about {minutes} min for {episodes:,} episodes, and needs "
        f"{max(1, round(largest / 2**20)):,} MiB of free space meanwhile"
    )


def find_missing(connection: Connection, schema: str, place: str) -> list[Step]:
    """Return the steps that a schema lacks.

    Raises:
        SchemaError: The schema is that of a newer slumberd, or is being upgraded.
    """
    applied: dict[int, int] = dict(
        connection.execute(f"SELECT number, works_with FROM {schema}.migrations".encode())  # noqa: S608 # our own name
    )
    if UNFINISHED in applied.values():
        raise SchemaError(place, "is being upgraded", "`slumberd postgres upgrade` goes on with it")
    known = steps()
    newer = [number for number, works_with in applied.items() if works_with > known[-1].number]
    if newer:
        raise SchemaError(
            place,
            f"has the schema of a newer slumberd: step {max(newer)} is unknown here",
            "install that version of slumberd",
        )
    return [step for step in known if step.number not in applied]


def check_columns(connection: Connection, schema: str, place: str) -> None:
    """Check that the tables of a schema have the columns of the newest step.

    Raises:
        SchemaError: A column is missing, or has another type.
    """
    missing = sorted({*listed_columns(schema)} - {*columns_of(connection, schema)})
    if missing:
        problem = f"does not have the tables of step {steps()[-1].number}: it lacks {missing[0]!r}"
        raise SchemaError(place, problem, RESTORE)


def columns_of(connection: Connection, schema: str) -> list[str]:
    """Return the columns of all tables of a schema, as ``table column type``, in order."""
    return sorted(map(" ".join, columns_by_table(connection, schema)))


def columns_by_table(
    connection: Connection, schema: str, *, is_plain: bool = False
) -> list[tuple[str, str, str]]:
    """Return table, name and type of the columns of a schema.

    Args:
        connection: To the database.
        is_plain: Whether columns are left out whose values the server makes.
    """
    with psycopg.RawCursor(connection) as cursor:
        return [(*row,) for row in cursor.execute(_COLUMNS, (schema, not is_plain))]

"""Upgrade the schemas of a database: an old one to a schema for each shard, and others by steps.

Until 0.2, all shards lay in the schema ``slumberd``, with a column ``shard``. The upgrade keeps
that schema under another name. It fills the schema of each shard in one transaction, and drops what
it has read. A killed upgrade goes on where it was. No slumberd works on the database meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

import psycopg

from slumberd.model.errors import DatabaseHeldError, SchemaError
from slumberd.storage.added_columns import quoted
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import Connection, connect, translate_errors, where
from slumberd.storage.postgres.gathering import (
    GATHERING_TABLES,
    check_settings,
    count_parts,
    gather,
    place_users,
)
from slumberd.storage.postgres.installation import AS_OWNER, MAP, RESTORE, UNFINISHED
from slumberd.storage.postgres.shard_map import Shard, ShardMap, shards_of

OLD = "slumberd_before_3"
"""The name of the old schema during the upgrade."""

_LOCK = b"SELECT pg_advisory_lock(hashtextextended('slumberd.migrations', 0))"
_PARTITIONED = ("episodes", "episode_log", "facts", "keys", "ledger")
"""The old tables that have a partition for each shard."""

_LARGE = ("episodes", "slumberd_episode_log", "facts", "slumberd_keys", "slumberd_ledger")
"""The names of these tables in a shard."""

_SHARED = ("erased_scopes", "erasure_key", "reader_users", "store_migrations")
"""The old tables without the column ``shard``, which each shard gets."""

_NEW = frozenset(
    {
        "absent_positions", "lease", "log_ends", "migrations", "moved_users", "requests",
        "skipped_versions",
    }
)  # fmt: skip
"""The tables of a shard that take no rows of an old table as they are."""

_SHARD = "slumberd_0"
_ADDED_BY_STEP_2 = "model_requests"
_HELD = "SL005"


class Change(NamedTuple):
    """One transaction of an upgrade.

    Attributes:
        title: What it does, in a few words.
        schema: A schema that has the columns of the newest step after it.
        address: The address of another database than that of the map; None for that one.
    """

    title: str
    schema: str
    statements: list[str]
    address: str | None = None


def upgrade(address: str, *, key: bytes | None = None) -> Generator[str, None, None]:
    """Bring all schemas to the newest step, and yield what each transaction did.

    Args:
        address: The address of the database of the map; its role may create schemas.
        key: The key of the ledgers of a database of 0.2 with several shards; None without one.

    Raises:
        SchemaError: The database has no schema of slumberd, that of a newer one, or a damaged one.
        DatabaseHeldError: A slumberd still works on the old database.
        LedgerKeyError: The ledgers have another key.
    """
    place = where(address)
    with connect(address, autocommit=True) as connection, translate_errors(place):
        installation.check_server(connection, place)
        connection.execute(_LOCK)
        fills, ends = _conversion(connection, place, key)
        for change in fills:
            _run(connection, change, place)
            yield change.title
        if ends:
            with closing(ShardMap(address)) as shard_map:
                yield from gather(connection, shard_map, key)
        for change in ends or _later_steps(connection, address):
            if change.address is None:
                _run(connection, change, place)
            else:
                with connect(change.address, autocommit=True) as other:
                    _run(other, change, where(change.address))
            yield change.title


def upgrade_script(address: str) -> str:
    """Return the statements that `upgrade` would run now; write nothing.

    Raises:
        SchemaError: The database has no schema of slumberd, or that of a newer slumberd.
    """
    place = where(address)
    with connect(address, read_only=True) as connection, translate_errors(place):
        fills, ends = _conversion(connection, place, None)
        changes = [*fills, *ends] or _later_steps(connection, address)
    if not changes:
        return "-- The schema is the newest."
    lines = []
    for change in changes:
        database = "" if change.address is None else f", in {where(change.address)}"
        lines += [f"-- {change.title}{database}", "BEGIN;", *change.statements, "COMMIT;"]
    return "\n".join(lines)


def _run(connection: Connection, change: Change, place: str) -> None:
    try:
        with connection.transaction():
            for statements in change.statements:
                connection.execute(statements.encode())
            installation.check_columns(connection, change.schema, place)
    except psycopg.Error as error:
        if error.sqlstate == _HELD:
            raise DatabaseHeldError(place, error.diag.message_primary or "") from error
        raise


def _later_steps(connection: Connection, address: str) -> list[Change]:
    """Return a transaction for each step that a schema lacks; the map comes first."""
    place = where(address)
    if not installation.has_schema(connection):
        installation.check_schema(connection, MAP, place)
    changes = [
        _step_change(step, MAP, None) for step in installation.find_missing(connection, MAP, place)
    ]
    for shard in shards_of(connection, address):
        is_other = shard.address != address
        with connect(shard.address, read_only=True) as other, translate_errors(shard.where):
            missing = installation.find_missing(other, shard.schema, shard.where)
        elsewhere = shard.address if is_other else None
        changes += [_step_change(step, shard.schema, elsewhere) for step in missing]
    return changes


def _step_change(step: installation.Step, schema: str, address: str | None) -> Change:
    statements = [AS_OWNER, step.statements(schema), installation.grants(schema)]
    return Change(f"{schema}: step {step.number} ({step.name})", schema, statements, address)


# The upgrade of a database of step 1 or 2


def _conversion(
    connection: Connection, place: str, key: bytes | None
) -> tuple[list[Change], list[Change]]:
    """Return what is left to do before the users are gathered, and after it."""
    is_begun = _has_table(connection, OLD, "numbers")
    old = OLD if is_begun else MAP
    if not _has_table(connection, old, "numbers"):
        return [], []
    old_columns = _columns_to_copy(connection, old, place)
    rows = connection.execute(f"SELECT shard FROM {old}.shards ORDER BY shard".encode())  # noqa: S608 # our own name
    numbers = [number for (number,) in rows]
    if len(numbers) > 1 and not is_begun:
        check_settings(connection, place, key)
    changes = [] if is_begun else [_begin(len(numbers))]
    changes += [
        _fill(number, len(numbers), old_columns)
        for number in numbers
        if not installation.has_schema(connection, Shard(number, "").schema)
    ]
    if len(numbers) > 1 and (not is_begun or _has_table(connection, MAP, "upgrade_parts")):
        title = "places of the users"
        changes.append(Change(title, MAP, [AS_OWNER, *place_users(numbers)]))
    return changes, [_finish(numbers)]


def _has_table(connection: Connection, schema: str, table: str) -> bool:
    row = connection.execute(
        f"SELECT to_regclass('{schema}.{table}') IS NOT NULL".encode()
    )  # our own names
    return row.fetchone() == (True,)


def _columns_to_copy(connection: Connection, old: str, place: str) -> dict[str, dict[str, str]]:
    """Return the columns of the old tables that are copied, and their types.

    Raises:
        SchemaError: A column is missing, or has another type.
    """
    has_requests = _has_table(connection, old, _ADDED_BY_STEP_2)
    every = {*installation.columns_of(connection, old)}
    wanted = [line for line in installation.listed_columns(_SHARD) if line.split()[0] not in _NEW]
    for line in wanted:
        table, _, column = line.partition(" ")
        name = f"{_old_name(table)} {column}"
        if name not in every and (has_requests or not name.startswith(f"{_ADDED_BY_STEP_2} ")):
            raise SchemaError(place, f"does not have the tables of 0.2: it lacks {name!r}", RESTORE)
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in installation.columns_by_table(connection, old, is_plain=True):
        if column != "shard":
            found.setdefault(table, {})[column] = kind
    return found


def _begin(shards: int) -> Change:
    statements = [
        installation.roles(),
        AS_OWNER,
        _REFUSE_WHILE_HELD,
        f"UPDATE {MAP}.numbers SET value = value + 1 WHERE name = 'epoch';",  # noqa: S608 # our own names
        "RESET ROLE;",
        f"ALTER SCHEMA {MAP} RENAME TO {OLD};",
        f"CREATE SCHEMA {MAP} AUTHORIZATION slumberd_owner;",
        AS_OWNER,
        _SHORT,
        *(step.statements(MAP, UNFINISHED) for step in installation.steps()),
        installation.grants(MAP),
        _TAKE_SHARED,
        installation.spread(shards),
        installation.ERASURE_KEY,
        GATHERING_TABLES,
    ]
    return Change("map of the shards", MAP, statements)


# Nobody works on the database meanwhile. A lease that lasts longer than its holder said is of a
# clock that was set back since.
_REFUSE_WHILE_HELD = f"""DO $$
DECLARE
  one text;
BEGIN
  SELECT holder INTO one
  FROM {MAP}.shards
  WHERE holder IS NOT NULL
    AND held_until BETWEEN clock_timestamp() AND clock_timestamp()
      + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600));
  IF FOUND THEN
    RAISE EXCEPTION '%', one USING ERRCODE = '{_HELD}';
  END IF;
END
$$;"""  # noqa: S608 # our own names

# The planner reads the body of this function for an index of the old table of facts.
_SHORT = f"""CREATE OR REPLACE FUNCTION {OLD}.short(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT value $$;"""

_TAKE_SHARED = f"""INSERT INTO {MAP}.migrations (number, name, applied_at, works_with)
SELECT number, name, applied_at, works_with FROM {OLD}.migrations;
INSERT INTO {MAP}.rule_sets (version, hash, document, published_at, by, reason)
SELECT version, hash, document, published_at, by, reason FROM {OLD}.rule_sets;
INSERT INTO {MAP}.erasure_key (id, key) SELECT id, key FROM {OLD}.erasure_key;"""  # noqa: S608 # our own names


def _fill(number: int, shards: int, old_columns: dict[str, dict[str, str]]) -> Change:
    """Return the transaction that fills a shard from the old tables, and drops its partitions."""
    schema = Shard(number, "").schema
    partitions = ", ".join(f"{OLD}.{table}_{number:d}" for table in _PARTITIONED)
    first, *later = installation.steps()
    tables, indexes = installation.split_indexes(first.statements(schema, UNFINISHED))
    statements = [
        f"CREATE SCHEMA {schema} AUTHORIZATION slumberd_owner;",
        AS_OWNER,
        # A program that has begun to put commits before, or fails.
        f"LOCK TABLE {OLD}.inbox, {partitions} IN ACCESS EXCLUSIVE MODE;",
        tables,
        *_copy_rows(number, schema, old_columns),
        indexes,
        installation.absent_positions(number, shards),
        *(step.statements(schema, UNFINISHED) for step in later),
        installation.grants(schema),
        *([count_parts(schema)] if shards > 1 else []),
        f"DROP TABLE {partitions};",
        f"ANALYZE {', '.join(f'{schema}.{table}' for table in _LARGE)};",
    ]
    return Change(f"shard {number}", schema, statements)


def _old_name(table: str) -> str:
    """Return the name that a table of a shard had."""
    own = table.removeprefix("slumberd_")
    return "claim_references" if own == "references" else own


def _copy_rows(number: int, schema: str, old_columns: dict[str, dict[str, str]]) -> Iterator[str]:
    listed = {*installation.listed_columns(_SHARD)}
    yield f"ALTER TABLE {schema}.episodes DISABLE TRIGGER USER;"
    yield f"DELETE FROM {schema}.slumberd_numbers;"  # noqa: S608 # our own name
    for new in sorted({line.split()[0] for line in listed} - _NEW):
        old = _old_name(new)
        columns = old_columns.get(old, {})
        for column, kind in columns.items():
            if f"{new} {column} {kind}" not in listed:
                # A program has added it.
                yield f"ALTER TABLE {schema}.{new} ADD COLUMN {quoted(column)} {kind};"
        if columns:
            yield _copy(number, f"{schema}.{new}", old, ", ".join(map(quoted, columns)))
    yield (
        f"UPDATE {schema}.log_ends SET (seq, deletion) = "  # noqa: S608 # our own names
        f"(SELECT seq, deletion FROM {OLD}.log_ends WHERE shard = {number:d});"
    )
    yield (
        f"SELECT setval('{schema}.episode_numbers', last_value, is_called) "  # noqa: S608 # our own names
        f"FROM {OLD}.episode_numbers;"
    )
    yield f"ALTER TABLE {schema}.episodes ENABLE TRIGGER USER;"


def _copy(number: int, target: str, old: str, columns: str) -> str:
    if old in _PARTITIONED:
        source = f"{OLD}.{old}_{number:d}"
    elif old in _SHARED:
        source = f"{OLD}.{old}"
    else:
        source = f"{OLD}.{old} WHERE shard = {number:d}"
    in_order = " ORDER BY n" if old == "inbox" else ""
    return f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}{in_order};"  # noqa: S608 # names of columns


def _finish(numbers: list[int]) -> Change:
    """Return the transaction that lets this version of slumberd work on the database."""
    done = [
        f"UPDATE {schema}.migrations SET works_with = {step.works_with:d} "  # noqa: S608 # our own names
        f"WHERE number = {step.number:d};"
        for schema in (MAP, *(Shard(number, "").schema for number in numbers))
        for step in installation.steps()
    ]
    drop = f"DROP TABLE IF EXISTS {MAP}.upgrade_parts, {MAP}.gathering; DROP SCHEMA {OLD} CASCADE;"
    return Change("all schemas", MAP, [AS_OWNER, drop, *done])

"""Copy the rows of a shard into SQLite files, and the rows of SQLite files into a shard.

Rows keep their numbers, salts, commitments and chain hashes. So a copy has the ledger of its
source, and proofs about one are proofs about the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from slumberd.errors import InputError, OutputExistsError, StoreError
from slumberd.model.episode import EpisodeVersion, NaiveTimestamps
from slumberd.model.scope import PLACEHOLDER_KEY, Scope, ScopeMismatch, scope_of
from slumberd.sql_statements import statements
from slumberd.storage.engine import Row
from slumberd.storage.episodes.rows import decode, encode, episode_of
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.session import number_inbox, slots_of
from slumberd.storage.sqlite import episode_installation, ledger_schema
from slumberd.storage.sqlite.connection import Pragmas, connect, transaction, translate_errors
from slumberd.storage.sqlite.session import SQLiteSession

OnProgress = Callable[[str, int], object]
"""Called with the name of a table, and how many of its rows are copied."""

_PAGE_ROWS = 2_000
_MOST_NAMED = 20
"""Episodes that an error names."""

_EPISODE_LOG, _FEED = statements("episode_log"), statements("index_feed")
_ERASED = statements("erased_scopes")
_CHANGES, _SCHEMA = statements("external_changes"), statements("ledger_schema")


class Table(NamedTuple):
    """A table of both engines.

    Attributes:
        sqlite: Its name in a file.
        postgres: Its name in the schema.
        columns: The columns that are copied, by their names in both; the first one orders rows.
        sharded: Whether each shard has its own rows.
    """

    sqlite: str
    postgres: str
    columns: tuple[str, ...]
    sharded: bool = True


def _table(sqlite: str, postgres: str, columns: str) -> Table:
    return Table(sqlite, postgres, tuple(columns.split()))


EPISODES = _table("episodes", "episodes", "rid id scope_key content timestamp metadata")
MEMORY = (
    EPISODES,
    _table("slumberd_episode_log", "episode_log", "seq rid eid"),
    _table("slumberd_episode_deletions", "episode_deletions", "number rid"),
    _table("slumberd_accesses", "accesses", "eid scope_key count last held"),
    _table(
        "slumberd_extractions",
        "extractions",
        "key eid model status triples dropped problem answer attempts at",
    ),
    _table(
        "slumberd_model_summaries",
        "model_summaries",
        "key eid model status text problem attempts at",
    ),
    _table("slumberd_model_usage", "model_usage", "day calls tokens_in tokens_out cost_micros"),
)
"""The tables of the store of episodes."""

FACTS = (
    _table("facts", "facts", "fact_id user agent payload lineage confidence metadata pinned_at"),
    _table(
        "slumberd_keys",
        "keys",
        "key slot key_id winner_at winner_rank winner_id winner_part winner_fact winner_object"
        " retractions replaced",
    ),
    _table(
        "slumberd_firings",
        "firings",
        "n rule rule_hash cause at last_seq generation upto_seq upto_eid counts",
    ),
    _table(
        "slumberd_ledger",
        "ledger",
        "seq delta firing what kind reason version key_id at fact_id replaces salt payload"
        " commitment chain",
    ),
    _table("slumberd_references", "claim_references", "referenced referrer"),
    _table("slumberd_watermark", "watermark", "rule seq eid served"),
    _table("slumberd_successes", "successes", "rule at"),
    _table("slumberd_quarantine", "quarantine", "rule channel eid version owner reason detail seq"),
    _table("slumberd_channels", "channels", "seq multi_valued"),
    _table("slumberd_generations", "generations", "generation after"),
    _table("slumberd_held_batches", "held_batches", "rule n upto_seq upto_eid problem approved"),
    _table("slumberd_unfinished_erasures", "unfinished_erasures", "scope eids moment by"),
    _table("slumberd_numbers", "numbers", "name value"),
)
"""The tables of the store of facts and its ledger."""

ERASED = (
    Table("slumberd_erasure_key", "erasure_key", ("id", "key"), sharded=False),
    Table("slumberd_erased_scopes", "erased_scopes", ("digest", "moment"), sharded=False),
)
"""The tables of erased scopes, which both files have, and a database once."""


# From a shard into files


def write_memory_file(
    connection: Connection, shard: int, target: Path, on_progress: OnProgress
) -> None:
    """Write the episodes of a shard into a new file.

    Args:
        connection: In a snapshot, after the inbox was numbered.
        shard: The shard.
        target: The file; it must not exist.
        on_progress: Called after each page.
    """
    with _new_file(target) as file:
        episode_installation.install(file)
        for name in ("drop_insert_trigger", "drop_update_trigger"):
            file.execute(_EPISODE_LOG[name])
        file.execute(_FEED["drop_delete_trigger"])
        file.execute("DELETE FROM slumberd_episode_deletions")
        for table in MEMORY:
            _write_table(connection, shard, file, table, on_progress)
        _write_erased(connection, shard, file, on_progress)
        for name in ("create_insert_trigger", "create_update_trigger"):
            file.execute(_EPISODE_LOG[name])
        file.execute(_FEED["create_delete_trigger"])


def write_facts_file(
    connection: Connection, shard: int, target: Path, on_progress: OnProgress
) -> None:
    """Write the facts and the ledger of a shard into a new file.

    Args:
        connection: In a snapshot.
        shard: The shard.
        target: The file; it must not exist.
        on_progress: Called after each page.
    """
    with _new_file(target, is_of_facts=True) as file:
        for kind in ("insert", "update", "delete"):
            file.execute(_CHANGES[f"drop_{kind}"])
        for table in FACTS:
            file.execute(f"DELETE FROM {table.sqlite}")
            _write_table(connection, shard, file, table, on_progress)
        _write_erased(connection, shard, file, on_progress)
        file.execute(_CHANGES["drop_changes"])
        for kind in ("insert", "update", "delete"):
            file.execute(_SCHEMA[f"{kind}_trigger"])


@contextmanager
def _new_file(target: Path, *, is_of_facts: bool = False) -> Iterator[sqlite3.Connection]:
    if target.exists():
        raise OutputExistsError(str(target))
    pragmas = Pragmas("full")
    with (
        translate_errors(target, pragmas),
        closing(connect(target, pragmas, access="write")) as file,
    ):
        if is_of_facts:
            ledger_schema.create(file, SQLiteSession(file, str(target)))
        with transaction(file):
            yield file
        file.execute("PRAGMA wal_checkpoint = TRUNCATE")


def _write_erased(
    connection: Connection, shard: int, file: sqlite3.Connection, on_progress: OnProgress
) -> None:
    key = connection.execute(b"SELECT 1 FROM slumberd.erasure_key").fetchone()
    if key is None:
        return
    file.execute(_ERASED["create_erasure_key"])
    file.execute(_ERASED["create_erased_scopes"])
    for table in ERASED:
        _write_table(connection, shard, file, table, on_progress)


def _write_table(
    connection: Connection,
    shard: int,
    file: sqlite3.Connection,
    table: Table,
    on_progress: OnProgress,
) -> None:
    columns = ["rowid" if column == "rid" else column for column in table.columns]
    if table is not EPISODES:
        columns = [*table.columns]
    places = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {table.sqlite} ({', '.join(columns)}) VALUES ({places})"
    copied = 0
    for page in _pages(read_table(connection, shard, table)):
        file.executemany(sql, page)
        copied += len(page)
        on_progress(table.sqlite, copied)


def read_table(connection: Connection, shard: int, table: Table) -> Iterator[Row]:
    """Yield the rows of a table of a shard, in order; the transaction must be a snapshot."""
    names = ", ".join(f'"{column}"' for column in table.columns)
    condition = f" WHERE shard = {shard:d}" if table.sharded else ""
    order = ", ".join(f'"{column}"' for column in table.columns[:2])
    sql = f"SELECT {names} FROM slumberd.{table.postgres}{condition} ORDER BY {order}"
    with psycopg.RawServerCursor(connection, f"copy_{table.postgres}") as cursor:
        cursor.itersize = _PAGE_ROWS
        cursor.execute(sql.encode(), binary=True)
        yield from cursor


# From files into a shard


def read_memory_file(  # what reads rows, and what takes them
    file: sqlite3.Connection,
    connection: Connection,
    shard: int,
    on_progress: OnProgress,
    *,
    naive: NaiveTimestamps,
    mismatch: ScopeMismatch,
) -> None:
    """Copy a file of episodes into an empty shard, in the caller's transaction.

    A row that another program wrote in its own spelling is written as `put` writes it.

    Args:
        file: In a snapshot.
        connection: In a transaction.
        shard: The shard.
        on_progress: Called after each page.
        naive: The zone of a timestamp without an offset.
        mismatch: Which of scope key and content names the owner of a row.

    Raises:
        InputError: Some episodes cannot be read; the error names them.
    """
    for table in MEMORY:
        rows: Iterable[Row] = _read_file(file, table)
        if table is EPISODES:
            rows = _as_put(rows, naive, mismatch)
        _copy_in(connection, shard, table, rows, on_progress)
    _copy_erased_in(file, connection, shard, on_progress)
    with psycopg.RawCursor(connection) as cursor:
        for sql in _AFTER_EPISODES:
            cursor.execute(sql, (shard,))


_AFTER_EPISODES = (
    b"INSERT INTO slumberd.episode_ids (id, shard)"
    b" SELECT id, shard FROM slumberd.episodes WHERE shard = $1::smallint",
    b"UPDATE slumberd.log_ends SET"
    b" seq = coalesce((SELECT max(seq) FROM slumberd.episode_log WHERE shard = $1::smallint), 0),"
    b" deletion = coalesce("
    b"(SELECT max(number) FROM slumberd.episode_deletions WHERE shard = $1::smallint), 0)"
    b" WHERE shard = $1::smallint",
    b"SELECT setval('slumberd.episode_numbers', greatest("
    b"(SELECT last_value FROM slumberd.episode_numbers),"
    b" (SELECT coalesce(max(rid), 1) FROM slumberd.episodes WHERE shard = $1::smallint)))",
)


def read_facts_file(
    file: sqlite3.Connection, connection: Connection, shard: int, on_progress: OnProgress
) -> None:
    """Copy a file of facts and their ledger into an empty shard, in the caller's transaction.

    Args:
        file: In a snapshot.
        connection: In a transaction.
        shard: The shard.
        on_progress: Called after each page.
    """
    connection.execute(f"DELETE FROM slumberd.numbers WHERE shard = {shard:d}".encode())
    for table in FACTS:
        rows: Iterable[Row] = _read_file(file, table)
        if table.postgres == "facts":
            rows = ((*row[:5], float(row[5]), *row[6:], *slots_of(row[3])) for row in rows)
            table = table._replace(  # with the columns that only a shard has
                columns=(*table.columns, "subject", "predicate", "object", "object_number")
            )
        _copy_in(connection, shard, table, rows, on_progress)
    _copy_erased_in(file, connection, shard, on_progress)


def _read_file(file: sqlite3.Connection, table: Table) -> Iterator[Row]:
    is_there = file.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table.sqlite,)
    ).fetchone()
    if is_there is None:
        return iter(())
    columns = [*table.columns]
    if table is EPISODES:
        columns[0] = "rowid"
    names = ", ".join(columns)
    return file.execute(f"SELECT {names} FROM {table.sqlite}")


def _as_put(rows: Iterable[Row], naive: NaiveTimestamps, mismatch: ScopeMismatch) -> Iterator[Row]:
    unreadable: list[str] = []
    for rid, *stored in rows:
        if _is_as_put(stored):
            yield (rid, *stored)
            continue
        version = decode(0, stored, mismatch=mismatch, naive=naive)
        if version.fault:
            unreadable.append(f"{version.id!r} ({version.fault})")
        else:
            yield (rid, *_put_row(version, str(stored[3])))
    if unreadable:
        named = ", ".join(unreadable[:_MOST_NAMED])
        count = "1 episode" if len(unreadable) == 1 else f"{len(unreadable)} episodes"
        raise InputError(
            f"{count} cannot be read, and a database holds only what `put` writes: {named}; "
            "correct or delete these rows first"
        )


def _is_as_put(stored: Sequence[Any]) -> bool:
    id, scope_key, content, timestamp, metadata = stored
    if not (type(id) is type(scope_key) is type(timestamp) is str):
        return False
    if not (type(content) is type(metadata) is bytes) or "\0" in id:
        return False
    scope = scope_of(scope_key)
    is_own_key = scope is not None and scope.key == scope_key and scope_key != PLACEHOLDER_KEY
    return is_own_key and timestamp.endswith("+00:00") and timestamp[10:11] == "T"


def _put_row(version: EpisodeVersion, timestamp: str) -> Sequence[Any]:
    scope = Scope(version.user, version.session, version.agent)
    return encode(episode_of(version, timestamp), scope, operation="copy")


def _copy_erased_in(
    file: sqlite3.Connection, connection: Connection, shard: int, on_progress: OnProgress
) -> None:
    for table in ERASED:
        rows = [*_read_file(file, table)]
        names = ", ".join(table.columns)
        places = ", ".join(f"${place + 1}" for place in range(len(table.columns)))
        keep = (
            "DO NOTHING"
            if table.postgres == "erasure_key"
            else "(digest) DO UPDATE SET moment = greatest(erased_scopes.moment, excluded.moment)"
        )
        sql = (
            f"INSERT INTO slumberd.{table.postgres} ({names}) VALUES ({places}) ON CONFLICT {keep}"
        )
        with psycopg.RawCursor(connection) as cursor:
            cursor.executemany(sql.encode(), rows)
        on_progress(table.sqlite, len(rows))


def _copy_in(
    connection: Connection,
    shard: int,
    table: Table,
    rows: Iterable[Row],
    on_progress: OnProgress,
) -> None:
    columns = ("shard", *table.columns)
    types = _types_of(connection, table.postgres, columns)
    # A partition itself: the triggers of the whole table would log each row again.
    target = f"{table.postgres}_{shard:d}" if table.postgres in PARTITIONED else table.postgres
    names = ", ".join(f'"{column}"' for column in columns)
    sql = f"COPY slumberd.{target} ({names}) FROM STDIN (FORMAT BINARY)"
    copied = 0
    with psycopg.RawCursor(connection) as cursor, cursor.copy(sql.encode()) as copy:
        copy.set_types(types)
        for row in rows:
            fitted = [_fit(value, kind) for value, kind in zip(row, types[1:], strict=True)]
            copy.write_row((shard, *fitted))
            copied += 1
            if copied % _PAGE_ROWS == 0:
                on_progress(table.sqlite, copied)
    on_progress(table.sqlite, copied)


PARTITIONED = frozenset({"episodes", "episode_log", "facts", "keys", "ledger"})
"""The tables with a partition for each shard."""

_TYPES = b"""
SELECT attributes.attname, types.typname
FROM pg_attribute AS attributes
INNER JOIN pg_type AS types ON types.oid = attributes.atttypid
WHERE attributes.attrelid = to_regclass($1)
"""


def _types_of(connection: Connection, table: str, columns: Sequence[str]) -> list[str]:
    with psycopg.RawCursor(connection) as cursor:
        known: dict[str, str] = dict(cursor.execute(_TYPES, (f"slumberd.{table}",)).fetchall())
    return [known[column] for column in columns]


def _fit(value: object, kind: str) -> object:
    """Return a value as a column of a type takes it; a text holds no NUL."""
    if kind == "bytea" and isinstance(value, str):
        return value.encode()
    if kind == "text" and isinstance(value, str) and "\0" in value:
        return value.replace("\0", "\\0")
    return value


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := [*islice(rows, _PAGE_ROWS)]:
        yield page


# Whether both hold the same

COMPARED = (*(table for table in FACTS if table.postgres != "numbers"), *MEMORY[1:2])
"""The tables whose rows are equal in both."""


def find_difference(
    memory: sqlite3.Connection, facts: sqlite3.Connection, connection: Connection, shard: int
) -> str:
    """Return the first difference between two files and a shard; empty when there is none.

    Compared are all rows of the ledger with their commitments and chain hashes, the facts, the
    watermarks and the other tables of the ledger, the episode log, and the ids of the episodes.

    Args:
        memory: The file of episodes, in a snapshot.
        facts: The file of facts, in a snapshot.
        connection: To the database, in a snapshot.
        shard: The shard.
    """
    for table in COMPARED:
        file = memory if table in MEMORY else facts
        theirs = {_comparable(row) for row in read_table(connection, shard, table)}
        count = 0
        for row in _read_file(file, table):
            count += 1
            if _comparable(row) not in theirs:
                return f"table {table.sqlite}: row {row[:2]!r} is missing or different"
        if count != len(theirs):
            return f"table {table.sqlite}: {count} rows, and {len(theirs)} in the database"
    ids = {row[:2] for row in _read_file(memory, EPISODES)}
    others = {row[:2] for row in read_table(connection, shard, EPISODES)}
    if ids != others:
        missing = sorted(ids ^ others)[:_MOST_NAMED]
        return f"episodes: only one of both has {missing!r}"
    return ""


def _comparable(row: Row) -> Row:
    return tuple(value.replace("\0", "\\0") if isinstance(value, str) else value for value in row)


def refuse_filled_shard(connection: Connection, shard: int, place: str) -> None:
    """Refuse a shard that has rows already.

    Raises:
        OutputExistsError: It has.
    """
    for table in ("episodes", "ledger", "inbox"):
        found = connection.execute(
            f"SELECT 1 FROM slumberd.{table} WHERE shard = {shard:d} LIMIT 1".encode()
        ).fetchone()
        if found is not None:
            raise OutputExistsError(place)


def number_waiting(connection: Connection, shard: int) -> None:
    """Give numbers to what was put, in a transaction of its own."""
    with psycopg.RawCursor(connection) as cursor:
        number_inbox(cursor, shard)
    connection.commit()


def lock_writers(connection: Connection, shard: int) -> None:
    """Keep other writers out of a shard until the transaction ends.

    Raises:
        StoreError: Another writer holds it.
    """
    row = connection.execute(
        f"SELECT value FROM slumberd.numbers WHERE shard = {shard:d} AND name = 'epoch'"
        " FOR UPDATE".encode()
    ).fetchone()
    if row is None:
        raise StoreError(f"the database has no shard {shard}")
    connection.execute(
        f"LOCK TABLE slumberd.episodes_{shard:d} IN SHARE ROW EXCLUSIVE MODE".encode()
    )

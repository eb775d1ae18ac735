"""Read and write all rows of a pair of SQLite files, for copies from and to another engine.

Rows have one form for every engine. Episodes that other programs wrote are converted to the rows
that `put` writes: the owner is in the scope key, and the timestamp is in UTC.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import NaiveTimestamps, instant
from slumberd.model.errors import RowsNotCopiedError, SchemaError
from slumberd.model.scope import Scope, ScopeMismatch
from slumberd.sql_statements import statements
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.engine import Row, Session
from slumberd.storage.episodes.rows import decode, owner_of, shown
from slumberd.storage.erased_scopes import record_erased_hash
from slumberd.storage.ledger.rows import is_usable_name
from slumberd.storage.sqlite import episode_installation, ledger_schema
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.replay import indexed_after
from slumberd.storage.sqlite.session import (
    MANY,
    Pragmas,
    SQLiteSession,
    own_writes,
    transaction,
    translate_errors,
)

_SQL = statements("whole_tables")
_PRAGMAS = Pragmas(cache_mebibytes=32)

MOST_ID_BYTES = 1_000
"""The longest id of an episode on every engine."""

_MOST_NAMED = 10
"""Rows that an error names."""


class Table(NamedTuple):
    """A table that copies copy.

    Attributes:
        name: Its name in the names of statements.
        store: The store that holds it.
        keys: How many of its first columns are its key; rows come in the order of the key.
        free_texts: Columns for people to read, of which no program reads the value.
    """

    name: str
    store: StoreName
    keys: int = 1
    free_texts: tuple[int, ...] = ()


TABLES = (
    Table("episodes", "memory"),
    Table("episode_log", "memory"),
    Table("episode_deletions", "memory"),
    Table("accesses", "memory"),
    Table("extractions", "memory", free_texts=(6, 7)),
    Table("model_summaries", "memory", free_texts=(4, 5)),
    Table("model_requests", "memory", keys=2, free_texts=(4,)),
    Table("model_usage", "memory"),
    Table("ledger", "facts"),
    Table("firings", "facts"),
    Table("facts", "facts"),
    Table("keys", "facts", keys=2),
    Table("claim_references", "facts", keys=2),
    Table("watermark", "facts"),
    Table("successes", "facts"),
    Table("quarantine", "facts", keys=3, free_texts=(6,)),
    Table("channels", "facts"),
    Table("generations", "facts"),
    Table("held_batches", "facts", free_texts=(4,)),
    Table("unfinished_erasures", "facts"),
    Table("numbers", "facts"),
)
"""All tables, of which `numbers` is the last."""


GROWING: dict[str, frozenset[str]] = {
    "episodes": frozenset({"id", "scope_key", "content", "timestamp", "metadata"}),
    "facts": frozenset(
        {
            "fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at",
        }
    ),
}  # fmt: skip
"""The tables to which programs may add columns, and the columns that they have at first."""


class LogEnd(NamedTuple):
    """The last numbers that a store has given, even if their rows are gone.

    Attributes:
        version: That of a version in the episode log.
        deletion: That of a deletion.
    """

    version: int
    deletion: int


class Erasures(NamedTuple):
    """The erased scopes of a pair of stores.

    Attributes:
        key: The key of their hashes; None when nothing was ever erased.
        moments: The last erased instant of each hash, in microseconds since 1970.
    """

    key: bytes | None
    moments: Mapping[bytes, int]


class ForeignRows(NamedTuple):
    """How rows of other programs are read.

    Attributes:
        naive: The zone of a timestamp without an offset.
        mismatch: Which of scope key and content names the owner, when they differ.
    """

    naive: NaiveTimestamps = "local"
    mismatch: ScopeMismatch = "quarantine"


class FileRows:
    """All rows of memory.db and facts.db, or of one of them, each in one transaction.

    Args:
        connections: The connection of each file, in a transaction.
        foreign: How rows of other programs are read.
    """

    def __init__(
        self,
        connections: Mapping[StoreName, sqlite3.Connection],
        paths: Mapping[StoreName, Path],
        foreign: ForeignRows = ForeignRows(),  # noqa: B008 # immutable
    ) -> None:
        self._sessions = {
            store: SQLiteSession(connection, str(paths[store]))
            for store, connection in connections.items()
        }
        self._foreign = foreign
        self.tables = tuple(table for table in TABLES if table.store in connections)
        self.converted = 0

    @property
    def stores(self) -> tuple[StoreName, ...]:
        """The stores that are read or written."""
        return tuple(self._sessions)

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        count: int = self._sessions[table.store].value(f"whole_tables.count_{table.name}")
        return count

    def read(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table, in the order of its key.

        Raises:
            RowsNotCopiedError: Rows of another program have no form on another engine.
        """
        session = self._sessions[table.store]
        rows = session.stream(f"whole_tables.read_{table.name}")
        try:
            match table.name:
                case "episodes":
                    yield from self._read_episodes(rows, session)
                case "episode_log":
                    yield from map(_with_usable_id, rows)
                case "accesses":
                    yield from map(self._with_scope_key, rows)
                case "facts":
                    yield from _read_facts(rows, session)
                case "claim_references":
                    yield from (row for row in rows if is_usable_name(row[0]))
                case _ if table.free_texts:
                    yield from (_without_nul(row, table.free_texts) for row in rows)
                case _:
                    yield from rows
        finally:
            session.close()

    def _read_episodes(self, rows: Iterator[Row], session: Session) -> Iterator[Row]:
        unfit: list[str] = []
        count = 0
        for number, *columns in rows:
            row = self._as_put(columns)
            if row is None:
                count += 1
                unfit += [f"{shown(columns[0])!r} (row {number})"] if count <= _MOST_NAMED else []
            elif not count:
                yield (number, *row)
        if count:
            raise RowsNotCopiedError(session.where, "episodes", unfit, count)

    def _as_put(self, columns: Sequence[Any]) -> Row | None:
        """Return a row of any program as `put` writes it; None when no engine could hold it.

        A row that no rule can read stays as it is: it stays in quarantine.
        """
        id, key, content, timestamp, metadata = columns
        foreign = self._foreign
        version = decode(0, columns, mismatch=foreign.mismatch, naive=foreign.naive)
        row = (id, key, _as_bytes(content), timestamp, _as_bytes(metadata))
        if not version.fault:
            scope = Scope(version.user, version.session, version.agent)
            at = instant(version.at).isoformat()
            if foreign.mismatch != "quarantine":
                row = (id, key, _naming(row[2], scope), timestamp, row[4])
            row = (id, scope.key, row[2], at, row[4])
            self.converted += row != tuple(columns)
        return row if _is_storable(row) else None

    def _with_scope_key(self, row: Row) -> Row:
        """Return a row of ``accesses``; its scope key follows that of its episode."""
        eid, key, count, last, held, content = row
        if content is not None:
            owner = owner_of(key, content, self._foreign.mismatch)
            key = key if owner is None else owner.key
        return eid, key, count, last, held

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows into a new file."""
        self._sessions[table.store].insert(f"whole_tables.write_{table.name}", rows)

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log."""
        return LogEnd(*(self._sessions["memory"].one("whole_tables.log_end") or (0, 0)))

    def write_log_end(self, end: LogEnd) -> None:
        """Let a new file continue with the numbers after these."""
        self._sessions["memory"].do("whole_tables.clear_log_end")
        self._sessions["memory"].do("whole_tables.write_log_end", end)

    def erasures(self) -> Erasures:
        """Return the erased scopes of both files.

        Raises:
            SchemaError: The files have different keys, so they are not of one state directory.
        """
        keys: set[bytes] = set()
        moments: dict[bytes, int] = {}
        for session in self._sessions.values():
            if session.one("erased_scopes.exists"):
                keys.add(session.value("erased_scopes.key"))
                for digest, moment in session.rows("erased_scopes.moments"):
                    moments[digest] = max(moment, moments.get(digest, moment))
        if len(keys) > 1:
            problem = "has another key of erased scopes than the episodes"
            raise SchemaError(
                self._sessions["facts"].where, problem, "name the two files of one state directory"
            )
        return Erasures(next(iter(keys), None), moments)

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes into each new file."""
        if erasures.key is None:
            return
        for session in self._sessions.values():
            for digest, moment in erasures.moments.items():
                record_erased_hash(session, erasures.key, digest, moment)

    def added_columns(self) -> list[str]:
        """Return the columns that programs added, which no copy has, as ``facts.colour``."""
        return [
            f"{table.name}.{column}"
            for table in self.tables
            if table.name in GROWING
            for (column,) in self._sessions[table.store].rows(
                "whole_tables.columns", {"table": table.name}
            )
            if column not in GROWING[table.name]
        ]

    def count_external_changes(self) -> int:
        """Return how many facts other programs changed that the ledger does not know yet."""
        count: int = self._sessions["facts"].value("whole_tables.count_external_changes")
        return count

    def close(self) -> None:
        """End all streams."""
        for session in self._sessions.values():
            session.close()


def _as_bytes(value: Any) -> Any:  # noqa: ANN401 # other programs write any type
    return value.encode() if type(value) is str else value


def _naming(content: bytes, scope: Scope) -> bytes:
    """Return a content that names the owner of its row."""
    document = orjson.loads(content)
    named = {**document, **scope._asdict()}
    return content if named == document else orjson.dumps(named)


def _is_storable(row: Row) -> bool:
    id, key, content, timestamp, metadata = row
    return (
        all(type(text) is str and "\0" not in text for text in (id, key, timestamp))
        and type(content) is bytes
        and type(metadata) is bytes
        and len(id.encode(errors="surrogatepass")) <= MOST_ID_BYTES
    )


def _with_usable_id(row: Row) -> Row:
    """Return a row of the log; without an id that an episode can have, it names none."""
    seq, _, eid = row
    if type(eid) is not str or "\0" in eid or any("\ud800" <= one <= "\udfff" for one in eid):
        return seq, None, ""
    return row


def _read_facts(rows: Iterator[Row], session: Session) -> Iterator[Row]:
    unfit: list[str] = []
    count = 0
    for fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at in rows:
        texts = (fact_id, user, agent, pinned_at)
        documents = [*map(_as_bytes, (payload, lineage, metadata))]
        if all(map(_is_text, texts)) and _are_fact_columns(documents, confidence):
            if not count:
                payload, lineage, metadata = documents
                yield fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
            continue
        count += 1
        unfit += [repr(shown(fact_id))] if count <= _MOST_NAMED else []
    if count:
        raise RowsNotCopiedError(session.where, "facts", unfit, count)


def _is_text(value: object) -> bool:
    return type(value) is str and "\0" not in value


def _are_fact_columns(documents: Sequence[object], confidence: object) -> bool:
    if type(confidence) is not float or not all(type(one) is bytes for one in documents):
        return False
    try:
        return isinstance(orjson.loads(documents[0]), dict)  # type: ignore[arg-type] # bytes
    except ValueError:
        return False


def _without_nul(row: Row, columns: Sequence[int]) -> Row:
    """Return a row with each NUL of its free texts written as two characters."""
    if not any("\0" in row[column] for column in columns):
        return row
    values = [*row]
    for column in columns:
        values[column] = values[column].replace("\0", "\\0")
    return tuple(values)


@contextmanager
def reading_files(
    paths: Mapping[StoreName, Path],
    foreign: ForeignRows = ForeignRows(),  # noqa: B008 # immutable
) -> Iterator[FileRows]:
    """Yield the rows of files as of one moment, if nothing but `put` writes meanwhile.

    Args:
        paths: The file of each store, of this version's schema.
        foreign: How rows of other programs are read.
    """
    with ExitStack() as stack:
        connections: dict[StoreName, sqlite3.Connection] = {}
        # The facts first: their watermarks must not be ahead of the log of the episodes.
        for store in sorted(paths):
            stack.enter_context(translate_errors(paths[store], _PRAGMAS))
            connection = connect(paths[store], _PRAGMAS, access="read")
            stack.callback(connection.close)
            connection.execute("BEGIN")
            _check_complete(connection, store, paths[store])
            connections[store] = connection
        rows = FileRows(connections, paths, foreign)
        stack.callback(rows.close)
        yield rows


def _check_complete(connection: sqlite3.Connection, store: StoreName, path: Path) -> None:
    """Check that a file has every table; the first read begins the snapshot."""
    if store == "facts":
        complete = ledger_schema.has_ledger(connection)
    else:
        complete = episode_installation.is_readable(connection)
    if not complete:
        problem = "lacks tables of this slumberd"
        raise SchemaError(str(path), problem, "start the daemon once, which creates them")


@contextmanager
def writing_files(paths: Mapping[StoreName, Path]) -> Iterator[FileRows]:
    """Create files, yield what writes their rows, and commit all of them at the end.

    The files are not synced. When the block fails, they stay incomplete: the caller deletes them.

    Args:
        paths: The new file of each store.
    """
    with ExitStack() as stack:
        connections: dict[StoreName, sqlite3.Connection] = {}
        for store, path in paths.items():
            stack.enter_context(translate_errors(path, _PRAGMAS))
            connection = connect(path, _PRAGMAS, access="write")
            stack.callback(connection.close)
            enter = _new_facts if store == "facts" else _new_memory
            stack.enter_context(enter(connection, path))
            connections[store] = connection
        yield FileRows(connections, paths)


@contextmanager
def _new_facts(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    ledger_schema.create(connection, SQLiteSession(connection, str(path)))
    with _unsynced(connection), transaction(connection):
        connection.execute(_SQL["clear_numbers"])
        with (
            own_writes(connection, rows=MANY),
            indexed_after(
                connection,
                "facts_owner",
                "facts_subject_predicate",
                "facts_object",
                "ledger_key",
                "ledger_fact",
            ),
        ):
            yield


@contextmanager
def _new_memory(connection: sqlite3.Connection, _: Path) -> Iterator[None]:
    with transaction(connection):
        episode_installation.install(connection)
    with (
        _unsynced(connection),
        transaction(connection),
        episode_installation.without_log(connection),
    ):
        connection.execute(_SQL["clear_episode_deletions"])
        yield


@contextmanager
def _unsynced(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute(_SQL["journal_in_memory"])
    connection.execute(_SQL["no_sync"])
    # The rows of a new index are sorted; in memory they would need as much as the index.
    connection.execute(_SQL["sort_in_files"])
    yield
    connection.execute(_SQL["journal_ahead"])

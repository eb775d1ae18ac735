"""Run transactions on a SQLite connection, and the named statements of ``sql/`` within them.

Errors of SQLite become errors of slumberd.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import orjson

from slumberd.model.errors import (
    PermissionDeniedError,
    RowRefusedError,
    SchemaError,
    StoppedError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from slumberd.rules.filters.sandbox import Filter, FilterResult
from slumberd.sql_statements import decoding, statement, statements
from slumberd.storage.engine import Mangled, Row, SharedWork, Values, Work

Synchronous = Literal["off", "normal", "full"]

_STEPS_PER_CHECK = 20_000
"""Steps of SQLite's machine between two checks of a deadline: about a millisecond. Each check waits
for the interpreter, so more of them would slow the statement down."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock, unless its caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Pragmas:
    """How a connection is set up.

    Attributes:
        synchronous: ``off`` and ``normal`` survive any crash of the process, ``full`` a power cut
            too. After a power cut, a file with ``off`` may be damaged.
        busy_seconds: How long a statement waits for another process's lock.
        cache_mebibytes: Page cache of the connection.
        log_pages: How long the write-ahead log grows before a commit moves it into the database.
    """

    synchronous: Synchronous = "normal"
    busy_seconds: float = BUSY_SECONDS
    cache_mebibytes: int = 8
    log_pages: int = 1_000


class KeyedConnection(sqlite3.Connection):
    """A connection that carries the key of its file's ledger.

    Code that writes a batch has the connection, and so always has the key.

    Attributes:
        key: The key of the ledger's hash chain; None for a chain without a key.
        how: The parameters of the URI with which it was opened.
    """

    key: bytes | None = None
    how: str = ""


@contextmanager
def translate_errors(path: Path, pragmas: Pragmas) -> Iterator[None]:
    """Turn errors of SQLite and of the system into slumberd's errors, which name the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _operational_error(error, path, pragmas) from error
    except sqlite3.IntegrityError as error:
        raise RowRefusedError(f"{str(path)!r}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise _damage_error(error, path) from error
    except PermissionError as error:
        raise PermissionDeniedError(str(path), "open") from error
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be opened: {error.strerror}") from error
    except UnicodeEncodeError as error:  # half of a surrogate pair; SQLite cannot store it
        raise UsageError(f"{error.object!r} is no valid Unicode") from error


def _operational_error(error: sqlite3.OperationalError, path: Path, pragmas: Pragmas) -> StoreError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(str(path), pragmas.busy_seconds)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return PermissionDeniedError(str(path), "write")
        case sqlite3.SQLITE_INTERRUPT:
            return StoppedError(f"{str(path)!r}: the work was cancelled before it was committed")
        case sqlite3.SQLITE_CANTOPEN if not path.exists():
            return StoreError(f"{str(path)!r} does not exist")
        case sqlite3.SQLITE_CANTOPEN if not os.access(path, os.R_OK, effective_ids=True):
            return PermissionDeniedError(str(path), "read")
        case _:
            return StoreError(f"{str(path)!r}: {error}")


def _damage_error(error: sqlite3.DatabaseError, path: Path) -> StoreError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaError(str(path), "is no SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return SchemaError(str(path), "is damaged; `slumberd restore DIR` puts back a backup")
    return StoreError(f"{str(path)!r}: {error}")


@contextmanager
def transaction(connection: sqlite3.Connection, *, keep: bool = True) -> Iterator[None]:
    """Commit all that the block writes, or nothing; roll back in any case unless `keep`.

    The transaction takes the write lock first. SQLite refuses a transaction that reads before it
    writes, at once, when another process wrote in between, whatever the busy timeout is.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT" if keep else "ROLLBACK")
    except BaseException:
        # After a full disk SQLite has rolled back by itself already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def interrupting_when(
    connection: sqlite3.Connection, cancelled: Callable[[], bool] | None
) -> Iterator[None]:
    """Interrupt the block's statements once `cancelled` returns True; None never interrupts.

    Raises:
        StoppedError: A statement was interrupted; the caller must roll back.
    """
    if cancelled is None:
        yield
        return
    # Not interrupt(): executemany goes on after it.
    connection.set_progress_handler(cancelled, _STEPS_PER_CHECK)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise StoppedError("the work was cancelled before it was committed") from error
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def waiting_at_most(connection: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Wait at most so long for other programs' locks within the block; None changes nothing."""
    if seconds is None:
        yield
        return
    usual: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds):d}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual:d}")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block's reads on one snapshot."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def decode_texts_with(
    connection: sqlite3.Connection, decode: Callable[[bytes], Any]
) -> Iterator[None]:
    """Decode the texts of the block's rows with `decode`."""
    usual = connection.text_factory
    connection.text_factory = decode
    try:
        yield
    finally:
        connection.text_factory = usual


def escaped(text: bytes) -> str:
    """Decode text, each invalid byte as a surrogate."""
    return text.decode("utf-8", "surrogateescape")


def unicode_or_none(text: bytes) -> str | None:
    """Decode text; return None when it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def is_invalid_text(error: sqlite3.OperationalError) -> bool:
    """Return whether an error says that a text of a row is not UTF-8."""
    return "decode to UTF-8" in str(error)


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection commits."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number that SQLite increments when the schema of the file changes."""
    version: int = connection.execute("PRAGMA schema_version").fetchone()[0]
    return version


def lenient_text(raw: bytes) -> str:
    """Decode a text column, even with invalid UTF-8; a text factory for connections."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Mangled(raw.decode(errors="backslashreplace"))


T = TypeVar("T")

_PAGE_ROWS = 200
"""Rows that a stream decodes at a time."""

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "lenient": lenient_text,
    "escaped": escaped,
    "none": unicode_or_none,
    "bytes": bytes,
}
"""By the name in a line ``-- texts:``, what decodes texts that are not UTF-8."""


class _Statement(NamedTuple):
    """A statement.

    Attributes:
        sql: Its text.
        decode: Decodes the texts of rows that are not UTF-8; None when they are an error.
        always: Whether `decode` decodes every text.
    """

    sql: str
    decode: Callable[[bytes], Any] | None
    always: bool


@cache
def _find_statement(name: str) -> _Statement:
    file, _, own_name = name.partition(".")
    texts = decoding(file, own_name)
    return _Statement(statement(file, own_name), _DECODERS.get(texts), texts == "bytes")


class Sharing(Protocol):
    """The processes that read the same snapshot as a session."""

    @property
    def processes(self) -> int:
        """How many there are, the session's own included."""
        ...

    def share(self, session: SQLiteSession, works: Sequence[SharedWork[T]]) -> list[T | None]:
        """Run pieces of work in all of them, as `Session.share` says."""
        ...


class SQLiteSession:
    """A transaction on a SQLite connection; implements ``Session``.

    Attributes:
        where: The path of the file.
        key: The key of the ledger; None without one.

    Args:
        connection: In a transaction.
        where: The path of the file.
        sharing: The processes that read the same snapshot; None when only this one does.
    """

    __slots__ = ("_connection", "_cursors", "_sharing", "key", "where")

    def __init__(
        self, connection: sqlite3.Connection, where: str, sharing: Sharing | None = None
    ) -> None:
        self._connection = connection
        self._sharing = sharing
        self._cursors: list[sqlite3.Cursor] = []
        self.where = where
        self.key = connection.key if isinstance(connection, KeyedConnection) else None

    @property
    def processes(self) -> int:
        """How many processes share the work that `share` gets."""
        return 1 if self._sharing is None else self._sharing.processes

    def share(self, works: Sequence[SharedWork[T]]) -> list[T | None]:
        """Run pieces of work in several processes; return the results, None for what is left."""
        if self._sharing is None:
            return [None] * len(works)
        return self._sharing.share(self, works)

    def rows(self, name: str, values: Values = ()) -> list[Row]:
        """Return all rows of a statement."""
        found = _find_statement(name)
        parameters = _parameters(values)
        if found.decode is None:
            return self._connection.execute(found.sql, parameters).fetchall()
        if not found.always:
            try:
                return self._connection.execute(found.sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if not is_invalid_text(error):
                    raise
        with decode_texts_with(self._connection, found.decode):
            return self._connection.execute(found.sql, parameters).fetchall()

    def stream(self, name: str, values: Values = ()) -> Iterator[Row]:
        """Yield the rows of a statement as they are read, at the latest until `close`."""
        found = _find_statement(name)
        if found.decode is None:
            return self._open(found.sql, _parameters(values))
        return self._decode(found, _parameters(values))

    def _open(self, sql: str, values: Values) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql, values)
        self._cursors.append(cursor)
        return cursor

    def _decode(self, found: _Statement, values: Values) -> Iterator[Row]:
        """Yield rows; once a text is not UTF-8, decode its row and all later rows."""
        read = 0
        if not found.always:
            try:
                for row in self._open(found.sql, values):
                    read += 1
                    yield row
            except sqlite3.OperationalError as error:
                if not is_invalid_text(error):
                    raise
            else:
                return
        # The error has ended the cursor; the snapshot repeats the rows in their order.
        cursor = self._open(found.sql, values)
        while page := self._fetch(cursor, found):
            yield from page[read:]
            read = max(0, read - len(page))

    def _fetch(self, cursor: sqlite3.Cursor, found: _Statement) -> list[Row]:
        with decode_texts_with(self._connection, found.decode or bytes):
            return cursor.fetchmany(_PAGE_ROWS)

    def close(self) -> None:
        """End all streams: an open one would hold the snapshot."""
        for cursor in self._cursors:
            cursor.close()
        self._cursors.clear()

    def one(self, name: str, values: Values = ()) -> Row | None:
        """Return the first row of a statement; None without rows."""
        found = _find_statement(name)
        if found.decode is None:
            row: Row | None = self._connection.execute(found.sql, _parameters(values)).fetchone()
            return row
        return next(self._decode(found, _parameters(values)), None)

    def value(self, name: str, values: Values = ()) -> Any:  # noqa: ANN401 # as the column is
        """Return the first value of the first row of a statement that always has a row."""
        sql = _find_statement(name).sql
        return self._connection.execute(sql, _parameters(values)).fetchone()[0]

    def do(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return how many."""
        sql = _find_statement(name).sql
        return self._connection.execute(sql, _parameters(values)).rowcount

    def do_each(self, name: str, rows: Iterable[Values]) -> None:
        """Run a statement once for each element of `rows`."""
        self._connection.executemany(_find_statement(name).sql, rows)

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert many rows by a statement that inserts one."""
        # A trigger of the host's would inherit the conflict clause, in place of its own.
        is_hosts = name == "episodes.insert"
        insert(self._connection, _find_statement(name).sql, rows, rolls_back=not is_hosts)

    def own_writes(self, *, rows: int) -> AbstractContextManager[None]:
        """Keep the triggers of ``facts`` from recording what the block writes."""
        self.close()  # SQLite drops no trigger while a stream is open
        return own_writes(self._connection, rows=rows)

    def exclude_other_writers(self) -> None:
        """Do nothing: a transaction that writes excludes all others from its beginning."""

    def facts_with_wrong_slots(self) -> Iterator[str]:
        """Yield nothing: indexes read the payload itself."""
        return iter(())

    def find_schema_change(self) -> str:
        """Return what another program changed in the tables of facts; empty when nothing."""
        kind = self.one("inspection.kind_of_facts")
        if kind is None or kind[0] != "table":
            return "'facts' is not a table"
        if not has_change_triggers(self._connection):
            return "'facts' lacks slumberd's triggers: it does not notice what other programs write"
        return ""

    def apply_filter(self, rule_filter: Filter, numbers: Sequence[int]) -> FilterResult:
        """Return which rows of ``episodes`` a filter selects, by their rowids."""
        return rule_filter.select(self._connection, numbers)


def run_in_session(
    connection: sqlite3.Connection, where: str, work: Work[T], sharing: Sharing | None = None
) -> T:
    """Run `work` in the current transaction of a connection; return its result."""
    session = SQLiteSession(connection, where, sharing)
    try:
        return work(session)
    finally:
        session.close()


def _parameters(values: Values) -> Values:
    """Return the parameters with each list as a JSON array, which ``json_each`` reads."""
    if type(values) is not dict:
        return values
    return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: object) -> object:
    return orjson.dumps(value).decode() if type(value) is list else value


MOST = 200
"""Rows of one statement: it takes a millisecond or two, and can be stopped afterwards."""

_SIZES = (MOST, 20, 4, 1)


def insert(
    connection: sqlite3.Connection, sql: str, rows: Sequence[Row], *, rolls_back: bool = True
) -> None:
    """Insert rows as ``executemany`` does; the statement begins with ``INSERT INTO``.

    ``executemany`` takes the interpreter lock after each row; this function takes it after 200
    rows, so other threads can work.

    Args:
        rolls_back: Whether SQLite ends the transaction when it refuses a row; else the caller
            must. Triggers inherit that.
    """
    if rolls_back:
        # Else SQLite copies every page that the statement changes: a fifth of the time.
        sql = sql.replace("INSERT", "INSERT OR ROLLBACK", 1)
    first = 0
    for size in _SIZES:
        while len(rows) - first >= size:
            values = tuple(chain.from_iterable(rows[first : first + size]))
            connection.execute(_of_many(sql, size), values)
            first += size


@lru_cache(maxsize=32)
def _of_many(sql: str, size: int) -> str:
    before, values, after = sql.partition("VALUES ")
    row, bracket, rest = after.partition(")")
    return before + values + ", ".join([row + bracket] * size) + rest


MANY = 500
"""From so many rows on, dropping the triggers is cheaper than running them."""

_SQL = statements("external_changes")
_SCHEMA = statements("ledger_schema")
_INSPECTION = statements("inspection")


@contextmanager
def own_writes(connection: sqlite3.Connection, *, rows: int) -> Iterator[None]:
    """Keep the triggers from recording what the block writes; inside a transaction.

    Other connections never see the change: the block restores it before the transaction ends.

    Args:
        connection: Without an open cursor.
        rows: About how many rows the block writes.
    """
    # For a table with a trigger SQLite keeps a journal of each statement: 3 microseconds a row.
    if rows >= MANY:
        yield from _without_triggers(connection)
    else:
        connection.execute(_SQL["begin_own_write"])
        yield
        connection.execute(_SQL["end_own_write"])


def _without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    for kind in ("insert", "update", "delete"):
        connection.execute(_SQL[f"drop_{kind}"])
    yield
    for kind in ("insert", "update", "delete"):
        connection.execute(_SCHEMA[f"{kind}_trigger"])


def has_change_triggers(connection: sqlite3.Connection) -> bool:
    """Return whether the triggers that record writes of other programs are in place."""
    found = dict(connection.execute(_INSPECTION["triggers"], {"table": "facts"}).fetchall())
    wanted = {
        "slumberd_facts_inserted": _SCHEMA["insert_trigger"],
        "slumberd_facts_updated": _SCHEMA["update_trigger"],
        "slumberd_facts_deleted": _SCHEMA["delete_trigger"],
    }
    return all(found.get(name) == sql.rstrip(";") for name, sql in wanted.items())

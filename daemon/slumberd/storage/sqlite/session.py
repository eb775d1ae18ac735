"""Run the named statements of ``sql/`` within one transaction of a SQLite connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import orjson

from slumberd.rules.filters.sandbox import Filter, FilterResult
from slumberd.sql_statements import decoding, statement, statements
from slumberd.storage.engine import Row, Values, Work
from slumberd.storage.sqlite.connection import (
    KeyedConnection,
    decode_texts_with,
    escaped,
    is_invalid_text,
    lenient_text,
    unicode_or_none,
)

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


class SQLiteSession:
    """A transaction on a SQLite connection; implements ``Session``.

    Attributes:
        where: The path of the file.
        key: The key of the ledger; None without one.

    Args:
        connection: In a transaction.
        where: The path of the file.
    """

    __slots__ = ("_connection", "_cursors", "key", "where")

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection = connection
        self._cursors: list[sqlite3.Cursor] = []
        self.where = where
        self.key = connection.key if isinstance(connection, KeyedConnection) else None

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
        insert(self._connection, _find_statement(name).sql, rows)

    def own_writes(self, *, rows: int) -> AbstractContextManager[None]:
        """Keep the triggers of ``facts`` from recording what the block writes."""
        self.close()  # SQLite drops no trigger while a stream is open
        return own_writes(self._connection, rows=rows)

    def exclude_other_writers(self) -> None:
        """Do nothing: a transaction that writes excludes all others from its beginning."""

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


def run_in_session(connection: sqlite3.Connection, where: str, work: Work[T]) -> T:
    """Run `work` in the current transaction of a connection; return its result."""
    session = SQLiteSession(connection, where)
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


def insert(connection: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    """Insert rows as ``executemany`` does; the statement begins with ``INSERT INTO``.

    ``executemany`` takes the interpreter lock after each row; this function takes it after 200
    rows, so other threads can work. When SQLite refuses a row, it rolls the transaction back.
    """
    first = 0
    for size in _SIZES:
        while len(rows) - first >= size:
            values = tuple(chain.from_iterable(rows[first : first + size]))
            connection.execute(_of_many(sql, size), values)
            first += size


@lru_cache(maxsize=32)
def _of_many(sql: str, size: int) -> str:
    # Without ROLLBACK, SQLite copies every page that the statement changes: a fifth of the time.
    before, values, after = sql.replace("INSERT", "INSERT OR ROLLBACK", 1).partition("VALUES ")
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

"""Run the named statements of ``sql/`` within one transaction of a PostgreSQL connection.

The statements have the form of SQLite's: ``?`` is a parameter by place, ``:name`` one by name. A
list is an array. A list of tuples is one array for each place: ``:name_1``, ``:name_2``. The tables
are those of the schema that the connection uses. Two lines under a name say more:

* ``-- many:`` Each parameter by place is an array, with one element for each row.
* ``-- copy: TYPES`` The ``INSERT`` of a row becomes a ``COPY`` of rows from the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import orjson
import psycopg

from slumberd.rules.filters.sandbox import Filter, FilterResult
from slumberd.sql_statements import decoding, statement
from slumberd.storage.engine import Row, SharedWork, Values
from slumberd.storage.postgres.arrays import ELEMENT_TYPES, array_of
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.filter_rows import FilterRows

T = TypeVar("T")

PACKAGE = "slumberd.storage.postgres"
"""The package whose ``sql/`` has the statements."""

_PARAMETER = re.compile(r"\?|(?<![:\w]):([a-z_][a-z0-9_]*)")
_ARRAY = re.compile(rf"\$(\d+)::({'|'.join(ELEMENT_TYPES)})\[\]")
_MARK = re.compile(r"^-- (many|copy):(.*)\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
_INSERT = re.compile(r"\AINSERT INTO (.*?)\s+VALUES \([?, ]*\)\Z", re.DOTALL)
_PAGE_ROWS = 500
"""Rows that a stream fetches at a time."""

LARGEST = "\U0010ffff" * 700
"""A text above every text that an index can hold."""


class _Statement(NamedTuple):
    """A statement as the server takes it.

    Attributes:
        sql: Its text, with parameters ``$1``, ``$2``.
        order: For each parameter, its place, or its name.
        arrays: The type of the elements of each parameter that is an array, by its place or name.
        is_many: Whether the parameters by place are arrays.
        types: The types of the columns of a copy; empty for other statements.
        encodes: Whether texts of its rows are wanted as bytes.
    """

    sql: str
    order: tuple[int | str, ...]
    arrays: dict[int | str, str]
    is_many: bool
    types: tuple[str, ...]
    encodes: bool


@cache
def _find_statement(name: str) -> _Statement:
    file, _, own_name = name.partition(".")
    text = f"{statement(file, own_name, PACKAGE)}\n"
    marks = {found[1]: found[2].split() for found in _MARK.finditer(text)}
    text = _COMMENT.sub("", text).strip()
    if "copy" in marks:
        text = _INSERT.sub(r"COPY \1 FROM STDIN (FORMAT BINARY)", text)
    order: list[int | str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            order.append(sum(type(one) is int for one in order))
        elif name not in order:
            order.append(name)
        return f"${len(order) if name is None else order.index(name) + 1}"

    sql = _PARAMETER.sub(number, text)
    encodes = decoding(file, own_name, PACKAGE) == "bytes"
    arrays = {order[int(found[1]) - 1]: found[2] for found in _ARRAY.finditer(sql)}
    types = tuple(marks.get("copy", ()))
    return _Statement(sql, tuple(order), arrays, "many" in marks, types, encodes)


class PostgresSession:
    """A transaction on a PostgreSQL connection; implements ``Session``.

    Attributes:
        where: The database in words, without a password.
        key: The key of the ledger; None without one.
        written: How many rows were written.

    Args:
        connection: In a transaction, or about to begin one.
        where: The database in words.
        key: The key of the ledger.
        filter_rows: Runs filters on rows; None for a store of facts.
        check: Called before each statement; raises to end the work.
    """

    __slots__ = (
        "_check", "_connection", "_filter_rows", "_streams", "key", "where", "written",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        where: str,
        *,
        key: bytes | None = None,
        filter_rows: FilterRows | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._streams: list[psycopg.RawServerCursor[Row]] = []
        self._filter_rows = filter_rows
        self._check = check
        self.where = where
        self.key = key
        self.written = 0

    @property
    def processes(self) -> int:
        """One: only this process does the work."""
        return 1

    def share(self, works: Sequence[SharedWork[T]]) -> list[T | None]:
        """Return None for each piece of work: the caller does it."""
        return [None] * len(works)

    def _execute(self, name: str, values: Values) -> tuple[psycopg.RawCursor[Row], _Statement]:
        if self._check is not None:
            self._check()
        found = _find_statement(name)
        cursor = psycopg.RawCursor(self._connection)
        parameters = self._parameters(name, found, values)
        cursor.execute(found.sql.encode(), parameters, binary=True)
        return cursor, found

    def _parameters(self, name: str, found: _Statement, values: Values) -> list[Any]:
        if isinstance(values, Mapping):
            named = _named(name, values)
        else:
            if found.is_many:
                values = [[value] for value in _adapted(name, values)]
            named = dict(enumerate(values))
        return _in_order(found, named)

    def rows(self, name: str, values: Values = ()) -> list[Row]:
        """Return all rows of a statement."""
        cursor, found = self._execute(name, values)
        with cursor:
            rows = cursor.fetchall()
        return [*map(_encoded, rows)] if found.encodes else rows

    def stream(self, name: str, values: Values = ()) -> Iterator[Row]:
        """Yield the rows of a statement as they are read, at the latest until `close`."""
        if self._check is not None:
            self._check()
        found = _find_statement(name)
        cursor = psycopg.RawServerCursor(
            self._connection, f"slumberd_{len(self._streams)}", scrollable=False
        )
        self._streams.append(cursor)
        parameters = self._parameters(name, found, values)
        cursor.execute(found.sql.encode(), parameters, binary=True)
        rows = self._fetch(cursor)
        return map(_encoded, rows) if found.encodes else rows

    def _fetch(self, cursor: psycopg.RawServerCursor[Row]) -> Iterator[Row]:
        while page := cursor.fetchmany(_PAGE_ROWS):
            for row in page:
                if cursor.closed:
                    return
                yield row
            if len(page) < _PAGE_ROWS:
                return

    def close(self) -> None:
        """End all streams."""
        for cursor in self._streams:
            if not self._connection.closed and not cursor.closed:
                cursor.close()
        self._streams.clear()

    def one(self, name: str, values: Values = ()) -> Row | None:
        """Return the first row of a statement; None without rows."""
        cursor, found = self._execute(name, values)
        with cursor:
            row = cursor.fetchone()
        return _encoded(row) if found.encodes and row is not None else row

    def value(self, name: str, values: Values = ()) -> Any:  # noqa: ANN401 # as the column is
        """Return the first value of the first row of a statement that always has a row."""
        row = self.one(name, values)
        if row is None:
            raise LookupError(f"statement {name} has no row")
        return row[0]

    def do(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return how many."""
        found = _find_statement(name)
        if found.types and not isinstance(values, Mapping):
            self.insert(name, [tuple(values)])
            return 1
        cursor, _ = self._execute(name, values)
        with cursor:
            self.written += cursor.rowcount
            return cursor.rowcount

    def do_each(self, name: str, rows: Iterable[Values]) -> None:
        """Run a statement once for each element of `rows`."""
        wanted = [*rows]
        if not wanted:
            return
        found = _find_statement(name)
        if found.is_many or found.types:
            self.insert(name, [tuple(row) for row in wanted])
            return
        with psycopg.RawCursor(self._connection) as cursor:
            each = [self._parameters(name, found, row) for row in wanted]
            cursor.executemany(found.sql.encode(), each)

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert many rows by a statement that inserts one."""
        if not rows:
            return
        found = _find_statement(name)
        self.written += len(rows)
        if found.types:
            self._copy(found, rows)
        elif found.is_many:
            if self._check is not None:
                self._check()
            adapted = [_adapted(name, row) for row in rows]
            columns = [[*column] for column in zip(*adapted, strict=True)]
            named: dict[int | str, Any] = dict(enumerate(columns))
            with psycopg.RawCursor(self._connection) as cursor:
                cursor.execute(found.sql.encode(), _in_order(found, named))
        else:
            self.do_each(name, rows)

    def _copy(self, found: _Statement, rows: Sequence[Row]) -> None:
        if self._check is not None:
            self._check()
        with (
            psycopg.RawCursor(self._connection) as cursor,
            cursor.copy(found.sql.encode()) as copy,
        ):
            copy.set_types(found.types)
            for row in rows:
                copy.write_row(row)

    def own_writes(self, *, rows: int) -> AbstractContextManager[None]:
        """Return a block without effect: no other program may write the table of facts."""
        del rows
        self.close()
        return nullcontext()

    def exclude_other_writers(self) -> None:
        """Keep every other transaction from writing episodes until the end.

        What was put before has its number in the log then.
        """
        with psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(b"LOCK TABLE episodes IN SHARE ROW EXCLUSIVE MODE")
            number_inbox(cursor)

    def facts_with_wrong_slots(self) -> Iterator[str]:
        """Yield the facts whose columns for a search contradict their payload."""
        for fact_id, payload, *slots in self.stream("fact_check.slots"):
            with suppress(ValueError, AttributeError):  # the payload itself is damaged
                if tuple(slots) != slots_of(payload):
                    yield fact_id

    def find_schema_change(self) -> str:
        """Return an empty text: no other program may change the tables."""
        return ""

    def apply_filter(self, rule_filter: Filter, numbers: Sequence[int]) -> FilterResult:
        """Return which rows of ``episodes`` a filter selects, by their numbers."""
        if self._filter_rows is None:
            raise LookupError("a store of facts has no episodes to filter")
        rows = self.rows("erased_scopes.episodes_at", {"rowids": [*numbers]})
        return self._filter_rows.apply(rule_filter, numbers, rows)


def _in_order(found: _Statement, named: Mapping[int | str, Any]) -> list[Any]:
    """Return the parameters of a statement in their order, lists as arrays."""
    return [
        array_of(found.arrays[one], named[one])
        if one in found.arrays and isinstance(named[one], list)
        else named[one]
        for one in found.order
    ]


MOST_NUMBERED = 20_000
"""Rows of the inbox that get their numbers in one statement."""


def number_inbox(cursor: psycopg.RawCursor[Row]) -> int:
    """Move the rows of the inbox into the log, in the cursor's transaction.

    Returns:
        How many rows were moved.
    """
    moved = 0
    while True:
        cursor.execute(b"SELECT number_inbox($1::integer)", (MOST_NUMBERED,))
        row = cursor.fetchone()
        some = row[0] if row else 0
        moved += some
        if some < MOST_NUMBERED:
            return moved


def _named(name: str, values: Mapping[str, Any]) -> dict[int | str, Any]:
    """Return parameters by name in the form of PostgreSQL."""
    named: dict[int | str, Any] = {}
    for parameter, value in values.items():
        if type(value) is list and value and isinstance(value[0], tuple | list):
            for place, column in enumerate(zip(*value, strict=True), 1):
                named[f"{parameter}_{place}"] = [*column]
        elif type(value) is list:
            named[parameter] = _searchable(value)
            named |= {f"{parameter}_{place}": [] for place in (1, 2, 3)} if not value else {}
        else:
            named[parameter] = value
    if name.startswith("facts."):
        _adapt_ranges(named)
    return named


def _searchable(values: list[Any]) -> list[Any]:
    """Return texts to look up; one with NUL, which no column holds, becomes one that none is."""
    if not values or type(values[0]) is not str or "\0" not in "".join(values):
        return values
    return [LARGEST if "\0" in value else value for value in values]


def _adapt_ranges(named: dict[int | str, Any]) -> None:
    """Turn the values of an index range into texts and numbers."""
    if isinstance(values := named.get("values"), str):
        wanted = orjson.loads(values)
        named["values"] = [value for value in wanted if isinstance(value, str)]
        named["numbers"] = [float(value) for value in wanted if isinstance(value, int | float)]
    if "low" in named:
        low, high = named["low"], named["high"]
        if isinstance(low, float):
            named |= {"low": LARGEST, "high": "", "low_number": low, "high_number": high}
        else:
            named |= {"low": _bound(low), "high": _bound(high)}
            named |= {"low_number": None, "high_number": None}


def _bound(text: str | bytes) -> str:
    """Return a bound of texts: NUL is below every character, and bytes are above every text."""
    if isinstance(text, bytes):
        return LARGEST
    # No text holds NUL, so U+0001 in its place leaves the same texts on each side.
    return f"{text[:-1]}\x01" if text.endswith("\0") else text


def _adapted(name: str, row: Any) -> tuple[Any, ...]:  # noqa: ANN401 # a row of any table
    """Return a row with the columns that only this engine has."""
    if name == "facts.put_fact":
        return (*row[:5], float(row[5]), *row[6:], *slots_of(row[3]))
    if name == "ledger.put_quarantine":
        return tuple(_without_nul(value) for value in row)
    return tuple(row)


def _without_nul(value: object) -> object:
    return value.replace("\0", "\\0") if isinstance(value, str) else value


def slots_of(payload: bytes) -> tuple[str | None, str | None, str | None, float | None]:
    """Return subject, predicate and object of a payload, as SQLite's JSON functions read them."""
    document = orjson.loads(payload)
    object_: Any = document.get("object")
    number: float | None = None
    if isinstance(object_, int | float):
        object_, number = None, float(object_)
    return (
        _text(document.get("subject")), _text(document.get("predicate")), _text(object_), number,
    )  # fmt: skip


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text.partition("\0")[0]


def _encoded(row: Row) -> Row:
    return tuple(value.encode() if isinstance(value, str) else value for value in row)

"""Read and write all rows of a shard, for copies from and to SQLite files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice

import psycopg

from slumberd.errors import OutputExistsError, RowsNotCopiedError
from slumberd.storage.closed_stores import STORES, StoreName
from slumberd.storage.engine import Row
from slumberd.storage.erased_scopes import record_erased_hash
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession, slots_of
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite.file_rows import GROWING, TABLES, Erasures, LogEnd, Table

_MOST_NAMED = 10
"""Rows that an error names."""

_OWN_COLUMNS = frozenset(
    {
        "shard", "rid", "of_user", "of_session", "of_agent", "subject", "predicate", "object",
        "object_number",
    }
)  # fmt: skip
"""Columns that only a database has."""


class ShardRows:
    """All rows of a shard, in one transaction.

    Args:
        session: The transaction.
        stores: The stores that are read or written.
    """

    def __init__(self, session: PostgresSession, stores: Sequence[StoreName] = STORES) -> None:
        self._session = session
        self.stores = (*stores,)
        self.tables = tuple(table for table in TABLES if table.store in stores)

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        count: int = self._session.value(f"whole_tables.count_{table.name}")
        return count

    def read(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table, in the order of its key."""
        try:
            yield from self._session.stream(f"whole_tables.read_{table.name}")
        finally:
            self._session.close()

    def added_columns(self) -> list[str]:
        """Return the columns that programs added, which no copy has, as ``facts.colour``."""
        return [
            f"{table.name}.{column}"
            for table in self.tables
            if table.name in GROWING
            for (column,) in self._session.rows("whole_tables.columns", {"table": table.name})
            if column not in GROWING[table.name] | _OWN_COLUMNS
        ]

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows into an empty table.

        Raises:
            RowsNotCopiedError: A text of a row contains NUL, or is no valid Unicode.
        """
        if table.name == "facts":
            rows = [(*row, *slots_of(row[3])) for row in rows]
        try:
            self._session.insert(f"whole_tables.write_{table.name}", rows)
        except (psycopg.DataError, UnicodeEncodeError) as error:
            unfit = [row for row in rows if not all(map(_is_storable, row))]
            if not unfit:
                raise
            named = [repr(row[: table.keys]) for row in islice(unfit, _MOST_NAMED)]
            raise RowsNotCopiedError(self._session.where, table.name, named, len(unfit)) from error

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log; what has no number yet gets the next ones."""
        return LogEnd(*(self._session.one("whole_tables.log_end") or (0, 0)))

    def write_log_end(self, end: LogEnd) -> None:
        """Let the log continue with the numbers after these; its episodes are written."""
        self._session.do("whole_tables.write_log_end", end)
        self._session.do("whole_tables.write_episode_ids")
        last: int | None = self._session.value("whole_tables.last_rid")
        if last is not None:
            self._session.do("whole_tables.become_owner")
            self._session.value("whole_tables.continue_episode_numbers", (last,))
            self._session.do("whole_tables.become_login")

    def erasures(self) -> Erasures:
        """Return the erased scopes."""
        if not self._session.one("erased_scopes.exists"):
            return Erasures(None, {})
        moments: dict[bytes, int] = dict(self._session.rows("erased_scopes.moments"))
        return Erasures(self._session.value("erased_scopes.key"), moments)

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes into a database that has none."""
        for digest, moment in erasures.moments.items():
            if erasures.key is not None:
                record_erased_hash(self._session, erasures.key, digest, moment)


def _is_storable(value: object) -> bool:
    return type(value) is not str or not (
        "\0" in value or any("\ud800" <= character <= "\udfff" for character in value)
    )


@contextmanager
def reading_shard(shard: Shard, stores: Sequence[StoreName] = STORES) -> Iterator[ShardRows]:
    """Yield the rows of a shard as of one moment.

    Args:
        shard: The shard.
        stores: The stores that are read.
    """
    place = where(shard.address)
    with (
        translate_errors(place),
        connect(shard.address, read_only=True) as connection,
        closing(PostgresSession(connection, place, shard.number)) as session,
    ):
        yield ShardRows(session, stores)


@contextmanager
def filling_shard(shard: Shard) -> Iterator[ShardRows]:
    """Yield what writes the rows of an empty shard, and commit all at the end.

    Until then nobody else puts into the shard, and no daemon writes its facts.

    Raises:
        OutputExistsError: The shard is not empty.
    """
    place = where(shard.address)
    with (
        translate_errors(place),
        connect(shard.address) as connection,
        closing(PostgresSession(connection, place, shard.number)) as session,
    ):
        session.do("whole_tables.no_idle_timeout")
        session.value("whole_tables.lock_epoch")
        session.value("whole_tables.lock_log_end")
        session.exclude_other_writers()
        _check_empty(session)
        yield ShardRows(session)


def _check_empty(session: PostgresSession) -> None:
    filled = session.one("whole_tables.first_filled")
    if filled is not None:
        remedy = f"its table {filled[0]} has rows; name an empty database"
        raise OutputExistsError(session.where, remedy)

"""Read and write all rows of a shard, for copies from and to SQLite files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice

import psycopg

from slumberd.errors import OutputExistsError, RowsNotCopiedError
from slumberd.model.record import Break
from slumberd.storage.audit.verify import verify
from slumberd.storage.closed_stores import STORES, StoreName
from slumberd.storage.engine import Row, Session
from slumberd.storage.erased_scopes import record_erased_hash
from slumberd.storage.ledger.batch import number
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession, slots_of
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite.file_rows import GROWING, TABLES, Erasures, LogEnd, Table

_MOST_NAMED = 10
"""Rows that an error names."""

_OWN_COLUMNS = frozenset(
    {
        "rid", "of_user", "of_session", "of_agent", "subject", "predicate", "object",
        "object_number",
    }
)  # fmt: skip
"""Columns that only a database has."""


def find_added_columns(session: Session, tables: Iterable[Table] = TABLES) -> list[str]:
    """Return the columns that programs added to tables of a shard, as ``facts.colour``."""
    return [
        f"{table.name}.{column}"
        for table in tables
        if table.name in GROWING
        for (column,) in session.rows("whole_tables.columns", {"table": table.name})
        if column not in GROWING[table.name] | _OWN_COLUMNS
    ]


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
        return find_added_columns(self._session, self.tables)

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
        last: int | None = self._session.value("whole_tables.last_rid")
        if last is not None:
            self._session.value("whole_tables.continue_episode_numbers", (last,))

    def verify(self) -> Break | None:
        """Verify the ledger of the shard; return its first break."""
        return verify(self._session, number(self._session, "depth"))[2]

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
    with (
        translate_errors(shard.where),
        connect(shard.address, shard.schema, read_only=True) as connection,
    ):
        installation.check_shard(connection, shard)
        with closing(PostgresSession(connection, shard.where)) as session:
            yield ShardRows(session, stores)


@contextmanager
def filling_shard(shard: Shard) -> Iterator[ShardRows]:
    """Yield what writes the rows of an empty shard, and commit all at the end.

    Until then nobody else puts into the shard, and no daemon writes its facts.

    Raises:
        OutputExistsError: The shard is not empty.
    """
    with (
        translate_errors(shard.where),
        connect(shard.address, shard.schema) as connection,
    ):
        installation.check_shard(connection, shard)
        with closing(PostgresSession(connection, shard.where)) as session:
            session.do("whole_tables.no_idle_timeout")
            session.value("whole_tables.lock_epoch")
            session.value("whole_tables.lock_log_end")
            session.exclude_other_writers()
            _check_empty(session)
            session.do("whole_tables.become_owner")
            session.do("whole_tables.log_no_episodes")
            yield ShardRows(session)
            session.do("whole_tables.log_episodes")


def _check_empty(session: PostgresSession) -> None:
    filled = session.one("whole_tables.first_filled")
    if filled is not None:
        remedy = f"its table {filled[0]} has rows; name an empty shard"
        raise OutputExistsError(session.where, remedy)

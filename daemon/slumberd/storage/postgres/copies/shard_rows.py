"""Read and write all rows of shards, for copies from and to SQLite files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from itertools import islice

import psycopg

from slumberd.consolidation.decision import Decision
from slumberd.errors import OutputExistsError, RowsNotCopiedError, UnsupportedByStoreError
from slumberd.model.firing import Firing
from slumberd.model.record import Break
from slumberd.storage.audit.verify import verify
from slumberd.storage.closed_stores import STORES, StoreName
from slumberd.storage.engine import Row
from slumberd.storage.erased_scopes import record_erased_hash
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.copies import COPIED, COPY, Copied, copies_in
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.session import PostgresSession, slots_of
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

    def find_shards(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the shard of each episode of the whole database, by its id."""
        return dict(self._session.rows("whole_tables.shards_of_episodes", {"ids": [*ids]}))

    def write_copied(self, copied: Copied, at: datetime, by: str) -> None:
        """Add the row of the ledger that says from where the rows before it are."""
        firing = Firing(COPY, "", "manual", at, by=by)
        batch = Batch(self._session, firing, number(self._session, "depth"))
        batch.number = copied.rows + 1  # the last rows of the source may be those of other shards
        batch.note = {COPIED: copied._asdict()}
        batch.write(Decision.of(batch.resolution(), {}))

    def copied(self) -> tuple[int, Copied] | None:
        """Return the number and the content of the newest row of a copy; None without one."""
        return next(copies_in(self._session), None)

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
def reading_shard(
    address: str, shard: int | None, stores: Sequence[StoreName] = STORES
) -> Iterator[ShardRows]:
    """Yield the rows of a shard as of one moment.

    Args:
        address: The address of the database.
        shard: The shard; None means the only one of the database.
        stores: The stores that are read.

    Raises:
        UnsupportedByStoreError: The database has no such shard, or several and none is chosen.
    """
    place = where(address)
    with translate_errors(place), connect(address, read_only=True) as connection:
        _check(connection, place, shard)
        with closing(PostgresSession(connection, place, shard or 0)) as session:
            yield ShardRows(session, stores)


def check_readable(address: str, shard: int | None) -> None:
    """Check that a database has a shard; None means that it must have one only.

    Raises:
        UnsupportedByStoreError: It has no such shard, or several and none is chosen.
    """
    place = where(address)
    with translate_errors(place), connect(address, read_only=True) as connection:
        _check(connection, place, shard)


@contextmanager
def reading_shards(address: str, key: bytes | None) -> Iterator[list[ShardRows]]:
    """Yield the rows of each shard of a database, all as of one moment.

    Args:
        address: The address of the database.
        key: The key of the ledger; None without one.
    """
    place = where(address)
    with (
        translate_errors(place),
        connect(address, read_only=True) as connection,
        _sessions(connection, place, key) as sessions,
    ):
        yield [*map(ShardRows, sessions)]


@contextmanager
def filling_shards(address: str, key: bytes | None) -> Iterator[list[ShardRows]]:
    """Yield what writes the rows of each shard of an empty database, and commit all at the end.

    Until then nobody else puts into the database, and no daemon writes its facts.

    Args:
        address: The address of the database.
        key: The key of the ledger; None without one.

    Raises:
        OutputExistsError: The database is not empty.
    """
    place = where(address)
    with (
        translate_errors(place),
        connect(address) as connection,
        _sessions(connection, place, key) as sessions,
    ):
        sessions[0].do("whole_tables.no_idle_timeout")
        for session in sessions:
            session.value("whole_tables.lock_epoch")
            session.value("whole_tables.lock_log_end")
            session.exclude_other_writers()
            _check_empty(session)
        yield [*map(ShardRows, sessions)]


@contextmanager
def _sessions(
    connection: Connection, place: str, key: bytes | None
) -> Iterator[list[PostgresSession]]:
    """Yield a session for each shard, all in one transaction."""
    shards = _count_shards(connection, place)
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(PostgresSession(connection, place, shard, key=key)))
            for shard in range(shards)
        ]


def _count_shards(connection: Connection, place: str) -> int:
    """Return how many shards a database has; the next statement begins a transaction."""
    shards = installation.count_shards_on(connection, place)
    connection.rollback()
    return shards


def _check(connection: Connection, place: str, shard: int | None) -> None:
    shards = _count_shards(connection, place)
    if shard is not None and shard >= shards:
        problem = f"the database has no shard {shard}"
        raise UnsupportedByStoreError(place, problem, f"name one from 0 to {shards - 1}")
    if shard is None and shards != 1:
        problem = "the database has several shards, and a state directory is one"
        remedy = (
            "use a database with one shard; to copy one of several into a directory, "
            "set postgres.shard"
        )
        raise UnsupportedByStoreError(place, problem, remedy)


def _check_empty(session: PostgresSession) -> None:
    filled = session.one("whole_tables.first_filled")
    if filled is not None:
        remedy = f"its table {filled[0]} has rows; name an empty database"
        raise OutputExistsError(session.where, remedy)

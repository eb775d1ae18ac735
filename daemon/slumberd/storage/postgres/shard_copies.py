"""Copy all rows between a pair of SQLite files and a shard, and compare them.

Rows keep their numbers, salts, commitments and chain hashes: the copy has the ledger of its source,
and proofs about one are proofs about the other. Rows are read and written in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import psycopg

from slumberd.model.errors import (
    OutputExistsError,
    RowsNotCopiedError,
    StoreError,
    UnsupportedByStoreError,
)
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
from slumberd.storage.sqlite import backup
from slumberd.storage.sqlite.file_rows import (
    GROWING,
    TABLES,
    Erasures,
    LogEnd,
    Table,
    writing_files,
)

OnProgress = Callable[[str, int, int], object]
"""Called with the name of a table, and how many rows of all tables are done, and exist."""

_PAGE_ROWS = 2_000


class Rows(Protocol):
    """All rows of stores, in one transaction."""

    @property
    def tables(self) -> Sequence[Table]:
        """The tables of the stores, in the order in which they are copied."""
        ...

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        ...

    def read(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table, in the order of its key."""
        ...

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log."""
        ...

    def erasures(self) -> Erasures:
        """Return the erased scopes."""
        ...


class Target(Protocol):
    """Empty stores, in one transaction."""

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows into an empty table."""
        ...

    def write_log_end(self, end: LogEnd) -> None:
        """Let the log continue with the numbers after these; its episodes are written."""
        ...

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes into a store that has none."""
        ...


def copy_rows(source: Rows, target: Target, on_progress: OnProgress) -> dict[str, int]:
    """Copy all rows into empty stores; return how many, by table."""
    total = sum(map(source.count, source.tables))
    done = 0
    copied: dict[str, int] = {}
    for table in source.tables:
        copied[table.name] = 0
        for page in _pages(source.read(table)):
            target.write(table, page)
            copied[table.name] += len(page)
            done += len(page)
            on_progress(table.name, done, total)
    if "episodes" in copied:
        target.write_log_end(source.log_end())
    target.write_erasures(source.erasures())
    return copied


class Difference(NamedTuple):
    """How a table differs between two stores.

    Attributes:
        rows: How many rows differ, or are in one of them only.
        first: The key of the first such row, and what is different.
    """

    table: str
    rows: int
    first: str


def find_differences(
    ours: Rows, theirs: Rows, on_progress: OnProgress, *, names: tuple[str, str]
) -> list[Difference]:
    """Compare all rows of stores with those of their copy; return the tables that differ.

    Args:
        ours: The stores.
        theirs: The copy.
        on_progress: Called after each page.
        names: What to call the stores, and the copy.
    """
    total = sum(map(ours.count, ours.tables))
    done = 0
    found = []
    for table in ours.tables:
        comparison = _Comparison(table, theirs.read(table), names)
        for page in _pages(ours.read(table)):
            comparison.compare(page)
            done += len(page)
            on_progress(table.name, done, total)
        comparison.finish()
        if comparison.rows:
            found.append(Difference(table.name, comparison.rows, comparison.first))
    found += _differing_ends(ours.log_end(), theirs.log_end(), names)
    if ours.erasures() != theirs.erasures():
        found.append(Difference("erased_scopes", 1, "the erased scopes differ"))
    return found


def _differing_ends(ours: LogEnd, theirs: LogEnd, names: tuple[str, str]) -> Iterator[Difference]:
    tables = ("episode_log", "episode_deletions")
    for name, our, their in zip(tables, ours, theirs, strict=True):
        if our != their:
            ends = f"the last number is {our} in {names[0]}, {their} in {names[1]}"
            yield Difference(name, 1, ends)


class _Comparison:
    """Compares a table with its copy; all rows come in the order of their keys.

    Args:
        theirs: The rows of the copy.
        names: What to call the stores, and the copy.

    Attributes:
        rows: How many rows differ.
        first: The key of the first such row, and what is different.
    """

    def __init__(self, table: Table, theirs: Iterator[Row], names: tuple[str, str]) -> None:
        self.rows = 0
        self.first = ""
        self._keys = table.keys
        self._names = names
        self._theirs = theirs
        self._next = next(theirs, None)

    def compare(self, rows: Sequence[Row]) -> None:
        """Compare rows with the next ones of the copy."""
        for row in rows:
            key = row[: self._keys]
            while (their := self._next) is not None and their[: self._keys] < key:
                self._take_surplus(their)
            if their is None or their[: self._keys] != key:
                self._note(row, f"is only in {self._names[0]}")
                continue
            if their != row:
                self._note(row, "is different")
            self._next = next(self._theirs, None)

    def finish(self) -> None:
        """Compare with nothing what is left of the copy."""
        while (their := self._next) is not None:
            self._take_surplus(their)

    def _take_surplus(self, row: Row) -> None:
        self._note(row, f"is only in {self._names[1]}")
        self._next = next(self._theirs, None)

    def _note(self, row: Row, problem: str) -> None:
        self.rows += 1
        self.first = self.first or f"row {_words(row, self._keys)} {problem}"


def _words(row: Row, keys: int) -> str:
    return ", ".join(map(repr, row[:keys]))


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := [*islice(rows, _PAGE_ROWS)]:
        yield page


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


def write_files(
    source: ShardRows, targets: Mapping[StoreName, Path], on_progress: OnProgress
) -> dict[str, int]:
    """Write stores into new files; return how many rows, by table.

    Args:
        source: The rows of these stores.
        targets: The new file of each store. When the copy fails, they are deleted.
        on_progress: Called after each page.

    Raises:
        OutputExistsError: A file exists already.
        StoreError: A file cannot be written.
    """
    for path in targets.values():
        if path.exists():
            raise OutputExistsError(str(path))
    try:
        with writing_files(targets) as files:
            return copy_rows(source, files, on_progress)
    except BaseException:
        for path in targets.values():
            _delete(path)
        raise


def _delete(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


class PostgresCopies:
    """Copies the stores of a shard into SQLite files; implements `StoreCopies`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def copy(self, store: StoreName, target: Path) -> None:
        """Copy one store as of one moment.

        Raises:
            StoreError: As `copy_together`.
        """
        self.copy_together({store: target})

    def copy_together(self, targets: Mapping[StoreName, Path]) -> None:
        """Copy several stores as of one moment.

        Raises:
            StoreError: The database cannot be read, or there is no space for the copy.
        """
        with reading_shard(self._shard, [*targets]) as source:
            write_files(source, targets, lambda *_: None)

    def check_not_in_use(self, store: StoreName) -> None:
        """Refuse: a database is restored by its own means.

        Raises:
            UnsupportedByStoreError: Always.
        """
        del store
        problem = "slumberd does not replace the content of a database"
        remedy = "restore it by the backups of PostgreSQL"
        raise UnsupportedByStoreError(self._shard.where, problem, remedy)

    def is_full(self, error: StoreError) -> bool:
        """Return whether an error means that the disk of the copies is full."""
        return backup.is_full(error)

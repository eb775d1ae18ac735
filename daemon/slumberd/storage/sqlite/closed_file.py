"""Open a SQLite file read-only for one read, while other programs may have it open."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.model.store_status import StoreLocation, StoreSizes
from slumberd.rules.filters.sandbox import Filter, FilterResult, prepare
from slumberd.storage.engine import Session, Work
from slumberd.storage.sqlite import episode_installation, health, ledger_schema
from slumberd.storage.sqlite.file_schema import FileSchema, find_number
from slumberd.storage.sqlite.health import fs_type, look
from slumberd.storage.sqlite.session import Pragmas, SQLiteSession, translate_errors

T = TypeVar("T")


class ClosedFile:
    """One SQLite file; implements `ClosedStore` and `StoreFiles`.

    Args:
        schema: The schemas of such a file.
        is_begun: Returns whether slumberd has made its tables in a file.
    """

    def __init__(
        self, path: Path, schema: FileSchema, is_begun: Callable[[sqlite3.Connection], bool]
    ) -> None:
        self._path = path
        self._schema = schema
        self._is_begun = is_begun
        self._log = path.with_name(path.name + "-wal")

    @property
    def where(self) -> str:
        """The path of the file."""
        return str(self._path)

    @property
    def on_disk(self) -> Self:
        """What looks at the file."""
        return self

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._path.exists()

    def sizes(self) -> StoreSizes:
        """Return the bytes of the file and of its write-ahead log; 0 for one that is missing."""
        with translate_errors(self._path, Pragmas()):
            found = [
                file.stat().st_size if file.exists() else 0 for file in (self._path, self._log)
            ]
        return StoreSizes(*found)

    def is_begun(self) -> bool:
        """Return whether slumberd has made its tables in the file."""
        return look(self._path, self._is_begun)

    def check_version(self) -> None:
        """Check that this slumberd knows the schema of the file.

        Raises:
            SchemaError: The file has an unknown schema, or tables that do not fit its number.
        """
        look(self._path, partial(find_number, schema=self._schema))

    def look(self, work: Work[T], seconds: float | None = None) -> T:
        """Run `work` on one snapshot, for at most so many seconds."""
        return look(self._path, partial(self._run, work, seconds))

    def look_if_begun(self, work: Work[T], seconds: float | None = None) -> T | None:
        """Run `work` as `look` does; return None in a file without slumberd's tables."""
        return look(self._path, partial(self._run_if_begun, work, seconds))

    def _run_if_begun(
        self, work: Work[T], seconds: float | None, connection: sqlite3.Connection
    ) -> T | None:
        return self._run(work, seconds, connection) if self._is_begun(connection) else None

    def _run(self, work: Work[T], seconds: float | None, connection: sqlite3.Connection) -> T:
        session = self._session(connection)
        try:
            with health.within(connection, seconds):
                return work(session)
        finally:
            session.close()

    def _session(self, connection: sqlite3.Connection) -> SQLiteSession:
        return SQLiteSession(connection, self.where)

    def open_snapshots(self, _: Session) -> Sequence[str]:
        """Return nothing: SQLite does not tell who reads a file."""
        return ()

    def is_missing(self) -> bool:
        """Return whether nothing is in its place, not even a link that leads nowhere."""
        return not self._path.exists() and not self._path.is_symlink()

    def paths(self) -> list[Path]:
        """Return the paths of the file, its write-ahead log, and the index of the log."""
        return [self._path, self._log, self._path.with_name(self._path.name + "-shm")]

    def location(self) -> StoreLocation:
        """Return the file system of the file, and its write-ahead log."""
        return StoreLocation(fs_type(self._path), str(self._log))

    def writes_ahead(self) -> bool:
        """Return whether the file is written with a write-ahead log."""
        return health.writes_ahead(self._path)

    def older_schema(self) -> tuple[int, int] | None:
        """Return the number of the file's schema and the newest one; None when they are equal."""
        number = look(self._path, partial(find_number, schema=self._schema))
        return None if number in (0, self._schema.newest) else (number, self._schema.newest)

    def damage(self, seconds: float | None) -> str | None:
        """Return the first problem that SQLite's ``quick_check`` finds."""
        return look(self._path, partial(health.damage_in, seconds=seconds))

    def has_foreign_log(self) -> bool:
        """Return whether the write-ahead log seems to belong to another file."""
        return look(self._path, partial(health.has_foreign_log, path=self._path))


class ClosedEpisodeFile(ClosedFile):
    """A file of episodes, on which filters of rules run, too.

    Args:
        naive: How to read a timestamp without an offset.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self, path: Path, naive: NaiveTimestamps, person: Collection[str] = PERSON
    ) -> None:
        super().__init__(path, episode_installation.SCHEMA, episode_installation.is_readable)
        self._prepare = partial(prepare, naive=naive, person=person)

    def _session(self, connection: sqlite3.Connection) -> SQLiteSession:
        return _FilteringSession(connection, self.where, self._prepare)


class _FilteringSession(SQLiteSession):
    """A session whose connection learns the functions of filters when the first one runs."""

    __slots__ = ("_prepare",)

    def __init__(
        self,
        connection: sqlite3.Connection,
        where: str,
        prepare_filters: Callable[[sqlite3.Connection], None],
    ) -> None:
        super().__init__(connection, where)
        self._prepare = prepare_filters

    def apply_filter(self, rule_filter: Filter, numbers: Sequence[int]) -> FilterResult:
        """Return which rows of ``episodes`` a filter selects, by their rowids."""
        self._prepare(self._connection)
        return super().apply_filter(rule_filter, numbers)


def closed_fact_file(path: Path) -> ClosedFile:
    """Return a file of facts."""
    return ClosedFile(path, ledger_schema.SCHEMA, ledger_schema.has_ledger)

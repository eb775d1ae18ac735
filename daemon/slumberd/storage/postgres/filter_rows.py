"""Run filters on rows that were read from another engine.

SQLite is the language of filters on every engine: the same filter selects the same episodes. A
database in memory holds the rows of one batch at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from threading import Lock

from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.rules.filters import sandbox
from slumberd.rules.filters.sandbox import Filter, FilterResult
from slumberd.sql_statements import statement
from slumberd.storage.engine import Row

_INSERT = (
    "INSERT INTO episodes (rowid, id, scope_key, content, timestamp, metadata)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)


class FilterRows:
    """A database in memory with the rows of one batch at a time; for any thread.

    Args:
        naive: The zone of a timestamp without an offset.
        person: The speakers whose words are those of the user.
    """

    def __init__(self, naive: NaiveTimestamps, person: Collection[str] = PERSON) -> None:
        self._naive: NaiveTimestamps = naive
        self._person = person
        self._alone = Lock()
        self._connection: sqlite3.Connection | None = None

    def apply(
        self, rule_filter: Filter, numbers: Sequence[int], rows: Sequence[Row]
    ) -> FilterResult:
        """Return which rows a filter selects, by their numbers.

        Args:
            numbers: The numbers of the rows to check.
            rows: Each row's number, then its columns.

        Raises:
            FilterError: The filter does not compile, or runs over its time limit.
            StoppedError: Its stop event was set.
        """
        with self._alone:
            connection = self._open()
            connection.execute("PRAGMA query_only = OFF")
            connection.execute("DELETE FROM episodes")
            connection.executemany(_INSERT, rows)
            connection.execute("PRAGMA query_only = ON")
            return rule_filter.select(connection, numbers)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            self._connection.execute(statement("episodes", "create_table"))
            sandbox.prepare(self._connection, naive=self._naive, person=self._person)
        return self._connection

    def close(self) -> None:
        """Free the rows."""
        with self._alone:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

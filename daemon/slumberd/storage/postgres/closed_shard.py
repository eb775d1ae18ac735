"""Open a shard of a database read-only for one read, while other programs use it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal, TypeVar

import psycopg

from slumberd.model.episode import PERSON, NaiveTimestamps
from slumberd.model.errors import StoppedError
from slumberd.model.store_status import StoreSizes
from slumberd.storage.engine import Session, Work
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.filter_rows import FilterRows
from slumberd.storage.postgres.scrubbing import OpenSnapshot
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard

T = TypeVar("T")


class ClosedShard:
    """One store of a shard; implements `ClosedStore`.

    Args:
        tables: The store.
        naive: How to read a timestamp without an offset.
        person: The speakers whose words are those of the user.
    """

    def __init__(
        self,
        shard: Shard,
        tables: Literal["episodes", "facts"],
        naive: NaiveTimestamps = "local",
        person: Collection[str] = PERSON,
    ) -> None:
        self._shard = shard
        self._tables = tables
        self._naive = naive
        self._person = person

    @property
    def where(self) -> str:
        """The database in words, without its password."""
        return self._shard.where

    @property
    def on_disk(self) -> None:
        """Nothing: the server keeps the files, and checks them."""
        return None

    def exists(self) -> bool:
        """Return whether the database has a schema of slumberd, of whatever version.

        Raises:
            DatabaseUnreachableError: The server does not answer.
        """
        with (
            connect(self._shard.address, self._shard.schema, read_only=True) as connection,
            translate_errors(self.where),
        ):
            return installation.has_schema(connection, self._shard.schema)

    def sizes(self) -> StoreSizes:
        """Return the bytes of the tables; the log is the server's."""
        size = f"inspection.size_of_{self._tables}"
        return StoreSizes(self.look(lambda session: session.value(size)), 0)

    def is_begun(self) -> bool:
        """Return whether the database has a schema of slumberd."""
        return self.exists()

    def check_version(self) -> None:
        """Check that the shard has the schema of this slumberd."""
        self.look(lambda _: None)

    def look(self, work: Work[T], seconds: float | None = None) -> T:
        """Run `work` on one snapshot, after a check of the schema."""
        if seconds == 0:
            raise StoppedError("there was no time")
        with (
            connect(self._shard.address, self._shard.schema, read_only=True) as connection,
            translate_errors(self.where),
        ):
            installation.check_shard(connection, self._shard)
            if seconds is not None:
                limit = 0 if seconds == math.inf else max(1, round(1000 * seconds))
                connection.execute(f"SET statement_timeout = {limit:d}".encode())
            rows = FilterRows(self._naive, self._person)
            session = PostgresSession(connection, self.where, filter_rows=rows)
            try:
                return work(session)
            except psycopg.errors.QueryCanceled as error:
                if seconds is None:
                    raise
                raise StoppedError("the time was over") from error
            finally:
                session.close()
                connection.rollback()

    def look_if_begun(self, work: Work[T], seconds: float | None = None) -> T | None:
        """Run `work` as `look` does, which refuses a database without a schema."""
        return self.look(work, seconds)

    def open_snapshots(self, session: Session) -> list[str]:
        """Return the transactions that may keep old versions of rows, in words."""
        return [str(OpenSnapshot(*row)) for row in session.rows("hosts.open_snapshots")]

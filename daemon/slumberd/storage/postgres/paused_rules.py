"""Keep in a database which rules are paused, so that a standby knows it after a takeover."""

from __future__ import annotations

import orjson
import psycopg

from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors

_READ = b"SELECT rule, state ->> 'by' FROM slumberd.paused_rules"
_CLEAR = b"DELETE FROM slumberd.paused_rules"
_WRITE = b"INSERT INTO slumberd.paused_rules (rule, state) VALUES ($1, $2::jsonb)"


class PausedTable:
    """Keeps which rules are paused in a table.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id.

        Raises:
            StoreError: The database cannot be read.
        """
        with connect(self._address) as connection, translate_errors(where(self._address)):
            return {rule: by or "" for rule, by in connection.execute(_READ).fetchall()}

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused, in one transaction.

        Raises:
            StoreError: The database cannot be written.
        """
        rows = [(rule, orjson.dumps({"by": by}).decode()) for rule, by in paused.items()]
        with connect(self._address) as connection, translate_errors(where(self._address)):
            connection.execute(_CLEAR)
            with psycopg.RawCursor(connection) as cursor:
                cursor.executemany(_WRITE, rows)

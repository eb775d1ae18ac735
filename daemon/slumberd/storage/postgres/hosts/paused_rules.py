"""Keep in a database which rules are paused, so that a standby knows it after a takeover."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg

from slumberd.errors import LeaseLostError
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors

_READ = b"SELECT rule, state ->> 'by' FROM slumberd.paused_rules WHERE shard = $1::smallint"
_CLEAR = b"DELETE FROM slumberd.paused_rules WHERE shard = $1::smallint"
_WRITE = b"""
INSERT INTO slumberd.paused_rules (shard, rule, state) VALUES ($1::smallint, $2, $3::jsonb)
"""
# The lock keeps another daemon from taking the lease before the rules are written.
_LOCK = b"""
SELECT holder, held_until >= clock_timestamp()
FROM slumberd.shards
WHERE shard = $1::smallint
FOR SHARE
"""


class PausedTable:
    """Keeps which rules are paused in a table.

    Args:
        address: The address of the database.
        shard: The shard whose rules are paused.
        holder: Who must hold the shard to write; None for anybody.
    """

    def __init__(self, address: str, shard: int, *, holder: str | None = None) -> None:
        self._address = address
        self._shard = shard
        self._holder = holder

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id.

        Raises:
            StoreError: The database cannot be read.
        """
        with (
            connect(self._address) as connection,
            translate_errors(where(self._address)),
            psycopg.RawCursor(connection) as cursor,
        ):
            rows = cursor.execute(_READ, (self._shard,)).fetchall()
        return {rule: by or "" for rule, by in rows}

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused, in one transaction.

        Raises:
            LeaseLostError: Another process holds the shard; nothing is written.
            StoreError: The database cannot be written.
        """
        rows = [
            (self._shard, rule, orjson.dumps({"by": by}).decode()) for rule, by in paused.items()
        ]
        with (
            connect(self._address) as connection,
            translate_errors(where(self._address)),
            psycopg.RawCursor(connection) as cursor,
        ):
            self._check_holder(cursor)
            cursor.execute(_CLEAR, (self._shard,))
            cursor.executemany(_WRITE, rows)

    def _check_holder(self, cursor: psycopg.RawCursor[tuple[Any, ...]]) -> None:
        if self._holder is None:
            return
        row = cursor.execute(_LOCK, (self._shard,)).fetchone()
        holder = row[0] if row is not None and row[1] else None
        if holder != self._holder:
            raise LeaseLostError(where(self._address), holder or "")

"""Keep in a database which rules are paused, so that a standby knows it after a takeover."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg

from slumberd.errors import LeaseLostError
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.shard_map import Shard

_READ = b"SELECT rule, state ->> 'by' FROM paused_rules"
_CLEAR = b"DELETE FROM paused_rules"
_WRITE = b"INSERT INTO paused_rules (rule, state) VALUES ($1, $2::jsonb)"
# The lock keeps another daemon from taking the lease before the rules are written.
_LOCK = b"SELECT holder, held_until >= clock_timestamp() FROM lease FOR SHARE"


class PausedTable:
    """Keeps which rules are paused in a table.

    Args:
        shard: The shard whose rules are paused.
        holder: Who must hold the shard to write; None for anybody.
    """

    def __init__(self, shard: Shard, *, holder: str | None = None) -> None:
        self._shard = shard
        self._holder = holder

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id.

        Raises:
            StoreError: The database cannot be read.
        """
        with (
            connect(self._shard.address, self._shard.schema) as connection,
            translate_errors(self._shard.where),
            psycopg.RawCursor(connection) as cursor,
        ):
            rows = cursor.execute(_READ).fetchall()
        return {rule: by or "" for rule, by in rows}

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused, in one transaction.

        Raises:
            LeaseLostError: Another process holds the shard; nothing is written.
            StoreError: The database cannot be written.
        """
        rows = [(rule, orjson.dumps({"by": by}).decode()) for rule, by in paused.items()]
        with (
            connect(self._shard.address, self._shard.schema) as connection,
            translate_errors(self._shard.where),
            psycopg.RawCursor(connection) as cursor,
        ):
            self._check_holder(cursor)
            cursor.execute(_CLEAR)
            cursor.executemany(_WRITE, rows)

    def _check_holder(self, cursor: psycopg.RawCursor[tuple[Any, ...]]) -> None:
        if self._holder is None:
            return
        row = cursor.execute(_LOCK).fetchone()
        holder = row[0] if row is not None and row[1] else None
        if holder != self._holder:
            raise LeaseLostError(self._shard.where, holder or "")

"""Keep the published versions of the rules, which never change, and which rules are paused."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg

from slumberd.model.errors import LeaseLostError, OtherRulesPublishedError
from slumberd.model.rule import PublishedRules, RulesToPublish
from slumberd.storage.postgres.connection import connect, translate_errors, where
from slumberd.storage.postgres.shard_map import Shard

Cursor = psycopg.RawCursor[tuple[Any, ...]]

_READ = b"""
SELECT version, hash, published_at, by, reason, document::text
FROM slumberd.rule_sets
WHERE version = coalesce($1::bigint, (SELECT max(version) FROM slumberd.rule_sets))
"""
_LIST = b"""
SELECT version, hash, published_at, by, reason, document::text
FROM slumberd.rule_sets
ORDER BY version DESC
LIMIT $1
"""
_INSERT = b"""
INSERT INTO slumberd.rule_sets (version, hash, document, by, reason)
VALUES ($1, $2, $3::jsonb, $4, $5)
RETURNING version, hash, published_at, by, reason, document::text
"""
# Publishers wait for each other, so that each sees the newest version.
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('slumberd.rule_sets', 0))"

_READ_PAUSED = b"SELECT rule, state ->> 'by' FROM paused_rules"
_CLEAR_PAUSED = b"DELETE FROM paused_rules"
_WRITE_PAUSED = b"INSERT INTO paused_rules (rule, state) VALUES ($1, $2::jsonb)"
# The lock keeps another daemon from taking the lease before the rules are written.
_LOCK_LEASE = b"SELECT holder, held_until >= clock_timestamp() FROM lease FOR SHARE"


class RuleSetTable:
    """The published versions of the rules of a database.

    Args:
        address: The address of the database.

    Attributes:
        where: The database in words.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.where = where(address)

    def read(self, version: int | None = None) -> PublishedRules | None:
        """Return a version, None for the newest; None when there is no such version."""
        with (
            connect(self._address, read_only=True) as connection,
            translate_errors(self.where),
            psycopg.RawCursor(connection) as cursor,
        ):
            return _read(cursor, version)

    def newest(self, limit: int) -> list[PublishedRules]:
        """Return at most so many versions, newest first."""
        with (
            connect(self._address, read_only=True) as connection,
            translate_errors(self.where),
            psycopg.RawCursor(connection) as cursor,
        ):
            return [_rules_of(row) for row in cursor.execute(_LIST, (limit,))]

    def publish(
        self, rules: RulesToPublish, *, expected: int | None = None
    ) -> tuple[PublishedRules, bool]:
        """Put rules in force for all hosts, unless their files are those in force already."""
        with (
            connect(self._address) as connection,
            translate_errors(self.where),
            psycopg.RawCursor(connection) as cursor,
        ):
            cursor.execute(_LOCK)
            newest = _read(cursor, None)
            number = 0 if newest is None else newest.version
            if expected not in (None, number):
                raise OtherRulesPublishedError(self.where, expected, number)
            if newest is not None and newest.texts == rules.texts:
                return newest, False
            document = orjson.dumps({"files": dict(rules.texts)}).decode()
            values = (number + 1, rules.content_hash, document, rules.by, rules.reason)
            (row,) = cursor.execute(_INSERT, values).fetchall()
            return _rules_of(row), True


def _read(cursor: Cursor, version: int | None) -> PublishedRules | None:
    row = cursor.execute(_READ, (version,)).fetchone()
    return None if row is None else _rules_of(row)


def _rules_of(row: tuple[Any, ...]) -> PublishedRules:
    version, content_hash, published_at, by, reason, document = row
    texts = orjson.loads(document)["files"]
    return PublishedRules(version, content_hash, published_at, by, reason, texts)


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
            rows = cursor.execute(_READ_PAUSED).fetchall()
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
            cursor.execute(_CLEAR_PAUSED)
            cursor.executemany(_WRITE_PAUSED, rows)

    def _check_holder(self, cursor: psycopg.RawCursor[tuple[Any, ...]]) -> None:
        if self._holder is None:
            return
        row = cursor.execute(_LOCK_LEASE).fetchone()
        holder = row[0] if row is not None and row[1] else None
        if holder != self._holder:
            raise LeaseLostError(self._shard.where, holder or "")

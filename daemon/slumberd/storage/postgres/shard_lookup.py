"""Find out in which shards of a database something lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors

_EPISODE = b"SELECT shard FROM slumberd.episode_ids WHERE id = $1"
_CURRENT = b"SELECT fact_id, shard FROM slumberd.facts WHERE fact_id = ANY ($1)"
_EARLIER = b"""
SELECT fact_id, min(shard)
FROM slumberd.ledger
WHERE fact_id = ANY ($1)
GROUP BY fact_id
"""
_FACT = b"""
SELECT DISTINCT shard
FROM slumberd.facts
WHERE slumberd.short("user") = slumberd.short($1)
  AND "user" = $1
  AND fact_id = $2
"""
_TRIPLE = b"""
SELECT DISTINCT shard
FROM slumberd.facts
WHERE slumberd.short("user") = slumberd.short($1)
  AND "user" = $1
  AND subject = $2
  AND predicate = $3
"""
_QUARANTINED = b"""
SELECT DISTINCT eid, shard
FROM slumberd.quarantine
WHERE eid = ANY ($1)
  AND ($2::text[] IS NULL OR rule = ANY ($2))
"""
_RUN = b"""
SELECT DISTINCT firings.shard
FROM slumberd.firings AS firings
INNER JOIN slumberd.ledger AS own
  ON own.shard = firings.shard
  AND own.seq = firings.n
WHERE firings.last_seq > firings.n
  AND position(convert_to($1::text, 'UTF8') IN own.payload) > 0
  AND substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\\\]*)"') = $1::text
"""
_RULE = b"SELECT DISTINCT shard FROM slumberd.firings WHERE rule = ANY ($1)"


class ShardLookup:
    """Looks into all shards of a database; each look opens a connection.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def episode(self, id: str) -> int | None:
        """Return the shard of an episode; None when the database has no such episode."""
        return next(iter(self._shards(_EPISODE, id)), None)

    def fact_ids(self, ids: Sequence[str]) -> dict[str, set[int]]:
        """Return the shards that hold each current fact.

        A fact that is not current any more counts in one shard whose ledger knows it. An id that no
        shard knows is missing.
        """
        current = self._shards_by_id(_CURRENT, [*ids])
        earlier = [id for id in ids if id not in current]
        return current | (self._shards_by_id(_EARLIER, earlier) if earlier else {})

    def fact(self, user: str, id: str) -> list[int]:
        """Return the shards that hold a current fact of a user."""
        return self._shards(_FACT, user, id)

    def triple(self, user: str, subject: str, predicate: str) -> list[int]:
        """Return the shards that hold a current fact of a user with a subject and a predicate."""
        return self._shards(_TRIPLE, user, subject, predicate)

    def quarantined(self, ids: Sequence[str], rules: Sequence[str] | None) -> dict[str, set[int]]:
        """Return the shards in whose quarantine each episode is, of some rules or of all."""
        return self._shards_by_id(_QUARANTINED, [*ids], None if rules is None else [*rules])

    def run(self, run: str) -> list[int]:
        """Return the shards that have firings of a run."""
        return self._shards(_RUN, run)

    def rule(self, rule_id: str) -> list[int]:
        """Return the shards in which a rule has fired."""
        return self._shards(_RULE, [rule_id, ledger_rule_id(rule_id)])

    def _shards(self, statement: bytes, *values: object) -> list[int]:
        return sorted(shard for (shard,) in self._rows(statement, *values))

    def _shards_by_id(self, statement: bytes, *values: object) -> dict[str, set[int]]:
        found: defaultdict[str, set[int]] = defaultdict(set)
        for id, shard in self._rows(statement, *values):
            found[id].add(shard)
        return dict(found)

    def _rows(self, statement: bytes, *values: object) -> list[tuple[Any, ...]]:
        with (
            connect(self._address, read_only=True) as connection,
            translate_errors(where(self._address)),
            psycopg.RawCursor(connection) as cursor,
        ):
            return cursor.execute(statement, values).fetchall()

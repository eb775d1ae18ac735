"""Read promotions from the ledger for provenance sinks, and keep the place of each sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from slumberd.consolidation.claim import Claim, user_and_agent
from slumberd.consolidation.precedence import effective_claims
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of
from slumberd.model.provenance import Lag, Page, Promotion, payload_text
from slumberd.sql_statements import statements
from slumberd.storage.ledger.rows import claim_from, firing_id_of, histories_from
from slumberd.storage.sqlite.connection import snapshot

_SQL = statements("promotion_feed")
_LEDGER = statements("ledger")
ASSERTED, REFUSED = "asserted:", "refused:"
"""Prefixes of numbers: the last row published to a sink, and the rows that it refused."""

_KIND: Mapping[int, Literal["add", "update"]] = {1: "add", 2: "update"}
_CLAIM = 1


class _Row(NamedTuple):
    seq: int
    rule_id: str
    firing: int
    fired_at: int
    what: int
    kind: int
    at: int | None
    fact_id: str
    replaces: str | None
    payload: bytes | None

    @property
    def went(self) -> tuple[str, ...]:
        return tuple(orjson.loads(self.replaces)) if self.replaces else ()


def page(connection: sqlite3.Connection, after: int, limit: int, *, standing: bool) -> Page:
    """Return the promotions in at most `limit` ledger rows after a number.

    Args:
        connection: Outside of any transaction.
        after: The number of a row.
        limit: At most so many rows are read, of any kind.
        standing: Whether only promotions of current facts are returned.
    """
    with snapshot(connection):
        values = {"after": after, "limit": limit}
        upto = connection.execute(_SQL["end_of_page"], values).fetchone()[0]
        if upto is None:
            return Page((), after)
        query = _SQL["promotions_of_current_facts" if standing else "promotions"]
        found = connection.execute(query, {"after": after, "upto": upto})
        rows = [_Row(*row) for row in found.fetchall()]
        return Page(_promotions(connection, rows), upto)


def _promotions(connection: sqlite3.Connection, rows: Sequence[_Row]) -> list[Promotion]:
    again = {row.fact_id for row in rows if not _has_own_claim(row)}
    evaluations = _evaluations(connection, again) if again else []
    claims = [(row, _own_claim(row) or _claim_then(row, evaluations)) for row in rows]
    return [_promotion(row, claim) for row, claim in claims if claim is not None]


def _has_own_claim(row: _Row) -> bool:
    """Return whether the fact that a row made current is its own claim.

    A row that replaces its own id may belong to one more rule, while a manual edit is current.
    """
    return row.what == _CLAIM and row.payload is not None and row.fact_id not in row.went


def _own_claim(row: _Row) -> Claim | None:
    if row.payload is None or not _has_own_claim(row):
        return None
    return claim_from(row.fact_id, row.at or 0, orjson.loads(row.payload))


def _evaluations(connection: sqlite3.Connection, ids: Iterable[str]) -> list[tuple[Any, ...]]:
    asked = {"ids": orjson.dumps(sorted(ids)).decode()}
    return connection.execute(_LEDGER["evaluations"], asked).fetchall()


def _claim_then(row: _Row, evaluations: Iterable[tuple[Any, ...]]) -> Claim | None:
    """Return the claim that was current for a fact id after a row.

    The row brought a fact back, so the claim is in an earlier row. Of two claims with one id only
    the later can be current.
    """
    until = (one for one in evaluations if one[0] == row.fact_id and one[1] <= row.seq)
    history = histories_from(until).get(row.fact_id)
    counted = effective_claims(history.remaining()) if history else ()
    asserting = [one.claim for one in counted if one.claim.asserts]
    return max(asserting, key=lambda claim: claim.precedence, default=None)


def _promotion(row: _Row, claim: Claim) -> Promotion:
    user, agent = user_and_agent(claim.owner)
    return Promotion(
        row.seq,
        _KIND[row.kind],
        firing_id_of(row.rule_id, row.firing),
        row.rule_id,
        instant(row.fired_at),
        row.fact_id,
        user,
        agent,
        channel_of(row.fact_id),
        payload_text(claim.payload.get("subject")),
        payload_text(claim.payload.get("predicate")),
        claim.object,
        claim.confidence,
        row.went,
    )


def has_content(connection: sqlite3.Connection, seq: int) -> bool:
    """Return whether a row has its content; an erased row does not."""
    return connection.execute(_SQL["has_content"], {"seq": seq}).fetchone() is not None


def place(connection: sqlite3.Connection, reader: str) -> tuple[int, int]:
    """Return the last row published to a sink, and the number of rows that it refused."""
    return _number(connection, ASSERTED, reader), _number(connection, REFUSED, reader)


def _number(connection: sqlite3.Connection, what: str, reader: str) -> int:
    row = connection.execute(_LEDGER["number"], (what + reader,)).fetchone()
    return row[0] if row else 0


def readers(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the sinks that promotions were published to, sorted."""
    return [name for (name,) in connection.execute(_SQL["sinks"]).fetchall()]


def save_position(connection: sqlite3.Connection, reader: str, seq: int, refused: int) -> None:
    """Write the values that `place` returns; inside a transaction."""
    for what, value in ((ASSERTED, seq), (REFUSED, refused)):
        connection.execute(_SQL["put_number"], {"name": what + reader, "value": value})


def lag(connection: sqlite3.Connection, reader: str) -> Lag:
    """Return the rows that are not published to a sink yet."""
    after = _number(connection, ASSERTED, reader)
    rows, first = connection.execute(_SQL["lag"], {"after": after}).fetchone()
    return Lag(max(0, rows), None if first is None else instant(first))

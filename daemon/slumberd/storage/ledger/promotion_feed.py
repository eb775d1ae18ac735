"""Read promotions from the ledger for provenance sinks, and keep the place of each sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import orjson

from slumberd.consolidation.claim import Claim, user_and_agent
from slumberd.consolidation.precedence import effective_claims
from slumberd.model.episode import instant
from slumberd.model.fact_ids import channel_of
from slumberd.model.provenance import Lag, Page, Promotion, payload_text
from slumberd.sql_statements import statements
from slumberd.storage.ledger.rows import (
    CLAIM,
    KINDS,
    LedgerRow,
    RowWithFiring,
    claim_from,
    firing_id_of,
    histories_from,
    replaced_ids,
    row_with_firing,
)
from slumberd.storage.sqlite.connection import snapshot

_SQL = statements("promotion_feed")
_LEDGER = statements("ledger")
ASSERTED, REFUSED = "asserted:", "refused:"
"""Prefixes of numbers: the last row published to a sink, and the rows that it refused."""

_KINDS: Mapping[int, Literal["add", "update"]] = {
    KINDS.index("add"): "add",
    KINDS.index("update"): "update",
}


def page(connection: sqlite3.Connection, after: int, limit: int, *, current_only: bool) -> Page:
    """Return the promotions in at most `limit` ledger rows after a number.

    Args:
        connection: Outside of any transaction.
        after: The number of a row.
        limit: At most so many rows are read, of any kind.
        current_only: Return only promotions of current facts.
    """
    with snapshot(connection):
        values = {"after": after, "limit": limit}
        upto = connection.execute(_SQL["end_of_page"], values).fetchone()[0]
        if upto is None:
            return Page((), after)
        query = _SQL["promotions_of_current_facts" if current_only else "promotions"]
        found = connection.execute(query, {"after": after, "upto": upto})
        rows = [*map(row_with_firing, found.fetchall())]
        return Page([*_promotions(connection, rows)], upto)


def _promotions(
    connection: sqlite3.Connection, found: Sequence[RowWithFiring]
) -> Iterator[Promotion]:
    """Yield the promotions of rows that made a fact current, without erased rows."""
    restoring = {row.fact_id or "" for row, *_ in found if not _has_own_claim(row)}
    evaluations = _read_evaluations(connection, restoring) if restoring else []
    for promoting in found:
        row = promoting.row
        claim = _own_claim(row) or _find_restored_claim(row, evaluations)
        if claim is not None:
            yield _promotion_of(promoting, claim)


def _has_own_claim(row: LedgerRow[str]) -> bool:
    """Return whether the fact that a row made current is its own claim.

    A row that replaces its own id may belong to one more rule, while a manual edit is current.
    """
    has_claim = row.event == CLAIM and row.payload is not None
    return has_claim and row.fact_id not in replaced_ids(row)


def _own_claim(row: LedgerRow[str]) -> Claim | None:
    if row.payload is None or not _has_own_claim(row):
        return None
    return claim_from(row.fact_id or "", row.at or 0, orjson.loads(row.payload))


def _read_evaluations(connection: sqlite3.Connection, ids: Iterable[str]) -> list[tuple[Any, ...]]:
    parameters = {"ids": orjson.dumps(sorted(ids)).decode()}
    return connection.execute(_LEDGER["evaluations"], parameters).fetchall()


def _find_restored_claim(
    row: LedgerRow[str], evaluations: Iterable[tuple[Any, ...]]
) -> Claim | None:
    """Return the claim that was current for a fact id after a row.

    The row brought a fact back, so the claim is in an earlier row. Of two claims with one id only
    the later can be current.
    """
    until = (found for found in evaluations if found[0] == row.fact_id and found[1] <= row.seq)
    history = histories_from(until).get(row.fact_id or "")
    effective = effective_claims(history.remaining()) if history else ()
    asserting = [found.claim for found in effective if found.claim.asserts]
    return max(asserting, key=attrgetter("precedence"), default=None)


def _promotion_of(found: RowWithFiring, claim: Claim) -> Promotion:
    row = found.row
    fact_id = row.fact_id or ""
    user, agent = user_and_agent(claim.owner)
    return Promotion(
        row.seq,
        _KINDS[row.kind],
        firing_id_of(found.rule_id, row.firing),
        found.rule_id,
        instant(found.fired_at),
        fact_id,
        user,
        agent,
        channel_of(fact_id),
        payload_text(claim.payload.get("subject")),
        payload_text(claim.payload.get("predicate")),
        claim.object,
        claim.confidence,
        replaced_ids(row),
    )


def has_content(connection: sqlite3.Connection, seq: int) -> bool:
    """Return whether a row has its content; an erased row does not."""
    return connection.execute(_SQL["has_content"], {"seq": seq}).fetchone() is not None


def read_position(connection: sqlite3.Connection, reader: str) -> tuple[int, int]:
    """Return the last row published to a sink, and the number of rows that it refused."""
    return _number(connection, ASSERTED, reader), _number(connection, REFUSED, reader)


def _number(connection: sqlite3.Connection, what: str, reader: str) -> int:
    row = connection.execute(_LEDGER["number"], (what + reader,)).fetchone()
    return row[0] if row else 0


def sink_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the sinks that promotions were published to, sorted."""
    return [name for (name,) in connection.execute(_SQL["sinks"]).fetchall()]


def save_position(connection: sqlite3.Connection, reader: str, seq: int, refused: int) -> None:
    """Write the values that `read_position` returns; inside a transaction."""
    for what, value in ((ASSERTED, seq), (REFUSED, refused)):
        connection.execute(_SQL["put_number"], {"name": what + reader, "value": value})


def lag(connection: sqlite3.Connection, reader: str) -> Lag:
    """Return the rows that are not published to a sink yet."""
    after = _number(connection, ASSERTED, reader)
    rows, first = connection.execute(_SQL["lag"], {"after": after}).fetchone()
    return Lag(max(0, rows), None if first is None else instant(first))

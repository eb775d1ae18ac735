"""Read promotions for provenance sinks, and keep the position up to which they are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import orjson

from slumberd.consolidation.claim import Claim, user_and_agent
from slumberd.consolidation.precedence import effective_claims
from slumberd.model.episode import instant
from slumberd.model.provenance import Lag, Promotion, PromotionPage, payload_text
from slumberd.model.scope import channel_of
from slumberd.storage.engine import Session
from slumberd.storage.facts.apply import FactTransactions, head_of
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

ASSERTED, REFUSED = "asserted:", "refused:"
"""Prefixes of numbers: the last row published to a sink, and the rows that it refused."""

_KINDS: Mapping[int, Literal["add", "update"]] = {
    KINDS.index("add"): "add",
    KINDS.index("update"): "update",
}


def page(session: Session, after: int, limit: int, *, current_only: bool) -> PromotionPage:
    """Return the promotions in at most `limit` ledger rows after a number.

    Args:
        after: The number of a row.
        limit: At most so many rows are read, of any kind.
        current_only: Return only promotions of current facts.
    """
    values = {"after": after, "limit": limit}
    upto = session.value("promotion_feed.end_of_page", values)
    if upto is None:
        return PromotionPage((), after)
    query = (
        "promotion_feed.promotions_of_current_facts"
        if current_only
        else "promotion_feed.promotions"
    )
    found = session.rows(query, {"after": after, "upto": upto})
    rows = [*map(row_with_firing, found)]
    return PromotionPage([*_promotions(session, rows)], upto)


def _promotions(session: Session, found: Sequence[RowWithFiring]) -> Iterator[Promotion]:
    """Yield the promotions of rows that made a fact current, without erased rows."""
    restoring = {row.fact_id or "" for row, *_ in found if not _has_own_claim(row)}
    evaluations = _read_evaluations(session, restoring) if restoring else []
    for promoting in found:
        row = promoting.row
        claim = _own_claim(row)
        if claim is None:
            claim = _find_restored_claim(row, evaluations)
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


def _read_evaluations(session: Session, ids: Iterable[str]) -> list[tuple[Any, ...]]:
    parameters = {"values": sorted(ids)}
    return session.rows("ledger.evaluations", parameters)


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


def has_content(session: Session, seq: int) -> bool:
    """Return whether a row has its content; an erased row does not."""
    return session.one("promotion_feed.has_content", {"seq": seq}) is not None


def read_position(session: Session, reader: str) -> tuple[int, int]:
    """Return the last row published to a sink, and the number of rows that it refused."""
    return _number(session, ASSERTED, reader), _number(session, REFUSED, reader)


def _number(session: Session, what: str, reader: str) -> int:
    row = session.one("ledger.number", (what + reader,))
    return row[0] if row else 0


def sink_names(session: Session) -> list[str]:
    """Return the names of the sinks that promotions were published to, sorted."""
    return [name for (name,) in session.rows("promotion_feed.sinks")]


def save_position(session: Session, reader: str, seq: int, refused: int) -> None:
    """Write the values that `read_position` returns; inside a transaction."""
    for what, value in ((ASSERTED, seq), (REFUSED, refused)):
        session.do("promotion_feed.put_number", {"name": what + reader, "value": value})


def lag(session: Session, reader: str) -> Lag:
    """Return the rows that are not published to a sink yet."""
    after = _number(session, ASSERTED, reader)
    rows, first = session.rows("promotion_feed.lag", {"after": after})[0]
    return Lag(max(0, rows), None if first is None else instant(first))


class PromotionFeed:
    """The promotions of the ledger, and each reader's position; implements ``Promotions``."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> PromotionPage:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        return await self._transactions.read(
            lambda session: page(session, after, limit, current_only=current_only)
        )

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        return await self._transactions.read(lambda session: has_content(session, seq))

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        return await self._transactions.read(lambda session: read_position(session, reader))

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position, which `published_position` returns."""
        await self._transactions.write(lambda session: save_position(session, reader, seq, refused))

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        return (await self._transactions.read(head_of)).rows

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        return await self._transactions.read(lambda session: lag(session, reader))

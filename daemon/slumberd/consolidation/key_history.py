"""Compute which values of a key were current, and when, by either clock. Reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from slumberd.consolidation.claim import Claim, Precedence
from slumberd.consolidation.explanation import DetailedRecord
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant

MOST_FOLDS = 100_000
"""At most so many claims are folded for one history: its instants times the claims of the key."""

Payload = Mapping[str, Any]
ClaimsAt = Callable[[str, int], Sequence[Claim]]


class ValuePeriod(NamedTuple):
    """A period in which a fact was current.

    Attributes:
        fact_id: The fact.
        payload: What it said.
        begins_at: When it became current.
        ends_at: When it ceased to be current; None when it is current now.
    """

    fact_id: str
    payload: Payload
    begins_at: datetime
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """Which values of one key were current, and when.

    Attributes:
        user: The user of the key.
        agent: Its agent.
        payload: What the fact said whose key it is.
        valid: What was true, as is known now; the earliest period first.
        believed: What was held, as the ledger recorded it; the earliest period first.
        cut: Whether there are earlier periods.
    """

    user: str
    agent: str
    payload: Payload
    valid: list[ValuePeriod]
    believed: list[ValuePeriod]
    cut: bool


class _Periods:
    """Collects periods while facts become current, and cease to be current, in order."""

    def __init__(self) -> None:
        self._ended: list[ValuePeriod] = []
        self._open: dict[str, tuple[Payload, datetime]] = {}

    @property
    def current(self) -> list[str]:
        """The facts that are current."""
        return [*self._open]

    def begin(self, fact_id: str, payload: Payload, at: datetime) -> None:
        """Note that a fact is current; nothing when it says the same as before."""
        known = self._open.get(fact_id)
        if known is not None and known[0].get("object") == payload.get("object"):
            return
        self.end(fact_id, at)
        self._open[fact_id] = (payload, at)

    def end(self, fact_id: str, at: datetime) -> None:
        """Note that a fact is not current any more; a period without a length is left out."""
        known = self._open.pop(fact_id, None)
        if known is not None and known[1] < at:
            self._ended.append(ValuePeriod(fact_id, *known, at))

    def all(self) -> list[ValuePeriod]:
        """Return the periods, the earliest first."""
        current = [ValuePeriod(fact_id, *known, None) for fact_id, known in self._open.items()]
        return sorted([*self._ended, *current], key=_by_beginning)


def _by_beginning(period: ValuePeriod) -> tuple[datetime, str]:
    return period.begins_at, period.fact_id


def valid_periods(
    known_state: KnownState, key: str, *, most: int
) -> tuple[list[ValuePeriod], bool]:
    """Return what was true of a key, as is known now, and whether earlier instants are left out.

    Args:
        known_state: Holds the key in full. Its heads are of the last instant afterwards.
        key: The key.
        most: At most so many instants, the latest ones.
    """
    claims = [*_claims_about(known_state, key)]
    payloads = {(claim.fact_id, claim.precedence): claim.payload for claim in claims}
    instants = sorted({claim.precedence.at for claim in claims})
    kept = instants[-max(1, min(most, MOST_FOLDS // max(1, len(claims)))) :]
    periods = _Periods()
    for at in kept:
        known_state.until = at
        known_state.fold(key)
        current = known_state.current_assertions(key).values()
        now = {top.fact_id: payloads[top.fact_id, top.precedence] for top in current}
        for fact_id in periods.current:
            if fact_id not in now:
                periods.end(fact_id, instant(at))
        for fact_id, payload in now.items():
            periods.begin(fact_id, payload, instant(at))
    return periods.all(), len(kept) < len(instants)


def _claims_about(known_state: KnownState, key: str) -> Iterator[Claim]:
    """Yield the claims that count of a key's facts, and those that name one of these."""
    fact_ids = known_state.complete_keys[key]
    own = [*_claims_of(known_state, fact_ids)]
    yield from own
    referrers = {found for claim in own for found in known_state.referrers_of(claim)}
    yield from _claims_of(known_state, referrers - fact_ids)


def _claims_of(known_state: KnownState, fact_ids: Iterable[str]) -> Iterator[Claim]:
    for fact_id in fact_ids:
        for effective in known_state.effective_claims(fact_id):
            yield effective.claim


def believed_periods(
    rows: Sequence[DetailedRecord], key: str, key_id: int, claims_at: ClaimsAt
) -> list[ValuePeriod]:
    """Return what was held of a key, as the ledger recorded it.

    Args:
        rows: The rows about the key's facts, and about the facts that name these; oldest first.
        key: The key.
        key_id: Its number.
        claims_at: Returns the claims that counted of a fact after a row of the ledger.
    """
    periods = _Periods()
    for row in rows:
        record = row.record
        adds = record.kind in ("add", "update")
        for fact_id in record.replaces:
            if not (adds and fact_id == record.fact_id):
                periods.end(fact_id, record.at)
        payload = _payload_of(row, key, key_id, claims_at) if adds else None
        if payload is not None:
            periods.begin(record.fact_id, payload, record.at)
        elif adds:
            periods.end(record.fact_id, record.at)
    return periods.all()


def _payload_of(row: DetailedRecord, key: str, key_id: int, claims_at: ClaimsAt) -> Payload | None:
    """Return what a fact says of a key after a row that made it current; None for another key."""
    if row.asserts:
        return row.document["payload"] if row.key_id == key_id else None
    claims = [
        claim
        for claim in claims_at(row.record.fact_id, row.record.seq)
        if claim.asserts and claim.key == key
    ]
    return max(claims, key=_by_precedence).payload if claims else None


def _by_precedence(claim: Claim) -> Precedence:
    return claim.precedence

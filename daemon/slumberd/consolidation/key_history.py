"""Compute which values of a key were current, and when, by either clock. Reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant

MOST_FOLDS = 20_000
"""At most so many claims are folded for one history: its instants times the claims of the key."""

Payload = Mapping[str, Any]
T = TypeVar("T")


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
        valid: What was true, as slumberd knows now; the earliest period first.
        believed: What was known, as the ledger recorded it; the earliest period first.
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

    def set_current(self, current: Mapping[str, Payload], at: datetime) -> None:
        """Note which facts are current from an instant on, and what they say."""
        for fact_id in [*self._open]:
            if fact_id not in current:
                self.end(fact_id, at)
        for fact_id, payload in current.items():
            self.begin(fact_id, payload, at)

    def all(self) -> list[ValuePeriod]:
        """Return the periods, the earliest first."""
        current = [ValuePeriod(fact_id, *known, None) for fact_id, known in self._open.items()]
        return sorted([*self._ended, *current], key=_by_beginning)


def _by_beginning(period: ValuePeriod) -> tuple[datetime, str]:
    return period.begins_at, period.fact_id


def valid_periods(
    known_state: KnownState, key: str, *, most: int
) -> tuple[list[ValuePeriod], bool]:
    """Return what was true of a key, as known now, and whether earlier instants are left out.

    Args:
        known_state: Holds the key in full. Its heads are of the last instant afterwards.
        key: The key.
        most: At most so many instants, the latest ones.
    """
    claims = [*_claims_about(known_state, key)]
    instants = sorted({claim.precedence.at for claim in claims})
    kept = latest(instants, most=most, claims=len(claims))
    periods = _Periods()
    for at in kept:
        known_state.until = at
        known_state.fold(key)
        periods.set_current(_current_on(known_state, key), instant(at))
    return periods.all(), len(kept) < len(instants)


def believed_periods(states: Iterable[tuple[datetime, KnownState]], key: str) -> list[ValuePeriod]:
    """Return what was known of a key.

    Args:
        states: The instants of the firings that changed the key, and the state after each.
        key: The key.
    """
    periods = _Periods()
    for at, known_state in states:
        periods.set_current(_current_on(known_state, key), at)
    return periods.all()


def latest(instants: Sequence[T], *, most: int, claims: int) -> Sequence[T]:
    """Return the latest of some instants; fewer when each folds many claims."""
    return instants[-max(1, min(most, MOST_FOLDS // max(1, claims))) :]


def _current_on(known_state: KnownState, key: str) -> dict[str, Payload]:
    """Return what the current facts of a folded key say, by fact id."""
    found: dict[str, Payload] = {}
    for _, top in known_state.current_assertions(key):
        effective = known_state.effective_claims(top.fact_id)
        found[top.fact_id] = next(
            each.claim.payload
            for each in effective
            if each.claim.asserts and each.claim.precedence == top.precedence
        )
    return found


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

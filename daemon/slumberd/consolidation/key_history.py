"""Find what became of keys: their values by either clock, and what took the place of a claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from slumberd.consolidation.claim import Claim, Precedence, covers
from slumberd.consolidation.precedence import (
    MANUAL_RULE_ID,
    SECOND,
    Assertion,
    SlotState,
    effective_claims,
    is_spared,
    place_of,
)
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant
from slumberd.model.scope import unescape
from slumberd.model.stages import STAGE_CHANNELS

MANY_OBJECTS = 3
"""Objects keep replacing each other in a key that had this many different objects."""

_PARTS = 5
"""Of a key: user, agent, channel, subject and predicate."""

MOST_FOLDS = 20_000
"""At most so many claims are folded for one history: its instants times the claims of the key."""

Payload = Mapping[str, Any]
T = TypeVar("T")


class ValuePeriod(NamedTuple):
    """A period in which a fact was current.

    Attributes:
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


class Successor(NamedTuple):
    """What took the place of a claim in its slot.

    Attributes:
        assertions: The assertions that did; empty for a retraction.
        retraction: The precedence of the retraction that did; None for assertions.
    """

    assertions: tuple[Assertion, ...] = ()
    retraction: Precedence | None = None


def claim_of_episode(fact_id: str, known_state: KnownState) -> Claim | None:
    """Return the claim of an episode under a fact id, also when an edit of that id hides it."""
    evaluations = [
        evaluation
        for evaluation in known_state.evaluations.get(fact_id, ())
        if evaluation.rule_id != MANUAL_RULE_ID
    ]
    return next((effective.claim for effective in effective_claims(evaluations)), None)


def is_held(claim: Claim, declared: Iterable[str], known_state: KnownState) -> bool:
    """Return whether what a claim asserts is current, whoever said it last.

    Args:
        claim: The claim; its slot is loaded.
        declared: The slots of the declared facts of its key.
    """
    return any(
        current.object == claim.object
        for slot in (known_state.multi_valued.slot_of(claim), *declared)
        for current in known_state.current_at((claim.key, slot))
    )


def successor_of(claim: Claim, known_state: KnownState) -> Successor:
    """Return what took the place of a claim that is not held; an empty one when nothing did.

    These are the current assertions of its slot, else the newest retraction that covers it, else
    a later assertion that is not current itself.
    """
    slot = known_state.multi_valued.slot_of(claim)
    head = known_state.heads.get(claim.key, {}).get(slot, SlotState())
    if head.current:
        return Successor(head.current)
    retraction = _newest_over(claim, head)
    if retraction is not None:
        return Successor(retraction=retraction)
    place = place_of(claim.precedence, known_state.law)
    newer = [won for won in head.winners if place_of(won.precedence, known_state.law) > place]
    return Successor(tuple(newer))


def _newest_over(claim: Claim, head: SlotState) -> Precedence | None:
    """Return the newest retraction of a slot that covers a claim."""
    found = [
        by
        for what, by in head.retractions.items()
        if covers(what.removeprefix(SECOND), claim.object)
        and by > claim.precedence
        and not is_spared(claim.precedence, by)
    ]
    return max(found, default=None)


def retracting_claim(
    target: Claim, by: Precedence, fact_ids: Iterable[str], known_state: KnownState
) -> Claim | None:
    """Return the claim that retracted another one.

    Args:
        target: The claim that was retracted.
        by: The precedence of the retraction.
        fact_ids: The fact ids that the retracting claim may have; their evaluations are loaded.
    """
    found = [
        effective.claim
        for fact_id in fact_ids
        for effective in known_state.effective_claims(fact_id)
        if effective.claim.owner == target.owner
        and effective.claim.precedence[:3] == by[:3]
        and (effective.claim.names or effective.claim.clears_key)
    ]
    return min(found, key=lambda claim: _distance(claim, target), default=None)


def _distance(claim: Claim, target: Claim) -> tuple[bool, bool, int]:
    """Order the claims of one version: that names the target, that clears its key, the others."""
    clears = claim.clears_key and claim.key == target.key and covers(claim.cleared, target.object)
    return not claim.names_claim(target), not clears, claim.precedence.part


class MultiValuedHint(NamedTuple):
    """A single-valued predicate whose objects keep replacing each other.

    Attributes:
        keys: How many keys the predicate has.
        replaced: How many of the keys had `MANY_OBJECTS` different objects or more.
        most: How many different objects one key had at most.
    """

    channel: str
    predicate: str
    keys: int
    replaced: int
    most: int


def find_multi_valued_hints(counts: Iterable[tuple[str, int]]) -> list[MultiValuedHint]:
    """Return the predicates whose objects keep replacing each other in at least half of their keys.

    What stages say of episodes gives no hint: an episode has one mark and one weight at a time.

    Args:
        counts: The keys of single-valued predicates, each with its number of different objects.
    """
    found: dict[tuple[str, str], MultiValuedHint] = {}
    for key, objects in counts:
        parts = key.split("/")
        if len(parts) != _PARTS or not parts[3]:
            continue
        channel, predicate = unescape(parts[2]), unescape(parts[4])
        if channel in STAGE_CHANNELS:
            continue
        before = found.get((channel, predicate), MultiValuedHint(channel, predicate, 0, 0, 0))
        found[channel, predicate] = before._replace(
            keys=before.keys + 1,
            replaced=before.replaced + (objects >= MANY_OBJECTS),
            most=max(before.most, objects),
        )
    return [hint for _, hint in sorted(found.items()) if hint.replaced * 2 >= hint.keys]

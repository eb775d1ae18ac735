"""Make the claims of manual edits, which have the highest rank.

A manual edit takes effect at once, whatever instants its key or id already holds. Only newer
episodes change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from slumberd.consolidation.claim import ALL, MANUAL, Claim, Precedence
from slumberd.consolidation.incoming import ClaimCandidate, Unmatched
from slumberd.consolidation.precedence import MANUAL_RULE_ID, is_declared_slot
from slumberd.consolidation.state import KnownState
from slumberd.model.delta import AnyDelta
from slumberd.model.fact import Fact
from slumberd.model.scope import canonical, channel_of, key_of, owner_of

OWN_IDS = "@/"
"""The prefix of the ids that the ledger gives to manual edits; no fact may have such an id."""


class ManualAssertion(NamedTuple):
    """A fact that a manual edit asserts, before it becomes a claim.

    Attributes:
        user: The fact's user.
        agent: The fact's agent.
        payload: The fact's body.
        confidence: 0 to 1.
        lineage: The edit's own lineage entries.
        metadata: Free form; None for a delta.
        names: Fact ids that it replaces.
        pinned_at: The instant in another program's row, microseconds since 1970 UTC.
        stored: Of another program's row, the columns that `Claim.stored` keeps.
    """

    fact_id: str
    user: str
    agent: str
    payload: dict[str, Any]
    confidence: float
    lineage: Sequence[dict[str, Any]]
    metadata: dict[str, Any] | None
    names: tuple[str, ...] = ()
    pinned_at: int | None = None
    stored: Mapping[str, Sequence[str]] | None = None


class Assert(NamedTuple):
    """Assert a fact as a person does; it competes with the facts of its key.

    Attributes:
        again: Whether an equal assertion is repeated when its fact is not current any more.
        only: Whether it replaces every older value of its key, also where the key holds several.
    """

    fact: ManualAssertion
    again: bool = True
    only: bool = False


class Declare(NamedTuple):
    """Declare a fact, as another program does that pins a row."""

    fact: ManualAssertion


class Remove(NamedTuple):
    """Remove a fact, as the program does that pinned it."""

    fact_id: str


class Retract(NamedTuple):
    """Retract facts as a person does; those that are not current stay as they are.

    Attributes:
        lineage: The lineage entries of the retraction.
        known_only: Whether an id that no claim ever had is an error.
    """

    fact_ids: Sequence[str]
    lineage: Sequence[dict[str, Any]] = ()
    known_only: bool = False


class ApplyDelta(NamedTuple):
    """Apply one delta with complete provenance.

    Attributes:
        strict: Whether an id in ``replaces`` that no fact ever had is an error.
    """

    delta: AnyDelta
    strict: bool = False


Edit = Assert | Declare | Remove | Retract | ApplyDelta
"""One manual edit."""


class ManualBatch(NamedTuple):
    """Manual edits that a store of facts applies in order, in one transaction and one firing.

    Attributes:
        by: The person; empty for a program.
    """

    edits: Sequence[Edit]
    by: str = ""


def precedence_of(at: int, number: int) -> Precedence:
    """Return a manual edit's precedence; of two at one instant the later number wins."""
    return Precedence(at, MANUAL, f"{number:020d}")


def owner_of_assertion(fact: ManualAssertion) -> str:
    """Return the owner of a manual assertion's fact: user, agent and channel."""
    return owner_of(fact.user, fact.agent, channel_of(fact.fact_id))


def assertion(fact: ManualAssertion, precedence: Precedence) -> Claim:
    """Return the claim that pins a fact."""
    owner = owner_of_assertion(fact)
    return Claim(
        fact_id=fact.fact_id,
        owner=owner,
        key=key_of(owner, fact.payload, fact.fact_id),
        precedence=precedence,
        asserts=True,
        object=canonical(fact.payload.get("object")),
        names=fact.names,
        clears_key=False,
        confidence=fact.confidence,
        payload=fact.payload,
        lineage=tuple(fact.lineage),
        metadata=fact.metadata,
        pinned_at=fact.pinned_at,
        stored=fact.stored,
    )


def declaration(fact: ManualAssertion, at: int) -> Claim:
    """Return the claim that declares a fact, at the instant that its row gives.

    Its precedence is below that of every manual edit at the same instant. So a fact that a person
    retracted is current again only when its program declares it at a later instant.

    Args:
        fact: The declared fact.
        at: The instant if the row gives none, microseconds since 1970 UTC.
    """
    pinned_at = at if fact.pinned_at is None else fact.pinned_at
    claim = assertion(fact, Precedence(pinned_at, MANUAL, ""))
    return claim._replace(declared=True, pinned_at=pinned_at)


def withdrawal(target: Claim) -> Unmatched:
    """Return the candidate by which the program of a declared fact withdraws it."""
    return Unmatched(
        fact_id=target.fact_id,
        owner=target.owner,
        rule_id=MANUAL_RULE_ID,
        at=target.precedence.at,
        eid=target.fact_id,
    )


def retraction(
    target: Claim, precedence: Precedence, *, number: int, lineage: Sequence[dict[str, Any]]
) -> Claim:
    """Return the claim that retracts a current fact.

    The claim names the fact's id and retracts its object. So neither an edit of its episode nor an
    older episode with the same key and object restores the fact. Of a declared fact the claim only
    names the id, because no other fact of the key depends on it.
    """
    return Claim(
        fact_id=edit_id(number),
        owner=target.owner,
        key=target.key,
        precedence=precedence,
        asserts=False,
        object=target.object,
        names=(target.fact_id,),
        clears_key=not target.declared,
        confidence=1.0,
        payload={},
        lineage=tuple(lineage),
    )


def removal(target: Claim, precedence: Precedence, *, covers: int) -> Claim:
    """Return the claim of another program that removed the row of a promoted fact.

    It is an edit of the fact's id, and retracts the fact's object.

    Args:
        target: The claim of the fact.
        covers: The newest version of the episode that any rule has evaluated.
    """
    return Claim(
        fact_id=target.fact_id,
        owner=target.owner,
        key=target.key,
        precedence=precedence,
        asserts=False,
        object=target.object,
        names=(),
        clears_key=True,
        confidence=1.0,
        payload={},
        covers=covers,
    )


def noop_claim(
    precedence: Precedence, *, number: int, confidence: float, lineage: Sequence[dict[str, Any]]
) -> Claim:
    """Return the claim of a noop delta: the ledger records it, and it changes nothing."""
    owner = owner_of("", "", "")
    return Claim(
        fact_id=edit_id(number),
        owner=owner,
        key=key_of(owner, {}, edit_id(number)),
        precedence=precedence,
        asserts=False,
        object=ALL,
        names=(),
        clears_key=False,
        confidence=confidence,
        payload={},
        lineage=tuple(lineage),
    )


def edit_id(number: int | str) -> str:
    """Return the id in the ledger of a manual edit that promotes no fact."""
    return f"{OWN_IDS}{int(number)}"


def candidate_of(claim: Claim) -> ClaimCandidate:
    """Return the candidate of a manual edit's claim."""
    return ClaimCandidate(
        fact_id=claim.fact_id,
        owner=claim.owner,
        rule_id=MANUAL_RULE_ID,
        at=claim.precedence.at,
        eid=claim.fact_id,
        claim=claim,
    )


def newest_instant(
    known_state: KnownState, fact_ids: Iterable[str], keys: Iterable[str]
) -> int | None:
    """Return the latest instant of some ids and keys, microseconds; None when they hold none."""
    of_ids = [
        effective.claim.precedence.at
        for fact_id in fact_ids
        for effective in known_state.effective_claims(fact_id)
    ]
    heads = [
        head
        for key in keys
        for slot, head in known_state.heads.get(key, {}).items()
        if not is_declared_slot(slot)
    ]
    of_tops = [head.winner.precedence.at for head in heads if head.winner is not None]
    of_reach = [precedence.at for head in heads for precedence in head.retractions.values()]
    return max([*of_ids, *of_tops, *of_reach], default=None)


def is_same_statement(claim: Claim, other: Claim) -> bool:
    """Return whether two claims are equal but for their precedence and promotion instants."""
    return _fields_without_time(claim) == _fields_without_time(other)


def is_same_declaration(claim: Claim, other: Claim) -> bool:
    """Return whether two claims declare the same fact as of the same instant."""
    return is_same_statement(claim, other) and claim.pinned_at == other.pinned_at


def _fields_without_time(claim: Claim) -> tuple[Any, ...]:
    lineage = [
        {name: value for name, value in entry.items() if name != "promotion_ts"}
        for entry in claim.lineage
    ]
    return (
        claim.key,
        claim.object,
        claim.names,
        claim.confidence,
        claim.payload,
        lineage,
        claim.metadata,
        claim.declared,
        claim.stored,
        claim.covers,
    )


def assertion_of(fact: Fact) -> ManualAssertion:
    """Return a fact as a manual assertion.

    Raises:
        ValueError: The lineage is empty, or the confidence lies outside 0..1.
    """
    if not fact.lineage:
        raise ValueError(f"fact {fact.id!r}: lineage must be non-empty")
    if not (math.isfinite(fact.confidence) and 0 <= fact.confidence <= 1):
        raise ValueError(f"fact {fact.id!r}: confidence must lie in 0..1")
    return ManualAssertion(
        fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, fact.lineage,
        dict(fact.metadata),
    )  # fmt: skip


def lineage_entry(by: str, reason: str, at: datetime) -> dict[str, Any]:
    """Return the lineage entry that says who edited a fact, why and when.

    Raises:
        ValueError: `by` or `reason` is empty.
    """
    if not by.strip() or not reason.strip():
        raise ValueError("'by' and 'reason' must be non-empty: name the author and the reason")
    return {
        "kind": "manual",
        "rule_id": MANUAL_RULE_ID,
        "source_episode_ids": [],
        "promotion_ts": at.isoformat(),
        "by": by,
        "reason": reason,
    }

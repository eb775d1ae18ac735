"""Hands: what people and programs say directly, as acts of the highest rank.

A hand takes effect at once, whatever instants its key or id already holds, and only newer
episodes change what it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slumberd.consolidation.claim import ALL, MANUAL, Claim, Precedence
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import HANDS, is_declared_slot
from slumberd.consolidation.state import KnownState
from slumberd.model.fact_ids import canonical, channel_of, key_of, owner_of

OWN_IDS = "@/"
"""How the ids begin that the ledger gives to hands; no fact may take one."""


class ManualAssertion(NamedTuple):
    """An assertion that a hand makes.

    Attributes:
        fact_id: The fact's id.
        user: Whose fact it is.
        agent: Whose fact it is.
        payload: Its body.
        confidence: 0 to 1.
        lineage: Its own entries.
        metadata: Free form; None for what a delta says.
        names: Fact ids that it replaces.
        pinned_at: The instant that another program's row gives, microseconds since 1970 UTC.
        stored: Of another program's row, the columns that `Act.stored` keeps.
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


def precedence_of(at: int, number: int) -> Precedence:
    """Return a hand's stamp; of two hands at one instant the later number wins."""
    return Precedence(at, MANUAL, f"{number:020d}")


def owner_in(said: ManualAssertion) -> str:
    """Return whose fact it is, and where: user, agent and channel."""
    return owner_of(said.user, said.agent, channel_of(said.fact_id))


def assertion(said: ManualAssertion, precedence: Precedence) -> Claim:
    """Return the act of pinning a fact."""
    owner = owner_in(said)
    return Claim(
        said.fact_id,
        owner,
        key_of(owner, said.payload, said.fact_id),
        precedence,
        True,
        canonical(said.payload.get("object")),
        said.names,
        False,
        said.confidence,
        said.payload,
        tuple(said.lineage),
        said.metadata,
        said.pinned_at,
        stored=said.stored,
    )


def declaration(said: ManualAssertion, at: int) -> Claim:
    """Return the act of declaring a fact; it is said at the instant that its row gives.

    Its stamp is below that of every person at the same instant: what a person retracted needs a
    later one.

    Args:
        said: What is declared.
        at: The instant where the row gives none, microseconds since 1970 UTC.
    """
    pinned_at = at if said.pinned_at is None else said.pinned_at
    claim = assertion(said, Precedence(pinned_at, MANUAL, ""))
    return claim._replace(declared=True, pinned_at=pinned_at)


def withdrawal(target: Claim) -> Candidate:
    """Return as what is met that the program of a declared fact took it out."""
    return Candidate(
        target.fact_id, target.owner, HANDS, 0, target.precedence.at, target.fact_id, None
    )


def retraction(
    target: Claim, precedence: Precedence, *, number: int, lineage: Sequence[dict[str, Any]]
) -> Claim:
    """Return the act of taking out a fact that stands.

    Its id is named and its belief retracted: neither an edit of the episode behind it nor an
    older one that says the same undoes what the hand took out. Of a declared fact only the id
    is: no other fact of its key depends on it.
    """
    return Claim(
        hand_id(number),
        target.owner,
        target.key,
        precedence,
        False,
        target.object,
        (target.fact_id,),
        not target.declared,
        1.0,
        {},
        tuple(lineage),
        None,
    )


def silence(
    precedence: Precedence, *, number: int, confidence: float, lineage: Sequence[dict[str, Any]]
) -> Claim:
    """Return the act of a noop: it is recorded and changes nothing."""
    owner = owner_of("", "", "")
    return Claim(
        hand_id(number),
        owner,
        key_of(owner, {}, hand_id(number)),
        precedence,
        False,
        ALL,
        (),
        False,
        confidence,
        {},
        tuple(lineage),
        None,
    )


def hand_id(number: int) -> str:
    """Return the id under which a hand that promotes no fact is recorded."""
    return f"{OWN_IDS}{number}"


def incoming(claim: Claim) -> Candidate:
    """Return a hand's act as what is met."""
    return Candidate(
        claim.fact_id, claim.owner, HANDS, 0, claim.precedence.at, claim.fact_id, claim
    )


def newest_instant(
    known_state: KnownState, fact_ids: Iterable[str], keys: Iterable[str]
) -> int | None:
    """Return the latest instant that ids or keys hold, microseconds; None when nothing does."""
    of_ids = [
        one.claim.precedence.at for fact_id in fact_ids for one in known_state.counted(fact_id)
    ]
    heads = [
        head
        for key in keys
        for slot, head in known_state.heads.get(key, {}).items()
        if not is_declared_slot(slot)
    ]
    of_tops = [head.top.precedence.at for head in heads if head.top is not None]
    of_reach = [precedence.at for head in heads for precedence in head.reach.values()]
    return max([*of_ids, *of_tops, *of_reach], default=None)


def says_the_same(one: Claim, other: Claim) -> bool:
    """Say whether two acts differ in nothing but when they were said and promoted."""
    return _timeless(one) == _timeless(other)


def declares_the_same(one: Claim, other: Claim) -> bool:
    """Say whether two acts declare the same fact as of the same instant."""
    return says_the_same(one, other) and one.pinned_at == other.pinned_at


def _timeless(claim: Claim) -> tuple[Any, ...]:
    lineage = [
        {name: value for name, value in entry.items() if name != "promotion_ts"}
        for entry in claim.lineage
    ]
    said = (
        claim.key,
        claim.object,
        claim.names,
        claim.confidence,
        claim.payload,
        lineage,
        claim.metadata,
    )
    return (*said, claim.declared, claim.stored)

"""Hands: what people and programs say directly, as acts of the highest rank.

A hand takes effect at once, whatever instants its key or id already holds, and only newer
episodes change what it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slumberd.consolidation.claim import ALL, HAND, Act, Stamp
from slumberd.consolidation.incoming import Incoming
from slumberd.consolidation.precedence import HANDS, is_declared_slot
from slumberd.consolidation.state import Ground
from slumberd.model.fact_ids import canonical, channel_of, key_of, owner_of

OWN_IDS = "@/"
"""How the ids begin that the ledger gives to hands; no fact may take one."""


class Said(NamedTuple):
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


def stamp_of(at: int, number: int) -> Stamp:
    """Return a hand's stamp; of two hands at one instant the later number wins."""
    return Stamp(at, HAND, f"{number:020d}")


def owner_in(said: Said) -> str:
    """Return whose fact it is, and where: user, agent and channel."""
    return owner_of(said.user, said.agent, channel_of(said.fact_id))


def assertion(said: Said, stamp: Stamp) -> Act:
    """Return the act of pinning a fact."""
    owner = owner_in(said)
    return Act(
        said.fact_id,
        owner,
        key_of(owner, said.payload, said.fact_id),
        stamp,
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


def declaration(said: Said, at: int) -> Act:
    """Return the act of declaring a fact; it is said at the instant that its row gives.

    Its stamp is below that of every person at the same instant: what a person retracted needs a
    later one.

    Args:
        said: What is declared.
        at: The instant where the row gives none, microseconds since 1970 UTC.
    """
    pinned_at = at if said.pinned_at is None else said.pinned_at
    act = assertion(said, Stamp(pinned_at, HAND, ""))
    return act._replace(declared=True, pinned_at=pinned_at)


def withdrawal(target: Act) -> Incoming:
    """Return as what is met that the program of a declared fact took it out."""
    return Incoming(target.fact_id, target.owner, HANDS, 0, target.stamp.at, target.fact_id, None)


def retraction(target: Act, stamp: Stamp, *, number: int, lineage: Sequence[dict[str, Any]]) -> Act:
    """Return the act of taking out a fact that stands.

    Its id is named and its belief retracted: neither an edit of the episode behind it nor an
    older one that says the same undoes what the hand took out. Of a declared fact only the id
    is: no other fact of its key depends on it.
    """
    return Act(
        hand_id(number),
        target.owner,
        target.key,
        stamp,
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
    stamp: Stamp, *, number: int, confidence: float, lineage: Sequence[dict[str, Any]]
) -> Act:
    """Return the act of a noop: it is recorded and changes nothing."""
    owner = owner_of("", "", "")
    return Act(
        hand_id(number),
        owner,
        key_of(owner, {}, hand_id(number)),
        stamp,
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


def incoming(act: Act) -> Incoming:
    """Return a hand's act as what is met."""
    return Incoming(act.fact_id, act.owner, HANDS, 0, act.stamp.at, act.fact_id, act)


def newest_instant(ground: Ground, fact_ids: Iterable[str], keys: Iterable[str]) -> int | None:
    """Return the latest instant that ids or keys hold, microseconds; None when nothing does."""
    of_ids = [one.act.stamp.at for fact_id in fact_ids for one in ground.counted(fact_id)]
    heads = [
        head
        for key in keys
        for slot, head in ground.heads.get(key, {}).items()
        if not is_declared_slot(slot)
    ]
    of_tops = [head.top.stamp.at for head in heads if head.top is not None]
    of_reach = [stamp.at for head in heads for stamp in head.reach.values()]
    return max([*of_ids, *of_tops, *of_reach], default=None)


def says_the_same(one: Act, other: Act) -> bool:
    """Say whether two acts differ in nothing but when they were said and promoted."""
    return _timeless(one) == _timeless(other)


def declares_the_same(one: Act, other: Act) -> bool:
    """Say whether two acts declare the same fact as of the same instant."""
    return says_the_same(one, other) and one.pinned_at == other.pinned_at


def _timeless(act: Act) -> tuple[Any, ...]:
    lineage = [
        {name: value for name, value in entry.items() if name != "promotion_ts"}
        for entry in act.lineage
    ]
    said = (act.key, act.object, act.names, act.confidence, act.payload, lineage, act.metadata)
    return (*said, act.declared, act.stored)

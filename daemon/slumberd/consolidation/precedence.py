"""The law: what stands, as a function of the set of acts.

A retraction reaches what is older than itself. Per key (per object, when multi-valued) the
assertion with the highest stamp stands, unless a retraction reaches it.

A `Head` is all of a slot that the law can still need when more is said: its newest assertion,
and per object the newest retraction that is younger than it. Heads are folded one act at a
time and the order of folding does not matter, so a head that was kept since yesterday and one
that is folded again from every act are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from slumberd.consolidation.claim import ALL, MANUAL, Claim, Precedence, deletes_by_key

Link = dict[str, Any]
"""A lineage entry that says what was replaced."""

DELETIONS = "@"
"""The slot of a key that keeps its newest deletes by key, per object; it has no assertion."""

HANDS = "@manual"
"""The rule id of what people and programs do directly."""

EXTERNAL = "@external"
"""The rule id of what other programs wrote into the facts; in the law they are hands."""

GRAPH = "@graph/"
"""How the rule ids begin under which a graph's triples are promoted; in the law they are hands."""


def said_by(rule_id: str) -> str:
    """Return as whose word what a firing of a rule met counts."""
    return HANDS if rule_id == EXTERNAL or rule_id.startswith(GRAPH) else rule_id


class Evaluation(NamedTuple):
    """One row of the ledger in which a rule, or a hand, met one fact id.

    Attributes:
        seq: The row's number.
        rule_id: The rule, or `HANDS`.
        version: Number of the episode's version; 0 for hands.
        claim: What it says; None when the rule's filter let go of it, or it cannot be read.
        promoted_at: The firing's instant, microseconds since 1970 UTC.
        firing: The number of the firing.
        owner: User, agent and channel of what was met; two of them may use one fact id in turn.
    """

    seq: int
    rule_id: str
    version: int
    claim: Claim | None
    promoted_at: int
    firing: int = 0
    owner: str = ""


class Undone(NamedTuple):
    """One row of the ledger in which what a firing had met of one fact id was withdrawn.

    Attributes:
        seq: The row's number.
        firing: The number of the firing that was undone.
        by: The number of the firing that undid it.
        owner: User, agent and channel of what was withdrawn.
    """

    seq: int
    firing: int
    by: int
    owner: str = ""


class History(NamedTuple):
    """All that the ledger knows of one fact id, oldest first."""

    evaluations: list[Evaluation]
    undone: list[Undone]

    def remaining(self) -> list[Evaluation]:
        """Return the meetings that were not undone.

        Undoing a firing takes back what it met, and whatever its rule met later of a version
        that it was the first to meet. An undoing that was itself undone takes back nothing.
        """
        if not self.undone:
            return self.evaluations
        voided: dict[int, int] = {}
        for one in reversed(self.undone):
            if one.by not in voided:
                voided.setdefault(one.firing, one.seq)
        first: dict[tuple[str, int], int] = {}
        for met in self.evaluations:
            first.setdefault(_version_of(met), met.firing)
        return [
            met
            for met in self.evaluations
            if met.firing not in voided and met.seq > voided.get(first[_version_of(met)], 0)
        ]

    def without(self, rows: Set[int]) -> History:
        """Return the history without some rows of the ledger."""
        return History(
            [met for met in self.evaluations if met.seq not in rows],
            [one for one in self.undone if one.seq not in rows],
        )

    def owner_in(self, firing: int) -> str:
        """Return the owner of what a firing met, or withdrew, of this fact id."""
        met = [one.owner for one in self.evaluations if one.firing == firing]
        withdrawn = [one.owner for one in self.undone if one.by == firing]
        return next(iter(met + withdrawn), "")


def _version_of(evaluation: Evaluation) -> tuple[str, int]:
    # Hands have no versions: each is one of its own.
    return evaluation.rule_id, evaluation.version or evaluation.firing


class EffectiveClaim(NamedTuple):
    """An act that counts, and who says so.

    Attributes:
        claim: The act.
        promoters: Rule id and promotion instant (microseconds), by rule id.
    """

    claim: Claim
    promoters: tuple[tuple[str, int], ...]

    @property
    def pinned_at(self) -> int:
        """The instant that it is promoted at, or that another program gave; microseconds."""
        if self.claim.pinned_at is not None:
            return self.claim.pinned_at
        if len(self.promoters) == 1:
            return self.promoters[0][1]
        return max(at for _, at in self.promoters)


class Assertion(NamedTuple):
    """What a head keeps of an act that asserts."""

    precedence: Precedence
    fact_id: str
    object: str


class Head:
    """The newest assertion of a slot, the retractions younger than it, and what it replaced.

    Attributes:
        top: The newest assertion; None when there is none.
        reach: Per object, or `ALL`, the newest retraction that is younger than `top`.
        trail: What `top` replaced, newest first, one link each; None when it must be
            worked out from all of the slot's assertions.
    """

    __slots__ = ("reach", "top", "trail")

    def __init__(
        self,
        top: Assertion | None = None,
        reach: dict[str, Precedence] | None = None,
        trail: list[Link] | None = None,
    ) -> None:
        self.top = top
        self.reach: dict[str, Precedence] = {} if reach is None else reach
        self.trail = [] if top is None else trail

    def asserted(self, said: Assertion, depth: int) -> None:
        """Fold an assertion in; at most `depth` links are kept of what it replaces."""
        if self.top is None:
            self.top = said
        elif said.precedence > self.top.precedence:
            if self.trail is not None:
                self.trail = [link(self.top), *self.trail][:depth]
            self.top = said
        else:
            self.trail = None
            return
        if self.reach:
            self.reach = {what: by for what, by in self.reach.items() if by > said.precedence}

    def retracted(self, what: str, by: Precedence) -> None:
        """Fold a retraction of one object, or of `ALL`, in."""
        if self.top is not None and by <= self.top.precedence:
            return
        if what not in self.reach or by > self.reach[what]:
            self.reach[what] = by

    @property
    def standing(self) -> Assertion | None:
        """The top, unless a retraction reaches it."""
        if self.top is None or (
            self.reach and (self.top.object in self.reach or ALL in self.reach)
        ):
            return None
        return self.top


def link(replaced: Assertion) -> Link:
    """Return the lineage entry for what an assertion took the place of."""
    sources = [] if replaced.precedence.rank == MANUAL else [replaced.precedence.id]
    return {"replaces": replaced.fact_id, "source_episode_ids": sources}


def effective_claims(evaluations: Sequence[Evaluation]) -> tuple[EffectiveClaim, ...]:
    """Return what counts of one fact id: at most one episode's act and one hand's.

    Args:
        evaluations: Oldest first. A rule's last one is what it says, and so is the last hand; of
            all rules the newest version counts.
    """
    if len(evaluations) == 1:
        _, rule_id, _, claim, promoted_at, *_ = evaluations[0]
        return () if claim is None else (EffectiveClaim(claim, ((rule_id, promoted_at),)),)
    said = {evaluation.rule_id: evaluation for evaluation in evaluations}
    hand = said.pop(HANDS, None)
    episode = _newest_version(list(said.values()))
    manually = () if hand is None or hand.claim is None else (_manually(hand, hand.claim),)
    return _holders_of_one_id(*episode, *manually)


def _newest_version(evaluations: list[Evaluation]) -> tuple[EffectiveClaim, ...]:
    newest = max((evaluation.version for evaluation in evaluations), default=0)
    current = [
        evaluation
        for evaluation in evaluations
        if evaluation.version == newest and evaluation.claim
    ]
    if not current or current[0].claim is None:
        return ()
    promoters = sorted((evaluation.rule_id, evaluation.promoted_at) for evaluation in current)
    return (EffectiveClaim(current[0].claim, tuple(promoters)),)


def _manually(evaluation: Evaluation, claim: Claim) -> EffectiveClaim:
    return EffectiveClaim(claim, ((HANDS, evaluation.promoted_at),))


def _holders_of_one_id(*counted: EffectiveClaim) -> tuple[EffectiveClaim, ...]:
    if len(counted) < 2:
        return counted
    if len({one.claim.owner for one in counted}) > 1:
        # An id has one owner. Erasing a third owner's claims may leave two; the hand keeps the id.
        return counted[-1:]
    # An id holds one fact: whoever says it later retracts what the other says under it.
    return tuple(
        EffectiveClaim(
            one.claim._replace(names=(*one.claim.names, one.claim.fact_id)), one.promoters
        )
        for one in counted
    )


class MultiValued:
    """Which predicates of which channels may hold several objects at once."""

    __slots__ = ("_pairs", "channels")

    def __init__(self, channels: Mapping[str, Iterable[str]] | None = None) -> None:
        self.channels = {
            channel: frozenset(predicates)
            for channel, predicates in sorted((channels or {}).items())
            if predicates
        }
        self._pairs = {
            (_escaped(channel), _escaped(predicate))
            for channel, predicates in self.channels.items()
            for predicate in predicates
        }

    def __contains__(self, key: str) -> bool:
        """Say whether a key holds several objects at once."""
        if not self._pairs:
            return False
        parts = key.split("/")
        return len(parts) == 5 and (parts[2], parts[4]) in self._pairs

    def slot(self, key: str, what: str) -> str:
        """Return the part of a key that has a head of its own: the object, or `ALL` of it."""
        return what if self._pairs and key in self else ALL

    def slot_of(self, claim: Claim) -> str:
        """Return the slot in which an act competes; a declared fact has one for itself."""
        return (
            slot_of_declared(claim.fact_id)
            if claim.declared
            else self.slot(claim.key, claim.object)
        )

    def slots_of(self, claim: Claim) -> set[str]:
        """Return the slots that folding an act reads or changes, but for declared facts."""
        found = {ALL, self.slot_of(claim)}
        if claim.declared or deletes_by_key(claim):
            found.add(DELETIONS)
        return found


def slot_of_declared(fact_id: str) -> str:
    """Return the slot that a declared fact has for itself; no object's JSON begins so."""
    return f"{DELETIONS}{fact_id}"


def is_declared_slot(slot: str) -> bool:
    """Say whether a slot is a declared fact's own."""
    return slot.startswith(DELETIONS) and slot != DELETIONS


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")

"""The ground that a batch is settled on: what the ledger knows of the acts and keys at hand."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from slumberd.consolidation.claim import ALL, MANUAL, Claim, Precedence, deletes_by_key
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import (
    DELETIONS,
    Assertion,
    EffectiveClaim,
    Evaluation,
    Head,
    Link,
    MultiValued,
    effective_claims,
    is_declared_slot,
    link,
)

_NOBODY: frozenset[str] = frozenset()


class CurrentFact(NamedTuple):
    """A fact that stands, with what its row is made of."""

    fact_id: str
    counted: EffectiveClaim
    trail: tuple[Link, ...]


def sources_of_claim(claim: Claim) -> list[str]:
    """Return the ids of the episodes that a claim comes from, each once."""
    if claim.precedence.rank != MANUAL:
        return [claim.precedence.id]
    given = (entry.get("source_episode_ids") for entry in claim.lineage)
    found = (one for sources in given if isinstance(sources, list | tuple) for one in sources)
    return list(dict.fromkeys(one for one in found if isinstance(one, str)))


@dataclass(slots=True)
class KnownState:
    """What the ledger knows of the acts and keys that are at hand.

    Attributes:
        multi: Which keys hold several objects at once.
        depth: Links of lineage that are kept of what a fact replaced.
        evaluations: Per fact id every meeting, oldest first.
        referrers: Per fact id the fact ids of acts that name it, in any version.
        heads: Per key its heads by slot; `ALL` is the only slot of a single-valued key.
        full: Per key that is known in full the fact ids of all acts that speak of it.
        waiting: Of the rule that meets, per fact id the version that its gate held back, unless
            it has met it since.
        until: Acts later than this instant, in microseconds, do not count; None counts all.
    """

    multi: MultiValued
    depth: int
    evaluations: dict[str, list[Evaluation]] = field(default_factory=dict)
    referrers: dict[str, set[str]] = field(default_factory=dict)
    heads: dict[str, dict[str, Head]] = field(default_factory=dict)
    full: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    until: int | None = None

    def as_decided(self, met: Candidate) -> Candidate:
        """Return what is met with the act that was read from its version when it was met before.

        What an act is near to was found then, and stays as it was found.
        """
        if met.claim is not None:
            for one in self.evaluations.get(met.fact_id, ()):
                if (
                    one.version == met.version
                    and one.claim
                    and one.claim.payload == met.claim.payload
                ):
                    return met._replace(claim=one.claim)
        return met

    def counted(self, fact_id: str) -> tuple[EffectiveClaim, ...]:
        """Return what counts of one fact id."""
        found = effective_claims(self.evaluations.get(fact_id, ()))
        if self.until is None:
            return found
        return tuple(one for one in found if one.claim.precedence.at <= self.until)

    def counted_as(self, top: Assertion) -> EffectiveClaim:
        """Return what counts of an assertion that stands."""
        found = self.counted(top.fact_id)
        if len(found) == 1:
            return found[0]
        return next(
            one for one in found if one.claim.precedence == top.precedence and one.claim.asserts
        )

    def targets(self, claim: Claim) -> list[Claim]:
        """Return the assertions that an act names, in its own user, agent and channel."""
        return [
            one.claim
            for name in claim.names
            for one in self.counted(name)
            if one.claim.asserts and one.claim.owner == claim.owner
        ]

    def head(self, key: str, slot: str) -> Head:
        """Return a slot's head; a new one knows what was retracted of the whole key."""
        slots = self.heads.get(key)
        if slots is None:
            slots = self.heads[key] = {}
        if slot not in slots:
            slots[slot] = Head()
            # Declared facts are covered by deletes only, which DELETIONS keeps.
            own = slot == ALL or slot.startswith(DELETIONS)
            if not own and ALL in slots and ALL in slots[ALL].reach:
                slots[slot].retracted(ALL, slots[ALL].reach[ALL])
        return slots[slot]

    def fold(self, key: str) -> None:
        """Work out a key's heads again from all of its acts."""
        claims = [
            one.claim
            for fact_id in self.full[key]
            for one in self.counted(fact_id)
            if one.claim.key == key
        ]
        self.heads[key] = {}
        for claim in sorted(claims, key=_whole_key_first):
            self.fold_in(claim)

    def fold_in(self, claim: Claim) -> None:
        """Fold what one act says of its own key, and what others say of it, into the heads."""
        if claim.clears:
            self._clear(claim)
        if claim.asserts:
            head = self.head(claim.key, self.multi.slot_of(claim))
            head.asserted(Assertion(claim.precedence, claim.fact_id, claim.object), self.depth)
            if claim.declared:
                self._retract_by_deletions(claim, head)
            self._retract_by_referrers(claim, head)

    def retract(self, target: Claim, *, by: Precedence) -> None:
        """Fold a retraction of what an act asserts into its head."""
        self.head(target.key, self.multi.slot_of(target)).retracted(target.object, by)

    def declared_slots(self, key: str) -> list[str]:
        """Return the slots of a key's declared facts, as far as they are known."""
        return [slot for slot in self.heads.get(key, ()) if is_declared_slot(slot)]

    def _clear(self, claim: Claim) -> None:
        self.head(claim.key, self.multi.slot(claim.key, claim.object)).retracted(
            claim.object, claim.precedence
        )
        if not deletes_by_key(claim):
            return
        self.head(claim.key, DELETIONS).retracted(claim.object, claim.precedence)
        for slot in self.declared_slots(claim.key):
            head = self.head(claim.key, slot)
            if claim.object in (ALL, head.top and head.top.object):
                head.retracted(claim.object, claim.precedence)

    def _retract_by_deletions(self, claim: Claim, head: Head) -> None:
        for what, by in self.head(claim.key, DELETIONS).reach.items():
            if what in (ALL, claim.object):
                head.retracted(what, by)

    def _retract_by_referrers(self, claim: Claim, head: Head) -> None:
        referrers: Set[str] = self.referrers.get(claim.fact_id, _NOBODY)
        if len(self.evaluations.get(claim.fact_id, ())) > 1:
            referrers = {*referrers, claim.fact_id}
        for referrer in referrers:
            for one in self.counted(referrer):
                if claim.fact_id in one.claim.names and one.claim.owner == claim.owner:
                    head.retracted(claim.object, one.claim.precedence)

    def standing(self, key: str) -> dict[str, Assertion]:
        """Return what stands of a key, by slot."""
        heads = self.heads.get(key, {})
        return {slot: top for slot, head in heads.items() if (top := head.standing) is not None}

    def fact(self, fact_id: str) -> CurrentFact | None:
        """Return the fact of an id, if it stands; the heads of its keys must be known."""
        for one in self.counted(fact_id):
            claim, slot = one.claim, self.multi.slot_of(one.claim)
            top = self.standing(claim.key).get(slot)
            if claim.asserts and top == Assertion(claim.precedence, fact_id, claim.object):
                return self.current(claim.key, slot, top)
        return None

    def current(self, key: str, slot: str, top: Assertion) -> CurrentFact:
        """Return the fact that is current in a slot; its claim's named ids must be known."""
        counted = self.counted_as(top)
        links = self.trail(key, slot)
        if counted.claim.names:
            named = self._links_to_named(counted.claim)
            ids = {one["replaces"] for one in named}
            links = [*named, *(one for one in links if one["replaces"] not in ids)]
        return CurrentFact(top.fact_id, counted, tuple(links))

    def _links_to_named(self, claim: Claim) -> list[Link]:
        """Return links to the older assertions that an act names, newest first, of any key."""
        older = [
            one
            for one in self.targets(claim)
            if one.precedence < claim.precedence and one.fact_id != claim.fact_id
        ]
        older.sort(key=lambda one: one.precedence, reverse=True)
        found = {one.fact_id: sources_of_claim(one) for one in older}
        return [
            {"replaces": fact_id, "source_episode_ids": sources}
            for fact_id, sources in found.items()
        ]

    def trail(self, key: str, slot: str) -> list[Link]:
        """Return what a slot's top replaced, newest first, at most `depth` links."""
        head = self.heads[key][slot]
        if head.trail is None:
            head.trail = self._older(key, slot)
        return head.trail

    def _older(self, key: str, slot: str) -> list[Link]:
        mine = [
            Assertion(one.claim.precedence, one.claim.fact_id, one.claim.object)
            for fact_id in self.full[key]
            for one in self.counted(fact_id)
            if one.claim.key == key and one.claim.asserts and self.multi.slot_of(one.claim) == slot
        ]
        return [link(one) for one in sorted(mine, reverse=True)[1 : self.depth + 1]]


def _whole_key_first(claim: Claim) -> tuple[bool, Precedence]:
    # A retraction of a whole multi-valued key must be known before its slots get heads.
    return not (claim.clears and claim.object == ALL), claim.precedence

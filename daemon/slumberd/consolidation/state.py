"""The known state of a batch: what the ledger knows of its claims and keys, and what to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slumberd.consolidation.claim import ALL, WORDS, Claim, Precedence, covers, deletes_by_key
from slumberd.consolidation.incoming import Candidate, ClaimCandidate, HeldBack
from slumberd.consolidation.precedence import (
    DELETIONS,
    LAWS,
    SECOND,
    Assertion,
    EffectiveClaim,
    Evaluation,
    Link,
    MultiValued,
    SlotState,
    are_siblings,
    effective_claims,
    has_claim_in_force,
    is_declared_slot,
    link,
    newest_law,
    one_of_each_object,
    place_of,
    reach_of,
    reach_on,
)

IN_TRIPLES = "in_triples"
"""The reason of a noop: the episode states something in its triples only."""

NOTHING_SAID = "nothing_said"
"""The reason of a noop: the episode has a list of triples, or a text, that states nothing."""

_NO_REFERRERS: frozenset[str] = frozenset()

KeySlot = tuple[str, str]
"""A key and one of its slots."""

CurrentBySlot = dict[KeySlot, tuple[Assertion, ...]]
"""The current assertions of each slot."""


class CurrentFact(NamedTuple):
    """A current fact, with the values that its row is made of.

    Attributes:
        trail: Links to the facts that it replaced.
    """

    fact_id: str
    effective: EffectiveClaim
    trail: tuple[Link, ...]


@dataclass(slots=True)
class KnownState:
    """What the ledger knows of a batch's claims and keys.

    Attributes:
        multi_valued: Which keys hold several objects at once.
        depth: A fact keeps at most this many links of lineage to facts that it replaced.
        evaluations: Per fact id every evaluation, oldest first.
        referrers: Per fact id the fact ids of claims that name it, in any version.
        parts: Per fact id of an episode's own claim, the fact ids of its other claims.
        heads: Per key its heads by slot; `ALL` is the only slot of a single-valued key.
        complete_keys: Per key that is known in full, the fact ids of all of its claims.
        waiting: Of the firing rule, per fact id the version that its gate held back, unless the
            rule has evaluated it since.
        finds_links: Whether the batch links its claims with similar facts after they are loaded, so
            a claim that is equal to an earlier one may still change.
        until: Claims later than this instant, in microseconds, do not count; None counts all.
        law: The number of the law that claims are resolved under.
    """

    multi_valued: MultiValued
    depth: int
    evaluations: dict[str, list[Evaluation]] = field(default_factory=dict)
    referrers: dict[str, set[str]] = field(default_factory=dict)
    parts: dict[str, set[str]] = field(default_factory=dict)
    heads: dict[str, dict[str, SlotState]] = field(default_factory=dict)
    complete_keys: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    finds_links: bool = False
    until: int | None = None
    law: int = field(default_factory=newest_law)

    def with_earlier_claim(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the claim of the version's earlier evaluation, if it has one.

        So the links to similar facts stay as the first evaluation found them.
        """
        claim = candidate.claim
        if isinstance(candidate, ClaimCandidate | HeldBack) and claim is not None:
            for earlier in self.evaluations.get(candidate.fact_id, ()):
                is_same = earlier.version == candidate.version
                if is_same and earlier.claim and earlier.claim.payload == claim.payload:
                    return candidate._replace(claim=earlier.claim)
        return candidate

    def passes_gate(self, candidate: HeldBack) -> bool:
        """Return whether the rule has a claim of the episode in force, so that edits count."""
        ids = (candidate.fact_id,) if candidate.claim is None else candidate.claim.ids
        if self.law != 1:
            ids = (*ids, *self.parts.get(ids[-1], ()))
        return any(
            has_claim_in_force(candidate.rule_id, self.evaluations.get(fact_id, ()))
            for fact_id in ids
        )

    def effective_claims(self, fact_id: str) -> tuple[EffectiveClaim, ...]:
        """Return the effective claims of a fact id."""
        found = effective_claims(self.evaluations.get(fact_id, ()))
        until = self.until
        if until is None or (len(found) == 1 and found[0].claim.precedence.at <= until):
            return found
        return tuple(effective for effective in found if effective.claim.precedence.at <= until)

    def _effective_claim_of(self, winner: Assertion) -> EffectiveClaim:
        """Return the effective claim of a current assertion."""
        found = self.effective_claims(winner.fact_id)
        if len(found) == 1:
            return found[0]
        return next(
            effective
            for effective in found
            if effective.claim.precedence == winner.precedence and effective.claim.asserts
        )

    def targets(self, claim: Claim) -> list[Claim]:
        """Return the asserting claims that a claim names, in its own user, agent and channel."""
        return [
            effective.claim
            for name in claim.names
            for fact_id in (name, *sorted(self.parts.get(name, ())))
            for effective in self.effective_claims(fact_id)
            if effective.claim.asserts and effective.claim.owner == claim.owner
            if claim.names_claim(effective.claim)
        ]

    def referrers_of(self, claim: Claim) -> Set[str]:
        """Return the fact ids of the claims that name a claim, in any version."""
        found: Set[str] = self.referrers.get(claim.fact_id, _NO_REFERRERS)
        if claim.precedence.part:
            found = found | self.referrers.get(claim.ids[-1], _NO_REFERRERS)
        return found

    def head(self, key: str, slot: str) -> SlotState:
        """Return a slot's head; a new head gets the retraction of the whole key."""
        slots = self.heads.get(key)
        if slots is None:
            slots = self.heads[key] = {}
        if slot not in slots:
            slots[slot] = SlotState()
            # Only deletes by key cover declared facts; the slot DELETIONS holds those.
            own = slot == ALL or slot.startswith(DELETIONS)
            if not own and ALL in slots:
                self._retract_by(slots[ALL], slots[slot], slot)
        return slots[slot]

    def _retract_by(self, clearing: SlotState, head: SlotState, object_: str) -> None:
        """Fold the retractions of another slot that cover an object into a head."""
        for what, by in clearing.retractions.items():
            if covers(what.removeprefix(SECOND), object_):
                head.fold_retraction(what.removeprefix(SECOND), by)

    def fold(self, key: str) -> None:
        """Compute a key's heads again from all of its claims."""
        claims = [
            effective.claim
            for fact_id in self.complete_keys[key]
            for effective in self.effective_claims(fact_id)
            if effective.claim.key == key
        ]
        if len(claims) == 1 and self._is_plain(claims[0]):
            claim = claims[0]
            winner = Assertion(claim.precedence, claim.fact_id, claim.object)
            self.heads[key] = {self.multi_valued.slot_of(claim): SlotState(winner, replaced=[])}
            return
        self.heads[key] = {}
        claims.sort(key=_order_of_folding)
        for claim in claims:
            if claim.clears_key:
                self._clear(claim)
        for claim in claims:
            if claim.asserts:
                self._assert(claim)

    def _is_plain(self, claim: Claim) -> bool:
        """Return whether a claim asserts, and neither it nor any other known claim retracts."""
        retracts = claim.clears_key or claim.names or claim.declared
        alone = len(self.evaluations.get(claim.fact_id, ())) == 1
        return claim.asserts and not retracts and alone and not self.referrers_of(claim)

    def fold_in(self, claim: Claim) -> None:
        """Fold a claim on its own key, and the retractions that cover it, into the heads."""
        if claim.clears_key:
            self._clear(claim)
        if claim.asserts:
            self._assert(claim)

    def _assert(self, claim: Claim) -> None:
        head = self.head(claim.key, self.multi_valued.slot_of(claim))
        assertion = Assertion(claim.precedence, claim.fact_id, claim.object)
        self.fold_assertion(head, assertion)
        if claim.declared:
            self._retract_by(self.head(claim.key, DELETIONS), head, claim.object)
        self._retract_by_referrers(claim, head)

    def fold_assertion(self, head: SlotState, assertion: Assertion) -> None:
        """Fold an assertion into the state of its slot, by the law."""
        LAWS[self.law].fold_assertion(head, assertion, self.depth)

    def retract(self, target: Claim, *, by: Claim) -> None:
        """Fold the retraction of an asserting claim, which another claim names, into its head."""
        head = self.head(target.key, self.multi_valued.slot_of(target))
        head.fold_retraction(target.object, reach_on(by, target, self.law))

    def declared_slots(self, key: str) -> list[str]:
        """Return the loaded slots of a key's declared facts."""
        return [slot for slot in self.heads.get(key, ()) if is_declared_slot(slot)]

    def _clear(self, claim: Claim) -> None:
        what, by = claim.cleared, reach_of(claim, self.law)
        self.head(claim.key, self.multi_valued.slot(claim.key, what)).fold_retraction(what, by)
        if not deletes_by_key(claim):
            return
        self.head(claim.key, DELETIONS).fold_retraction(what, by)
        for slot in self.declared_slots(claim.key):
            head = self.head(claim.key, slot)
            if what == ALL or any(covers(what, found.object) for found in head.winners):
                head.fold_retraction(what, by)

    def _retract_by_referrers(self, claim: Claim, head: SlotState) -> None:
        referrers = self.referrers_of(claim)
        if len(self.evaluations.get(claim.fact_id, ())) > 1:
            referrers = {*referrers, claim.fact_id}
        for referrer in referrers:
            for effective in self.effective_claims(referrer):
                by = effective.claim
                if by.owner == claim.owner and by.names_claim(claim):
                    head.fold_retraction(claim.object, reach_on(by, claim, self.law))

    def refold(self, keys: Sequence[str], before: CurrentBySlot) -> CurrentBySlot:
        """Fold keys; return what was current before, for every slot of before or after."""
        for key in keys:
            self.fold(key)
        return dict.fromkeys(self.current_by_slot(keys), ()) | before

    def current_by_slot(self, keys: Iterable[str]) -> CurrentBySlot:
        """Return the current assertions of every slot of some keys."""
        return {
            (key, slot): head.current
            for key in keys
            for slot, head in self.heads.get(key, {}).items()
        }

    def index(self, claim: Claim) -> None:
        """Record which key and which ids a claim touches, so that a later fold finds it."""
        if claim.key in self.complete_keys:
            self.complete_keys[claim.key].add(claim.fact_id)
        for name in claim.names:
            self.referrers.setdefault(name, set()).add(claim.fact_id)
        for whole in claim.ids[1:]:
            self.parts.setdefault(whole, set()).add(claim.fact_id)

    def key_slot_of(self, claim: Claim) -> KeySlot:
        """Return the key and the slot in which a claim competes."""
        return claim.key, self.multi_valued.slot_of(claim)

    def holds_slot(self, key_slot: KeySlot, fact_id: str) -> bool:
        """Return whether a current assertion of a slot is of a fact id."""
        return any(current.fact_id == fact_id for current in self.current_at(key_slot))

    def current_at(self, key_slot: KeySlot) -> tuple[Assertion, ...]:
        """Return the current assertions of a slot."""
        key, slot = key_slot
        slots = self.heads.get(key)
        head = None if slots is None else slots.get(slot)
        return () if head is None else head.current

    def is_current(self, claim: Claim) -> bool:
        """Return whether a claim is a current assertion of its slot."""
        return any(
            current.fact_id == claim.fact_id and current.precedence == claim.precedence
            for current in self.current_at(self.key_slot_of(claim))
        )

    def find_returning_conflict(
        self, fact_id: str, remaining: Sequence[Evaluation]
    ) -> Evaluation | None:
        """Return an evaluation whose claim an undo would restore under an id of another owner."""
        before = _latest_of_each_rule(self.evaluations.get(fact_id, ()))
        after = _latest_of_each_rule(remaining)
        unchanged = effective_claims([evaluation for evaluation in after if evaluation in before])
        holders = {effective.claim.owner for effective in unchanged}
        returning = [
            evaluation
            for evaluation in after
            if evaluation.claim is not None and evaluation not in before
        ]
        return next((found for found in returning if holders and found.owner not in holders), None)

    def explain_noop(self, claim: Claim) -> str:
        """Return the reason, in one word, why a claim changes no fact."""
        if claim.asserts:
            return self._explain_vain_assertion(claim)
        if claim.names:
            reached = [
                target
                for target in self.targets(claim)
                if target.precedence < reach_on(claim, target, self.law)
            ]
            return "stale" if reached else "unresolved"
        if claim.clears_key:
            heads = self.heads.get(claim.key, {})
            # Not the key's other objects: which of them are loaded varies.
            heads_in_question = (
                heads.values() if claim.clears_several else [self.head(*self.key_slot_of(claim))]
            )
            found = [
                winner
                for head in heads_in_question
                for winner in head.winners
                if not claim.object.startswith(WORDS) or covers(claim.object, winner.object)
            ]
            return "stale" if found else "unresolved"
        triples = claim.payload.get("triples")
        return "noop" if triples is None else IN_TRIPLES if triples else NOTHING_SAID

    def _explain_vain_assertion(self, claim: Claim) -> str:
        # Another program's edit of the id hides the claim, so its slot may have no head.
        head = self.heads.get(claim.key, {}).get(self.multi_valued.slot_of(claim), SlotState())
        if any(winner.fact_id == claim.fact_id for winner in head.winners):
            return "retracted"
        place = place_of(claim.precedence, self.law)
        same = [winner for winner in head.winners if place_of(winner.precedence, self.law) == place]
        # Another claim of the version asserts the object, too; its fact is the fact of both.
        if not any(winner.object == claim.object for winner in same):
            return "stale"
        return (
            "known" if any(found.object == claim.object for found in head.current) else "retracted"
        )

    def current_assertions(self, key: str) -> list[tuple[str, Assertion]]:
        """Return the current assertions of a key, each with its slot."""
        heads = self.heads.get(key, {})
        return [(slot, current) for slot, head in heads.items() for current in head.current]

    def fact(self, fact_id: str) -> CurrentFact | None:
        """Return the fact of an id if it is current; the heads of its keys must be loaded."""
        for effective in self.effective_claims(fact_id):
            claim = effective.claim
            slot = self.multi_valued.slot_of(claim)
            own = Assertion(claim.precedence, fact_id, claim.object)
            if claim.asserts and own in self.current_at((claim.key, slot)):
                return self.current(claim.key, slot, own)
        return None

    def current(self, key: str, slot: str, top: Assertion) -> CurrentFact:
        """Return the current fact of a slot; the ids that its claim names must be loaded."""
        effective = self._effective_claim_of(top)
        links = self.trail(key, slot)
        if effective.claim.names:
            named = self._links_to_named(effective.claim)
            ids = {entry["replaces"] for entry in named}
            links = [*named, *(entry for entry in links if entry["replaces"] not in ids)]
        return CurrentFact(top.fact_id, effective, tuple(links))

    def _links_to_named(self, claim: Claim) -> list[Link]:
        """Return links to the older assertions that a claim names, newest first, of any key."""
        older = [
            target
            for target in self.targets(claim)
            if place_of(target.precedence, self.law) < place_of(claim.precedence, self.law)
            if target.fact_id != claim.fact_id and not are_siblings(target, claim, self.law)
        ]
        older.sort(key=lambda target: target.precedence, reverse=True)
        found = {target.fact_id: [*target.sources] for target in older}
        return [
            {"replaces": fact_id, "source_episode_ids": sources}
            for fact_id, sources in found.items()
        ]

    def trail(self, key: str, slot: str) -> list[Link]:
        """Return at most `depth` links to the facts that a slot's winner replaced, newest first."""
        head = self.heads[key][slot]
        if head.replaced is None:
            head.replaced = self._compute_replaced(key, slot)
        return head.replaced

    def _compute_replaced(self, key: str, slot: str) -> list[Link]:
        claims = (
            effective.claim
            for id_ in self.complete_keys[key]
            for effective in self.effective_claims(id_)
        )
        versions: dict[tuple[Any, ...], list[Assertion]] = {}
        for claim in claims:
            if claim.key == key and claim.asserts and self.multi_valued.slot_of(claim) == slot:
                assertion = Assertion(claim.precedence, claim.fact_id, claim.object)
                versions.setdefault(place_of(claim.precedence, self.law), []).append(assertion)
        older = [
            link(assertion)
            for place in sorted(versions, reverse=True)[1 : self.depth + 1]
            for assertion in reversed(one_of_each_object(versions[place]))
        ]
        return older[: self.depth]


def _latest_of_each_rule(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return [*{evaluation.rule_id: evaluation for evaluation in evaluations}.values()]


def _order_of_folding(claim: Claim) -> tuple[bool, Precedence]:
    # A retraction of several objects must be folded before their slots get heads.
    return not claim.clears_several, claim.precedence


def reaches_precedence_rule(candidate: Candidate, known_state: KnownState) -> bool:
    """Return whether the precedence rule applies to a candidate.

    It does not when a gate holds the candidate back, or when the rule has passed it already.

    Args:
        known_state: Holds the evaluations of the fact id, and what the rule waits for.
    """
    if candidate.reread and candidate.fact_id not in known_state.waiting:
        return False
    return not isinstance(candidate, HeldBack) or known_state.passes_gate(candidate)


def keys_to_load(candidates: Sequence[Candidate], known_state: KnownState) -> set[str]:
    """Return the keys whose claims must all be loaded before the candidates can be resolved.

    The known state already holds the evaluations of every fact id of a candidate or in `names`,
    and the heads of their keys.
    """
    keys: set[str] = set()
    arriving: dict[str, list[Claim]] = {}
    for candidate in candidates:
        if candidate.claim is not None:
            for name in candidate.claim.ids:
                arriving.setdefault(name, []).append(candidate.claim)
    for candidate in candidates:
        if candidate.fact_id in known_state.evaluations:
            keys |= _keys_of_change(candidate, known_state, arriving)
        elif candidate.claim is not None and _needs_every_claim(candidate.claim, known_state):
            keys.add(candidate.claim.key)
    return keys


def _keys_of_change(
    candidate: Candidate, known_state: KnownState, arriving: dict[str, list[Claim]]
) -> set[str]:
    before = [effective.claim for effective in known_state.effective_claims(candidate.fact_id)]
    if any(claim.covers is not None for claim in before):
        # Another program's edit hides what its rules claim; it may end now.
        evaluations = known_state.evaluations[candidate.fact_id]
        before = [evaluation.claim for evaluation in evaluations if evaluation.claim is not None]
    claims = before if candidate.claim is None else [*before, candidate.claim]
    if candidate.claim is not None and before == [candidate.claim] and not known_state.finds_links:
        # The reason of the noop must not depend on which objects happen to be loaded.
        return {candidate.claim.key} if _clears_several(candidate.claim, known_state) else set()
    keys = {claim.key for claim in claims}
    for claim in claims:
        keys |= {target.key for target in known_state.targets(claim)}
        keys |= {named.key for name in claim.names for named in arriving.get(name, ())}
    return keys


def _clears_several(claim: Claim, known_state: KnownState) -> bool:
    return claim.clears_several and claim.key in known_state.multi_valued


def _needs_every_claim(claim: Claim, known_state: KnownState) -> bool:
    if not claim.asserts or _clears_several(claim, known_state):
        return _clears_several(claim, known_state)
    slots = known_state.heads.get(claim.key)
    head = slots.get(known_state.multi_valued.slot_of(claim)) if slots else None
    return (
        head is not None and head.winner is not None and claim.precedence < head.winner.precedence
    )

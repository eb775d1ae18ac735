"""Settle what is newly met against what is known: the deltas are the difference it makes.

Pure. Most acts are appends, decided by the heads of the slots they touch. Whatever takes back
something said before (an edit, a withdrawal) folds the keys it touches again from all of their
acts, so of those keys the ground must hold every act (`keys_to_load`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from slumberd.consolidation.claim import ALL, Claim, deletes_by_key
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import (
    Assertion,
    EffectiveClaim,
    Evaluation,
    MultiValued,
    effective_claims,
)
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.firing import DeletionImpact
from slumberd.model.scope import FORGOTTEN

What = Literal[
    "claim", "withdrawal", "quarantine", "known", "restored", "undone", "erased", "gated"
]
Delta = Literal["add", "update", "delete", "noop", "quarantine"]

Place = tuple[str, str]
"""A key, and a slot of it."""

ID_TAKEN = "id_taken"

BELOW_SALIENCE = "below_salience"
"""The reason of what a rule's gate holds back."""


class Entry(NamedTuple):
    """One row for the ledger.

    Attributes:
        seq: Its number.
        what: What was met.
        delta: The difference that it made.
        met: What was met; None for a fact that came back because another went.
        fact_id: The fact it speaks of; empty when contested.
        key: The key it speaks of; empty when contested.
        replaces: Ids of the facts that went.
        reason: Of a noop or a quarantine.
        first: Number of the row that met the same before; its own when it is the first.
    """

    seq: int
    what: What
    delta: Delta
    met: Candidate | None
    fact_id: str
    key: str
    replaces: tuple[str, ...] = ()
    reason: str = ""
    first: int = 0


def order_of(incoming: Candidate) -> tuple[int, int, str]:
    """Return the place of what is met within a batch: by stamp."""
    return incoming.claim.precedence if incoming.claim else (incoming.at, 0, incoming.eid)


def is_heard(met: Candidate, known_state: KnownState) -> bool:
    """Say whether what is met comes before the law: no gate holds it back, nor was it passed.

    Args:
        met: What is met.
        known_state: Holds the meetings of its fact id, and what its rule waits for.
    """
    if met.reread and met.fact_id not in known_state.waiting:
        return False
    return met.gated is None or _in_force(met, known_state.evaluations.get(met.fact_id, ()))


def keys_to_load(incoming: Sequence[Candidate], known_state: KnownState) -> set[str]:
    """Return the keys whose every act must be in the ground before these can be settled.

    The ground holds the meetings of every fact id that is met or named, and the heads of
    their keys.
    """
    keys: set[str] = set()
    arriving = {one.fact_id: one.claim for one in incoming if one.claim}
    for one in incoming:
        if one.fact_id in known_state.evaluations:
            keys |= _keys_of_a_change(one, known_state, arriving)
        elif one.claim is not None and _needs_all(one.claim, known_state):
            keys.add(one.claim.key)
    return keys


def _keys_of_a_change(
    incoming: Candidate, known_state: KnownState, arriving: dict[str, Claim]
) -> set[str]:
    before = [one.claim for one in known_state.counted(incoming.fact_id)]
    claims = before if incoming.claim is None else [*before, incoming.claim]
    if incoming.claim is not None and before == [incoming.claim]:
        # Why it changes nothing must not depend on which objects happen to be known.
        return {incoming.claim.key} if _takes_a_whole_key(incoming.claim, known_state) else set()
    keys = {claim.key for claim in claims}
    for claim in claims:
        keys |= {target.key for target in known_state.targets(claim)}
        keys |= {arriving[name].key for name in claim.names if name in arriving}
    return keys


def _takes_a_whole_key(claim: Claim, known_state: KnownState) -> bool:
    return claim.clears and claim.object == ALL and claim.key in known_state.multi


def _needs_all(claim: Claim, known_state: KnownState) -> bool:
    if not claim.asserts:
        return _takes_a_whole_key(claim, known_state)
    slots = known_state.heads.get(claim.key)
    head = slots.get(known_state.multi.slot_of(claim)) if slots else None
    return head is not None and head.top is not None and claim.precedence < head.top.precedence


class Resolution:
    """One batch being settled.

    Attributes:
        entries: The ledger rows so far, numbered without gaps.
        filtered: What was met and left no row: not selected, and nothing to withdraw.
        passed_over: What was not met: it was here because it was read, and the rule does not wait
            for that.
        dirty: Slots (key, slot) whose fact may have to be written again.
        gone: Fact ids that stood when the batch began to speak of them, and went.
        known: What was met again, unchanged, and left no row.
    """

    def __init__(
        self, known_state: KnownState, *, firing: int, at: int, again: bool = False
    ) -> None:
        """Begin a batch.

        Args:
            known_state: What is known.
            firing: The number of the batch's own row; its entries follow it.
            at: The firing's instant, microseconds since 1970 UTC.
            again: Whether the rule has passed what it meets; then what is known leaves no row.
        """
        self._known_state = known_state
        self._again = again
        self.known = 0
        self._firing = firing
        self._at = at
        self._next = firing + 1
        self.entries: list[Entry] = []
        self.filtered = self.passed_over = 0
        self.dirty: dict[Place, None] = {}
        self.gone: dict[str, None] = {}

    def meet(self, met: Candidate) -> None:
        """Settle what one rule, or hand, meets."""
        prior = self._known_state.evaluations.get(met.fact_id)
        if met.reread and met.fact_id not in self._known_state.waiting:
            self.passed_over += 1
        elif prior is None and met.claim is not None and not met.contested and met.gated is None:
            self._begin(met, met.claim)
        elif met.reason == FORGOTTEN:
            self._enter_nothing()
        elif met.contested or (prior and self._is_taken(met)):
            self._quarantine_contested(met)
        elif met.gated is not None and not (prior and _in_force(met, prior)):
            self._hold_back(met)
        elif met.claim is None and not met.reason and not (prior and _in_force(met, prior)):
            self.filtered += 1
        elif prior and (known := _met_before(met, prior)):
            self._enter_known(met, known.seq)
        else:
            self._change(met, self._evaluation(met))

    def undo(self, met: Candidate, remaining: list[Evaluation]) -> None:
        """Let a fact id be again what `remaining` of its meetings say.

        Quarantine what another owner's claim keeps from coming back under that id.
        """
        returning = self._taken_from(met.fact_id, remaining)
        if returning is not None:
            self._quarantine_contested(
                met._replace(
                    owner=returning.owner,
                    rule_id=returning.rule_id,
                    version=returning.version,
                    undoes=0,
                )
            )
            return
        before = self._known_state.counted(met.fact_id)
        self._known_state.evaluations[met.fact_id] = remaining
        after = self._known_state.counted(met.fact_id)
        met = met._replace(claim=after[-1].claim if after else None)
        if before == after:
            self._nothing(met)
        elif [one.claim for one in before] == [one.claim for one in after]:
            self._confirm(met, after)
        else:
            self._fold_again(met, before, after)

    def redraw(self) -> None:
        """Let every fact of the keys that are known in full be written again."""
        self.dirty |= dict.fromkeys(self._seen(self._known_state.full))

    def forget(self, left: Mapping[str, list[Evaluation]]) -> None:
        """Let only what is left of some fact ids' meetings have been met.

        Every key of these ids is known in full.
        """
        known_state = self._known_state
        gone = {fact_id for fact_id, evaluations in left.items() if not evaluations}
        before = self._seen(known_state.full)
        known_state.evaluations |= left
        for fact_id in gone:
            known_state.evaluations.pop(fact_id, None)
        for known in (*known_state.full.values(), *known_state.referrers.values()):
            known -= gone
        # What is never said can only let others come back: of the rest nothing goes.
        _, came = self._difference(self._folded(sorted(known_state.full), before))
        self.dirty |= dict.fromkeys(place for place in before if place[0] in known_state.full)
        self._restore(came)

    def resettle(self, keys: Iterable[str], former: MultiValued) -> None:
        """Fold keys again that were single- or multi-valued before; enter what went and came."""
        known_state = self._known_state
        for key in sorted(keys):
            known_state.multi, current = former, known_state.multi
            known_state.fold(key)
            before = self._seen([key])
            known_state.multi = current
            went, came = self._difference(self._folded([key], before))
            for fact_id in went:
                self._enter_alone("delete", fact_id, key)
            self._restore(came)

    def skip_to(self, seq: int) -> None:
        """Number the next row so; for rows that are settled again and have their numbers."""
        self._next = seq

    def standing(self) -> dict[str, CurrentFact]:
        """Return the facts that stand now in every slot that was touched, by fact id."""
        found = {}
        known_state = self._known_state
        for key, slot in self.dirty:
            head = known_state.heads[key].get(slot)
            top = head.standing if head else None
            if top is not None:
                found[top.fact_id] = known_state.current(key, slot, top)
        return found

    def _is_taken(self, met: Candidate) -> bool:
        return any(one.claim.owner != met.owner for one in self._known_state.counted(met.fact_id))

    def _taken_from(self, fact_id: str, remaining: Sequence[Evaluation]) -> Evaluation | None:
        """Return a claim that would come back under an id which another owner holds."""
        said = _last_by_rule(self._known_state.evaluations.get(fact_id, ()))
        says = _last_by_rule(remaining)
        stays = effective_claims([one for one in says if one in said])
        holders = {one.claim.owner for one in stays}
        back = [one for one in says if one.claim is not None and one not in said]
        return next((one for one in back if holders and one.owner not in holders), None)

    def _quarantine_contested(self, met: Candidate) -> None:
        taken = met.reason or ID_TAKEN
        detail = met.detail or f"fact id {met.fact_id!r} belongs to another user or agent"
        said = met._replace(claim=None, contested=True, reason=taken, detail=detail)
        self._enter(said, "quarantine", "quarantine", reason=taken)

    def _enter_known(self, met: Candidate, first: int) -> None:
        if self._again:
            self.known += 1
        else:
            self._enter(met, "known", "noop", reason="known", first=first)

    def _hold_back(self, met: Candidate) -> None:
        """Enter that something is not worth taking in yet: no act, so nothing follows from it."""
        if self._again and self._known_state.waiting.get(met.fact_id) == met.version:
            self.known += 1
        else:
            self._enter(met._replace(claim=None), "gated", "noop", reason=BELOW_SALIENCE)

    def impact(self) -> DeletionImpact:
        """Return what all of this takes of the facts that stood before."""
        if all(one.delta != "delete" for one in self.entries):
            return DeletionImpact(0, 0)
        stood: dict[str, bool] = {}
        place: dict[str, str | None] = {}  # by fact: what is in its place, itself, or nothing
        for one in self.entries:
            asserts = one.delta in ("add", "update")
            for fact_id in one.replaces:
                stood.setdefault(fact_id, True)
                place[fact_id] = one.fact_id if asserts else None
            if asserts:
                stood.setdefault(one.fact_id, False)
                place[one.fact_id] = one.fact_id
        before = [fact_id for fact_id, did in stood.items() if did]
        lost = sum(_place(fact_id, place) is None for fact_id in before)
        stands = sum(fact_id == other for fact_id, other in place.items())
        return DeletionImpact(lost, len(before) - stands)

    def _begin(self, met: Candidate, claim: Claim) -> None:
        """Take what is said under a fact id for the first time."""
        evaluation = self._evaluation(met)
        self._known_state.evaluations[met.fact_id] = [evaluation]
        self._append(met, claim)

    def _evaluation(self, met: Candidate) -> Evaluation:
        return Evaluation(
            self._next, met.rule_id, met.version, met.claim, self._at, self._firing, met.owner
        )

    def _change(self, met: Candidate, evaluation: Evaluation) -> None:
        known_state = self._known_state
        before = known_state.counted(met.fact_id)
        known_state.evaluations.setdefault(met.fact_id, []).append(evaluation)
        after = known_state.counted(met.fact_id)
        if [one.claim for one in before] == [one.claim for one in after]:
            self._confirm(met, after)
        elif before:
            self._fold_again(met, before, after)
        else:
            self._append(met, after[0].claim)

    def _confirm(self, met: Candidate, after: tuple[EffectiveClaim, ...]) -> None:
        """Enter a meeting that changes no act: at most who says it."""
        places = [self._place(one.claim) for one in after]
        stands = [place for place in places if self._holds(place, met.fact_id)]
        self.dirty |= dict.fromkeys(stands)
        says = met.claim is not None and met.rule_id in _promoters(after)
        if stands and (says or met.undoes):
            self._enter(met, *_of(met, "update"), went=(met.fact_id,))
        else:
            self._nothing(met)

    def _append(self, met: Candidate, claim: Claim) -> None:
        """Fold an act that is said for the first time into the heads it touches."""
        known_state = self._known_state
        if self._touches_one_slot(claim):
            self._assert(met, claim)
            return
        targets = known_state.targets(claim) if claim.names else []
        if claim.clears and claim.object == ALL and claim.key in known_state.multi:
            self._learn(claim)
            self._fold_keys(met, [claim.key], stood=False)
            return
        # What only names others leaves its own slot alone, as folding its key does.
        spoken_of = [claim, *targets] if claim.asserts or claim.clears else targets
        places = [self._place(one) for one in spoken_of]
        if deletes_by_key(claim):
            places += [(claim.key, slot) for slot in known_state.declared_slots(claim.key)]
        before = {place: known_state.head(*place).standing for place in places}
        self._learn(claim)
        self._redraw_referrers(claim)
        known_state.fold_in(claim)
        for target in targets:
            known_state.retract(target, by=claim.precedence)
        if claim.asserts:
            self.dirty[places[0]] = None
        self._enter_difference(met, before, stood=False)

    def _touches_one_slot(self, claim: Claim) -> bool:
        plain = claim.asserts and not claim.names and not claim.declared
        return plain and claim.fact_id not in self._known_state.referrers

    def _assert(self, met: Candidate, claim: Claim) -> None:
        """Fold an assertion that names nothing, and that nothing names, into its one slot."""
        known_state = self._known_state
        key, what = claim.key, claim.object
        place = key, known_state.multi.slot(key, what)
        head = known_state.head(*place)
        stood = head.standing
        if known_state.full:
            self._learn(claim)
        said = Assertion(claim.precedence, claim.fact_id, what)
        head.asserted(said, known_state.depth)
        self.dirty[place] = None
        if head.standing is not said:
            self._enter_difference(met, {place: stood}, stood=False)
        elif stood is None:
            self._enter(met, *_of(met, "add"))
        else:
            self.gone[stood.fact_id] = None
            self._enter(met, *_of(met, "update"), went=(stood.fact_id,))

    def _fold_again(
        self, met: Candidate, before: tuple[EffectiveClaim, ...], after: tuple[EffectiveClaim, ...]
    ) -> None:
        """Fold every key again that an episode spoke of, or speaks of now."""
        keys: dict[str, None] = {}
        for one in (*before, *after):
            self._learn(one.claim)
            self._redraw_referrers(one.claim)
            keys |= dict.fromkeys(
                (one.claim.key, *(to.key for to in self._known_state.targets(one.claim)))
            )
        stood = any(self._holds(self._place(one.claim), met.fact_id) for one in before)
        self._fold_keys(met, sorted(keys), stood=stood)

    def _fold_keys(self, met: Candidate, keys: Sequence[str], *, stood: bool) -> None:
        before = self._folded(keys, self._seen(keys))
        self.dirty |= dict.fromkeys(before)
        self._enter_difference(met, before, stood=stood)

    def _folded(
        self, keys: Sequence[str], before: dict[Place, Assertion | None]
    ) -> dict[Place, Assertion | None]:
        """Fold keys; return what stood before in every slot that was there or is there now."""
        for key in keys:
            self._known_state.fold(key)
        return dict.fromkeys(self._seen(keys)) | before

    def _seen(self, keys: Iterable[str]) -> dict[Place, Assertion | None]:
        heads = self._known_state.heads
        return {
            (key, slot): head.standing for key in keys for slot, head in heads.get(key, {}).items()
        }

    def _redraw_referrers(self, claim: Claim) -> None:
        """Let the facts whose claims name an act's id be written again: their lineage links it."""
        if not claim.asserts:
            return
        for referrer in self._known_state.referrers.get(claim.fact_id, ()):
            for one in self._known_state.counted(referrer):
                place = self._place(one.claim)
                if one.claim.owner == claim.owner and self._holds(place, referrer):
                    self.dirty[place] = None

    def _learn(self, claim: Claim) -> None:
        if claim.key in self._known_state.full:
            self._known_state.full[claim.key].add(claim.fact_id)
        for name in claim.names:
            self._known_state.referrers.setdefault(name, set()).add(claim.fact_id)

    def _place(self, claim: Claim) -> Place:
        return claim.key, self._known_state.multi.slot_of(claim)

    def _holds(self, place: Place, fact_id: str) -> bool:
        stands = self._stands_at(place)
        return stands is not None and stands.fact_id == fact_id

    def _stands_at(self, place: Place) -> Assertion | None:
        head = self._known_state.heads.get(place[0], {}).get(place[1])
        return None if head is None else head.standing

    def _difference(
        self, before: dict[Place, Assertion | None]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return, with their keys, the ids of the facts that went and of those that came."""
        went: dict[str, str] = {}
        came: dict[str, str] = {}
        for place, stood in before.items():
            stands = self._stands_at(place)
            if stands == stood:
                continue
            self.dirty[place] = None
            if stood is not None:
                went[stood.fact_id] = place[0]
                self.gone[stood.fact_id] = None
            if stands is not None:
                came[stands.fact_id] = place[0]
        return went, came

    def _enter_difference(
        self, met: Candidate, before: dict[Place, Assertion | None], *, stood: bool
    ) -> None:
        went, came = self._difference(before)
        if (stood or met.fact_id in came) and met.claim is not None and self._stands(met.claim):
            came.pop(met.fact_id, None)
            if stood:
                went.setdefault(met.fact_id, "")
            self._enter(met, *_of(met, "update" if went else "add"), went=tuple(went))
        elif went:
            self._enter(met, *_of(met, "delete"), went=tuple(went), reason=met.reason)
        else:
            self._nothing(met)
        self._restore(came)

    def _stands(self, claim: Claim) -> bool:
        stands = self._stands_at(self._place(claim))
        return (
            stands is not None
            and stands.fact_id == claim.fact_id
            and stands.precedence == claim.precedence
        )

    def _nothing(self, met: Candidate) -> None:
        if met.undoes:
            self._enter(met, "undone", "noop", reason="undone")
        elif met.reason:
            self._enter(met, "quarantine", "quarantine", reason=met.reason)
        elif met.claim is None:
            self._enter(met, "withdrawal", "noop", reason="filtered")
        else:
            self._enter(met, "claim", "noop", reason=self._why_nothing(met.claim))

    def _why_nothing(self, claim: Claim) -> str:
        known_state = self._known_state
        if claim.asserts:
            head = known_state.heads[claim.key][known_state.multi.slot_of(claim)]
            return "retracted" if head.top and head.top.fact_id == claim.fact_id else "stale"
        if claim.names:
            reached = [
                one for one in known_state.targets(claim) if one.precedence < claim.precedence
            ]
            return "stale" if reached else "unresolved"
        if claim.clears:
            heads = known_state.heads.get(claim.key, {})
            # Not the key's other objects: which of them the ground holds is left to chance.
            spoken_of = (
                heads.values() if claim.object == ALL else [known_state.head(*self._place(claim))]
            )
            return "stale" if any(head.top for head in spoken_of) else "unresolved"
        return "noop"

    def _restore(self, came: dict[str, str]) -> None:
        for fact_id, key in came.items():
            self._enter_alone("add", fact_id, key)

    def _enter(
        self,
        met: Candidate,
        what: What,
        delta: Delta,
        *,
        went: tuple[str, ...] = (),
        reason: str = "",
        first: int = 0,
    ) -> None:
        fact_id = "" if met.contested else met.fact_id
        key = met.claim.key if met.claim else ""
        seq = self._next
        self._next = seq + 1
        self.entries.append(Entry(seq, what, delta, met, fact_id, key, went, reason, first or seq))

    def _enter_nothing(self) -> None:
        """Enter that something was met which does not count, without a word of it."""
        self.entries.append(
            Entry(self._next, "erased", "noop", None, "", "", (), FORGOTTEN, self._next)
        )
        self._next += 1

    def _enter_alone(self, delta: Delta, fact_id: str, key: str) -> None:
        """Enter a fact that came or went by itself: nothing was met that says so."""
        went = (fact_id,) if delta == "delete" else ()
        self.entries.append(
            Entry(self._next, "restored", delta, None, fact_id, key, went, "", self._next)
        )
        self._next += 1


def _of(met: Candidate, delta: Delta) -> tuple[What, Delta]:
    if met.undoes:
        return "undone", delta
    if met.reason:
        return "quarantine", "quarantine"
    return ("claim" if met.claim is not None else "withdrawal"), delta


def _promoters(counted: tuple[EffectiveClaim, ...]) -> set[str]:
    return {rule_id for one in counted for rule_id, _ in one.promoters}


def _in_force(met: Candidate, prior: Sequence[Evaluation]) -> bool:
    last = _last(met, prior)
    return last is not None and last.claim is not None


def _met_before(met: Candidate, prior: Sequence[Evaluation]) -> Evaluation | None:
    last = _last(met, prior)
    if last is None or last.version != met.version or last.claim != met.claim:
        return None
    return last


def _last_by_rule(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return [*{one.rule_id: one for one in evaluations}.values()]


def _last(met: Candidate, prior: Sequence[Evaluation]) -> Evaluation | None:
    return next((one for one in reversed(prior) if one.rule_id == met.rule_id), None)


def _place(fact_id: str, place: Mapping[str, str | None]) -> str | None:
    """Return the fact that stands in the place of one, itself perhaps; None when none does."""
    other = place[fact_id]
    while other is not None and place[other] != other:
        other = place[other]  # asserted later than what it replaced, so this ends
    return other

"""Resolve the candidates of a batch against the known state; deltas are the difference.

Pure. Most claims are appends: the heads of the slots that they touch decide them. An edit or a
withdrawal takes a claim back, so its keys are folded again from all of their claims. The known
state must hold every claim of those keys (`state.keys_to_load`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from slumberd.consolidation.claim import ALL, Claim, deletes_by_key
from slumberd.consolidation.entry import BELOW_SALIENCE, ID_TAKEN, Effect, Entry, Event
from slumberd.consolidation.incoming import (
    Candidate,
    ClaimCandidate,
    Contested,
    Erased,
    HeldBack,
    RecordedCandidate,
    Undo,
    Unmatched,
    Unreadable,
)
from slumberd.consolidation.precedence import (
    Assertion,
    EffectiveClaim,
    Evaluation,
    MultiValued,
    effective_claims,
    has_claim_in_force,
    latest_of_rule,
)
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.scope import FORGOTTEN

KeySlot = tuple[str, str]
"""A key and one of its slots."""

EvaluatedCandidate = ClaimCandidate | Unmatched | Unreadable
"""A candidate that becomes an evaluation of its fact id."""


class Resolution:
    """The resolution of one batch.

    Attributes:
        entries: The ledger rows so far, numbered without gaps.
        filtered: How many candidates left no row: not selected, with nothing to withdraw.
        passed_over: How many candidates were skipped: a read brought them here, and the rule
            does not wait for them.
        dirty: Slots (key, slot) whose fact may have to be written again.
        removed: Ids of facts that were current before the batch, and that it removed.
        known: How many candidates were known, unchanged, and left no row.
    """

    def __init__(
        self, known_state: KnownState, *, firing: int, at: int, again: bool = False
    ) -> None:
        """Begin a batch.

        Args:
            known_state: Event the ledger knows of the batch's keys.
            firing: The number of the batch's own row; its entries follow it.
            at: The firing's instant, microseconds since 1970 UTC.
            again: Whether the rule has passed these candidates; then a known one leaves no row.
        """
        self._known_state = known_state
        self._again = again
        self.known = 0
        self._firing = firing
        self._at = at
        self._next = firing + 1
        self.entries: list[Entry] = []
        self.filtered = self.passed_over = 0
        self.dirty: dict[KeySlot, None] = {}
        self.removed: dict[str, None] = {}

    def apply(self, candidate: Candidate) -> None:
        """Resolve one candidate: evaluate it against what is known, and add its ledger row."""
        if candidate.reread and candidate.fact_id not in self._known_state.waiting:
            self.passed_over += 1
            return
        match candidate:
            case ClaimCandidate():
                self._apply_claim(candidate)
            case HeldBack():
                self._apply_held_back(candidate)
            case Unmatched():
                self._apply_unmatched(candidate)
            case Unreadable():
                self._apply_unreadable(candidate)
            case Contested():
                self._quarantine(candidate)
            case Erased():
                self._add_erased_row()
            case _:
                assert_never(candidate)

    def _apply_claim(self, candidate: ClaimCandidate) -> None:
        prior = self._known_state.evaluations.get(candidate.fact_id)
        if not prior:
            self._known_state.evaluations[candidate.fact_id] = [self._evaluation_of(candidate)]
            self._apply_new_claim(candidate, candidate.claim)
        elif self._is_owned_by_another(candidate):
            self._quarantine(_contest(candidate))
        else:
            self._apply_unless_known(candidate, prior)

    def _apply_held_back(self, candidate: HeldBack) -> None:
        """Add the row of a candidate below the salience limit.

        The gate lets it pass when an earlier version that the rule evaluated has a claim.
        """
        prior = self._known_state.evaluations.get(candidate.fact_id, ())
        if prior and self._is_owned_by_another(candidate):
            self._quarantine(_contest(candidate))
        elif has_claim_in_force(candidate.rule_id, prior):
            self._apply_unless_known(candidate.let_pass(), prior)
        elif self._again and self._known_state.waiting.get(candidate.fact_id) == candidate.version:
            self.known += 1
        else:
            self._add_row(replace(candidate, claim=None), "gated", "noop", reason=BELOW_SALIENCE)

    def _apply_unmatched(self, candidate: Unmatched) -> None:
        prior = self._known_state.evaluations.get(candidate.fact_id, ())
        if prior and self._is_owned_by_another(candidate):
            self._quarantine(_contest(candidate))
        elif has_claim_in_force(candidate.rule_id, prior):
            self._apply_change(candidate)
        else:
            self.filtered += 1

    def _apply_unreadable(self, candidate: Unreadable) -> None:
        prior = self._known_state.evaluations.get(candidate.fact_id, ())
        if prior and self._is_owned_by_another(candidate):
            self._quarantine(_contest(candidate, candidate.reason, candidate.detail))
        else:
            self._apply_unless_known(candidate, prior)

    def _apply_unless_known(
        self, candidate: EvaluatedCandidate, prior: Sequence[Evaluation]
    ) -> None:
        """Apply a candidate, unless its rule's last evaluation of the fact id is equal."""
        last = latest_of_rule(candidate.rule_id, prior)
        if last is None or last.version != candidate.version or last.claim != candidate.claim:
            self._apply_change(candidate)
        elif self._again:
            self.known += 1
        else:
            self._add_row(candidate, "known", "noop", reason="known", first=last.seq)

    def undo(self, undo: Undo, remaining: list[Evaluation]) -> None:
        """Set the evaluations of a fact id back to `remaining`.

        A claim that another owner's claim keeps from coming back is quarantined.
        """
        returning = self._find_returning_conflict(undo.fact_id, remaining)
        if returning is not None:
            self._quarantine(_contest_returning(undo, returning))
            return
        before = self._known_state.effective_claims(undo.fact_id)
        self._known_state.evaluations[undo.fact_id] = remaining
        after = self._known_state.effective_claims(undo.fact_id)
        undo = replace(undo, claim=after[-1].claim if after else None)
        if before == after:
            self._add_noop_row(undo)
        elif [effective.claim for effective in before] == [effective.claim for effective in after]:
            self._add_confirmation_row(undo, after)
        else:
            self._resolve_again(undo, before, after)

    def rewrite_facts(self) -> None:
        """Mark every fact of the keys that are known in full, to be written again."""
        self.dirty |= dict.fromkeys(self._current_by_slot(self._known_state.complete_keys))

    def erase(self, left: Mapping[str, list[Evaluation]]) -> None:
        """Erase the evaluations of some fact ids, all but those that are left.

        Every key of these ids is known in full.
        """
        known_state = self._known_state
        gone = {fact_id for fact_id, evaluations in left.items() if not evaluations}
        before = self._current_by_slot(known_state.complete_keys)
        known_state.evaluations |= left
        for fact_id in gone:
            known_state.evaluations.pop(fact_id, None)
        for known in (*known_state.complete_keys.values(), *known_state.referrers.values()):
            known -= gone
        # A claim that was never made can only restore other facts; it removes none of the rest.
        _, restored = self._compare(self._refold(sorted(known_state.complete_keys), before))
        self.dirty |= dict.fromkeys(
            key_slot for key_slot in before if key_slot[0] in known_state.complete_keys
        )
        self._add_restored_rows(restored)

    def resolve_again(self, keys: Iterable[str], former: MultiValued) -> None:
        """Fold keys again after a change of multi-valued predicates; add rows of the difference."""
        known_state = self._known_state
        for key in sorted(keys):
            known_state.multi_valued, current = former, known_state.multi_valued
            known_state.fold(key)
            before = self._current_by_slot([key])
            known_state.multi_valued = current
            removed, restored = self._compare(self._refold([key], before))
            for fact_id in removed:
                self._add_row_without_candidate("delete", fact_id, key)
            self._add_restored_rows(restored)

    def skip_to(self, seq: int) -> None:
        """Set the number of the next row; recomputed rows keep the numbers that they have."""
        self._next = seq

    def current_facts(self) -> dict[str, CurrentFact]:
        """Return the facts that are now current in every dirty slot, by fact id."""
        found = {}
        known_state = self._known_state
        for key, slot in self.dirty:
            head = known_state.heads[key].get(slot)
            top = head.current if head else None
            if top is not None:
                found[top.fact_id] = known_state.current(key, slot, top)
        return found

    def _is_owned_by_another(self, candidate: EvaluatedCandidate | HeldBack) -> bool:
        return any(
            effective.claim.owner != candidate.owner
            for effective in self._known_state.effective_claims(candidate.fact_id)
        )

    def _find_returning_conflict(
        self, fact_id: str, remaining: Sequence[Evaluation]
    ) -> Evaluation | None:
        """Return an evaluation whose claim would come back under an id of another owner."""
        said = _latest_of_each_rule(self._known_state.evaluations.get(fact_id, ()))
        says = _latest_of_each_rule(remaining)
        stays = effective_claims([evaluation for evaluation in says if evaluation in said])
        holders = {evaluation.claim.owner for evaluation in stays}
        back = [
            evaluation
            for evaluation in says
            if evaluation.claim is not None and evaluation not in said
        ]
        return next(
            (evaluation for evaluation in back if holders and evaluation.owner not in holders), None
        )

    def _quarantine(self, candidate: Contested) -> None:
        self._add_row(candidate, "quarantine", "quarantine", reason=candidate.reason)

    def _evaluation_of(self, candidate: EvaluatedCandidate) -> Evaluation:
        return Evaluation(
            self._next,
            candidate.rule_id,
            candidate.version,
            candidate.claim,
            self._at,
            self._firing,
            candidate.owner,
        )

    def _apply_change(self, candidate: EvaluatedCandidate) -> None:
        known_state = self._known_state
        evaluation = self._evaluation_of(candidate)
        before = known_state.effective_claims(candidate.fact_id)
        known_state.evaluations.setdefault(candidate.fact_id, []).append(evaluation)
        after = known_state.effective_claims(candidate.fact_id)
        if [effective.claim for effective in before] == [effective.claim for effective in after]:
            self._add_confirmation_row(candidate, after)
        elif before:
            self._resolve_again(candidate, before, after)
        else:
            self._apply_new_claim(candidate, after[0].claim)

    def _add_confirmation_row(
        self, candidate: EvaluatedCandidate | Undo, after: tuple[EffectiveClaim, ...]
    ) -> None:
        """Add the row of an evaluation that changes no claim; at most its promoters."""
        key_slots = [self._slot_of(effective.claim) for effective in after]
        current = [
            key_slot for key_slot in key_slots if self._holds_slot(key_slot, candidate.fact_id)
        ]
        self.dirty |= dict.fromkeys(current)
        promotes = candidate.claim is not None and candidate.rule_id in _promoter_ids(after)
        if current and (promotes or isinstance(candidate, Undo)):
            self._add_row(
                candidate, *_event_and_effect(candidate, "update"), removed=(candidate.fact_id,)
            )
        else:
            self._add_noop_row(candidate)

    def _apply_new_claim(self, candidate: EvaluatedCandidate, claim: Claim) -> None:
        """Fold a new claim into the heads that it touches."""
        known_state = self._known_state
        if self._touches_one_slot(claim):
            self._apply_assertion(candidate, claim)
            return
        targets = known_state.targets(claim) if claim.names else []
        if claim.clears and claim.object == ALL and claim.key in known_state.multi_valued:
            self._index(claim)
            self._resolve_keys(candidate, [claim.key], was_current=False)
            return
        # A claim that only names others leaves its own slot alone, as `KnownState.fold` does.
        touched_claims = [claim, *targets] if claim.asserts or claim.clears else targets
        key_slots = [self._slot_of(touched) for touched in touched_claims]
        if deletes_by_key(claim):
            key_slots += [(claim.key, slot) for slot in known_state.declared_slots(claim.key)]
        before = {key_slot: known_state.head(*key_slot).current for key_slot in key_slots}
        self._index(claim)
        self._mark_referrers_dirty(claim)
        known_state.fold_in(claim)
        for target in targets:
            known_state.retract(target, by=claim.precedence)
        if claim.asserts:
            self.dirty[key_slots[0]] = None
        self._add_rows_of_difference(candidate, before, was_current=False)

    def _touches_one_slot(self, claim: Claim) -> bool:
        plain = claim.asserts and not claim.names and not claim.declared
        return plain and claim.fact_id not in self._known_state.referrers

    def _apply_assertion(self, candidate: EvaluatedCandidate, claim: Claim) -> None:
        """Fold an assertion into its one slot; it names no id, and no claim names its id."""
        known_state = self._known_state
        key, what = claim.key, claim.object
        key_slot = key, known_state.multi_valued.slot(key, what)
        head = known_state.head(*key_slot)
        previous = head.current
        if known_state.complete_keys:
            self._index(claim)
        said = Assertion(claim.precedence, claim.fact_id, what)
        head.fold_assertion(said, known_state.depth)
        self.dirty[key_slot] = None
        if head.current is not said:
            self._add_rows_of_difference(candidate, {key_slot: previous}, was_current=False)
        elif previous is None:
            self._add_row(candidate, *_event_and_effect(candidate, "add"))
        else:
            self.removed[previous.fact_id] = None
            self._add_row(
                candidate, *_event_and_effect(candidate, "update"), removed=(previous.fact_id,)
            )

    def _resolve_again(
        self,
        candidate: EvaluatedCandidate | Undo,
        before: tuple[EffectiveClaim, ...],
        after: tuple[EffectiveClaim, ...],
    ) -> None:
        """Fold every key again that the claims before and after a change touch."""
        keys: dict[str, None] = {}
        for effective in (*before, *after):
            self._index(effective.claim)
            self._mark_referrers_dirty(effective.claim)
            keys |= dict.fromkeys(
                (
                    effective.claim.key,
                    *(to.key for to in self._known_state.targets(effective.claim)),
                )
            )
        was_current = any(
            self._holds_slot(self._slot_of(effective.claim), candidate.fact_id)
            for effective in before
        )
        self._resolve_keys(candidate, sorted(keys), was_current=was_current)

    def _resolve_keys(
        self, candidate: EvaluatedCandidate | Undo, keys: Sequence[str], *, was_current: bool
    ) -> None:
        before = self._refold(keys, self._current_by_slot(keys))
        self.dirty |= dict.fromkeys(before)
        self._add_rows_of_difference(candidate, before, was_current=was_current)

    def _refold(
        self, keys: Sequence[str], before: dict[KeySlot, Assertion | None]
    ) -> dict[KeySlot, Assertion | None]:
        """Fold keys; return what was current before, for every slot of before or after."""
        for key in keys:
            self._known_state.fold(key)
        return dict.fromkeys(self._current_by_slot(keys)) | before

    def _current_by_slot(self, keys: Iterable[str]) -> dict[KeySlot, Assertion | None]:
        heads = self._known_state.heads
        return {
            (key, slot): head.current for key in keys for slot, head in heads.get(key, {}).items()
        }

    def _mark_referrers_dirty(self, claim: Claim) -> None:
        """Mark the facts whose claims name a claim's id, because their lineage links to it."""
        if not claim.asserts:
            return
        for referrer in self._known_state.referrers.get(claim.fact_id, ()):
            for effective in self._known_state.effective_claims(referrer):
                key_slot = self._slot_of(effective.claim)
                if effective.claim.owner == claim.owner and self._holds_slot(key_slot, referrer):
                    self.dirty[key_slot] = None

    def _index(self, claim: Claim) -> None:
        if claim.key in self._known_state.complete_keys:
            self._known_state.complete_keys[claim.key].add(claim.fact_id)
        for name in claim.names:
            self._known_state.referrers.setdefault(name, set()).add(claim.fact_id)

    def _slot_of(self, claim: Claim) -> KeySlot:
        return claim.key, self._known_state.multi_valued.slot_of(claim)

    def _holds_slot(self, key_slot: KeySlot, fact_id: str) -> bool:
        current = self._current_at(key_slot)
        return current is not None and current.fact_id == fact_id

    def _current_at(self, key_slot: KeySlot) -> Assertion | None:
        head = self._known_state.heads.get(key_slot[0], {}).get(key_slot[1])
        return None if head is None else head.current

    def _compare(
        self, before: dict[KeySlot, Assertion | None]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the ids of the facts that were removed and restored, each with its key."""
        removed: dict[str, str] = {}
        restored: dict[str, str] = {}
        # Sorted: a replay, which loads the slots in another order, must write the same rows.
        for key_slot in sorted(before):
            current, previous = self._current_at(key_slot), before[key_slot]
            if current == previous:
                continue
            self.dirty[key_slot] = None
            if previous is not None:
                removed[previous.fact_id] = key_slot[0]
                self.removed[previous.fact_id] = None
            if current is not None:
                restored[current.fact_id] = key_slot[0]
        return removed, restored

    def _add_rows_of_difference(
        self,
        candidate: EvaluatedCandidate | Undo,
        before: dict[KeySlot, Assertion | None],
        *,
        was_current: bool,
    ) -> None:
        removed, restored = self._compare(before)
        if (
            (was_current or candidate.fact_id in restored)
            and candidate.claim is not None
            and self._is_current(candidate.claim)
        ):
            restored.pop(candidate.fact_id, None)
            if was_current:
                removed.setdefault(candidate.fact_id, "")
            self._add_row(
                candidate,
                *_event_and_effect(candidate, "update" if removed else "add"),
                removed=tuple(removed),
            )
        elif removed:
            self._add_row(
                candidate,
                *_event_and_effect(candidate, "delete"),
                removed=tuple(removed),
                reason=candidate.reason if isinstance(candidate, Unreadable) else "",
            )
        else:
            self._add_noop_row(candidate)
        self._add_restored_rows(restored)

    def _is_current(self, claim: Claim) -> bool:
        current = self._current_at(self._slot_of(claim))
        return (
            current is not None
            and current.fact_id == claim.fact_id
            and current.precedence == claim.precedence
        )

    def _add_noop_row(self, candidate: EvaluatedCandidate | Undo) -> None:
        match candidate:
            case Undo():
                self._add_row(candidate, "undone", "noop", reason="undone")
            case Unreadable():
                self._add_row(candidate, "quarantine", "quarantine", reason=candidate.reason)
            case Unmatched():
                self._add_row(candidate, "withdrawal", "noop", reason="filtered")
            case ClaimCandidate():
                reason = self._explain_noop(candidate.claim)
                self._add_row(candidate, "claim", "noop", reason=reason)
            case _:
                assert_never(candidate)

    def _explain_noop(self, claim: Claim) -> str:
        known_state = self._known_state
        if claim.asserts:
            head = known_state.heads[claim.key][known_state.multi_valued.slot_of(claim)]
            return "retracted" if head.winner and head.winner.fact_id == claim.fact_id else "stale"
        if claim.names:
            reached = [
                target
                for target in known_state.targets(claim)
                if target.precedence < claim.precedence
            ]
            return "stale" if reached else "unresolved"
        if claim.clears:
            heads = known_state.heads.get(claim.key, {})
            # Not the key's other objects: which of them are loaded is left to chance.
            heads_in_question = (
                heads.values() if claim.object == ALL else [known_state.head(*self._slot_of(claim))]
            )
            return "stale" if any(head.winner for head in heads_in_question) else "unresolved"
        return "noop"

    def _add_restored_rows(self, restored: dict[str, str]) -> None:
        for fact_id, key in restored.items():
            self._add_row_without_candidate("add", fact_id, key)

    def _add_row(
        self,
        candidate: RecordedCandidate,
        event: Event,
        effect: Effect,
        *,
        removed: tuple[str, ...] = (),
        reason: str = "",
        first: int = 0,
    ) -> None:
        fact_id = "" if isinstance(candidate, Contested) else candidate.fact_id
        key = candidate.claim.key if candidate.claim else ""
        seq = self._next
        self._next = seq + 1
        self.entries.append(
            Entry(seq, event, effect, candidate, fact_id, key, removed, reason, first or seq)
        )

    def _add_erased_row(self) -> None:
        """Add the row of a candidate of an erased scope; it holds nothing of the candidate."""
        self.entries.append(
            Entry(self._next, "erased", "noop", None, "", "", (), FORGOTTEN, self._next)
        )
        self._next += 1

    def _add_row_without_candidate(self, effect: Effect, fact_id: str, key: str) -> None:
        """Add the row of a fact that another claim's change restored or removed."""
        removed = (fact_id,) if effect == "delete" else ()
        self.entries.append(
            Entry(self._next, "restored", effect, None, fact_id, key, removed, "", self._next)
        )
        self._next += 1


def _event_and_effect(candidate: EvaluatedCandidate | Undo, effect: Effect) -> tuple[Event, Effect]:
    match candidate:
        case ClaimCandidate():
            return "claim", effect
        case Unmatched():
            return "withdrawal", effect
        case Unreadable():
            return "quarantine", "quarantine"
        case Undo():
            return "undone", effect
        case _:
            assert_never(candidate)


def _contest(
    candidate: EvaluatedCandidate | HeldBack, reason: str = ID_TAKEN, detail: str = ""
) -> Contested:
    """Return the candidate under an id that another owner's claim has."""
    return Contested(
        fact_id=candidate.fact_id,
        owner=candidate.owner,
        rule_id=candidate.rule_id,
        version=candidate.version,
        at=candidate.at,
        eid=candidate.eid,
        session=candidate.session,
        reason=reason,
        detail=detail or _describe_taken(candidate.fact_id),
    )


def _contest_returning(undo: Undo, returning: Evaluation) -> Contested:
    """Return the candidate of an evaluation that an undo cannot bring back."""
    return Contested(
        fact_id=undo.fact_id,
        owner=returning.owner,
        rule_id=returning.rule_id,
        version=returning.version,
        at=undo.at,
        eid=undo.eid,
        reason=ID_TAKEN,
        detail=_describe_taken(undo.fact_id),
    )


def _describe_taken(fact_id: str) -> str:
    return f"fact id {fact_id!r} belongs to another user or agent"


def _promoter_ids(effective_claims: tuple[EffectiveClaim, ...]) -> set[str]:
    return {rule_id for effective in effective_claims for rule_id, _ in effective.promoters}


def _latest_of_each_rule(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return [*{evaluation.rule_id: evaluation for evaluation in evaluations}.values()]

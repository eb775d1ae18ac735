"""Decide what a batch changes: resolve its candidates against the known state, to ledger rows.

Pure. Most claims are appends: the heads of the slots that they touch decide them. An edit or a
withdrawal removes a claim, so its keys are folded again from all of their claims. The known
state must hold every claim of those keys (`state.keys_to_load`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar, assert_never

from slumberd.consolidation.claim import Claim, deletes_by_key
from slumberd.consolidation.incoming import (
    UNSAID,
    Candidate,
    ClaimCandidate,
    Condition,
    Contested,
    Erased,
    HeldBack,
    RecordedCandidate,
    Undo,
    Unmatched,
    Unreadable,
    Unsaid,
    contest,
    contest_returning,
    never,
    order_of,
)
from slumberd.consolidation.precedence import (
    Assertion,
    EffectiveClaim,
    Evaluation,
    MultiValued,
    has_claim_in_force,
    latest_of_rule,
)
from slumberd.consolidation.state import CurrentBySlot, CurrentFact, KeySlot, KnownState
from slumberd.model.errors import StoppedError
from slumberd.model.firing import Counts, Losses
from slumberd.model.scope import ERASED_SCOPE

Event = Literal[
    "claim", "withdrawal", "quarantine", "known", "restored", "undone", "erased", "gated"
]
Effect = Literal["add", "update", "delete", "noop", "quarantine"]

BELOW_SALIENCE = "below_salience"
"""The reason of a noop: the rule's salience gate holds the episode back."""


class ResolvedEffect(NamedTuple):
    """One effect of a resolution: a row for the ledger.

    Attributes:
        seq: The row's number.
        event: The kind of event.
        effect: The effect of the event on the facts.
        candidate: The candidate; None for a fact that was restored because another was removed.
        fact_id: The id of the claim's fact; empty when contested.
        key: The key of the claim; empty when contested.
        replaces: Ids of the facts that were removed.
        reason: Why the row is a noop or a quarantine.
        first: Number of the first row of an equal evaluation; the row's own number if it is new.
    """

    seq: int
    event: Event
    effect: Effect
    candidate: RecordedCandidate | None
    fact_id: str
    key: str
    replaces: tuple[str, ...] = ()
    reason: str = ""
    first: int = 0


def losses_after(
    losses: Losses, entries: Sequence[ResolvedEffect], is_older: Callable[[str], bool]
) -> Losses:
    """Return what a command has deleted after one more batch.

    Args:
        losses: What its earlier batches have deleted.
        entries: The rows of the batch.
        is_older: Returns whether a fact, by its id, is older than the command.
    """
    weights, lost, fewer = dict(losses.weights), dict(losses.lost), losses.fewer
    for entry in entries:
        asserts = entry.effect in ("add", "update")
        fewer += len(entry.replaces) - asserts
        carried = 0
        for fact_id in entry.replaces:
            weight = weights.pop(fact_id, None)
            weight = int(is_older(fact_id)) if weight is None else weight
            if asserts:
                carried += weight
            else:
                lost[fact_id] = weight
        if asserts:
            weights[entry.fact_id] = carried + lost.pop(entry.fact_id, 0)
    # Without an entry, a fact that is not older than the command has the weight 0.
    kept = {fact_id: weight for fact_id, weight in weights.items() if weight or is_older(fact_id)}
    return replace(losses, weights=kept, lost=lost, fewer=fewer)


EvaluatedCandidate = ClaimCandidate | Unmatched | Unsaid | Unreadable
"""A candidate that becomes an evaluation of its fact id."""


class Resolution:
    """The resolution of one batch.

    Attributes:
        entries: The ledger rows so far, numbered without gaps.
        filtered: How many candidates left no row: the filter does not select them, and they have no
            earlier claim to withdraw.
        passed_over: How many candidates were skipped: a read logged them again, and the rule did
            not hold them back.
        dirty: Slots (key, slot) whose fact may have to be written again.
        removed: Ids of facts that were current before the batch, and that it removed.
        known: How many candidates were known, unchanged, and left no row.
    """

    def __init__(
        self, known_state: KnownState, *, firing: int, at: int, again: bool = False
    ) -> None:
        """Begin a batch.

        Args:
            known_state: What the ledger knows of the batch's keys.
            firing: The number of the batch's own row; its entries follow it.
            at: The firing's instant, microseconds since 1970 UTC.
            again: Whether the rule has passed these candidates; then a known one leaves no row.
        """
        self._state = known_state
        self._again = again
        self.known = 0
        self._firing = firing
        self._at = at
        self._next = firing + 1
        self.entries: list[ResolvedEffect] = []
        self.filtered = self.passed_over = 0
        self.dirty: dict[KeySlot, None] = {}
        self.removed: dict[str, None] = {}

    def apply(self, candidate: Candidate) -> None:
        """Resolve one candidate: evaluate it against what is known, and add its ledger row."""
        if candidate.reread and candidate.fact_id not in self._state.waiting:
            self.passed_over += 1
            return
        match candidate:
            case ClaimCandidate():
                self._apply_claim(candidate)
            case HeldBack():
                self._apply_held_back(candidate)
            case Unmatched():
                self._apply_unmatched(candidate)
            case Unreadable() | Unsaid():
                self._apply_without_claim(candidate)
            case Contested():
                self._quarantine(candidate)
            case Erased():
                self._add_erased_row()
            case _:
                assert_never(candidate)

    def _apply_claim(self, candidate: ClaimCandidate) -> None:
        prior = self._state.evaluations.get(candidate.fact_id)
        if not prior:
            self._state.evaluations[candidate.fact_id] = [self._evaluation_of(candidate)]
            self._apply_new_claim(candidate, candidate.claim)
        elif self._is_owned_by_another(candidate):
            self._quarantine(contest(candidate))
        else:
            self._apply_unless_known(candidate, prior)

    def _apply_held_back(self, candidate: HeldBack) -> None:
        """Add the row of a candidate below the salience limit.

        The gate lets it pass when an earlier version that the rule evaluated has a claim.
        """
        prior = self._state.evaluations.get(candidate.fact_id, ())
        if prior and self._is_owned_by_another(candidate):
            self._quarantine(contest(candidate))
        elif self._state.passes_gate(candidate):
            self._apply_unless_known(candidate.without_gate(), prior)
        elif self._again and self._state.waiting.get(candidate.fact_id) == candidate.version:
            self.known += 1
        else:
            self._add_row(candidate._replace(claim=None), "gated", "noop", reason=BELOW_SALIENCE)

    def _apply_unmatched(self, candidate: Unmatched) -> None:
        prior = self._state.evaluations.get(candidate.fact_id, ())
        if prior and self._is_owned_by_another(candidate):
            self._quarantine(contest(candidate))
        elif has_claim_in_force(candidate.rule_id, prior):
            self._apply_change(candidate)
        else:
            self.filtered += 1

    def _apply_without_claim(self, candidate: Unreadable | Unsaid) -> None:
        prior = self._state.evaluations.get(candidate.fact_id, ())
        if not prior or not self._is_owned_by_another(candidate):
            self._apply_unless_known(candidate, prior)
        elif isinstance(candidate, Unreadable):
            self._quarantine(contest(candidate, candidate.reason, candidate.detail))
        else:
            self._quarantine(contest(candidate))

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
        returning = self._state.find_returning_conflict(undo.fact_id, remaining)
        if returning is not None:
            self._quarantine(
                contest_returning(
                    undo,
                    owner=returning.owner,
                    rule_id=returning.rule_id,
                    version=returning.version,
                )
            )
            return
        before = self._state.effective_claims(undo.fact_id)
        self._state.evaluations[undo.fact_id] = remaining
        after = self._state.effective_claims(undo.fact_id)
        undo = undo._replace(claim=after[-1].claim if after else None)
        if before == after:
            self._add_noop_row(undo)
        elif [effective.claim for effective in before] == [effective.claim for effective in after]:
            self._add_confirmation_row(undo, after)
        else:
            self._resolve_again(undo, before, after)

    def rewrite_facts(self) -> None:
        """Mark every fact of the keys that are known in full, to be written again."""
        self.dirty |= dict.fromkeys(self._state.current_by_slot(self._state.complete_keys))

    def erase(self, left: Mapping[str, list[Evaluation]]) -> None:
        """Erase the evaluations of some fact ids, all but those that are left.

        Every key of these ids is known in full.
        """
        gone = {fact_id for fact_id, evaluations in left.items() if not evaluations}
        before = self._state.current_by_slot(self._state.complete_keys)
        for fact_id in left:
            for effective in self._state.effective_claims(fact_id):
                self._mark_referrers_dirty(effective.claim)
        self._state.evaluations |= left
        for fact_id in gone:
            self._state.evaluations.pop(fact_id, None)
        for known in (*self._state.complete_keys.values(), *self._state.referrers.values()):
            known -= gone
        # Without these claims, other facts can only be restored; none of them is removed.
        _, restored = self._compare(self._state.refold(sorted(self._state.complete_keys), before))
        self.dirty |= dict.fromkeys(
            key_slot for key_slot in before if key_slot[0] in self._state.complete_keys
        )
        self._add_restored_rows(restored)

    def resolve_again(
        self, keys: Iterable[str], former: MultiValued, former_law: int | None = None
    ) -> None:
        """Fold keys again after a change of multi-valued predicates, or of the law.

        Rows of the difference are added. After a change of the law, every fact of the keys is
        written again: its lineage may differ, too.

        Args:
            keys: The keys, known in full.
            former: The multi-valued predicates before the change.
            former_law: The number of the law before the change; None when it stays.
        """
        state = self._state
        for key in sorted(keys):
            state.multi_valued, current = former, state.multi_valued
            state.law, law = former_law or state.law, state.law
            state.fold(key)
            before = state.current_by_slot([key])
            state.multi_valued, state.law = current, law
            before = state.refold([key], before)
            if former_law is not None:
                self.dirty |= dict.fromkeys(before)
            removed, restored = self._compare(before)
            for fact_id in removed:
                self._add_row_without_candidate("delete", fact_id, key)
            self._add_restored_rows(restored)

    def skip_to(self, seq: int) -> None:
        """Set the number of the next row; recomputed rows keep the numbers that they have."""
        self._next = seq

    def current_facts(self) -> Iterator[CurrentFact]:
        """Yield the facts that are now current in every dirty slot."""
        state = self._state
        evaluations = state.evaluations
        for key_slot in self.dirty:
            for winner in state.current_at(key_slot):
                # What is not loaded is a sibling of a fact that changed, and has not changed.
                if winner.fact_id in evaluations:
                    yield state.current(*key_slot, winner)

    def _is_owned_by_another(self, candidate: EvaluatedCandidate | HeldBack) -> bool:
        """Return whether another owner, or another episode, has a claim under a fact id."""
        claims = [found.claim for found in self._state.effective_claims(candidate.fact_id)]
        if any(claim.owner != candidate.owner for claim in claims):
            return True
        # A candidate without a version is not of an episode, so it has no source to compare.
        return candidate.version != 0 and any(
            claim.source not in ("", candidate.eid) for claim in claims
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
        evaluation = self._evaluation_of(candidate)
        before = self._state.effective_claims(candidate.fact_id)
        self._state.evaluations.setdefault(candidate.fact_id, []).append(evaluation)
        after = self._state.effective_claims(candidate.fact_id)
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
        key_slots = [self._state.key_slot_of(effective.claim) for effective in after]
        current = [
            key_slot
            for key_slot in key_slots
            if self._state.holds_slot(key_slot, candidate.fact_id)
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
        if self._touches_one_slot(claim):
            self._apply_assertion(candidate, claim)
            return
        targets = self._state.targets(claim) if claim.names else []
        if claim.clears_several and claim.key in self._state.multi_valued:
            self._state.index(claim)
            self._resolve_keys(candidate, [claim.key], was_current=False)
            return
        # A claim that only names others leaves its own slot alone, as `KnownState.fold` does.
        touched_claims = [claim, *targets] if claim.asserts or claim.clears_key else targets
        key_slots = [self._state.key_slot_of(touched) for touched in touched_claims]
        if deletes_by_key(claim):
            key_slots += [(claim.key, slot) for slot in self._state.declared_slots(claim.key)]
        before = {key_slot: self._state.head(*key_slot).current for key_slot in key_slots}
        self._state.index(claim)
        self._mark_referrers_dirty(claim)
        self._state.fold_in(claim)
        for target in targets:
            self._state.retract(target, by=claim)
        if claim.asserts:
            self.dirty[key_slots[0]] = None
        self._add_rows_of_difference(candidate, before, was_current=False)

    def _touches_one_slot(self, claim: Claim) -> bool:
        plain = claim.asserts and not claim.names and not claim.declared and not claim.clears_key
        return plain and not self._state.referrers_of(claim)

    def _apply_assertion(self, candidate: EvaluatedCandidate, claim: Claim) -> None:
        """Fold an assertion into its one slot; it names no id, and no claim names its id."""
        key_slot = claim.key, self._state.multi_valued.slot(claim.key, claim.object)
        head = self._state.head(*key_slot)
        previous = head.current
        if self._state.complete_keys or claim.precedence.part:
            self._state.index(claim)
        assertion = Assertion(claim.precedence, claim.fact_id, claim.object)
        self._state.fold_assertion(head, assertion)
        self.dirty[key_slot] = None
        current = head.current
        if assertion not in current:
            self._add_rows_of_difference(candidate, {key_slot: previous}, was_current=False)
            return
        if not previous:  # the usual case
            self._add_row(candidate, *_event_and_effect(candidate, "add"))
            return
        removed = tuple(found.fact_id for found in previous if found not in current)
        self.removed |= dict.fromkeys(removed)
        effect: Effect = "update" if removed else "add"
        self._add_row(candidate, *_event_and_effect(candidate, effect), removed=removed)

    def _resolve_again(
        self,
        candidate: EvaluatedCandidate | Undo,
        before: tuple[EffectiveClaim, ...],
        after: tuple[EffectiveClaim, ...],
    ) -> None:
        """Fold every key again that the claims before and after a change touch."""
        keys: dict[str, None] = {}
        for effective in (*before, *after):
            self._state.index(effective.claim)
            self._mark_referrers_dirty(effective.claim)
            keys |= dict.fromkeys(
                (
                    effective.claim.key,
                    *(to.key for to in self._state.targets(effective.claim)),
                )
            )
        was_current = any(
            self._state.holds_slot(self._state.key_slot_of(effective.claim), candidate.fact_id)
            for effective in before
        )
        self._resolve_keys(candidate, sorted(keys), was_current=was_current)

    def _resolve_keys(
        self, candidate: EvaluatedCandidate | Undo, keys: Sequence[str], *, was_current: bool
    ) -> None:
        before = self._state.refold(keys, self._state.current_by_slot(keys))
        self.dirty |= dict.fromkeys(before)
        self._add_rows_of_difference(candidate, before, was_current=was_current)

    def _mark_referrers_dirty(self, claim: Claim) -> None:
        """Mark the facts whose claims name a claim's id, because their lineage links to it."""
        if not claim.asserts:
            return
        for referrer in self._state.referrers_of(claim):
            for effective in self._state.effective_claims(referrer):
                key_slot = self._state.key_slot_of(effective.claim)
                if effective.claim.owner == claim.owner and self._state.holds_slot(
                    key_slot, referrer
                ):
                    self.dirty[key_slot] = None

    def _compare(self, before: CurrentBySlot) -> tuple[dict[str, str], dict[str, str]]:
        """Return the ids of the facts that were removed and restored, each with its key."""
        removed: dict[str, str] = {}
        restored: dict[str, str] = {}
        # Sorted: a replay, which loads the slots in another order, must write the same rows.
        for key_slot in sorted(before):
            current, previous = self._state.current_at(key_slot), before[key_slot]
            if current == previous:
                continue
            self.dirty[key_slot] = None
            for gone in previous:
                if gone not in current:
                    removed[gone.fact_id] = key_slot[0]
                    self.removed[gone.fact_id] = None
            for came in current:
                if came not in previous:
                    restored[came.fact_id] = key_slot[0]
        return removed, restored

    def _add_rows_of_difference(
        self, candidate: EvaluatedCandidate | Undo, before: CurrentBySlot, *, was_current: bool
    ) -> None:
        removed, restored = self._compare(before)
        if (
            (was_current or candidate.fact_id in restored)
            and candidate.claim is not None
            and self._state.is_current(candidate.claim)
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

    def _add_noop_row(self, candidate: EvaluatedCandidate | Undo) -> None:
        match candidate:
            case Undo():
                self._add_row(candidate, "undone", "noop", reason="undone")
            case Unreadable():
                self._add_row(candidate, "quarantine", "quarantine", reason=candidate.reason)
            case Unmatched():
                self._add_row(candidate, "withdrawal", "noop", reason="filtered")
            case Unsaid():
                self._add_row(candidate, "withdrawal", "noop", reason=UNSAID)
            case ClaimCandidate():
                reason = self._state.explain_noop(candidate.claim)
                self._add_row(candidate, "claim", "noop", reason=reason)
            case _:
                assert_never(candidate)

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
            ResolvedEffect(
                seq, event, effect, candidate, fact_id, key, removed, reason, first or seq
            )
        )

    def _add_erased_row(self) -> None:
        """Add the row of a candidate of an erased scope; it holds nothing of the candidate."""
        self.entries.append(
            ResolvedEffect(self._next, "erased", "noop", None, "", "", (), ERASED_SCOPE, self._next)
        )
        self._next += 1

    def _add_row_without_candidate(self, effect: Effect, fact_id: str, key: str) -> None:
        """Add the row of a fact that another claim's change restored or removed."""
        removed = (fact_id,) if effect == "delete" else ()
        self.entries.append(
            ResolvedEffect(
                self._next, "restored", effect, None, fact_id, key, removed, "", self._next
            )
        )
        self._next += 1


def _event_and_effect(candidate: EvaluatedCandidate | Undo, effect: Effect) -> tuple[Event, Effect]:
    match candidate:
        case ClaimCandidate():
            return "claim", effect
        case Unmatched() | Unsaid():
            return "withdrawal", effect
        case Unreadable():
            return "quarantine", "quarantine"
        case Undo():
            return "undone", effect
        case _:
            assert_never(candidate)


def _promoter_ids(effective_claims: tuple[EffectiveClaim, ...]) -> set[str]:
    return {rule_id for effective in effective_claims for rule_id, _ in effective.promoters}


T = TypeVar("T")


_ROWS_BETWEEN_CHECKS = 50
"""Rows between two checks for a cancelled firing; a row takes microseconds, or folds a key."""


Link = Callable[[Sequence[Candidate]], Sequence[Candidate]]
"""Links the new facts of candidates with similar facts."""


class Decision(NamedTuple):
    """What a batch changes.

    Attributes:
        rows: The new ledger rows, in order, without the row of the firing.
        counts: What became of the candidates, by channel.
        facts: The facts that are current afterwards, of the slots that the batch touches.
        removed: The ids of the facts that are not current any more, or have another row.
    """

    rows: Sequence[ResolvedEffect]
    counts: Mapping[str, Counts]
    facts: Sequence[CurrentFact]
    removed: Sequence[str]

    @classmethod
    def of(
        cls, resolution: Resolution, counts: Mapping[str, Counts], cancelled: Condition = never
    ) -> Decision:
        """Return the decision of a resolution that is complete.

        Raises:
            StoppedError: `cancelled` returned True.
        """
        found = until_cancelled(resolution.current_facts(), cancelled)
        current = {fact.fact_id: fact for fact in found}
        return cls(resolution.entries, counts, [*current.values()], [*resolution.removed])


def decide(  # noqa: PLR0913 # one for each part of the request
    candidates: Mapping[str, Sequence[Candidate]],
    known: KnownState,
    *,
    number: int,
    at: int,
    again: bool = False,
    link: Link = list,
    cancelled: Condition = never,
) -> Decision:
    """Resolve candidates by the precedence rule.

    Args:
        candidates: The candidates by channel, in any order.
        known: The known state of all keys and fact ids that they touch; it changes to the state
            after the batch.
        number: The number of the firing's ledger row.
        at: The instant of the batch, microseconds.
        again: Whether the batch evaluates versions that its rule has passed.
        link: Links the new facts with similar facts.
        cancelled: Called often; True cancels the batch.

    Raises:
        StoppedError: `cancelled` returned True; `known` must not be used again.
    """
    linked = {channel: link(_with_earlier(found, known)) for channel, found in candidates.items()}
    resolution = Resolution(known, firing=number, at=at, again=again)
    counts = {channel: _resolve(resolution, found, cancelled) for channel, found in linked.items()}
    return Decision.of(resolution, counts, cancelled)


def _with_earlier(candidates: Sequence[Candidate], known: KnownState) -> Sequence[Candidate]:
    """Return the candidates with what their earlier evaluation decided once for all."""
    evaluations = known.evaluations
    return [
        known.with_earlier_claim(candidate) if candidate.fact_id in evaluations else candidate
        for candidate in candidates
    ]


def _resolve(
    resolution: Resolution, candidates: Sequence[Candidate], cancelled: Condition
) -> Counts:
    before, filtered = len(resolution.entries), resolution.filtered
    known, passed_over = resolution.known, resolution.passed_over
    for candidate in until_cancelled(sorted(candidates, key=order_of), cancelled):
        resolution.apply(candidate)
    added = resolution.entries[before:]
    read = len(candidates) - (resolution.passed_over - passed_over)
    counts = counts_of(read, resolution.filtered - filtered, added)
    return counts._replace(noop=counts.noop + resolution.known - known)


def counts_of(read: int, filtered: int, entries: Sequence[ResolvedEffect]) -> Counts:
    """Count what became of the candidates, from their ledger rows."""
    kinds = Counter(entry.effect for entry in entries if entry.event != "restored")
    return Counts(
        read,
        filtered,
        kinds["add"],
        kinds["update"],
        kinds["delete"],
        kinds["noop"],
        kinds["quarantine"],
        sum(1 for entry in entries if entry.event == "restored"),
    )


def until_cancelled(values: Iterable[T], cancelled: Condition) -> Iterator[T]:
    """Yield values, and raise once `cancelled` returns True.

    Raises:
        StoppedError: `cancelled` returned True.
    """
    for number, value in enumerate(values):
        if number % _ROWS_BETWEEN_CHECKS == 0:
            check_cancelled(cancelled)
        yield value


def check_cancelled(cancelled: Condition) -> None:
    """Raise when a batch is cancelled.

    Raises:
        StoppedError: `cancelled` returned True.
    """
    if cancelled():
        raise StoppedError("the firing was cancelled before its commit")

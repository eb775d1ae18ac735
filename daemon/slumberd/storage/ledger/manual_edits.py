"""Apply manual edits: pins, unpins and single deltas, as one batch inside one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, assert_never

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.incoming import Candidate, Unmatched
from slumberd.consolidation.manual import (
    OWN_IDS,
    ApplyDelta,
    Assert,
    Declare,
    Edit,
    ManualAssertion,
    Remove,
    Retract,
    assertion,
    candidate_of,
    declaration,
    is_same_declaration,
    is_same_statement,
    newest_instant,
    noop_claim,
    precedence_of,
    removal,
    retraction,
    withdrawal,
)
from slumberd.consolidation.precedence import MANUAL_RULE_ID, History
from slumberd.consolidation.resolution import Decision, counts_of
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.delta import AddDelta, AnyDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    LATEST,
    latest_at,
    microseconds,
)
from slumberd.model.errors import FactConflictError, InputError, NoInputError
from slumberd.model.firing import Firing, Outcome
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.strict_json import MOST_DEPTH, too_deep


class FutureClaimFound(Exception):  # noqa: N818 # the caller withdraws the claim, and edits again
    """The key of an edit has a claim of the future, beside which the edit has no effect.

    Attributes:
        owner: User, agent and channel of the key.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"{owner!r} has a claim of the future")


class ManualEdits:
    """One batch of manual edits, inside a transaction.

    Attributes:
        batch: The batch that writes them.
        moment: The instant of the edits, microseconds. It is that of the batch, unless a wrong
            clock recorded an instant that lies further ahead than the tolerance.
        known_state: The loaded state; `load` loads more.

    Args:
        session: In a transaction.
        depth: How many replaced assertions a fact's lineage names.
        firing: The batch's.
        tolerance_seconds: How far ahead of the clock an instant is not of the future.
        refuses_future: Whether an edit of a key whose claim is of the future raises; else it takes
            the instant of that claim.
    """

    def __init__(
        self,
        session: Session,
        depth: int,
        firing: Firing,
        *,
        tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
        refuses_future: bool = False,
    ) -> None:
        self._session = session
        self.batch = Batch(session, firing, depth)
        latest = latest_at(firing.at, tolerance_seconds)
        self.moment = self.batch.at if self.batch.at <= latest else microseconds(firing.at)
        self._latest = max(latest, self.batch.at) if refuses_future else LATEST
        self.known_state: KnownState = self.batch.loaded.known_state
        self.resolution = self.batch.resolution()
        self._claims = 0
        self._histories: dict[str, History] = {}

    def run(self, edit: Edit) -> None:
        """Run one edit.

        Raises:
            FactConflictError: Another user, agent or channel holds one of its ids.
            InputError: A value cannot be stored unchanged.
            NoInputError: It retracts an id that no claim ever had, and that is an error.
        """
        match edit:
            case Assert(fact, again, only):
                self.assert_fact(fact, again=again, only=only)
            case Declare(fact):
                self.declare_fact(fact)
            case Remove(fact_id):
                self.remove_fact(fact_id)
            case Retract(fact_ids, lineage, known_only):
                self.retract(fact_ids, lineage=lineage, known_only=known_only)
            case ApplyDelta(delta, strict):
                self.apply_delta(delta, strict=strict)
            case _:
                assert_never(edit)

    def finish(self) -> Outcome | None:
        """Write the edits and return the outcome; None when there were none."""
        entries = self.resolution.entries
        if not entries:
            return None
        return self.batch.write(
            Decision.of(self.resolution, {"": counts_of(self._claims, 0, entries)})
        )

    def assert_fact(self, asserted: ManualAssertion, *, again: bool, only: bool = False) -> None:
        """Assert a fact, unless the last manual edit of its id is equal.

        With `again`, an equal assertion is repeated when its fact is not current any more. With
        `only`, it replaces every older value of its key.

        Raises:
            InputError: An id, the user or the agent contains NUL or invalid Unicode, or the fact is
                nested too deep.
            FactConflictError: Another user, agent or channel holds one of its ids, or the id is
                reserved for the ledger.
        """
        check_storable(asserted)
        claim = self.assertion_claim(asserted)
        if only and claim.key in self.known_state.multi_valued:
            claim = claim._replace(clears_key=True)
        self._refuse_foreign(claim)
        self.batch.loaded.load([candidate_of(claim)])
        last = self._last_manual_claim(claim.fact_id)
        if last and is_same_statement(last, claim) and (self._is_current(last) or not again):
            return
        self.apply_changes([claim])

    def declare_fact(self, asserted: ManualAssertion) -> None:
        """Declare a fact, as another program does that pins a row.

        Where a rule or a person holds the id with a current fact, this is a manual edit of it.

        Raises:
            InputError: An id, the user or the agent contains NUL or invalid Unicode, or the fact is
                nested too deep.
            FactConflictError: Another user, agent or channel holds its id, or the id is reserved
                for the ledger.
        """
        check_storable(asserted)
        self.load((asserted.fact_id,))
        if self.edits_manually(asserted.fact_id):
            self.assert_fact(asserted, again=True)
            return
        claim = self.declaration_claim(asserted)
        self._refuse_foreign(claim)
        last = self._last_manual_claim(claim.fact_id)
        if last is None or not self._is_current(last) or not is_same_declaration(last, claim):
            self.apply_changes([claim])

    def edits_manually(self, fact_id: str) -> bool:
        """Return whether a write to the row of an id changes a fact of a rule or a person.

        The id must be loaded with `load`.
        """
        fact = self.known_state.fact(fact_id)
        return fact is not None and not fact.effective.claim.declared

    def declaration_claim(self, asserted: ManualAssertion) -> Claim:
        """Return the claim that declares a fact."""
        self._claims += 1
        return declaration(asserted, self.moment)

    def remove_fact(self, fact_id: str) -> None:
        """Remove a fact as the program that pinned it does; do nothing when it is not current."""
        self.load((fact_id,))
        fact = self.known_state.fact(fact_id)
        if fact is not None:
            self.apply_changes([self.withdraw_or_retract(fact)])

    def withdraw_or_retract(self, fact: CurrentFact) -> Claim | Unmatched:
        """Return the withdrawal of a declared fact whose row a program removed.

        If a rule promoted the id too, this returns a retraction, as by a person.
        """
        rivals = [
            effective.claim
            for effective in self.known_state.effective_claims(fact.fact_id)
            if not effective.claim.declared
        ]
        if rivals or not fact.effective.claim.declared:
            return self.retraction_claim(fact, ())
        self._claims += 1
        return withdrawal(fact.effective.claim)

    def retract(
        self,
        fact_ids: Sequence[str],
        *,
        lineage: Sequence[dict[str, Any]] = (),
        known_only: bool = False,
    ) -> None:
        """Retract those of the facts that are current.

        Raises:
            NoInputError: `known_only` is set, and no claim ever had one of the ids.
        """
        self.load(fact_ids)
        if known_only:
            self._refuse_unused(fact_ids)
        current = [self.known_state.fact(fact_id) for fact_id in dict.fromkeys(fact_ids)]
        self.apply_changes([self.retraction_claim(fact, lineage) for fact in current if fact])

    def apply_delta(self, delta: AnyDelta, *, strict: bool) -> None:
        """Apply one delta with complete provenance."""
        lineage = (_lineage_entry(delta),)
        if isinstance(delta, UpdateDelta | DeleteDelta) and strict:
            self._refuse_unknown(delta.replaces)
        match delta:
            case NoopDelta():
                number = self._number()
                precedence = precedence_of(self.moment, number)
                self.apply_changes(
                    [
                        noop_claim(
                            precedence, number=number, confidence=delta.confidence, lineage=lineage
                        )
                    ]
                )
            case DeleteDelta():
                self.retract(delta.replaces, lineage=lineage)
            case AddDelta() | UpdateDelta():
                self.assert_fact(_assertion_from(delta, lineage), again=False)

    def load(self, fact_ids: Sequence[str]) -> None:
        """Load all claims of some fact ids, and the facts of the same keys."""
        self._histories |= self.batch.loaded.load_histories(fact_ids)

    def evaluated_version(self, fact_id: str) -> int | None:
        """Return the newest version of an id's episode that a rule has evaluated.

        None when no rule ever promoted the id. An evaluation that was undone counts. The id must be
        loaded with `load`.
        """
        history = self._histories.get(fact_id)
        found = [] if history is None else history.evaluations
        claims = [evaluation.claim for evaluation in found if evaluation.version]
        if not any(claim is not None and claim.asserts for claim in claims):
            return None
        return max(evaluation.version for evaluation in found)

    def removal_claim(self, fact: CurrentFact, covers: int) -> Claim:
        """Return the claim of another program that removed the row of a promoted fact, now."""
        precedence = precedence_of(self.batch.at, self._number())
        return removal(fact.effective.claim, precedence, covers=covers)

    def assertion_claim(self, asserted: ManualAssertion, *, at: int | None = None) -> Claim:
        """Return the claim that asserts a fact, at an instant in microseconds; None means now."""
        return assertion(asserted, precedence_of(self.moment if at is None else at, self._number()))

    def retraction_claim(self, fact: CurrentFact, lineage: Sequence[dict[str, Any]]) -> Claim:
        """Return the claim that retracts a current fact, now."""
        number = self._number()
        precedence = precedence_of(self.moment, number)
        return retraction(fact.effective.claim, precedence, number=number, lineage=lineage)

    def _number(self) -> int:
        # Each claim has at least one row, so these numbers are below those of the next batch.
        self._claims += 1
        return self.batch.number + self._claims - 1

    def apply_changes(self, changes: Sequence[Claim | Unmatched]) -> None:
        """Resolve manual edits, and withdrawals by programs, in order.

        A manual edit takes effect at once, whatever its key and ids already hold. A declared
        fact has the instant that its program gives.
        """
        candidates = [
            candidate_of(change) if isinstance(change, Claim) else change for change in changes
        ]
        self.batch.loaded.load(candidates)
        claims = [candidate.claim for candidate in candidates if candidate.claim is not None]
        self._load_every_object([claim for claim in claims if not claim.declared])
        for candidate in candidates:
            if candidate.claim is None or candidate.claim.declared:
                self.resolution.apply(candidate)
            else:
                self.resolution.apply(candidate_of(self._after_newest(candidate.claim)))

    def repeat(self, claims: Sequence[Claim]) -> None:
        """Apply manual edits again at the instants that they have, whatever their keys hold."""
        candidates = [candidate_of(claim) for claim in claims]
        self.batch.loaded.load(candidates)
        for candidate in candidates:
            self._claims += 1
            self.resolution.apply(candidate)

    def _load_every_object(self, claims: Sequence[Claim]) -> None:
        """Load multi-valued keys in full: the newest instant of any object counts."""
        targets = [target for claim in claims for target in self.known_state.targets(claim)]
        multi_valued = self.known_state.multi_valued
        keys = {claim.key for claim in (*claims, *targets) if claim.key in multi_valued}
        self.batch.loaded.load_in_full(keys - self.known_state.complete_keys.keys())

    def quarantine(self, candidate: Candidate) -> None:
        """Quarantine a change that cannot be read, or that has the id of another owner."""
        self._claims += 1
        self.resolution.apply(candidate)

    def rewrite_row(self, fact_id: str) -> None:
        """Write the row of a fact id again as the ledger has it."""
        fact = self.known_state.fact(fact_id)
        if fact is None:
            self.resolution.removed[fact_id] = None
        else:
            claim = fact.effective.claim
            self.resolution.dirty[claim.key, self.known_state.multi_valued.slot_of(claim)] = None

    def _last_manual_claim(self, fact_id: str) -> Claim | None:
        found = self.known_state.evaluations.get(fact_id, ())
        claims = (
            evaluation.claim
            for evaluation in reversed(found)
            if evaluation.rule_id == MANUAL_RULE_ID
        )
        return next(filter(None, claims), None)

    def _is_current(self, claim: Claim) -> bool:
        fact = self.known_state.fact(claim.fact_id)
        return fact is not None and fact.effective.claim.precedence == claim.precedence

    def _after_newest(self, claim: Claim) -> Claim:
        targets = self.known_state.targets(claim)
        newest = newest_instant(
            self.known_state,
            (claim.fact_id, *claim.names),
            (claim.key, *(target.key for target in targets)),
        )
        if newest is None or newest <= claim.precedence.at:
            return claim
        if newest > self._latest:
            raise FutureClaimFound(claim.owner)
        return claim._replace(precedence=claim.precedence._replace(at=newest))

    def _has_row(self, fact_id: str) -> bool:
        return self._session.one("facts.has_fact", (fact_id,)) is not None

    def is_taken(self, fact_id: str, owner: str) -> bool:
        """Return whether another user, agent or channel than the owner holds a fact id."""
        effective_claims = self.known_state.effective_claims(fact_id)
        return any(effective.claim.owner != owner for effective in effective_claims)

    def _refuse_foreign(self, claim: Claim) -> None:
        if claim.fact_id.startswith(OWN_IDS):
            raise FactConflictError(
                claim.fact_id, f"ids that begin with {OWN_IDS!r} are reserved for the ledger"
            )
        self.batch.loaded.load_evaluations((claim.fact_id, *claim.names))
        for fact_id in (claim.fact_id, *claim.names):
            if self.is_taken(fact_id, claim.owner):
                raise FactConflictError(fact_id, "is held by another user, agent or channel")

    def _refuse_unknown(self, fact_ids: Sequence[str]) -> None:
        self.batch.loaded.load_evaluations(fact_ids)
        for fact_id in fact_ids:
            if not self.known_state.effective_claims(fact_id):
                raise FactConflictError(fact_id, "is replaced, but no fact ever had this id")

    def _refuse_unused(self, fact_ids: Sequence[str]) -> None:
        for fact_id in fact_ids:
            if fact_id not in self.known_state.evaluations and not self._has_row(fact_id):
                remedy = "no fact ever had this id; `slumberd facts` lists the current facts"
                raise NoInputError(fact_id, remedy)


def check_storable(asserted: ManualAssertion) -> ManualAssertion:
    """Return an assertion that the ledger can store unchanged.

    Raises:
        InputError: An id, the user or the agent contains NUL or invalid Unicode, or the fact is
            nested too deep.
    """
    # SQLite's JSON may end a text at NUL, so such an id would equal another id.
    for text in (asserted.fact_id, asserted.user, asserted.agent, *asserted.names):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            problem = f"{text!r} contains NUL or invalid Unicode"
            raise InputError(f"fact {asserted.fact_id!r}: {problem}")
    if any(map(too_deep, [asserted.payload, *asserted.lineage, asserted.metadata or {}])):
        raise InputError(f"fact {asserted.fact_id!r} is nested deeper than {MOST_DEPTH} levels")
    return asserted


def _lineage_entry(delta: AnyDelta) -> dict[str, Any]:
    return {
        "rule_id": delta.rule_id,
        "source_episode_ids": list(delta.source_episode_ids),
        "promotion_ts": delta.promotion_ts.isoformat(),
    }


def _assertion_from(
    delta: AddDelta | UpdateDelta, lineage: Sequence[dict[str, Any]]
) -> ManualAssertion:
    payload = dict(delta.fact_payload)
    fact_id = str(payload.get("id") or _derived_id(delta))
    names = tuple(delta.replaces) if isinstance(delta, UpdateDelta) else ()
    user, agent = str(payload.get("user") or ""), str(payload.get("agent") or "")
    return ManualAssertion(fact_id, user, agent, payload, delta.confidence, lineage, None, names)


def _derived_id(delta: AddDelta | UpdateDelta) -> str:
    # A payload without an id must get the same id each time it is applied.
    identity = orjson.dumps(
        [delta.rule_id, delta.source_episode_ids, delta.fact_payload],
        option=orjson.OPT_SORT_KEYS,
    )
    return str(uuid.uuid5(uuid.NAMESPACE_OID, identity.decode()))

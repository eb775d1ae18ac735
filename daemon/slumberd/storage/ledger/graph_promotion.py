"""Promote the triples of a graph as declared facts: all or none, each triple once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.graph_promotion import Promoted, PromotionState, Verdict, Withheld
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import ManualAssertion, candidate_of, declaration
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant
from slumberd.model.fact import Fact
from slumberd.model.firing import Firing
from slumberd.storage.engine import Session
from slumberd.storage.erased_scopes import erased_scope_lookup
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.fact_rows import fact_from
from slumberd.storage.ledger.manual_edits import ManualEdits, check_storable

_EVER = -(2**63)


def promote(
    session: Session,
    facts: Sequence[Fact],
    depth: int,
    firing: Firing,
) -> Promoted:
    """Promote the facts that the ledger does not have yet; inside a transaction.

    Args:
        session: Of the facts.
        facts: The facts of the triples.
        depth: Links of lineage.
        firing: Its rule id is `ledger_rule_id` the rule.

    Raises:
        InputError: The ledger cannot store a fact unchanged.
    """
    promotion = _GraphPromotion(session, ManualEdits(session, depth, firing), firing)
    return promotion.promote(facts)


class _GraphPromotion:
    """One promotion of a graph."""

    def __init__(self, session: Session, edits: ManualEdits, firing: Firing) -> None:
        self._session = session
        self._edits = edits
        self._rule_id = firing.rule_id
        self._known_state: KnownState = edits.known_state
        self._erased = erased_scope_lookup(session)
        self._assertions: dict[str, ManualAssertion] = {}

    def promote(self, facts: Sequence[Fact]) -> Promoted:
        """Declare the facts that are new, and report what became of each."""
        self._assertions = {fact.id: check_storable(self._assertion_of(fact)) for fact in facts}
        at = self._edits.batch.at
        claims = [
            declaration(self._assertions[fact_id], at) for fact_id in sorted(self._assertions)
        ]
        verdicts = self._judge(claims)
        for claim in claims:
            if verdicts[claim.fact_id] == "news":
                self._declare(self._assertions[claim.fact_id])
        outcome = self._edits.finish()
        return Promoted(
            self._current_facts(verdicts),
            outcome,
            unchanged=sum(verdict == "unchanged" for verdict in verdicts.values()),
            withheld=dict(_withheld(verdicts)),
        )

    def _assertion_of(self, fact: Fact) -> ManualAssertion:
        at = instant(self._edits.batch.at).isoformat()
        lineage = [{**entry, "promotion_ts": at} for entry in fact.lineage]
        return ManualAssertion(
            fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, lineage,
            dict(fact.metadata),
        )  # fmt: skip

    def _judge(self, claims: Sequence[Claim]) -> dict[str, Verdict]:
        known = self._load_state(claims)
        verdicts: dict[str, Verdict] = {}
        for claim in claims:
            if self._is_erased(self._assertions[claim.fact_id]):
                verdicts[claim.fact_id] = "erased"
            elif self._edits.is_taken(claim.fact_id, claim.owner):
                verdicts[claim.fact_id] = "id_taken"
            else:
                verdicts[claim.fact_id] = known.verdict(claim)
        return verdicts

    def _load_state(self, claims: Sequence[Claim]) -> PromotionState:
        """Load the state that the verdicts and the resolution need."""
        loaded, known_state = self._edits.batch.loaded, self._known_state
        histories = loaded.load_histories([claim.fact_id for claim in claims])
        loaded.load(self._candidates_of(claims))
        firings = {
            evaluation.firing
            for evaluations in (
                *known_state.evaluations.values(),
                *(history.evaluations for history in histories.values()),
            )
            for evaluation in evaluations
            if evaluation.rule_id == MANUAL_RULE_ID
        }
        parameters = {"numbers": sorted(firings)}
        rule_ids: dict[int, str] = dict(self._session.rows("ledger.rules_of_firings", parameters))
        return PromotionState(known_state, histories, rule_ids, self._rule_id)

    @staticmethod
    def _candidates_of(claims: Sequence[Claim]) -> list[Candidate]:
        return [candidate_of(claim) for claim in claims]

    def _is_erased(self, asserted: ManualAssertion) -> bool:
        # A triple has no instant of its own, so every erasure of its scope covers it.
        return self._erased is not None and self._erased.covers(
            asserted.user, "", asserted.agent, _EVER
        )

    def _declare(self, asserted: ManualAssertion) -> None:
        self._edits.resolution.apply(candidate_of(self._edits.declaration_claim(asserted)))

    def _current_facts(self, verdicts: dict[str, Verdict]) -> list[Fact]:
        """Return the current facts that this rule promotes."""
        found = []
        for fact_id, verdict in verdicts.items():
            current = self._known_state.fact(fact_id) if verdict in ("news", "unchanged") else None
            if current is not None:
                *row, metadata, pinned_at = fact_row(current)
                found.append(fact_from((*row, pinned_at, metadata)))
        return found


def _withheld(verdicts: dict[str, Verdict]) -> Iterator[tuple[str, Withheld]]:
    for fact_id, verdict in verdicts.items():
        if verdict != "news" and verdict != "unchanged":  # mypy follows this one
            yield fact_id, verdict

"""Promote the triples of a graph as declared facts: all or none, each triple once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.graph_promotion import Promoted, PromotionState, Verdict, Withheld
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import ManualAssertion, candidate_of, declaration
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant
from slumberd.model.fact import Fact
from slumberd.model.firing import Firing
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.fact_rows import fact_from
from slumberd.storage.ledger.manual_edits import ManualEdits, checked
from slumberd.storage.sqlite.erased_scopes import erased_scope_lookup

_SQL = statements("ledger")
_EVER = -(2**63)


def promote(
    connection: sqlite3.Connection,
    facts: Sequence[Fact],
    depth: int,
    firing: Firing,
) -> Promoted:
    """Promote the facts that the ledger does not have yet; inside a transaction.

    Args:
        connection: Of facts.db.
        facts: The facts of the triples.
        depth: Links of lineage.
        firing: Its rule id is `ledger_rule_id` the rule.

    Raises:
        InputError: The ledger cannot store a fact unchanged.
    """
    work = _Promoting(connection, ManualEdits(connection, depth, firing), firing)
    return work.promote(facts)


class _Promoting:
    """One promotion of a graph."""

    def __init__(self, connection: sqlite3.Connection, hand: ManualEdits, firing: Firing) -> None:
        self._connection = connection
        self._edits = hand
        self._rule_id = firing.rule_id
        self._known_state: KnownState = hand.known_state
        self._past = erased_scope_lookup(connection)
        self._said: dict[str, ManualAssertion] = {}

    def promote(self, facts: Sequence[Fact]) -> Promoted:
        self._said = {fact.id: checked(self._said_by(fact)) for fact in facts}
        at = self._edits.batch.at
        claims = [declaration(self._said[fact_id], at) for fact_id in sorted(self._said)]
        verdicts = self._verdicts(claims)
        for claim in claims:
            if verdicts[claim.fact_id] == "news":
                self._declare(self._said[claim.fact_id])
        outcome = self._edits.finish()
        return Promoted(
            self._current_facts(verdicts),
            outcome,
            unchanged=sum(verdict == "unchanged" for verdict in verdicts.values()),
            withheld=dict(_withheld(verdicts)),
        )

    def _said_by(self, fact: Fact) -> ManualAssertion:
        at = instant(self._edits.batch.at).isoformat()
        lineage = [{**entry, "promotion_ts": at} for entry in fact.lineage]
        return ManualAssertion(
            fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, lineage,
            dict(fact.metadata),
        )  # fmt: skip

    def _verdicts(self, claims: Sequence[Claim]) -> dict[str, Verdict]:
        known = self._known(claims)
        taken: dict[str, Verdict] = {}
        for claim in claims:
            if self._is_erased(self._said[claim.fact_id]):
                taken[claim.fact_id] = "forgotten"
            elif self._edits.is_taken(claim.fact_id, claim.owner):
                taken[claim.fact_id] = "id_taken"
            else:
                taken[claim.fact_id] = known.verdict(claim)
        return taken

    def _known(self, claims: Sequence[Claim]) -> PromotionState:
        """Load the state that the verdicts and the resolution need."""
        loaded, known_state = self._edits.batch.loaded, self._known_state
        histories = loaded.load_histories([claim.fact_id for claim in claims])
        loaded.load(self._candidates_of(claims))
        firings = {
            met.firing
            for evaluations in (
                *known_state.evaluations.values(),
                *(one.evaluations for one in histories.values()),
            )
            for met in evaluations
            if met.rule_id == MANUAL_RULE_ID
        }
        asked = {"numbers": orjson.dumps(sorted(firings)).decode()}
        speakers = dict(self._connection.execute(_SQL["rules_of_firings"], asked).fetchall())
        return PromotionState(known_state, histories, speakers, self._rule_id)

    @staticmethod
    def _candidates_of(claims: Sequence[Claim]) -> list[Candidate]:
        return [candidate_of(claim) for claim in claims]

    def _is_erased(self, said: ManualAssertion) -> bool:
        # A triple has no instant of its own, so every erasure of its scope covers it.
        return self._past is not None and self._past.covers(said.user, "", said.agent, _EVER)

    def _declare(self, said: ManualAssertion) -> None:
        self._edits.resolution.apply(candidate_of(self._edits.declared(said)))

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

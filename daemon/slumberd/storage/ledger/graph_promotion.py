"""Promote what a graph says as declared facts: all of it or nothing, and each triple once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.graph_promotion import Known, Promoted, Verdict, Withheld
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import ManualAssertion, declaration, incoming
from slumberd.consolidation.precedence import HANDS
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import instant
from slumberd.model.fact import Fact
from slumberd.model.firing import Firing
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.fact_rows import fact_from
from slumberd.storage.ledger.manual_edits import HandAtWork, checked
from slumberd.storage.sqlite.erased_scopes import forgotten_if_asked

_SQL = statements("ledger")
_EVER = -(2**63)


def promote(
    connection: sqlite3.Connection,
    facts: Sequence[Fact],
    depth: int,
    firing: Firing,
) -> Promoted:
    """Say what of some facts is news; inside of a transaction.

    Args:
        connection: Of facts.db.
        facts: What the triples of a graph become.
        depth: Links of lineage.
        firing: Its rule id is `core.hearsay.speaker_of` the rule.

    Raises:
        InputError: One cannot be kept as it is.
    """
    work = _Promoting(connection, HandAtWork(connection, depth, firing), firing)
    return work.promote(facts)


class _Promoting:
    """One promotion."""

    def __init__(self, connection: sqlite3.Connection, hand: HandAtWork, firing: Firing) -> None:
        self._connection = connection
        self._hand = hand
        self._me = firing.rule_id
        self._known_state: KnownState = hand.known_state
        self._past = forgotten_if_asked(connection)
        self._said: dict[str, ManualAssertion] = {}

    def promote(self, facts: Sequence[Fact]) -> Promoted:
        self._said = {fact.id: checked(self._said_by(fact)) for fact in facts}
        at = self._hand.batch.at
        claims = [declaration(self._said[fact_id], at) for fact_id in sorted(self._said)]
        verdicts = self._verdicts(claims)
        for claim in claims:
            if verdicts[claim.fact_id] == "news":
                self._say(self._said[claim.fact_id])
        outcome = self._hand.finish()
        return Promoted(
            self._standing(verdicts),
            outcome,
            unchanged=sum(verdict == "unchanged" for verdict in verdicts.values()),
            withheld=dict(_withheld(verdicts)),
        )

    def _said_by(self, fact: Fact) -> ManualAssertion:
        at = instant(self._hand.batch.at).isoformat()
        lineage = [{**entry, "promotion_ts": at} for entry in fact.lineage]
        return ManualAssertion(
            fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, lineage,
            dict(fact.metadata),
        )  # fmt: skip

    def _verdicts(self, claims: Sequence[Claim]) -> dict[str, Verdict]:
        known = self._known(claims)
        taken: dict[str, Verdict] = {}
        for claim in claims:
            if self._is_forgotten(self._said[claim.fact_id]):
                taken[claim.fact_id] = "forgotten"
            elif self._hand.is_taken(claim.fact_id, claim.owner):
                taken[claim.fact_id] = "id_taken"
            else:
                taken[claim.fact_id] = known.verdict(claim)
        return taken

    def _known(self, claims: Sequence[Claim]) -> Known:
        """Load all that the verdicts, and settling what is news, can need."""
        loaded, known_state = self._hand.batch.loaded, self._known_state
        histories = loaded.load_histories([claim.fact_id for claim in claims])
        loaded.load(self._met(claims))
        firings = {
            met.firing
            for evaluations in (
                *known_state.evaluations.values(),
                *(one.evaluations for one in histories.values()),
            )
            for met in evaluations
            if met.rule_id == HANDS
        }
        asked = {"numbers": orjson.dumps(sorted(firings)).decode()}
        speakers = dict(self._connection.execute(_SQL["rules_of_firings"], asked).fetchall())
        return Known(known_state, histories, speakers, self._me)

    @staticmethod
    def _met(claims: Sequence[Claim]) -> list[Candidate]:
        return [incoming(claim) for claim in claims]

    def _is_forgotten(self, said: ManualAssertion) -> bool:
        # A graph does not tell since when it says so: what was forgotten once stays forgotten.
        return self._past is not None and self._past.covers(said.user, "", said.agent, _EVER)

    def _say(self, said: ManualAssertion) -> None:
        self._hand.resolution.meet(incoming(self._hand.declared(said)))

    def _standing(self, verdicts: dict[str, Verdict]) -> list[Fact]:
        """Return the facts that stand by this rule's word."""
        found = []
        for fact_id, verdict in verdicts.items():
            standing = self._known_state.fact(fact_id) if verdict in ("news", "unchanged") else None
            if standing is not None:
                *row, metadata, pinned_at = fact_row(standing)
                found.append(fact_from((*row, pinned_at, metadata)))
        return found


def _withheld(verdicts: dict[str, Verdict]) -> Iterator[tuple[str, Withheld]]:
    for fact_id, verdict in verdicts.items():
        if verdict != "news" and verdict != "unchanged":  # mypy follows this one
            yield fact_id, verdict

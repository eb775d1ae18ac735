"""Decide which of a graph's triples are promoted to facts.

Pure. A promoted triple is a declared fact: its id alone identifies it, so several objects of one
predicate may be current. A triple is promoted once, and again only when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.manual import is_same_statement
from slumberd.consolidation.precedence import GRAPH, MANUAL_RULE_ID, Evaluation, History
from slumberd.consolidation.state import KnownState
from slumberd.model.fact import Fact
from slumberd.model.firing import Outcome

Withheld = Literal["erased", "id_taken", "pinned_over", "unpinned"]
"""Why a triple is not promoted: its scope was erased; another user, agent or channel holds its id;
a person corrected the fact of its id; a person retracted the fact."""

Verdict = Literal["news", "unchanged"] | Withheld
"""Whether a triple is promoted: it is new or changed; it was promoted before; or why not."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of a promotion.

    Attributes:
        facts: The current facts of the triples, by id, as they are stored.
        outcome: What was written; None when nothing was new.
        unchanged: How many triples were promoted before, and have not changed.
        withheld: Why triples were not promoted, by fact id.
    """

    facts: Sequence[Fact]
    outcome: Outcome | None = None
    unchanged: int = 0
    withheld: Mapping[str, Withheld] = field(default_factory=dict)


def ledger_rule_id(rule_id: str) -> str:
    """Return the ledger's rule id for the promotions of a graph rule."""
    return f"{GRAPH}{rule_id}"


def is_promotion(rule_id: str) -> bool:
    """Return whether a rule id of the ledger is that of a graph promotion."""
    return rule_id.startswith(GRAPH)


class PromotionState(NamedTuple):
    """What the ledger knows of the triples' fact ids and keys.

    Attributes:
        known_state: Their evaluations that were not undone.
        histories: Their complete histories, by fact id, with what was undone.
        edit_rule_ids: The rule ids of firings with manual edits, by the firing's number.
        rule_id: The ledger's rule id of this promotion.
    """

    known_state: KnownState
    histories: Mapping[str, History]
    edit_rule_ids: Mapping[int, str]
    rule_id: str

    def verdict(self, claim: Claim) -> Verdict:
        """Decide whether a claim is promoted; the caller has checked the owner of its id."""
        mine = self._current_claim(claim.fact_id)
        if self._manual_evaluations(claim.fact_id) and mine is None:
            return "pinned_over"
        if self._is_retracted(claim, mine):
            return "unpinned"
        own = self._own_evaluations(claim.fact_id)
        claims = [evaluation.claim for evaluation in own if evaluation.claim is not None]
        known = [earlier for earlier in (mine, *claims[-1:]) if earlier is not None]
        is_known = any(is_same_statement(earlier, claim) for earlier in known)
        return "unchanged" if is_known else "news"

    def _is_retracted(self, claim: Claim, mine: Claim | None) -> bool:
        """Return whether a person retracted a claim with this key and object."""
        if mine is None or (mine.key, mine.object) != (claim.key, claim.object):
            return False
        retractions = self._claims_of_people_that_name(claim.fact_id)
        return any(retraction.precedence > mine.precedence for retraction in retractions)

    def _manual_evaluations(self, fact_id: str) -> list[Evaluation]:
        known = self.known_state.evaluations.get(fact_id, ())
        return [edit for edit in known if edit.rule_id == MANUAL_RULE_ID and edit.claim is not None]

    def _is_own(self, evaluation: Evaluation) -> bool:
        return self.edit_rule_ids.get(evaluation.firing) == self.rule_id

    def _own_evaluations(self, fact_id: str) -> list[Evaluation]:
        history = self.histories.get(fact_id)
        return [] if history is None else [*filter(self._is_own, history.evaluations)]

    def _current_claim(self, fact_id: str) -> Claim | None:
        """Return this rule's last claim of an id, unless it was undone or overwritten."""
        edits = self._manual_evaluations(fact_id)
        return edits[-1].claim if edits and self._is_own(edits[-1]) else None

    def _claims_of_people_that_name(self, fact_id: str) -> list[Claim]:
        referrers = self.known_state.referrers.get(fact_id, ())
        edits = chain.from_iterable(map(self._manual_evaluations, referrers))
        return [
            edit.claim for edit in edits if edit.claim is not None and not self._is_promoted(edit)
        ]

    def _is_promoted(self, evaluation: Evaluation) -> bool:
        return is_promotion(self.edit_rule_ids.get(evaluation.firing, ""))

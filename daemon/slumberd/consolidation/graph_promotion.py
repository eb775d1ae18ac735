"""Decide which of a graph's triples are promoted: what is news, and what no person has spoken on.

Pure. A promoted triple is a declared fact: its id alone identifies it, so several objects of one
predicate are fine. It is said once, and again only when the graph says something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.manual import says_the_same
from slumberd.consolidation.precedence import GRAPH, HANDS, Evaluation, History
from slumberd.consolidation.state import KnownState
from slumberd.model.fact import Fact
from slumberd.model.record import Outcome

Withheld = Literal["forgotten", "id_taken", "pinned_over", "unpinned"]
"""Why a triple is not promoted: its scope was erased; another user, agent or channel holds its id;
a person corrected the fact of its id; a person retracted it."""

Verdict = Literal["news", "unchanged"] | Withheld


@dataclass(frozen=True, slots=True)
class Promoted:
    """What came of a promotion.

    Attributes:
        facts: Those of the triples that stand by it, by id; as they are stored.
        outcome: What was written; None when nothing was new.
        unchanged: How many were said before, and are not said again.
        withheld: Those that are not said, by fact id, and why.
    """

    facts: Sequence[Fact]
    outcome: Outcome | None = None
    unchanged: int = 0
    withheld: Mapping[str, Withheld] = field(default_factory=dict)


def speaker_of(rule_id: str) -> str:
    """Return the rule id under which the ledger keeps what a graph rule promotes."""
    return f"{GRAPH}{rule_id}"


def is_promotion(rule_id: str) -> bool:
    """Say whether the ledger's rule id is one of a promotion."""
    return rule_id.startswith(GRAPH)


class Known(NamedTuple):
    """What the ledger knows of the fact ids and keys at hand.

    Attributes:
        known_state: Their meetings that were not undone.
        histories: Per fact id of the triples everything, with what was undone.
        speakers: Under which rule id each firing that hands spoke in stands, by its number.
        me: The rule id of this promotion.
    """

    known_state: KnownState
    histories: Mapping[str, History]
    speakers: Mapping[int, str]
    me: str

    def verdict(self, claim: Claim) -> Verdict:
        """Say whether an act is promoted; whose id it is was looked at before."""
        mine = self._mine(claim.fact_id)
        if self._hands_on(claim.fact_id) and mine is None:
            return "pinned_over"
        if self._is_retracted(claim, mine):
            return "unpinned"
        said = [met.claim for met in self._all_mine(claim.fact_id) if met.claim is not None]
        known = [one for one in (mine, *said[-1:]) if one is not None]
        return "unchanged" if any(says_the_same(one, claim) for one in known) else "news"

    def _is_retracted(self, claim: Claim, mine: Claim | None) -> bool:
        """Say whether a person retracted the very belief that the graph states."""
        if mine is None or (mine.key, mine.object) != (claim.key, claim.object):
            return False
        retractions = self._claims_of_people_that_name(claim.fact_id)
        return any(one.precedence > mine.precedence for one in retractions)

    def _hands_on(self, fact_id: str) -> list[Evaluation]:
        met = self.known_state.evaluations.get(fact_id, ())
        return [one for one in met if one.rule_id == HANDS and one.claim is not None]

    def _is_mine(self, met: Evaluation) -> bool:
        return self.speakers.get(met.firing) == self.me

    def _all_mine(self, fact_id: str) -> list[Evaluation]:
        history = self.histories.get(fact_id)
        return [] if history is None else [one for one in history.evaluations if self._is_mine(one)]

    def _mine(self, fact_id: str) -> Claim | None:
        """Return what this rule said of an id last, unless it was undone or said over."""
        hands = self._hands_on(fact_id)
        return hands[-1].claim if hands and self._is_mine(hands[-1]) else None

    def _claims_of_people_that_name(self, fact_id: str) -> Iterator[Claim]:
        for referrer in self.known_state.referrers.get(fact_id, ()):
            said = (met for met in self._hands_on(referrer) if not self._is_promoted(met))
            yield from (met.claim for met in said if met.claim is not None)

    def _is_promoted(self, met: Evaluation) -> bool:
        return is_promotion(self.speakers.get(met.firing, ""))

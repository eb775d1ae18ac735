"""Decide what of a graph's triples is said: what is news, and nothing that a person has spoken on.

Pure. A promotion is said by a hand (`law.said_by`), so the law treats it as one; what is decided
here is whether it is said at all. It is said once: again only when it changes, or when what took
its place was the same rule's own word, which the graph does not say any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import orjson

from slumberd.core.act import ALL, HAND, Act, Stamp
from slumberd.core.fact import Fact
from slumberd.core.ground import Ground
from slumberd.core.hand import says_the_same
from slumberd.core.law import GRAPH, HANDS, Assertion, History, Meeting, MultiValued
from slumberd.core.record import Outcome
from slumberd.errors import PromotionError

Withheld = Literal["forgotten", "id_taken", "pinned_over", "unpinned"]
"""Why a triple is not said: its scope was forgotten; another user, agent or channel holds its id;
a person said something else in its place; a person took it out."""

Verdict = Literal["news", "unchanged"] | Withheld


@dataclass(frozen=True, slots=True)
class Promoted:
    """What came of a promotion.

    Attributes:
        facts: Those of the triples that stand by it, by id; as they are stored.
        outcome: What was written; None when nothing was new.
        unchanged: How many were said before, and are not said again.
        merged: How many say what another one says.
        withheld: Those that are not said, by fact id, and why.
    """

    facts: Sequence[Fact]
    outcome: Outcome | None = None
    unchanged: int = 0
    merged: int = 0
    withheld: Mapping[str, Withheld] = field(default_factory=dict)


def speaker_of(rule_id: str) -> str:
    """Return the rule id under which the ledger keeps what a graph rule promotes."""
    return f"{GRAPH}{rule_id}"


def is_promotion(rule_id: str) -> bool:
    """Say whether the ledger's rule id is one of a promotion."""
    return rule_id.startswith(GRAPH)


def one_of_each(acts: Iterable[Act], multi: MultiValued, rule_id: str) -> list[Act]:
    """Return the acts, one for each belief, by fact id: the surest, then the first by id.

    Args:
        acts: What the triples say.
        multi: Which keys hold several objects at once.
        rule_id: The rule, for errors.

    Raises:
        PromotionError: Two say different objects of a key that holds one.
    """
    chosen: dict[tuple[str, str], Act] = {}
    for act in sorted(acts, key=_surest_first):
        place = act.key, multi.slot(act.key, act.object)
        known = chosen.setdefault(place, act)
        if known.object != act.object:
            raise PromotionError(rule_id, _contradiction(known, act))
    return sorted(chosen.values(), key=lambda act: act.fact_id)


def _surest_first(act: Act) -> tuple[float, str]:
    return -act.confidence, act.fact_id


def _contradiction(one: Act, other: Act) -> str:
    subject, predicate = one.payload["subject"], one.payload["predicate"]
    objects = sorted(str(orjson.loads(act.object)) for act in (one, other))
    return (
        f"{subject!r} {predicate!r} is said of both {objects[0]!r} and {objects[1]!r}, and may hold"
        f" one object only: list {predicate!r} under 'multi_valued' of its channel, or narrow the"
        " query"
    )


class Known(NamedTuple):
    """What the ledger knows of the fact ids and keys at hand.

    Attributes:
        ground: Their meetings that were not undone, and the heads of their keys.
        histories: Per fact id of the triples everything, with what was undone.
        speakers: Under which rule id each firing that hands spoke in stands, by its number.
        me: The rule id of this promotion.
    """

    ground: Ground
    histories: Mapping[str, History]
    speakers: Mapping[int, str]
    me: str

    def verdict(self, act: Act) -> Verdict:
        """Say whether an act is said; whose id it is was looked at before."""
        mine = self._mine(act.fact_id)
        if why := self._spoken_on(act.fact_id, mine):
            return why
        if mine is not None and says_the_same(mine, act) and self._stands(act.fact_id):
            return "unchanged"
        said = [met.act for met in self._all_mine(act.fact_id) if met.act is not None]
        if said and says_the_same(said[-1], act):
            return "news" if mine is not None and self._gave_way_to_me(act) else "unchanged"
        return self._held_by_person(act, mine) or "news"

    def _hands_on(self, fact_id: str) -> list[Meeting]:
        met = self.ground.meetings.get(fact_id, ())
        return [one for one in met if one.rule_id == HANDS and one.act is not None]

    def _is_mine(self, met: Meeting) -> bool:
        return self.speakers.get(met.firing) == self.me

    def _all_mine(self, fact_id: str) -> list[Meeting]:
        history = self.histories.get(fact_id)
        return [] if history is None else [one for one in history.meetings if self._is_mine(one)]

    def _mine(self, fact_id: str) -> Act | None:
        """Return what this rule said of an id last, unless it was undone or said over."""
        hands = self._hands_on(fact_id)
        return hands[-1].act if hands and self._is_mine(hands[-1]) else None

    def _spoken_on(self, fact_id: str, mine: Act | None) -> Withheld | None:
        """Return how a person spoke on an id after this rule did."""
        if self._hands_on(fact_id) and mine is None:
            return "pinned_over"
        taken_out = any(
            fact_id in act.names and (mine is None or act.stamp > mine.stamp)
            for act in self._acts_of_people_that_name(fact_id)
        )
        return "unpinned" if taken_out else None

    def _acts_of_people_that_name(self, fact_id: str) -> Iterator[Act]:
        for namer in self.ground.namers.get(fact_id, ()):
            said = (met for met in self._hands_on(namer) if not self._is_promoted(met))
            yield from (met.act for met in said if met.act is not None)

    def _is_promoted(self, met: Meeting) -> bool:
        return is_promotion(self.speakers.get(met.firing, ""))

    def _stands(self, fact_id: str) -> bool:
        return self.ground.fact(fact_id) is not None

    def _gave_way_to_me(self, act: Act) -> bool:
        """Say whether what stands in an act's place is this rule's own word under another id."""
        top = self._standing(act)
        if top is None or top.fact_id == act.fact_id:
            return False
        met = self._said_in(top)
        return met is not None and self._is_mine(met)

    def _standing(self, act: Act) -> Assertion | None:
        slot = self.ground.multi.slot(act.key, act.object)
        return self.ground.standing(act.key).get(slot)

    def _said_in(self, top: Assertion) -> Meeting | None:
        """Return the hand's meeting that a top comes from; None when no hand said it."""
        hands = self._hands_on(top.fact_id)
        return next((one for one in hands if one.act and one.act.stamp == top.stamp), None)

    def _held_by_person(self, act: Act, mine: Act | None) -> Withheld | None:
        """Return how a person's word stands on a key that is news for this rule."""
        top = self._standing(act)
        met = self._said_in(top) if top else None
        if met is not None and not self._is_promoted(met):
            return "pinned_over"
        taken_out = any(self._is_persons(stamp, mine) for stamp in self._retractions(act))
        return "unpinned" if taken_out else None

    def _retractions(self, act: Act) -> Iterator[Stamp]:
        """Yield what reaches the belief that an act asserts, until something newer is said."""
        slots = self.ground.heads.get(act.key, {})
        for slot in {ALL, self.ground.multi.slot(act.key, act.object)} & slots.keys():
            reach = slots[slot].reach
            yield from (reach[what] for what in (act.object, ALL) if what in reach)

    @staticmethod
    def _is_persons(stamp: Stamp, mine: Act | None) -> bool:
        # Two that share an id name it; what this rule said so is nobody else's word.
        return stamp.rank == HAND and (mine is None or stamp != mine.stamp)

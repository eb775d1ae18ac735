"""`decide` on histories in memory: the current facts equal those of the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from slumberd.consolidation.claim import EPISODE, REFERRING
from slumberd.consolidation.incoming import Candidate, ClaimCandidate, evaluate
from slumberd.consolidation.precedence import MultiValued, newest_law
from slumberd.consolidation.resolution import Resolution, decide
from slumberd.consolidation.state import KnownState, keys_to_load
from slumberd.consolidation.withdrawal import withdraw_parts
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import StoppedError
from slumberd.model.firing import Counts
from slumberd.storage.ledger.state_loader import whole_known_state
from tests.consolidation.test_precedence_by_oracle import (
    CHANNELS,
    DEPTH,
    IDS,
    INTENTS,
    MULTI,
    OBJECTS,
    RULES,
)
from tests.support.builders import START, rule, version
from tests.support.oracle import claims_in, current_claims, is_withdrawn, replaced_ids
from tests.support.sample_sizes import amount

NAMES = [*IDS, "e1#1", "e2#2"]
HISTORIES = amount(1_000, full=5_000)


class History:
    """A random history of versions and firings, resolved in memory and by the oracle.

    Attributes:
        known: The state after the last batch.
        episodes: The newest version of each episode, as the oracle reads it.
        evaluated: Each rule's last evaluation of each episode: its version, and what it selected.
    """

    def __init__(self, seed: int, law: int = newest_law()) -> None:
        self._law = law
        self._random = random.Random(seed)
        self._multi = MultiValued(CHANNELS)
        self.known = KnownState(self._multi, DEPTH, law=law)
        self.episodes: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.evaluated: dict[str, dict[str, tuple[int, dict[str, Any] | None]]] = {}
        self._read = dict.fromkeys(RULES, 0)
        self._rows = 0

    def run(self, steps: int) -> None:
        """Put versions and fire rules, in random order."""
        for _ in range(steps):
            if self._random.random() < 0.5:
                self._put()
            else:
                self._fire(self._random.choice([*RULES]), self._random.randint(1, 4))

    def _put(self) -> None:
        eid = self._random.choice(IDS)
        self.episodes[eid] = {
            "id": eid,
            "user": "bob" if eid == "bobs" else "alice",
            "agent": "rag",
            "at": microseconds(START) + self._random.randint(0, 3),
            "tag": self._random.randint(0, 2),
            "metadata": self._metadata_with_triples(),
        }
        self.log.append(eid)

    def _metadata_with_triples(self) -> dict[str, Any]:
        metadata = dict(self._metadata()) if self._random.randint(0, 2) else {}
        if not self._random.randint(0, 2):
            metadata["triples"] = [
                dict(self._metadata()) for _ in range(self._random.randint(0, 3))
            ]
        if not self._random.randint(0, 7):
            metadata["withdrawn"] = "rewound"
        return metadata

    def _metadata(self) -> Iterator[tuple[str, Any]]:
        pick = self._random.choice
        if pick(range(10)):
            yield "subject", pick(["s", "s", "s", "t/u", "", None])
            yield "predicate", pick(["is", "likes"])
        if pick(range(4)):
            yield "object", pick(OBJECTS)
        if not pick(range(6)):
            yield "object_words", [pick("AB")]
        if intent := pick(INTENTS):
            yield "intent", intent
            yield "replaces", pick([None, pick(IDS), [pick(NAMES)], [pick(NAMES), pick(IDS)]])
        if pick(range(2)):
            yield "confidence", 0.5

    def _fire(self, name: str, limit: int) -> None:
        fired, matches = RULES[name]
        after = self._read[name]
        upto = min(after + limit, len(self.log))
        newest = {eid: seq for seq, eid in enumerate(self.log, start=1)}
        wanted = {eid: seq for eid, seq in newest.items() if after < seq <= upto}
        versions = [self._version(eid, seq, matches) for eid, seq in wanted.items()]
        self._decide(fired, versions)
        self._read[name] = upto
        known = self.evaluated.setdefault(fired.id, {})
        for each in versions:
            episode = self.episodes[each.id]
            readable = bool(claims_in(episode, "facts"))
            states = each.matched and not is_withdrawn(episode["metadata"])
            if states or known.get(each.id, (0, None))[1] is not None:
                known[each.id] = each.seq, episode if states and readable else None

    def _decide(self, fired: Any, versions: list[EpisodeVersion]) -> None:
        number, at = self._rows + 1, microseconds(START) + self._rows
        recorded = {
            id: [each.claim for each in found if each.claim]
            for id, found in self.known.evaluations.items()
        }
        candidates = {
            name: [*found, *withdraw_parts(found, self.known, recorded)]
            for name, found in self._evaluate(versions, fired).items()
        }
        for found in candidates.values():
            for key in keys_to_load(found, self.known):
                self.known.complete_keys.setdefault(key, set())  # a key that is new
        decision = decide(candidates, self.known, number=number, at=at)
        self._rows = decision.rows[-1].seq if decision.rows else number
        evaluations = {id: [*found] for id, found in self.known.evaluations.items() if found}
        claims = [(name, id) for id, found in evaluations.items() for e in found if e.claim
                  for name in e.claim.names]  # fmt: skip
        self.known = whole_known_state(evaluations, claims, self._multi, DEPTH, law=self._law)

    def _evaluate(self, versions: list[EpisodeVersion], fired: Any) -> dict[str, list[Candidate]]:
        """Return the candidates; under law 1 each claim has the rank of what it names itself."""
        found = evaluate(versions, fired)
        if self._law > 1:
            return found
        return {name: [*map(with_own_rank, candidates)] for name, candidates in found.items()}

    def _version(self, eid: str, seq: int, matches: Any) -> EpisodeVersion:
        episode = self.episodes[eid]
        return EpisodeVersion(
            seq, eid, episode["user"], "s1", episode["agent"], episode["at"], "text", "node",
            episode["metadata"], matches(episode["tag"]),
        )  # fmt: skip

    def expected(self) -> dict[str, tuple[Any, ...]]:
        """Return the current facts by the oracle: object, confidence, and what they replace."""
        claims = []
        for channel in CHANNELS:
            for eid in self.episodes:
                found = [
                    (evaluated[eid][0], fired.id, evaluated[eid][1])
                    for fired, _ in RULES.values()
                    if channel in fired.then_emits
                    if eid in (evaluated := self.evaluated.get(fired.id, {}))
                ]
                newest = max((seq for seq, _, _ in found), default=0)
                now = [(rule_id, said) for seq, rule_id, said in found if seq == newest and said]
                if now:
                    rules = tuple(sorted(rule_id for rule_id, _ in now))
                    claims += claims_in(now[0][1], channel, rules)
        return {
            id: (
                claim.object,
                claim.confidence,
                replaced_ids(claim, claims, MULTI, DEPTH, self._law),
            )
            for id, claim in current_claims(claims, MULTI, self._law).items()
        }

    def found(self) -> dict[str, tuple[Any, ...]]:
        """Return the same of the state after the last batch."""
        facts = (self.known.fact(id) for id in self.known.evaluations)
        return {
            fact.fact_id: (
                fact.effective.claim.payload.get("object"),
                fact.effective.claim.confidence,
                [link["replaces"] for link in fact.trail],
            )
            for fact in facts
            if fact is not None
        }


def with_own_rank(candidate: Candidate) -> Candidate:
    if not isinstance(candidate, ClaimCandidate):
        return candidate
    claim = candidate.claim
    rank = REFERRING if claim.names else EPISODE
    precedence = claim.precedence._replace(rank=rank)
    return candidate._replace(claim=claim._replace(precedence=precedence))


@pytest.mark.slow
def test_facts_of_random_histories_equal_those_of_the_oracle_of_law_1() -> None:
    for seed in range(HISTORIES):
        history = History(seed, law=1)
        history.run(steps=16)

        assert history.found() == history.expected(), f"seed {seed}"


@pytest.mark.slow
def test_facts_of_random_histories_equal_those_of_the_oracle() -> None:
    for seed in range(HISTORIES):
        history = History(seed)
        history.run(steps=16)

        assert history.found() == history.expected(), f"seed {seed}"


def test_cancelled_decision_raises() -> None:
    with pytest.raises(StoppedError):
        decide(
            evaluate([version()], rule()),
            KnownState(MultiValued({}), DEPTH),
            number=1,
            at=0,
            cancelled=lambda: True,
        )


def test_decision_counts_each_channel_and_lists_its_rows_in_order() -> None:
    versions = [version("e1"), version("e2", seq=2, metadata={"intent": "?"})]
    fired = rule(then_emits=["facts", "notes"])

    decision = decide(evaluate(versions, fired), KnownState(MultiValued({}), DEPTH), number=7, at=0)

    assert decision.counts == {
        "facts": Counts(read=2, added=1, quarantined=1),
        "notes": Counts(read=2, added=1, quarantined=1),
    }
    assert [(row.seq, row.effect) for row in decision.rows] == [
        (8, "add"), (9, "quarantine"), (10, "add"), (11, "quarantine"),
    ]  # fmt: skip
    assert {fact.fact_id for fact in decision.facts} == {"e1", "@notes/e1"}


def test_history_whose_withdrawals_are_ignored_differs_from_the_oracle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Resolution, "_apply_unmatched", lambda *_: None)

    with pytest.raises(AssertionError, match="seed"):
        test_facts_of_random_histories_equal_those_of_the_oracle()

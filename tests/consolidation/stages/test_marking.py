"""Stages together: what they hide from each other, and what a change of an episode takes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.stages.entries import Entry
from slumberd.consolidation.stages.marking import MarkChanges, decide_marks
from slumberd.model.stages import (
    Decay,
    Dedup,
    Importance,
    KnownMark,
    KnownMarks,
    KnownWeight,
    Mark,
    Stage,
    Summarise,
    Weight,
)
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.unit

NOW = datetime(1970, 1, 2, tzinfo=UTC)
HOUR = 3_600 * 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTHING = MarkChanges([], [], {}, [], [], [])
STAGES: Sequence[Stage] = (
    Dedup(method="exact"),
    Decay(half_life=3_600, threshold=0.001),
    Importance(below=0.2),
    Summarise(when_more_than=2, max_tokens=9),
)


def entry(id: str, content: str, hour: int = 20, importance: float = 0.5, **fields: str) -> Entry:
    session = fields.get("session", "s1")
    digest = sha256(content.encode()).hexdigest()
    return Entry(id, session, content, hour * HOUR, importance, digest=digest)


class Memory:
    """Episodes and marks, as one rule sees them after each call."""

    def __init__(self, *entries: Entry) -> None:
        self.entries = {entry.id: entry for entry in entries}
        self.known = KnownMarks()
        self.unselected: set[str] = set()

    def decide(self, stages: Sequence[Stage] = STAGES, at: datetime = NOW) -> MarkChanges:
        """Run the stages, and apply what they change."""
        selected = [one for one in self.entries.values() if one.id not in self.unselected]
        found = decide_marks(selected, stages, self.known, at, unselected=self.unselected)
        marks = dict(self.known.marks) | {mark.id: KnownMark(mark, True) for mark in found.marks}
        for id in found.unmarked:
            del marks[id]
        weights = dict(self.known.weights)
        weights |= {weight.id: KnownWeight(weight, True) for weight in found.weights}
        for id in found.unweighted:
            del weights[id]
        summaries = dict(self.known.summaries)
        summaries |= {name: summary.ids for name, summary in found.summaries.items()}
        for name in found.dropped:
            del summaries[name]
        self.known = KnownMarks(marks, summaries, weights)
        return found

    def put(self, *entries: Entry) -> None:
        """Write episodes."""
        self.entries |= {entry.id: entry for entry in entries}

    def mark_by_another(self, id: str) -> None:
        """Mark an episode as another rule does."""
        found = KnownMark(Mark(id, "archived", "decayed", ""), False)
        self.known = self.known._replace(marks={**self.known.marks, id: found})

    def weight_by_another(self, id: str) -> None:
        """Weight an episode as another rule does."""
        found = KnownWeight(Weight(id, 0.25, ""), False)
        self.known = self.known._replace(weights={**self.known.weights, id: found})

    @property
    def factors(self) -> dict[str, float]:
        """The weight of each episode that has one."""
        return {id: weight.factor for id, (weight, _) in self.known.weights.items()}

    @property
    def kinds(self) -> dict[str, tuple[str, str]]:
        """What is said of each episode."""
        return {id: (mark.kind, mark.object) for id, (mark, _) in self.known.marks.items()}


def test_each_stage_sees_what_no_earlier_stage_has_marked() -> None:
    memory = Memory(
        entry("e1", "same", 1, 0.9),
        entry("e2", "same", 2, 0.0),
        entry("e3", "old", 1),
        entry("e4", "poor", 20, 0.1),
        *(entry(f"s{n}", f"turn {n}", 20) for n in range(4)),
    )

    found = memory.decide()

    # The kept repeat has the higher importance of both, so it is neither old nor poor.
    assert memory.kinds == {
        "e1": ("duplicate_of", "e2"),
        "e2": ("summarised_into", "@summaries/e2"),
        "e3": ("archived", "decayed"),
        "e4": ("archived", "unimportant"),
        **{f"s{n}": ("summarised_into", "@summaries/e2") for n in range(3)},
    }
    assert [*found.summaries] == ["@summaries/e2"]
    assert found.marks[0].id == "e1"


def test_important_episode_that_repeats_an_archived_one_stays() -> None:
    memory = Memory(entry("e2", "same", 2))
    memory.decide()
    memory.put(entry("e1", "same", 1, 0.9))

    memory.decide()

    assert memory.kinds == {"e2": ("archived", "decayed")}


def test_duplicates_stay_when_the_kept_episode_is_archived() -> None:
    memory = Memory(*(entry(f"e{n}", "same", 20) for n in range(3)))
    memory.decide()

    found = memory.decide(at=NOW + timedelta(days=9))
    again = memory.decide(at=NOW + timedelta(days=9))

    assert [mark.id for mark in found.marks] == ["e2"]
    assert again == NOTHING
    assert memory.kinds == {
        "e0": ("duplicate_of", "e2"), "e1": ("duplicate_of", "e2"), "e2": ("archived", "decayed"),
    }  # fmt: skip


def test_importance_of_duplicates_of_duplicates_is_passed_on() -> None:
    memory = Memory(entry("e1", "same", 1, 0.9), entry("e2", "same", 2))
    memory.decide()
    memory.put(entry("e3", "same", 3, 0.0))

    memory.decide()
    memory.decide(at=NOW + timedelta(days=9))

    assert memory.kinds == {"e1": ("duplicate_of", "e2"), "e2": ("duplicate_of", "e3")}


def test_newer_repeat_of_an_archived_episode_stays() -> None:
    memory = Memory(entry("e1", "same", 1))
    memory.decide()
    memory.put(entry("e2", "same", 20))

    memory.decide()

    assert memory.kinds == {"e1": ("archived", "decayed")}


def test_purged_episodes_leave_their_summary_as_it_is() -> None:
    memory = Memory(*(entry(f"s{n}", f"turn {n}") for n in range(3)))
    memory.decide()
    del memory.entries["s0"], memory.entries["s1"]
    before = memory.known

    found = memory.decide()

    assert found == NOTHING
    assert memory.known == before
    memory.known = memory.known._replace(anew=True)
    assert memory.decide().dropped == []


def test_marks_are_decided_anew_when_asked() -> None:
    memory = Memory(*(entry(f"s{n}", f"turn {n}") for n in range(3)), entry("e1", "old", 1))
    memory.decide()
    memory.known = memory.known._replace(anew=True)

    found = memory.decide([])

    assert found == MarkChanges([], ["e1", "s0", "s1"], {}, ["@summaries/s0"], [], [])


def test_mark_of_another_hides_and_stays() -> None:
    memory = Memory(entry("e1", "same", 1), entry("e2", "same", 2))
    memory.mark_by_another("e2")

    memory.decide()

    assert memory.kinds == {"e2": ("archived", "decayed"), "e1": ("archived", "decayed")}


def test_texts_without_a_sentence_are_not_summarised() -> None:
    memory = Memory(*(entry(f"s{n}", " " * (n + 1), importance=n / 9) for n in range(2, 6)))

    memory.decide([Summarise(when_more_than=2)])

    assert memory.kinds == {}


REWEIGHT = Decay(action="reweight", half_life=3_600, threshold=0.05)


def test_weight_is_halved_with_each_half_life_and_no_further_than_the_threshold() -> None:
    memory = Memory(*(entry(f"e{hour:02}", "text", hour) for hour in range(16, 26)))

    memory.decide([REWEIGHT])

    assert memory.factors == {
        "e16": 2**-5, "e17": 2**-5, "e18": 2**-5, "e19": 2**-5, "e20": 2**-4, "e21": 2**-3,
        "e22": 2**-2, "e23": 2**-1,
    }  # fmt: skip
    assert memory.kinds == {}


def test_important_episode_has_no_weight_and_neither_has_the_kept_one_of_its_duplicates() -> None:
    memory = Memory(entry("e1", "same", 1, 0.9), entry("e2", "same", 2), entry("e3", "old", 3))

    memory.decide([Dedup(), REWEIGHT])

    assert memory.factors == {"e3": 2**-5}


@pytest.mark.parametrize(
    "later",
    [
        [Dedup(method="exact")],
        [Decay(half_life=3_600)],
        [Importance(below=0.9)],
        [Summarise(when_more_than=1)],
    ],
    ids=["repeated", "archived", "unimportant", "summarised"],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_weighted_episode_is_seen_by_other_stages_and_its_mark_replaces_its_weight(
    later: list[Stage], at_once: bool
) -> None:
    memory = Memory(*(entry(f"e{n}", "Ann met Bob.", 1) for n in range(22)))
    if not at_once:
        memory.decide([REWEIGHT])
        assert memory.factors.keys() == memory.entries.keys()

    found = memory.decide([REWEIGHT, *later])

    assert len(memory.kinds) >= 2
    assert memory.factors.keys() == memory.entries.keys() - memory.kinds.keys()
    assert bool(found.unweighted) != at_once
    assert memory.decide([REWEIGHT, *later]) == NOTHING


def test_weight_of_an_edited_episode_is_that_of_its_new_instant() -> None:
    memory = Memory(entry("e1", "first", 20), entry("e2", "second", 20), entry("e3", "third", 20))
    memory.decide([REWEIGHT])
    memory.put(entry("e1", "new", 24), entry("e2", "new", 20))
    memory.unselected = {"e3"}

    found = memory.decide([REWEIGHT])

    assert found.unweighted == ["e1", "e3"]
    assert [weight.id for weight in found.weights] == ["e2"]
    assert memory.factors == {"e2": 2**-4}


def test_weight_of_another_rule_counts_and_stays() -> None:
    memory = Memory(entry("e1", "first", 1), entry("e2", "second", 1))
    memory.weight_by_another("e1")

    found = memory.decide([REWEIGHT])
    later = memory.decide([Importance(below=0.9)])

    assert [weight.id for weight in found.weights] == ["e2"]
    assert (later.unweighted, memory.factors) == (["e2"], {"e1": 0.25})


def test_purged_episode_leaves_its_weight_as_it_is() -> None:
    memory = Memory(entry("e1", "first", 1))
    memory.decide([REWEIGHT])
    del memory.entries["e1"]

    assert memory.decide([REWEIGHT]) == NOTHING


@pytest.mark.slow
@settings(max_examples=amount(100, full=1_000))
@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=30),
    st.floats(0.001, 1.0),
    st.integers(1, 50),
)
def test_any_nights_give_one_episode_at_most_as_many_weights_as_there_are_steps(
    nights: list[int], threshold: float, half_life: int
) -> None:
    stage = Decay(action="reweight", half_life=half_life * 3_600, threshold=threshold)
    memory = Memory(entry("e1", "text", 0))
    made: list[float] = []

    for night in sorted(nights):
        found = memory.decide([stage], EPOCH + timedelta(hours=night))
        made += [weight.factor for weight in found.weights]
        steps = [n for n in range(11) if n == 0 or 2.0 ** -(n - 1) > threshold]
        expected = 2.0 ** -min(night // half_life, steps[-1])
        assert memory.factors == ({"e1": expected} if expected < 1 else {})

    assert made == sorted(set(made), reverse=True)
    assert len(made) <= math.ceil(-math.log2(threshold))


def test_weight_without_a_threshold_stays_above_zero() -> None:
    memory = Memory(entry("e1", "text", 0))

    memory.decide([Decay(action="reweight", half_life=0.001, threshold=0)])

    assert memory.factors == {"e1": 2.0**-1074}


def test_kept_episode_that_a_duplicate_protects_gets_no_weight() -> None:
    important, kept = entry("e0", "tea", 0, 1.0), entry("e1", "tea", 15, 0.0)
    memory = Memory(important, kept)

    memory.decide([REWEIGHT, Dedup(method="exact")])

    assert [*memory.known.marks] == ["e0"]
    assert memory.factors == {}
    assert memory.decide([REWEIGHT, Dedup(method="exact")]) == NOTHING


ids = st.sampled_from([f"e{n}" for n in range(8)])
entries = st.builds(
    entry,
    ids,
    st.sampled_from(["tea", "milk", "Ann likes tea.", "Bob met Ann in Oslo.", ""]),
    st.integers(0, 24),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    session=st.sampled_from(["s1", "s2"]),
)
steps = st.one_of(
    st.tuples(st.just("put"), entries),
    st.tuples(st.just("purge"), ids),
    st.tuples(st.just("unselect"), ids),
    st.tuples(st.just("select"), ids),
    st.tuples(st.just("mark"), ids),
    st.tuples(st.just("weight"), ids),
    st.tuples(st.just("anew"), st.none()),
)


@pytest.mark.slow
@settings(max_examples=amount(200, full=3_000))
@given(st.permutations([*STAGES, None]), st.lists(st.lists(steps, max_size=6), max_size=6))
def test_any_history_settles_at_once_and_loses_nothing(
    order: Sequence[Stage | None], rounds: list[list[tuple[str, object]]]
) -> None:
    # A rule has one decay: here a second one stands for that of any rule.
    stages = [stage or REWEIGHT for stage in order]
    memory = Memory()
    for some in rounds:
        for name, value in some:
            _do(memory, name, value)
        foreign = {id for id, found in memory.known.marks.items() if not found.own}
        weighted = {id: one for id, one in memory.known.weights.items() if not one.own}

        found = memory.decide(stages)

        assert not foreign & {mark.id for mark in found.marks}
        assert not foreign & {*found.unmarked}
        for id, (mark, own) in memory.known.marks.items():
            if not own or id not in memory.entries or id in memory.unselected:
                assert not own or id not in memory.unselected
                continue
            assert mark.digest.startswith(memory.entries[id].digest)
            if mark.kind == "duplicate_of":
                assert memory.entries[mark.object].content == memory.entries[id].content
                assert mark.object not in memory.unselected
            if mark.kind == "summarised_into":
                assert id in memory.known.summaries[mark.object]
        assert weighted.items() <= memory.known.weights.items()
        _check_own_weights(memory)
        memory.known = memory.known._replace(anew=False)
        assert memory.decide(stages) == NOTHING


def _check_own_weights(memory: Memory) -> None:
    """Expect that no episode has a weight that is hidden, unselected, or edited since."""
    for id, (weight, own) in memory.known.weights.items():
        if own and id in memory.entries:
            assert id not in memory.unselected
            assert id not in memory.known.marks
            assert weight.digest == memory.entries[id].digest


def _do(memory: Memory, name: str, value: object) -> None:
    match name, value:
        case "put", Entry():
            memory.put(value)
        case "purge", str():
            memory.entries.pop(value, None)
            memory.unselected.discard(value)
        case "unselect", str():
            memory.unselected |= memory.entries.keys() & {value}
        case "select", str():
            memory.unselected.discard(value)
        case "mark", str():
            memory.mark_by_another(value)
        case "weight", str():
            memory.weight_by_another(value)
        case _:
            memory.known = memory.known._replace(anew=True)

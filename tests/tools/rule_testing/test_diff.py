"""`slumberd diff` equals the difference of two consolidations from scratch."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.episode import Episode, instant
from slumberd.model.fact import FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import channel_of
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.tools.rule_testing.diff import find_differences
from slumberd.tools.rule_testing.preview import copy_data
from tests.support.builders import START, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.random_histories import MULTI, episodes
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

CLOCK = FakeClock(START + timedelta(days=1))
FILTERS = [
    "",
    "predicate = 'is'",
    "object = 'a' OR intent = 'delete'",
    "object != 'b' AND intent IS NULL",
    "metadata LIKE '%replaces%' OR object = 'c'",
]
CHANNELS = [["facts"], ["notes"], ["facts", "notes"]]

Facts = dict[str, tuple[Any, ...]]
Differences = set[tuple[str, str | None, str | None]]


@dataclass(frozen=True)
class Case:
    """The present rules and the candidate rules of a diff."""

    present: RuleSet
    candidate: RuleSet


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return two sets of rules; the candidate removes or disables no rule or channel."""
    present, candidate = [], []
    for name in "ab"[: draw(st.integers(1, 2))]:
        old, new = draw(st.permutations(FILTERS))[:2]
        channels = draw(st.sampled_from(CHANNELS))
        more = sorted({*channels, *draw(st.sampled_from(CHANNELS))})
        match draw(st.sampled_from(["changed", "changed", "changed", "added", "enabled", "same"])):
            case "changed":
                present.append(rule(name, when_filter=old, then_emits=channels))
                candidate.append(rule(name, when_filter=new, then_emits=more))
            case "added":
                candidate.append(rule(name, when_filter=new, then_emits=more))
            case "enabled":
                present.append(rule(name, when_filter=old, then_emits=more, enabled=False))
                candidate.append(rule(name, when_filter=old, then_emits=more))
            case _:
                present.append(rule(name, when_filter=old, then_emits=more))
                candidate.append(present[-1])
    return Case(set_of(draw, present), set_of(draw, candidate))


@st.composite
def drawn_episodes(draw: st.DrawFn) -> Episode:
    """Return an episode with one of twelve ids, so that edits and references are frequent."""
    values = draw(episodes())
    more = draw(st.sampled_from(["", "-b", "-c"]))
    fields = {"session": "s", "content": f"text {values['tag']}", "source_node": "node"}
    own_fields = {name: values[name] for name in ("user", "agent", "metadata")}
    return Episode(id=values["id"] + more, timestamp=instant(values["at"]), **fields, **own_fields)


def set_of(draw: st.DrawFn, rules: Sequence[ConsolidationRule]) -> RuleSet:
    return RuleSet(tuple(rules), draw(st.sampled_from([{}, MULTI])), {})


async def consolidate(home: OpenStores, rules: RuleSet) -> None:
    await home.facts.ledger.set_channels(rules.multi_valued, at=START)
    for each in rules.rules:
        if each.enabled:
            await home.fire(each)


async def consolidate_from_scratch(
    folder: Path, history: Sequence[Episode], rules: RuleSet
) -> Facts:
    """Return the current facts after the rules have evaluated the whole history."""
    async with open_stores(folder) as home:
        for episode in history:
            await home.put(episode)
        await consolidate(home, rules)
        found = await home.facts.query(FactPattern())
    return {fact.id: (fact.user, fact.agent, fact.payload, fact.confidence) for fact in found}


def expected(before: Facts, after: Facts) -> Differences:
    """Return the differences by brute force, as the documentation defines them."""
    gone, come = before.keys() - after.keys(), after.keys() - before.keys()
    changed = {fact for fact in before.keys() & after.keys() if before[fact] != after[fact]}
    keys = Counter([*(key_of(before, fact) for fact in gone), *(key_of(after, f) for f in come)])
    pairs = {
        (old, new)
        for old in gone
        for new in come
        if key_of(before, old) == key_of(after, new) and keys[key_of(before, old)] == 2
    }
    paired = {fact for pair in pairs for fact in pair}
    return {
        *(("~", old, new) for old, new in pairs),
        *(("~", fact, fact) for fact in changed),
        *(("-", fact, None) for fact in gone - paired),
        *(("+", None, fact) for fact in come - paired),
    }


def key_of(facts: Facts, fact: str) -> tuple[Any, ...]:
    user, agent, payload, _ = facts[fact]
    return user, agent, channel_of(fact), payload["subject"], payload["predicate"]


async def run_diff(folder: Path, history: Sequence[Episode], case: Case, half: int) -> Differences:
    """Return the differences of a diff on a store that has evaluated half of the history."""
    async with open_stores(folder) as home:
        for episode in history[:half]:
            await home.put(episode)
        await consolidate(home, case.present)
        for episode in history[half:]:
            await home.put(episode)
    async with find_differences(
        Settings(state_dir=folder, rules_dir=folder), case.present, case.candidate,
        clock=CLOCK, show_step=lambda _: None,
    ) as found:  # fmt: skip
        listed = [
            (
                difference.sign,
                difference.old and difference.old.fact_id,
                difference.new and difference.new.fact_id,
            )
            async for difference in found.facts.differences()
        ]
        signs = Counter(sign for sign, *_ in listed)
        assert found.totals[:3] == (signs["+"], signs["~"], signs["-"])
    assert len(listed) == len({*listed})
    return {*listed}


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(5, full=30), deadline=None)
@given(
    history=st.lists(drawn_episodes(), min_size=6, max_size=15),
    case=cases(),
    half=st.integers(0, 15),
)
def test_diff_equals_the_difference_of_two_consolidations(
    history: list[Episode], case: Case, half: int
) -> None:
    async def main(folder: Path) -> None:
        for name in ("before", "after", "live"):
            (folder / name).mkdir()
        before = await consolidate_from_scratch(folder / "before", history, case.present)
        after = await consolidate_from_scratch(folder / "after", history, case.candidate)

        assert await run_diff(folder / "live", history, case, half) == expected(before, after)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


@pytest.mark.slow
async def test_watermarks_of_a_copy_are_never_beyond_its_log(tmp_path: Path) -> None:
    async def say(name: str) -> None:
        async with open_stores(tmp_path) as home:
            await home.put(triple(name, name, "is", name))
            await home.fire()

    def go_on(words: str) -> None:
        # A thread calls this function before it copies each database.
        asyncio.run(say(words))

    await say("e1")
    place = Settings(state_dir=tmp_path, rules_dir=tmp_path)
    async with copy_data(place, CLOCK, go_on) as copy:
        mark = await copy.stores.facts.watermarks.position("all")
        newest = await copy.stores.memory.newest()
        _, _, broken = await copy.stores.facts.verify()

    assert mark is not None
    assert (mark.seq, newest.seq, broken) == (2, 3, None)


@pytest.mark.slow
async def test_diff_tells_each_of_its_steps(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("e1", "alice", "drinks", "tea"))
        await home.fire()
    present, candidate = (
        RuleSet((rule("all", when_filter=text),), {}, {}) for text in ("", "predicate = 'drinks'")
    )
    steps: list[str] = []

    async with find_differences(
        Settings(state_dir=tmp_path, rules_dir=tmp_path), present, candidate,
        clock=CLOCK, show_step=steps.append,
    ):  # fmt: skip
        pass

    assert steps == [
        "copying facts.db",
        "copying memory.db",
        "firing all",
        "backfilling all",
        "firing all",
        "comparing the facts",
    ]

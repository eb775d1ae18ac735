"""What became of the episodes that a rule read last is counted from its batches, on each engine."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.episode import Episode
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LATEST, Readings, Share
from slumberd.rules.pattern_loader import extraction_of
from slumberd.rules.yaml_reader import read_document
from tests.support.builders import at, episode, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

PATTERNS = """
patterns:
  - {id: likes, when: "I like (?P<what>[a-z]+)", \
says: {subject: ada, predicate: likes, object: "{what}"}}
"""
SORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "learned": ("I like tea", {}),
    "said_nothing": ("It rains", {}),
    "filtered": ("no", {}),
    "quarantined": ("x", {"intent": "shout"}),
    "several": ("x", {"triples": [{"subject": "ada", "predicate": p, "object": 1} for p in "ab"]}),
}
"""What episodes of each sort say, and state."""


def said(number: int, sort: str) -> Episode:
    content, metadata = SORTS[sort]
    # A later restatement of a fact would be learned, too; each subject is new.
    if sort == "learned":
        content = f"I like {'abcdefghijklmnopqrstuvwxyz'[number % 26] * (number // 26 + 1)}"
    if sort == "several":
        named = [{**one, "subject": f"s{number}"} for one in metadata["triples"]]
        metadata = {"triples": named}
    return episode(f"e{number}", content=content, metadata=metadata, timestamp=at(number))


def reading(folder: Path, **overrides: Any) -> ConsolidationRule:
    file = folder / "patterns.yaml"
    file.write_text(PATTERNS)
    extract = extraction_of(read_document(file))
    return rule("talk", extract=extract, when_filter="content != 'no'", **overrides)


async def readings(home: OpenStores, *rules: str) -> dict[str, Readings]:
    return await home.facts.reads.readings([*rules] or ["talk"])


@pytest.mark.parametrize("emits", [["facts"], ["facts", "notes"]], ids=["one", "two"])
async def test_each_sort_of_episode_is_counted_once(
    provider: Provider, tmp_path: Path, emits: list[str]
) -> None:
    fired = reading(tmp_path, then_emits=emits)
    async with open_stores(provider) as home:
        await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(0))
        await home.put(*(said(n, sort) for n, sort in enumerate(SORTS)))
        await home.fire(fired)

        found = await readings(home)

    expected = Readings(5, learned=2, said_nothing=1, filtered=1, quarantined=1, unchanged=0)
    assert found == {"talk": expected}


async def test_fact_that_a_newer_one_holds_is_unchanged(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(triple("e2", "ada", "lives_in", "Rome", timestamp=at(9)))
        await home.fire()
        await home.put(triple("e1", "ada", "lives_in", "Oslo"))
        await home.fire()

        found = await readings(home, "all")

    assert found == {"all": Readings(2, learned=1, unchanged=1)}


async def test_rule_that_never_fired_has_no_readings(provider: Provider) -> None:
    async with open_stores(provider) as home:
        assert await readings(home) == {}


async def test_only_the_last_batches_count(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*(triple(f"a{n}", f"s{n}", "is", n) for n in range(3)))
        await home.fire()
        await home.put(*(episode(f"b{n}", metadata={"intent": "noop"}) for n in range(LATEST)))
        await home.fire()

        found = await readings(home, "all")

    assert found == {"all": Readings(LATEST, unchanged=LATEST)}


async def test_share_counts_each_of_the_last_episodes_once_over_several_rules(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        for first in (0, LATEST):
            several = range(first, first + LATEST)
            await home.put(*(triple(f"e{n}", f"s{n}", "is", n) for n in several))
            await home.fire(rule("even", when_filter="object % 2 = 0"))
            await home.fire(rule("third", when_filter="object % 3 = 0", then_emits=["notes"]))

        found = await home.facts.reads.share(["even", "third", "never"])

    learned = [n for n in range(LATEST, 2 * LATEST) if n % 2 == 0 or n % 3 == 0]
    assert found == Share(LATEST, len(learned))


@settings(max_examples=amount(8, full=60), deadline=None)
@given(
    sorts=st.lists(st.sampled_from([*SORTS]), max_size=12),
    cuts=st.sets(st.integers(0, 12)),
)
async def test_readings_are_the_sum_over_the_episodes_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, sorts: list[str], cuts: set[int]
) -> None:
    counts = Counter(sorts)
    folder = tmp_path_factory.mktemp("readings")
    async with open_stores(folder) as home:
        fired = reading(folder)
        await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(0))
        for number, sort in enumerate(sorts):
            await home.put(said(number, sort))
            if number in cuts:
                await home.fire(fired)
        await home.fire(fired)

        found = await readings(home)
        share = await home.facts.reads.share(["talk"])

    shutil.rmtree(folder)
    learned = counts["learned"] + counts["several"]
    expected = Readings(
        len(sorts), learned, counts["said_nothing"], counts["filtered"], counts["quarantined"]
    )
    assert found == ({"talk": expected} if sorts else {})
    assert share == Share(len(sorts), learned)

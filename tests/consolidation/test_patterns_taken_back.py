"""What one pattern learned is told apart from what a program stated, and can be taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.pattern_loader import extraction_of
from slumberd.rules.yaml_reader import read_document
from slumberd.search.fact_index import trust_of_fact
from tests.support.builders import at, episode, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

HOME = """\
  - id: home
    when: 'I live in (?P<place>\\pL+)'
    says: {subject: '{speaker}', predicate: lives_in, object: '{place}'}
    confidence: 0.9
"""
MOVE = """\
  - id: move
    when: 'I moved to (?P<place>\\pL+)'
    says: {subject: '{speaker}', predicate: lives_in, object: '{place}'}
    confidence: 0.8
"""
QUIT = """\
  - id: quit
    when: 'I left (?P<place>\\pL+)'
    says: {subject: '{speaker}', predicate: lives_in, object: '{place}'}
    intent: delete
"""


def reading(folder: Path, *patterns: str) -> ConsolidationRule:
    """Return a rule that reads text with some patterns."""
    file = folder / "patterns.yaml"
    file.write_text("patterns:\n" + "".join(patterns))
    return rule("said", extract=extraction_of(read_document(file)))


def said(id: str, text: str, minute: int) -> Episode:
    return episode(id, source_node="user", content=text, timestamp=at(minute))


async def learned(home: OpenStores, **slots: Any) -> dict[str, Fact]:
    return {
        str(fact.payload["object"]): fact for fact in await home.facts.query(FactPattern(**slots))
    }


async def test_what_a_pattern_learned_names_it_with_its_words_and_a_confidence(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "Hi. I live in Oslo.", 0), triple("e2", "bob", "likes", "tea"))
        await home.fire(reading(tmp_path, HOME))

        found = await learned(home)
        of_pattern = await learned(home, extracted_by="home")

    assert found.keys() == {"Oslo", "tea"}
    assert of_pattern.keys() == {"Oslo"}
    assert found["Oslo"].payload["extracted"] == {"by": "home", "span": [4, 18]}
    assert [(fact.confidence, trust_of_fact(fact)) for fact in found.values()] == [
        (0.9, "extracted"), (1.0, "derived"),
    ]  # fmt: skip


async def test_backfill_without_a_pattern_takes_back_all_that_it_learned(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(
            said("e1", "I live in Oslo.", 0),
            said("e2", "I moved to Rome. I live in Rome, too.", 1),
            said("e3", "I moved to Bergen.", 2),
        )
        await home.fire(reading(tmp_path, HOME, MOVE))
        before = await learned(home)

        await home.consolidator.backfill(reading(tmp_path, HOME), at(9), by="ann")

        assert before.keys() == {"Bergen"}
        assert (await learned(home)).keys() == {"Rome"}
        assert await learned(home, extracted_by="move") == {}
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_backfill_without_a_pattern_brings_back_what_it_had_retracted(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "I live in Oslo.", 0), said("e2", "I left Oslo.", 1))
        await home.fire(reading(tmp_path, HOME, QUIT))
        before = await learned(home)

        await home.consolidator.backfill(reading(tmp_path, HOME), at(9), by="ann")

        assert (before, [*await learned(home)]) == ({}, ["Oslo"])


async def test_backfill_with_the_pattern_again_learns_the_same_again(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "I live in Oslo.", 0), said("e2", "I moved to Bergen.", 1))
        await home.fire(reading(tmp_path, HOME, MOVE))
        first = await home.objects()
        await home.consolidator.backfill(reading(tmp_path, HOME), at(8), by="ann")

        await home.consolidator.backfill(reading(tmp_path, HOME, MOVE), at(9), by="ann")

        assert await home.objects() == first == {"e2#1": "Bergen"}

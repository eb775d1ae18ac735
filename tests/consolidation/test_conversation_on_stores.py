"""What people say becomes facts, on real stores."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.predicates import ManyBut
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.vocabulary_loader import conversation_extraction, vocabulary_of
from slumberd.rules.yaml_reader import read_document_text
from tests.support.builders import START, at, episode, rule
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

EXTRACTION = conversation_extraction({})
SAYS: ConsolidationRule = rule("all", extract=EXTRACTION)


def said(minute: int, content: str, speaker: str = "user", **overrides: Any) -> Episode:
    return episode(
        f"e{minute}", content=content, timestamp=at(minute), metadata={"speaker": speaker},
        **overrides,
    )  # fmt: skip


async def facts_of(home: OpenStores) -> list[tuple[object, object, object]]:
    found = await home.facts.query(FactPattern())
    parts = ("subject", "predicate", "object")
    return sorted(tuple(fact.payload[part] for part in parts) for fact in found)


async def learned(home: OpenStores, *episodes: Episode) -> list[tuple[object, object, object]]:
    """Return the facts after some episodes, where the vocabulary says how many values each has."""
    await home.facts.ledger.set_channels({"facts": ManyBut(EXTRACTION.single_valued)}, at=START)
    await home.put(*episodes)
    await home.fire(SAYS, when=at(999))
    return await facts_of(home)


async def test_home_is_replaced_and_a_second_allergy_is_not(provider: Provider) -> None:
    async with open_stores(provider) as home:
        found = await learned(
            home,
            said(1, "I live in Porto and I'm allergic to peanuts."),
            said(2, "I moved to Kraków last month. I'm also allergic to shellfish!"),
        )

        assert found == [
            ("alice", "allergic_to", "peanuts"),
            ("alice", "allergic_to", "shellfish"),
            ("alice", "lives_in", "Kraków"),
        ]


async def test_every_pattern_names_itself_and_its_sentence(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await learned(home, said(1, "Hi! My sister lives in Rome."))

        found = {fact.payload["predicate"]: fact for fact in await home.facts.query(FactPattern())}
        where = {name: fact.payload["extracted"] for name, fact in found.items()}
        assert where == {
            "has_sibling": {"by": "conversation/implied", "span": [4, 28]},
            "lives_in": {"by": "conversation/lives_in", "span": [4, 28]},
        }
        assert {fact.confidence for fact in found.values()} == {0.8, 0.9}


@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_speaker_takes_the_last_turn_back(provider: Provider, batch: int) -> None:
    async with open_stores(provider, batch=batch) as home:
        found = await learned(
            home,
            said(1, "I live in Porto."),
            said(2, "I moved to Leeds."),
            said(3, "Nice!", "assistant"),
            said(4, "Sorry, I meant York."),
        )

        assert found == [("alice", "lives_in", "York")]


@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_what_a_turn_that_is_taken_back_replaced_does_not_return(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch) as home:
        found = await learned(
            home,
            said(1, "I live in Porto."),
            said(2, "I moved to Leeds."),
            said(3, "I live in Rome.", session="s2"),
            said(4, "Scratch that, I was joking."),
        )

        assert found == [("alice", "lives_in", "Rome")]


@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        ("My partner is Tom.", "We broke up.", [("marital_status", "single")]),
        ("I work at Acme.", "I got fired.", []),
        ("I like tea.", "I hate tea.", [("dislikes", "tea")]),
        ("I drink coffee.", "I quit drinking coffee.", [("avoids", "coffee")]),
        ("I'm planning a trip to Tokyo.", "The Tokyo trip got cancelled.", []),
        ("I'm vegan.", "I'm not vegan anymore.", []),
    ],
)
async def test_stated_retraction_retracts(
    provider: Provider, first: str, then: str, left: list[tuple[str, str]]
) -> None:
    async with open_stores(provider) as home:
        found = await learned(home, said(1, first), said(2, then))

        assert [pair for _, *pair in found] == [[*pair] for pair in left]


async def test_retraction_counts_from_the_person_only(provider: Provider) -> None:
    async with open_stores(provider) as home:
        found = await learned(
            home, said(1, "I live in Porto.", "bob"), said(2, "I don't live in Porto.", "bob")
        )

        assert found == [("bob", "lives_in", "Porto")]


async def test_backfill_without_a_predicate_takes_its_facts_back(provider: Provider) -> None:
    words = vocabulary_of(read_document_text("remove: [likes]", "words.yaml"))
    without = SAYS.model_copy(update={"extract": conversation_extraction({}, words)})
    async with open_stores(provider) as home:
        await learned(home, said(1, "I love sushi and I live in Porto."))

        await home.consolidator.backfill(without, at(1_000), by="ada")

        assert await facts_of(home) == [("alice", "lives_in", "Porto")]


async def test_she_is_whom_the_last_turn_of_the_speaker_named(provider: Provider) -> None:
    async with open_stores(provider, batch=1) as home:
        found = await learned(
            home,
            said(1, "My sister is visiting."),
            said(2, "What does she do?", "assistant"),
            said(3, "She's a vet, she lives in Rome."),
        )

        assert found == [
            ("alice", "has_sibling", "sister"),
            ("alice's sister", "job", "vet"),
            ("alice's sister", "lives_in", "Rome"),
        ]


async def test_short_answer_counts_after_its_question(provider: Provider) -> None:
    async with open_stores(provider) as home:
        found = await learned(
            home, said(1, "Where do you live?", "assistant"), said(2, "Porto. And you?")
        )

        assert found == [("alice", "lives_in", "Porto")]

"""An episode that its speaker took back claims nothing, on real stores of each engine."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.model.firing import START as FIRST
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.search.searcher import Searcher
from tests.support.builders import at, episode, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

REWOUND = {"withdrawn": "rewound"}


def lives_in(id: str, place: str, second: int, **metadata: Any) -> Episode:
    return triple(id, "ada", "lives_in", place, timestamp=at(second), metadata=metadata)


async def test_what_it_replaced_is_current_again_until_it_counts_again(provider: Provider) -> None:
    async with open_stores(provider) as home:
        found = []
        for put in (
            lives_in("e1", "Lisbon", 1),
            lives_in("e2", "Porto", 2),
            lives_in("e2", "Porto", 2, **REWOUND),
            lives_in("e2", "Porto", 2),
        ):
            await home.put(put)
            await home.fire()
            found.append(await home.objects())

    assert found == [{"e1": "Lisbon"}, {"e2": "Porto"}, {"e1": "Lisbon"}, {"e2": "Porto"}]


async def test_retraction_that_was_taken_back_retracts_nothing(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(lives_in("e1", "Lisbon", 1), lives_in("e2", "Lisbon", 2, intent="delete"))
        await home.fire()
        retracted = await home.objects()
        await home.put(lives_in("e2", "Lisbon", 2, intent="delete", **REWOUND))
        await home.fire()

        assert (retracted, await home.objects()) == ({}, {"e1": "Lisbon"})


async def test_all_its_triples_go(provider: Provider) -> None:
    said = {"triples": [{"subject": "ada", "predicate": "likes", "object": "tea"}]}
    async with open_stores(provider) as home:
        await home.put(lives_in("e1", "Lisbon", 1, **said))
        await home.fire()
        before = await home.objects()
        await home.put(lives_in("e1", "Lisbon", 1, **said, **REWOUND))
        await home.fire()

        assert (before, await home.objects()) == ({"e1": "Lisbon", "e1#1": "tea"}, {})


@pytest.mark.parametrize("when_filter", ["", "content LIKE '%'"], ids=["no filter", "filter"])
async def test_no_rule_selects_it(provider: Provider, when_filter: str) -> None:
    asking = rule("all", when_filter=when_filter)
    async with open_stores(provider) as home:
        await home.put(lives_in("e1", "Lisbon", 1, **REWOUND), lives_in("e2", "Porto", 2))

        read = await home.memory.select(asking, after=FIRST, limit=9)
        owned = await home.memory.ids_by_owner(asking)
        deltas = await home.memory.consolidate(asking)

    assert [one.id for one in read.versions if one.matched] == ["e2"]
    assert [*owned.values()] == [["e2"]]
    assert [[*delta.source_episode_ids] for delta in deltas] == [["e2"]]


async def test_extraction_takes_nothing_from_it(provider: Provider) -> None:
    def said(id: str, content: str, **metadata: Any) -> Episode:
        return episode(id, content=content, metadata={"speaker": "user", **metadata})

    async with open_stores(provider) as home:
        await home.put(said("e1", "My sister is a nurse.", **REWOUND), said("e2", "I am a cook."))
        await home.fire(rule("all", extract=conversation_extraction({})))

        assert [*await home.objects()] == ["e2#1"]


async def test_search_and_context_leave_it_out(provider: Provider) -> None:
    async with open_stores(provider) as home:
        searcher = Searcher(home.memory, home.facts, language="english")
        found = []
        for metadata in ({}, REWOUND, {}):
            await home.put(episode("e1", content="The parrot is green", metadata=metadata))
            hits = await searcher.search("parrot", user="alice")
            context = await searcher.context("What about yesterday?", user="alice", budget=500)
            found.append((len(hits), "parrot" in context.text))

    assert found == [(1, True), (0, False), (1, True)]


async def test_only_a_text_takes_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        values: list[Any] = ["", None, False, 7, [], {"a": 1}]
        for n, value in enumerate(values):
            await home.put(lives_in(f"e{n}", f"place {n}", n, withdrawn=value))
            await home.fire()

            assert [*await home.objects()] == [f"e{n}"]


async def test_audit_replays_what_was_taken_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        for metadata in ({}, REWOUND, {}, REWOUND):
            await home.put(lives_in("e1", "Lisbon", 1, **metadata), lives_in("e0", "Porto", 0))
            await home.fire()

        assert await home.objects() == {"e0": "Porto"}
        *_, first_bad = await home.facts.verify()
        assert first_bad is None

"""The ledger says which claims of quoted episodes are superseded, and what replaced them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.manual import Assert, ManualAssertion, ManualBatch
from slumberd.model.episode import Episode, microseconds
from slumberd.model.extraction import Extracted, Extraction, Turn
from slumberd.model.fact import Fact, FactPattern, QuotedEpisode, SupersededByEpisode
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.providers import AnyFactStore, AnyMemoryStore, Provider

pytestmark = pytest.mark.integration

SEVERAL = {"facts": frozenset({"likes"})}


class Stores(NamedTuple):
    """Open stores, and a clock that is later than all episodes."""

    memory: AnyMemoryStore
    facts: AnyFactStore
    clock: FakeClock

    async def fire(self, *episodes: Episode, by: ConsolidationRule | None = None) -> None:
        """Put episodes, and fire a rule."""
        await self.memory.put_many(episodes)
        consolidator = Consolidator(
            self.memory, self.facts, FakeDeltaLog(), self.clock, batch=1_000
        )
        await consolidator.fire(FireRequest(by or rule(), "cron", self.clock.now()))
        self.clock.advance(60)

    async def found(self, *episodes: Episode, **then: Any) -> SupersededByEpisode:
        quoted = [QuotedEpisode(one.id, one.user, one.agent, one.content) for one in episodes]
        return await self.facts.find_superseded(quoted, **then)

    async def shown(self, *episodes: Episode, **then: Any) -> dict[str, list[tuple[Any, ...]]]:
        by_episode = await self.found(*episodes, **then)
        return {
            id: [(one.object, one.kind, one.by, one.fact_id) for one in episode.superseded]
            for id, episode in by_episode.items()
        }


@pytest_asyncio.fixture
async def stores(provider: Provider) -> AsyncIterator[Stores]:
    clock = FakeClock(START + timedelta(days=1))
    async with provider.memory(clock=clock) as memory, provider.facts(clock=clock) as facts:
        await memory.bootstrap()
        await facts.bootstrap()
        await facts.ledger.set_channels(SEVERAL, at=clock.now())
        yield Stores(memory, facts, clock)


def says(id: str, place: str, seconds: float, **overrides: Any) -> Episode:
    return triple(id, "mira", "lives_in", place, timestamp=at(seconds), **overrides)


def likes(id: str, what: str, seconds: float, **overrides: Any) -> Episode:
    return triple(id, "mira", "likes", what, timestamp=at(seconds), **overrides)


async def test_replaced_claim_names_what_replaced_it_and_when(stores: Stores) -> None:
    oslo, braga = says("e1", "Oslo", 1), says("e2", "Braga", 2)
    await stores.fire(oslo, braga)

    by_episode = await stores.found(oslo, braga)

    assert set(by_episode) == {"e1"}
    assert by_episode["e1"].is_whole
    [found] = by_episode["e1"].superseded
    assert (found.subject, found.predicate, found.object) == ("mira", "lives_in", "Oslo")
    assert (found.kind, found.by, found.fact_id) == ("replaced", "Braga", "e2")
    assert found.at == at(2)
    assert found.text == "mira lives in Braga"


async def test_order_of_arrival_does_not_matter(stores: Stores) -> None:
    oslo, braga = says("e1", "Oslo", 1), says("e2", "Braga", 2)
    await stores.fire(braga)
    await stores.fire(oslo)

    assert await stores.shown(oslo, braga) == {"e1": [("Oslo", "replaced", "Braga", "e2")]}


async def test_episode_names_the_value_that_is_current_now(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1), says("e2", "Bergen", 2), says("e3", "Braga", 3)]
    await stores.fire(*told)

    found = await stores.shown(*told)

    assert found == {
        "e1": [("Oslo", "replaced", "Braga", "e3")],
        "e2": [("Bergen", "replaced", "Braga", "e3")],
    }


async def test_restated_claim_says_nothing(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1), says("e2", "Bergen", 2), says("e3", "Oslo", 3)]
    await stores.fire(*told)

    assert set(await stores.found(*told)) == {"e2"}


async def test_values_side_by_side_say_nothing(stores: Stores) -> None:
    told = [likes("e1", "tea", 1), likes("e2", "chess", 2)]
    await stores.fire(*told)

    assert await stores.found(*told) == {}


@pytest.mark.parametrize("make", [says, likes])
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"intent": "delete"}, id="delete of an object"),
        pytest.param({"intent": "delete", "object": None}, id="delete by key"),
        pytest.param(
            {"intent": "delete", "object": None, "object_words": ["a"]}, id="delete by words"
        ),
        pytest.param({"intent": "delete", "replaces": ["e1"]}, id="delete by id"),
    ],
)
async def test_retracted_claim_says_so(stores: Stores, make: Any, metadata: dict[str, Any]) -> None:
    told, gone = make("e1", "a b", 1), make("e2", "a b", 2, metadata=metadata)
    await stores.fire(told, gone)

    by_episode = await stores.found(told, gone)

    assert set(by_episode) == {"e1"}
    [found] = by_episode["e1"].superseded
    assert (found.object, found.kind, found.by, found.at) == ("a b", "retracted", None, at(2))
    assert found.fact_id == "e2"
    assert found.text == f"mira {'lives in' if make is says else 'likes'} a b"


async def test_update_that_names_an_episode_replaces_a_value_among_several(
    stores: Stores,
) -> None:
    tea = likes("e1", "tea", 1)
    coffee = likes("e2", "coffee", 2, metadata={"intent": "update", "replaces": ["e1"]})
    chai = likes("e3", "chai", 3, metadata={"intent": "update", "replaces": ["e2"]})
    await stores.fire(tea, coffee)
    assert await stores.shown(tea, coffee) == {"e1": [("tea", "replaced", "coffee", "e2")]}

    await stores.fire(chai)

    assert await stores.shown(tea, coffee, chai) == {
        "e1": [("tea", "replaced", "chai", "e3")],
        "e2": [("coffee", "replaced", "chai", "e3")],
    }


async def test_replacement_of_another_key_is_named_in_words(stores: Stores) -> None:
    old = triple("e1", "mira", "resides", "Oslo", timestamp=at(1))
    new = says("e2", "Braga", 2, metadata={"intent": "update", "replaces": ["e1"]})
    await stores.fire(old, new)

    [found] = (await stores.found(old))["e1"].superseded

    assert (found.predicate, found.by, found.text) == ("resides", "Braga", "mira lives in Braga")


async def test_set_replaces_every_value(stores: Stores) -> None:
    told = [likes("e1", "tea", 1), likes("e2", "chess", 2)]
    only = likes("e3", "go", 3, metadata={"intent": "set"})
    await stores.fire(*told, only)

    assert await stores.shown(*told, only) == {
        "e1": [("tea", "replaced", "go", "e3")],
        "e2": [("chess", "replaced", "go", "e3")],
    }


async def test_replacement_that_was_retracted_leaves_no_value(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1), says("e2", "Braga", 2)]
    gone = says("e3", "Braga", 3, metadata={"intent": "delete"})
    await stores.fire(*told, gone)

    assert await stores.shown(*told) == {
        "e1": [("Oslo", "retracted", None, "e3")],
        "e2": [("Braga", "retracted", None, "e3")],
    }


class Homes:
    """Extracts where somebody lives, and that it is over."""

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        del before
        return [[_home_in(turn.content)] for turn in turns]


def _home_in(text: str) -> Extracted:
    span = (0, len(text))
    if text.startswith("I live in "):
        return Extracted("mira", "lives_in", text.removeprefix("I live in "), "add", span, "test")
    return Extracted("mira", "lives_in", None, "delete", span, "test")


async def test_claim_that_a_rule_found_in_a_text_is_superseded_like_a_stated_one(
    stores: Stores,
) -> None:
    extracting = rule(extract=Extraction("patterns", "test", Homes(), reads_previous=False))
    oslo, braga = (
        episode(f"e{n}", content=f"I live in {place}", timestamp=at(n))
        for n, place in enumerate(["Oslo", "Braga"], start=1)
    )
    await stores.fire(oslo, braga, by=extracting)
    assert await stores.shown(oslo, braga) == {"e1": [("Oslo", "replaced", "Braga", "e2#1")]}

    await stores.fire(episode("e3", content="I live nowhere", timestamp=at(3)), by=extracting)

    assert await stores.shown(oslo, braga) == {
        "e1": [("Oslo", "retracted", None, "e3#1")],
        "e2": [("Braga", "retracted", None, "e3#1")],
    }


async def test_each_of_several_claims_says_its_own(stores: Stores) -> None:
    both = says("e1", "Oslo", 1, metadata={
        "triples": [{"subject": "mira", "predicate": "works_at", "object": "Acme"}]
    })  # fmt: skip
    moved = says("e2", "Braga", 2)
    await stores.fire(both, moved)

    episode = (await stores.found(both, moved))["e1"]
    assert not episode.is_whole
    assert [(one.object, one.by) for one in episode.superseded] == [("Oslo", "Braga")]

    await stores.fire(triple("e3", "mira", "works_at", "Bolt", timestamp=at(3)))

    episode = (await stores.found(both, moved))["e1"]
    assert episode.is_whole
    assert [(one.object, one.by) for one in episode.superseded] == [
        ("Oslo", "Braga"), ("Acme", "Bolt"),
    ]  # fmt: skip


async def test_value_that_gave_way_to_several_names_them_all(stores: Stores) -> None:
    old = triple("e1", "mira", "speaks", "German", timestamp=at(1))
    new = triple("e2", "mira", "speaks", "Swedish", timestamp=at(2), metadata={
        "triples": [{"subject": "mira", "predicate": "speaks", "object": "English"}]
    })  # fmt: skip
    await stores.fire(old, new)

    assert await stores.shown(old, new) == {
        "e1": [("German", "replaced", "Swedish", "e2"), ("German", "replaced", "English", "e2#1")]
    }


async def test_person_who_corrects_or_retracts_says_so(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1), likes("e2", "tea", 2), likes("e3", "chess", 3)]
    await stores.fire(*told)
    right = {"subject": "mira", "predicate": "lives_in", "object": "Braga"}
    lineage = [{"by": "ann"}]
    corrected = Fact(
        id="c1", user="alice", agent="rag", payload=right, lineage=lineage, confidence=1.0,
        pinned_at=START,
    )  # fmt: skip
    await stores.facts.correct(corrected, by="ann", reason="she moved")
    await stores.facts.retract("e2", by="ann", reason="a joke")

    by_episode = await stores.found(*told)

    assert {
        id: [(one.kind, one.by) for one in episode.superseded] for id, episode in by_episode.items()
    } == {
        "e1": [("replaced", "Braga")],
        "e2": [("retracted", None)],
    }
    assert by_episode["e1"].superseded[0].fact_id == "c1"
    assert by_episode["e2"].superseded[0].at == stores.clock.now()


async def test_person_who_replaces_every_value_says_so_on_each(stores: Stores) -> None:
    told = [likes("e1", "tea", 1), likes("e2", "chess", 2)]
    await stores.fire(*told)
    only = ManualAssertion(
        "c1", "alice", "rag", {"subject": "mira", "predicate": "likes", "object": "go"}, 1.0,
        [{"by": "ann"}], None,
    )  # fmt: skip
    await stores.facts.apply_deltas(ManualBatch([Assert(only, only=True)], "ann"))

    assert await stores.shown(*told) == {
        "e1": [("tea", "replaced", "go", "c1")],
        "e2": [("chess", "replaced", "go", "c1")],
    }


async def test_correction_of_the_fact_itself_replaces_its_episode(stores: Stores) -> None:
    told = says("e1", "Oslo", 1)
    await stores.fire(told)
    [fact] = await stores.facts.query(FactPattern(id="e1"))
    await stores.facts.correct(
        fact.model_copy(update={"payload": {**fact.payload, "object": "Braga"}}),
        by="ann", reason="she moved",
    )  # fmt: skip

    assert await stores.shown(told) == {"e1": [("Oslo", "replaced", "Braga", "e1")]}


async def test_what_is_withdrawn_says_nothing(stores: Stores) -> None:
    oslo = says("e1", "Oslo", 1)
    await stores.fire(oslo, says("e2", "Braga", 2))
    assert await stores.found(oslo)

    await stores.fire(says("e2", "Braga", 2, metadata={"withdrawn": "rewound"}))

    assert await stores.found(oslo) == {}


async def test_undone_firing_says_nothing(stores: Stores) -> None:
    oslo = says("e1", "Oslo", 1)
    await stores.fire(oslo)
    await stores.fire(says("e2", "Braga", 2))
    last = (await stores.facts.reads.records())[-1]

    now = stores.clock.now()
    await stores.facts.ledger.undo(last.firing_id, at=now, by="me", dry_run=False)

    assert await stores.found(oslo) == {}


async def test_erased_replacement_says_nothing_and_no_text(stores: Stores) -> None:
    oslo = says("e1", "Oslo", 1)
    await stores.fire(oslo, says("e2", "Braga", 2, session="s2"))
    scope = ScopeFilter.of("alice", "s2", None)

    await stores.facts.erasures.forget(
        scope,
        ["e2"],
        moment=microseconds(stores.clock.now()),
        at=stores.clock.now(),
        by="me",
        dry_run=False,
    )

    assert await stores.found(oslo) == {}


async def test_program_that_overwrites_a_fact_replaces_what_its_episode_said(
    stores: Stores,
) -> None:
    told, other = says("e1", "Oslo", 1), likes("e2", "tea", 2)
    await stores.fire(told, other)
    lineage = [{"rule_id": "host", "source_episode_ids": []}]
    payload = {"subject": "mira", "predicate": "lives_in", "object": "Braga"}
    await stores.facts.pin(
        Fact(
            id="e1", user="alice", agent="rag", payload=payload, lineage=lineage, confidence=1.0,
            pinned_at=START,
        )
    )  # fmt: skip
    await stores.facts.unpin("e2")

    by_episode = await stores.found(told, other)

    assert [(one.kind, one.by) for one in by_episode["e1"].superseded] == [("replaced", "Braga")]
    assert [(one.kind, one.by) for one in by_episode["e2"].superseded] == [("retracted", None)]


async def test_declared_fact_that_says_the_same_keeps_a_sentence_true(stores: Stores) -> None:
    told = says("e1", "Oslo", 1)
    await stores.fire(told, says("e2", "Braga", 2))
    payload = {"subject": "mira", "predicate": "lives_in", "object": "Oslo"}
    lineage = [{"rule_id": "host", "source_episode_ids": []}]
    await stores.facts.pin(
        Fact(
            id="d1", user="alice", agent="rag", payload=payload, lineage=lineage, confidence=1.0,
            pinned_at=START,
        )
    )  # fmt: skip

    assert await stores.found(told) == {}


async def test_earlier_instant_knows_no_later_replacement(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1), says("e2", "Bergen", 3), says("e3", "Braga", 5)]
    await stores.fire(*told)

    assert await stores.found(*told[:1], valid_at=at(2)) == {}
    assert await stores.shown(*told[:2], valid_at=at(4)) == {
        "e1": [("Oslo", "replaced", "Bergen", "e2")]
    }


async def test_new_text_that_no_rule_has_read_says_nothing(stores: Stores) -> None:
    told = [says("e1", "Oslo", 1, content="I live in Oslo"), says("e2", "Braga", 2)]
    await stores.fire(*told)
    edited = says("e1", "Rome", 4, content="I live in Rome")

    assert await stores.found(edited) == {}


async def test_other_scope_replaces_nothing(stores: Stores) -> None:
    mine, theirs = says("e1", "Oslo", 1), says("e2", "Braga", 2, user="bob")
    agents = says("e3", "Rome", 3, agent="other")
    await stores.fire(mine, theirs, agents)

    assert await stores.found(mine, theirs, agents) == {}
    as_if_mine = says("e2", "Braga", 2)
    await stores.fire(says("e4", "Porto", 4, user="bob"))
    assert set(await stores.found(theirs)) == {"e2"}
    assert await stores.found(as_if_mine) == {}


async def test_episode_that_no_rule_evaluated_says_nothing(stores: Stores) -> None:
    assert await stores.found(says("e1", "Oslo", 1)) == {}
    assert await stores.found() == {}

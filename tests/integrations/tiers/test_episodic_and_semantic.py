"""The episodic and the semantic tier, on slumberd's own stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd import FactPattern, SQLiteFactStore
from slumberd.tiers import (
    DurableFactStore,
    EntityExtractor,
    EpisodicMemoryConfig,
    EpisodicMemoryStore,
    FactExtractionError,
    FactStore,
    HealthStatus,
    InMemoryMemoryBackend,
    MemoryQuery,
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryStoreError,
    MemoryWrittenHook,
    SemanticMemoryStore,
    Triple,
)
from tests.support.broken_memory import BROKEN, BrokenBackend
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids

pytestmark = pytest.mark.integration


def objects(found: list[dict[str, Any]]) -> list[str]:
    return sorted(fact["object_"] for fact in found)


async def test_recorded_entry_is_recalled_by_its_text(in_memory: InMemoryMemoryBackend) -> None:
    episodic = EpisodicMemoryStore(in_memory)
    await episodic.record(entry("tea", "Ada drinks tea", owner_id="ada"))
    await episodic.record(entry("soap", "eggs and soap", owner_id="ada"))

    assert ids(await episodic.recall("tea", owner_id="ada")) == ["tea", "soap"]
    assert await episodic.recall("tea", owner_id="bob") == []
    await episodic.forget("tea", owner_id="bob")
    await episodic.forget("soap", owner_id="ada")
    assert ids(await episodic.recall(MemoryQuery("", owner_id="ada"))) == ["tea"]


@pytest.mark.parametrize(
    ("weight", "first"),
    [
        ("recency_weight", "new"),
        ("importance_weight", "important"),
        ("relevance_weight", "relevant"),
    ],
)
async def test_weight_of_the_configuration_decides_what_is_recalled(
    in_memory: InMemoryMemoryBackend, weight: str, first: str
) -> None:
    weights = {"recency_weight": 0.0, "importance_weight": 0.0, "relevance_weight": 0.0}
    config = EpisodicMemoryConfig(default_top_k=1, **{**weights, weight: 1.0})
    episodic = EpisodicMemoryStore(in_memory, config)
    await episodic.record(entry("new", "eggs", importance=0.1))
    await episodic.record(entry("important", "soap", importance=1, age=9_999))
    await episodic.record(entry("relevant", "tea", importance=0.1, age=9_999))

    assert ids(await episodic.recall("tea")) == [first]


async def test_episodic_entry_expires_as_configured(
    in_memory: InMemoryMemoryBackend, clock: FakeClock
) -> None:
    episodic = EpisodicMemoryStore(in_memory, EpisodicMemoryConfig(ttl_seconds=60), clock=clock)
    await episodic.record(entry("short"))
    await episodic.record(entry("long", expires_at=START + timedelta(hours=1)))

    clock.advance(60)

    assert ids(await episodic.recall("")) == ["long"]


async def test_subscriber_is_told_after_the_write(
    in_memory: InMemoryMemoryBackend, clock: FakeClock
) -> None:
    told: list[object] = []
    episodic = EpisodicMemoryStore(in_memory, on_event=told.append, clock=clock)

    await episodic.record(entry("e1"))
    await episodic.recall("content")

    assert told[:2] == [
        MemoryStoredEvent(memory_id="e1", memory_type="episodic", occurred_at=START),
        MemoryWrittenHook(tier="episodic", backend="in_memory"),
    ]
    [searched, hook] = told[2:]
    assert isinstance(searched, MemoryRetrievedEvent)
    assert (searched.results_count, searched.occurred_at) == (1, START)
    assert hook == MemoryRetrievedHook(tier="episodic", result_count=1)


async def test_subscriber_is_not_told_of_a_write_that_failed(clock: FakeClock) -> None:
    told: list[object] = []
    full = InMemoryMemoryBackend(max_entries=0, clock=clock)

    with pytest.raises(Exception, match="0 entries"):
        await EpisodicMemoryStore(full, on_event=told.append).record(entry("e1"))

    assert told == []


async def test_subscriber_that_fails_fails_no_write(in_memory: InMemoryMemoryBackend) -> None:
    def fail(_: object) -> None:
        raise BROKEN

    with capture_logs() as lines:
        await EpisodicMemoryStore(in_memory, on_event=fail).record(entry("e1"))

    assert ids(await in_memory.get_recent(1)) == ["e1"]
    assert {line["event"] for line in lines} == {"tiers.subscriber_failed"}


async def test_health_of_the_episodic_tier_is_that_of_its_back_end(
    in_memory: InMemoryMemoryBackend,
) -> None:
    assert (await EpisodicMemoryStore(in_memory).health_check()).is_healthy()
    found = await EpisodicMemoryStore(BrokenBackend()).health_check()
    assert (found.status, found.error) == (HealthStatus.DEGRADED, "OSError: the disk is gone")


async def test_fact_is_in_the_store_with_its_lineage(
    fact_file: SQLiteFactStore, facts: DurableFactStore
) -> None:
    fact_id = await facts.add(
        "Bob", "likes", "tea", 0.9, {"note": 1}, owner_id="ada", sources=["e1"]
    )

    [fact] = await fact_file.query(FactPattern(user="ada", subject="Bob"))
    assert (fact.id, fact.confidence, fact.metadata) == (fact_id, 0.9, {"note": 1})
    assert fact.lineage[0]["source_episode_ids"] == ["e1"]
    assert (await fact_file.verify())[2] is None
    [shown] = await facts.query_by_subject("bob", owner_id="ada")
    assert shown == {
        "id": fact_id, "subject": "Bob", "predicate": "likes", "object_": "tea",
        "confidence": 0.9, "metadata": {"note": 1},
    }  # fmt: skip


async def test_facts_of_one_subject_do_not_replace_each_other(facts: DurableFactStore) -> None:
    await facts.add("bob", "likes", "tea")
    await facts.add("bob", "likes", "coffee")

    assert objects(await facts.query_by_subject("bob")) == ["coffee", "tea"]


async def test_same_triple_has_the_same_id_and_the_new_confidence(facts: DurableFactStore) -> None:
    first = await facts.add("bob", "likes", "tea", 0.6)

    assert await facts.add("bob", "likes", "tea", 0.9) == first

    [fact] = await facts.query_by_subject("bob")
    assert fact["confidence"] == 0.9


async def test_deleted_fact_can_be_added_again(facts: DurableFactStore) -> None:
    fact_id = await facts.add("bob", "likes", "tea")
    await facts.delete(fact_id)
    await facts.delete("unknown")
    assert await facts.query_by_subject("") == []

    await facts.add("bob", "likes", "tea", 0.7)

    assert [fact["confidence"] for fact in await facts.query_by_subject("bob")] == [0.7]


async def test_subject_is_found_by_its_beginning(facts: DurableFactStore) -> None:
    for subject in ("Ann", "Anna", "Joann"):
        await facts.add(subject, "likes", "tea")

    found = await facts.query_by_subject("ann")

    assert sorted(fact["subject"] for fact in found) == ["Ann", "Anna"]


async def test_entity_is_found_by_whole_words(facts: DurableFactStore) -> None:
    await facts.add("Bob", "studies", "modern art")
    await facts.add("Art", "is", "a painter")
    await facts.add("Eve", "has", "a heart")

    assert objects(await facts.get_entity_facts("ART")) == ["a painter", "modern art"]
    assert await facts.get_entity_facts("") == []


async def test_owner_does_not_see_or_change_the_facts_of_another(facts: DurableFactStore) -> None:
    of_ada = await facts.add("bob", "likes", "tea", owner_id="ada")
    await facts.add("bob", "likes", "tea", owner_id="eve")

    await facts.delete(of_ada, owner_id="eve")
    with pytest.raises(MemoryStoreError, match="does not exist"):
        await facts.update_confidence(of_ada, 0.1, owner_id="eve")
    await facts.clear(owner_id="eve")

    assert await facts.query_by_subject("bob", owner_id="eve") == []
    assert await facts.get_entity_facts("bob") == []
    assert objects(await facts.query_by_subject("bob", owner_id="ada")) == ["tea"]


async def test_confidence_of_a_fact_changes(facts: DurableFactStore) -> None:
    fact_id = await facts.add("bob", "likes", "tea", 0.5, {"note": 1})

    await facts.update_confidence(fact_id, 0.8)

    [fact] = await facts.query_by_subject("bob")
    assert (fact["confidence"], fact["metadata"]) == (0.8, {"note": 1})


@pytest.mark.parametrize("confidence", [7.5, -0.1, float("nan")])
async def test_confidence_out_of_bounds_is_refused(
    facts: DurableFactStore, confidence: float
) -> None:
    fact_id = await facts.add("bob", "likes", "tea")

    with pytest.raises(ValueError, match="not 0 to 1"):
        await facts.add("bob", "likes", "coffee", confidence)
    with pytest.raises(ValueError, match="not 0 to 1"):
        await facts.update_confidence(fact_id, confidence)
    with pytest.raises(ValueError, match="not 0 to 1"):
        await SemanticMemoryStore(facts).store_fact("bob", "likes", "coffee", confidence)


async def test_empty_part_of_a_triple_is_refused(facts: DurableFactStore) -> None:
    with pytest.raises(ValueError, match="is empty"):
        await facts.add("bob", " ", "tea")


async def test_fact_below_the_least_confidence_is_not_stored(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts, min_confidence=0.6)

    assert await semantic.store_fact("bob", "likes", "tea", 0.59) == ""
    assert await semantic.store_fact("bob", "likes", "coffee", 0.6)

    assert objects(await semantic.query_facts("bob")) == ["coffee"]


async def test_fact_below_the_least_confidence_is_not_returned(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts)
    fact_id = await semantic.store_fact("bob", "likes", "tea")

    await semantic.update_fact(fact_id, 0.4)

    assert await semantic.query_facts("bob") == []
    assert await semantic.get_entity_facts("tea") == []
    assert await semantic.facts_in("bob") == []


async def test_full_subject_loses_its_least_sure_fact_only(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts, max_facts_per_entity=2)
    await semantic.store_fact("anna", "likes", "milk", 0.5)
    await semantic.store_fact("ann", "likes", "milk", 0.5, owner_id="eve")
    for object_, confidence in (("tea", 0.9), ("soap", 0.6), ("tea", 0.8), ("eggs", 0.7)):
        await semantic.store_fact("Ann", "likes", object_, confidence)

    assert objects(await semantic.get_entity_facts("ann")) == ["eggs", "tea"]
    assert objects(await semantic.query_facts("anna")) == ["milk"]
    assert objects(await semantic.query_facts("ann", owner_id="eve")) == ["milk"]


async def test_concurrent_facts_of_a_full_subject_keep_the_limit(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts, max_facts_per_entity=3)

    await asyncio.gather(*(semantic.store_fact("bob", "has", f"cat {n}") for n in range(8)))

    assert len(await semantic.query_facts("bob")) == 3


async def test_entry_is_ingested_once(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts, EntityExtractor())
    stated = entry("e1", "Bob works at Acme. I have two dogs!", owner_id="ada")

    assert [await semantic.ingest(stated), await semantic.ingest(stated)] == [2, 0]

    found = await semantic.get_entity_facts("Bob", owner_id="ada")
    assert [(fact["object_"], fact["confidence"]) for fact in found] == [("Acme", 0.8)]
    assert await semantic.get_entity_facts("Bob") == []


async def test_nothing_is_ingested_without_an_extractor(facts: DurableFactStore) -> None:
    assert await SemanticMemoryStore(facts).ingest(entry("e1", "Bob is a chef.")) == 0


async def test_failed_extraction_is_an_error(facts: DurableFactStore) -> None:
    async def fail(_: str) -> list[Triple]:
        raise BROKEN

    with pytest.raises(FactExtractionError, match="the disk is gone"):
        await SemanticMemoryStore(facts, EntityExtractor(fail)).ingest(entry("e1"))


async def test_semantic_tier_tells_of_its_writes(facts: DurableFactStore, clock: FakeClock) -> None:
    told: list[object] = []
    semantic = SemanticMemoryStore(facts, on_event=told.append, clock=clock)

    fact_id = await semantic.store_fact("bob", "likes", "tea")
    await semantic.query_facts("bob")

    searched = told.pop(2)
    assert isinstance(searched, MemoryRetrievedEvent)
    assert (searched.results_count, searched.occurred_at) == (1, START)
    assert told == [
        MemoryStoredEvent(memory_id=fact_id, memory_type="semantic", occurred_at=START),
        MemoryWrittenHook(tier="semantic", backend="facts"),
        MemoryRetrievedHook(tier="semantic", result_count=1),
    ]


async def test_refused_fact_deletes_none_of_a_full_subject(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts, max_facts_per_entity=1)
    await semantic.store_fact("bob", "likes", "tea")

    with pytest.raises(ValueError, match="is empty"):
        await semantic.store_fact("bob", "likes", "")

    assert [fact["object_"] for fact in await semantic.query_facts("bob")] == ["tea"]


def test_facts_in_the_process_need_no_loop() -> None:
    facts = FactStore()

    first = facts.add("Ann", "likes", "Green Tea", 0.9, {"from": ["chat"]})
    facts.add("Anna", "likes", "coffee")
    facts.add("Ann", "likes", "milk", owner_id="bob")

    assert facts.add("Ann", "likes", "Green Tea", 0.4, {"from": ["chat"]}) == first
    [fact] = facts.get_entity_facts("tea")
    assert fact == {
        "id": first, "subject": "Ann", "predicate": "likes", "object_": "Green Tea",
        "confidence": 0.4, "metadata": {"from": ["chat"]},
    }  # fmt: skip
    assert len(facts.query_by_subject("ann")) == 2
    assert facts.get_entity_facts("ea") == []
    facts.update_confidence(first, 1.0)
    assert facts.query_by_subject("Ann")[0]["confidence"] == 1.0
    facts.delete(first)
    facts.delete("unknown")
    assert len(facts.query_by_subject("")) == 1
    facts.clear()
    assert (facts.query_by_subject(""), facts.count()) == ([], 1)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_facts_in_the_process_are_checked(confidence: float) -> None:
    facts = FactStore()

    with pytest.raises(ValueError, match="not 0 to 1"):
        facts.add("a", "b", "c", confidence)
    with pytest.raises(ValueError, match="is empty"):
        facts.add("a", " ", "c")
    with pytest.raises(MemoryStoreError, match="does not exist"):
        facts.update_confidence("unknown", 1)


async def test_semantic_tier_keeps_facts_in_the_process_by_default() -> None:
    semantic = SemanticMemoryStore(max_facts_per_entity=2)

    for thing, confidence in (("tea", 0.6), ("milk", 0.9), ("soap", 0.7)):
        await semantic.store_fact("Ann", "likes", thing, confidence)
    await semantic.store_fact("Ann", "likes", "secrets", owner_id="bob")

    assert {fact["object_"] for fact in await semantic.query_facts("Ann")} == {"milk", "soap"}
    assert await semantic.ingest(entry("e1", "Ann is a chef.")) == 0
    assert (await semantic.health_check()).details == {"facts": 3}


async def test_health_of_the_semantic_tier_counts_facts(
    facts: DurableFactStore, tmp_path: Path
) -> None:
    semantic = SemanticMemoryStore(facts)
    await semantic.store_fact("bob", "likes", "tea", owner_id="ada")
    found = await semantic.health_check()
    assert (found.is_healthy(), found.details) == (True, {"facts": 1})

    (tmp_path / "broken.db").write_text("no database")
    async with SQLiteFactStore(tmp_path / "broken.db") as broken:
        found = await SemanticMemoryStore(DurableFactStore(broken)).health_check()
    assert found.is_degraded()


@pytest.mark.parametrize(
    ("subject", "metadata"),
    [
        pytest.param("\ud800", {}, id="half a character"),
        pytest.param("Ada", {"x": object()}, id="an object"),
        pytest.param("Ada", {"x": float("nan")}, id="no number"),
        pytest.param("Ada", {1: "x"}, id="a key that is no text"),
    ],
)
async def test_fact_that_would_not_come_back_is_refused(
    facts: DurableFactStore, subject: str, metadata: dict[str, Any]
) -> None:
    with pytest.raises(MemoryStoreError, match="JSON"):
        await facts.add(subject, "likes", "tea", metadata=metadata)

    assert await facts.count() == 0

"""Parts of a host that have exactly the methods of the specification, and know no owners."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd.tiers import (
    BufferMemoryStore,
    ConsolidationConfig,
    ConsolidationError,
    ConsolidationResult,
    ConsolidationScheduler,
    ConversationMemoryStore,
    EntityMemoryStore,
    EpisodicMemoryProtocol,
    EpisodicMemoryStore,
    FactExtractionError,
    HealthCheckResult,
    InMemoryMemoryBackend,
    MemoryConsolidator,
    MemoryEntry,
    MemoryModule,
    MemoryParts,
    MemoryQuery,
    MemoryRetriever,
    MemorySearchResult,
    MemoryStoreError,
    MemoryStoreProtocol,
    OwnedStoreProtocol,
    SemanticMemoryProtocol,
    SemanticMemoryStore,
    SummaryMemoryStore,
    VectorMemoryBackend,
    WorkingMemoryConfig,
    WorkingMemoryManager,
    WorkingMemoryProtocol,
    open_memory,
)
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids
from tests.support.word_vectors import embed_words

pytestmark = pytest.mark.unit


class HostStore:
    """Has the five methods of a store, and nothing else."""

    def __init__(self) -> None:
        self.entries: dict[str, MemoryEntry] = {}

    async def store(self, entry: MemoryEntry) -> None:
        self.entries[entry.id] = entry

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        found = await self.get_recent(query.top_k)
        return [MemorySearchResult(one, 0.5, "host") for one in found]

    async def get_recent(self, n: int) -> list[MemoryEntry]:
        newest = sorted(self.entries.values(), key=lambda one: one.timestamp, reverse=True)
        return newest[:n]

    async def delete(self, entry_id: str) -> None:
        self.entries.pop(entry_id, None)

    async def clear(self) -> None:
        self.entries.clear()


async def test_episodic_tier_works_on_a_store_of_a_host() -> None:
    tier = EpisodicMemoryStore(HostStore())

    await tier.record(entry("a", age=5))
    await tier.record(entry("b"))
    assert ids(await tier.recall(MemoryQuery("", top_k=1))) == ["b"]
    assert (await tier.health_check()).is_healthy()
    await tier.forget("b")
    assert ids(await tier.recall("")) == ["a"]


async def test_all_tiers_work_on_a_store_of_a_host() -> None:
    host = HostStore()
    parts = MemoryParts(backend=host, clock=FakeClock(START + timedelta(days=30)))
    async with open_memory(parts=parts) as memory:
        await memory.working.add(entry("a", "blue bicycle"))
        assert ids(await memory.retriever.retrieve(MemoryQuery(""))) == ["a"]
        assert ids(await memory.working.assemble("bicycle", 9_999)) == ["a"]
        await memory.scheduler.run_once()
        assert host.entries == {}


async def test_owners_on_a_store_that_knows_none_stay_apart() -> None:
    host = HostStore()
    tier = EpisodicMemoryStore(host)
    await tier.record(entry("old", age=99, owner_id="ada"))
    for number in range(20):
        await tier.record(entry(f"b{number}", age=number, owner_id="bob"))

    assert ids(await tier.recall(MemoryQuery("", top_k=2, owner_id="ada"))) == ["old"]
    assert ids(await tier.recall(MemoryQuery("", top_k=2, owner_id="bob"))) == ["b0", "b1"]
    retriever = MemoryRetriever([host])
    assert ids(await retriever.retrieve(MemoryQuery("", top_k=2, owner_id="ada"))) == ["old"]
    await tier.forget("old", owner_id="bob")
    assert "old" in host.entries
    with pytest.raises(MemoryStoreError, match="another owner has an entry with the id 'old'"):
        await tier.record(entry("old", owner_id="bob"))
    assert host.entries["old"].owner_id == "ada"
    await tier.forget("old", owner_id="ada")
    assert "old" not in host.entries


class OwnedHostStore(HostStore):
    """Its methods take an owner, and it has no others."""

    async def get_recent(self, n: int, owner_id: str = "") -> list[MemoryEntry]:
        found = await HostStore.get_recent(self, 999)
        return [one for one in found if one.owner_id == owner_id][:n]

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        found = await self.get_recent(query.top_k, query.owner_id)
        return [MemorySearchResult(one, 0.5, "host") for one in found]

    async def delete(self, entry_id: str, owner_id: str = "") -> None:
        if self.entries[entry_id].owner_id == owner_id:
            del self.entries[entry_id]


async def test_store_that_takes_an_owner_gets_it() -> None:
    host = OwnedHostStore()
    tier = EpisodicMemoryStore(host)
    await tier.record(entry("a", owner_id="ada"))
    await tier.record(entry("b", age=9e6, importance=0, owner_id="bob"))

    assert ids(await tier.recall("", owner_id="ada")) == ["a"]
    await tier.forget("a", owner_id="ada")
    assert host.entries.keys() == {"b"}
    scheduler = ConsolidationScheduler(host, MemoryConsolidator(clock=FakeClock()))
    with pytest.raises(MemoryStoreError, match="no method owners"):
        await scheduler.run_once()

    async def owners() -> list[str]:
        return ["bob"]

    host.owners = owners  # type: ignore[attr-defined] # a store that has the method
    assert (await scheduler.run_once()).entries_pruned == 1
    assert host.entries == {}


async def test_other_parts_take_a_store_of_a_host() -> None:
    host = HostStore()
    vectors = VectorMemoryBackend(host, embed_words)
    buffer = BufferMemoryStore(1, backend=host)

    await buffer.store(entry("a", age=5))
    await buffer.store(entry("b", "blue bicycle"))
    await vectors.store(entry("c", "a green car"))

    assert host.entries.keys() == {"b", "c"}
    assert ids(await MemoryRetriever([vectors]).retrieve(MemoryQuery("green car")))[0] == "c"
    await vectors.clear()
    assert host.entries == {}


async def test_summary_on_a_store_of_a_host_replaces_what_it_summarises() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return replace(entries[-1], content="both")

    host = HostStore()
    for number in range(3):
        await host.store(entry(f"e{number}", age=99_000 - number))
    await host.store(entry("theirs", age=99_000, owner_id="bob"))
    config = ConsolidationConfig(summary_size=2, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=FakeClock())

    result = await ConsolidationScheduler(host, consolidator, clock=FakeClock()).run_once()

    assert result.entries_consolidated == 2
    [summary] = [one for one in host.entries.values() if one.content == "both"]
    assert summary.metadata["compressed_ids"] == ["e0", "e1"]
    assert host.entries.keys() == {"e2", "theirs", summary.id}


async def test_entry_that_a_host_writes_during_a_pass_stays() -> None:
    host = HostStore()

    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        await host.store(entry("e0", "new content"))
        return entries[-1]

    for number in range(2):
        await host.store(entry(f"e{number}", age=99_000 - number))
    config = ConsolidationConfig(summary_size=2, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=FakeClock())

    result = await ConsolidationScheduler(host, consolidator, clock=FakeClock()).run_once()

    assert result.entries_consolidated == 0
    assert {one.content for one in host.entries.values()} == {"new content", "content of e1"}


async def test_one_id_of_two_owners_is_not_consolidated() -> None:
    class Careless(HostStore):
        async def get_recent(self, n: int) -> list[MemoryEntry]:
            return [entry("e1", age=99_000, owner_id=owner, importance=0) for owner in "ab"][:n]

    with pytest.raises(ConsolidationError, match="two entries have the id 'e1'"):
        await ConsolidationScheduler(Careless(), MemoryConsolidator()).run_once()


@pytest.mark.parametrize(
    "make", [BufferMemoryStore, ConversationMemoryStore, EntityMemoryStore, SummaryMemoryStore]
)
async def test_stores_of_conversations_are_stores_of_entries(make: Any) -> None:
    store = make()
    tier = EpisodicMemoryStore(store)
    assert isinstance(store, OwnedStoreProtocol)

    await tier.record(entry("a", age=9e6, importance=0, owner_id="ada"))

    assert ids(await tier.recall("", owner_id="ada")) == ["a"]
    assert (await tier.health_check()).is_healthy()
    assert await store.owners() == ["ada"]
    consolidator = MemoryConsolidator(clock=FakeClock())
    result = await ConsolidationScheduler(store, consolidator, clock=FakeClock()).run_once()
    assert result.entries_pruned == 1
    assert await store.owners() == []


async def test_store_of_conversations_has_the_owners_of_its_back_end() -> None:
    backend = InMemoryMemoryBackend(clock=FakeClock())
    await backend.store(entry("a", owner_id="ada"))
    store = BufferMemoryStore(backend=backend)

    assert await store.owners() == ["ada"]
    assert (await store.health_check()).component == "in_memory"


class HostEpisodes:
    """An episodic tier with the methods of the protocol alone; it ignores all filters."""

    def __init__(self, *entries: MemoryEntry) -> None:
        self._entries = [*entries]

    async def record(self, entry: MemoryEntry) -> None:
        self._entries.append(entry)

    async def recall(self, query: MemoryQuery) -> list[MemorySearchResult]:
        return [MemorySearchResult(one, 1.0, "host") for one in self._entries]

    async def forget(self, entry_id: str) -> None:
        self._entries = [one for one in self._entries if one.id != entry_id]

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        return HealthCheckResult("host", duration_ms=timeout)


class HostFacts:
    """A semantic tier with the methods of the protocol alone."""

    async def store_fact(
        self, subject: str, predicate: str, object_: str, confidence: float = 1.0
    ) -> str:
        raise NotImplementedError

    async def query_facts(self, subject: str) -> list[dict[str, Any]]:
        fact = {"id": "f1", "subject": "Alice", "predicate": "likes", "object_": "tea"}
        return [fact] if "Alice".lower().startswith(subject.lower()) else []

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        return HealthCheckResult("host", duration_ms=timeout)


async def test_working_tier_takes_tiers_of_a_host() -> None:
    episodes = HostEpisodes(
        entry("s1", age=9, metadata={"session_id": "s1"}),
        entry("s2", metadata={"session_id": "s2"}),
    )
    facts = HostFacts()
    config = WorkingMemoryConfig(system_prompt_tokens=0)
    working = WorkingMemoryManager(episodes, facts, config)
    assert isinstance(episodes, EpisodicMemoryProtocol)
    assert isinstance(facts, SemanticMemoryProtocol)
    assert isinstance(working, WorkingMemoryProtocol)

    await working.add(entry("new", metadata={"session_id": "s1"}))
    with capture_logs() as logs:
        found = await working.assemble("What does Alice like?", 999, "s1")

    assert ids(found) == ["fact:f1", "s1", "new"]
    assert found[0].content == "Alice likes tea"
    assert await working.assemble("Alice", 999, owner_id="ada") == []  # the facts have no owner
    assert (await working.health_check()).is_healthy()
    assert logs == []


class HostFactStore:
    """The methods of a store of facts in the form of the specification, without owners."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}

    def add(
        self,
        subject: str,
        predicate: str,
        object_: str,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        fact_id = f"f{len(self.facts)}"
        self.facts[fact_id] = {
            "id": fact_id, "subject": subject, "predicate": predicate, "object_": object_,
            "confidence": confidence, "metadata": metadata or {},
        }  # fmt: skip
        return fact_id

    def query_by_subject(self, subject: str) -> list[dict[str, Any]]:
        return [one for one in self.facts.values() if one["subject"].startswith(subject)]

    def get_entity_facts(self, entity: str) -> list[dict[str, Any]]:
        return [one for one in self.facts.values() if entity in one.values()]

    def update_confidence(self, fact_id: str, confidence: float) -> None:
        self.facts[fact_id]["confidence"] = confidence

    def delete(self, fact_id: str) -> None:
        del self.facts[fact_id]


async def test_semantic_tier_takes_a_store_of_facts_of_a_host() -> None:
    host = HostFactStore()
    tier = SemanticMemoryStore(host, max_facts_per_entity=1)

    first = await tier.store_fact("Ann", "likes", "tea")
    second = await tier.store_fact("Ann", "likes", "milk")
    await tier.update_fact(second, 0.7)

    assert host.facts.keys() == {second} != {first}
    assert [one["confidence"] for one in await tier.facts_in("Ann?")] == [0.7]
    assert len(await tier.get_entity_facts("milk")) == 1
    assert (await tier.health_check()).details == {"facts": 1}
    with pytest.raises(MemoryStoreError, match="knows no owners"):
        await tier.store_fact("Ann", "likes", "soap", owner_id="bob")
    assert host.facts.keys() == {second}


def test_errors_take_a_message() -> None:
    assert str(FactExtractionError("no model")) == "no model"
    assert FactExtractionError("no model").entry_id is None


def test_protocols_of_the_host_s_parts_are_met() -> None:
    assert isinstance(HostStore(), MemoryStoreProtocol)
    assert not isinstance(HostStore(), OwnedStoreProtocol)
    assert ConsolidationResult(1, 2, 3, 4, 5.0).entries_pruned == 3


async def test_empty_owner_cannot_replace_the_entry_of_another() -> None:
    store = HostStore()
    episodic = EpisodicMemoryStore(store)
    await episodic.record(entry("own"))
    await EpisodicMemoryStore(store).record(entry("e1", "Ada's", owner_id="ada"))
    other = EpisodicMemoryStore(store)
    await other.record(entry("e2", owner_id="bob"))

    for tier in (other, EpisodicMemoryStore(store)):
        with pytest.raises(MemoryStoreError, match="another owner"):
            await tier.record(entry("e1"))

    assert store.entries["e1"].content == "Ada's"


async def test_owner_whose_entries_cannot_be_read_does_not_stop_the_others() -> None:
    class Broken(InMemoryMemoryBackend):
        async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
            if owner_id == "b":
                raise OSError("a damaged page")
            return await super().get_recent(n, owner_id=owner_id)

    store = Broken()
    for owner in "abc":
        for id in ("e1", "e2"):
            await store.store(entry(id, "the same words", age=90_000, owner_id=owner))
    consolidator = MemoryConsolidator(clock=FakeClock())

    with capture_logs() as logs:
        found = await ConsolidationScheduler(store, consolidator).run_once()

    assert found.entries_pruned == 2
    assert [line["message"] for line in logs] == ["a damaged page"]


async def test_consolidator_may_be_any_object_with_the_method() -> None:
    async def consolidate(entries: list[MemoryEntry]) -> ConsolidationResult:
        return ConsolidationResult(len(entries), 0, 0, 0, 0.0)

    store = HostStore()
    await store.store(entry("e1"))
    scheduler = ConsolidationScheduler(store, SimpleNamespace(consolidate=consolidate))

    assert (await scheduler.run_once()).entries_processed == 1


async def test_second_boot_leaves_no_scheduler_running() -> None:
    class Container:
        """Always resolves the store of the host, whatever is registered."""

        def __init__(self) -> None:
            self.store = HostStore()

        def singleton(self, key: type, value: object) -> None: ...

        def resolve(self, key: type) -> object:
            return self.store

    container, provider = Container(), MemoryModule.configure()
    first = await provider.boot(container)
    container.store = HostStore()

    second = await provider.boot(container)
    third = await provider.boot(container)

    assert (second is first, third is second) == (False, True)
    assert (first.scheduler.running, second.scheduler.running) == (False, True)
    await provider.shutdown()
    assert not second.scheduler.running


class OddTier:
    """An episodic and semantic tier that answers what it was given."""

    def __init__(self, found: Any = (), facts: Any = ()) -> None:
        self.found, self.facts = found, facts

    async def recall(self, query: MemoryQuery) -> Any:  # of a host
        return self.found

    async def query_facts(self, subject: str) -> Any:  # of a host
        return self.facts


TWICE = ("e2", "e1", "e1")
FACT = {"id": 1, "subject": "bob", "predicate": "has", "object_": "a cat"}


@pytest.mark.parametrize(
    ("tier", "found"),
    [
        pytest.param(OddTier([entry("e1")]), [], id="entries in place of results"),
        pytest.param(OddTier(None), [], id="nothing"),
        pytest.param(
            OddTier([MemorySearchResult(entry(id, age=id < "e2"), 1, "host") for id in TWICE]),
            ["e1", "e2"],
            id="an entry twice",
        ),
        pytest.param(
            OddTier(facts=[{**FACT, "confidence": 7.5}, {**FACT, "id": 2}]),
            ["fact:2"],
            id="a confidence out of bounds",
        ),
        pytest.param(OddTier(facts=[{**FACT, "confidence": None}]), [], id="no confidence"),
    ],
)
async def test_context_leaves_out_what_a_tier_answers_wrongly(tier: Any, found: list[str]) -> None:
    config = WorkingMemoryConfig(system_prompt_tokens=0, max_recent_turns=1)
    working = WorkingMemoryManager(tier, tier, config)

    assert ids(await working.assemble("has bob a cat", 400)) == found

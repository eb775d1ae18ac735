"""A whole memory from one configuration; each field of it has an effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from slumberd import FactPattern, SQLiteFactStore, SQLiteMemoryStore
from slumberd.tiers import (
    ConsolidationConfig,
    ConsolidationScheduler,
    EpisodicMemoryConfig,
    EpisodicMemoryProtocol,
    InMemoryMemoryBackend,
    Memory,
    MemoryCapacityError,
    MemoryConfig,
    MemoryConsolidatedHook,
    MemoryConsolidator,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    MemoryModule,
    MemoryParts,
    MemoryProvider,
    MemoryQuery,
    MemoryStoreError,
    MemoryStoreProtocol,
    MemorySystemError,
    SemanticMemoryConfig,
    SemanticMemoryProtocol,
    WorkingMemoryConfig,
    WorkingMemoryProtocol,
    open_memory,
)
from tests.support.builders import START, episode, rule
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids
from tests.support.word_vectors import embed_words

pytestmark = pytest.mark.integration

DAY_SECONDS = 86_400
FRESH = FakeClock()
"""A clock that no test moves."""


def memory(config: MemoryConfig, clock: FakeClock = FRESH, **parts: Any) -> MemoryProvider:
    return open_memory(config, parts=MemoryParts(clock=clock, **parts))


@pytest.fixture
def config(tmp_path: Path) -> MemoryConfig:
    return MemoryConfig(directory=tmp_path)


def changed(config: MemoryConfig, **fields: Any) -> MemoryConfig:
    return MemoryConfig.model_validate({**dict(config), **fields})


def folder(config: MemoryConfig) -> Path:
    assert config.directory is not None
    return config.directory


async def test_memory_survives_the_process(config: MemoryConfig) -> None:
    async with memory(config) as first:
        await first.working.add(entry("e1", "Ada drinks tea"))
        await first.semantic.store_fact("Ada", "drinks", "tea")

    async with memory(config) as again:
        assert ids(await again.episodic.recall("tea")) == ["e1"]
        assert len(await again.semantic.query_facts("ada")) == 1
        context = await again.working.assemble("What does Ada drink?", 4_096)
        assert sorted(one.content for one in context) == ["Ada drinks tea", "Ada drinks tea"]


async def test_entries_and_facts_are_slumberd_s_own(config: MemoryConfig) -> None:
    stated = {"subject": "ada", "predicate": "drinks", "object": "tea", "session_id": "s1"}
    async with memory(config) as found:
        await found.episodic.record(entry("e1", "I drink tea", owner_id="ada", metadata=stated))
        await found.semantic.store_fact("Ada", "likes", "cats", owner_id="ada")

    async with SQLiteMemoryStore(folder(config) / "memory.db") as episodes:
        [stored] = await episodes.recent("ada", "s1", "ai_memory", limit=9)
        assert (stored.content, stored.timestamp) == ("I drink tea", START)
        [delta] = await episodes.consolidate(rule())
        assert delta.kind == "add"
    async with SQLiteFactStore(folder(config) / "facts.db") as facts:
        [fact] = await facts.query(FactPattern(user="ada"))
        assert fact.payload["object"] == "cats"


async def test_episode_of_another_program_is_an_entry(config: MemoryConfig) -> None:
    async with SQLiteMemoryStore(folder(config) / "memory.db") as episodes:
        theirs = episode(
            "x1", user="ada", agent="ai_memory", content="tea", metadata={"role": "bot"}
        )
        await episodes.put(theirs, user="ada", session="s1", agent="ai_memory")

    async with memory(config) as found:
        [result] = await found.episodic.recall("tea", owner_id="ada")
        assert (result.entry.id, result.entry.role, result.entry.importance) == ("x1", "bot", 0.5)
        assert result.entry.session_id == "s1"
        await found.episodic.forget("x1", owner_id="ada")
        assert await found.episodic.recall("", owner_id="ada") == []


async def test_recall_counts_as_a_read_of_the_episode(config: MemoryConfig) -> None:
    async with memory(config) as found:
        await found.episodic.record(entry("e1", "tea", owner_id="ada"))
        await found.episodic.record(entry("e2", "soap", owner_id="ada"))
        await found.episodic.recall(MemoryQuery("tea", min_relevance=0.5, owner_id="ada"))

    async with SQLiteMemoryStore(folder(config) / "memory.db") as episodes:
        eids = ["ada/ai_memory/e1", "ada/ai_memory/e2"]
        assert {eid: one.reads for eid, one in (await episodes.accesses(eids)).items()} == {
            "ada/ai_memory/e1": 1
        }


@pytest.mark.parametrize("backend", ["in_memory", "database", "vector", "cache"])
async def test_default_backend_is_used(
    config: MemoryConfig, backend: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_address") if backend == "cache" else config.cache_url
    chosen = changed(config, default_backend=backend, cache_url=url, name=f"test-{backend}")

    async with memory(chosen, embed_fn=embed_words) as found:
        await found.episodic.record(entry("e1", "tea in the morning"))

        [result] = await found.episodic.recall("tea")

    assert result.source == backend
    assert (folder(config) / "memory.db").exists() == (backend in ("database", "vector"))


async def test_vectors_come_from_the_extra(config: MemoryConfig) -> None:
    async with memory(changed(config, default_backend="vector")) as found:
        await found.episodic.record(entry("car", "He bought a car"))
        await found.episodic.record(entry("soap", "The soap is in the kitchen"))

        assert ids(await found.episodic.recall("vehicle purchase"))[0] == "car"


async def test_disabled_memory_keeps_nothing(config: MemoryConfig) -> None:
    async with open_memory(changed(config, enabled=False)) as found:
        await found.working.add(entry("e1", "Bob is a chef."))
        assert await found.semantic.ingest(entry("e1", "Bob is a chef.")) == 0
        await found.episodic.forget("e1")

        assert await found.episodic.recall("chef") == []
        assert await found.semantic.facts_in("Bob") == []
        assert not found.scheduler.running
        assert (await found.scheduler.run_once()).entries_processed == 0
        assert (await found.working.health_check()).is_healthy()

    assert [*folder(config).iterdir()] == []


@pytest.mark.parametrize("other", [{"name": "other"}, {"env": "test"}])
async def test_name_and_environment_divide_a_directory(
    config: MemoryConfig, other: dict[str, str]
) -> None:
    async with memory(config) as found:
        await found.episodic.record(entry("e1"))
        await found.semantic.store_fact("Ada", "drinks", "tea")

    async with memory(changed(config, **other)) as found:
        await found.episodic.record(entry("e1", "other"))
        assert [one.entry.content for one in await found.episodic.recall("")] == ["other"]
        assert await found.semantic.query_facts("") == []


async def test_entries_expire_as_configured(config: MemoryConfig) -> None:
    clock = FakeClock()
    async with memory(changed(config, ttl_seconds=60), clock) as found:
        await found.episodic.record(entry("e1"))
        clock.advance(60)
        assert await found.episodic.recall("") == []

    own = changed(config, ttl_seconds=60, episodic=EpisodicMemoryConfig(ttl_seconds=90))
    async with memory(own, clock) as found:
        await found.episodic.record(entry("e1"))
        clock.advance(60)
        assert ids(await found.episodic.recall("")) == ["e1"]
        clock.advance(30)
        assert await found.episodic.recall("") == []


@pytest.mark.parametrize(("language", "found"), [(None, []), ("english", ["e1"])])
async def test_language_stems_words(
    config: MemoryConfig, language: str | None, found: Sequence[str]
) -> None:
    async with memory(changed(config, language=language)) as opened:
        await opened.episodic.record(entry("e1", "she drinks tea"))

        results = await opened.episodic.recall(MemoryQuery("drinking", min_relevance=0.1))

    assert ids(results) == found


async def test_sections_reach_their_tiers(config: MemoryConfig) -> None:
    chosen = changed(
        config,
        working=WorkingMemoryConfig(system_prompt_tokens=0, max_recent_turns=1),
        episodic=EpisodicMemoryConfig(default_top_k=1),
        semantic=SemanticMemoryConfig(min_confidence=0.9, max_facts_per_entity=1),
    )
    async with memory(chosen) as found:
        for n in range(3):
            await found.episodic.record(entry(f"e{n}", age=n))
            await found.semantic.store_fact("Ada", "has", f"cat {n}")

        assert await found.semantic.store_fact("Ada", "has", "a dog", 0.8) == ""
        assert len(await found.semantic.query_facts("Ada")) == 1
        assert ids(await found.episodic.recall("")) == ["e0"]
        assert ids(await found.working.assemble("", 900)) == ["e0"]


async def test_pass_consolidates_each_owner_and_keeps_what_is_stated(config: MemoryConfig) -> None:
    hooks: list[object] = []
    parts = MemoryParts(clock=FakeClock(), on_event=hooks.append)
    async with open_memory(config, parts=parts) as found:
        for owner in ("ada", "bob"):
            for n in range(2):
                stated = entry(f"e{n}", "Eve works at Acme.", age=DAY_SECONDS + n, owner_id=owner)
                await found.episodic.record(stated)
        await found.episodic.record(entry("new", "Eve works at Acme.", owner_id="bob"))
        hooks.clear()

        result = await found.scheduler.run_once()

        assert (result.entries_processed, result.entries_pruned, result.entities_extracted) == (
            4,
            2,
            2,
        )
        assert ids(await found.backend.get_recent(9, owner_id="ada")) == ["e0"]
        assert ids(await found.backend.get_recent(9, owner_id="bob")) == ["new", "e0"]
        [fact] = await found.semantic.query_facts("Eve", owner_id="bob")
        assert fact["object_"] == "Acme"
        assert MemoryConsolidatedHook(strategy="deduplication") in hooks


async def test_owner_that_cannot_be_read_does_not_stop_the_pass() -> None:
    class Broken(InMemoryMemoryBackend):
        async def get_recent(self, n: int, *, owner_id: str = "") -> list[MemoryEntry]:
            if owner_id == "ada":
                raise MemoryStoreError("the entries of ada are damaged")
            return await super().get_recent(n, owner_id=owner_id)

    store = Broken(clock=FRESH)
    for owner in ("ada", "bob"):
        await store.store(entry("e1", age=30 * DAY_SECONDS, owner_id=owner))
    consolidator = MemoryConsolidator(clock=FRESH)

    with capture_logs() as lines:
        result = await ConsolidationScheduler(store, consolidator, clock=FRESH).run_once()

    assert result.entries_pruned == 1
    assert [line["event"] for line in lines] == ["tiers.consolidation_failed"]


async def test_consolidation_is_configured(config: MemoryConfig) -> None:
    chosen = changed(config, consolidation=ConsolidationConfig(importance_prune_threshold=0.9))
    async with memory(chosen) as found:
        await found.episodic.record(entry("e1", age=2 * DAY_SECONDS, importance=0.85))

        assert (await found.scheduler.run_once()).entries_pruned == 1


async def test_functions_of_the_program_are_used(config: MemoryConfig) -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("summary", f"{len(entries)} entries")

    async def extract(text: str) -> list[tuple[str, str, str]]:
        return [("they", "said", text)]

    rules = ConsolidationConfig(summary_size=2, recency_threshold=0, similarity_threshold=1)
    async with memory(
        changed(config, consolidation=rules), summarise_fn=summarise, extract_fn=extract
    ) as found:
        for n in range(3):
            await found.episodic.record(entry(f"e{n}", f"text {n}", age=DAY_SECONDS + n))

        result = await found.scheduler.run_once()

        assert (result.entries_consolidated, result.entities_extracted) == (2, 3)
        assert "2 entries" in [one.content for one in await found.backend.get_recent(9)]
        assert len(await found.semantic.query_facts("they")) == 3


async def test_scheduler_runs_when_both_switches_are_on(config: MemoryConfig) -> None:
    off = changed(config, consolidation=ConsolidationConfig(enabled=False))
    providers = [
        open_memory(config, scheduler=True),
        MemoryModule.configure(config, enable_consolidation=False),
        open_memory(off, scheduler=True),
    ]

    running = []
    for provider in providers:
        async with provider as found:
            running.append(found.scheduler.running)
        running.append(found.scheduler.running)

    assert running == [True, False, False, False, False, False]


async def test_back_end_of_the_program_keeps_all_tiers_on_it(config: MemoryConfig) -> None:
    own = InMemoryMemoryBackend(clock=FRESH)
    async with memory(config, backend=own) as found:
        await found.working.add(entry("e1", age=DAY_SECONDS * 30))

        assert ids(await own.get_recent(9)) == ["e1"]
        assert ids(await found.retriever.retrieve(MemoryQuery(""))) == ["e1"]
        assert (await found.scheduler.run_once()).entries_pruned == 1


async def test_stub_leaves_no_files(config: MemoryConfig) -> None:
    async with MemoryModule.stub(config) as found:
        await found.working.add(entry("e1"))
        await found.semantic.store_fact("Ada", "drinks", "tea")
        assert found.config.directory is None
        assert len(await found.semantic.query_facts("Ada")) == 1
        assert not found.scheduler.running

    assert [*folder(config).iterdir()] == []


async def test_default_memory_is_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async with MemoryModule.configure() as found:
        await found.working.add(entry("e1", age=DAY_SECONDS * 10))
        await found.semantic.store_fact("Ada", "drinks", "tea")

        assert isinstance(found.backend, InMemoryMemoryBackend)
        assert len(await found.semantic.query_facts("Ada")) == 1

    assert [*tmp_path.iterdir()] == []


def test_directory_without_a_back_end_means_the_database(tmp_path: Path) -> None:
    assert MemoryConfig(directory=tmp_path).default_backend == "database"
    in_memory = MemoryConfig(directory=tmp_path, default_backend="in_memory")
    assert in_memory.default_backend == "in_memory"


async def test_facts_of_a_named_directory_are_kept_beside_entries_in_the_process(
    tmp_path: Path,
) -> None:
    config = MemoryConfig(directory=tmp_path, default_backend="in_memory")
    async with memory(config) as found:
        await found.semantic.store_fact("Ada", "drinks", "tea")
    async with memory(config) as again:
        assert len(await again.semantic.query_facts("Ada")) == 1


async def test_configured_number_of_entries_is_the_most(tmp_path: Path) -> None:
    async with memory(MemoryConfig(max_entries=1)) as found:
        await found.working.add(entry("e1"))
        with pytest.raises(MemoryCapacityError, match="1 entries"):
            await found.working.add(entry("e2"))

    with pytest.raises(ValidationError, match="max_entries does not hold for database"):
        MemoryConfig(max_entries=1, directory=tmp_path)


class Container:
    """A container of the host: it keeps values under types."""

    def __init__(self) -> None:
        self.kept: dict[object, object] = {}

    async def singleton(self, key: object, value: object) -> None:
        self.kept[key] = value

    async def resolve(self, key: object) -> object:
        return self.kept[key]


@pytest.mark.parametrize("make", [Container, dict])
async def test_container_gets_all_parts(make: Callable[[], Any]) -> None:
    container = make()
    provider = MemoryProvider(parts=MemoryParts(clock=FRESH))

    registered = await provider.register(container)
    booted = await provider.boot(container)
    kept: dict[Any, Any] = container.kept if isinstance(container, Container) else container
    await provider.shutdown()

    assert booted is registered
    assert kept[MemoryStoreProtocol] is registered.backend
    assert kept[EpisodicMemoryProtocol] is registered.episodic
    assert kept[SemanticMemoryProtocol] is registered.semantic
    assert kept[WorkingMemoryProtocol] is registered.working
    assert kept[MemoryConsolidatorProtocol] is registered.consolidator
    assert kept[ConsolidationScheduler] is registered.scheduler
    assert all(isinstance(value, key) for key, value in kept.items())


class Resolver:
    """The part of a container of the host that only reads."""

    def __init__(self, kept: dict[object, object]) -> None:
        self.resolve = kept.__getitem__


async def test_store_that_the_host_registers_keeps_all_tiers_on_it() -> None:
    container: dict[object, Any] = {}
    own = InMemoryMemoryBackend(clock=FRESH)
    provider = MemoryProvider(parts=MemoryParts(clock=FRESH))
    await provider.register(container)
    container[MemoryStoreProtocol] = own

    booted = await provider.boot(Resolver(container))

    await container[WorkingMemoryProtocol].add(entry("e1", age=DAY_SECONDS * 30))
    assert ids(await own.get_recent(9)) == ["e1"]
    assert (await booted.scheduler.run_once()).entries_pruned == 1
    assert provider.memory is booted
    await provider.shutdown()


async def test_container_of_an_unknown_kind_is_refused_before_anything_is_opened() -> None:
    provider = MemoryProvider()

    with pytest.raises(MemorySystemError, match="has no method singleton or register"):
        await provider.register(object())
    with pytest.raises(MemoryStoreError, match="not open"):
        _ = provider.memory
    with pytest.raises(MemorySystemError, match="has no method resolve or get"):
        await provider.boot(object())
    await provider.shutdown()


async def test_provider_is_healthy_while_it_is_open(config: MemoryConfig) -> None:
    provider = MemoryProvider(config, enable_consolidation=False)
    assert (await provider.health_check()).is_degraded()
    with pytest.raises(MemoryStoreError, match="not open"):
        _ = provider.memory

    opened = await provider.register()
    assert (await provider.register(), await provider.boot()) == (opened, opened)
    assert provider.memory is opened
    assert isinstance(opened, Memory)
    assert (await provider.health_check()).is_healthy()

    await provider.shutdown()
    await provider.shutdown()
    assert (await provider.health_check()).is_degraded()


async def test_time_is_the_clock_s(config: MemoryConfig) -> None:
    clock = FakeClock(START + timedelta(days=300))
    async with memory(config, clock) as found:
        await found.episodic.record(entry("e1"))

        [result] = await found.retriever.retrieve(MemoryQuery("", recency_weight=1))

    assert result.score < 0.6


async def test_pass_keeps_the_correction_of_a_fact(config: MemoryConfig) -> None:
    async with memory(config) as opened:
        said = entry("e1", "I live in Oslo.", age=30 * 3_600, importance=0.9, owner_id="ada")
        await opened.episodic.record(said)
        await opened.scheduler.run_once()
        [fact] = await opened.semantic.query_facts("", owner_id="ada")

        await opened.semantic.update_fact(fact["id"], 0.1, owner_id="ada")
        await opened.scheduler.run_once()

        assert await opened.semantic.query_facts("", owner_id="ada") == []


async def test_registering_twice_at_once_opens_one_memory(
    config: MemoryConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    open_store = SQLiteMemoryStore.__aenter__

    async def counted(store: SQLiteMemoryStore) -> SQLiteMemoryStore:
        opened.append(folder(config))
        await asyncio.sleep(0)
        return await open_store(store)

    monkeypatch.setattr(SQLiteMemoryStore, "__aenter__", counted)
    provider = memory(config)

    first, second = await asyncio.gather(provider.register(), provider.register())

    assert first is second
    assert len(opened) == 1
    await provider.shutdown()

"""The working tier: contexts within a budget of tokens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd.search.context import EstimatedTokens
from slumberd.tiers import (
    DurableFactStore,
    EpisodicMemoryConfig,
    EpisodicMemoryStore,
    HealthCheckResult,
    HealthStatus,
    InMemoryMemoryBackend,
    MemoryEntry,
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
    SemanticMemoryStore,
    TokenBudgetAllocator,
    WorkingMemoryConfig,
    WorkingMemoryManager,
)
from tests.support.broken_memory import BROKEN, BrokenBackend
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids

pytestmark = pytest.mark.integration

ALL_OPEN = WorkingMemoryConfig(system_prompt_tokens=0)


def tokens(entries: list[MemoryEntry]) -> int:
    return sum(EstimatedTokens().count_tokens(one.content) for one in entries)


async def fill(episodic: EpisodicMemoryStore, *entries: MemoryEntry) -> None:
    for one in entries:
        await episodic.record(one)


async def test_context_has_facts_then_recalled_entries_then_the_latest_turns(
    in_memory: InMemoryMemoryBackend, facts: DurableFactStore, clock: FakeClock
) -> None:
    episodic = EpisodicMemoryStore(in_memory, clock=clock)
    semantic = SemanticMemoryStore(facts)
    await semantic.store_fact("Alice", "likes", "tea")
    await semantic.store_fact("Bob", "likes", "soap")
    await fill(
        episodic,
        entry("old", "Alice drinks tea at noon", age=9e6, metadata={"session_id": "s2"}),
        entry("other", "Alice drinks milk", age=9e6, metadata={"session_id": "s1"}),
        entry("first", "Hello", age=60, metadata={"session_id": "s2"}),
        entry("last", "What do you need?", age=30, metadata={"session_id": "s2"}),
    )
    two_turns = ALL_OPEN.model_copy(update={"max_recent_turns": 2})
    working = WorkingMemoryManager(episodic, semantic, two_turns, clock=clock)

    found = await working.assemble("What does Alice like?", 400, "s2")

    assert [one.content for one in found] == [
        "Alice likes tea", "Alice drinks tea at noon", "Hello", "What do you need?",
    ]  # fmt: skip
    assert found[0].role == "system"


async def test_context_of_a_session_has_its_entries_only(in_memory: InMemoryMemoryBackend) -> None:
    episodic = EpisodicMemoryStore(in_memory)
    working = WorkingMemoryManager(episodic, config=ALL_OPEN)
    for id, session in (("a", "s1"), ("b", "s2")):
        await working.add(entry(id, "blue bicycle", metadata={"session_id": session}))
    await working.add(entry("c", "blue bicycle"))

    assert ids(await working.assemble("blue bicycle", 999, session_id="s1")) == ["a"]
    assert ids(await working.assemble("blue bicycle", 999)) == ["a", "b", "c"]
    assert await working.assemble("blue bicycle", 999, session_id="s3") == []


async def test_entries_of_a_session_are_found_behind_those_of_others(
    in_memory: InMemoryMemoryBackend,
) -> None:
    episodic = EpisodicMemoryStore(in_memory, EpisodicMemoryConfig(default_top_k=1))
    for n in range(25):
        other = entry(f"o{n}", "blue bicycle", age=n, metadata={"session_id": "s2"})
        await episodic.record(other)
    await episodic.record(entry("own", "blue", age=9e6, metadata={"session_id": "s1"}))

    found = await WorkingMemoryManager(episodic, config=ALL_OPEN).assemble("bicycle", 999, "s1")

    assert ids(found) == ["own"]


async def test_context_entries_are_those_that_were_assembled_and_added_since(
    in_memory: InMemoryMemoryBackend,
) -> None:
    episodic = EpisodicMemoryStore(in_memory)
    await episodic.record(entry("old", "blue bicycle", age=9e6))
    working = WorkingMemoryManager(episodic, config=ALL_OPEN)

    assembled = await working.assemble("bicycle", 999)
    assert await working.get_context_entries() == assembled != []
    await working.add(entry("new"))
    assert ids(await working.get_context_entries()) == ["old", "new"]
    assert await working.get_context_entries(owner_id="ada") == []
    await working.flush()
    assert await working.get_context_entries() == []


async def test_working_tier_tells_of_its_turns_and_contexts(clock: FakeClock) -> None:
    told: list[object] = []
    working = WorkingMemoryManager(on_event=told.append, clock=clock)

    await working.add(entry("e1"))
    found = await working.assemble("", 4_096)

    searched = told.pop(2)
    assert isinstance(searched, MemoryRetrievedEvent)
    assert searched.results_count == len(found) == 1
    assert told == [
        MemoryStoredEvent(memory_id="e1", memory_type="working", occurred_at=clock.now()),
        MemoryWrittenHook(tier="working", backend="in_process"),
        MemoryRetrievedHook(tier="working", result_count=1),
    ]


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=40)
@given(
    st.lists(st.integers(1, 400), max_size=12),
    st.integers(0, 200),
    st.sampled_from([0, 20, 512]),
)
async def test_context_never_exceeds_its_sections(
    lengths: list[int], budget: int, system: int
) -> None:
    episodic = EpisodicMemoryStore(InMemoryMemoryBackend(clock=FakeClock()))
    await fill(episodic, *(entry(f"e{n}", "tea " * size, age=n) for n, size in enumerate(lengths)))
    config = WorkingMemoryConfig(system_prompt_tokens=system)

    found = await WorkingMemoryManager(episodic, config=config).assemble("tea", budget)

    sections = TokenBudgetAllocator(config).allocate(budget)
    assert tokens(found) <= sections["recent"] + sections["episodic"] + sections["semantic"]
    assert len({one.id for one in found}) == len(found)


async def test_count_of_the_program_s_own_tokens_decides(in_memory: InMemoryMemoryBackend) -> None:
    class Words:
        def count_tokens(self, text: str) -> int:
            return len(text.split())

    episodic = EpisodicMemoryStore(in_memory)
    await fill(episodic, entry("a", "supercalifragilistic"), entry("b", "a b c d e f g h i", age=1))
    working = WorkingMemoryManager(episodic, config=ALL_OPEN, token_counter=Words())

    assert ids(await working.assemble("", 10)) == ["a"]


async def test_context_has_at_most_so_many_latest_turns(in_memory: InMemoryMemoryBackend) -> None:
    episodic = EpisodicMemoryStore(in_memory, EpisodicMemoryConfig(default_top_k=1))
    await fill(episodic, *(entry(f"e{n}", age=n) for n in range(5)))
    config = WorkingMemoryConfig(system_prompt_tokens=0, max_recent_turns=2)

    found = await WorkingMemoryManager(episodic, config=config).assemble("e0", 9_999)

    assert ids(found) == ["e1", "e0"]


async def test_context_does_not_mix_owners(
    in_memory: InMemoryMemoryBackend, facts: DurableFactStore
) -> None:
    episodic, semantic = EpisodicMemoryStore(in_memory), SemanticMemoryStore(facts)
    await semantic.store_fact("Alice", "likes", "tea", owner_id="bob")
    working = WorkingMemoryManager(episodic, semantic, ALL_OPEN)
    await working.add(entry("e1", "Alice drinks tea", owner_id="bob"))

    assert await working.assemble("Alice", 999, owner_id="ada") == []
    assert await working.get_context_entries(owner_id="ada") == []
    assert len(await working.assemble("Alice", 999, owner_id="bob")) == 2


async def test_tier_that_fails_is_left_out_of_the_context(facts: DurableFactStore) -> None:
    semantic = SemanticMemoryStore(facts)
    await semantic.store_fact("Alice", "likes", "tea")
    working = WorkingMemoryManager(EpisodicMemoryStore(BrokenBackend()), semantic, ALL_OPEN)

    with capture_logs() as lines:
        found = await working.assemble("Alice", 400)

    assert [one.content for one in found] == ["Alice likes tea"]
    assert {line["event"] for line in lines} == {"tiers.source_failed"}


async def test_working_tier_keeps_its_latest_turns_without_other_tiers() -> None:
    working = WorkingMemoryManager(config=WorkingMemoryConfig(max_recent_turns=2))
    for turn in (entry("a", age=3), entry("b", age=2), entry("c", age=1), entry("c", "new", age=1)):
        await working.add(turn)

    assert [one.content for one in await working.get_context_entries()] == ["content of b", "new"]
    assert ids(await working.assemble("", 4_096)) == ["b", "c"]
    await working.flush()
    assert await working.get_context_entries() == await working.assemble("", 4_096) == []


async def test_added_turn_is_recorded(in_memory: InMemoryMemoryBackend) -> None:
    working = WorkingMemoryManager(EpisodicMemoryStore(in_memory))

    await working.add(entry("e1"))
    await working.flush()

    assert ids(await in_memory.get_recent(9)) == ["e1"]


async def test_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="total_tokens"):
        await WorkingMemoryManager().assemble("", -1)


async def test_health_of_the_working_tier_is_that_of_its_tiers(
    in_memory: InMemoryMemoryBackend,
) -> None:
    class Raises(EpisodicMemoryStore):
        async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # as its base
            raise BROKEN

    class Hangs(EpisodicMemoryStore):
        async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # as its base
            await asyncio.Event().wait()
            raise BROKEN

    healthy = WorkingMemoryManager(EpisodicMemoryStore(in_memory))
    degraded = WorkingMemoryManager(EpisodicMemoryStore(BrokenBackend()))
    raises, hangs = (WorkingMemoryManager(kind(in_memory)) for kind in (Raises, Hangs))

    assert (await healthy.health_check()).status is HealthStatus.HEALTHY
    assert (await degraded.health_check()).status is HealthStatus.DEGRADED
    assert (await raises.health_check()).status is HealthStatus.UNHEALTHY
    assert (await hangs.health_check(timeout=0.001)).status is HealthStatus.UNHEALTHY


async def test_turn_stays_in_its_session_when_the_caller_uses_its_metadata_again() -> None:
    working = WorkingMemoryManager(config=ALL_OPEN)
    metadata = {"session_id": "s1"}
    await working.add(entry("secret", metadata=metadata))

    metadata["session_id"] = "s2"
    await working.add(entry("other", metadata=metadata))

    assert ids(await working.assemble("", 400, "s2")) == ["other"]
    assert ids(await working.assemble("", 400, "s1")) == ["secret"]

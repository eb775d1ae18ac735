"""The ranker, the retriever, the scorers, the pruner and the allocator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd.search.context import EstimatedTokens
from slumberd.tiers import (
    BufferMemoryStore,
    DynamicContextPruner,
    HybridScorerImpl,
    InMemoryMemoryBackend,
    MemoryEntry,
    MemoryQuery,
    MemoryRetriever,
    MemorySearchResult,
    MemoryStoreError,
    PruningStrategy,
    RecencyScorerImpl,
    RelevanceRanker,
    RelevanceScorerImpl,
    TokenBudgetAllocator,
    WorkingMemoryConfig,
)
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids

pytestmark = pytest.mark.unit

DAY_SECONDS = 86_400


class Broken:
    """A store that fails."""

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        raise OSError("the disk is gone")


def ranker() -> RelevanceRanker:
    return RelevanceRanker(clock=FakeClock())


def result(
    id: str, score: float, relevance: float | None = None, **fields: Any
) -> MemorySearchResult:
    return MemorySearchResult(entry(id, **fields), score, "test", relevance)


def test_ranker_counts_relevance_recency_and_importance_once() -> None:
    [found] = ranker().rank(
        [result("a", 0.9, 0.5, age=DAY_SECONDS, importance=0.2)], MemoryQuery("x")
    )

    assert found.score == pytest.approx(0.4 * 0.5 + 0.3 * 0.367879 + 0.3 * 0.2, abs=1e-5)


def test_ranker_takes_the_score_of_a_source_without_relevances() -> None:
    found = ranker().rank([result("a", 0.2), result("b", 0.7)], MemoryQuery("x"))

    assert ids(found) == ["b", "a"]


def test_ranker_returns_at_most_k() -> None:
    results = [result(id, 1.0, 1.0) for id in "abc"]

    assert len(ranker().top_k(results, MemoryQuery("x", top_k=2))) == 2
    assert ranker().top_k(results, MemoryQuery("x"), 0) == []
    assert len(ranker().top_k(results, MemoryQuery("x", top_k=1), 3)) == 3


async def backend(*contents: tuple[str, str]) -> InMemoryMemoryBackend:
    store = InMemoryMemoryBackend(clock=FakeClock())
    for id, content in contents:
        await store.store(entry(id, content))
    return store


async def test_retriever_returns_each_entry_of_all_sources_once() -> None:
    buffer = BufferMemoryStore()
    await buffer.store(entry("both", "tea in the morning"))
    kept = await backend(("both", "tea in the morning"), ("one", "tea at noon"), ("far", "soap"))

    found = await MemoryRetriever([buffer, kept], ranker()).retrieve(MemoryQuery("tea", top_k=2))

    assert sorted(ids(found)) == ["both", "one"]


async def test_buffer_is_ranked_by_its_text_too() -> None:
    buffer = BufferMemoryStore()
    await buffer.store(entry("soap", "soap and eggs"))
    retriever = MemoryRetriever([buffer], ranker())
    retriever.add_source(await backend(("tea", "tea in the morning")))

    assert ids(await retriever.retrieve(MemoryQuery("tea"))) == ["tea", "soap"]


async def test_failing_source_is_reported_and_the_others_answer() -> None:
    retriever = MemoryRetriever([Broken(), await backend(("a", "tea"))], ranker())

    with capture_logs() as lines:
        found = await retriever.retrieve(MemoryQuery("tea"))

    assert ids(found) == ["a"]
    assert retriever.get_retrieval_stats()["failed_sources"] == 1
    assert [line["event"] for line in lines] == ["tiers.source_failed"]


async def test_search_fails_when_every_source_does() -> None:
    with pytest.raises(MemoryStoreError, match="every source"):
        await MemoryRetriever([Broken(), Broken()]).retrieve(MemoryQuery("tea"))


async def test_search_without_sources_finds_nothing() -> None:
    assert await MemoryRetriever([]).retrieve(MemoryQuery("tea")) == []


async def test_retriever_drops_what_another_owner_has() -> None:
    class Careless:
        async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
            return [MemorySearchResult(entry("a", owner_id="bob"), 1.0, "careless")]

    assert await MemoryRetriever([Careless()]).retrieve(MemoryQuery("x", owner_id="ada")) == []


async def test_retriever_counts_results_by_owner() -> None:
    retriever = MemoryRetriever([await backend(("a", "tea"), ("b", "coffee"))], ranker())
    await retriever.retrieve(MemoryQuery("tea", min_relevance=0.1))
    await retriever.retrieve(MemoryQuery(""))

    assert [retriever.get_retrieval_count(id) for id in "abc"] == [2, 1, 0]
    assert retriever.get_retrieval_count("a", owner_id="ada") == 0
    assert retriever.get_retrieval_stats() == {
        "total_retrievals": 3,
        "unique_entries": 2,
        "top_entries": [("a", 2), ("b", 1)],
        "failed_sources": 0,
    }
    retriever.reset_stats()
    assert retriever.get_retrieval_stats()["total_retrievals"] == 0


def test_recency_is_the_instant() -> None:
    assert RecencyScorerImpl().score(entry("a", age=5)) == START.timestamp() - 5


def test_hybrid_scores_recency_and_length() -> None:
    scorer = HybridScorerImpl()
    entries = [entry("old", "x" * 500, age=10), entry("mid", "x" * 2_000, age=5), entry("new", "x")]

    assert scorer.score_batch(entries) == pytest.approx([0.2, 0.7, 0.6004])
    assert scorer.score_batch([]) == []
    assert scorer.score(entries[0]) == pytest.approx(0.2)


def test_hybrid_scorer_does_not_use_the_query() -> None:
    scorer = HybridScorerImpl(recency_weight=0)
    entries = [entry("a", "soap " * 99), entry("b", "tea")]

    assert scorer.score_batch(entries, "tea") == scorer.score_batch(entries)
    assert scorer.score(entries[1], "tea") == scorer.score(entries[1])


async def test_pruner_takes_the_relevance_to_a_query_in_place_of_the_length() -> None:
    entries = [entry("a", "soap " * 99), entry("b", "tea")]

    found = await pruner().prune(entries, 1_000, "tea", reserved="for later")

    assert ids(found.kept) == ["b", "a"]


def test_relevance_is_the_same_for_all_without_a_text() -> None:
    assert RelevanceScorerImpl().score(entry("a"), "") == 1


def pruner(default: PruningStrategy = PruningStrategy.HYBRID) -> DynamicContextPruner:
    return DynamicContextPruner(EstimatedTokens(), default)


async def test_pruner_takes_a_scorer_of_the_host() -> None:
    class Shortest:
        def score(self, entry: MemoryEntry, query: str | None = None) -> float:
            assert query == "x"
            return -len(entry.content)

    found = await pruner().prune([entry("a", "x" * 80), entry("b", "x" * 8)], 99, "x", Shortest())

    assert ids(found.kept) == ["b", "a"]
    assert found.metadata["scorer_type"] == "Shortest"
    assert isinstance(found.strategy, Shortest)


async def test_pruner_keeps_the_best_that_fit() -> None:
    entries = [entry("large", "x" * 200), entry("b", "x" * 8, age=1), entry("c", "x" * 8, age=2)]

    found = await pruner(PruningStrategy.RECENCY).prune(entries, 5)

    assert ids(found.kept) == ["b", "c"]
    assert (found.pruned_count, found.original_count, found.token_budget) == (1, 3, 5)
    assert found.strategy is PruningStrategy.RECENCY
    assert found.metadata == {
        "remaining_budget": 1,
        "scorer_type": "RecencyScorerImpl",
        "nothing_fits": False,
    }


async def test_pruner_keeps_nothing_that_exceeds_the_budget() -> None:
    found = await pruner().prune([entry("large", "x" * 200)], 5)

    assert (found.kept, found.metadata["nothing_fits"]) == ([], True)


async def test_pruner_keeps_what_is_relevant_to_the_query() -> None:
    entries = [entry("soap", "eggs and soap"), entry("tea", "tea and milk", age=9e9)]

    found = await pruner().prune(entries, 4, "tea", "relevance")

    assert ids(found.kept) == ["tea"]


async def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="oldest"):
        await pruner().prune([], 5, strategy="oldest")
    with pytest.raises(ValueError, match="token_budget"):
        await pruner().prune([], -1)


@given(
    st.lists(st.text(max_size=60), max_size=8), st.integers(0, 40), st.sampled_from(PruningStrategy)
)
async def test_pruner_never_exceeds_the_budget(
    contents: list[str], budget: int, strategy: PruningStrategy
) -> None:
    entries = [entry(str(n), content or "x", age=n) for n, content in enumerate(contents)]

    found = await pruner().prune(entries, budget, "tea", strategy)

    spent = sum(EstimatedTokens().count_tokens(one.content) for one in found.kept)
    assert spent + found.metadata["remaining_budget"] == budget


def test_budget_is_divided_by_default() -> None:
    assert TokenBudgetAllocator().allocate(4_096) == {
        "system": 512, "recent": 1_435, "episodic": 1_075, "semantic": 716, "tools": 358,
    }  # fmt: skip


def test_small_budget_is_the_system_prompt_s() -> None:
    found = TokenBudgetAllocator().allocate(100)

    assert found.pop("system") == 100
    assert set(found.values()) == {0}


@pytest.mark.parametrize(
    ("field", "section"),
    [
        ("recent_turns_fraction", "recent"),
        ("episodic_fraction", "episodic"),
        ("semantic_fraction", "semantic"),
        ("tool_descriptions_fraction", "tools"),
    ],
)
def test_fraction_decides_its_section(field: str, section: str) -> None:
    names = ("recent_turns", "episodic", "semantic", "tool_descriptions")
    fractions = {f"{name}_fraction": 0.0 for name in names}
    config = WorkingMemoryConfig(system_prompt_tokens=10, **{**fractions, field: 0.5})

    found = TokenBudgetAllocator(config).allocate(110)

    assert (found["system"], found[section], found["reserve"]) == (10, 50, 50)
    assert TokenBudgetAllocator(config).budget_for(section, 110) == 50
    assert TokenBudgetAllocator(config).budget_for("unknown", 110) == 0


@given(st.integers(0, 10**7), st.lists(st.floats(0, 0.25), min_size=4, max_size=4))
def test_sections_sum_to_the_budget(total: int, fractions: list[float]) -> None:
    recent, episodic, semantic, tools = fractions
    config = WorkingMemoryConfig(
        recent_turns_fraction=recent,
        episodic_fraction=episodic,
        semantic_fraction=semantic,
        tool_descriptions_fraction=tools,
    )

    found = TokenBudgetAllocator(config).allocate(total)

    assert sum(found.values()) == total
    assert min(found.values()) >= 0


def test_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="total_tokens"):
        TokenBudgetAllocator().allocate(-5)


async def test_cancellation_inside_a_source_leaves_the_others(
    in_memory: InMemoryMemoryBackend,
) -> None:
    class Cancelled:
        async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
            raise asyncio.CancelledError

    await in_memory.store(entry("e1", "tea"))

    with capture_logs() as logs:
        found = await MemoryRetriever([Cancelled(), in_memory]).retrieve(MemoryQuery("tea"))

    assert ids(found) == ["e1"]
    assert [line["error"] for line in logs] == ["CancelledError"]

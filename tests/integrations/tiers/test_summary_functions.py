"""A summary function may return anything: no entry and no earlier summary is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd.tiers import (
    ConsolidationConfig,
    ConsolidationError,
    ConsolidationScheduler,
    EpisodicCompressor,
    InMemoryMemoryBackend,
    MemoryConsolidator,
    MemoryEntry,
    MemoryQuery,
    SummaryMemoryStore,
    VectorMemoryBackend,
)
from tests.integrations.tiers.conftest import Backends
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.word_vectors import embed_words

pytestmark = pytest.mark.unit

Summarise = Callable[[list[MemoryEntry]], Awaitable[MemoryEntry]]


def note(number: int, **fields: Any) -> MemoryEntry:
    at = START - timedelta(hours=30) + timedelta(minutes=number)
    return MemoryEntry(f"e{number}", f"word{number} other{number}", "user", at, **fields)


def text_of(entries: list[MemoryEntry]) -> str:
    return "summary of " + " ".join(entry.id for entry in entries)


async def changed_copy(entries: list[MemoryEntry]) -> MemoryEntry:
    return replace(entries[-1], content=text_of(entries))


async def constant_id(entries: list[MemoryEntry]) -> MemoryEntry:
    return MemoryEntry("summary", text_of(entries), "system", entries[-1].timestamp)


async def id_of_an_entry_that_stays(entries: list[MemoryEntry]) -> MemoryEntry:
    return MemoryEntry("e11", text_of(entries), "system", entries[-1].timestamp)


RETURNED = [changed_copy, constant_id, id_of_an_entry_that_stays]


@pytest.mark.parametrize("summarise", RETURNED)
async def test_pass_keeps_each_summary_whatever_its_id(
    backends: Backends, summarise: Summarise
) -> None:
    store = await backends.open()
    for number in range(12):
        await store.store(note(number))
    config = ConsolidationConfig(summary_size=5, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=backends.clock)

    result = await ConsolidationScheduler(store, consolidator, clock=backends.clock).run_once()

    left = await store.get_recent(99)
    summaries = [entry for entry in left if entry.metadata.get("type") == "summary"]
    replaced = [id for entry in summaries for id in entry.metadata["compressed_ids"]]
    assert len(replaced) == result.entries_consolidated > 0
    assert all(entry.content.startswith("summary of") for entry in summaries)
    assert {entry.id for entry in left} - {entry.id for entry in summaries} == {
        f"e{number}" for number in range(12)
    } - set(replaced)


@pytest.mark.parametrize("summarise", RETURNED)
async def test_summary_store_keeps_each_summary_whatever_its_id(summarise: Summarise) -> None:
    store = SummaryMemoryStore(4, 2, summarise)

    for number in range(9):
        await store.store(note(number))

    found = await store.retrieve(MemoryQuery("", top_k=99))
    summaries = [one.entry for one in found if one.source == "summary"]
    replaced = [id for entry in summaries for id in entry.metadata["compressed_ids"]]
    hot = [one.entry.id for one in found if one.source == "hot"]
    assert sorted([*replaced, *hot]) == [f"e{number}" for number in range(9)]
    assert len(summaries) == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("a text", id="a text"),
        pytest.param(None, id="nothing"),
        pytest.param({"id": "s", "content": "a text"}, id="a dict"),
        pytest.param(MemoryEntry("s", " ", "system", START), id="an entry without a text"),
        pytest.param(MemoryEntry("s", 5, "system", START), id="a number as text"),  # type: ignore[arg-type] # that is the test
    ],
)
async def test_answer_that_is_no_entry_is_an_error_and_deletes_nothing(
    backends: Backends, answer: Any
) -> None:
    async def summarise(_: list[MemoryEntry]) -> MemoryEntry:
        found: MemoryEntry = answer
        return found

    store = await backends.open()
    for number in range(4):
        await store.store(note(number))
    config = ConsolidationConfig(summary_size=2, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=backends.clock)

    with capture_logs() as logs:
        result = await ConsolidationScheduler(store, consolidator, clock=backends.clock).run_once()

    assert [line["error"] for line in logs] == ["ConsolidationError"]
    assert result.entries_consolidated == 0
    assert len(await store.get_recent(99)) == 4
    with pytest.raises(ConsolidationError, match="the summary function returned"):
        await EpisodicCompressor(summarise).compress([note(1)])


async def test_summary_that_cannot_be_stored_deletes_nothing(backends: Backends) -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return replace(entries[0], metadata={"not": {"JSON"}})

    store = await backends.open()
    for number in range(3):
        await store.store(note(number))
    config = ConsolidationConfig(summary_size=2, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=backends.clock)

    with capture_logs() as logs:
        await ConsolidationScheduler(store, consolidator, clock=backends.clock).run_once()

    assert [line["event"] for line in logs] == ["tiers.consolidation_failed"]
    assert len(await store.get_recent(99)) == 3


async def test_entry_that_is_written_during_a_pass_stays_with_its_new_content(
    backends: Backends,
) -> None:
    store = await backends.open()

    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        for number in (0, 4):
            await store.store(replace(note(number, importance=0.01), content="new content"))
        return await changed_copy(entries)

    for number in range(4):
        await store.store(note(number))
    await store.store(note(4, importance=0.01))
    await store.store(note(5, importance=0.01))
    config = ConsolidationConfig(summary_size=4, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=backends.clock)

    result = await ConsolidationScheduler(store, consolidator, clock=backends.clock).run_once()

    left = {entry.id: entry.content for entry in await store.get_recent(99)}
    assert left["e0"] == left["e4"] == "new content"
    assert "e5" not in left
    assert (result.entries_consolidated, result.entries_pruned) == (0, 1)


async def test_entry_that_gets_the_importance_of_its_duplicate_keeps_a_new_content(
    backends: Backends,
) -> None:
    store = await backends.open()
    await store.store(note(1, importance=0.2))
    await store.store(replace(note(1, importance=0.9), id="e0", timestamp=note(0).timestamp))
    rewritten = replace(note(1), content="new content")
    [kept, _] = await store.get_recent(9)
    consolidator = MemoryConsolidator(clock=backends.clock)
    plan = consolidator.plan_batch

    async def write_then_plan(*args: Any) -> Any:
        found = await plan(*args)
        await store.store(rewritten)
        return found

    consolidator.plan_batch = write_then_plan  # type: ignore[method-assign,assignment] # between read and write

    await ConsolidationScheduler(store, consolidator, clock=backends.clock).run_once()

    assert kept.importance == 0.2
    left = {entry.id: entry.content for entry in await store.get_recent(9)}
    assert left == {"e1": "new content", "e0": "word1 other1"}


async def test_vector_and_expiry_that_a_function_copied_are_left_out() -> None:
    expires_at = START + timedelta(hours=1)
    entries = [note(n, embedding=[1.0, 0.0], expires_at=expires_at) for n in range(2)]

    found = await EpisodicCompressor(changed_copy).compress(entries)

    assert (found.embedding, found.expires_at) == (None, None)


async def test_summary_is_found_by_its_own_meaning() -> None:
    store = VectorMemoryBackend(None, embed_words)
    await store.store(note(1))
    [entry] = await store.get_recent(1)

    found = await EpisodicCompressor(changed_copy).compress([entry])
    await store.store(found)

    best, *_ = await store.retrieve(MemoryQuery(found.content, relevance_weight=1, top_k=1))
    assert best.entry.id == found.id
    assert best.relevance == pytest.approx(1)


async def test_later_entries_with_the_ids_of_earlier_ones_get_another_summary() -> None:
    entries = [note(1), note(2)]
    again = [replace(entry, content=f"later {entry.content}") for entry in entries]

    first = await EpisodicCompressor().compress(entries)
    second = await EpisodicCompressor().compress(again)

    assert first.id != second.id
    assert (await EpisodicCompressor().compress(entries[::-1])).id == first.id


async def test_summary_of_one_session_has_its_session() -> None:
    one = [note(n, metadata={"session_id": "s1"}) for n in range(2)]
    other = note(2, metadata={"session_id": "s2"})

    assert (await EpisodicCompressor(constant_id).compress(one)).session_id == "s1"
    assert (await EpisodicCompressor(constant_id).compress([*one, other])).session_id == ""


CONTENTS = ["Ann likes tea", "Bob has dogs", "We met in Oslo", "It rains today"]


async def first_of(entries: list[MemoryEntry]) -> MemoryEntry:
    return entries[0]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(CONTENTS), st.sampled_from("xyz"), st.integers(1, 9))),
    st.integers(1, 7),
    st.integers(2, 4),
    st.sampled_from([*RETURNED, first_of]),
)
async def test_each_content_is_kept_or_summarised_whatever_the_sizes(
    said: list[tuple[str, str, int]], batch: int, size: int, summarise: Summarise
) -> None:
    store = InMemoryMemoryBackend(clock=FakeClock())
    given_ids = {}
    for number, (content, session, importance) in enumerate(said):
        one = note(number, importance=importance / 10, metadata={"session_id": session})
        await store.store(replace(one, content=content))
        given_ids[one.id] = content
    config = ConsolidationConfig(batch_size=batch, summary_size=size, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=FakeClock())
    scheduler = ConsolidationScheduler(store, consolidator, clock=FakeClock())

    for _ in range(2 * len(said) + 1):
        await scheduler.run_once()

    left = await store.get_recent(99)
    covered = {id for entry in left for id in (entry.id, *entry.metadata.get("compressed_ids", ()))}
    assert {given_ids[id] for id in covered if id in given_ids} == set(given_ids.values())


class OwnEntry(MemoryEntry):
    """An entry of a host that cannot be copied with changes."""

    def __init__(self, text: str) -> None:
        super().__init__("own", text, "system", START)


async def without_metadata(entries: list[MemoryEntry]) -> MemoryEntry:
    metadata: Any = None
    return replace(entries[-1], metadata=metadata)


async def without_role(entries: list[MemoryEntry]) -> MemoryEntry:
    role: Any = None
    return replace(entries[-1], role=role)


async def with_words_as_vector(entries: list[MemoryEntry]) -> MemoryEntry:
    vector: Any = ["no", "number"]
    return replace(entries[-1], embedding=vector)


async def of_its_own_class(entries: list[MemoryEntry]) -> MemoryEntry:
    return OwnEntry(text_of(entries))


async def cancelled_inside(entries: list[MemoryEntry]) -> MemoryEntry:
    raise asyncio.CancelledError


ODD = [without_metadata, without_role, with_words_as_vector, of_its_own_class, cancelled_inside]


@pytest.mark.parametrize("summarise", ODD)
async def test_odd_summary_stops_neither_a_write_nor_the_next_owner(summarise: Summarise) -> None:
    store = SummaryMemoryStore(2, 2, summarise)
    backend = InMemoryMemoryBackend(clock=FakeClock())
    for number in range(3):
        await store.store(note(number))
        await backend.store(note(number, owner_id="ada"))
        await backend.store(note(number, owner_id="bob"))
    consolidator = MemoryConsolidator(
        ConsolidationConfig(summary_size=2, recency_threshold=0), summarise, clock=FakeClock()
    )

    with capture_logs() as logs:
        await ConsolidationScheduler(backend, consolidator, clock=FakeClock()).run_once()

    assert len(await store.get_recent(9)) == 3
    assert [len(await backend.get_recent(9, owner_id=owner)) for owner in ("ada", "bob")] == [3, 3]
    assert [line["error"] for line in logs] == ["ConsolidationError"] * 2


async def test_summary_may_have_an_array_as_its_vector() -> None:
    import numpy  # slow to import

    async def with_array(entries: list[MemoryEntry]) -> MemoryEntry:
        vector: Any = numpy.array([0.5, 1.0])
        return replace(entries[-1], embedding=vector)

    found = await EpisodicCompressor(with_array).compress([note(1), note(2)])

    assert found.embedding == [0.5, 1.0]


async def test_summary_of_several_sessions_has_none_of_them() -> None:
    sessions = [note(n, metadata={"session_id": f"s{n}", "kind": "chat"}) for n in (1, 2)]

    found = await EpisodicCompressor(changed_copy).compress(sessions)

    assert found.session_id == ""
    assert found.metadata["kind"] == "chat"

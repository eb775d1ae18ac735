"""The stores of conversations: buffer, sessions, entities, summaries and the context window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from slumberd.tiers import (
    BufferMemoryStore,
    ConsolidationConfig,
    ConsolidationScheduler,
    ConversationBuffer,
    ConversationMemoryStore,
    EntityMemoryStore,
    InMemoryMemoryBackend,
    MemoryConsolidator,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    MemoryStoreProtocol,
    SummaryMemoryStore,
)
from tests.support.fakes import FakeClock
from tests.support.memory_entries import entry, ids

pytestmark = pytest.mark.unit

Store = BufferMemoryStore | ConversationMemoryStore | EntityMemoryStore | SummaryMemoryStore
Make = Callable[[MemoryStoreProtocol | None], Store]

ALL = [
    pytest.param(lambda kept: BufferMemoryStore(backend=kept), id="buffer"),
    pytest.param(lambda kept: ConversationMemoryStore(backend=kept), id="conversation"),
    pytest.param(lambda kept: EntityMemoryStore(backend=kept), id="entity"),
    pytest.param(lambda kept: SummaryMemoryStore(backend=kept), id="summary"),
]


async def fill(store: Store, *entries: MemoryEntry) -> None:
    for one in entries:
        await store.store(one)


def in_session(id: str, session: str, **fields: Any) -> MemoryEntry:
    return entry(id, metadata={"session_id": session}, **fields)


@pytest.mark.parametrize("make", ALL)
async def test_store_returns_the_latest_entries_newest_first(make: Make) -> None:
    store = make(None)
    await fill(store, entry("a"), entry("b"), entry("c"))

    assert ids(await store.get_recent(2)) == ["c", "b"]
    assert await store.get_recent(0) == await store.get_recent(-1) == []


@pytest.mark.parametrize("make", ALL)
async def test_store_keeps_an_id_once(make: Make) -> None:
    store = make(None)

    await fill(store, entry("a", "old"), entry("b"), entry("a", "new"))

    assert [one.content for one in await store.get_recent(9)] == ["new", "content of b"]


@pytest.mark.parametrize("make", ALL)
async def test_store_forgets_what_is_deleted(make: Make) -> None:
    store = make(None)
    await fill(store, entry("a"), entry("b"), entry("c"))

    await store.delete("b")
    await store.delete("unknown")
    assert ids(await store.get_recent(9)) == ["c", "a"]

    await store.clear()
    assert await store.get_recent(9) == []
    assert await store.retrieve(MemoryQuery("")) == []


@pytest.mark.parametrize("make", ALL)
async def test_store_does_not_mix_owners(make: Make) -> None:
    store = make(None)
    await fill(store, entry("a", "1", owner_id="ada"), entry("a", "2", owner_id="bob"))

    await store.delete("a")
    await store.clear(owner_id="bob")

    found = await store.retrieve(MemoryQuery("", owner_id="ada"))
    assert [one.entry.content for one in found] == ["1"]
    assert await store.retrieve(MemoryQuery("", owner_id="bob")) == []
    assert await store.get_recent(9) == []


@pytest.mark.parametrize("make", ALL)
async def test_store_keeps_its_entries_in_a_back_end(make: Make) -> None:
    kept = InMemoryMemoryBackend()
    first = make(kept)
    await fill(first, entry("a", age=3), entry("b", age=2), entry("c", age=1))
    await first.delete("b")

    again = make(kept)

    assert ids(await again.get_recent(9)) == ["c", "a"]
    await again.clear()
    assert await kept.get_recent(9) == []


@pytest.mark.parametrize("make", ALL)
async def test_result_has_the_relevance_to_the_text(make: Make) -> None:
    store = make(None)
    await fill(store, entry("a", "eggs and soap"), entry("b", "quantum physics"))

    found = {one.entry.id: one for one in await store.retrieve(MemoryQuery("quantum"))}

    assert found["a"].relevance == 0
    assert (found["b"].relevance or 0) > 0.5


async def test_buffer_drops_the_oldest_entries_of_an_owner() -> None:
    store = BufferMemoryStore(max_entries=2)

    await fill(store, entry("x", owner_id="bob"), entry("a"), entry("b"), entry("c"))

    [newest, older] = await store.retrieve(MemoryQuery(""))
    assert (newest.entry.id, newest.score, newest.source) == ("c", 1.0, "buffer")
    assert older.entry.id == "b"
    assert ids(await store.get_recent(9, owner_id="bob")) == ["x"]


async def test_conversation_is_divided_by_session() -> None:
    store = ConversationMemoryStore()
    await fill(
        store, in_session("a", "s1"), in_session("b", "s2"), entry("c"), in_session("d", "s1")
    )

    assert ids(await store.get_session_entries("s1")) == ["a", "d"]
    assert ids(await store.get_session_entries("_default")) == ["c"]
    assert await store.get_session_entries("unknown") == []
    found = await store.retrieve(MemoryQuery("", filters={"session_id": "s1"}))
    assert (ids(found), found[0].score, found[0].source) == (["d", "a"], 1.0, "conversation")
    assert ids(await store.retrieve(MemoryQuery("", filters={"session_id": "_default"}))) == ["c"]
    assert ids(await store.retrieve(MemoryQuery("", top_k=3))) == ["d", "c", "b"]


async def test_conversation_drops_the_oldest_turns_of_a_session() -> None:
    store = ConversationMemoryStore(max_turns_per_session=2)

    await fill(store, in_session("x", "s2"), *(in_session(id, "s1") for id in "abc"))

    assert ids(await store.get_session_entries("s1")) == ["b", "c"]
    assert ids(await store.get_session_entries("s2")) == ["x"]


async def test_entries_are_found_by_entity() -> None:
    store = EntityMemoryStore()
    await store.store(entry("a", age=9), ["Ada", "Tea"])
    await store.store(entry("b"), ["ada"])
    await store.store(entry("c", owner_id="bob"), ["Ada"])

    assert ids(await store.get_by_entity("ADA")) == ["b", "a"]
    assert ids(await store.get_by_entity("tea")) == ["a"]
    assert await store.get_by_entity("te") == []
    assert ids(await store.get_by_entity("ada", owner_id="bob")) == ["c"]


async def test_entities_of_an_entry_are_replaced_with_it() -> None:
    store = EntityMemoryStore()
    await store.store(entry("a"), ["Ada"])

    await store.store(entry("a"), ["Bob"])

    assert await store.get_by_entity("Ada") == []
    assert ids(await store.get_by_entity("Bob")) == ["a"]
    await store.delete("a")
    assert await store.get_by_entity("Bob") == []


async def test_entity_store_ranks_by_importance() -> None:
    store = EntityMemoryStore()
    await fill(
        store,
        entry("low", importance=0.1, metadata={"kind": "note"}),
        entry("high", importance=0.9, metadata={"kind": "note"}),
        entry("other", importance=1),
    )

    found = await store.retrieve(MemoryQuery("", filters={"kind": "note"}))

    assert [(one.entry.id, one.score, one.source) for one in found] == [
        ("high", 0.9, "entity"),
        ("low", 0.1, "entity"),
    ]


async def test_oldest_entries_become_a_summary() -> None:
    store = SummaryMemoryStore(compress_threshold=4, compress_batch=2)

    await fill(store, *(entry(f"e{n}", f"Ada has {n} cats.") for n in range(4)))

    assert ids(await store.get_recent(9)) == ["e3", "e2"]
    summary, *hot = await store.retrieve(MemoryQuery("", top_k=4))
    assert summary.entry.metadata["compressed_ids"] == ["e0", "e1"]
    assert (summary.score, summary.source) == (0.9, "summary")
    assert ids(hot) == ["e3", "e2"]


async def test_single_result_is_no_summary() -> None:
    store = SummaryMemoryStore(compress_threshold=2, compress_batch=1)
    await fill(store, entry("a"), entry("b"))

    assert ids(await store.retrieve(MemoryQuery("", top_k=1))) == ["b"]
    assert await store.retrieve(MemoryQuery("", top_k=0)) == []


async def test_summary_is_of_one_owner() -> None:
    store = SummaryMemoryStore(compress_threshold=2, compress_batch=2)

    await fill(store, entry("a", owner_id="ada"), entry("b", owner_id="bob"))
    assert len(await store.get_recent(9, owner_id="ada")) == 1

    await fill(store, entry("c", owner_id="ada"))
    [found] = await store.retrieve(MemoryQuery("", owner_id="ada"))
    assert found.entry.metadata["compressed_ids"] == ["a", "c"]
    assert found.entry.owner_id == "ada"


async def test_summary_that_fails_loses_no_entry() -> None:
    calls = []

    async def fail(entries: list[MemoryEntry]) -> MemoryEntry:
        calls.append(ids(entries))
        if len(calls) < 3:
            raise OSError("no model")
        return entry("s", "a summary")

    store = SummaryMemoryStore(compress_threshold=2, compress_batch=2, summarise_fn=fail)

    with capture_logs() as lines:
        await fill(store, entry("a"), entry("b"), entry("c"))

    assert ids(await store.get_recent(9)) == ["c", "b", "a"]
    assert [line["event"] for line in lines] == 2 * ["tiers.summary_failed"]
    await fill(store, entry("d"))
    assert ids(await store.get_recent(9)) == ["d", "c"]
    assert calls[-1] == ["a", "b"]


async def test_entry_that_changes_while_it_is_summarised_stays() -> None:
    async def slow(entries: list[MemoryEntry]) -> MemoryEntry:
        await store.store(entry("a", "changed"))
        return entry("s", "a summary")

    store = SummaryMemoryStore(compress_threshold=2, compress_batch=2, summarise_fn=slow)

    await fill(store, entry("a"), entry("b"))

    assert [one.content for one in await store.get_recent(9)] == ["changed", "content of b"]


async def test_entry_that_another_program_changes_while_it_is_summarised_stays() -> None:
    backend = InMemoryMemoryBackend()

    async def slow(entries: list[MemoryEntry]) -> MemoryEntry:
        await backend.store(entry("a", "changed"))
        return entries[0]

    store = SummaryMemoryStore(2, 2, slow, backend=backend)

    await fill(store, entry("a", age=1), entry("b"))

    contents = [one.content for one in await store.get_recent(9)]
    assert contents == ["content of b", "changed"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: BufferMemoryStore(0), id="buffer"),
        pytest.param(lambda: ConversationMemoryStore(0), id="conversation"),
        pytest.param(lambda: SummaryMemoryStore(1, 2), id="batch above the threshold"),
        pytest.param(lambda: SummaryMemoryStore(2, 0), id="no batch"),
        pytest.param(lambda: ConversationBuffer(0), id="no turns"),
        pytest.param(lambda: ConversationBuffer(1, -1), id="negative tokens"),
    ],
)
def test_limit_out_of_bounds_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="not "):
        make()


async def test_window_has_at_most_so_many_turns() -> None:
    window = ConversationBuffer(max_turns=2)

    for id in "abc":
        await window.add(entry(id, "x" * 8))

    assert ids(window.get_context()) == ["b", "c"]
    assert (window.size, window.total_tokens) == (2, 4)


async def test_window_has_at_most_so_many_tokens_but_one_turn() -> None:
    window = ConversationBuffer(max_tokens=4)

    for id in "ab":
        await window.add(entry(id, "x" * 12))
    assert ids(window.get_context()) == ["b"]

    await window.add(entry("c", "x" * 100))
    assert ids(window.get_context()) == ["c"]


async def test_window_counts_tokens_with_the_counter_that_it_gets() -> None:
    class CountedWords:
        def count_tokens(self, text: str) -> int:
            return len(text.split())

    window = ConversationBuffer(token_counter=CountedWords())

    await window.add(entry("a", "one two three"))

    assert window.total_tokens == 3


async def test_window_without_a_limit_of_tokens_keeps_its_turns() -> None:
    window = ConversationBuffer(max_tokens=0)

    for id in "ab":
        await window.add(entry(id, "x" * 99_999))

    assert window.size == 2
    window.clear()
    assert (window.get_context(), window.size, window.total_tokens) == ([], 0, 0)


async def test_window_keeps_a_turn_once() -> None:
    window = ConversationBuffer()

    for turn in (entry("a", "x" * 40), entry("b"), entry("a", "new")):
        await window.add(turn)

    assert [one.content for one in window.get_context()] == ["content of b", "new"]
    assert window.total_tokens == 4


async def test_pass_over_a_full_buffer_displaces_no_other_entry() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("any", "summary of " + " ".join(ids(entries)))

    day = 86_400
    buffer = BufferMemoryStore(3)
    await fill(buffer, entry("new"), entry("b", age=2 * day), entry("a", age=3 * day))
    config = ConsolidationConfig(summary_size=2, recency_threshold=0)
    consolidator = MemoryConsolidator(config, summarise, clock=FakeClock())

    await ConsolidationScheduler(buffer, consolidator, clock=FakeClock()).run_once()

    found = [one.content for one in await buffer.get_recent(9)]
    assert found == ["summary of a b", "content of new"]


async def test_turn_stays_in_its_session_when_the_caller_uses_its_metadata_again() -> None:
    store = ConversationMemoryStore()
    metadata = {"session_id": "s1"}
    await store.store(entry("a", metadata=metadata))

    metadata["session_id"] = "s2"
    for found in (await store.get_recent(9), await store.get_session_entries("s1")):
        cast("dict[str, Any]", found[0].metadata)["session_id"] = "s3"
    await store.store(entry("b", metadata=metadata))

    assert ids(await store.get_session_entries("s1")) == ["a"]
    assert ids(await store.get_session_entries("s2")) == ["b"]


class SlowBackend(InMemoryMemoryBackend):
    """Lets other calls go on within each write and each deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    async def store(self, entry: MemoryEntry) -> None:
        await asyncio.sleep(0)
        await super().store(entry)
        if self.error is not None:
            raise self.error

    async def clear(self, *, owner_id: str = "") -> None:
        await asyncio.sleep(0)
        await super().clear(owner_id=owner_id)


@pytest.mark.parametrize("make", ALL)
async def test_store_has_what_its_back_end_has_after_calls_at_once(make: Make) -> None:
    kept = SlowBackend()
    store = make(kept)
    await store.store(entry("a"))

    await asyncio.gather(store.store(entry("b")), store.clear(), store.store(entry("c")))

    assert ids(await store.get_recent(9)) == ids(await kept.get_recent(9))


@pytest.mark.parametrize("make", ALL)
async def test_store_reads_again_after_a_write_that_failed_half_way(make: Make) -> None:
    kept = SlowBackend()
    store = make(kept)
    await store.store(entry("a"))
    kept.error = OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        await store.store(entry("b"))

    assert ids(await store.get_recent(9)) == ids(await kept.get_recent(9))


async def test_write_succeeds_when_the_back_end_cannot_store_the_summary() -> None:
    class Refusing(InMemoryMemoryBackend):
        async def replace_entries(self, *_: object, **__: object) -> bool:
            raise OSError("the network is gone")

    store = SummaryMemoryStore(2, 2, backend=Refusing())

    with capture_logs() as logs:
        await fill(store, entry("a"), entry("b"))

    assert ids(await store.get_recent(9)) == ["b", "a"]
    assert [line["event"] for line in logs] == ["tiers.summary_failed"]


class Host:
    """Has the methods of the specification; the first deletion of an entry may fail."""

    def __init__(self) -> None:
        self.entries: dict[str, MemoryEntry] = {}
        self.broken = {"b"}

    async def store(self, entry: MemoryEntry) -> None:
        self.entries[entry.id] = entry

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        return []

    async def get_recent(self, n: int) -> list[MemoryEntry]:
        return sorted(self.entries.values(), key=lambda one: one.timestamp)[::-1][:n]

    async def delete(self, entry_id: str) -> None:
        if entry_id in self.broken:
            self.broken.discard(entry_id)
            raise OSError("the network is gone")
        self.entries.pop(entry_id, None)

    async def clear(self) -> None:
        self.entries.clear()


async def test_store_finishes_a_summary_whose_back_end_failed_half_way() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("any", "summary of " + " ".join(ids(entries)), age=9)

    host = Host()
    store = SummaryMemoryStore(3, 2, summarise, backend=host)
    with capture_logs():
        await fill(store, *(entry(id, id, age=age) for id, age in (("a", 9), ("b", 8), ("c", 7))))

    await fill(store, entry("d", "d", age=6))

    kept = sorted(one.content for one in host.entries.values())
    assert kept == ["c", "d", "summary of a b"]
    assert ids(await store.get_recent(9)) == ["d", "c"]

"""The consolidator and the scheduler of the tiered memory API."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
import structlog
from pydantic import ValidationError
from structlog.testing import capture_logs

from slumberd.tiers import (
    ConsolidationConfig,
    ConsolidationError,
    ConsolidationResult,
    ConsolidationScheduler,
    EntityExtractor,
    EpisodicCompressor,
    FactExtractionError,
    MemoryConsolidator,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    MemoryQuery,
    MemorySearchResult,
    Triple,
    VectorMemoryBackend,
)
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.word_vectors import embed_words

pytestmark = pytest.mark.unit

SMALL = ConsolidationConfig(summary_size=2, recency_threshold=0)


def entry(id: str, content: str = "", hours: float = 25, **fields: Any) -> MemoryEntry:
    at = START - timedelta(hours=hours)
    return MemoryEntry(id, content or f"The word{id} is here", "user", at, **fields)


class Store:
    """A store in memory; it fails for the ids in `broken`."""

    def __init__(self, *entries: MemoryEntry) -> None:
        self.entries = {one.id: one for one in entries}
        self.broken: set[str] = set()
        self.calls: list[str] = []

    async def store(self, entry: MemoryEntry) -> None:
        self.calls.append(f"store {entry.id}")
        self.entries[entry.id] = entry

    async def retrieve(self, query: MemoryQuery) -> list[MemorySearchResult]:
        return [MemorySearchResult(one, 1, "test") for one in self.entries.values()][: query.top_k]

    async def get_recent(self, n: int) -> list[MemoryEntry]:
        newest = sorted(self.entries.values(), key=lambda one: one.timestamp, reverse=True)
        return newest[:n]

    async def delete(self, entry_id: str) -> None:
        if entry_id in self.broken:
            raise OSError("the disk is full")
        self.calls.append(f"delete {entry_id}")
        self.entries.pop(entry_id, None)

    async def clear(self) -> None:
        self.entries.clear()


def consolidator(config: ConsolidationConfig | None = None, **parts: Any) -> MemoryConsolidator:
    return MemoryConsolidator(config, clock=FakeClock(), **parts)


def summarising() -> MemoryConsolidator:
    return consolidator(SMALL, summarise_fn=EpisodicCompressor().compress)


def counts(result: ConsolidationResult) -> tuple[int, int, int, int]:
    return (
        result.entries_processed,
        result.entries_consolidated,
        result.entries_pruned,
        result.entities_extracted,
    )


async def test_pass_prunes_repeats_and_old_and_unimportant_entries() -> None:
    told: list[str] = []
    entries = [
        entry("new", "Ann likes tea", 25, importance=0.2),
        entry("repeat", "Ann likes tea", 26, importance=0.9),
        entry("young", "Ann likes tea", 1),
        entry("old", hours=9_999),
        entry("dear", hours=9_999, importance=0.8),
        entry("poor", importance=0.05),
    ]
    found = consolidator(on_strategy=lambda hook: told.append(hook.strategy))

    plan = await found.plan(entries)

    assert {one.id for one in plan.pruned} == {"repeat", "old", "poor"}
    assert [(one.id, one.importance) for one in plan.updated] == [("new", 0.9)]
    assert counts(await found.consolidate(entries)) == (5, 0, 3, 0)
    assert told == ["deduplication", "recency_decay", "importance"]


async def test_every_age_below_the_threshold_is_left_alone() -> None:
    entries = [entry("a", hours=23.9, importance=0), entry("b", hours=24, importance=0)]

    plan = await consolidator().plan(entries)

    assert ([one.id for one in plan.pruned], plan.processed) == (["b"], 1)


async def test_scheduler_writes_the_result_back() -> None:
    store = Store(entry("new", "tea", 25, importance=0.2), entry("old", "tea", 26, importance=0.9))
    scheduler = ConsolidationScheduler(store, consolidator(), clock=FakeClock())

    first, second = await scheduler.run_once(), await scheduler.run_once()

    assert (counts(first), counts(second)) == ((2, 0, 1, 0), (1, 0, 0, 0))
    assert {id: one.importance for id, one in store.entries.items()} == {"new": 0.9}
    assert store.calls == ["store new", "delete old"]


async def test_summary_replaces_its_entries_and_is_not_summarised_again() -> None:
    entries = [
        entry(f"e{n}", f"Ann met person{n} in Oslo.", 30 - n, metadata={"session_id": "s1"})
        for n in range(5)
    ]
    store = Store(*entries, entry("other", metadata={"session_id": "s2"}))
    scheduler = ConsolidationScheduler(store, summarising(), clock=FakeClock())

    first, second = await scheduler.run_once(), await scheduler.run_once()

    assert (counts(first), counts(second)) == ((6, 4, 0, 0), (2, 0, 0, 0))
    summaries = [one for one in store.entries.values() if one.metadata.get("type") == "summary"]
    assert [one.metadata["compressed_ids"] for one in summaries] == [["e0", "e1"], ["e2", "e3"]]
    assert "person0" in summaries[0].content
    assert {"e4", "other"} <= store.entries.keys()
    assert store.calls[0].startswith("store summary-")


async def test_entries_of_different_owners_are_consolidated_apart() -> None:
    store = Store(*(entry(f"{owner}{n}", f"note{n}", 30 - n, owner_id=owner)
                    for owner in "ab" for n in range(3)))  # fmt: skip
    store.broken = {"a0"}
    scheduler = ConsolidationScheduler(store, summarising(), clock=FakeClock())

    with capture_logs() as logs:
        result = await scheduler.run_once()

    # The summary of the entry that cannot be deleted is stored, and does not count.
    assert counts(result) == (6, 2, 0, 0)
    assert [(line["event"], line["error"]) for line in logs] == [
        ("tiers.consolidation_failed", "OSError")
    ]
    summaries = [one for one in store.entries.values() if one.metadata.get("type") == "summary"]
    assert {(one.owner_id, *one.metadata["compressed_ids"]) for one in summaries} == {
        ("a", "a0", "a1"), ("b", "b0", "b1"),
    }  # fmt: skip
    assert "a0" in store.entries


async def test_host_that_configures_no_structlog_finds_the_failure_in_its_logging(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    structlog.reset_defaults()
    # A command that another test has run in this process may have left its handler behind.
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    store = Store(entry("a", importance=0))
    store.broken = {"a"}

    await ConsolidationScheduler(store, consolidator(), clock=FakeClock()).run_once()

    [record] = caplog.records
    assert (record.name, record.levelname) == ("slumberd", "ERROR")
    assert record.getMessage() == "tiers.consolidation_failed: OSError: the disk is full"
    assert capsys.readouterr().out == ""


async def test_one_id_of_two_owners_is_refused_before_anything_is_deleted() -> None:
    class Careless(Store):
        async def get_recent(self, n: int) -> list[MemoryEntry]:
            return [entry("e1", owner_id=owner, importance=0) for owner in "ab"]

    store = Careless()

    with pytest.raises(ConsolidationError, match="two entries have the id 'e1'"):
        await ConsolidationScheduler(store, consolidator(), clock=FakeClock()).run_once()

    assert store.calls == []
    with pytest.raises(ConsolidationError, match="two entries"):
        await consolidator().plan([entry("e1"), entry("e1")])


async def test_result_counts_only_what_was_written() -> None:
    store = Store(entry("a", importance=0), entry("b", importance=0, hours=26))
    store.broken = {"b"}
    scheduler = ConsolidationScheduler(store, consolidator(), clock=FakeClock())

    with capture_logs():
        assert counts(await scheduler.run_once()) == (2, 0, 1, 0)


async def test_triples_are_counted_when_they_are_stored() -> None:
    stored: list[tuple[Triple, str]] = []

    async def store_triple(triple: Triple, entry: MemoryEntry) -> None:
        stored.append((triple, entry.id))

    store = Store(entry("a", "Bob works at Acme. Hi!"), entry("b", "Bob works at Acme. Hi!", 26))
    found = consolidator(extractor=EntityExtractor())

    kept = ConsolidationScheduler(store, found, store_triple=store_triple, clock=FakeClock())
    dropped = ConsolidationScheduler(store, found, clock=FakeClock())

    assert counts(await dropped.run_once()) == (2, 0, 1, 0)
    assert counts(await kept.run_once()) == (1, 0, 0, 1)
    assert stored == [(("Bob", "works_at", "Acme"), "a")]


async def test_scheduler_waits_for_its_interval_and_does_not_drift() -> None:
    clock, waits, passes = FakeClock(), list[float](), list[int]()
    third = asyncio.Event()

    async def wait(event: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        clock.advance(seconds)
        if len(waits) == 4:
            third.set()
            await event.wait()
        return event.is_set()

    class Slow(Store):
        async def get_recent(self, n: int) -> list[MemoryEntry]:
            passes.append(len(waits))
            clock.advance(5 if len(waits) < 3 else 99)
            raise OSError("the disk is full")

    scheduler = ConsolidationScheduler(
        Slow(), consolidator(), ConsolidationConfig(interval_seconds=60), clock=clock, wait=wait
    )
    with capture_logs() as logs:
        await scheduler.start()
        await scheduler.start()
        await third.wait()
        assert scheduler.running
        await scheduler.stop()
        await scheduler.stop()

    assert passes == [1, 2, 3]  # none before the first wait
    # A pass that takes longer than the interval is followed by the next one at once.
    assert waits == [60, 55, 55, 0]
    assert [line["event"] for line in logs] == ["tiers.consolidation_failed"] * 3


class Loop:
    """Waits for nobody; it ends the loop at a wait."""

    def __init__(self, ends_at: int) -> None:
        self.left = ends_at
        self.ended = asyncio.Event()

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        del seconds
        self.left -= 1
        if self.left < 0:
            self.ended.set()
            await event.wait()
        return event.is_set()


async def test_pass_looks_at_no_more_entries_than_its_batch() -> None:
    store = Store(*(entry(f"e{n}", hours=30 - n, importance=0.5) for n in range(5)))
    config = ConsolidationConfig(batch_size=2, recency_threshold=0)
    scheduler = ConsolidationScheduler(store, consolidator(config), clock=FakeClock())

    processed = [(await scheduler.run_once()).entries_processed for _ in range(4)]

    assert processed == [2, 2, 1, 2]  # the fourth begins anew
    assert (
        await consolidator(config).consolidate([*store.entries.values()])
    ).entries_processed == 2


async def test_each_interval_ends_when_all_entries_were_looked_at() -> None:
    store = Store(*(
        entry(f"{owner}{n}", hours=30 - n, importance=0, owner_id=owner)
        for owner in "abc" for n in range(2)
    ))  # fmt: skip
    loop = Loop(1)
    scheduler = ConsolidationScheduler(
        store, consolidator(ConsolidationConfig(batch_size=2)), clock=FakeClock(), wait=loop.wait
    )

    await scheduler.start()
    await loop.ended.wait()
    await scheduler.stop()

    assert store.entries == {}


async def test_duplicates_in_several_batches_all_go() -> None:
    store = Store(
        *(entry(f"old{n}", "Ann likes tea", 40 - n, importance=0.3 + n / 10) for n in range(3)),
        entry("new", "Ann likes tea", 30, importance=0.2),
    )
    loop = Loop(1)
    config = ConsolidationConfig(batch_size=1, recency_threshold=0)
    scheduler = ConsolidationScheduler(
        store, consolidator(config), clock=FakeClock(), wait=loop.wait
    )

    await scheduler.start()
    await loop.ended.wait()
    await scheduler.stop()

    assert {id: one.importance for id, one in store.entries.items()} == {"new": 0.5}


async def test_store_is_read_once_for_all_passes_of_an_interval() -> None:
    class Counting(Store):
        reads = 0

        async def get_recent(self, n: int) -> list[MemoryEntry]:
            self.reads += 1
            return await super().get_recent(n)

    stores = [Counting(*(entry(f"e{n}", hours=30) for n in range(count))) for count in (2, 40)]
    for store in stores:
        loop, config = Loop(1), ConsolidationConfig(batch_size=4, recency_threshold=0)
        scheduler = ConsolidationScheduler(
            store, consolidator(config), clock=FakeClock(), wait=loop.wait
        )
        await scheduler.start()
        await loop.ended.wait()
        await scheduler.stop()

    assert stores[0].reads == stores[1].reads


async def test_deleted_entry_is_not_read_by_a_later_pass() -> None:
    given: list[str] = []

    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        given.extend(one.id for one in entries)
        return entries[0]

    store = Store(*(entry(f"e{n}", hours=30 - n) for n in range(4)))
    config = ConsolidationConfig(batch_size=2, recency_threshold=0)
    scheduler = ConsolidationScheduler(
        store, consolidator(config, summarise_fn=summarise), clock=FakeClock()
    )

    await scheduler.run_once()
    await store.delete("e2")
    await scheduler.run_once()

    assert given == ["e0", "e1"]


async def test_duplicate_is_found_beyond_the_batch() -> None:
    store = Store(
        entry("old", "Ann likes tea", 40, importance=0.9),
        entry("other", hours=39),
        entry("new", "Ann likes tea", 30, importance=0.2),
    )
    config = ConsolidationConfig(batch_size=1, recency_threshold=0)
    scheduler = ConsolidationScheduler(store, consolidator(config), clock=FakeClock())

    assert counts(await scheduler.run_once()) == (1, 0, 1, 0)

    assert {id: one.importance for id, one in store.entries.items()} == {"other": 0.5, "new": 0.9}


async def test_batch_that_fails_does_not_keep_the_next_from_its_turn() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        if entries[0].id == "e0":
            raise OSError("no model")
        return entries[0]

    store = Store(*(entry(f"e{n}", hours=30 - n) for n in range(4)))
    config = ConsolidationConfig(batch_size=2, recency_threshold=0)
    found = consolidator(config, summarise_fn=summarise)
    scheduler = ConsolidationScheduler(store, found, clock=FakeClock())

    with capture_logs():
        results = [counts(await scheduler.run_once()) for _ in range(2)]

    assert results == [(0, 0, 0, 0), (2, 2, 0, 0)]


async def test_nothing_is_replaced_without_a_summary_function() -> None:
    store = Store(*(entry(f"e{n}", hours=90 - n) for n in range(60)))
    config = ConsolidationConfig(recency_threshold=0)

    result = await ConsolidationScheduler(store, consolidator(config), clock=FakeClock()).run_once()

    assert counts(result) == (60, 0, 0, 0)
    assert len(store.entries) == 60


async def test_subscriber_that_raises_ends_no_pass() -> None:
    def fail(_: object) -> None:
        raise ValueError("no")

    store = Store(entry("a", "tea", 25), entry("b", "tea", 26))
    found = consolidator(on_strategy=fail)

    with capture_logs() as logs:
        result = await ConsolidationScheduler(store, found, clock=FakeClock()).run_once()

    assert counts(result) == (2, 0, 1, 0)
    assert {line["event"] for line in logs} == {"tiers.subscriber_failed"}
    assert (await found.health_check()).is_healthy()


async def test_subscriber_is_told_after_the_pass_has_written() -> None:
    store = Store(entry("a", "tea", 25), entry("b", "tea", 26))
    seen: list[tuple[str, int]] = []
    found = consolidator(on_strategy=lambda hook: seen.append((hook.strategy, len(store.entries))))

    await ConsolidationScheduler(store, found, clock=FakeClock()).run_once()

    assert seen == [("deduplication", 1), ("recency_decay", 1), ("importance", 1)]


class HostConsolidator:
    """Has the one method of the protocol; it counts what it is given."""

    def __init__(self, answer: Any = None) -> None:
        self.given: list[list[str]] = []
        self._answer = answer

    async def consolidate(self, entries: list[MemoryEntry]) -> ConsolidationResult:
        self.given.append([one.id for one in entries])
        found: ConsolidationResult = self._answer or ConsolidationResult(len(entries), 1, 2, 3, 4.0)
        return found


async def test_consolidator_of_a_host_gets_the_entries_of_the_store() -> None:
    store = Store(*(entry(f"e{n}", hours=5 - n) for n in range(5)))
    host = HostConsolidator()
    scheduler = ConsolidationScheduler(
        store, host, ConsolidationConfig(batch_size=3), clock=FakeClock()
    )

    first, second = await scheduler.run_once(), await scheduler.run_once()

    assert (counts(first), counts(second)) == ((3, 1, 2, 3), (2, 1, 2, 3))
    assert host.given == [["e0", "e1", "e2"], ["e3", "e4"]]
    assert isinstance(host, MemoryConsolidatorProtocol)
    assert store.calls == []


async def test_class_of_a_host_may_inherit_the_consolidator() -> None:
    class Own(MemoryConsolidator):
        async def consolidate(self, entries: list[MemoryEntry]) -> ConsolidationResult:
            return ConsolidationResult(len(entries), 7, 0, 0, 0.0)

    store = Store(entry("a"))

    result = await ConsolidationScheduler(store, Own(), clock=FakeClock()).run_once()

    assert counts(result) == (1, 7, 0, 0)


async def test_answer_of_a_host_that_is_no_result_is_logged() -> None:
    scheduler = ConsolidationScheduler(Store(entry("a")), HostConsolidator("a text"))

    with capture_logs() as logs:
        assert counts(await scheduler.run_once()) == (0, 0, 0, 0)

    [line] = logs
    assert line["message"] == "the consolidator returned str, not a ConsolidationResult"


async def test_summary_function_that_takes_it_gets_the_number_of_tokens() -> None:
    asked: list[int] = []

    async def summarise(entries: list[MemoryEntry], *, max_tokens: int = 0) -> MemoryEntry:
        asked.append(max_tokens)
        return entries[0]

    config = ConsolidationConfig(summary_size=2, recency_threshold=0, max_summary_tokens=7)
    await consolidator(config, summarise_fn=summarise).plan([entry("a"), entry("b", hours=26)])

    assert asked == [7]


async def test_disabled_scheduler_does_not_start() -> None:
    scheduler = ConsolidationScheduler(Store(), consolidator(ConsolidationConfig(enabled=False)))

    await scheduler.start()

    assert not scheduler.running


async def test_health_tells_whether_the_last_pass_succeeded() -> None:
    async def fail(_: list[MemoryEntry]) -> MemoryEntry:
        raise OSError("the model is down")

    found = consolidator(SMALL, summarise_fn=fail)
    assert (await found.health_check()).is_healthy()

    with pytest.raises(ConsolidationError, match="OSError: the model is down"):
        await found.plan([entry(f"e{n}", hours=30 - n) for n in range(3)])

    failed = await found.health_check()
    assert (failed.is_healthy(), failed.is_degraded()) == (False, True)
    assert failed.to_dict() == {
        "component": "memory_consolidator", "status": "degraded", "message": None,
        "error": "ConsolidationError: the summary function failed: OSError: the model is down",
        "duration_ms": 0.0, "details": None, "checked_at": START.isoformat(),
        "category": "readiness",
    }  # fmt: skip
    await found.plan([])
    health = await found.health_check(timeout=1)
    assert (health.is_healthy(), health.message) == (True, "0 entries")


@pytest.mark.parametrize(
    "key", ["interval_seconds", "age_threshold_hours", "batch_size", "summary_size"]
)
def test_configuration_out_of_bounds_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        ConsolidationConfig.model_validate({key: 0})


def test_unknown_key_of_the_configuration_is_refused() -> None:
    with pytest.raises(ValidationError, match="intervall"):
        ConsolidationConfig.model_validate({"intervall": 1})


async def test_compressor_makes_one_entry_within_its_tokens() -> None:
    entries = [
        entry("a", "Ann went to Oslo. She met Bob there.", 3, importance=0.2, owner_id="o"),
        entry("b", "Bob lives in Oslo.", 2, importance=0.4, owner_id="o"),
    ]

    found = await EpisodicCompressor().compress(entries, max_tokens=5)

    assert 0 < len(found.content) // 4 <= 5
    assert found.importance == pytest.approx(0.3)
    assert (found.owner_id, found.role, found.timestamp) == ("o", "system", entries[1].timestamp)
    assert found.metadata == {"type": "summary", "compressed_ids": ["a", "b"]}
    assert (await EpisodicCompressor().compress(entries)).id == found.id


async def test_compressor_keeps_what_its_function_says() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return MemoryEntry(
            "s1", f"{len(entries)} notes", "system", START, metadata={"by": "a model"}
        )

    found = await EpisodicCompressor(summarise).compress([entry("a"), entry("b")])

    assert found.id.startswith("summary-")
    assert found.content == "2 notes"
    assert found.metadata == {"by": "a model", "type": "summary", "compressed_ids": ["a", "b"]}


async def test_compressor_refuses_nothing_and_several_owners() -> None:
    with pytest.raises(ConsolidationError, match="no entries"):
        await EpisodicCompressor().compress([])
    with pytest.raises(ConsolidationError, match="several owners"):
        await EpisodicCompressor().compress([entry("a", owner_id="x"), entry("b", owner_id="y")])


@pytest.mark.parametrize(
    ("text", "triples"),
    [
        ("Bob has two dogs.", [("Bob", "has_pet", "dog")]),
        ("He is a chef.", []),
        ("Hi! I'm a chef! Are you?", [("user", "job", "chef")]),
    ],
)
async def test_extractor_reads_plain_sentences(text: str, triples: list[Triple]) -> None:
    assert await EntityExtractor().extract(entry("a", text)) == triples


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (KeyError("x"), "KeyError"),
        ([("a", "b")], "no triple of texts"),
        ([("a", "b", 5)], "no triple of texts"),
        ([("a", "", "c")], "no triple of texts"),
        ([5], "TypeError"),
    ],
)
async def test_failed_extraction_names_its_entry(answer: Any, problem: str) -> None:
    async def extract(_: str) -> list[Triple]:
        if isinstance(answer, Exception):
            raise answer
        found: list[Triple] = answer
        return found

    with pytest.raises(FactExtractionError, match=problem) as caught:
        await EntityExtractor(extract).extract(entry("a"))

    assert caught.value.entry_id == "a"


async def test_extractor_takes_the_triples_of_its_function() -> None:
    async def extract(text: str) -> list[Triple]:
        return [("the text", "is", text)]

    assert await EntityExtractor(extract).extract(entry("a", "x")) == [("the text", "is", "x")]


async def test_passes_at_once_count_each_entry_once() -> None:
    class Slow(Store):
        async def get_recent(self, n: int) -> list[MemoryEntry]:
            await asyncio.sleep(0)
            return await super().get_recent(n)

        async def store(self, entry: MemoryEntry) -> None:
            await asyncio.sleep(0)
            await super().store(entry)

    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        await asyncio.sleep(0)
        return entry("any", "summary")

    store = Slow(*(entry(f"e{number}") for number in range(4)))
    scheduler = ConsolidationScheduler(store, consolidator(SMALL, summarise_fn=summarise))

    found = await asyncio.gather(*(scheduler.run_once() for _ in range(3)))

    assert sum(one.entries_consolidated for one in found) == 4


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("broken", ["e0", "e1"])
async def test_next_pass_deletes_what_a_summary_replaced_before_the_store_failed(
    broken: str, vectors: bool
) -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("any", "summary of " + " ".join(one.id for one in entries))

    store = Store(*(entry(f"e{number}", hours=40 - number) for number in range(3)))
    store.broken = {broken}
    kept = VectorMemoryBackend(store, embed_words) if vectors else store
    scheduler = ConsolidationScheduler(kept, consolidator(SMALL, summarise_fn=summarise))
    with capture_logs():
        await scheduler.run_once()

    store.broken = set()
    await scheduler.run_once()

    found = {one.content for one in store.entries.values()}
    assert found == {"summary of e0 e1", "The worde2 is here"}


async def test_next_pass_deletes_what_a_summary_replaced_whose_write_failed_late() -> None:
    class Late(Store):
        async def store(self, entry: MemoryEntry) -> None:
            await super().store(entry)
            if "compressed_ids" in entry.metadata and "e9" not in self.entries:
                raise OSError("no answer")

    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("any", "summary of " + " ".join(one.id for one in entries))

    store = Late(entry("e1", hours=40), entry("e2", hours=39))
    scheduler = ConsolidationScheduler(store, consolidator(SMALL, summarise_fn=summarise))
    with capture_logs():
        await scheduler.run_once()

    store.entries["e9"] = entry("e9", hours=50)  # now the groups would be others
    await scheduler.run_once()

    assert {one.content for one in store.entries.values()} == {
        "summary of e1 e2",
        "The worde9 is here",
    }


async def test_entry_that_was_written_anew_after_the_store_failed_stays() -> None:
    async def summarise(entries: list[MemoryEntry]) -> MemoryEntry:
        return entry("any", "summary")

    store = Store(entry("e0", hours=40), entry("e1", hours=39))
    store.broken = {"e0"}
    scheduler = ConsolidationScheduler(store, consolidator(SMALL, summarise_fn=summarise))
    with capture_logs():
        await scheduler.run_once()

    store.broken = set()
    store.entries["e0"] = entry("e0", "new words", hours=1)
    await scheduler.run_once()

    assert store.entries["e0"].content == "new words"
    assert "e1" not in store.entries


async def test_cancellation_inside_a_part_of_the_host_does_not_end_the_loop() -> None:
    class Cancelled(Store):
        async def get_recent(self, n: int) -> list[MemoryEntry]:
            raise asyncio.CancelledError

    passes = asyncio.Semaphore(0)

    async def wait(stopping: asyncio.Event, seconds: float) -> bool:
        passes.release()
        await asyncio.sleep(0)
        return stopping.is_set()

    scheduler = ConsolidationScheduler(Cancelled(), consolidator(), wait=wait)
    with capture_logs() as logs:
        await scheduler.start()
        for _ in range(3):
            await passes.acquire()
        await scheduler.stop()

    assert {line["error"] for line in logs} == {"CancelledError"}

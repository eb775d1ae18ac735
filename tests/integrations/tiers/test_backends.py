"""The contract of all back ends of the tiered memory API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from slumberd.tiers import (
    MemoryEntry,
    MemoryQuery,
    MemoryStoreError,
    MemorySystemError,
    OwnedStoreProtocol,
    ReplacingStoreProtocol,
)
from tests.integrations.tiers.conftest import Backends
from tests.support.builders import START
from tests.support.memory_entries import entry, ids

pytestmark = pytest.mark.integration

ONLY_RELEVANCE: dict[str, Any] = {
    "recency_weight": 0, "importance_weight": 0, "relevance_weight": 1,
}  # fmt: skip


async def store(backend: OwnedStoreProtocol, *entries: MemoryEntry) -> None:
    for one in entries:
        await backend.store(one)


async def test_stored_entry_comes_back_equal(backend: OwnedStoreProtocol) -> None:
    stored = entry(
        "e1",
        "Zoë drinks tea ☕",
        importance=0.8,
        metadata={"session_id": "s1", "importance": "host's own", "nested": {"list": [1, None]}},
        embedding=[0.5, -0.25],
        owner_id="ada",
    )

    await backend.store(stored)

    assert await backend.get_recent(5, owner_id="ada") == [stored]
    [found] = await backend.retrieve(MemoryQuery("", owner_id="ada"))
    assert found.entry == stored


async def test_change_of_a_returned_entry_changes_nothing_in_the_store(
    backend: OwnedStoreProtocol,
) -> None:
    given: dict[str, Any] = {"list": [1, ("a", "b")]}
    await backend.store(entry("e1", "tea", metadata=given, embedding=[0.5]))

    given["list"].append(2)
    [first] = await backend.get_recent(5)
    [result] = await backend.retrieve(MemoryQuery("tea"))
    for one in (first, result.entry):
        one.metadata["list"].append(3)
        (one.embedding or []).append(4.0)

    [found] = await backend.get_recent(300)
    assert (found.metadata, found.embedding) == ({"list": [1, ["a", "b"]]}, [0.5])
    [result] = await backend.retrieve(MemoryQuery(""))
    assert result.entry == found


async def test_entry_replaces_the_one_of_its_id(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", "tea"), entry("e1", "coffee", importance=0.9, age=5))

    [found] = await backend.get_recent(5)

    assert (found.content, found.importance) == ("coffee", 0.9)
    assert found.timestamp == START - timedelta(seconds=5)


async def test_entry_moves_to_another_session(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", metadata={"session_id": "s1"}))

    await backend.store(entry("e1", metadata={"session_id": "s2"}))

    assert [one.session_id for one in await backend.get_recent(5)] == ["s2"]


async def test_recent_entries_are_newest_first(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("b", age=60), entry("a", age=60), entry("new"), entry("old", age=99))

    assert ids(await backend.get_recent(3)) == ["new", "b", "a"]
    assert ids(await backend.get_recent(99)) == ["new", "b", "a", "old"]


@pytest.mark.parametrize("n", [0, -1])
async def test_no_recent_entries_are_none(backend: OwnedStoreProtocol, n: int) -> None:
    await store(backend, entry("e1"))

    assert await backend.get_recent(n) == []


async def test_instant_of_another_zone_is_ordered_by_its_instant(
    backend: OwnedStoreProtocol,
) -> None:
    in_tokyo = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    await store(
        backend,
        MemoryEntry("tokyo", "x", "user", in_tokyo),
        MemoryEntry("utc", "x", "user", datetime(2026, 1, 1, 1, tzinfo=UTC)),
    )

    assert ids(await backend.get_recent(2)) == ["utc", "tokyo"]


async def test_text_of_the_query_counts(backend: OwnedStoreProtocol) -> None:
    await store(
        backend,
        entry("list", "eggs and bread and soap"),
        entry("physics", "quantum physics is about small things"),
    )

    found = await backend.retrieve(MemoryQuery("quantum physics", **ONLY_RELEVANCE))

    assert ids(found) == ["physics", "list"]
    assert found[0].score > found[1].score == 0


@pytest.mark.slow
async def test_changed_text_is_found_by_its_new_words_only(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", "tea in the morning"))
    assert await backend.retrieve(MemoryQuery("tea", min_relevance=0.1))

    await backend.store(entry("e1", "stock market"))

    assert await backend.retrieve(MemoryQuery("tea", min_relevance=0.1)) == []
    assert ids(await backend.retrieve(MemoryQuery("market", min_relevance=0.1))) == ["e1"]


async def test_least_relevance_is_of_the_text_alone(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("new", "eggs", importance=1), entry("old", "tea", age=9e6))

    found = await backend.retrieve(MemoryQuery("tea", min_relevance=0.5))

    assert ids(found) == ["old"]


async def test_recency_and_importance_count(backend: OwnedStoreProtocol) -> None:
    await store(
        backend,
        entry("new", age=3_600, importance=0.1),
        entry("important", age=864_000, importance=1),
    )
    by_recency = MemoryQuery("", recency_weight=1, importance_weight=0, relevance_weight=0)
    by_importance = MemoryQuery("", recency_weight=0, importance_weight=1, relevance_weight=0)

    assert ids(await backend.retrieve(by_recency)) == ["new", "important"]
    assert ids(await backend.retrieve(by_importance)) == ["important", "new"]


async def test_score_is_the_weighted_sum(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", age=86_400, importance=0.4))

    [found] = await backend.retrieve(MemoryQuery(""))

    assert found.score == pytest.approx(0.3 * 0.36788 + 0.3 * 0.4 + 0.4, abs=1e-4)
    assert found.relevance == 1
    assert found.source


@pytest.mark.slow
async def test_future_entry_is_no_better_than_a_new_one(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("future", age=-9e8), entry("new"))

    found = await backend.retrieve(MemoryQuery(""))

    assert found[0].score == found[1].score <= 1


async def test_results_are_at_most_top_k(backend: OwnedStoreProtocol) -> None:
    await store(backend, *(entry(f"e{n}", age=n) for n in range(5)))

    assert ids(await backend.retrieve(MemoryQuery("", top_k=2))) == ["e0", "e1"]
    assert await backend.retrieve(MemoryQuery("", top_k=0)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        pytest.param({"kind": "turn"}, ["turn"], id="equal"),
        pytest.param({"kind": "turn", "n": 2}, [], id="all must be equal"),
        pytest.param({"n": 1}, ["turn"], id="true is not one"),
        pytest.param({"missing": None}, [], id="null does not match a missing key"),
        pytest.param({"tags": ["a"]}, ["other"], id="a list"),
    ],
)
async def test_filters_are_exact(
    backend: OwnedStoreProtocol, filters: dict[str, Any], found: list[str]
) -> None:
    await store(
        backend,
        entry("turn", metadata={"kind": "turn", "n": 1}),
        entry("other", metadata={"kind": "note", "n": True, "tags": ["a"]}),
    )

    assert ids(await backend.retrieve(MemoryQuery("", filters=filters))) == found


async def test_time_range_has_both_ends(backend: OwnedStoreProtocol) -> None:
    await store(backend, *(entry(str(age), age=age) for age in (0, 10, 20, 30)))

    found = await backend.retrieve(
        MemoryQuery("", time_range=(START - timedelta(seconds=20), START - timedelta(seconds=10)))
    )

    assert ids(found) == ["10", "20"]


async def test_deleted_entry_is_gone(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", "tea"), entry("e2", "tea"))
    await backend.retrieve(MemoryQuery("tea"))

    await backend.delete("e1")
    await backend.delete("unknown")

    assert ids(await backend.get_recent(5)) == ["e2"]
    assert ids(await backend.retrieve(MemoryQuery("tea"))) == ["e2"]


async def test_cleared_store_is_empty(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", "tea"), entry("e2", "tea", metadata={"session_id": "s"}))
    await backend.retrieve(MemoryQuery("tea"))

    await backend.clear()
    await backend.clear()

    assert await backend.get_recent(5) == []
    assert await backend.retrieve(MemoryQuery("tea")) == []


async def test_owners_do_not_see_each_other(backend: OwnedStoreProtocol) -> None:
    await store(
        backend,
        entry("e1", "ada's tea", owner_id="ada"),
        entry("e1", "bob's tea", owner_id="bob"),
        entry("e1", "nobody's tea"),
    )

    assert [one.content for one in await backend.get_recent(9, owner_id="ada")] == ["ada's tea"]
    assert [one.content for one in await backend.get_recent(9)] == ["nobody's tea"]
    found = await backend.retrieve(MemoryQuery("tea", owner_id="bob"))
    assert [one.entry.content for one in found] == ["bob's tea"]
    assert await backend.owners() == ["", "ada", "bob"]


async def test_owner_deletes_only_own_entries(backend: OwnedStoreProtocol) -> None:
    await store(backend, entry("e1", owner_id="ada"), entry("e1", owner_id="bob"), entry("e1"))

    await backend.delete("e1", owner_id="ada")
    await backend.clear()

    assert await backend.owners() == ["bob"]
    assert ids(await backend.get_recent(9, owner_id="bob")) == ["e1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("a:b", "c"), ("a", "b:c"), id="colon"),
        pytest.param(("a/b", "c"), ("a", "b/c"), id="slash"),
        pytest.param(("-", "c"), ("", "c"), id="mark of the empty owner"),
        pytest.param(("-a", "c"), ("a", "c"), id="mark"),
        pytest.param(("Ada", "c"), ("ada", "c"), id="case"),
    ],
)
async def test_names_that_look_alike_do_not_collide(
    backend: OwnedStoreProtocol, first: tuple[str, str], second: tuple[str, str]
) -> None:
    (owner, id), (other, other_id) = first, second
    await store(backend, entry(id, "1", owner_id=owner), entry(other_id, "2", owner_id=other))

    assert [one.content for one in await backend.get_recent(9, owner_id=owner)] == ["1"]
    assert [one.content for one in await backend.get_recent(9, owner_id=other)] == ["2"]
    assert await backend.owners() == sorted([owner, other])


async def test_entry_expires_after_the_time_of_the_store(backends: Backends) -> None:
    backend = await backends.open(ttl_seconds=60)
    await store(backend, entry("e1", "tea", age=9e6))
    assert ids(await backend.retrieve(MemoryQuery("tea"))) == ["e1"]

    backends.clock.advance(60)

    assert await backend.get_recent(5) == []
    assert await backend.retrieve(MemoryQuery("tea")) == []


async def test_entry_says_when_it_expires(backends: Backends) -> None:
    backend = await backends.open()
    await store(
        backend,
        entry("e1", expires_at=START + timedelta(seconds=5)),
        entry("e2", age=1),
        entry("gone", expires_at=START),
    )

    backends.clock.advance(5)

    assert ids(await backend.get_recent(1)) == ["e2"]
    assert ids(await backend.retrieve(MemoryQuery(""))) == ["e2"]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"n": float("nan")}, id="not a number"),
        pytest.param({"at": START}, id="instant"),
        pytest.param({"set": {1}}, id="set"),
        pytest.param({"text": "\ud800"}, id="half of a character"),
    ],
)
async def test_metadata_that_is_not_json_is_refused(
    backend: OwnedStoreProtocol, metadata: dict[str, Any]
) -> None:
    with pytest.raises(MemoryStoreError, match="e1"):
        await backend.store(entry("e1", metadata=metadata))

    assert await backend.get_recent(5) == []


async def test_later_change_of_the_metadata_changes_no_stored_entry(
    backend: OwnedStoreProtocol,
) -> None:
    metadata = {"tags": ["a"]}
    await backend.store(entry("e1", metadata=metadata))

    metadata["tags"].append("b")

    assert (await backend.get_recent(1))[0].metadata == {"tags": ["a"]}


@pytest.mark.slow
async def test_concurrent_writes_are_all_found(backend: OwnedStoreProtocol) -> None:
    await asyncio.gather(*(backend.store(entry(f"e{n}", f"tea {n}")) for n in range(50)))

    assert len(await backend.get_recent(99)) == 50
    assert len(await backend.retrieve(MemoryQuery("tea", top_k=99))) == 50


@pytest.mark.slow
async def test_more_entries_than_a_page_are_found(backend: OwnedStoreProtocol) -> None:
    await asyncio.gather(*(backend.store(entry(f"e{n:04}", "tea", age=n)) for n in range(1_010)))

    assert ids(await backend.get_recent(1_005))[-1] == "e1004"
    assert len(await backend.retrieve(MemoryQuery("tea", top_k=2_000))) == 1_010


async def test_healthy_store_is_healthy(backends: Backends) -> None:
    found = await (await backends.open()).health_check()

    assert found.is_healthy(), found
    assert (found.component, found.error) == (backends.name, None)
    assert found.checked_at == START


async def test_entries_outlive_the_process(shared_backends: Backends) -> None:
    await store(await shared_backends.open(), entry("e1", "tea"))

    other = await shared_backends.open()

    assert ids(await other.get_recent(5)) == ["e1"]
    assert ids(await other.retrieve(MemoryQuery("tea"))) == ["e1"]


async def test_search_finds_what_another_process_has_written(shared_backends: Backends) -> None:
    ours, theirs = await shared_backends.open(), await shared_backends.open()
    await store(ours, entry("e1", "tea"))
    assert len(await ours.retrieve(MemoryQuery("tea"))) == 1

    await theirs.store(entry("e2", "tea"))
    await theirs.delete("e1")

    assert ids(await ours.retrieve(MemoryQuery("tea"))) == ["e2"]


async def test_entries_are_replaced_together(backend: OwnedStoreProtocol) -> None:
    assert isinstance(backend, ReplacingStoreProtocol)
    await store(backend, entry("a", owner_id="ada"), entry("b", owner_id="ada"), entry("a"))
    a, b = sorted(await backend.get_recent(9, owner_id="ada"), key=lambda one: one.id)

    raised = replace(b, importance=0.9)
    assert await backend.replace_entries([a, b], [raised], owner_id="ada")

    assert await backend.get_recent(9, owner_id="ada") == [raised]
    assert ids(await backend.get_recent(9)) == ["a"]
    assert await backend.replace_entries([], [entry("c", owner_id="ada")], owner_id="ada")
    assert len(await backend.get_recent(9, owner_id="ada")) == 2


@pytest.mark.parametrize(
    "change", [{"content": "new"}, {"importance": 0.9}, {"metadata": {"a": 1}}], ids=str
)
async def test_nothing_is_replaced_when_one_entry_has_changed(
    backend: OwnedStoreProtocol, change: dict[str, Any]
) -> None:
    assert isinstance(backend, ReplacingStoreProtocol)
    await store(backend, entry("a"), entry("b"))
    read = await backend.get_recent(9)
    await backend.store(replace(entry("b"), **change))

    assert not await backend.replace_entries(read, [entry("c")])
    assert not await backend.replace_entries([entry("unknown")], [entry("c")])
    assert not await backend.replace_entries([entry("a", owner_id="ada")], [], owner_id="ada")

    assert sorted(ids(await backend.get_recent(9))) == ["a", "b"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1}, {"content": None}, {"role": None}, {"owner_id": 5}, {"metadata": None},
        {"embedding": "ab"},
    ],
    ids=str,
)  # fmt: skip
async def test_entry_of_other_types_is_refused_and_not_kept(
    backend: OwnedStoreProtocol, wrong: dict[str, Any]
) -> None:
    with pytest.raises(MemorySystemError):
        await backend.store(replace(entry("e1"), **wrong))

    assert await backend.get_recent(5) == []


async def test_session_that_is_none_is_no_session(backend: OwnedStoreProtocol) -> None:
    await backend.store(entry("e1", metadata={"session_id": None}))

    [found] = await backend.get_recent(5)
    assert (found.session_id, found.metadata) == ("", {"session_id": None})

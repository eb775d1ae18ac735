"""The store of records has none of the faults that other stores of this contract have."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slumberd.contract import EpisodeMemoryStore, MemorySearchQuery
from slumberd.model.episode import speaker_of
from slumberd.model.errors import MemoryScopeError, RecordRefusedError
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.fakes import FakeClock
from tests.support.record_stores import ask, ids, record

pytestmark = pytest.mark.integration

LONG = " ".join(f"word{number}" for number in range(2_000))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EpisodeMemoryStore]:
    with EpisodeMemoryStore(tmp_path / "memory.db", clock=FakeClock()) as opened:
        yield opened


@pytest.fixture
def by_meaning(tmp_path: Path) -> Iterator[EpisodeMemoryStore]:
    with EpisodeMemoryStore(tmp_path / "memory.db", vectors=True) as opened:
        yield opened


def test_id_in_two_namespaces_is_two_records(store: EpisodeMemoryStore) -> None:
    store.write([record("tea of one", "x", a=1)], namespace="one")
    store.write([record("tea of two", "x")], namespace="two")

    [one] = store.search(ask("tea", namespace="one"))
    [two] = store.search(ask("tea", namespace="two"))

    assert (one.content, one.metadata) == ("tea of one", {"a": 1})
    assert two.content == "tea of two"


def test_namespace_and_id_that_join_to_the_same_text_stay_apart(store: EpisodeMemoryStore) -> None:
    pairs = [("a", "b/c"), ("a/b", "c"), ('a","b', "c"), ("a", 'b","c'), ("a%2Fb", "c")]
    for namespace, id in pairs:
        store.write([record(f"tea {namespace}", id)], namespace=namespace)

    found = [store.search(ask("tea", namespace=namespace)) for namespace, _ in pairs]

    assert [{one.namespace for one in some} for some in found] == [{n} for n, _ in pairs]
    assert [len(some) for some in found] == [2, 1, 1, 2, 1]


@pytest.mark.parametrize("least", [None, 0.0, -1.0])
def test_record_that_answers_nothing_is_never_found(
    store: EpisodeMemoryStore, least: float | None
) -> None:
    store.write([record("tea", "a"), record("stock market", "b"), record("", "c")])

    assert ids(store.search(ask("tea", min_score=least))) == ["a"]
    assert store.search(ask("bicycle", min_score=least)) == []
    assert store.search(ask("", min_score=least)) == []


@pytest.mark.slow
def test_replaced_text_is_not_found_by_its_old_meaning(
    by_meaning: EpisodeMemoryStore, tmp_path: Path
) -> None:
    others = [record("the stock market", "b"), record("rain all day", "c")]
    by_meaning.write([record("a kitten plays", "a"), *others])
    assert ids(by_meaning.search(ask("cat"))) == ["a"]

    by_meaning.write([record("stock market crash", "a")])

    with EpisodeMemoryStore(tmp_path / "fresh.db", vectors=True) as fresh:
        fresh.write([record("stock market crash", "a"), *others])
        assert _meanings(by_meaning) == pytest.approx(_meanings(fresh), abs=1e-6)


def _meanings(store: EpisodeMemoryStore) -> dict[str, float | None]:
    return {one.item_id: one.vector_score for one in store.search(ask("cat"))}


@pytest.mark.slow
def test_all_scores_are_on_one_scale(by_meaning: EpisodeMemoryStore) -> None:
    by_meaning.write([record("the cat sleeps", "a"), record("a kitten naps", "b")])
    by_meaning.write([record("12345", "c"), record("", "d")])

    for query in ("the cat sleeps", "kitten", "invoice of the quarter"):
        for found in by_meaning.search(ask(query, top_k=9)):
            scores = (found.score, found.lexical_score, found.vector_score)
            assert all(score is not None and 0 <= score <= 1 for score in scores)
            assert (found.lexical_score or 0.0) + (found.vector_score or 0.0) > 0
            assert (found.score or 0) >= (found.lexical_score or 0)


def test_meaning_adds_nothing_where_there_is_none(by_meaning: EpisodeMemoryStore) -> None:
    by_meaning.write([record("tea", "a"), record("\u2603", "b")])

    assert "b" not in ids(by_meaning.search(ask("tea", top_k=9)))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("東京に住んでいます", "東京", id="Japanese"),
        pytest.param("我喜欢喝绿茶", "绿茶", id="Chinese"),
        pytest.param("Où est le café ?", "cafe", id="French without accents"),
        pytest.param("Ou est le cafe ?", "CAFÉ", id="French with accents"),
        pytest.param("Ich wohne in der Königsstraße", "königsstrasse", id="German"),
        pytest.param("Она живёт в Москве", "москве", id="Russian"),
    ],
)
def test_words_of_any_language_are_found(store: EpisodeMemoryStore, text: str, query: str) -> None:
    store.write([record(text, "a"), record("something else", "b")], namespace="ñ 東")

    [found] = store.search(ask(query, namespace="ñ 東"))

    assert (found.content, found.namespace) == (text, "ñ 東")


def test_part_of_a_word_with_an_accent_is_not_the_word(store: EpisodeMemoryStore) -> None:
    store.write([record("a café", "a")])

    assert store.search(ask("caf")) == []


def test_stems_of_a_declared_language_are_found(tmp_path: Path) -> None:
    with EpisodeMemoryStore(tmp_path / "memory.db", language="english") as store:
        store.write([record("she was running", "a")])

        assert ids(store.search(ask("runs"))) == ["a"]


def test_rare_word_counts_more_than_a_frequent_one(store: EpisodeMemoryStore) -> None:
    store.write([record("tea again", f"{number}") for number in range(20)])
    store.write([record("a zebra", "rare")])

    assert ids(store.search(ask("tea zebra")))[0] == "rare"


def test_long_text_has_no_advantage(store: EpisodeMemoryStore) -> None:
    store.write([record(f"{LONG} allergic peanuts", "long")])
    store.write([record("allergic to peanuts", "short")])

    assert ids(store.search(ask("allergic peanuts"))) == ["short", "long"]


def test_filter_by_none_does_not_match_a_missing_key(store: EpisodeMemoryStore) -> None:
    store.write([record("tea", "missing"), record("tea", "none", x=None)])

    assert ids(store.search(ask("tea", metadata_filters={"x": None}))) == ["none"]


def test_filter_does_not_mix_types(store: EpisodeMemoryStore) -> None:
    values = {"true": True, "one": 1, "float": 1.0, "text": "1", "list": [1], "inner": {"y": True}}
    store.write([record("tea", name, x=value) for name, value in values.items()])

    for name, value in values.items():
        assert ids(store.search(ask("tea", metadata_filters={"x": value}))) == [name]
    assert store.search(ask("tea", metadata_filters={"x": [True]})) == []
    assert store.search(ask("tea", metadata_filters={"x": {"y": 1}})) == []


@pytest.mark.parametrize("value", [(1,), float("nan"), {1: 2}], ids=repr)
def test_filter_that_no_metadata_can_match_is_refused(
    store: EpisodeMemoryStore, value: object
) -> None:
    with pytest.raises(ValueError, match=r"metadata_filters"):
        store.search(ask("tea", metadata_filters={"x": value}))


def test_number_that_is_none_is_refused_not_stored_as_invalid_json(
    store: EpisodeMemoryStore,
) -> None:
    with pytest.raises(RecordRefusedError, match=r"record 0: metadata\.x\[1\]") as caught:
        store.write([record("tea", x=[1, float("nan")])])

    assert (caught.value.position, isinstance(caught.value, ValueError)) == (0, True)


def test_same_id_twice_in_a_batch_returns_no_content_twice(store: EpisodeMemoryStore) -> None:
    with pytest.raises(RecordRefusedError):
        store.write([record("tea", "a"), record("milk", "a")])


def test_store_is_used_from_threads_that_did_not_open_it(store: EpisodeMemoryStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.write, [record("tea", "a")]).result()

    assert ids(store.search(ask("tea"))) == ["a"]


async def test_store_is_used_within_a_running_event_loop(store: EpisodeMemoryStore) -> None:
    store.write([record("tea", "a")])

    found = await asyncio.to_thread(store.search, ask("tea"))

    assert ids(found) == ids(store.search(ask("tea"))) == ["a"]


async def test_records_are_listed_and_erased_as_episodes(store: EpisodeMemoryStore) -> None:
    store.write([record("tea", "a"), record("tea", "b")], namespace="ada")
    store.write([record("tea", "c")], namespace="bob")
    store.search(ask("tea", namespace="ada"))

    async with SQLiteMemoryStore(store.path) as memory:
        listed = await memory.recent("ada", "records", "contract", limit=9)
        await memory.forget(ScopeFilter.of("ada", None, None), [], moment=2**52, key=b"k" * 32)

    assert [episode.content for episode in listed] == ["tea", "tea"]
    assert store.search(ask("tea", namespace="ada")) == []
    assert ids(store.search(ask("tea", namespace="bob"))) == ["c"]


@pytest.mark.slow
def test_every_record_of_a_large_batch_has_a_meaning(by_meaning: EpisodeMemoryStore) -> None:
    by_meaning.write([record("a kitten plays"), record("rain all day")] * 150)

    found = by_meaning.search(ask("the cat", top_k=300))

    assert [one.content for one in found] == ["a kitten plays"] * 150
    assert len({one.vector_score for one in found}) == 1


@pytest.mark.slow
def test_writers_that_write_one_record_each_all_finish(store: EpisodeMemoryStore) -> None:
    start = threading.Barrier(16)

    def write(number: int) -> None:
        start.wait()
        for part in range(20):
            store.write([record("tea", f"{number}-{part}")])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(16)))

    assert len(store.search(ask("tea", top_k=1_000))) == 320


async def test_who_spoke_a_record_is_the_speaker_of_its_episode(store: EpisodeMemoryStore) -> None:
    said: list[dict[str, object]] = [{"role": "assistant"}, {"speaker": "user"}, {"role": 7}, {}]
    store.write(
        [record("tea", f"r{n}", **metadata) for n, metadata in enumerate(said)],
        namespace="ada",
    )

    async with SQLiteMemoryStore(store.path) as memory:
        listed = await memory.recent("ada", "records", "contract", limit=9)
    found = store.search(ask("tea", namespace="ada"))

    by_id = {one.metadata["record"]["item_id"]: one for one in listed}
    speakers = [speaker_of(by_id[f"r{n}"].source_node, by_id[f"r{n}"].metadata) for n in range(4)]
    assert speakers == ["assistant", "user", None, None]
    assert {one.item_id: one.metadata for one in found} == {
        f"r{n}": metadata for n, metadata in enumerate(said)
    }


def test_record_with_the_text_of_a_query_has_the_score_1(store: EpisodeMemoryStore) -> None:
    store.write([record("Ada drinks green tea", "a"), record("Ada drinks green tea now", "b")])

    first, second = store.search(ask("ada drinks green tea"))

    assert (first.item_id, first.score, first.lexical_score) == ("a", 1, 1)
    assert second.score is not None
    assert 0.5 < second.score < 1
    assert ids(store.search(ask("Ada drinks green tea", min_score=1.0))) == ["a"]
    assert ids(store.search(ask("Ada drinks green tea", min_score=0.5))) == ["a", "b"]


@pytest.mark.parametrize(
    "records",
    ["a text", None, 5, [None], [{"content": "a text"}], ["a text"]],
    ids=["text", "none", "number", "list of none", "list of dicts", "list of texts"],
)
def test_what_is_no_record_is_refused(store: EpisodeMemoryStore, records: Any) -> None:
    with pytest.raises(ValueError, match=r"is no MemoryWriteRecord|not a sequence"):
        store.write(records)

    assert store.recent(9) == []


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("a text", id="a text"),
        pytest.param(None, id="nothing"),
        pytest.param(ask("a", top_k="3"), id="a text as number"),
        pytest.param(ask("a", top_k=2.5), id="a part of a record"),
        pytest.param(ask("a", top_k=True), id="a truth"),
        pytest.param(ask("a", min_score="high"), id="a text as score"),
        pytest.param(ask("a", metadata_filters=["x"]), id="a list of filters"),
        pytest.param(MemorySearchQuery(text=5), id="a number as text"),  # type: ignore[arg-type] # that is the test
    ],
)
def test_what_is_no_question_is_refused(store: EpisodeMemoryStore, query: Any) -> None:
    store.write([record("a text", "a")])

    with pytest.raises(ValueError, match=r"is no |is str|is list|is int|at least 1"):
        store.search(query)


@pytest.mark.parametrize("namespace", [5, None])
def test_namespace_that_is_no_text_is_refused(store: EpisodeMemoryStore, namespace: Any) -> None:
    with pytest.raises(MemoryScopeError, match="the namespace is no text"):
        store.write([record("tea")], namespace=namespace)
    with pytest.raises(MemoryScopeError, match="the namespace is no text"):
        store.search(MemorySearchQuery(text="tea", namespace=namespace))


def test_record_is_read_by_its_id(store: EpisodeMemoryStore) -> None:
    [written] = store.write([record("tea", "a", kind=["x"])], namespace="n")

    found = store.get(" a ", namespace="n")

    assert found == written
    assert found is not None
    found.metadata.clear()
    assert store.get("a", namespace="n") == written
    assert store.get("a") is None
    assert store.get("b", namespace="n") is None


def test_latest_records_are_listed(store: EpisodeMemoryStore) -> None:
    for id in "abc":
        store.write([record(f"content {id}", id)])
    store.write([record("new content", "a")])
    store.write([record("other", "x")], namespace="n")

    assert ids(store.recent(2)) == ["a", "c"]
    assert [one.score for one in store.recent(9)] == [None] * 3
    with pytest.raises(ValueError, match="at least 1"):
        store.recent(0)


def test_store_recognises_the_language_of_a_namespace(tmp_path: Path) -> None:
    with EpisodeMemoryStore(tmp_path / "memory.db") as store:
        store.write([record("We have been running in the park", "a")])

        assert ids(store.search(ask("Who runs?"))) == ["a"]


@pytest.mark.parametrize("wrong", [None, 5, b"a", "\ud800"])
def test_get_says_what_is_wrong_with_an_id(store: EpisodeMemoryStore, wrong: Any) -> None:
    with pytest.raises(ValueError, match="item_id"):
        store.get(wrong)


def test_least_score_may_be_any_whole_number(store: EpisodeMemoryStore) -> None:
    store.write([record("Ada drinks tea")])

    found = [
        len(store.search(MemorySearchQuery(text="tea", min_score=least)))
        for least in (-(10**400), -1, 10**400)
    ]

    assert found == [1, 1, 0]

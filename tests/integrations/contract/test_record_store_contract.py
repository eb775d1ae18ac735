"""What every store of the memory contract does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from datetime import datetime
from enum import IntEnum
from pathlib import Path

import pytest

from slumberd.contract import (
    MemoryRecord,
    MemorySearchQuery,
    MemoryStore,
    MemoryWriteRecord,
)
from slumberd.model.errors import RecordRefusedError, StoreClosedError, StoreError
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.record_stores import STORES, ask, ids, record

pytestmark = pytest.mark.integration


class Colour(IntEnum):
    """A value that JSON would change."""

    RED = 1


NESTED: dict[str, object] = {"a": [1, 2.5, "x", None, True, {"b": []}], "é": -0.5}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[MemoryStore]:
    with STORES[request.param](tmp_path, clock) as opened:
        yield opened


def test_store_implements_the_protocol(store: MemoryStore) -> None:
    assert isinstance(store, MemoryStore)


def test_write_returns_the_records_in_their_order_and_without_scores(
    store: MemoryStore, clock: FakeClock
) -> None:
    first, second = store.write([record("tea", "b", x=1), record("milk", "a")], namespace="n")

    assert (first.item_id, first.content, first.metadata) == ("b", "tea", {"x": 1})
    assert (second.item_id, second.namespace) == ("a", "n")
    assert datetime.fromisoformat(first.created_at or "") == clock.now()
    assert first.updated_at == first.created_at
    assert (first.score, first.lexical_score, first.vector_score) == (None, None, None)


def test_write_of_no_records_returns_none(store: MemoryStore) -> None:
    assert store.write([]) == []


def test_record_without_an_id_gets_a_new_one(store: MemoryStore) -> None:
    written = store.write([record("tea"), record("tea", ""), record("tea", "  ")])

    assert all(ids(written))
    assert len(set(ids(written))) == 3
    assert sorted(ids(store.search(ask("tea")))) == sorted(ids(written))


def test_spaces_around_an_id_and_a_namespace_do_not_count(store: MemoryStore) -> None:
    store.write([record("tea", " a ")], namespace=" n\n")
    store.write([record("milk", "a")], namespace="n")

    assert ids(store.search(ask("milk tea", namespace="n "))) == ["a"]
    assert store.search(ask("tea", namespace="n")) == []


@pytest.mark.parametrize("blank", ["", "  "])
def test_blank_namespace_is_the_default_one(store: MemoryStore, blank: str) -> None:
    [written] = store.write([record("tea", "a")], namespace=blank)

    assert written.namespace == "default"
    assert ids(store.search(ask("tea"))) == ids(store.search(ask("tea", namespace=blank))) == ["a"]


def test_same_id_replaces_the_record_and_keeps_when_it_was_created(
    store: MemoryStore, clock: FakeClock
) -> None:
    [before] = store.write([record("green tea", "a", x=1, y=2)])
    clock.advance(5)

    [after] = store.write([record("black coffee", "a", x=3)])

    assert after.created_at == before.created_at
    assert (after.updated_at or "") > (before.updated_at or "")
    assert after.metadata == {"x": 3}
    assert store.search(ask("tea")) == []
    [found] = store.search(ask("coffee"))
    assert replace(found, score=None, lexical_score=None) == after


def test_same_id_twice_in_one_batch_is_refused(store: MemoryStore) -> None:
    with pytest.raises(
        RecordRefusedError, match="record 2: record 0 has the id 'a', too"
    ) as caught:
        store.write([record("tea", "a"), record("tea", "b"), record("milk", " a")])

    assert caught.value.position == 2
    assert store.search(ask("tea milk")) == []


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="not a number"),
        pytest.param(float("-inf"), id="infinite"),
        pytest.param((1, 2), id="tuple"),
        pytest.param({1: 2}, id="key that is no text"),
        pytest.param(START, id="instant"),
        pytest.param(Colour.RED, id="enum"),
        pytest.param({"set"}, id="set"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(2**64, id="long number"),
        pytest.param("\ud800", id="half a character"),
        pytest.param([[{"deep": (None,)}]], id="deep tuple"),
    ],
)
def test_value_that_json_would_change_is_refused_and_nothing_is_written(
    store: MemoryStore, value: object
) -> None:
    bad = record("tea", "b", x=value)

    with pytest.raises(RecordRefusedError, match=r"record 1: metadata.*nothing was written"):
        store.write([record("tea", "a"), bad, record("tea", "c")])

    assert store.search(ask("tea")) == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"content": 5}, id="content"),
        pytest.param({"content": "x", "item_id": 5}, id="id"),
        pytest.param({"content": "x", "metadata": []}, id="metadata"),
        pytest.param({"content": "\udfff"}, id="half a character"),
    ],
)
def test_field_of_another_type_is_refused(store: MemoryStore, fields: dict[str, str]) -> None:
    with pytest.raises(RecordRefusedError, match="record 0"):
        store.write([MemoryWriteRecord(**fields)])  # type: ignore[arg-type] # the test needs it


def test_metadata_comes_back_equal_and_is_a_copy(store: MemoryStore) -> None:
    given = json.loads(json.dumps(NESTED))
    [written] = store.write([record("tea", "a", **given)])
    given["a"].clear()
    written.metadata.clear()

    assert store.search(ask("tea"))[0].metadata == NESTED


def test_record_of_another_namespace_is_not_found(store: MemoryStore) -> None:
    store.write([record("tea", "a")], namespace="one")
    store.write([record("tea with milk", "a")], namespace="two")

    [found] = store.search(ask("tea", namespace="one"))

    assert (found.namespace, found.content) == ("one", "tea")
    assert store.search(ask("tea", namespace="three")) == []
    assert store.search(ask("tea")) == []


def test_best_record_comes_first_and_scores_lie_between_0_and_1(store: MemoryStore) -> None:
    store.write([record("tea", "a"), record("tea and zebras", "b"), record("nothing", "c")])

    found = store.search(ask("tea zebras"))

    assert ids(found) == ["b", "a"]
    assert all(0 < (one.score or 0) <= 1 and 0 <= (one.lexical_score or 0) <= 1 for one in found)


def test_equal_scores_are_ordered_by_update_then_by_id_descending(
    store: MemoryStore, clock: FakeClock
) -> None:
    store.write([record("tea", "b"), record("tea", "d"), record("tea", "c")])
    clock.advance(1)
    store.write([record("tea", "a")])

    assert ids(store.search(ask("tea"))) == ["a", "d", "c", "b"]
    assert ids(store.search(ask("tea", top_k=2))) == ["a", "d"]


def test_search_returns_at_most_so_many(store: MemoryStore) -> None:
    store.write([record("tea", f"{number:03}") for number in range(200)])

    assert ids(store.search(ask("tea", top_k=1))) == ["199"]
    assert len(store.search(ask("tea"))) == MemorySearchQuery(text="").top_k == 5
    assert len(store.search(ask("tea", top_k=180))) == 180
    assert len(store.search(ask("tea", top_k=1_000))) == 200


@pytest.mark.parametrize("top_k", [0, -1])
def test_search_for_less_than_one_record_is_refused(store: MemoryStore, top_k: int) -> None:
    with pytest.raises(ValueError, match="top_k"):
        store.search(ask("tea", top_k=top_k))


def test_least_score_is_inclusive(store: MemoryStore) -> None:
    store.write([record("tea and zebras", "a"), record("tea", "b")])
    best, second = store.search(ask("tea zebras"))

    assert ids(store.search(ask("tea zebras", min_score=best.score))) == ["a"]
    assert ids(store.search(ask("tea zebras", min_score=second.score))) == ["a", "b"]
    assert store.search(ask("tea zebras", min_score=1.01)) == []


def test_least_score_that_is_no_number_is_refused(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="min_score"):
        store.search(ask("tea", min_score=float("nan")))


@pytest.mark.slow
def test_filter_is_applied_before_the_ranking(store: MemoryStore) -> None:
    store.write([record("tea tea tea", f"{number}", kind="loud") for number in range(300)])
    store.write([record("a remark about tea", "quiet", kind="quiet")])

    assert ids(store.search(ask("tea", top_k=1, metadata_filters={"kind": "quiet"}))) == ["quiet"]


def test_all_filters_must_match(store: MemoryStore) -> None:
    store.write([record("tea", "a", x=1, y=1), record("tea", "b", x=1), record("tea", "c", y=1)])

    assert ids(store.search(ask("tea", metadata_filters={"x": 1, "y": 1}))) == ["a"]


def test_closed_store_refuses_every_call_and_closes_again(store: MemoryStore) -> None:
    store.close()
    store.close()

    with pytest.raises(StoreClosedError, match="closed"):
        store.search(ask("tea"))
    with pytest.raises(StoreError):
        store.write([])


def test_context_manager_closes_after_an_error_and_lets_it_pass(store: MemoryStore) -> None:
    assert store.__enter__() is store

    with pytest.raises(KeyError), store:
        raise KeyError

    with pytest.raises(StoreClosedError):
        store.search(ask("tea"))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(MemoryWriteRecord(content="tea", metadata={"a": [1]}), id="to write"),
        pytest.param(MemorySearchQuery(text="tea", metadata_filters={"a": [1]}), id="query"),
        pytest.param(MemoryRecord(item_id="a", namespace="n", content="tea"), id="record"),
    ],
)
def test_value_is_frozen_keyword_only_and_becomes_a_dict(
    value: MemoryWriteRecord | MemorySearchQuery | MemoryRecord,
) -> None:
    fields = value.to_dict()

    assert type(value)(**fields) == value
    assert json.loads(json.dumps(fields)) == fields
    with pytest.raises(FrozenInstanceError):
        setattr(value, next(iter(fields)), "milk")
    with pytest.raises(TypeError):
        type(value)("tea")  # type: ignore[call-arg] # the test needs it


def test_dict_of_a_value_is_a_copy() -> None:
    value = MemoryWriteRecord(content="tea", metadata={"a": [1]})

    value.to_dict()["metadata"]["a"].clear()

    assert value.metadata == {"a": [1]}

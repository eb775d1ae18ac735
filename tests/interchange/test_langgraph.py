"""Items of a real LangGraph store, and rows of its table, become episodes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from slumberd.interchange.langgraph import read_langgraph
from slumberd.interchange.records import Defaults, GivenScope, Record
from slumberd.model.speaker import speaker_of
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    from langgraph.store import memory as in_memory
else:
    in_memory = LateModule("langgraph.store.memory")


pytestmark = pytest.mark.unit

SECOND_LABEL = Defaults(user_at=2)
ROW = {
    "prefix": "memories.mira",
    "key": "k1",
    "value": '{"text": "likes tea"}',
    "created_at": "2025-01-01 08:00:00+00",
    "updated_at": "2025-01-02 08:00:00+00",
}


def read(document: Any, defaults: Defaults = SECOND_LABEL) -> list[Record]:
    return list(read_langgraph(io.BytesIO(orjson.dumps(document)), defaults))


def items() -> list[dict[str, Any]]:
    store = in_memory.InMemoryStore()
    store.put(("memories", "mira"), "k1", {"text": "likes tea"})
    store.put(("memories", "jonas"), "k1", {"kind": "Memory", "content": {"content": "runs"}})
    return [item.dict() for item in store.search(("memories",))]


@pytest.mark.slow
def test_item_becomes_an_episode_of_the_user_in_its_namespace() -> None:
    dumped = items()

    records = read(dumped)

    found = {record.episodes[0].user: record.episodes[0] for record in records}
    assert {*found} == {"mira", "jonas"}
    assert found["mira"].content == "likes tea"
    assert found["mira"].timestamp.isoformat() == dumped[0]["updated_at"]
    assert found["mira"].metadata == {
        "langgraph": {
            "namespace": ["memories", "mira"],
            "key": "k1",
            "value": {"text": "likes tea"},
        }
    }


def test_value_without_a_text_is_its_json() -> None:
    (record,) = (one for one in read(items()) if one.episodes[0].user == "jonas")

    assert record.episodes[0].content == '{"kind":"Memory","content":{"content":"runs"}}'


def test_same_key_in_two_namespaces_makes_two_ids() -> None:
    given = Defaults(GivenScope(user="alice"))

    assert len({record.episodes[0].id for record in read(items(), given)}) == 2


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"subject": "mira", "predicate": "likes", "object": "tea"}, id="value"),
        pytest.param(
            {"content": {"subject": "mira", "predicate": "likes", "object": "tea", "context": ""}},
            id="content of the value",
        ),
    ],
)
def test_triple_in_a_value_is_the_claim_of_the_episode(value: dict[str, Any]) -> None:
    (record,) = read([items()[0] | {"value": value}])

    (found,) = record.episodes
    assert found.content == "mira likes tea"
    assert [found.metadata[slot] for slot in ("subject", "predicate", "object")] == [
        "mira",
        "likes",
        "tea",
    ]


def test_row_of_the_table_equals_its_item() -> None:
    as_item = ROW | {"namespace": ["memories", "mira"], "value": {"text": "likes tea"}}
    del as_item["prefix"]

    (row,), (item,) = read([ROW]), read({"items": [as_item]})

    assert row.episodes == item.episodes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"prefix": "memories"}, "has 1 labels, so none at 2", id="no such label"),
        pytest.param({"value": "tea"}, "key 'value': ", id="value that is no JSON"),
        pytest.param({"value": [1]}, "key 'value' holds no JSON object", id="array"),
        pytest.param({"key": None}, "key 'key' is empty", id="no key"),
    ],
)
def test_bad_item_has_a_problem(changes: dict[str, Any], problem: str) -> None:
    (record,) = read([ROW | changes])

    assert problem in record.problem


def test_item_without_a_namespace_has_a_problem() -> None:
    (record,) = read([{"namespace": "memories", "key": "k", "value": {}}])

    assert record.problem == "key 'namespace' holds no array of texts"


@pytest.mark.parametrize(
    ("value", "speaker"),
    [
        pytest.param({"role": "assistant", "content": "hi"}, "assistant", id="role"),
        pytest.param({"speaker": "Ann", "role": "user", "text": "hi"}, "Ann", id="speaker"),
        pytest.param({"type": "human", "content": "hi"}, "human", id="message of a person"),
        pytest.param({"type": "ai", "content": "hi"}, "ai", id="message of a model"),
        pytest.param({"type": "note", "content": "hi"}, None, id="another type"),
        pytest.param({"role": ["user"], "content": "hi"}, None, id="role that is no text"),
    ],
)
def test_value_says_who_spoke(value: dict[str, Any], speaker: str | None) -> None:
    [record] = read({"items": [ROW | {"value": value}]})

    [episode] = record.episodes
    assert speaker_of(episode.source_node, episode.metadata) == speaker

"""Items of a real LangGraph store, and rows of its table, become episodes."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from slumberd.integrations.interchange.langgraph import read_langgraph
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord
from slumberd.model.episode import speaker_of
from tests.support.builders import START
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


def read(document: Any, defaults: Defaults = SECOND_LABEL) -> list[ImportedRecord]:
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


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"kind": "Memory", "content": {"content": "likes tea"}}, id="LangMem"),
        pytest.param({"kind": "Note", "content": {"text": "likes tea", "x": 1}}, id="own schema"),
        pytest.param({"data": {"memory": {"content": "likes tea"}}}, id="two levels"),
        pytest.param({"type": "human", "data": {"content": "likes tea"}}, id="message"),
        pytest.param({"lc": 1, "kwargs": {"content": "likes tea", "type": "human"}}, id="dump"),
        pytest.param({"content": [{"type": "text", "text": "likes tea"}]}, id="list of parts"),
        pytest.param({"content": ["likes tea"]}, id="list of texts"),
        pytest.param({"content": {}, "text": "likes tea"}, id="empty inner value"),
    ],
)
def test_text_within_a_value_is_the_content(value: dict[str, Any]) -> None:
    (record,) = read([ROW | {"value": value}])

    assert record.episodes[0].content == "likes tea"
    assert record.doubts == ()


def test_value_without_a_text_is_its_json_and_a_doubt() -> None:
    value = {"kind": "Person", "content": {"name": "Mira", "city": "Porto"}}

    (record,) = read([ROW | {"value": value}])

    assert record.episodes[0].content == orjson.dumps(value).decode()
    assert "no text under content" in record.doubts[0]


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        pytest.param({"updated_at": "2025-01-01 08:00:00.4+00"}, None, id="written once"),
        pytest.param({"created_at": None}, "update", id="only the update"),
        pytest.param({}, "update", id="written again"),
        pytest.param({"updated_at": None}, None, id="only the begin"),
        pytest.param({"created_at": None, "updated_at": None}, "file", id="neither"),
    ],
)
def test_item_says_where_its_instant_comes_from(
    changes: dict[str, Any], source: str | None
) -> None:
    (record,) = read([ROW | changes], Defaults(user_at=2, modified=START))

    assert record.episodes[0].metadata.get("instant_from") == source


def test_item_that_expired_is_retracted_at_its_end() -> None:
    (record,) = read([ROW | {"expires_at": "2025-03-01T00:00:00+00:00"}])

    said, retraction = record.episodes
    assert retraction.metadata["replaces"] == said.id
    assert retraction.timestamp == datetime(2025, 3, 1, tzinfo=UTC)


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

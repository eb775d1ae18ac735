"""Memories and relations of mem0 become episodes that keep all of the record."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from slumberd.integrations.interchange.mem0 import read_mem0
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord
from tests.support.builders import START

pytestmark = pytest.mark.unit

MEMORY = {
    "id": "5f0c",
    "memory": "Prefers window seats",
    "hash": "77ab",
    "metadata": {"topic": "travel", "intent": "delete"},
    "created_at": "2025-04-02T08:00:00-07:00",
    "updated_at": "2025-05-01T10:30:00+00:00",
    "user_id": "mira",
    "agent_id": "concierge",
    "run_id": "trip-9",
    "actor_id": "Mira",
    "role": "user",
}
CREATED = datetime(2025, 4, 2, 15, tzinfo=UTC)
UPDATED = datetime(2025, 5, 1, 10, 30, tzinfo=UTC)
ALICE = Defaults(GivenScope(user="alice"), modified=START)


def read(document: Any, defaults: Defaults | None = None) -> list[ImportedRecord]:
    stream = io.BytesIO(json.dumps(document).encode())
    return list(read_mem0(stream, defaults or Defaults()))


def test_memory_becomes_an_episode_of_its_scope() -> None:
    ((found,),) = (record.episodes for record in read({"results": [MEMORY]}))

    assert (found.id, found.content) == ("mem0:5f0c", "Prefers window seats")
    assert (found.user, found.agent, found.session) == ("mira", "concierge", "trip-9")
    assert found.timestamp == CREATED


def test_metadata_of_a_memory_are_kept_and_are_no_claim() -> None:
    ((found,),) = (record.episodes for record in read([MEMORY]))

    assert found.metadata["mem0"] == {k: v for k, v in MEMORY.items() if k != "memory"}
    assert {k: v for k, v in found.metadata.items() if k != "mem0"} == {
        "speaker": "Mira",
        "role": "user",
    }


@pytest.mark.parametrize(
    ("changes", "at", "source"),
    [
        pytest.param({"updated_at": None}, CREATED, None, id="never updated"),
        pytest.param({}, CREATED, None, id="updated, but not known to be edited"),
        pytest.param({"previous_memory": "Prefers the aisle"}, UPDATED, None, id="edited"),
        pytest.param({"created_at": None}, UPDATED, "update", id="only the update is known"),
        pytest.param({"created_at": None, "updated_at": ""}, START, "file", id="only the file"),
        pytest.param({"created_at": 1743606000000}, CREATED, None, id="epoch milliseconds"),
        pytest.param({"created_at": "2025-04-02T15:00:00Z[UTC]"}, CREATED, None, id="with a zone"),
        pytest.param({"created_at": "2025-04-02T15:00:00+0000"}, CREATED, None, id="no colon"),
    ],
)
def test_memory_was_said_when_it_was_created_unless_it_was_edited(
    changes: dict[str, Any], at: datetime, source: str | None
) -> None:
    (record,) = read([MEMORY | changes], ALICE)

    assert record.episodes[0].timestamp == at
    assert record.episodes[0].metadata.get("instant_from") == source


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        pytest.param({"expiration_date": "2025-06-01"}, (2025, 6, 2), id="whole day"),
        pytest.param({"expiration_date": "2025-06-01T08:00:00Z"}, (2025, 6, 1, 8), id="instant"),
        pytest.param({"deleted_at": "2025-06-01T08:00:00Z"}, (2025, 6, 1, 8), id="deleted"),
        pytest.param({"expiration_date": "2024-01-01"}, (2025, 4, 2, 15), id="before its begin"),
    ],
)
def test_memory_that_expired_was_true_and_is_retracted_at_its_end(
    changes: dict[str, Any], end: tuple[int, ...]
) -> None:
    (record,) = read([MEMORY | changes])

    said, retraction = record.episodes
    assert (said.content, said.timestamp) == ("Prefers window seats", CREATED)
    assert retraction.timestamp == datetime(*end, tzinfo=UTC)  # type: ignore[arg-type,misc] # parts
    assert retraction.metadata == {
        "speaker": "Mira", "role": "user", "intent": "delete", "replaces": "mem0:5f0c",
    }  # fmt: skip


def test_memory_whose_end_cannot_be_read_counts_as_not_ended() -> None:
    (record,) = read([MEMORY | {"expiration_date": "soon"}])

    assert len(record.episodes) == 1
    assert record.doubts == (
        "key 'expiration_date': 'soon' is not ISO 8601, so it counts as not ended",
    )


def test_relation_becomes_a_triple_of_the_time_of_the_file() -> None:
    relation = {"source": "mira", "relationship": "lives_in", "target": "lisbon"}

    (record,) = read({"results": [], "relations": [relation]}, ALICE)

    (found,) = record.episodes
    assert (found.user, found.timestamp) == ("alice", START)
    assert found.content == "mira lives_in lisbon"
    assert [found.metadata[slot] for slot in ("subject", "predicate", "object")] == [
        "mira",
        "lives_in",
        "lisbon",
    ]


def test_relations_of_a_memory_name_its_entities() -> None:
    memory = MEMORY | {
        "entities": [{"id": "e1", "name": "Mira"}, {"id": "e2", "name": "Lisbon"}],
        "relations": [
            {"source": "e1", "target": "e2", "relationship": "lives_in"},
            {"source": "e1", "destination": "tea", "relationship": "likes"},
        ],
    }

    ((found,),) = (record.episodes for record in read({"results": [memory]}))

    assert (found.metadata["subject"], found.metadata["object"]) == ("Mira", "Lisbon")
    assert found.metadata["triples"] == [{"subject": "Mira", "predicate": "likes", "object": "tea"}]


def test_given_scope_replaces_that_of_the_memory() -> None:
    (record,) = read([MEMORY], Defaults(GivenScope("bob", "helper", "s1")))

    (found,) = record.episodes
    assert (found.user, found.agent, found.session) == ("bob", "helper", "s1")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"id": None}, "key 'id' is empty", id="no id"),
        pytest.param({"memory": 3}, "key 'memory' holds no text", id="no text"),
        pytest.param({"user_id": None}, "names no user; give one with --user", id="no user"),
        pytest.param({"updated_at": "May"}, "'May' is not ISO 8601", id="no instant"),
        pytest.param({"relations": ["x"]}, "holds no array of objects", id="relations"),
    ],
)
def test_bad_memory_has_a_problem_and_the_next_is_read(
    changes: dict[str, Any], problem: str
) -> None:
    bad, good = read({"results": [MEMORY | changes, MEMORY]})

    assert problem in bad.problem
    assert (bad.path, good.path) == ("results[0]", "results[1]")
    assert good.episodes[0].id == "mem0:5f0c"


def test_memory_without_an_instant_needs_a_file() -> None:
    (record,) = read([MEMORY | {"updated_at": None, "created_at": None}])

    assert "name a file" in record.problem


def test_value_that_is_no_object_has_a_problem() -> None:
    (record,) = read(["hello"])

    assert "a JSON object is needed" in record.problem

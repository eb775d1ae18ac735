"""A fact of Graphiti holds from `valid_at` to `invalid_at`, also after the import."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slumberd.integrations.interchange.graphiti import read_graphiti
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord, without
from slumberd.model.fact import FactPattern
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import rule
from tests.support.firing import fire

pytestmark = pytest.mark.unit

EDGE: dict[str, Any] = {
    "uuid": "u1",
    "group_id": "mira",
    "source_node_uuid": "n1",
    "target_node_uuid": "n2",
    "name": "LIVES_IN",
    "fact": "Mira lives in Porto",
    "fact_embedding": [0.5, 0.25],
    "episodes": ["x1"],
    "created_at": "2025-03-01T00:00:00Z",
    "valid_at": "2025-01-01T00:00:00Z",
    "invalid_at": None,
    "expired_at": None,
    "attributes": {},
}
NODES = [{"uuid": "n1", "name": "Mira"}, {"uuid": "n2", "name": "Porto"}]
MIRA = Defaults(GivenScope(user="mira"), modified=datetime(2026, 1, 1, tzinfo=UTC))
MARCH, JUNE = (datetime(2025, month, 1, tzinfo=UTC) for month in (3, 6))


def read(document: Any, defaults: Defaults | None = None) -> list[ImportedRecord]:
    stream = io.BytesIO(json.dumps(document).encode())
    return list(read_graphiti(stream, defaults or Defaults()))


def test_fact_becomes_an_episode_of_the_instant_since_which_it_is_valid() -> None:
    (record,) = read({"nodes": NODES, "edges": [EDGE]})

    (found,) = record.episodes
    assert (found.id, found.user, found.content) == ("graphiti:u1", "mira", "Mira lives in Porto")
    assert found.timestamp == datetime(2025, 1, 1, tzinfo=UTC)
    assert [found.metadata[slot] for slot in ("subject", "predicate", "object")] == [
        "Mira",
        "LIVES_IN",
        "Porto",
    ]
    assert "fact_embedding" not in found.metadata["graphiti"]


def test_fact_of_unknown_beginning_happened_when_it_was_created() -> None:
    (record,) = read([EDGE | {"valid_at": None}])

    assert record.episodes[0].timestamp == MARCH


def test_names_in_the_fact_come_before_those_of_nodes() -> None:
    named = EDGE | {"source_node_name": "Mira S.", "target_node_name": "Porto"}

    (record,) = read({"facts": [named]})

    assert record.episodes[0].metadata["subject"] == "Mira S."


def test_fact_without_nodes_is_a_text_without_a_triple() -> None:
    plain = {key: EDGE[key] for key in ("uuid", "name", "fact", "valid_at")}

    (record,) = read({"facts": [plain]}, Defaults(GivenScope(user="mira")))

    assert "subject" not in record.episodes[0].metadata


def test_nodes_behind_the_facts_that_need_them_are_a_problem() -> None:
    _, first, _ = read({"edges": [EDGE], "nodes": NODES})

    assert "put nodes first" in first.problem


@pytest.mark.parametrize("ended", ["invalid_at", "expired_at"])
def test_fact_that_ended_has_a_retraction_of_that_instant(ended: str) -> None:
    (record,) = read([EDGE | {ended: "2025-06-01T00:00:00Z"}])

    _, retraction = record.episodes
    assert (retraction.id, retraction.timestamp) == ("graphiti:u1:ended", JUNE)
    assert retraction.metadata == {
        "subject": "n1",
        "predicate": "LIVES_IN",
        "object": "n2",
        "intent": "delete",
        "replaces": "graphiti:u1",
    }
    assert record.until == JUNE


def test_fact_that_ends_before_it_begins_is_a_problem() -> None:
    (record,) = read([EDGE | {"invalid_at": "2024-06-01T00:00:00"}])

    assert record.problem == "the fact ends before it begins"


def test_fact_of_which_only_the_end_is_known_is_a_retraction_at_its_end() -> None:
    ended = EDGE | {"valid_at": None, "invalid_at": "2024-12-01T00:00:00Z", "fact": "Mira left"}

    (record,) = read({"nodes": NODES, "edges": [ended]})

    (found,) = record.episodes
    assert (found.content, found.timestamp) == ("Mira left", datetime(2024, 12, 1, tzinfo=UTC))
    assert without(found.metadata, ["graphiti"]) == {
        "subject": "Mira",
        "predicate": "LIVES_IN",
        "object": "Porto",
        "intent": "delete",
    }


def test_end_of_a_fact_without_nodes_is_a_text() -> None:
    plain = {key: EDGE[key] for key in ("uuid", "name", "fact")}

    (record,) = read([plain | {"invalid_at": "2024-12-01T00:00:00Z"}], MIRA)

    (found,) = record.episodes
    assert {*found.metadata} == {"graphiti"}
    assert found.timestamp == datetime(2024, 12, 1, tzinfo=UTC)


async def test_end_of_a_fact_retracts_what_another_fact_said(tmp_path: Path) -> None:
    end = EDGE | {"uuid": "u2", "valid_at": None, "invalid_at": "2025-06-01T00:00:00Z"}
    episodes = [each for one in read([EDGE, end | {"created_at": None}], MIRA) for each in one[1]]
    async with (
        SQLiteMemoryStore(tmp_path / "m.db") as memory,
        SQLiteFactStore(tmp_path / "f.db") as facts,
    ):
        await memory.put_many(episodes)
        await fire(memory, facts, rule(when_filter="predicate = 'LIVES_IN'"))

        assert [one.id for one in await facts.query(FactPattern(), valid_at=MARCH)] == [
            "graphiti:u1"
        ]
        assert await facts.query(FactPattern(), valid_at=JUNE) == []


async def test_fact_is_true_between_its_two_instants(tmp_path: Path) -> None:
    moved = EDGE | {
        "uuid": "u2",
        "target_node_uuid": "n3",
        "fact": "Mira lives in Faro",
        "valid_at": "2025-06-01T00:00:00Z",
        "invalid_at": "2025-09-01T00:00:00Z",
    }
    document = {"edges": [EDGE | {"invalid_at": "2025-06-01T00:00:00Z"}, moved]}
    episodes = [episode for record in read(document) for episode in record.episodes]
    async with (
        SQLiteMemoryStore(tmp_path / "m.db") as memory,
        SQLiteFactStore(tmp_path / "f.db") as facts,
    ):
        await memory.put_many(episodes)
        await fire(memory, facts, rule(when_filter="predicate = 'LIVES_IN'"))

        found = [
            [fact.id for fact in await facts.query(FactPattern(), valid_at=at)]
            for at in (MARCH, JUNE, datetime(2025, 10, 1, tzinfo=UTC))
        ]

    assert found == [["graphiti:u1"], ["graphiti:u2"], []]

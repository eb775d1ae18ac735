"""Entities and relations of the MCP memory server become triples."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from slumberd.integrations.interchange.mcp_memory import read_mcp_memory
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord
from slumberd.model.fact import FactPattern
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, rule
from tests.support.firing import fire

pytestmark = pytest.mark.unit

MIRA = {
    "type": "entity",
    "name": "Mira",
    "entityType": "person",
    "observations": ["allergic to nuts", "lives in Porto"],
}
WORKS_AT = {"type": "relation", "from": "Mira", "to": "Acme", "relationType": "works_at"}
ALICE = Defaults(GivenScope(user="alice"), modified=START)


def read(*objects: Any, defaults: Defaults = ALICE) -> list[ImportedRecord]:
    content = "\n".join(map(json.dumps, objects))
    return list(read_mcp_memory(io.BytesIO(content.encode()), defaults))


def test_entity_becomes_one_episode_with_its_type_and_observations() -> None:
    (record,) = read(MIRA)

    (found,) = record.episodes
    assert found.content == "Mira (person)\n- allergic to nuts\n- lives in Porto"
    assert found.metadata == {
        "instant_from": "file",
        "subject": "Mira",
        "predicate": "is_a",
        "object": "person",
        "triples": [
            {"subject": "Mira", "predicate": "observation", "object": "allergic to nuts"},
            {"subject": "Mira", "predicate": "observation", "object": "lives in Porto"},
        ],
    }
    assert (found.user, found.agent, found.session, found.timestamp) == (
        "alice",
        "default",
        "default",
        START,
    )


def test_relation_becomes_a_triple() -> None:
    (record,) = read(WORKS_AT)

    assert record.episodes[0].metadata == {
        "instant_from": "file",
        "subject": "Mira",
        "predicate": "works_at",
        "object": "Acme",
    }


def test_ids_depend_on_what_is_said_and_on_the_scope_only() -> None:
    later = Defaults(GivenScope(user="alice"), modified=at(9))
    other = Defaults(GivenScope(user="bob"), modified=START)
    ids = [
        [record.episodes[0].id for record in read(MIRA, WORKS_AT, defaults=defaults)]
        for defaults in (ALICE, later, other)
    ]

    assert ids[0] == ids[1]
    assert not {*ids[0]} & {*ids[2]}


def test_entity_with_too_many_observations_becomes_several_episodes() -> None:
    many = [f"observation {number}" for number in range(1_001)]

    (record,) = read(MIRA | {"observations": many})

    first, second = record.episodes
    assert [len(one.metadata["triples"]) for one in record.episodes] == [1_000, 1]
    assert second.metadata["triples"][0]["object"] == "observation 1000"
    assert first.id != second.id


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        pytest.param({"type": "note"}, "'note'; 'entity' or 'relation' is needed", id="type"),
        pytest.param({"name": "Mira"}, "key 'type' is missing", id="no type"),
        pytest.param(MIRA | {"observations": "x"}, "no array of texts", id="observations"),
        pytest.param(WORKS_AT | {"to": ""}, "key 'to' is empty", id="target"),
    ],
)
def test_bad_line_has_a_problem_and_the_next_is_read(bad: Any, problem: str) -> None:
    first, second = read(bad, WORKS_AT)

    assert problem in first.problem
    assert (first.line, second.line, second.problem) == (1, 2, "")


def test_answer_of_the_server_is_read_too() -> None:
    graph = {"entities": [{k: v for k, v in MIRA.items() if k != "type"}], "relations": [WORKS_AT]}

    assert [record.problem for record in read(graph)] == ["", ""]


async def test_observation_that_was_deleted_is_no_fact_after_the_next_import(
    tmp_path: Path,
) -> None:
    fewer = MIRA | {"observations": ["lives in Porto"]}
    async with (
        SQLiteMemoryStore(tmp_path / "m.db") as memory,
        SQLiteFactStore(tmp_path / "f.db") as facts,
    ):
        for entity, modified in ((MIRA, START), (fewer, at(60))):
            (record,) = read(entity, defaults=ALICE._replace(modified=modified))
            await memory.put_many(record.episodes)
            await fire(memory, facts, rule())

        found = await facts.query(FactPattern(predicate="observation"))

    assert [fact.payload["object"] for fact in found] == ["lives in Porto"]

"""Statements that stand side by side in a file become claims of one episode."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from slumberd.integrations.interchange.formats import (
    FORMATS,
    FileFormat,
    ReplacingStatements,
    join_statements,
)
from slumberd.integrations.interchange.records import Defaults, GivenScope, ImportedRecord
from tests.support.builders import START

pytestmark = pytest.mark.unit

NIA = Defaults(GivenScope(user="nia"), modified=START)


def read(name: str, *objects: Any) -> list[ImportedRecord]:
    content = "\n".join(map(json.dumps, objects)) if name != "graphiti" else json.dumps([*objects])
    found = FORMATS[name]
    assert isinstance(found, FileFormat)
    return [*found.read(io.BytesIO(content.encode()), NIA)]


def relation(target: str, predicate: str = "worked_at") -> dict[str, str]:
    return {"type": "relation", "from": "Nia", "to": target, "relationType": predicate}


def edge(uuid: str, target: str, **overrides: Any) -> dict[str, Any]:
    return {
        "uuid": uuid, "name": "WORKS_AT", "fact": f"Nia works at {target}",
        "source_node_name": "Nia", "target_node_name": target, "valid_at": "2025-01-01T00:00:00Z",
    } | overrides  # fmt: skip


def objects_of(record: ImportedRecord) -> list[str]:
    metadata = record.episodes[0].metadata
    triples = [metadata, *metadata.get("triples", ())]
    return sorted(triple["object"] for triple in triples)


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("mcp-memory", [relation("Opal"), relation("Nia", "is"), relation("Redwood")]),
        ("graphiti", [edge("u1", "Opal"), edge("u3", "Nia", name="IS"), edge("u2", "Redwood")]),
    ],
)
def test_statements_of_one_subject_and_predicate_become_one_episode(
    name: str, statements: list[Any]
) -> None:
    joined = [*join_statements(read(name, *statements))]
    again = [*join_statements(read(name, *reversed(statements)))]

    assert sorted(map(objects_of, joined)) == [["Nia"], ["Opal", "Redwood"]]
    ids = [sorted(record.episodes[0].id for record in found) for found in (joined, again)]
    assert ids[0] == ids[1], "their order in the file changes nothing"


def test_statements_of_other_instants_and_those_that_ended_stay_alone() -> None:
    statements = [
        edge("u1", "Opal"), edge("u2", "Redwood", valid_at="2025-02-01T00:00:00Z"),
        edge("u3", "Acme", invalid_at="2025-03-01T00:00:00Z"),
    ]  # fmt: skip

    joined = [*join_statements(read("graphiti", *statements))]

    assert sorted(record.episodes[0].id for record in joined) == [
        "graphiti:u1", "graphiti:u2", "graphiti:u3",
    ]  # fmt: skip


def test_record_that_cannot_be_read_and_a_repeated_one_are_kept() -> None:
    joined = [*join_statements(read("mcp-memory", {}, relation("Opal"), relation("Opal")))]

    assert [bool(record.problem) for record in joined] == [True, False]
    assert objects_of(joined[1]) == ["Opal"]


def test_more_statements_than_an_episode_holds_become_several_episodes() -> None:
    joined = [*join_statements(read("mcp-memory", *map(relation, map(str, range(1_500)))))]

    assert sum(len(objects_of(record)) for record in joined) == 1_500
    assert len(joined) == 2


def test_statements_that_would_replace_each_other_are_counted() -> None:
    statements = [
        edge("u1", "Opal"), edge("u2", "Redwood", valid_at="2025-02-01T00:00:00Z"),
        edge("u3", "Rome", name="LIKES"),
        edge("u4", "Oslo", name="LIKES", valid_at="2025-02-01T00:00:00Z"),
        edge("u5", "Acme", invalid_at="2025-03-01T00:00:00Z"),
    ]  # fmt: skip
    found = ReplacingStatements(lambda predicate: predicate == "LIKES")

    [*found.watch(join_statements(read("graphiti", *statements)))]

    assert (found.count, found.predicates) == (1, {"WORKS_AT"})

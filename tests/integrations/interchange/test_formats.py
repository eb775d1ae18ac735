"""Whatever a file holds, a reader yields records or refuses the file; it never fails otherwise."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.integrations.interchange.audit import Auditor
from slumberd.integrations.interchange.formats import FORMATS, FileFormat
from slumberd.integrations.interchange.records import Defaults, GivenScope
from slumberd.model.errors import WrongFormatError
from tests.support.builders import START
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.unit, pytest.mark.sampled, pytest.mark.slow]

FILE_FORMATS = {name: one for name, one in FORMATS.items() if isinstance(one, FileFormat)}
DEFAULTS = Defaults(GivenScope(user="alice"), modified=START, user_at=1)
KEYS = [
    "results", "relations", "entities", "facts", "edges", "nodes", "items",
    "id", "uuid", "memory", "user_id", "created_at", "updated_at", "source", "target",
    "relationship", "name", "fact", "valid_at", "invalid_at", "source_node_uuid",
    "target_node_uuid", "type", "entityType", "observations", "from", "to", "relationType",
    "namespace", "prefix", "key", "value", "content", "subject", "predicate", "object",
    "timestamp", "metadata", "user", "agent", "session", "source_node",
]  # fmt: skip
TEXTS = st.sampled_from([
    "", "a", "a.b", "entity", "relation", "2025-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59", '{"text": 1}', "\ud800", "\0",
])  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)

GOOD: dict[str, dict[str, Any]] = {
    "episodes": {
        "id": "a", "content": "a", "timestamp": "2025-01-01T00:00:00Z", "source_node": "a",
        "user": "a", "agent": "a", "session": "a", "metadata": {"subject": "a"},
    },
    "mem0": {"id": "a", "memory": "a", "user_id": "a", "created_at": "2025-01-01T00:00:00Z"},
    "graphiti": {
        "uuid": "a", "fact": "a", "name": "a", "source_node_uuid": "a", "target_node_uuid": "b",
        "valid_at": "2025-01-01T00:00:00Z", "invalid_at": "2026-01-01T00:00:00Z",
    },
    "mcp-memory": {"type": "entity", "name": "a", "entityType": "a", "observations": ["a"]},
    "langgraph": {"namespace": ["a"], "key": "a", "value": {"content": "a", "subject": "a"}},
}  # fmt: skip
"""A record of each format; the test changes some of its keys."""


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", GOOD)
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES | TEXTS, max_size=3))
@settings(max_examples=amount(200, full=5_000), deadline=None)
def test_record_with_other_values_is_read_or_has_a_problem(
    name: str, changes: dict[str, Any]
) -> None:
    auditor = Auditor(lasting=FILE_FORMATS[name].lasting)
    lines = [json.dumps(record) for record in (GOOD[name], GOOD[name] | changes, GOOD[name])]

    first, *others, last = FILE_FORMATS[name].read(io.BytesIO("\n".join(lines).encode()), DEFAULTS)

    assert (first.problem, last.problem) == ("", "")
    assert all(bool(record.episodes) != bool(record.problem) for record in others)
    assert all(finding for one in (first, *others, last) for finding in auditor.check(one))


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", FILE_FORMATS)
@given(value=VALUES, cut=st.integers(0, 400), indent=st.sampled_from([None, 1]))
@settings(max_examples=amount(150, full=5_000), deadline=None)
def test_reader_yields_records_or_refuses_the_file(
    name: str, value: Any, cut: int, indent: int | None
) -> None:
    whole = json.dumps(value, indent=indent).encode()
    auditor = Auditor(lasting=FILE_FORMATS[name].lasting)

    for content in (whole, whole[:cut], whole + b"\n" + whole):
        with suppress(WrongFormatError):
            for record in FILE_FORMATS[name].read(io.BytesIO(content), DEFAULTS):
                assert record.line >= 1
                assert bool(record.episodes) != bool(record.problem)
                assert all(auditor.check(record))

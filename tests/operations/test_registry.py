"""The declared operations are what the daemon serves, and their examples are real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd import Memory
from slumberd.client.transports import OwnTransport
from slumberd.model.errors import MemoryScopeError, SlumberdError
from slumberd.operations.forms import ScopedForm
from slumberd.operations.registry import OPERATIONS
from slumberd.rules.validation import problems
from tests.support.lists import of_each

pytestmark = pytest.mark.integration

EVERY = of_each(lambda: OPERATIONS)


@EVERY
def test_form_accepts_the_example_request(name: str) -> None:
    operation = OPERATIONS[name]

    assert not problems(operation.form, {**operation.example.request}, strict=True)


@EVERY
def test_result_accepts_the_example_answer(name: str) -> None:
    operation = OPERATIONS[name]

    operation.result.model_validate(operation.example.answer, extra="forbid")


@EVERY
def test_what_changes_nothing_is_idempotent_and_says_what_it_does(name: str) -> None:
    operation = OPERATIONS[name]

    assert operation.idempotent or not operation.read_only
    assert operation.summary.endswith(".")
    assert all(issubclass(error, SlumberdError) for error in operation.errors)


def test_operations_that_may_change_something_again_are_these() -> None:
    again = {name for name, operation in OPERATIONS.items() if not operation.idempotent}

    assert again == {"correct", "decide", "drop", "fire", "forget", "pin", "undo"}


@EVERY
def test_operation_of_one_scope_may_refuse_the_scope(name: str) -> None:
    operation = OPERATIONS[name]

    if issubclass(operation.form, ScopedForm):
        assert MemoryScopeError in operation.errors


async def test_daemon_serves_exactly_what_is_declared(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "memory", user="ana") as memory:
        served = _served_by(memory)

        assert served._daemon.served.dispatcher.names == set(OPERATIONS)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("remember", {"user": "ana", "text": "x", "id": "e1", "triples": [
        {"subject": "ana", "predicate": "lives_in", "object": "Lisbon"}]}),
    ("outcome", {"user": "ana", "id": "e1", "seconds": 30.0}),
    ("fire", {}),
    ("fire", {"dry_run": True}),
    ("recall", {"user": "ana", "query": "Lisbon"}),
    ("context", {"user": "ana", "question": "Lisbon"}),
    ("episodes", {"user": "ana"}),
    ("facts", {"user": "ana"}),
    ("explain", {"user": "ana", "id": "e1"}),
    ("history", {"user": "ana", "id": "e1"}),
    ("correct", {"user": "ana", "fact": "e1", "object": "Porto", "reason": "so"}),
    ("changes", {"user": "ana"}),
    ("profile", {"user": "ana"}),
    ("report", {"user": "ana", "days": 31}),
    ("report", {"days": 31}),
    ("firings", {}),
    ("held", {}),
    ("quarantined", {}),
    ("users", {}),
    ("rules", {"coverage": True}),
    ("pin", {"user": "bo", "agent": "a", "subject": "bo", "predicate": "is", "reason": "so"}),
    ("unpin", {"facts": ["e1"], "reason": "so"}),
    ("retry", {}),
    ("drop", {"all": True}),
    ("status", {}),
    ("next", {}),
    ("reload", {}),
    ("outdated", {}),
    ("forget", {"user": "ana", "dry_run": True}),
    ("forget", {"user": "ana"}),
]  # fmt: skip


@pytest.mark.slow
async def test_answers_of_the_daemon_have_the_declared_form(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "memory", user="ana") as memory:
        served = _served_by(memory)
        rule = "stated"
        by_rule: list[tuple[str, dict[str, Any]]] = [
            ("pause", {"rules": [rule]}),
            ("resume", {"rules": [rule]}),
            ("rule", {"id": rule, "coverage": True}),
            ("backfill", {"rule": rule}),
            ("undo", {"rule": rule, "since": 0}),
            ("deltas", {}),
        ]
        newest = ""

        for name, request in [*REQUESTS[:-2], *by_rule, *REQUESTS[-2:]]:
            asked = {"firing": newest} if name == "deltas" else request
            answer = await served.call(name, asked)
            if name == "firings":
                newest = answer["firings"][0]["firing_id"]

            OPERATIONS[name].result.model_validate_json(orjson.dumps(answer))


def _served_by(memory: Memory) -> OwnTransport:
    transport = memory._transport
    assert isinstance(transport, OwnTransport)
    return transport

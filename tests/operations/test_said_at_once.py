"""A put says at once what is known of its episode, and waits only for a caller who may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.daemon.interfaces import Served
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.operations.caller import Caller, Right
from tests.support.daemons_in_loop import memory_in_loop, served_by

pytestmark = pytest.mark.integration

WRITER = Caller(name="writer", user="ada", agent="desk", rights=frozenset({Right.WRITE}))
BOTH = Caller(name="both", user="ada", agent="desk", rights=frozenset({Right.WRITE, Right.READ}))
SAID = {"text": "I moved", "triples": [{"subject": "ada", "predicate": "is", "object": "here"}]}
TURN = {"id": "t1", "text": "It rains", "session": "s", "speaker": "user"}
TRANSCRIPT = {"session": "s", "coding_agent": "codex", "transcript": "/t", "turn": TURN}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    make_state_directory(tmp_path / "memory")
    async with memory_in_loop(tmp_path / "memory") as memory:
        yield served_by(memory)


async def ask(
    served: Served, operation: str, request: dict[str, Any], caller: Caller = BOTH
) -> dict[str, Any]:
    return await served.dispatcher.call(operation, request, caller)


async def test_caller_who_may_not_read_is_told_no_outcome(served: Served) -> None:
    written = await ask(served, "remember", {**SAID, "seconds": 30}, WRITER)
    read = await ask(served, "remember", {**SAID, "seconds": 30})

    assert (written["became"], "results" in written) == ("waiting", False)
    assert read["became"] == "learned"
    assert {one["rule_id"]: one["became"] for one in read["results"]}["stated"] == "learned"


async def test_turn_of_a_transcript_waits_for_its_rules(served: Served) -> None:
    first = await ask(served, "transcript", TRANSCRIPT)
    again = await ask(served, "transcript", TRANSCRIPT)

    assert (first["state"], first["became"]) == ("new", "waiting")
    assert (again["state"], "became" in again) == ("unchanged", False)
    assert "wait for its outcome" in first["sentence"]

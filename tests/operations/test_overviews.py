"""The profile, the report and one episode, of one scope only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory
from slumberd.client.transports import Transport
from slumberd.errors import NotAllowedError, UsageError
from slumberd.operations.caller import Caller
from tests.support.mcp_clients import served_by

pytestmark = pytest.mark.integration

OF_ADA = {"user": "ada", "agent": "desk"}


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[Transport]:
    """Run a daemon in which two users have moved."""
    async with Memory.open(tmp_path / "memory", user="host") as host:
        for user, place in (("ada", "Oslo"), ("ada", "Lisbon"), ("eve", "Rome")):
            memory = Memory(host._transport, user=user, agent="desk", session="s")
            said = await memory.remember(f"to {place}", triples=[(user, "lives_in", place)])
            await memory.wait_for(said.id)
        yield host._transport


async def test_profile_quotes_current_facts_of_the_scope(transport: Transport) -> None:
    found = await transport.call("profile", OF_ADA)
    nothing = await transport.call("profile", {**OF_ADA, "budget": 0})
    other_agent = await transport.call("profile", {**OF_ADA, "agent": "phone"})

    assert '"ada lives in Lisbon"' in found["text"]
    assert "Oslo" not in found["text"]
    assert "Rome" not in found["text"]
    assert (nothing["text"], other_agent["text"]) == ("", "")


async def test_report_counts_changes_of_the_scope(transport: Transport) -> None:
    found = await transport.call("report", {**OF_ADA, "days": 2})
    other_agent = await transport.call("report", {**OF_ADA, "agent": "phone"})

    assert (found["changes"]["learned"], found["changes"]["changed"]) == (1, 1)
    assert found["rules"] == {"preferences": found["changes"]}
    assert not any(other_agent["changes"].values())
    assert other_agent["rules"] == {}


@pytest.mark.parametrize("days", [0, 32, 1.5])
async def test_report_of_too_long_a_time_is_refused(transport: Transport, days: float) -> None:
    with pytest.raises(UsageError, match="days"):
        await transport.call("report", {**OF_ADA, "days": days})


async def test_episode_is_found_by_its_id_in_its_scope_only(transport: Transport) -> None:
    async def ids(**request: Any) -> list[str]:
        found = await transport.call("episodes", request)
        return [episode["id"] for episode in found["episodes"]]

    newest, *_ = await ids(user="ada")

    assert await ids(user="ada", id=newest) == [newest]
    assert await ids(user="ada", id=newest, session="s") == [newest]
    assert await ids(user="ada", id=newest, session="other") == []
    assert await ids(user="ada", id=newest, agent="phone") == []
    assert await ids(user="eve", id=newest) == []
    assert await ids(user="ada", id="unknown") == []


@pytest.mark.parametrize("operation", ["profile", "report", "episodes"])
async def test_caller_of_one_user_may_name_no_other(tmp_path: Path, operation: str) -> None:
    caller = Caller(name="token", user="eve")
    async with Memory.open(tmp_path / "memory", user="host") as memory:
        with pytest.raises(NotAllowedError):
            await served_by(memory).dispatcher.call(operation, {"user": "ada"}, caller)

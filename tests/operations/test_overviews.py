"""The profile, the report and one episode, of one scope only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory
from slumberd.client.transports import Transport
from slumberd.model.errors import NotAllowedError, UsageError
from slumberd.operations.caller import Caller, Right
from tests.support.daemons_in_loop import memory_in_loop, served_by

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


@pytest.mark.slow
async def test_report_counts_changes_of_the_scope(transport: Transport) -> None:
    found = await transport.call("report", {**OF_ADA, "days": 2})
    other_agent = await transport.call("report", {**OF_ADA, "agent": "phone"})

    assert (found["changes"]["learned"], found["changes"]["changed"]) == (1, 1)
    assert found["rules"] == {"stated": found["changes"]}
    assert not any(other_agent["changes"].values())
    assert other_agent["rules"] == {}


async def test_report_of_all_users_names_those_with_the_most_changes(
    transport: Transport,
) -> None:
    found = await transport.call("report", {"days": 2})
    cut = await transport.call("report", {"days": 2, "limit": 1})

    assert (found["changes"]["learned"], found["changes"]["changed"]) == (2, 1)
    assert [*found["users"]] == ["ada", "eve"]
    assert (found["users"]["ada"]["changed"], found["other_users"]) == (1, 0)
    assert ([*cut["users"]], cut["other_users"], len(cut["largest"])) == (["ada"], 1, 1)
    assert cut["changes"] == found["changes"]
    # Two rules have read each episode, and one of them has taken its triple.
    assert found["batches"] == 2 * sum(one["learned"] + one["changed"] for one in found["largest"])
    assert found["largest"][0]["firing_id"].startswith("stated@")


async def test_report_has_each_day_of_its_time(transport: Transport) -> None:
    found = await transport.call("report", {"days": 366})

    days = [date.fromisoformat(day["day"]) for day in found["days"]]
    assert days[0] == datetime.fromisoformat(found["since"]).date()
    assert [later - day for day, later in pairwise(days)] == [timedelta(days=1)] * 366
    assert sum(day["learned"] for day in found["days"]) == found["changes"]["learned"]
    assert not any(day["learned"] for day in found["days"][:-2])


async def test_report_of_one_user_has_no_other_user(transport: Transport) -> None:
    found = await transport.call("report", OF_ADA)

    assert [*found["users"]] == ["ada"]
    assert found["users"]["ada"] == found["changes"]
    assert len(found["largest"]) == found["batches"]


@pytest.mark.parametrize("scope", [{}, OF_ADA])
async def test_report_of_a_past_time_has_its_changes_only(
    transport: Transport, scope: dict[str, str]
) -> None:
    whole = await transport.call("report", scope)
    moved = max(batch["at"] for batch in whole["largest"])

    before = await transport.call("report", {**scope, "since": whole["since"], "until": moved})
    after = await transport.call("report", {**scope, "since": moved})

    assert (before["since"], after["since"]) == (whole["since"], moved)
    assert {batch["at"] for batch in after["largest"]} == {moved}
    assert [*before["largest"], *after["largest"]] != []
    assert all(batch["at"] < moved for batch in before["largest"])
    assert {
        name: before["changes"][name] + after["changes"][name] for name in whole["changes"]
    } == whole["changes"]


async def test_day_that_a_report_ends_before_is_none_of_its_days(transport: Transport) -> None:
    time = {"since": "2026-03-01T12:00:00Z", "until": "2026-03-03T00:00:00Z"}
    nothing = {"since": "2026-03-02T00:00:00Z", "until": "2026-03-01T00:00:00Z"}

    found = await transport.call("report", time)
    empty = await transport.call("report", nothing)

    assert [day["day"] for day in found["days"]] == ["2026-03-01", "2026-03-02"]
    assert empty["days"] == []


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ({"until": "2026-03-01T00:00:00Z"}, "until: name since, too"),
        ({"since": "1969-12-31T23:59:59Z"}, "since: is before 1970"),
        ({"since": "2024-03-01T00:00:00Z", "until": "2026-03-01T00:00:00Z"}, "more than 366 days"),
        ({"largest_by": "eaten"}, "largest_by"),
    ],
)
async def test_report_of_no_possible_time_is_refused(
    transport: Transport, time: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        await transport.call("report", time)


async def test_batches_without_what_the_largest_have_are_left_out(transport: Transport) -> None:
    found = await transport.call("report", {"largest_by": "quarantined"})

    assert found["largest"] == []
    assert found["changes"]["learned"] == 2


@pytest.mark.parametrize("request_", [{}, {"agent": "desk"}])
async def test_only_an_operator_may_leave_out_the_user(
    tmp_path: Path, request_: dict[str, Any]
) -> None:
    reader = Caller(name="token", rights=frozenset({Right.READ}))
    async with memory_in_loop(tmp_path / "memory") as memory:
        with pytest.raises(UsageError, match="name a user"):
            await served_by(memory).dispatcher.call("report", request_, reader)


@pytest.mark.slow
async def test_operator_who_names_an_agent_must_name_its_user(transport: Transport) -> None:
    with pytest.raises(UsageError, match="name a user"):
        await transport.call("report", {"agent": "desk"})


@pytest.mark.slow
@pytest.mark.parametrize("days", [0, 367, 1.5])
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
    async with memory_in_loop(tmp_path / "memory") as memory:
        with pytest.raises(NotAllowedError):
            await served_by(memory).dispatcher.call(operation, {"user": "ada"}, caller)

"""Operators page through the users and the quarantine, on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slumberd.model.errors import NotAllowedError, UsageError
from slumberd.operations.caller import ALL_RIGHTS, Caller, Right
from slumberd.operations.handlers import Dispatcher, handlers_of
from slumberd.operations.quarantine import QuarantineReads
from slumberd.operations.users import Users
from tests.storage.facts.test_users import promote
from tests.support.fakes import FakeClock
from tests.support.providers import ON_FILES, AnyFactStore, Provider

pytestmark = pytest.mark.integration

USERS = [(f"user{number}", "desk", 1 + number % 2) for number in range(5)]


class Asker:
    """Calls the operations for an operator."""

    def __init__(self, facts: AnyFactStore) -> None:
        self.dispatcher = Dispatcher(handlers_of(QuarantineReads(facts), Users(facts)))

    async def __call__(self, operation: str, **request: Any) -> dict[str, Any]:
        return await self.dispatcher.call(operation, request, Caller.here())

    async def all(self, operation: str, field: str, **request: Any) -> list[list[Any]]:
        """Return the items of all pages, each page by itself."""
        page = await self(operation, **request)
        found = [page[field]]
        while page["next"] is not None:
            page = await self(operation, **request, cursor=page["next"])
            found.append(page[field])
        return found


@pytest.fixture
async def ask(provider: Provider) -> AsyncIterator[Asker]:
    async with provider.facts(clock=FakeClock()) as facts:
        await facts.bootstrap()
        await promote(facts, USERS)
        await promote(facts, [("ada", "desk", 3)], of="odd", intent="shout")
        yield Asker(facts)


async def test_users_come_page_by_page(ask: Asker) -> None:
    found = await ask.all("users", "users", prefix="user", limit=2)

    assert [*map(len, found)] == [2, 2, 1]
    assert [(user["user"], user["facts"]) for page in found for user in page] == [
        (user, facts) for user, _, facts in USERS
    ]
    assert found[0][0]["agents"] == ["desk"]


async def test_quarantine_comes_page_by_page_with_its_totals(ask: Asker) -> None:
    found = await ask.all("quarantined", "entries", limit=2)
    of_rule = await ask("quarantined", rule="odd")
    of_other = await ask("quarantined", rule="all")

    assert [*map(len, found)] == [2, 1]
    assert [entry for page in found for entry in page] == of_rule["entries"]
    assert {entry["reason"] for entry in of_rule["entries"]} == {"intent_unknown"}
    assert of_other["entries"] == []
    assert of_rule["totals"] == of_other["totals"] == {"odd": 3}


async def test_entries_of_some_episodes_come_page_by_page(ask: Asker) -> None:
    every = (await ask("quarantined", rule="odd"))["entries"]
    wanted = [every[0]["episode_id"], every[2]["episode_id"], "unknown"]

    found = await ask.all("quarantined", "entries", rule="odd", episodes=wanted, limit=1)

    assert found == [[every[0]], [every[2]], []]
    assert (await ask("quarantined", rule="all", episodes=wanted))["entries"] == []
    assert (await ask("quarantined", rule="odd", episodes=[]))["entries"] == []


async def test_entries_of_some_episodes_need_a_rule(ask: Asker) -> None:
    with pytest.raises(UsageError, match="episodes: name a rule, too"):
        await ask("quarantined", episodes=["e1"])


@ON_FILES
@pytest.mark.parametrize("operation", ["users", "quarantined"])
@pytest.mark.parametrize(
    "cursor",
    [
        pytest.param("!", id="no letters"),
        pytest.param("e30", id="no list"),
        pytest.param("WzFd", id="a number"),
        pytest.param("WyJhIiwgImIiXQ", id="too many parts, or too few"),
        pytest.param("\u00e9", id="beyond ASCII"),
    ],
)
async def test_cursor_of_no_page_is_refused(ask: Asker, operation: str, cursor: str) -> None:
    with pytest.raises(UsageError, match="is not a cursor of one of its pages"):
        await ask(operation, cursor=cursor)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["users", "quarantined"])
async def test_only_operators_read_about_every_user(ask: Asker, operation: str) -> None:
    reader = Caller(name="token", rights=ALL_RIGHTS - {Right.OPERATE})

    with pytest.raises(NotAllowedError):
        await ask.dispatcher.call(operation, {}, reader)

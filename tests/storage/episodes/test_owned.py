"""The episodes of one user and agent, as the program that keeps them edits them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slumberd import MemoryScopeError
from slumberd.model.episode import microseconds
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, at, episode
from tests.support.providers import AnyMemoryStore, Provider

pytestmark = pytest.mark.integration


@pytest.fixture
async def store(provider: Provider) -> AsyncIterator[AnyMemoryStore]:
    async with provider.memory() as found:
        await found.put_many([
            episode("e1", timestamp=at(1)),
            episode("e2", timestamp=at(2), session="s2"),
            episode("other-agent", agent="bot"),
            episode("other-user", user="bob"),
        ])  # fmt: skip
        yield found


async def test_newest_episodes_are_of_all_sessions(store: AnyMemoryStore) -> None:
    found = await store.owned.newest("alice", "rag", limit=9)

    assert [one.id for one in found] == ["e2", "e1"]
    assert await store.accesses(["e1", "e2"]) == {}


async def test_users_are_those_of_the_agent(store: AnyMemoryStore) -> None:
    assert await store.owned.users("rag") == ["alice", "bob"]
    assert await store.owned.users("bot") == ["alice"]
    assert await store.owned.users("nobody") == []


async def test_moved_episode_is_in_its_new_session_only(store: AnyMemoryStore) -> None:
    await store.owned.move(episode("e1", session="s2", content="moved"))

    assert await store.recent("alice", "s1", "rag", limit=9) == []
    found = await store.recent("alice", "s2", "rag", limit=9)
    assert [(one.id, one.content) for one in found] == [("e2", "content of e2"), ("e1", "moved")]


@pytest.mark.parametrize("id", ["other-agent", "other-user"])
async def test_episode_of_another_owner_is_not_moved(store: AnyMemoryStore, id: str) -> None:
    with pytest.raises(MemoryScopeError, match="belongs to another scope"):
        await store.owned.move(episode(id))

    assert len(await store.recent("bob", limit=9)) == 1


async def test_only_episodes_of_the_owner_are_deleted(store: AnyMemoryStore) -> None:
    ids = ["e1", "other-agent", "other-user", "unknown"]

    assert await store.owned.delete("alice", "rag", ids) == ["e1"]

    left = [one.id for one in await store.recent("alice", limit=9)]
    assert left == ["e2", "other-agent"]


async def test_all_episodes_of_the_owner_are_deleted_with_their_reads(
    store: AnyMemoryStore,
) -> None:
    store.owned.record_reads(["e1"], microseconds(START))
    await store.close()  # writes the reads
    assert "e1" in await store.accesses(["e1"])

    assert sorted(await store.owned.delete_all("alice", "rag")) == ["e1", "e2"]

    assert [one.id for one in await store.recent("alice", limit=9)] == ["other-agent"]
    assert await store.accesses(["e1"]) == {}


async def test_replaced_episodes_go_with_the_write_of_the_new_one(store: AnyMemoryStore) -> None:
    assert await store.owned.replace(
        "alice", "rag", [["e1"], ["e2", "another form"]], lambda _: True, [episode("new")]
    )

    assert [one.id for one in await store.owned.newest("alice", "rag", limit=9)] == ["new"]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(["e1", "other-user"], id="of another user"),
        pytest.param(["e1", "other-agent"], id="of another agent"),
        pytest.param(["e1", "unknown"], id="unknown"),
        pytest.param(["e1", "e2"], id="changed"),
    ],
)
async def test_nothing_is_replaced_unless_all_are_there_and_unchanged(
    store: AnyMemoryStore, old: list[str]
) -> None:
    assert not await store.owned.replace(
        "alice", "rag", [[id] for id in old], lambda one: one.id != "e2", [episode("new")]
    )

    assert len(await store.owned.newest("alice", "rag", limit=9)) == 2
    assert len(await store.recent("bob", limit=9)) == 1


async def test_new_episode_that_is_refused_leaves_the_old_ones(store: AnyMemoryStore) -> None:
    with pytest.raises(MemoryScopeError, match="belongs to another scope"):
        await store.owned.replace(
            "alice", "rag", [["e1"]], lambda _: True, [episode("new"), episode("other-user")]
        )

    assert len(await store.owned.newest("alice", "rag", limit=9)) == 2


async def test_new_episode_that_was_erased_leaves_the_old_ones(store: AnyMemoryStore) -> None:
    await store.put(episode("new"), user="alice", session="s1", agent="rag")
    await store.forget(ScopeFilter("alice", None, None), ["new"], moment=None, key=bytes(32))

    with pytest.raises(MemoryScopeError, match="erased by its id"):
        await store.owned.replace("alice", "rag", [["e1"]], lambda _: True, [episode("new")])

    assert len(await store.owned.newest("alice", "rag", limit=9)) == 2

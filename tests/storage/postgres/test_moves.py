"""A user moves to another shard with all that the first shard has of the user."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.builders import at, triple
from tests.support.postgres_server import PostgresServer
from tests.support.two_shards import RULES, TwoShards, two_shards

pytestmark = pytest.mark.integration

USERS = ("alice", "bob", "Zoë/%", "日本")


@pytest.fixture
async def world(postgres: PostgresServer) -> AsyncIterator[TwoShards]:
    with postgres.database(shards=2) as name:
        async with two_shards(postgres.address_of(name)) as found:
            yield found


async def put_some(world: TwoShards) -> None:
    """Put and consolidate episodes of several users, with edits, and leave some unread."""
    for n, user in enumerate(USERS):
        await world.put(
            triple(f"{n}-1", user, "likes", "tea", user=user, timestamp=at(1)),
            triple(f"{n}-2", user, "lives in", "Rome", user=user, timestamp=at(2)),
            triple(f"{n}-3", user, "lives in", "Oslo", user=user, timestamp=at(3)),
        )
        world.clock.advance(10)
        await world.fire(2)
        edited = triple(
            f"{n}-1",
            user,
            "likes",
            "milk",
            user=user,
            timestamp=at(4),
            metadata={"replaces": [f"{n}-2"]},
        )
        await world.put(edited, triple(f"{n}-4", user, "likes", 7, user=user, timestamp=at(5)))
        world.clock.advance(10)
        await world.fire(3)
    for n, user in enumerate(USERS):
        await world.put(triple(f"{n}-5", user, "reads", "news", user=user, timestamp=at(6)))


@pytest.mark.parametrize("user", USERS)
async def test_user_has_the_same_facts_after_a_move(world: TwoShards, user: str) -> None:
    await put_some(world)
    before = await world.facts(user)
    source = world.of(user).number

    moved = await world.move(user)

    assert (moved.source, moved.target, moved.episodes) == (source, 1 - source, 5)
    assert world.of(user).number == 1 - source
    assert await world.facts(user) == before
    await world.check()
    assert [e.id for e in await world.of(user).memory.recent(user, limit=9)] == [
        f"{USERS.index(user)}-{k}" for k in (5, 4, 1, 3, 2)
    ]
    assert await world.shards[source].memory.recent(user, limit=9) == []


async def test_no_version_is_read_twice_and_none_is_left_out(world: TwoShards) -> None:
    await put_some(world)
    read_before = len(await evaluations(world))

    for user in USERS:
        await world.move(user)
    await world.fire(2)

    # The last episode of each user was read by no rule before, and "likes" does not match it.
    assert len(await evaluations(world)) == read_before + len(USERS)
    for shard in world.shards:
        for fired in RULES:
            window = await shard.facts.next_window(fired.id, limit=9)
            assert (await shard.memory.consolidate(fired, window=window)).is_empty
    await world.check()


async def evaluations(world: TwoShards) -> list[tuple[str, int]]:
    """Return the fact id of each evaluation of both shards that still has its content."""
    return [
        row
        for number in (0, 1)
        for row in world.rows(
            f"SELECT fact_id, seq FROM slumberd_{number}.slumberd_ledger "  # a number
            "WHERE fact_id IS NOT NULL AND what IN (1, 2, 3, 4, 8)"
        )
    ]


async def test_user_who_moves_there_and_back_has_what_a_user_who_stays_has(
    world: TwoShards,
) -> None:
    await put_some(world)
    await world.move("alice")
    await world.put(triple("0-6", "alice", "lives in", "Bari", user="alice", timestamp=at(7)))
    world.clock.advance(10)
    await world.fire(2)
    before = await world.facts("alice")
    source = world.of("alice").number

    await world.move("alice")
    await world.check()
    assert await world.facts("alice") == before
    await world.fire()

    assert world.of("alice").number == 1 - source
    assert await world.facts("alice") == before
    await world.check()

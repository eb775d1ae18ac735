"""A new shard gets its share of the users, who move there one after the other."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from slumberd.model.errors import UserElsewhereError
from slumberd.storage.postgres.shard_additions import add_shard, left_to_move, share_of
from slumberd.storage.postgres.shard_map import POSITIONS
from tests.support.builders import at, triple
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.two_shards import TwoShards, two_shards

pytestmark = pytest.mark.integration

USERS = [f"user{n}" for n in range(24)]


@pytest.mark.unit
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_new_shard_takes_only_its_share(shards: int) -> None:
    positions = [(position, position % shards) for position in range(POSITIONS)]

    taken = share_of(positions, shards + 1)

    assert len(taken) == POSITIONS // (shards + 1)
    left = Counter(shard for position, shard in positions if position not in set(taken))
    assert max(left.values()) - min(left.values()) <= 1


async def fill(world: TwoShards) -> dict[str, list[dict[str, object]]]:
    for user in USERS:
        await world.put(triple(f"{user}-1", user, "likes", "tea", user=user, timestamp=at(1)))
    await world.fire()
    return {user: await world.facts(user) for user in USERS}


async def move_all(world: TwoShards) -> int:
    moved = 0
    for shard in world.shards:
        moves = world.moves(shard.number)
        while await moves.move_planned(world.clock.now(), "me") is not None:
            moved += 1
    return moved


async def test_users_move_to_a_new_shard_of_the_same_server(postgres: PostgresServer) -> None:
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        async with two_shards(address) as world:
            before = await fill(world)
        added = add_shard(address)
        async with two_shards(address) as world:
            assert (added.number, added.positions) == (2, POSITIONS // 3)
            planned = sum(one.users for one in added.planned)
            assert planned > 0
            assert {user: await world.facts(user) for user in USERS} == before
            homes = {user: world.of(user).number for user in USERS}

            assert await move_all(world) == planned

            assert left_to_move(address) == []
            now = {user: world.of(user).number for user in USERS}
            assert sum(homes[user] != now[user] for user in USERS) == planned
            assert {now[user] for user in USERS if homes[user] != now[user]} == {2}
            assert {user: await world.facts(user) for user in USERS} == before
            for shard in world.shards:
                await shard.check()


async def test_users_move_to_another_server(
    postgres: PostgresServer, own_postgres: OwnServer
) -> None:
    with postgres.database() as name, own_postgres.empty_database() as other:
        address, place = postgres.address_of(name), own_postgres.address_of(other)
        async with two_shards(address) as world:
            before = await fill(world)
        planned = sum(one.users for one in add_shard(address, place).planned)
        async with two_shards(address) as world:
            assert await move_all(world) == planned > 0
            assert {user: await world.facts(user) for user in USERS} == before
            assert Counter(world.of(user).number for user in USERS)[1] == planned
            await world.check()


async def test_shard_that_was_begun_is_finished(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        async with two_shards(address) as world:
            before = await fill(world)
        with monkeypatch.context() as patch:
            patch.setattr("slumberd.storage.postgres.shard_additions._copy_erased_scopes", fail)
            with pytest.raises(RuntimeError):
                add_shard(address)

        added = add_shard(address)

        assert (added.number, added.positions) == (2, POSITIONS // 3)
        async with two_shards(address) as world:
            await move_all(world)
            assert {user: await world.facts(user) for user in USERS} == before


def test_shard_is_added_to_as_many_as_an_installation_creates(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.database() as name, monkeypatch.context() as patch:
        patch.setattr("slumberd.storage.postgres.installation.MOST_SHARDS", 1)

        added = add_shard(postgres.address_of(name))

    assert added.number == 1


def test_login_that_may_read_one_user_reads_no_other_one_in_the_new_shard(
    postgres: PostgresServer,
) -> None:
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        postgres.login("a_reader", "slumberd_reader")
        add = "INSERT INTO slumberd_1.reader_users (login, \"user\") VALUES ('a_reader', 'alice')"
        postgres.run(add, database=name)

        add_shard(address)

        with psycopg.connect(postgres.address_of(name, login="a_reader")) as reader:
            reader.execute(b"SET slumberd.tenant = 'bob'")
            sql = b"SELECT slumberd_2.may_read('alice'), slumberd_2.may_read('bob')"
            assert reader.execute(sql).fetchone() == (True, False)


def fail(*_: object) -> None:
    raise RuntimeError


async def test_user_who_is_new_goes_to_the_new_shard(postgres: PostgresServer) -> None:
    with postgres.database() as name:
        address = postgres.address_of(name)
        add_shard(address)
        async with two_shards(address) as world:
            homes = {user: world.of(user) for user in USERS}
            assert {shard.number for shard in homes.values()} == {0, 1}
            await fill(world)
            user = next(user for user, home in homes.items() if home.number == 1)
            episode = triple("x", user, "likes", "x", user=user)
            with pytest.raises(UserElsewhereError):
                await world.shards[0].memory.put_many([episode])

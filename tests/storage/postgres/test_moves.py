"""A user moves to another shard with all that the first shard has of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slumberd.consolidation.manual import Assert, Declare, ManualAssertion, ManualBatch
from slumberd.model.errors import (
    ChangedRowsError,
    IdTakenInTargetError,
    ShardSettingsDifferError,
    SupersededError,
    UnsupportedByStoreError,
    UsageError,
    UserElsewhereError,
    UserMovingError,
)
from slumberd.model.fact import FactPattern
from slumberd.model.moves import Move
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.postgres import moves
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.moved_rows import UserRows, read_rows
from slumberd.storage.postgres.moves import UserMoves
from tests.support.builders import at, triple
from tests.support.failpoints import KILLED
from tests.support.killed_moves import move_in_process
from tests.support.postgres_server import PostgresServer
from tests.support.random_moves import check_moves
from tests.support.sample_sizes import amount
from tests.support.two_shards import KEY, RULES, TwoShards, two_shards
from tests.support.waiting import PATIENCE_SECONDS

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


@pytest.mark.parametrize("seed", range(amount(1, full=60)))
async def test_moves_change_no_answer_about_any_instant(
    postgres: PostgresServer, seed: int
) -> None:
    """The same history, with and without moves: both clocks give the same facts."""
    with postgres.database(shards=2) as moved, postgres.database(shards=2) as stayed:
        await check_moves(postgres.address_of(moved), postgres.address_of(stayed), seed)


async def test_next_holder_finishes_a_move_that_was_killed_at_any_boundary(
    postgres: PostgresServer,
) -> None:
    with postgres.database(shards=2) as template:
        address = postgres.address_of(template)
        async with two_shards(address) as world:
            await put_some(world)
            before = {user: await world.facts(user) for user in USERS}
            source = world.of("alice").number
        points = await asyncio.to_thread(move_in_copy, postgres, template, 0)
        step = max(1, points // amount(6, full=points))
        for point in range(1, points + 1, step):
            with postgres.copy_of(template) as name:
                address = postgres.address_of(name)
                killed = await asyncio.to_thread(move_in_process, address, "alice", point)
                assert killed == KILLED
                async with two_shards(address) as world:
                    done = await world.moves(source).finish(world.clock.now(), "next")
                    assert done.failed == []
                    if not done.moved and world.of("alice").number == source:
                        await world.move("alice")  # it had not begun
                    assert {user: await world.facts(user) for user in USERS} == before, point
                    assert world.of("alice").number == 1 - source
                    assert await world.shards[source].memory.recent("alice", limit=9) == []
                    await world.check()
                    await world.move("alice")
                    assert await world.facts("alice") == before["alice"]


def move_in_copy(postgres: PostgresServer, template: str, point: int) -> int:
    with postgres.copy_of(template) as name:
        return move_in_process(postgres.address_of(name), "alice", point)


async def test_move_that_cannot_be_done_leaves_the_user_where_it_is(world: TwoShards) -> None:
    await put_some(world)
    before = await world.facts("alice")
    source = world.of("alice")
    other = world.shards[1 - source.number]
    neighbour = next(user for user in USERS if world.of(user) is other)
    await world.put(triple("0-1", "x", "likes", "y", user=neighbour))

    with pytest.raises(IdTakenInTargetError, match="'0-1'"):
        await world.move("alice")

    assert world.of("alice") is source
    assert await world.facts("alice") == before
    await world.put(triple("0-9", "alice", "likes", "cake", user="alice", timestamp=at(9)))
    await world.fire()
    await world.check()


async def test_shards_with_other_settings_exchange_no_users(world: TwoShards) -> None:
    await put_some(world)
    source = world.of("alice")
    await source.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=world.clock.now())

    with pytest.raises(ShardSettingsDifferError):
        await world.move("alice")

    other = world.shards[1 - source.number]
    await other.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=world.clock.now())
    await world.move("alice")
    await world.check()


async def test_change_that_waited_for_the_end_of_a_move_is_refused(world: TwoShards) -> None:
    await put_some(world)
    source = world.of("alice")
    await world.move("alice")
    before = await world.facts("alice")
    payload = {"user": "alice", "agent": "rag", "subject": "s", "predicate": "p", "object": "o"}
    lineage = [{"by": "p"}]
    edits: dict[str, Assert | Declare] = {
        "with a key": Assert(ManualAssertion("x", "alice", "rag", payload, 1.0, lineage, {})),
        "without a key": Declare(
            ManualAssertion("y", "alice", "rag", {**payload, "subject": None}, 1.0, lineage, {})
        ),
    }

    for edit in edits.values():
        with pytest.raises(UserElsewhereError):
            await source.facts.apply_deltas(ManualBatch([edit], "p"))

    assert await source.facts.query(FactPattern(user="alice")) == []
    assert await world.facts("alice") == before
    await world.check()


async def test_column_that_a_program_added_stops_a_move_before_any_write(
    world: TwoShards,
) -> None:
    await put_some(world)
    before, source = await world.facts("alice"), world.of("alice")
    column = {"op": "add_column", "table": "facts", "column": "colour", "nullable": True}
    await source.facts.migrate(MigrationPlan(target_version=2, operations=[column]))

    with pytest.raises(UnsupportedByStoreError, match=r"facts\.colour"):
        await world.move("alice")

    assert await world.facts("alice") == before
    assert world.of("alice").number == source.number


async def test_changed_row_is_not_moved(world: TwoShards) -> None:
    await put_some(world)
    source = world.of("alice").number
    world.do(f"UPDATE slumberd_{source}.slumberd_ledger SET at = at + 1 WHERE fact_id = '0-1'")

    with pytest.raises(ChangedRowsError):
        await world.move("alice")

    assert world.of("alice").number == source


async def test_move_goes_to_another_shard_that_exists(world: TwoShards) -> None:
    await put_some(world)
    source = world.of("alice").number
    of_source = world.moves(source)

    with pytest.raises(UsageError, match="already"):
        await of_source.move(Move("alice", source, world.clock.now(), "me"))
    with pytest.raises(UsageError, match="no shard 7"):
        await of_source.move(Move("alice", 7, world.clock.now(), "me"))
    with pytest.raises(UserElsewhereError):
        await world.moves(1 - source).move(Move("alice", source, world.clock.now(), "me"))


async def test_plan_of_a_move_writes_nothing(world: TwoShards) -> None:
    await put_some(world)
    source = world.of("alice").number

    plan = await world.moves(source).plan(Move("alice", 1 - source, world.clock.now(), "me"))

    assert (plan.source, plan.target, plan.episodes) == (source, 1 - source, 5)
    assert plan.facts == len(await world.facts("alice"))
    assert world.of("alice").number == source


async def test_firing_from_before_the_move_is_read_only(world: TwoShards) -> None:
    await put_some(world)
    await world.move("alice")
    target = world.of("alice")
    [[n]] = world.rows(
        f"SELECT min(n) FROM slumberd_{target.number}.slumberd_firings WHERE generation < 0"
    )

    with pytest.raises(UsageError, match="can be read only"):
        await target.facts.ledger.undo(f"all@{n}", at=world.clock.now(), by="me", dry_run=False)


async def test_puts_during_moves_are_all_acknowledged_once(world: TwoShards) -> None:
    """Hosts put while a user moves there and back; a put that is refused is tried again."""

    async def put(first: int) -> list[str]:
        ids = [f"p{first}-{n}" for n in range(20)]
        for id in ids:
            while not await try_put(world, id):
                pass
        return ids

    async def move() -> None:
        for _ in range(4):
            await world.move("alice")
            await world.fire()

    *found, _ = await asyncio.gather(put(1), put(2), put(3), move())

    await world.fire()
    ids = {id for some in found for id in some or ()}
    recent = await world.of("alice").memory.recent("alice", limit=1000)
    assert {episode.id for episode in recent} == ids
    assert len(recent) == len(ids)
    read = [id for id, _ in await evaluations(world) if id.startswith("p")]
    assert sorted(read) == sorted(ids)
    await world.check()


async def try_put(world: TwoShards, id: str) -> bool:
    try:
        await world.put(triple(id, "alice", "likes", id, user="alice", timestamp=at(1)))
    except (UserElsewhereError, UserMovingError):
        return False
    return True


@pytest.mark.parametrize("is_taken_back", [True, False])
@pytest.mark.parametrize("place", ["before it is expected", "after reading"])
async def test_process_that_was_paused_moves_nothing_later(
    world: TwoShards, monkeypatch: pytest.MonkeyPatch, is_taken_back: bool, place: str
) -> None:
    """Another holder ends the move while the first one is paused."""
    await put_some(world)
    before = await world.facts("alice")
    source = world.of("alice").number
    pause_move(world, monkeypatch, place, is_taken_back=is_taken_back)

    with pytest.raises(SupersededError):
        await world.move("alice")

    has_user = [bool(await one.memory.recent("alice", limit=9)) for one in world.shards]
    assert world.of("alice").number == (source if is_taken_back else 1 - source)
    assert has_user[world.of("alice").number]
    assert sum(has_user) == 1
    assert await world.facts("alice") == before
    await world.check()


def pause_move(
    world: TwoShards, monkeypatch: pytest.MonkeyPatch, place: str, *, is_taken_back: bool
) -> None:
    """Let the first move stop at a place until another holder has ended it."""
    loop, is_paused = asyncio.get_running_loop(), asyncio.Event()
    source, arrive = world.of("alice").number, UserMoves._arrive

    def read(*values: Any) -> UserRows:
        rows = read_rows(*values)
        if not is_paused.is_set():
            is_paused.set()
            ending = end_move(world, source, is_taken_back=is_taken_back)
            asyncio.run_coroutine_threadsafe(ending, loop).result(PATIENCE_SECONDS)
        return rows

    async def arrive_later(*values: Any) -> Any:
        if not is_paused.is_set():
            is_paused.set()
            await end_move(world, source, is_taken_back=is_taken_back)
        return await arrive(*values)

    if place == "after reading":
        monkeypatch.setattr(moves, "read_rows", read)
    else:
        monkeypatch.setattr(UserMoves, "_arrive", arrive_later)


async def end_move(world: TwoShards, source: int, *, is_taken_back: bool) -> None:
    """Take over the source, and end the move of alice or take it back."""
    async with PostgresFactStore(world.address, shard=source, key=KEY) as facts:
        await facts.transactions.take_over()
        second = UserMoves(facts.engine, world.map, depth=8, key=KEY)
        with pytest.MonkeyPatch.context() as patch:
            if is_taken_back:
                patch.setattr(moves, "write_rows", refuse)
            done = await second.finish(world.clock.now(), "second")
    assert bool(done.failed) == is_taken_back


def refuse(*_: object) -> None:
    raise IdTakenInTargetError("alice", 1, ["e1"])

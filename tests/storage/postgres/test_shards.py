"""The same history gives the same facts in files, in one shard, and in many."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.manual import ManualBatch, Retract
from slumberd.model.episode import Episode
from slumberd.model.errors import UsageError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import Scope
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import Shard, ShardMap
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.postgres_server import PostgresServer
from tests.support.sample_sizes import amount
from tests.support.shards import shard_of

pytestmark = pytest.mark.integration

USERS = ("alice", "bob", "Zoë/%", "日本", "x" * 600)
AGENTS = ("rag", "coder", "a/b")
RULES = (rule("all"), rule("likes", when_filter="predicate LIKE 'lik%'", then_emits=["notes"]))


class Branch:
    """One store of episodes and one of facts: of a file pair, or of a shard."""

    def __init__(self, memory: EngineMemoryStore, facts: EngineFactStore) -> None:
        self.memory = memory
        self.facts = facts

    async def fire(self, batch: int) -> None:
        for fired in RULES:
            while True:
                window = await self.facts.next_window(fired.id, limit=batch)
                found = await self.memory.consolidate(fired, window=window)
                if found.is_empty:
                    break
                await self.facts.apply_deltas(found)


class World:
    """Branches that hold one history together, each that of its users."""

    def __init__(self, branches: list[Branch]) -> None:
        self._branches = branches

    def _branch_of(self, user: str) -> Branch:
        return self._branches[shard_of(user, len(self._branches))]

    async def put(self, episodes: list[Episode]) -> None:
        for branch in self._branches:
            own = [one for one in episodes if self._branch_of(one.user) is branch]
            await branch.memory.put_many(own)

    async def fire(self, batch: int) -> None:
        for branch in self._branches:
            await branch.fire(batch)

    async def retract(self, user: str, fact_id: str) -> None:
        branch = self._branch_of(user)
        await branch.facts.apply_deltas(ManualBatch([Retract((fact_id,), ({"by": "p"},))], "p"))

    async def facts(self) -> list[tuple[Any, ...]]:
        found: list[Fact] = []
        for branch in self._branches:
            found += await branch.facts.query(FactPattern())
            rows, _, broken = await branch.facts.verify()
            assert broken is None
            assert rows == (await branch.facts.ledger.head()).rows
        return sorted((f.id, f.user, f.agent, f.payload["object"]) for f in found)


def histories(seed: int) -> Iterator[tuple[str, Any]]:
    """Yield steps of a random history: puts with edits and ``replaces``, firings, retractions."""
    chance = random.Random(seed)
    owners = [*product(USERS, AGENTS)]
    owner_of = {f"e{number}": chance.choice(owners) for number in range(40)}
    for _ in range(14):
        match chance.choice(("put", "put", "fire", "retract")):
            case "put":
                ids = chance.sample(sorted(owner_of), chance.randint(1, 8))
                yield "put", [_episode(chance, id, *owner_of[id]) for id in ids]
            case "fire":
                yield "fire", chance.choice((1, 3, 100))
            case _:
                id = chance.choice(sorted(owner_of))
                yield "retract", (owner_of[id][0], id)
    yield "fire", 7


def _episode(chance: random.Random, id: str, user: str, agent: str) -> Episode:
    metadata: dict[str, Any] = {}
    if chance.random() < 0.2:
        metadata["intent"] = "delete"
    if chance.random() < 0.2:
        metadata["replaces"] = [f"e{chance.randrange(40)}"]
    predicate, thing = chance.choice(("likes", "lives_in")), chance.choice("abc")
    instant = at(chance.randrange(100))
    return triple(
        id, user, predicate, thing, user=user, agent=agent, timestamp=instant, metadata=metadata
    )


async def play(world: World, steps: Sequence[tuple[str, Any]]) -> None:
    for step, value in steps:
        match step:
            case "put":
                await world.put(value)
            case "fire":
                await world.fire(value)
            case _:
                await world.retract(*value)


async def facts_of(world: World, seed: int) -> list[tuple[Any, ...]]:
    await play(world, [*histories(seed)])
    return await world.facts()


@pytest.mark.cases(1)
@pytest.mark.parametrize("shards", [1, 3, 64])
async def test_shards_hold_the_facts_of_files(
    postgres: PostgresServer, tmp_path: Path, shards: int
) -> None:
    for seed in range(amount(2 if shards < 64 else 1, full=25 if shards < 64 else 4)):
        async with AsyncExitStack() as stack:
            clock = FakeClock(at(1_000))
            files = await _files(stack, tmp_path / f"{shards}-{seed}", clock)
            address = postgres.address_of(stack.enter_context(postgres.database(shards=shards)))

            expected = await facts_of(files, seed)
            assert await facts_of(await _shards(stack, address, shards, clock), seed) == expected
            assert expected


async def _files(stack: AsyncExitStack, folder: Path, clock: FakeClock) -> World:
    memory = SQLiteMemoryStore(folder / "memory.db", clock=clock)
    facts = SQLiteFactStore(folder / "facts.db", synchronous="normal", clock=clock)
    return World([await _opened(stack, memory, facts)])


async def _shards(stack: AsyncExitStack, address: str, shards: int, clock: FakeClock) -> World:
    branches = [
        await _opened(
            stack,
            PostgresMemoryStore(address, shard=shard, clock=clock),
            PostgresFactStore(address, shard=shard, clock=clock),
        )
        for shard in range(shards)
    ]
    return World(branches)


async def _opened(
    stack: AsyncExitStack, memory: EngineMemoryStore, facts: EngineFactStore
) -> Branch:
    branch = Branch(await stack.enter_async_context(memory), await stack.enter_async_context(facts))
    await branch.memory.bootstrap()
    await branch.facts.bootstrap()
    return branch


def test_database_computes_the_shard_that_python_computes(postgres: PostgresServer) -> None:
    with (
        postgres.database(shards=64) as name,
        closing(ShardMap(postgres.address_of(name))) as shards,
    ):
        for user, agent in product(USERS, AGENTS):
            key = Scope(user, "s", agent).key
            own = shards.find(user)
            here = f"SELECT {own.schema}.is_here(split_part('{key}', '/', 3))"
            assert postgres.rows(here, name) == [(True,)]


def test_map_knows_the_shards_of_its_database(postgres_address: str) -> None:
    with closing(ShardMap(postgres_address)) as shards:
        assert shards.shards() == [Shard(0, postgres_address)]
        assert shards.shard(0) == shards.find("ana") == shards.shards()[0]
        with pytest.raises(UsageError, match="has no shard 1; its shards are 0"):
            shards.shard(1)


def test_users_are_named_only_in_the_shard_of_their_position(postgres: PostgresServer) -> None:
    with (
        postgres.database(shards=3) as name,
        closing(ShardMap(postgres.address_of(name))) as shards,
    ):
        own = shards.find("ana").number

        shards.name_users(["ana"], own)

        with pytest.raises(UsageError, match=f"'ana' belongs to shard {own}"):
            shards.name_users(["ana"], (own + 1) % 3)

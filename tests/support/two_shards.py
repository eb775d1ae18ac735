"""Two shards of one map, and their stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.moves import Move, MovedUser
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.moves import UserMoves
from slumberd.storage.postgres.shard_map import ShardMap
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock

RULES = (rule("all"), rule("likes", when_filter="predicate LIKE 'lik%'", then_emits=["notes"]))
KEY = b"k" * 32


@dataclass
class ShardStores:
    """The stores of one shard."""

    number: int
    memory: PostgresMemoryStore
    facts: PostgresFactStore
    read: list[tuple[str, str, int]] = field(default_factory=list)

    async def fire(self, batch: int = 100, rules: Sequence[ConsolidationRule] = RULES) -> None:
        for fired in rules:
            while True:
                window = await self.facts.next_window(fired.id, limit=batch)
                found = await self.memory.consolidate(fired, window=window)
                if found.is_empty:
                    break
                await self.facts.apply_deltas(found)

    async def check(self) -> None:
        """Verify the ledger, and resolve it again."""
        rows, _, broken = await self.facts.verify()
        assert broken is None, broken
        assert rows == (await self.facts.ledger.head()).rows
        with TemporaryDirectory() as folder:
            replay = await self.facts.replay(Path(folder, "facts.db"))
        assert (replay.rows, replay.differing, replay.first) == (rows, 0, None)


@dataclass
class TwoShards:
    """Two shards with their stores.

    Attributes:
        address: The address of the database with the map.
        map: The map.
        shards: The stores by the number of the shard.
        clock: The clock of both.
    """

    address: str
    map: ShardMap
    shards: list[ShardStores]
    clock: FakeClock

    def of(self, user: str) -> ShardStores:
        return self.shards[self.map.find(user).number]

    def moves(self, source: int) -> UserMoves:
        engine = self.shards[source].facts.engine
        return UserMoves(engine, self.map, depth=8, key=KEY)

    async def move(self, user: str, at: datetime | None = None) -> MovedUser:
        source = self.of(user).number
        move = Move(user, 1 - source, at or self.clock.now(), "me")
        return await self.moves(source).move(move)

    async def put(self, *episodes: Episode) -> None:
        for episode in episodes:
            home = await asyncio.to_thread(self.of, episode.user)
            await home.memory.put_many([episode])

    async def fire(self, batch: int = 100) -> None:
        for shard in self.shards:
            await shard.fire(batch)

    async def facts(self, user: str, **then: Any) -> list[dict[str, Any]]:
        found = await self.of(user).facts.query(FactPattern(user=user), **then)
        return [fact.model_dump() for fact in found]

    async def all_facts(self, believed_at: datetime) -> dict[str, Any]:
        """Return the facts of all users at an instant, by id."""
        return {
            fact.id: fact.model_dump()
            for shard in self.shards
            for fact in await shard.facts.query(FactPattern(), believed_at=believed_at)
        }

    async def check(self) -> None:
        for shard in self.shards:
            await shard.check()

    def do(self, statement: str) -> None:
        """Run a statement as another program does."""
        with psycopg.connect(self.address) as connection:
            connection.execute(statement.encode())

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.address) as connection:
            return connection.execute(statement.encode()).fetchall()


@asynccontextmanager
async def two_shards(address: str) -> AsyncIterator[TwoShards]:
    """Yield the stores of all shards of a map."""
    clock = FakeClock(START)
    async with AsyncExitStack() as stack:
        shards = []
        found = stack.enter_context(closing(ShardMap(address)))
        for shard in found.shards():
            place = shard.address
            memory = PostgresMemoryStore(place, shard=shard.number, clock=clock)
            facts = PostgresFactStore(place, shard=shard.number, clock=clock, key=KEY)
            shards.append(
                ShardStores(
                    shard.number,
                    await stack.enter_async_context(memory),
                    await stack.enter_async_context(facts),
                )
            )
            await facts.bootstrap()
            await facts.transactions.take_over()
        yield TwoShards(address, found, shards, clock)

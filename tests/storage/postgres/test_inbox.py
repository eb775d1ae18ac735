"""The numbers of the episode log follow the order of commits, and none is skipped."""

from __future__ import annotations

import asyncio
import random
from threading import Thread

import psycopg
import pytest

from slumberd.model.firing import Position
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import episode, rule

pytestmark = pytest.mark.integration

PUT = "SELECT slumberd_0.put(%s, %s, %s, %s, %s)"
KEY, AT = "/user/alice/session/s1/agent/rag/", "2026-01-01T00:00:00+00:00"
CONTENT = b'{"content":"x","source_node":"n","agent":"rag","user":"alice","session":"s1"}'


def put(connection: psycopg.Connection, *ids: str) -> None:
    """Put episodes in the connection's transaction, as a host does in its own."""
    count = len(ids)
    values = ([*ids], [KEY] * count, [CONTENT] * count, [AT] * count, [b"{}"] * count)
    connection.execute(PUT, values)


async def read_after(memory: PostgresMemoryStore, after: Position) -> tuple[list[str], Position]:
    window = await memory.select(rule(), after=after, limit=1_000)
    return [version.id for version in window.versions], window.upto


async def test_what_commits_late_is_read_later(postgres_address: str) -> None:
    with (
        psycopg.connect(postgres_address) as first,
        psycopg.connect(postgres_address) as second,
    ):
        async with PostgresMemoryStore(postgres_address) as memory:
            put(first, "early")
            put(second, "late")
            second.commit()
            found, end = await read_after(memory, Position())
            first.commit()
            rest, last = await read_after(memory, end)

    assert (found, rest) == (["late"], ["early"])
    assert (end.seq, last.seq) == (1, 2)


async def test_what_is_rolled_back_has_no_number(postgres_address: str) -> None:
    with psycopg.connect(postgres_address) as connection:
        put(connection, "never")
        connection.rollback()
        put(connection, "e1")
        connection.commit()
    async with PostgresMemoryStore(postgres_address) as memory:
        found, end = await read_after(memory, Position())

    assert (found, end.seq) == (["e1"], 1)


async def test_many_who_number_at_once_skip_and_repeat_nothing(postgres_address: str) -> None:
    """Six putters commit in random order, some roll back, and four readers give numbers."""
    kept: list[str] = []

    def run(name: str) -> None:
        chance = random.Random(name)
        with psycopg.connect(postgres_address) as connection:
            for turn in range(20):
                ids = [f"{name}-{turn}-{place}" for place in range(chance.randint(1, 4))]
                put(connection, *ids)
                if chance.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    kept.extend(ids)

    threads = [Thread(target=run, args=(f"t{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    stores = [PostgresMemoryStore(postgres_address) for _ in range(4)]
    while any(thread.is_alive() for thread in threads):
        await asyncio.gather(*(store.newest() for store in stores))
    found, end = await read_after(stores[0], Position())
    for store in stores:
        await store.close()

    assert sorted(found) == sorted(kept)
    assert end.seq == len(kept)


async def test_puts_of_the_same_ids_at_once_leave_one_episode_each(postgres_address: str) -> None:
    stores = [PostgresMemoryStore(postgres_address) for _ in range(4)]
    episodes = [episode(f"e{number}") for number in range(200)]

    counts = await asyncio.gather(
        *(
            store.put_many(episodes if turn % 2 else episodes[::-1])
            for turn, store in enumerate(stores)
        )
    )
    found, _ = await read_after(stores[0], Position())
    for store in stores:
        await store.close()

    assert sum(count.new for count in counts) == 200
    assert sum(count.unchanged for count in counts) == 600
    assert sorted(found) == sorted(one.id for one in episodes)

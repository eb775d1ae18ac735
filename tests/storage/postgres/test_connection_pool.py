"""Shards share a few connections: a work waits for another one only when none is free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from slumberd.model.errors import DatabaseUnreachableError
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.connection_pool import (
    MOST_OF_EACH_USE,
    ConnectionPool,
    Use,
    pool_for,
    share_connections,
)
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


@pytest.fixture
async def pool(postgres: PostgresServer) -> AsyncIterator[ConnectionPool]:
    with postgres.database(shards=6) as name:
        made = ConnectionPool(postgres.address_of(name), most=2)
        yield made
        await made.close()


def process_of(connection: Connection) -> int:
    return connection.info.backend_pid


async def process(pool: ConnectionPool, shard: int, *, use: Use = "read", queue: str = "") -> int:
    """Return the process of the server that a work of a shard gets."""
    return await pool.run(use, process_of, schema=f"slumberd_{shard}", queue=queue)


class LongWork:
    """A work that runs until `end`."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._may_end = threading.Event()

    def __call__(self, connection: Connection) -> int:
        self._loop.call_soon_threadsafe(self.has_begun.set)
        assert self._may_end.wait(PATIENCE_SECONDS)
        return process_of(connection)

    def end(self) -> None:
        self._may_end.set()


async def test_shard_with_work_stays_on_its_connection(pool: ConnectionPool) -> None:
    first = await process(pool, 0)
    second = await process(pool, 1)

    again = [await process(pool, shard) for shard in (0, 1, 1, 0)]

    assert first != second
    assert again == [first, second, second, first]


async def test_further_shard_takes_the_connection_that_was_used_least_recently(
    pool: ConnectionPool,
) -> None:
    first = await process(pool, 0)
    await process(pool, 1)

    assert await process(pool, 2) == first


async def test_connection_names_the_tables_of_the_shard_whose_work_it_does(
    pool: ConnectionPool,
) -> None:
    def schema_of(connection: Connection) -> str:
        row = connection.execute(b"SELECT current_schemas(false)").fetchone()
        connection.rollback()
        return str(row[0][-1]) if row else ""

    found = [
        await pool.run("write", schema_of, schema=f"slumberd_{shard}")
        for shard in (0, 1, 2, 3, 0, 2)
    ]

    assert found == [f"slumberd_{shard}" for shard in (0, 1, 2, 3, 0, 2)]


async def test_work_does_not_wait_for_a_long_one_of_another_shard(pool: ConnectionPool) -> None:
    long_work = LongWork()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(pool.run("write", long_work, schema="slumberd_0", queue="0"))
        await long_work.has_begun.wait()

        # The second work opens a connection; for the third, the busy one was used less recently.
        others = {await process(pool, shard, use="write", queue=f"{shard}") for shard in (1, 2)}

        long_work.end()
    assert len(others) == 1
    assert working.result() not in others


async def test_works_of_a_queue_follow_each_other(pool: ConnectionPool) -> None:
    done: list[str] = []

    def record(name: str) -> Callable[[Connection], None]:
        return lambda _: done.append(name)

    long_work = LongWork()
    async with asyncio.TaskGroup() as group:
        group.create_task(pool.run("write", long_work, schema="slumberd_0", queue="0"))
        await long_work.has_begun.wait()
        await pool.post("write", record("second"), schema="slumberd_0", queue="0")
        third = group.create_task(
            pool.run("write", record("third"), schema="slumberd_0", queue="0")
        )
        await process(pool, 1, use="write", queue="1")
        assert done == []
        long_work.end()
        await third

    assert done == ["second", "third"]


async def test_idle_shards_have_no_connections(
    pool: ConnectionPool, postgres: PostgresServer
) -> None:
    processes = {await process(pool, shard) for shard in range(6)}

    assert len(processes) == 2


async def test_works_at_once_open_no_more_connections_than_allowed(pool: ConnectionPool) -> None:
    async with asyncio.TaskGroup() as group:
        works = [group.create_task(process(pool, shard)) for shard in range(6)]

    assert len({work.result() for work in works}) == 2


async def test_work_after_a_lost_connection_gets_a_new_one(
    pool: ConnectionPool, postgres: PostgresServer
) -> None:
    first = await process(pool, 0)
    postgres.run(f"SELECT pg_terminate_backend({first}, 10000)")

    with pytest.raises(psycopg.OperationalError):
        await pool.run("read", lambda connection: connection.execute(b"SELECT 1"))

    assert await process(pool, 0) != first


async def test_works_that_wait_for_a_connection_get_the_error_of_its_server() -> None:
    pool = ConnectionPool("postgresql://%2Fnowhere/x")

    found = await asyncio.gather(
        *(process(pool, shard) for shard in range(3)), return_exceptions=True
    )

    assert [type(one) for one in found] == [DatabaseUnreachableError] * 3


async def test_stores_of_one_process_share_the_connections_of_each_server() -> None:
    address, other = "postgresql://a/x", "postgresql://b/x"
    async with share_connections():
        assert pool_for(address) is pool_for(address)
        assert pool_for(address) is not pool_for(other)

    assert pool_for(address) is not pool_for(address)
    assert MOST_OF_EACH_USE > 1

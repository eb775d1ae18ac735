"""A watch notices the episodes of every host, and ends at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from slumberd.model.errors import StoreError
from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import (
    CHANNEL,
    REQUESTS,
    PostgresWatch,
    RequestWatch,
    _Look,
)
from tests.support.builders import episode
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

SELDOM = 10 * PATIENCE_SECONDS
"""A poll that never comes while a test runs."""

PUT = b"""
SELECT slumberd_0.put(
  ARRAY['e1'], ARRAY['/user/u/session/s/agent/a/'], ARRAY['{}'::bytea],
  ARRAY['2026-01-01T00:00:00+00:00'], ARRAY['{}'::bytea])
"""


class Calls:
    """Counts the calls of a watch, from any thread."""

    def __init__(self) -> None:
        self._semaphore = threading.Semaphore(0)

    @property
    def count(self) -> int:
        """How many calls nobody has waited for."""
        return self._semaphore._value

    def __call__(self) -> None:
        self._semaphore.release()

    async def wait(self) -> None:
        """Wait for one more call."""
        came = await asyncio.to_thread(self._semaphore.acquire, timeout=PATIENCE_SECONDS)
        assert came, "the watch did not call back"


@asynccontextmanager
async def watching(address: str, poll_seconds: float) -> AsyncIterator[Calls]:
    """Watch a database; the two calls of the start are over."""
    calls = Calls()
    async with PostgresWatch(Shard(0, address), calls, poll_seconds=poll_seconds):
        await calls.wait()  # entered
        await calls.wait()  # the connection listens
        yield calls


async def test_a_watch_calls_back_when_another_host_notifies(postgres_address: str) -> None:
    async with watching(postgres_address, SELDOM) as calls:
        with psycopg.connect(postgres_address, autocommit=True) as other:
            other.execute(PUT)
            other.execute(f"NOTIFY {CHANNEL}".encode())

            await calls.wait()


async def test_watches_of_one_process_share_a_connection(
    postgres: PostgresServer, postgres_address: str
) -> None:
    async with watching(postgres_address, SELDOM) as first:
        async with watching(postgres_address, SELDOM) as second:
            listening = postgres.rows(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE '%pg_current_snapshot%' "
                "AND pid != pg_backend_pid()",
                postgres_address.rpartition("/")[2],
            )
            assert listening == [(1,)]
        with psycopg.connect(postgres_address, autocommit=True) as other:
            other.execute(PUT)
            other.execute(f"NOTIFY {CHANNEL}".encode())

            await first.wait()
    assert second.count == 0


async def test_a_watch_notices_what_a_program_puts_without_notifying(
    postgres_address: str,
) -> None:
    async with watching(postgres_address, 0.01) as calls:
        with psycopg.connect(postgres_address, autocommit=True) as other:
            other.execute(PUT)

            await calls.wait()


async def test_a_watch_calls_back_when_its_own_process_puts(postgres_address: str) -> None:
    async with (
        watching(postgres_address, SELDOM) as calls,
        PostgresMemoryStore(postgres_address) as memory,
    ):
        await memory.put_many([episode()])

        await calls.wait()


async def test_a_watch_ends_without_waiting_for_its_next_poll(postgres_address: str) -> None:
    async with watching(postgres_address, SELDOM):
        began = time.monotonic()

    assert time.monotonic() - began < PATIENCE_SECONDS


async def test_a_store_with_a_watch_asks_the_server_only_after_news(
    postgres: PostgresServer, postgres_address: str
) -> None:
    calls = Calls()
    async with (
        PostgresMemoryStore(postgres_address) as memory,
        memory.watch(calls, poll_seconds=SELDOM),
    ):
        await calls.wait()  # entered
        await calls.wait()  # the connection listens
        first, second = await memory.changed(), await memory.changed()
        with psycopg.connect(postgres_address, autocommit=True) as other:
            other.execute(PUT)
            put_silently = await memory.changed()
            other.execute(f"NOTIFY {CHANNEL}".encode())
        await calls.wait()

        assert (first, second, put_silently) == (True, False, False)
        assert await memory.changed()


def is_looking(watch: PostgresWatch) -> bool:
    return watch._listener is not None and watch._listener.is_looking


async def test_a_store_asks_the_server_while_its_watch_has_no_connection(
    own_postgres: OwnServer,
) -> None:
    with own_postgres.database() as name:
        calls = Calls()
        async with (
            PostgresMemoryStore(own_postgres.address_of(name)) as memory,
            memory.watch(calls, poll_seconds=0.01) as watch,
        ):
            await calls.wait()
            await calls.wait()
            await memory.changed()
            own_postgres.stop(at_once=True)

            await asyncio.to_thread(wait_until, lambda: not is_looking(watch))

            with pytest.raises(StoreError):
                await memory.changed()
        own_postgres.start()


async def test_watches_look_at_the_shards_only_after_a_transaction_has_written(
    postgres_address: str, postgres: PostgresServer
) -> None:
    shards = [Shard(0, postgres_address)]
    with connect(postgres_address, autocommit=True) as connection:
        look = _Look(connection)
        first = look.states(shards)
        again = look.states(shards)
        postgres.run(PUT.decode(), database=postgres_address.rpartition("/")[2])

        after = look.states(shards)

    assert again is first
    assert (first[0].put, after[0].put) == (None, 1)


async def test_shard_without_its_tables_hides_no_other_one(postgres: PostgresServer) -> None:
    with postgres.database(shards=2) as name:
        shards = [Shard(number, postgres.address_of(name)) for number in range(2)]
        postgres.run("DROP TABLE slumberd_0.requests", database=name)
        with connect(shards[0].address, autocommit=True) as connection:
            assert [*_Look(connection).states(shards)] == [1]


async def test_a_watch_of_requests_names_the_shards_whose_requests_wait(
    postgres: PostgresServer,
) -> None:
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        shards = [Shard(number, address) for number in range(3)]
        noticed: list[list[Shard]] = []
        calls = Calls()
        add = "INSERT INTO slumberd_{}.requests (operation, request, host) VALUES ('a', 'b', 'c')"

        def notice(some: list[Shard]) -> None:
            noticed.append(some)
            calls()

        with RequestWatch(address, lambda: shards[:2], notice):
            postgres.run(add.format(1), add.format(2), f"NOTIFY {REQUESTS}", database=name)

            await calls.wait()

    assert {*map(tuple, noticed)} == {(shards[1],)}

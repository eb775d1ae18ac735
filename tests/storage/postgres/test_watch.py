"""A watch notices the episodes of every host, and ends at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import CHANNEL, PostgresWatch
from tests.support.builders import episode
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import PATIENCE_SECONDS

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

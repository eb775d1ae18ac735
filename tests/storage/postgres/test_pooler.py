"""slumberd works through a pooler that keeps sessions, and refuses one that divides them.

Programs put by SQL through either.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from slumberd.model.episode import Episode
from slumberd.model.errors import PoolerError
from slumberd.model.fact import FactPattern
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import position_of
from tests.support.builders import rule, triple
from tests.support.daemons import Home
from tests.support.pooler import running_pooler
from tests.support.postgres_server import OwnServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EVERY = rule()
PUT = "SELECT slumberd_{}.put(%s, %s, %s, %s, %s)"


@pytest.fixture
def database(own_postgres: OwnServer) -> Iterator[str]:
    with own_postgres.database(shards=3) as name:
        yield name


def user_of(shard: int) -> str:
    """Return a user of one of the three shards."""
    names = (f"user{number}" for number in itertools.count())
    return next(name for name in names if position_of(name) % 3 == shard)


def of_shard(shard: int, id: str) -> Episode:
    """Return an episode of a user of a shard."""
    return triple(id, id, "likes", "tea", user=user_of(shard))


async def put_into(address: str, shard: int) -> None:
    async with PostgresMemoryStore(address, shard=shard) as memory:
        await memory.put_many([of_shard(shard, "e1")])


def put_by_sql(connection: psycopg.Connection, id: str, user: str) -> None:
    key = f"/user/{user}/session/s/agent/a/"
    values = ([id], [key], [b"{}"], ["2026-01-01T00:00:00+00:00"], [b"{}"])
    connection.execute(PUT.format(position_of(user) % 3), values)


@pytest.mark.nightly
async def test_programs_put_by_sql_through_a_pooler(own_postgres: OwnServer, database: str) -> None:
    with running_pooler(own_postgres, database) as address, ExitStack() as stack:
        programs = [
            stack.enter_context(psycopg.connect(address, prepare_threshold=None)) for _ in range(6)
        ]  # more than the pooler has connections
        for turn in range(5):
            for number, program in enumerate(programs):
                put_by_sql(program, f"e{number}-{turn}", f"user{number}")
                program.commit()

    counted = 0
    for shard in range(3):
        async with PostgresMemoryStore(own_postgres.address_of(database), shard=shard) as memory:
            counted += (await memory.newest()).seq
    assert counted == 30


@pytest.mark.cases(2)
@pytest.mark.parametrize("ignored", ["", "options,extra_float_digits"], ids=["strict", "lenient"])
@pytest.mark.parametrize("order", ["0", "1"], ids=["last session first", "sessions in turn"])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_store_refuses_a_pool_that_divides_sessions(
    own_postgres: OwnServer, database: str, mode: str, order: str, ignored: str
) -> None:
    settings = {"pool_mode": mode, "server_round_robin": order, "min_pool_size": "2"}
    settings |= {"ignore_startup_parameters": ignored} if ignored else {}
    with running_pooler(own_postgres, database, **settings) as address:
        memory = PostgresMemoryStore(address)

        with pytest.raises(PoolerError, match="pool_mode = session"):
            await memory.newest()
        await memory.close()
        with psycopg.connect(address, prepare_threshold=None, autocommit=True) as other:
            row = other.execute("SELECT current_setting('search_path')").fetchone()
    assert row == ('"$user", public',)


def test_daemon_refuses_a_pool_of_transactions(
    own_postgres: OwnServer, database: str, tmp_path: Path
) -> None:
    with running_pooler(own_postgres, database) as address:
        home = Home(tmp_path, {"store": address})
        home.rule("all", cadence={"every": 1})

        ended = home.slumberd("run", check=False)

    assert ended.returncode == 78
    assert "connection pooler" in ended.stderr


@contextmanager
def session_pool(server: OwnServer, database: str, **settings: str) -> Iterator[str]:
    """Yield the address of a database behind a pooler that keeps sessions."""
    every = {"pool_mode": "session", "default_pool_size": "40", **settings}
    with running_pooler(server, database, **every) as address:
        yield address


async def test_stores_of_two_shards_work_through_a_pool_of_sessions(
    own_postgres: OwnServer, database: str
) -> None:
    with session_pool(own_postgres, database) as address:
        async with (
            PostgresMemoryStore(address, shard=0) as memory,
            PostgresFactStore(address, shard=0) as facts,
            PostgresMemoryStore(address, shard=1) as other,
        ):
            await facts.bootstrap()
            await facts.transactions.take_over()
            for turn in range(8):  # more often than a statement is sent before it is prepared
                await memory.put_many([of_shard(0, f"e{turn}")])
                await other.put_many([of_shard(1, f"e{turn}")])
                batch = await memory.consolidate(EVERY, window=await facts.next_window(EVERY.id))
                await facts.apply_deltas(batch)

            found = await facts.query(FactPattern())
            others = await other.newest()

    assert len(found) == 8
    assert others.seq == 8


@pytest.mark.parametrize("reset", ["DISCARD ALL", ""], ids=["reset", "not reset"])
async def test_sessions_of_a_pool_hold_nothing_of_earlier_clients(
    own_postgres: OwnServer, database: str, reset: str
) -> None:
    with session_pool(own_postgres, database, server_reset_query=reset) as address:
        for shard in (0, 1, 2):
            async with PostgresMemoryStore(address, shard=shard) as memory:
                for turn in range(8):
                    await memory.put_many([of_shard(shard, f"e{turn}")])

                assert (await memory.newest()).seq == 8


async def test_watch_is_notified_through_a_pool_of_sessions(
    own_postgres: OwnServer, database: str
) -> None:
    news = asyncio.Event()
    loop = asyncio.get_running_loop()
    with session_pool(own_postgres, database) as address:
        async with (
            PostgresMemoryStore(address) as memory,
            PostgresMemoryStore(own_postgres.address_of(database)) as writer,
            memory.watch(lambda: loop.call_soon_threadsafe(news.set), poll_seconds=3600),
        ):
            while await memory.changed():
                await news.wait()
                news.clear()
            await writer.put_many([of_shard(0, "e1")])

            await asyncio.wait_for(news.wait(), PATIENCE_SECONDS)


def test_daemon_works_through_a_pool_of_sessions(
    own_postgres: OwnServer, database: str, tmp_path: Path
) -> None:
    with session_pool(own_postgres, database) as address:
        home = Home(tmp_path, {"store": address})
        home.rule("all", cadence={"every": 1})
        with home.daemon() as daemon:
            for shard in range(3):
                asyncio.run(put_into(address, shard))
                fired = daemon.wait_for("firing.completed")
                assert fired["shard"] == shard

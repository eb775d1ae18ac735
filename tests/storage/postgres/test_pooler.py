"""Programs put through a pooler of transactions; slumberd itself says that it needs the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from slumberd.errors import PoolerError
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.daemons import Home
from tests.support.pooler import running_pooler
from tests.support.postgres_server import OwnServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PUT = "SELECT slumberd.put(%s, %s, %s, %s, %s)"


@pytest.fixture
def database(own_postgres: OwnServer) -> Iterator[str]:
    with own_postgres.database(shards=3) as name:
        yield name


def put_by_sql(connection: psycopg.Connection, id: str, user: str) -> None:
    key = f"/user/{user}/session/s/agent/a/"
    values = ([id], [key], [b"{}"], ["2026-01-01T00:00:00+00:00"], [b"{}"])
    connection.execute(PUT, values)


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


@pytest.mark.cases(1)
@pytest.mark.parametrize("ignored", ["", "options,extra_float_digits"], ids=["strict", "lenient"])
async def test_store_refuses_a_pooler(own_postgres: OwnServer, database: str, ignored: str) -> None:
    settings = {"ignore_startup_parameters": ignored} if ignored else {}
    with running_pooler(own_postgres, database, **settings) as address:
        memory = PostgresMemoryStore(address)

        with pytest.raises(PoolerError, match="the address of the server itself"):
            await memory.newest()
        await memory.close()


def test_daemon_refuses_a_pooler(own_postgres: OwnServer, database: str, tmp_path: Path) -> None:
    with running_pooler(own_postgres, database) as address:
        home = Home(tmp_path, {"store": address})
        home.rule("all", cadence={"every": 1})

        ended = home.slumberd("run", check=False)

    assert ended.returncode == 78
    assert "connection pooler" in ended.stderr

"""A database that a release made is upgraded step by step, and keeps every row."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psycopg
import pytest

from slumberd import FactPattern
from slumberd.errors import SchemaError, StoreError
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.forked_commands import start_command
from tests.support.installation import environment
from tests.support.postgres_server import PostgresServer
from tests.support.release_files import kept_facts, kept_statements
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(postgres: PostgresServer) -> Iterator[str]:
    with postgres.empty_database() as name:
        postgres.run(installation.roles(), database=name)
        postgres.run(kept_statements("0.2.0"), database=name)
        yield name


async def test_upgraded_database_of_0_2_0_keeps_every_fact(
    postgres: PostgresServer, kept: str
) -> None:
    address = postgres.address_of(kept)

    assert [step.number for step in installation.upgrade(address)] == [2]

    async with PostgresFactStore(address) as facts, PostgresMemoryStore(address) as memory:
        await memory.bootstrap()
        await facts.bootstrap()
        found = sorted(fact.id for fact in await facts.query(FactPattern()))
        verified = await facts.verify()
    assert found == sorted(fact["id"] for fact in kept_facts("0.2.0"))
    assert verified[2] is None


async def test_older_database_is_refused_untouched_until_it_is_upgraded(
    postgres: PostgresServer, kept: str
) -> None:
    before = postgres.dump(kept)

    async with PostgresFactStore(postgres.address_of(kept)) as facts:
        with pytest.raises(SchemaError, match=r"step 2 \(laws\) is missing.*pg_dump"):
            await facts.bootstrap()

    assert postgres.dump(kept) == before


def test_upgrade_that_fails_leaves_the_database_as_it_was(
    postgres: PostgresServer, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = installation.migrations()
    broken = installation.Migration(3, "break", "CREATE TABLE slumberd.ledger (x int)", 3)
    monkeypatch.setattr(installation, "migrations", lambda: [*known, broken])
    before = postgres.dump(kept)

    with pytest.raises(StoreError):
        installation.upgrade(postgres.address_of(kept))

    assert postgres.dump(kept) == before
    monkeypatch.undo()
    assert [step.number for step in installation.upgrade(postgres.address_of(kept))] == [2]


BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"


def test_killed_upgrade_leaves_the_database_as_it_was(postgres: PostgresServer, kept: str) -> None:
    before = postgres.dump(kept)
    address = postgres.address_of(kept)

    with psycopg.connect(address) as reader:
        reader.execute("LOCK TABLE slumberd.ledger IN SHARE UPDATE EXCLUSIVE MODE")
        command = [sys.executable, "-m", "slumberd", "postgres", "migrate", address]
        process = start_command(command, environment({}))
        waiting = f"{BLOCKED} pg_database WHERE datname = '{kept}')"
        wait_until(lambda: postgres.rows(waiting, kept) == [(1,)])
        process.kill()
        process.wait(PATIENCE_SECONDS)
        assert process.stderr is not None
        process.stderr.close()

    wait_until(lambda: postgres.rows(waiting, kept) == [(0,)])
    assert postgres.dump(kept) == before
    assert [step.number for step in installation.upgrade(address)] == [2]

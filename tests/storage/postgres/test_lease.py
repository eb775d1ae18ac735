"""One process holds the lease of a shard, by the clock of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from slumberd.storage.postgres.hosts.lease import Lease
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def leases(postgres_address: str) -> AsyncIterator[list[Lease]]:
    made = [Lease(postgres_address, 0, name, seconds=3600, is_daemon=name == "a") for name in "ab"]
    yield made
    for lease in made:
        await lease.close()


async def test_lease_is_held_by_one_and_free_after_its_release(leases: list[Lease]) -> None:
    first, second = leases

    assert await first.claim() is None
    assert await second.claim() == ("a", True)
    assert await first.claim() is None
    assert await first.renew()
    assert not await second.renew()
    await second.release()
    assert await second.holder() == ("a", True)
    await first.release()
    assert await second.claim() is None
    assert await first.holder() == ("b", False)


async def test_lease_that_ran_out_goes_to_who_claims_it(
    postgres: PostgresServer, postgres_address: str, leases: list[Lease]
) -> None:
    first, second = leases
    await first.claim()
    postgres.run(
        "UPDATE slumberd.shards SET held_until = clock_timestamp() - interval '1 second'",
        database=postgres_address.rpartition("/")[2],
    )

    assert await second.claim() is None
    assert not await first.renew()


async def test_lease_is_renewed_while_a_transaction_holds_the_epoch(
    postgres: PostgresServer, postgres_address: str, leases: list[Lease]
) -> None:

    await leases[0].claim()
    with psycopg.connect(postgres_address) as connection:
        connection.execute(b"SELECT 1 FROM slumberd.numbers WHERE name = 'epoch' FOR UPDATE")

        assert await leases[0].renew()

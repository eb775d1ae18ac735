"""One process holds the lease of a shard, by the clock of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.hosts.lease import Lease
from slumberd.storage.postgres.hosts.requests import _Sent
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


def step_back(postgres: PostgresServer, address: str, host: str = "host") -> None:
    """Change the rows as a step of the server's clock ten years back leaves them."""
    database = address.rpartition("/")[2]
    postgres.run(
        f"UPDATE slumberd.shards SET held_until = held_until + interval '10 years', host = {host}",
        database=database,
    )
    postgres.run(
        "UPDATE slumberd.hosts SET seen_at = seen_at + interval '10 years'", database=database
    )


async def test_lease_of_the_future_runs_out_like_another(
    postgres: PostgresServer, postgres_address: str
) -> None:
    dead = Lease(postgres_address, 0, "dead", seconds=0.2, is_daemon=True)
    standby = Lease(postgres_address, 0, "standby", seconds=3600, is_daemon=True)
    await dead.claim()
    step_back(postgres, postgres_address)

    assert await standby.claim() == ("dead", True)
    while await standby.claim() is not None:
        pass

    assert await standby.holder() == ("standby", True)
    assert not await dead.renew()
    await dead.close()
    await standby.close()


async def test_holder_that_lives_keeps_its_lease_over_a_step_back(
    postgres: PostgresServer, postgres_address: str, leases: list[Lease]
) -> None:
    first, second = leases
    await first.claim()
    step_back(postgres, postgres_address)

    assert await second.claim() == ("a", True)
    assert await first.renew()
    assert await second.claim() == ("a", True)


async def test_lease_of_an_earlier_release_lasts_an_hour_at_most_after_a_step_back(
    postgres: PostgresServer, postgres_address: str, leases: list[Lease]
) -> None:
    first, second = leases
    await first.claim()
    step_back(postgres, postgres_address, host="""'{"daemon": true}'""")

    await second.claim()

    [[left]] = postgres.rows(
        "SELECT extract(epoch FROM held_until - clock_timestamp()) FROM slumberd.shards",
        postgres_address.rpartition("/")[2],
    )
    assert 3_500 < left <= 3_600


async def test_host_of_the_future_counts_as_gone(
    postgres: PostgresServer, postgres_address: str
) -> None:
    dead = Lease(postgres_address, 0, "dead", seconds=0.2, is_daemon=True)
    other = Lease(postgres_address, 0, "other", seconds=10, is_daemon=True)
    await dead.claim()
    await dead.tell_host({"rules_hash": "old"})
    step_back(postgres, postgres_address)
    await other.tell_host({"rules_hash": "new"})

    rules = await other.rules_of_others()
    while (view := await other.view(10)).shards[0] is not None:
        pass

    assert rules == []
    assert view.hosts == ["other"]
    assert not send_is_possible(postgres_address)
    await dead.close()
    await other.close()


def send_is_possible(address: str) -> bool:
    """Return whether a sender believes that a daemon holds the shard."""
    with connect(address, autocommit=True) as connection:
        return _Sent(address, 0, 0.1).is_daemon_active(connection)


async def test_sender_waits_for_no_daemon_whose_lease_is_of_the_future(
    postgres: PostgresServer, postgres_address: str
) -> None:
    lease = Lease(postgres_address, 0, "dead", seconds=10, is_daemon=True)
    await lease.claim()
    before = send_is_possible(postgres_address)
    step_back(postgres, postgres_address)

    assert (before, send_is_possible(postgres_address)) == (True, False)
    await lease.close()


async def test_lease_is_renewed_while_a_transaction_holds_the_epoch(
    postgres: PostgresServer, postgres_address: str, leases: list[Lease]
) -> None:

    await leases[0].claim()
    with psycopg.connect(postgres_address) as connection:
        connection.execute(b"SELECT 1 FROM slumberd.numbers WHERE name = 'epoch' FOR UPDATE")

        assert await leases[0].renew()

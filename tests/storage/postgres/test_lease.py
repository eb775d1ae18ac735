"""One process holds the lease of a shard, by the clock of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from slumberd.model.errors import SchemaError
from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.lease import Holder, HostTable, Leases
from slumberd.storage.postgres.requests import _Sent
from slumberd.storage.postgres.shard_map import Shard
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


class Holding:
    """The lease of shard 0, as one process takes it."""

    def __init__(self, address: str, name: str, *, seconds: float, is_daemon: bool) -> None:
        self.shard = Shard(0, address)
        self.leases = Leases(address, name, seconds=seconds, is_daemon=is_daemon)

    async def claim(self) -> Holder | None:
        return await self.leases.claim(self.shard)

    async def holder(self) -> Holder | None:
        return await self.leases.holder(self.shard)

    async def renew(self) -> bool:
        """Return whether this process holds the lease."""
        return not await self.leases.renew([self.shard])

    async def release(self) -> None:
        await self.leases.release(self.shard)


@pytest.fixture
async def leases(postgres_address: str) -> AsyncIterator[list[Holding]]:
    made = [Holding(postgres_address, name, seconds=3600, is_daemon=name == "a") for name in "ab"]
    yield made
    for lease in made:
        await lease.leases.close()


async def test_lease_is_held_by_one_and_free_after_its_release(leases: list[Holding]) -> None:
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
    postgres: PostgresServer, postgres_address: str, leases: list[Holding]
) -> None:
    first, second = leases
    await first.claim()
    postgres.run(
        "UPDATE slumberd_0.lease SET held_until = clock_timestamp() - interval '1 second'",
        database=postgres_address.rpartition("/")[2],
    )

    assert await second.claim() is None
    assert not await first.renew()


async def test_leases_of_many_shards_are_renewed_in_one_statement(
    postgres: PostgresServer,
) -> None:
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        shards = [Shard(number, address) for number in range(3)]
        leases = Leases(address, "a", seconds=3600, is_daemon=True)
        for shard in shards:
            await leases.claim(shard)
        end = "UPDATE slumberd_{}.lease SET holder = {}, held_until = '2000-01-01'"
        postgres.run(end.format(0, "'b'"), end.format(1, "'a'"), database=name)
        postgres.run(end.format(2, "NULL"), database=name)

        lost = await leases.renew(shards)

        held = postgres.rows("SELECT held_until > now() FROM slumberd_1.lease", name)
        await leases.close()
    assert lost == {shards[0]: "b", shards[2]: ""}
    assert held == [(True,)]


async def test_lease_that_somebody_locks_delays_no_other_one(postgres: PostgresServer) -> None:
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        shards = [Shard(number, address) for number in range(2)]
        leases = Leases(address, "a", seconds=3600, is_daemon=True)
        for shard in shards:
            await leases.claim(shard)
        until = "SELECT held_until FROM slumberd_{}.lease"
        before = [postgres.rows(until.format(number), name) for number in range(2)]
        with psycopg.connect(address) as other:
            other.execute(b"SELECT 1 FROM slumberd_0.lease FOR SHARE")

            lost = await leases.renew(shards)

        after = [postgres.rows(until.format(number), name) for number in range(2)]
        await leases.close()
    assert lost == {}
    assert [now > earlier for now, earlier in zip(after, before, strict=True)] == [False, True]


def step_back(postgres: PostgresServer, address: str, host: str = "host") -> None:
    """Change the rows as a step of the server's clock ten years back leaves them."""
    database = address.rpartition("/")[2]
    postgres.run(
        f"UPDATE slumberd_0.lease SET held_until = held_until + interval '10 years', host = {host}",
        database=database,
    )
    postgres.run(
        "UPDATE slumberd.hosts SET seen_at = seen_at + interval '10 years'", database=database
    )


async def test_lease_of_the_future_runs_out_like_another(
    postgres: PostgresServer, postgres_address: str
) -> None:
    dead = Holding(postgres_address, "dead", seconds=0.2, is_daemon=True)
    standby = Holding(postgres_address, "standby", seconds=3600, is_daemon=True)
    await dead.claim()
    step_back(postgres, postgres_address)

    assert await standby.claim() == ("dead", True)
    while await standby.claim() is not None:
        pass

    assert await standby.holder() == ("standby", True)
    assert not await dead.renew()
    await dead.leases.close()
    await standby.leases.close()


async def test_holder_that_lives_keeps_its_lease_over_a_step_back(
    postgres: PostgresServer, postgres_address: str, leases: list[Holding]
) -> None:
    first, second = leases
    await first.claim()
    step_back(postgres, postgres_address)

    assert await second.claim() == ("a", True)
    assert await first.renew()
    assert await second.claim() == ("a", True)


async def test_lease_of_an_earlier_release_lasts_an_hour_at_most_after_a_step_back(
    postgres: PostgresServer, postgres_address: str, leases: list[Holding]
) -> None:
    first, second = leases
    await first.claim()
    step_back(postgres, postgres_address, host="""'{"daemon": true}'""")

    await second.claim()

    [[left]] = postgres.rows(
        "SELECT extract(epoch FROM held_until - clock_timestamp()) FROM slumberd_0.lease",
        postgres_address.rpartition("/")[2],
    )
    assert 3_500 < left <= 3_600


async def test_host_of_the_future_counts_as_gone(
    postgres: PostgresServer, postgres_address: str
) -> None:
    dead = Holding(postgres_address, "dead", seconds=0.2, is_daemon=True)
    tables = [HostTable(postgres_address, name) for name in ("dead", "other")]
    await dead.claim()
    await tables[0].tell_host({"rules_hash": "old"})
    step_back(postgres, postgres_address)
    await tables[1].tell_host({"rules_hash": "new"})

    rules = await tables[1].rules_of_others()
    while (view := await tables[1].view(10)).holders[0] is not None:
        pass

    assert rules == []
    assert view.hosts == ["other"]
    assert not send_is_possible(postgres_address)
    await dead.leases.close()
    for table in tables:
        await table.close()


async def test_view_names_the_holders_of_all_shards_and_why_one_is_missing(
    postgres: PostgresServer,
) -> None:
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        leases = Leases(address, "a", seconds=3600, is_daemon=True)
        await leases.claim(Shard(2, address))
        postgres.run("DROP SCHEMA slumberd_1 CASCADE", database=name)
        table = HostTable(address, "b")

        view = await table.view(10)

        await leases.close()
        await table.close()
    assert view.holders == {0: None, 2: "a"}
    assert [*view.shards] == [0, 2]
    [problem] = view.problems
    assert isinstance(problem, SchemaError)


def send_is_possible(address: str) -> bool:
    """Return whether a sender believes that a daemon holds the shard."""
    shard = Shard(0, address)
    with connect(address, shard.schema, autocommit=True) as connection:
        return _Sent(shard, 0.1).is_daemon_active(connection)


async def test_sender_waits_for_no_daemon_whose_lease_is_of_the_future(
    postgres: PostgresServer, postgres_address: str
) -> None:
    lease = Holding(postgres_address, "dead", seconds=10, is_daemon=True)
    await lease.claim()
    before = send_is_possible(postgres_address)
    step_back(postgres, postgres_address)

    assert (before, send_is_possible(postgres_address)) == (True, False)
    await lease.leases.close()


async def test_lease_is_renewed_while_a_transaction_holds_the_epoch(
    postgres: PostgresServer, postgres_address: str, leases: list[Holding]
) -> None:

    await leases[0].claim()
    with psycopg.connect(postgres_address) as connection:
        connection.execute(
            b"SELECT 1 FROM slumberd_0.slumberd_numbers WHERE name = 'epoch' FOR UPDATE"
        )

        assert await leases[0].renew()

"""A daemon holds a database under its own name, notices its loss, and reports to other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.clock import SystemClock
from slumberd.daemon.database_tenure import DatabaseTenure, HostReports
from slumberd.model.errors import DatabaseHeldError, LeaseLostError, StoreError
from slumberd.model.rule import RulesToPublish
from slumberd.storage.postgres.lease import HostTable
from slumberd.storage.postgres.rule_sets import PausedTable, RuleSetTable
from slumberd.storage.postgres.shard_map import Shard
from tests.support.builders import at
from tests.support.fakes import FakeClock
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

Make = Callable[[], DatabaseTenure]
FREE = "UPDATE slumberd_0.lease SET held_until = clock_timestamp() - interval '1 second'"


@pytest.fixture
def database(postgres_address: str) -> str:
    return postgres_address.rpartition("/")[2]


@pytest.fixture
def make(postgres_address: str) -> Make:
    return lambda: tenure_at(postgres_address, seconds=3)


@pytest.fixture
async def tenure(make: Make) -> AsyncIterator[DatabaseTenure]:
    """Return a tenure that a test may lose."""
    made = make()
    yield made
    await made.__aexit__()


def tenure_at(address: str, *, seconds: float, is_daemon: bool = True) -> DatabaseTenure:
    return DatabaseTenure(
        Shard(0, address), address, SystemClock(), seconds=seconds, is_daemon=is_daemon
    )


class Waiting:
    """What a standby was told."""

    def __init__(self) -> None:
        self.holders: list[str] = []
        self.has_looked = asyncio.Event()

    async def on(self, tenure: DatabaseTenure, stop: asyncio.Event) -> bool:
        """Wait for a tenure."""
        return await tenure.wait(stop, self.holders.append, lambda _: self.has_looked.set())


async def test_two_daemons_of_one_process_do_not_hold_one_database(make: Make) -> None:
    async with make() as first:
        with pytest.raises(DatabaseHeldError) as refused:
            await make().__aenter__()

    assert refused.value.holder == first.name
    async with make():
        pass


async def test_daemon_tells_of_itself(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    async with tenure_at(postgres_address, seconds=3600) as tenure:
        names = "SELECT name FROM slumberd.hosts"
        is_told = lambda: postgres.rows(names, database) == [(tenure.name,)]  # noqa: E731

        await asyncio.to_thread(wait_until, is_told)


async def test_command_does_not_tell_of_itself(postgres_address: str) -> None:
    async with tenure_at(postgres_address, seconds=3600, is_daemon=False) as tenure:
        assert tenure._telling is None


@pytest.fixture
async def two_shards(postgres: PostgresServer) -> AsyncIterator[list[DatabaseTenure]]:
    """Hold two shards in one process."""
    with postgres.database(shards=2) as name:
        address, clock = postgres.address_of(name), SystemClock()
        held = [
            DatabaseTenure(
                Shard(number, address), address, clock, seconds=0.3, is_daemon=True, name="one"
            )
            for number in range(2)
        ]
        async with held[0], held[1]:
            yield held


def wait_for_renewal(postgres: PostgresServer, shard: Shard) -> None:
    """Wait until the lease of a shard was renewed twice."""
    database = shard.address.rpartition("/")[2]
    for _ in range(2):
        query = f"SELECT held_until FROM {shard.schema}.lease"
        before = postgres.rows(query, database)
        wait_until(lambda: postgres.rows(query, database) > before)  # noqa: B023 # it ends here


async def test_lost_shard_leaves_the_others_of_its_process(
    two_shards: list[DatabaseTenure], postgres: PostgresServer
) -> None:
    first, second = two_shards
    database = first._shard.address.rpartition("/")[2]
    postgres.run(
        "UPDATE slumberd_0.lease SET holder = 'other', held_until = now() + interval '1 hour'",
        database=database,
    )

    with pytest.raises(LeaseLostError):
        await first.hold(asyncio.Event())

    await asyncio.to_thread(wait_for_renewal, postgres, second._shard)
    assert second._lost is not None
    assert not second._lost.done()


async def test_shard_that_cannot_be_renewed_leaves_the_others_of_its_process(
    two_shards: list[DatabaseTenure], postgres: PostgresServer
) -> None:
    first, second = two_shards
    database = first._shard.address.rpartition("/")[2]
    postgres.run("ALTER TABLE slumberd_0.lease RENAME TO elsewhere", database=database)

    await asyncio.to_thread(wait_for_renewal, postgres, second._shard)

    postgres.run("ALTER TABLE slumberd_0.elsewhere RENAME TO lease", database=database)
    await asyncio.to_thread(wait_for_renewal, postgres, first._shard)


async def test_standby_gets_the_database_when_its_holder_leaves(
    make: Make, tenure: DatabaseTenure
) -> None:
    standby, stop = Waiting(), asyncio.Event()
    async with asyncio.TaskGroup() as group, make() as first:
        waiting = group.create_task(standby.on(tenure, stop))
        await standby.has_looked.wait()

    assert waiting.result()
    assert standby.holders == [first.name]


@pytest.mark.slow
async def test_standby_ends_at_once_while_the_server_does_not_answer(
    own_postgres: OwnServer,
) -> None:
    with own_postgres.database() as name:
        standby, stop = Waiting(), asyncio.Event()
        holder = tenure_at(own_postgres.address_of(name), seconds=3600)
        await holder.__aenter__()
        tenure = tenure_at(own_postgres.address_of(name), seconds=3600)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(standby.on(tenure, stop))
            await standby.has_looked.wait()
            own_postgres.stop(at_once=True)
            stop.set()
        assert not waiting.result()
        await holder.__aexit__()
        own_postgres.start()


@pytest.mark.slow
async def test_standby_goes_on_after_the_server_was_restarted(own_postgres: OwnServer) -> None:
    with own_postgres.database() as name:
        standby, stop = Waiting(), asyncio.Event()
        tenure = tenure_at(own_postgres.address_of(name), seconds=3)
        holder = tenure_at(own_postgres.address_of(name), seconds=3)
        async with asyncio.TaskGroup() as group, holder:
            waiting = group.create_task(standby.on(tenure, stop))
            await standby.has_looked.wait()
            own_postgres.stop(at_once=True)
            standby.has_looked.clear()
            await standby.has_looked.wait()
            own_postgres.start()

        assert waiting.result()
        await tenure.__aexit__()


@pytest.mark.path
async def test_daemon_ends_when_another_one_has_taken_its_database(
    make: Make, tenure: DatabaseTenure, postgres: PostgresServer, database: str
) -> None:
    await tenure.__aenter__()
    postgres.run(
        "UPDATE slumberd_0.lease SET holder = 'other', held_until = now() + interval '1 hour'",
        database=database,
    )

    with pytest.raises(LeaseLostError) as lost:
        await tenure.hold(asyncio.Event())

    assert (lost.value.holder, lost.value.exit_code) == ("other", 75)


async def test_daemon_that_was_late_goes_on_when_nobody_took_its_database(
    tenure: DatabaseTenure, postgres: PostgresServer, database: str
) -> None:
    await tenure.__aenter__()
    stop = asyncio.Event()
    held = "SELECT holder FROM slumberd_0.lease WHERE held_until > clock_timestamp()"
    async with asyncio.TaskGroup() as group:
        group.create_task(tenure.hold(stop))
        postgres.run(FREE, database=database)
        is_held = lambda: postgres.rows(held, database) == [(tenure.name,)]  # noqa: E731
        await asyncio.to_thread(wait_until, is_held)
        stop.set()


@pytest.mark.path
async def test_daemon_that_lost_its_database_pauses_no_rule(
    make: Make, tenure: DatabaseTenure, postgres: PostgresServer, postgres_address: str
) -> None:
    await tenure.__aenter__()
    paused = PausedTable(Shard(0, postgres_address), holder=tenure.name)
    paused.write({"a": "me"})
    postgres.run(
        "UPDATE slumberd_0.lease SET holder = 'other'",
        database=postgres_address.rpartition("/")[2],
    )

    with pytest.raises(LeaseLostError):
        paused.write({})

    assert paused.read() == {"a": "me"}


async def test_daemon_without_a_server_does_not_start(tmp_path: Path) -> None:
    tenure = tenure_at(f"postgresql:///nowhere?host={tmp_path}", seconds=3)

    with pytest.raises(StoreError):
        await tenure.wait(asyncio.Event(), lambda _: None, lambda _: None)

    await tenure.__aexit__()


@pytest.fixture
async def other(postgres_address: str) -> AsyncIterator[HostTable]:
    table = HostTable(postgres_address, "beta/2")
    yield table
    await table.close()


@pytest.fixture
async def table(postgres_address: str) -> AsyncIterator[HostTable]:
    table = HostTable(postgres_address, "alpha/1")
    yield table
    await table.close()


async def test_host_warns_once_of_rules_that_differ_at_two_looks(
    table: HostTable, other: HostTable
) -> None:
    reports = HostReports(table, FakeClock(at(0)))
    reports.describe(lambda: {"rules_hash": "new"})
    logged = []
    for rules_of_other in ("old", "older", "older", "older", "new", "older", "new"):
        await other.tell_host({"rules_hash": rules_of_other})
        with capture_logs() as log:
            await reports.compare_rules()
        logged.append([line["hosts"] for line in log])

    assert logged == [[], [], [["beta/2 has older"]], [], [], [], []]


async def test_host_notices_the_newest_version_whenever_it_tells_of_itself(
    table: HostTable, postgres_address: str
) -> None:
    noticed: list[int] = []
    reports = HostReports(table, FakeClock(at(0)))
    reports.describe(lambda: {"rules_hash": "new"}, noticed.append)

    await reports.tell("active")
    RuleSetTable(postgres_address).publish(RulesToPublish("", {"a.yaml": "one"}, "ann"))
    await reports.tell("active")
    RuleSetTable(postgres_address).publish(RulesToPublish("", {"a.yaml": "two"}, "ann"))
    await reports.tell("standby")

    assert noticed == [0, 1, 2]

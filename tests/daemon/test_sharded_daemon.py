"""Daemons that divide the shards of one PostgreSQL database among them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.builders import at, triple
from tests.support.daemons import Daemon, Home
from tests.support.postgres_server import PostgresServer
from tests.support.shards import put_by_user, shard_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.acceptance

SHARDS = 4
USERS = [f"user{number}" for number in range(24)]


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=SHARDS) as name:
        yield postgres.address_of(name)


def home_on(folder: Path, address: str, **cadence: object) -> Home:
    home = Home(folder, {"store": address, "postgres": {"lease": "3s"}})
    home.rule("all", cadence=cadence or {"every": 1})
    return home


@pytest.fixture
def first(tmp_path: Path, database: str) -> Home:
    return home_on(tmp_path / "first", database)


@pytest.fixture
def second(tmp_path: Path, database: str) -> Home:
    return home_on(tmp_path / "second", database)


def put(address: str, day: int) -> None:
    """Put one episode of each user; it replaces the fact of the day before."""
    asyncio.run(
        put_by_user(
            address,
            [
                triple(f"{user}-{day}", user, "drinks", f"tea {day}", timestamp=at(day), user=user)
                for user in USERS
            ],
        )
    )


def wait_for_facts(postgres: PostgresServer, address: str, day: int) -> None:
    """Wait until each user has the fact of a day, and no other."""
    name = address.rpartition("/")[2]
    each = (
        "SELECT \"user\", convert_from(payload, 'UTF8')::json ->> 'object' "
        f"FROM slumberd_{shard}.facts"
        for (shard,) in postgres.rows("SELECT number FROM slumberd.shards", name)
    )
    every = " UNION ALL ".join(each) + " ORDER BY 1"

    def objects() -> list[tuple[str, str]]:
        return postgres.rows(every, name)

    wait_until(lambda: objects() == [(user, f"tea {day}") for user in sorted(USERS)])


def wait_for_shards(daemon: Daemon, count: int) -> None:
    daemon.wait_for("shards.held", lambda event: len(event["held"]) == count)


def test_one_host_serves_every_shard(first: Home, database: str, postgres: PostgresServer) -> None:
    with first.started(until="shards.held") as daemon:
        put(database, 1)
        wait_for_facts(postgres, database, 1)
        assert daemon.stop() == 0

    assert {event["shard"] for event in daemon.seen if "shard" in event} <= {*range(SHARDS)}


def test_hosts_divide_the_shards_and_take_those_of_a_killed_host(
    first: Home, second: Home, database: str, postgres: PostgresServer
) -> None:
    with first.started(until="shards.held") as one:
        put(database, 1)
        wait_for_facts(postgres, database, 1)
        with second.started(until="shards.held") as other:
            wait_for_shards(one, SHARDS // 2)
            wait_for_shards(other, SHARDS // 2)
            put(database, 2)
            wait_for_facts(postgres, database, 2)

            one.kill()
            wait_for_shards(other, SHARDS)
            put(database, 3)
            wait_for_facts(postgres, database, 3)
            assert other.stop() == 0


@pytest.mark.nightly
def test_stopping_host_leaves_its_shards_at_once(
    first: Home, second: Home, database: str, postgres: PostgresServer
) -> None:
    with first.started(until="shards.held") as one, second.started(until="shards.held") as other:
        wait_for_shards(other, SHARDS // 2)
        assert one.stop() == 0
        wait_for_shards(other, SHARDS)
        put(database, 1)
        wait_for_facts(postgres, database, 1)
        assert other.stop() == 0


@pytest.mark.nightly
def test_suspended_host_loses_its_shards_and_goes_on_with_others(
    first: Home, second: Home, database: str, postgres: PostgresServer
) -> None:
    with first.started(until="shards.held") as one, second.started(until="shards.held") as other:
        wait_for_shards(other, SHARDS // 2)
        one.process.send_signal(signal.SIGSTOP)
        wait_for_shards(other, SHARDS)
        put(database, 1)
        wait_for_facts(postgres, database, 1)
        one.process.send_signal(signal.SIGCONT)
        one.wait_for("lease.lost")
        wait_for_shards(other, SHARDS // 2)
        put(database, 2)
        wait_for_facts(postgres, database, 2)
        assert one.stop() == 0
        assert other.stop() == 0


def test_host_that_first_learns_from_the_epoch_that_it_lost_its_shards_logs_it(
    tmp_path: Path, database: str, postgres: PostgresServer
) -> None:
    home = home_on(tmp_path / "first", database)
    home.configure({"store": database, "postgres": {"lease": "10m"}})  # no renewal in the test
    with home.started(until="shards.held") as daemon:
        for _ in range(SHARDS):
            daemon.wait_for("daemon.ready")
        for shard in range(SHARDS):
            postgres.run(
                f"UPDATE slumberd_{shard}.lease"
                " SET holder = 'b/2', held_until = now() + interval '1 hour'",
                f"UPDATE slumberd_{shard}.slumberd_numbers SET value = value + 1"
                " WHERE name = 'epoch'",
                database=database.rpartition("/")[2],
            )
        put(database, 1)
        lost = [daemon.wait_for("lease.lost") for _ in range(SHARDS)]
        assert daemon.stop() == 0

    assert {event["shard"] for event in lost} == {*range(SHARDS)}


def test_every_counts_in_each_shard(first: Home, database: str, postgres: PostgresServer) -> None:
    counts = Counter(shard_of(user, SHARDS) for user in USERS)
    [(fullest, most)] = counts.most_common(1)
    first.rule("all", cadence={"every": most})
    with first.started(until="shards.held") as daemon:
        put(database, 1)
        begun = daemon.wait_for("firing.completed")
        put(database, 2)
        wait_for_facts(postgres, database, 2)
        assert daemon.stop() == 0
        fired = [event for event in [*daemon.seen, *daemon.remaining()] if is_firing(event)]

    assert [count for count in counts.values() if count == most] == [most]
    assert all(2 * count >= most for count in counts.values())
    assert (begun["shard"], begun["window"]["upto"]) == (fullest, most)
    for shard, count in counts.items():
        windows = [event["window"] for event in fired if event["shard"] == shard]
        ends = [(window["after"], window["upto"]) for window in windows]
        whole = [(0, 2 * count)]
        assert ends == ([(0, most), (most, 2 * most)] if shard == fullest else whole)


def is_firing(event: Mapping[str, object]) -> bool:
    return event["event"] == "firing.completed"

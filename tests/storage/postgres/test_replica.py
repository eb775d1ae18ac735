"""Reads run on a replica of the database, and find whatever was committed before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from slumberd.model.fact import FactPattern
from slumberd.search.searcher import Searcher
from slumberd.storage.postgres import replica
from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.replica import find_position, find_problem
from slumberd.storage.replica_reads import allow_replica_reads
from tests.support.builders import START, rule, triple
from tests.support.daemons import Home
from tests.support.postgres_server import OwnServer
from tests.support.server_pair import ServerPair, running_pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

NAME = "memory"
READS = 50
NOBODY = "postgresql://127.0.0.1:1/memory"
PAUSE, RESUME = "SELECT pg_wal_replay_pause()", "SELECT pg_wal_replay_resume()"
SCANS = """
SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0)::bigint
FROM pg_stat_user_tables
WHERE schemaname LIKE 'slumberd%' AND relname LIKE 'episodes%'
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[ServerPair]:
    with running_pair(is_synchronous=False) as pair:
        yield pair


@pytest.fixture(autouse=True)
def forget_replicas() -> None:
    """Let no replica rest because of an earlier test."""
    replica._states.clear()


@pytest.fixture
def pair(servers: ServerPair) -> ServerPair:
    """Provide a primary and a standby that has replayed a new, empty database."""
    servers.standby.run(RESUME)
    servers.primary.run(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
    servers.create_database(NAME)
    servers.wait_until_replayed()
    return servers


def store_on(pair: ServerPair, *, read_address: str | None = None) -> PostgresMemoryStore:
    read = pair.standby.address_of(NAME) if read_address is None else read_address
    return PostgresMemoryStore(pair.primary.address_of(NAME), read_address=read)


async def put(memory: PostgresMemoryStore, number: int) -> None:
    at = START + timedelta(seconds=number)
    await memory.put_many([triple(f"e{number}", "alice", f"likes {number}", "tea", timestamp=at)])


async def newest(memory: PostgresMemoryStore) -> str:
    with allow_replica_reads():
        return next(iter([one.id for one in await memory.recent("alice", limit=1)]), "")


@pytest.mark.parametrize("pause", [False, True], ids=["replaying", "paused at times"])
async def test_read_and_search_find_each_put_at_once(
    pair: ServerPair, monkeypatch: pytest.MonkeyPatch, *, pause: bool
) -> None:
    monkeypatch.setattr(replica, "WAIT_SECONDS", 0.01 if pause else 10.0)
    monkeypatch.setattr(replica, "REST_SECONDS", 0.0)
    missing: list[int] = []
    async with store_on(pair) as memory:
        searcher = Searcher(memory)
        for number in range(100):
            if pause and number % 25 == 5:
                pair.standby.run(PAUSE)
            if number % 25 == 20:
                pair.standby.run(RESUME)
            await put(memory, number)
            with allow_replica_reads():
                hits = await searcher.search(f"content of e{number}", user="alice", limit=100)
            if await newest(memory) != f"e{number}" or f"e{number}" not in {h.id for h in hits}:
                missing.append(number)

    assert missing == []


async def test_reads_of_marked_calls_run_on_the_replica(
    pair: ServerPair,
) -> None:
    async with store_on(pair) as memory:
        await put(memory, 1)
        await memory.recent("alice", limit=1)  # numbers what was put
    primary, standby = count_scans(pair.primary), count_scans(pair.standby)

    async with store_on(pair) as memory:
        for _ in range(READS):
            assert await newest(memory) == "e1"
    wait_until(lambda: count_scans(pair.standby) >= standby + READS)

    # Less than one for each read: those of the first store, whose count may come late.
    assert count_scans(pair.primary) < primary + READS


async def test_reads_of_other_calls_do_not_run_on_the_replica(pair: ServerPair) -> None:
    async with store_on(pair, read_address=NOBODY) as memory:
        await put(memory, 1)
        with structlog.testing.capture_logs() as logs:
            await memory.recent("alice", limit=1)
            assert logs == []

            assert await newest(memory) == "e1"

    assert [line["event"] for line in logs] == ["replica.left_out"]


def count_scans(server: OwnServer) -> int:
    """Return how often the tables of episodes were read, by connections that have ended."""
    [(count,)] = server.rows(SCANS, NAME)
    return int(count)


async def test_facts_are_read_from_the_replica_as_of_the_last_commit(pair: ServerPair) -> None:
    address = pair.primary.address_of(NAME)
    facts = PostgresFactStore(address, read_address=pair.standby.address_of(NAME))
    async with store_on(pair) as memory, facts:
        await facts.bootstrap()
        counted = []
        for number in range(20):
            await put(memory, number)
            window = await facts.next_window("r1")
            await facts.apply_deltas(await memory.consolidate(rule(), window=window))
            with allow_replica_reads():
                counted.append(len(await facts.query(FactPattern())))

    assert counted == [*range(1, 21)]


async def test_replica_that_is_away_is_reported_once_and_used_again(
    pair: ServerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "UNREACHABLE_SECONDS", 0.0)
    monkeypatch.setattr(replica, "REST_SECONDS", 0.0)
    async with store_on(pair) as memory:
        await put(memory, 1)
        with structlog.testing.capture_logs() as logs:
            found = [await newest(memory)]
            pair.standby.stop()
            found += [await newest(memory) for _ in range(5)]
            pair.standby.start()
            await put(memory, 2)
            found.append(await newest(memory))

    assert found == ["e1"] * 6 + ["e2"]
    assert [line["event"] for line in logs] == ["replica.left_out", "replica.used_again"]


async def test_primary_is_never_taken_for_a_replica(pair: ServerPair) -> None:
    with structlog.testing.capture_logs() as logs:
        async with store_on(pair, read_address=pair.primary.address_of(NAME)) as memory:
            await put(memory, 1)
            found = await newest(memory)

    assert found == "e1"
    assert ["is a primary" in line["message"] for line in logs] == [True]


def test_replica_of_an_earlier_primary_is_not_read(pair: ServerPair) -> None:
    """It may have commits that the new primary lacks, though it lies behind no position of it."""
    with (
        connect(pair.primary.address_of(NAME)) as primary,
        connect(pair.standby.address_of(NAME), read_only=True) as standby,
    ):
        position = find_position(primary)
        later = position._replace(timeline=position.timeline + 1)
        other = position._replace(system=position.system + 1)

        assert "timeline" in find_problem(standby, later)
        assert "no replica" in find_problem(standby, other)
        assert position.timeline == 1


def test_login_of_a_daemon_may_compare_primary_and_replica(pair: ServerPair) -> None:
    login = "a_daemon_that_reads"
    pair.primary.login(login, "slumberd_daemon")
    pair.wait_until_replayed()

    with (
        connect(pair.primary.address_of(NAME, login=login)) as primary,
        connect(pair.standby.address_of(NAME, login=login), read_only=True) as standby,
    ):
        position = find_position(primary)

        assert find_problem(standby, position._replace(end="0/0")) == ""


def test_doctor_reports_a_replica_that_cannot_answer(pair: ServerPair, tmp_path: Path) -> None:
    home = Home(tmp_path, {})
    for read, problem in (
        (pair.standby.address_of(NAME), ""),
        (pair.primary.address_of(NAME), "is a primary"),
        (NOBODY, "the server does not answer"),
    ):
        home.configure({"store": pair.primary.address_of(NAME), "postgres": {"read_address": read}})
        found = json.loads(home.call("doctor", "--json", check=False).stdout)["findings"]
        named = {one["id"]: one["problem"] for one in found}

        assert problem in named.get("database.replica", "")
        assert ("database.replica" in named) == bool(problem)

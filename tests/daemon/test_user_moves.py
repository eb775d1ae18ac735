"""A daemon moves users between the shards of a database, and so does a command without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import ShardMap
from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.daemons import Home
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.acceptance

USERS = [f"user{number}" for number in range(12)]
EVERY = {"every": 1}


@pytest.fixture
def address(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=2) as name:
        yield postgres.address_of(name)


@pytest.fixture
def home(tmp_path: Path, address: str) -> Home:
    home = Home(tmp_path / "home", {"store": address, "postgres": {"lease": "3s"}})
    home.rule("all", cadence=EVERY)
    put(address, "1")
    home.call("--all-shards", "fire", "--all")
    return home


def put(address: str, which: str) -> None:
    """Put an episode of each user into the user's shard."""

    async def run() -> None:
        for number, user in enumerate(USERS):
            async with PostgresMemoryStore(address, shard=shard_of(address, user)) as memory:
                episode = triple(
                    f"{user}-{which}",
                    user,
                    f"drinks {which}",
                    "tea",
                    user=user,
                    timestamp=at(number),
                )
                await memory.put_many([episode])

    asyncio.run(run())


def shard_of(address: str, user: str) -> int:
    shards = ShardMap(address)
    try:
        return shards.find(user).number
    finally:
        shards.close()


def facts_of(home: Home, user: str) -> list[dict[str, Any]]:
    done = home.call("facts", "--user", user, "--json")
    return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda f: f["id"])


def test_command_moves_a_user_while_no_daemon_runs(home: Home, address: str) -> None:
    before, source = facts_of(home, "user3"), shard_of(address, "user3")

    plan = home.call("move", "--user", "user3", "--to", str(1 - source), "--dry-run")
    assert shard_of(address, "user3") == source
    done = home.call("move", "--user", "user3", "--to", str(1 - source))

    assert "would move user3" in plan.stdout
    assert f"moved user3 from shard {source} to shard {1 - source}" in done.stdout
    assert shard_of(address, "user3") == 1 - source
    assert facts_of(home, "user3") == before
    counts = json.loads(home.call("status", "--json").stdout)["shards"]
    assert [shard["pending"] for shard in counts] == [0, 0]
    assert home.call("--all-shards", "audit", "verify").returncode == 0


def test_daemon_moves_a_user_who_can_be_forgotten_then(home: Home, address: str) -> None:
    before, source = facts_of(home, "user5"), shard_of(address, "user5")
    with home.daemon() as daemon:
        daemon.wait_for("daemon.ready")
        home.call("move", "--user", "user5", "--to", str(1 - source))
        moved = daemon.wait_for("move.finished")
        assert facts_of(home, "user5") == before
        put(address, "2")
        wait_until(lambda: len(facts_of(home, "user5")) == len(before) + 1)
        home.call("forget", "--user", "user5", "--yes")
        assert facts_of(home, "user5") == []
        home.call("move", "--user", "user5", "--to", str(source))
        assert daemon.stop() == 0

    assert (moved["source"], moved["target"], moved["episodes"]) == (source, 1 - source, 1)
    assert home.call("--all-shards", "audit", "verify").returncode == 0


def test_move_leaves_no_notes_of_stages_at_the_source(home: Home, address: str) -> None:
    source = shard_of(address, "user3")
    stages = [{"dedup": {"method": "exact"}}]
    home.rule("staged", cadence=EVERY, then_emits=[], stages=stages)

    def noted() -> list[Path]:
        found = []
        for file in home.state.glob(f"stages-{source}.db*"):
            with suppress(FileNotFoundError):  # the daemon closed the database meanwhile
                found += [file] if b"user3" in file.read_bytes() else []
        return found

    with home.daemon() as daemon:
        wait_until(lambda: bool(noted()))
        home.call("move", "--user", "user3", "--to", str(1 - source))
        daemon.wait_for("move.finished")

        assert noted() == []


def test_daemons_move_the_users_of_a_new_shard(home: Home, address: str) -> None:
    before = {user: facts_of(home, user) for user in USERS}

    added = called("postgres", "add-shard", address)
    planned = called("postgres", "balance", address, "--json")
    with home.daemon() as daemon:
        count = sum(each["users"] for each in json.loads(planned.stdout))
        for _ in range(count):
            daemon.wait_for("move.finished")
        assert daemon.stop() == 0

    assert "341 positions of 1024" in added.stdout + added.stderr
    assert count > 0
    assert "no user is planned" in called("postgres", "balance", address).stdout
    assert {shard_of(address, user) for user in USERS} == {0, 1, 2}
    assert {user: facts_of(home, user) for user in USERS} == before
    assert home.call("--all-shards", "audit", "verify").returncode == 0

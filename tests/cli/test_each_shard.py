"""Commands that read a database with several shards read each shard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shards import shard_of
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.acceptance

SHARDS = 3
USERS = [f"user{number}" for number in range(9)]
AGENT = "rag"


@pytest.fixture(scope="module")
def home(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A database in which each user has one fact."""
    with postgres.database(shards=SHARDS) as name:
        address = postgres.address_of(name)
        home = Home(tmp_path_factory.mktemp("home"), {"store": address})
        home.rule("all", cadence={"every": 1})

        async def put() -> None:
            async with PostgresMemoryStore(address) as memory:
                await memory.put_many(
                    [
                        triple(f"{user}-1", user, "drinks", "tea", timestamp=at(1), user=user)
                        for user in USERS
                    ]
                )

        asyncio.run(put())
        home.call("fire", "--all")
        yield home


def of_shard(shard: int) -> list[str]:
    return [user for user in USERS if shard_of(user, AGENT, SHARDS) == shard]


def test_users_of_the_test_lie_in_every_shard() -> None:
    assert all(of_shard(shard) for shard in range(SHARDS))


def test_facts_are_those_of_all_shards(home: Home) -> None:
    assert sorted(fact["payload"]["subject"] for fact in home.facts()) == sorted(USERS)


def test_each_shard_has_a_heading_in_text(home: Home) -> None:
    printed = home.call("facts").stdout

    for shard in range(SHARDS):
        _, _, rest = printed.partition(f"== shard {shard} ==\n")
        part, _, _ = rest.partition("== shard")
        assert all(user in part for user in of_shard(shard))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_option_chooses_one_shard(home: Home, shard: int) -> None:
    printed = home.call("--shard", str(shard), "facts").stdout

    assert "==" not in printed
    assert [user for user in USERS if user in printed] == of_shard(shard)


def test_user_and_agent_are_read_from_their_shard_only(home: Home) -> None:
    printed = home.call("facts", "--user", USERS[0], "--agent", AGENT).stdout

    assert "==" not in printed
    assert USERS[0] in printed


def test_user_of_one_shard_is_no_error_of_the_others(home: Home) -> None:
    assert "tea" in home.call("why", f"{USERS[0]}-1").stdout
    assert "drinks" in home.call("facts", "--user", USERS[0]).stdout


def test_unknown_fact_is_an_error_of_all_shards(home: Home) -> None:
    ended = home.call("why", "nothing", check=False)

    assert ended.returncode == 66
    assert ended.stderr.count("slumberd: ") == 1


def test_ledger_of_each_shard_is_verified(home: Home) -> None:
    printed = home.call("audit", "verify").stdout

    assert printed.count("verified: ") == SHARDS


def test_state_of_each_shard_is_shown(home: Home) -> None:
    assert home.call("status").stdout.count("== shard") == SHARDS


def test_command_that_writes_one_file_needs_a_shard(home: Home) -> None:
    ended = home.call("export", "--kind", "facts", check=False)

    assert ended.returncode == 64
    assert "name one by --shard" in ended.stderr
    exported = home.call("--shard", "1", "export", "--kind", "facts").stdout
    assert [user for user in USERS if f'"{user}"' in exported] == of_shard(1)


def test_shard_that_is_not_there_is_refused(home: Home) -> None:
    ended = home.call("--shard", "3", "facts", check=False)

    assert ended.returncode == 64
    assert "the shards 0 to 2" in ended.stderr


def test_files_have_no_shards(tmp_path: Path) -> None:
    ended = Home(tmp_path).call("--shard", "0", "facts", check=False)

    assert ended.returncode == 64
    assert "--shard is for databases" in ended.stderr

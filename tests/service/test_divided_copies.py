"""`slumberd copy` divides a state directory among the shards of a database."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.episode import Episode
from slumberd.service.pause import PausedFile
from slumberd.storage.ledger.rows import chain_of, fixed_part
from slumberd.storage.postgres.hosts.paused_rules import PausedTable
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shards import shard_of
from tests.service.test_store_transfer import CHANGES, copy, execute, head_of, use_database
from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.daemons import Home
from tests.support.killed_copies import is_killed
from tests.support.moved_stores import (
    PAUSED,
    SETTINGS,
    change,
    full_home,
    keyed_home,
    put,
    write_row,
)
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration

SHARDS = 3
WHY = "they asked us to"
USERS = [f"person{number}" for number in range(12)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Provide a home with a row of every kind in every table, and with many users."""
    home = full_home(tmp_path_factory.mktemp("full") / "home")
    home.slumberd("approve", held_batch(home), "--reason", WHY)
    put(home, [likes(user, 1) for user in USERS])
    late = triple("late", "bob", "likes", "ale", user="bob", timestamp=at(3))
    write_row(home.state / "memory.db", late)  # of a scope that was erased
    home.call("fire", "--all")
    put(home, [likes(user, 2) for user in USERS])
    return home


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Home:
    shutil.copytree(template.folder, tmp_path / "home")
    return Home(tmp_path / "home", SETTINGS)


@pytest.fixture
def address(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=SHARDS) as name:
        yield postgres.address_of(name)


def likes(user: str, day: int) -> Episode:
    return triple(f"{user}-{day}", user, "likes", f"tea {day}", user=user, timestamp=at(50 + day))


def put_into(address: str, episodes: list[Episode]) -> None:
    async def work() -> None:
        async with PostgresMemoryStore(address) as memory:
            await memory.put_many(episodes)

    asyncio.run(work())


def held_batch(home: Home) -> str:
    [held] = re.findall(r"batch (\S+) waits", home.call("fire", "all", check=False).stderr)
    return str(held)


def firings_of(home: Home) -> list[dict[str, Any]]:
    listed = home.call("audit", "ls", "--kind", "firing", "--json", "--limit", "1000").stdout
    return [orjson.loads(line) for line in listed.splitlines()]


def facts_of(home: Home) -> list[tuple[Any, ...]]:
    return sorted((f["id"], f["user"], f["payload"].get("object")) for f in home.facts())


def test_each_user_has_its_rows_in_one_shard(home: Home, address: str) -> None:
    facts, wanted = facts_of(home), home.call("audit", "verify").stdout
    copy(home.state, address)
    printed = copy(home.state, address, "--verify")
    use_database(home, address)

    assert printed.startswith("equal: ")
    assert head_of(printed) == head_of(wanted)
    assert facts_of(home) == facts
    assert home.call("audit", "verify").stdout.count("verified: ") == SHARDS
    assert {each["reason"] for each in firings_of(home)} >= {"", WHY}
    assert [PausedTable(address, shard).read() for shard in range(SHARDS)] == [PAUSED] * SHARDS
    for table, user in (("facts", '"user"'), ("episodes", "split_part(scope_key, '/', 3)")):
        found = execute(address, f"SELECT DISTINCT {user}, shard FROM slumberd.{table}")
        assert {(user, shard_of(user, "rag", SHARDS)) for user, _ in found} == {*found}
        assert {shard for _, shard in found} == {*range(SHARDS)}


def test_content_of_a_user_is_in_no_other_shard(home: Home, address: str) -> None:
    copy(home.state, address)

    rows = execute(
        address,
        "SELECT seq, count(*) FROM slumberd.ledger"
        " WHERE what != 0 AND (payload IS NOT NULL OR fact_id IS NOT NULL) GROUP BY seq",
    )
    assert len(rows) > 40
    assert {count for _, count in rows} == {1}


def test_rules_go_on_where_they_stopped(home: Home, address: str, tmp_path: Path) -> None:
    copy(home.state, address)
    home.call("fire", "--all")
    wanted = facts_of(home)
    use_database(home, address)
    home.call("fire", "--all")

    assert facts_of(home) == wanted
    assert home.call("audit", "verify").stdout.count("verified: ") == SHARDS


def test_batch_that_is_held_is_approved_in_each_shard(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    home = full_home(tmp_path / "home")
    with postgres.database(shards=SHARDS) as name:
        copy(home.state, postgres.address_of(name))
        home.call("approve", held_batch(home))
        home.call("fire", "all")
        wanted = facts_of(home)
        use_database(home, postgres.address_of(name))
        printed = home.call("fire", "all", check=False).stderr
        held = re.findall(r"batch (\S+) waits", printed)
        for batch in held:
            home.call("approve", batch)
        home.call("fire", "all")

        assert held, printed
        assert facts_of(home) == wanted


def test_firing_before_the_copy_is_undone_in_each_shard(home: Home, address: str) -> None:
    run = orjson.loads(home.call("audit", "ls", "--json").stdout.splitlines()[-1])["run"]
    copy(home.state, address)
    home.call("undo", "--run", run)
    wanted = facts_of(home)
    use_database(home, address)
    home.call("undo", "--run", run)

    assert facts_of(home) == wanted
    assert home.call("audit", "verify").stdout.count("verified: ") == SHARDS


def test_erasure_after_the_copy_leaves_nothing(home: Home, address: str) -> None:
    copy(home.state, address)
    use_database(home, address)
    home.call("forget", "--user", "person3", "--yes")

    assert home.call("audit", "verify").stdout.count("verified: ") == SHARDS
    for table in ("ledger", "facts", "episodes"):
        text = str(execute(address, f"SELECT * FROM slumberd.{table}"))
        assert "person4" in text, table
        assert "person3" not in text, table


def test_verify_names_the_table_and_the_row_of_a_difference(tmp_path: Path, address: str) -> None:
    home = full_home(tmp_path / "home")
    copy(home.state, address)

    for table, statement in CHANGES.items():
        execute(address, statement.replace("VALUES (0,", "VALUES (2,"))
        found = orjson.loads(copy(home.state, address, "--verify", "--json", code=1))
        assert table in {difference["table"] for difference in found["differences"]}


def test_row_that_is_missing_from_a_shard_breaks_its_ledger(home: Home, address: str) -> None:
    """The chain is made anew, as a program without a key of the ledger can do it."""
    copy(home.state, address)
    [(seq, previous)] = execute(
        address,
        "SELECT seq, lag FROM (SELECT seq, what, lag(chain) OVER (ORDER BY seq)"
        " FROM slumberd.ledger WHERE shard = 1) AS rows WHERE what != 0 ORDER BY seq DESC LIMIT 1",
    )
    execute(address, f"DELETE FROM slumberd.ledger WHERE shard = 1 AND seq = {seq}")
    seal_after(address, 1, seq, previous)
    use_database(home, address)

    done = home.call("audit", "verify", check=False)

    assert done.returncode == 1
    assert re.search(r"counts (\d+) rows before it, and there are", done.stdout)
    assert "broken: the ledger, shard 1" in copy(home.state, address, "--verify", code=1)


def seal_after(address: str, shard: int, seq: int, previous: bytes) -> None:
    rows = execute(
        address,
        "SELECT seq, delta, firing, version, what, kind, reason, commitment FROM slumberd.ledger"
        f" WHERE shard = {shard} AND seq > {seq} ORDER BY seq",
    )
    for *numbers, reason, commitment in rows:
        previous = chain_of(None, previous, commitment, fixed_part(*numbers), reason.encode())
        execute(
            address,
            f"UPDATE slumberd.ledger SET chain = '\\x{previous.hex()}'"
            f" WHERE shard = {shard} AND seq = {numbers[0]}",
        )


def test_heads_in_logs_are_compared_with_the_ledger_of_their_shard(
    home: Home, address: str, tmp_path: Path
) -> None:
    before = home.call("fire", "--all", "--verbose").stderr
    copy(home.state, address)
    use_database(home, address)
    put_into(address, [likes(user, 3) for user in USERS])
    after = home.call("fire", "--all", "--verbose").stderr
    log = tmp_path / "slumberd.log"

    log.write_text(before + after)
    assert home.call("audit", "verify", "--against", str(log)).stdout.count("2 checkpoints") == 3
    log.write_text(after)
    assert home.call("audit", "verify", "--against", str(log)).stdout.count("1 checkpoint ") == 3
    forged = re.sub(r'("head":")[0-9a-f]{8}', r"\g<1>00000000", before)
    log.write_text(forged + after)
    found = home.call("audit", "verify", "--against", str(log), check=False)
    assert found.returncode == 1
    assert found.stdout.count("is of another ledger than the one that was copied") == 3


def test_broken_ledger_is_not_copied(home: Home, address: str) -> None:
    change(home.state / "facts.db", "UPDATE slumberd_ledger SET version = 9 WHERE seq = 4")

    printed = copy(home.state, address, code=65)

    assert "the ledger is broken, row 4 " in printed
    assert not execute(address, "SELECT 1 FROM slumberd.ledger")


def test_ledger_with_a_key_is_copied_only_with_the_key(tmp_path: Path, address: str) -> None:
    home = keyed_home(tmp_path / "keyed")
    words = ("--config", str(home.config))

    copy(home.state, address, code=78)
    assert not execute(address, "SELECT 1 FROM slumberd.ledger")
    copy(home.state, address, *words)
    copy(home.state, address, "--verify", code=78)
    assert copy(home.state, address, "--verify", *words).startswith("equal: ")


@pytest.mark.path
def test_login_of_the_daemon_may_copy(home: Home, postgres: PostgresServer) -> None:
    with postgres.database(shards=SHARDS) as name:
        postgres.login("divider", "slumberd_daemon")
        address = postgres.address_of(name, login="divider")
        copy(home.state, address)

        assert "equal" in copy(home.state, address, "--verify")


def test_daemon_on_any_shard_is_not_copied_over(home: Home, address: str) -> None:
    execute(
        address,
        "UPDATE slumberd.shards SET holder = 'a/1', held_until = now() + interval '1 hour'"
        " WHERE shard = 2",
    )

    assert "a/1" in copy(home.state, address, code=75)
    assert not execute(address, "SELECT 1 FROM slumberd.episodes")
    assert not execute(address, "SELECT 1 FROM slumberd.shards WHERE holder != 'a/1'")


def test_filled_shard_is_not_copied_over(home: Home, address: str) -> None:
    put_into(address, [likes("person5", 9)])

    assert "has rows" in copy(home.state, address, code=73)
    assert len(execute(address, "SELECT 1 FROM slumberd.episodes")) == 1


@pytest.mark.parametrize("number", [1, 8, 18])
def test_copy_that_is_killed_leaves_nothing(home: Home, address: str, number: int) -> None:
    assert is_killed(home.state, address, into_database=True, event="page", number=number)

    for table in ("episodes", "episode_log", "ledger", "facts", "erasure_key", "episode_ids"):
        assert not execute(address, f"SELECT 1 FROM slumberd.{table}"), table
    execute(address, "UPDATE slumberd.shards SET held_until = '-infinity'")
    copy(home.state, address)
    assert "equal" in copy(home.state, address, "--verify")


@pytest.fixture
def folders(home: Home, address: str, tmp_path: Path) -> list[Path]:
    """Provide a directory for each shard of a divided copy."""
    copy(home.state, address)
    made = []
    for shard in range(SHARDS):
        config = tmp_path / f"shard-{shard}.yaml"
        config.write_text(f"postgres: {{shard: {shard}}}\n")
        made.append(tmp_path / f"shard-{shard}")
        copy(address, made[-1], "--config", str(config))
    return made


def test_each_shard_of_a_copy_is_a_directory_that_replays(
    folders: list[Path], tmp_path: Path
) -> None:
    for folder in folders:
        verified = called("audit", "verify", "--state-dir", str(folder))
        words = (str(tmp_path / f"{folder.name}.db"), "--json", "--state-dir", str(folder))
        replayed = called("audit", "replay", *words)

        assert verified.returncode == 0, verified.stdout
        assert replayed.stdout, replayed.stderr
        assert orjson.loads(replayed.stdout)["differing"] == 0
        assert PausedFile(folder).read() == PAUSED


def test_shard_of_a_copy_is_divided_again(
    folders: list[Path], home: Home, postgres: PostgresServer
) -> None:
    with postgres.database(shards=2) as several, postgres.database() as one:
        for target in (postgres.address_of(several), postgres.address_of(one)):
            copy(folders[2], target)
            assert copy(folders[2], target, "--verify").startswith("equal: ")
            use_database(home, target)
            assert "verified: " in home.call("audit", "verify").stdout

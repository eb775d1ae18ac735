"""`slumberd copy` moves a state directory into a database and back, whole or not at all."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from slumberd.clock import SystemClock
from slumberd.daemon.copies.store_transfer import copy_into_database, copy_into_files
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.daemon.rules import PausedFile
from slumberd.model.episode import Episode
from slumberd.model.errors import MemoryScopeError, RowsNotCopiedError, SourceChangedError
from slumberd.rules.settings import Settings
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.rule_sets import PausedTable
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
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
    rows_of_files,
    schema_of,
    write_row,
)
from tests.support.postgres_server import PostgresServer
from tests.support.scripted_histories import FIRST
from tests.support.shards import put_by_user, shard_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return full_home(tmp_path_factory.mktemp("full") / "home")


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Home:
    shutil.copytree(template.folder, tmp_path / "home")
    return Home(tmp_path / "home", SETTINGS)


@pytest.fixture
def small(tmp_path: Path) -> Home:
    """Provide a home with a few episodes that no rule has read."""
    home = Home(tmp_path / "small", SETTINGS)
    home.rule("all", cadence={"every": 1})
    home.state.mkdir()
    put(home, FIRST[:3])
    return home


def copy(
    source: object, target: object, *words: str, code: int = 0, before: Sequence[str] = ()
) -> str:
    """Copy, check the exit code, and return what was printed."""
    done = called(*before, "copy", "--from", str(source), "--to", str(target), *words)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout + done.stderr


def execute(address: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a database as its superuser; return its rows, if it has rows."""
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def use_database(home: Home, address: str, **settings: Any) -> None:
    home.configure({**SETTINGS, "store": address, **settings})


def head_of(printed: str) -> str:
    [head] = re.findall(r"\b[0-9a-f]{64}\b", printed)
    return str(head)


@pytest.mark.nightly
def test_copy_back_has_every_row_of_every_table(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    copy(home.state, postgres_address)
    copy(postgres_address, tmp_path / "back")

    wanted = rows_of_files(home.state)
    empty = [table for table, rows in wanted.items() if not rows]
    assert empty == ["facts.db: slumberd_external_changes"]
    assert rows_of_files(tmp_path / "back") == wanted
    assert schema_of(tmp_path / "back") == schema_of(home.state)
    assert PausedTable(Shard(0, postgres_address)).read() == PAUSED
    assert PausedFile(tmp_path / "back").read() == PAUSED


def test_ledger_of_a_copy_verifies_with_the_same_head_and_replays(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    log = tmp_path / "slumberd.log"
    log.write_text(home.call("fire", "likes", "--verbose").stderr)
    wanted, facts = home.call("audit", "verify").stdout, home.facts()
    copy(home.state, postgres_address)
    use_database(home, postgres_address)

    found = home.call("audit", "verify", "--against", str(log)).stdout
    replayed = home.call("audit", "replay", str(tmp_path / "replayed.db"), "--json").stdout

    assert head_of(found) == head_of(wanted)
    assert orjson.loads(replayed)["differing"] == 0
    assert home.facts() == facts


@pytest.mark.nightly
def test_rules_go_on_in_the_copy_where_they_stopped(home: Home, postgres_address: str) -> None:
    copy(home.state, postgres_address)
    wanted = continue_(home)
    use_database(home, postgres_address)

    assert continue_(home) == wanted


def continue_(home: Home) -> dict[str, object]:
    """Approve the batch that is held, fire all rules, and return the facts."""
    before = objects_of(home)
    [held] = re.findall(r"batch (\S+) waits", home.call("fire", "all", check=False).stderr)
    home.call("approve", held)
    home.call("fire", "--all")
    assert objects_of(home) != before
    return objects_of(home)


def objects_of(home: Home) -> dict[str, object]:
    return {fact["id"]: fact["payload"]["object"] for fact in home.facts()}


def test_host_puts_into_a_copy_beside_what_was_copied(small: Home, postgres_address: str) -> None:
    copy(small.state, postgres_address)
    edited = triple("e1", "alice", "lives_in", "Faro", timestamp=at(1))

    async def put_there() -> None:
        async with PostgresMemoryStore(postgres_address) as memory:
            await memory.put_many([triple("new", "alice", "likes", "rice"), edited, FIRST[1]])
            with pytest.raises(MemoryScopeError):
                await memory.put_many([triple("e2", "x", "is", "y", user="mallory")])

    asyncio.run(put_there())

    ids = execute(postgres_address, "SELECT id FROM slumberd_0.episodes ORDER BY rid")
    assert ids == [("e1",), ("e2",), ("e3",), ("new",)]
    copied = execute(postgres_address, "SELECT eid FROM slumberd_0.inbox ORDER BY n")
    assert copied == [("new",), ("e1",)]


@pytest.mark.path
def test_copy_of_a_database_logs_what_was_put_last(postgres_address: str, tmp_path: Path) -> None:
    async def put_there() -> None:
        async with PostgresMemoryStore(postgres_address) as memory:
            await memory.put_many(FIRST[:2])

    asyncio.run(put_there())
    assert execute(postgres_address, "SELECT count(*) FROM slumberd_0.inbox") == [(2,)]

    copy(postgres_address, tmp_path / "state")

    log = rows_of_files(tmp_path / "state")["memory.db: slumberd_episode_log"]
    assert [(seq, eid) for seq, _, eid in log] == [(1, b"e1"), (2, b"e2")]
    assert "equal" in copy(tmp_path / "state", postgres_address, "--verify")


def test_copy_into_a_directory_keeps_its_configuration_and_rules(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    copy(home.state, postgres_address)
    folder = tmp_path / "new"
    make_state_directory(folder)

    copy(postgres_address, folder, "--config", str(folder / "slumberd.yaml"))

    names = {path.name for path in folder.iterdir()}
    assert names == {"slumberd.yaml", "rules.d", "memory.db", "facts.db", "paused.json"}
    for path in folder.glob("*.db"):
        assert path.stat().st_mode & 0o777 == (home.state / path.name).stat().st_mode & 0o777


# Comparisons


def test_verify_says_that_both_are_equal_with_the_head(home: Home, postgres_address: str) -> None:
    copy(home.state, postgres_address)

    for ends in ((home.state, postgres_address), (postgres_address, home.state)):
        printed = copy(*ends, "--verify")

        assert printed.startswith("equal: ")
        assert head_of(printed) == head_of(home.call("audit", "verify").stdout)


CHANGES = {
    "episodes": "UPDATE slumberd_0.episodes SET content = '{}' WHERE id = 'e1'",
    "episode_log": "UPDATE slumberd_0.slumberd_episode_log SET eid = 'x' WHERE seq = 2",
    "episode_deletions": (
        "UPDATE slumberd_0.slumberd_episode_deletions SET rid = 99 WHERE number = 2"
    ),
    "accesses": "UPDATE slumberd_0.slumberd_accesses SET count = count + 1",
    "extractions": "UPDATE slumberd_0.slumberd_extractions SET dropped = 9",
    "model_summaries": "UPDATE slumberd_0.slumberd_model_summaries SET text = 'x'",
    "model_requests": "UPDATE slumberd_0.slumberd_model_requests SET key = 'x'",
    "model_usage": "DELETE FROM slumberd_0.slumberd_model_usage",
    "ledger": "UPDATE slumberd_0.slumberd_ledger SET commitment = '\\x00' WHERE seq = 3",
    "firings": "UPDATE slumberd_0.slumberd_firings SET at = at + 1 WHERE n = 1",
    "facts": "DELETE FROM slumberd_0.facts WHERE fact_id = 'p1'",
    "keys": "UPDATE slumberd_0.slumberd_keys SET winner_rank = 7",
    "claim_references": "INSERT INTO slumberd_0.slumberd_references VALUES ('a', 'b')",
    "watermark": "UPDATE slumberd_0.slumberd_watermark SET seq = seq - 1 WHERE rule = 'all'",
    "successes": "UPDATE slumberd_0.slumberd_successes SET at = at - 1 WHERE rule = 'all'",
    "quarantine": "UPDATE slumberd_0.slumberd_quarantine SET seq = 1",
    "channels": "UPDATE slumberd_0.slumberd_channels SET multi_valued = '\\x00' WHERE seq = 1",
    "generations": "UPDATE slumberd_0.slumberd_generations SET after = 8",
    "held_batches": "UPDATE slumberd_0.slumberd_held_batches SET approved = 1",
    "unfinished_erasures": "DELETE FROM slumberd_0.slumberd_unfinished_erasures",
    "numbers": "UPDATE slumberd_0.slumberd_numbers SET value = value + 1 WHERE name = 'logged'",
    "erased_scopes": "UPDATE slumberd_0.slumberd_erased_scopes SET moment = moment + 1",
}


@pytest.mark.nightly
def test_verify_names_the_table_and_the_row_of_a_difference(
    home: Home, postgres_address: str
) -> None:
    copy(home.state, postgres_address)

    for table, statement in CHANGES.items():
        with psycopg.connect(postgres_address) as connection:
            changed = connection.execute(statement.encode()).rowcount
            assert changed > 0, table
        printed = copy(home.state, postgres_address, "--verify", "--json", code=1)

        found = orjson.loads(printed)
        assert table in {difference["table"] for difference in found["differences"]}


@pytest.mark.path
def test_verify_reports_rows_that_only_one_of_both_has(home: Home, postgres_address: str) -> None:
    copy(home.state, postgres_address)
    change(home.state / "facts.db", "DELETE FROM slumberd_successes WHERE rule = 'all'")
    execute(postgres_address, "DELETE FROM slumberd_0.slumberd_successes WHERE rule = 'likes'")

    printed = copy(home.state, postgres_address, "--verify", code=1)

    assert "different: successes, 2 rows; row 'all' is only in the database" in printed


def test_verify_reports_a_ledger_that_is_broken_in_both(home: Home, postgres_address: str) -> None:
    change(home.state / "facts.db", "UPDATE slumberd_ledger SET version = 9 WHERE seq = 4")
    copy(home.state, postgres_address)

    printed = copy(home.state, postgres_address, "--verify", code=1)

    assert "broken: the ledger, row 4" in printed
    assert "different" not in printed


# The key of the ledger


@pytest.fixture
def keyed(tmp_path: Path) -> Home:
    return keyed_home(tmp_path / "keyed")


def test_keyed_ledger_is_copied_without_its_key_and_verified_with_it(
    keyed: Home, postgres_address: str
) -> None:
    copy(keyed.state, postgres_address)

    without = copy(keyed.state, postgres_address, "--verify")
    verified = copy(keyed.state, postgres_address, "--verify", "--config", str(keyed.config))

    assert "the chain was not verified" in without
    assert without.splitlines()[0].startswith("equal: ")
    assert head_of(verified) == head_of(keyed.call("audit", "verify").stdout)


def test_copy_needs_the_key_to_record_what_other_programs_changed(
    keyed: Home, postgres_address: str
) -> None:
    change(keyed.state / "facts.db", "DELETE FROM facts WHERE fact_id = 'e2'")

    copy(keyed.state, postgres_address, code=78)
    copy(keyed.state, postgres_address, "--config", str(keyed.config))

    rows = execute(postgres_address, "SELECT 1 FROM slumberd_0.facts WHERE fact_id = 'e2'")
    assert not rows
    assert "equal" in copy(keyed.state, postgres_address, "--verify", "--config", str(keyed.config))


# Rows of other programs


def recent_of(home: Home, user: str) -> list[Any]:
    printed = home.call("recent", user, "--json").stdout
    return [orjson.loads(line) for line in printed.splitlines()]


def test_rows_of_other_programs_are_converted_by_their_meaning(
    small: Home, postgres_address: str
) -> None:
    memory = small.state / "memory.db"
    write_row(
        memory,
        triple("s1", "dora", "owns", "figs", user="dora"),
        scope_key="/user/anon/session/default/agent/default/",
    )
    write_row(
        memory,
        triple("s2", "dora", "likes", "dates", user="dora"),
        timestamp="2026-03-02T01:30:00+05:30",
    )
    slashed = triple("s3", "dora", "likes", "plums", user="do/ra")
    write_row(memory, slashed, scope_key="/user/do/ra/session/s1/agent/rag/")
    wanted = {user: recent_of(small, user) for user in ("dora", "do/ra", "alice")}

    printed = copy(small.state, postgres_address)

    assert "3 episodes of other programs" in printed
    assert "equal" in copy(small.state, postgres_address, "--verify")
    use_database(small, postgres_address)
    assert {user: recent_of(small, user) for user in wanted} == wanted
    small.call("fire", "--all")
    assert {fact["id"] for fact in small.facts()} >= {"s1", "s2", "s3"}


def test_reads_of_a_converted_episode_are_copied(small: Home, postgres_address: str) -> None:
    memory = small.state / "memory.db"
    placeholder = "/user/anon/session/default/agent/default/"
    write_row(memory, triple("s1", "dora", "likes", "figs", user="dora"), scope_key=placeholder)
    insert = "INSERT INTO slumberd_accesses VALUES (?, ?, 3, 4, 0)"
    change(memory, insert, values=["s1", placeholder])
    change(memory, insert, values=["e1", "/user/another/session/s1/agent/rag/"])

    copy(small.state, postgres_address)

    keys = dict(
        execute(postgres_address, "SELECT eid, scope_key FROM slumberd_0.slumberd_accesses")
    )
    [[key]] = execute(postgres_address, "SELECT scope_key FROM slumberd_0.episodes WHERE id = 's1'")
    assert key.startswith("/user/dora/")
    assert keys == {"s1": key, "e1": "/user/another/session/s1/agent/rag/"}


def test_unreadable_row_stays_in_quarantine(small: Home, postgres_address: str) -> None:
    write_row(small.state / "memory.db", triple("bad", "x", "is", "y"), content=b"{not JSON")
    copy(small.state, postgres_address)
    use_database(small, postgres_address)

    small.call("fire", "--all")

    [entry] = small.call("quarantine", "ls", "--json").stdout.splitlines()
    assert orjson.loads(entry)["episode_id"] == "bad"


def test_rows_that_no_database_can_hold_are_named_and_nothing_is_copied(
    small: Home, postgres_address: str
) -> None:
    memory = small.state / "memory.db"
    for bad in ("a\0b", b"\xff\xfe", "x" * 1001):
        write_row(memory, triple("e", "x", "is", "y"), id=bad)

    printed = copy(small.state, postgres_address, code=65)

    assert "3 of the rows of episodes" in printed
    assert "'a\\\\x00b' (row 4)" in printed
    assert not execute(postgres_address, "SELECT 1 FROM slumberd_0.episodes")


@pytest.mark.path
def test_nul_of_a_text_for_people_is_copied_as_two_characters(
    small: Home, postgres_address: str
) -> None:
    insert = "INSERT INTO slumberd_extractions VALUES ('k', 'e1', 'm', 'ok', '[]', 0, '', ?, 1, 1)"
    change(small.state / "memory.db", insert, values=["an\0swer"])

    copy(small.state, postgres_address)

    assert execute(postgres_address, "SELECT answer FROM slumberd_0.slumberd_extractions") == [
        ("an\\0swer",)
    ]
    assert "equal" in copy(small.state, postgres_address, "--verify")


@pytest.mark.path
def test_nul_elsewhere_is_refused_with_its_row(small: Home, postgres_address: str) -> None:
    small.call("fire", "--all")
    change(small.state / "facts.db", "INSERT INTO slumberd_successes VALUES (?, 1)", values=["a\0"])

    printed = copy(small.state, postgres_address, code=65)

    assert "1 of the rows of successes" in printed
    assert "('a\\x00',)" in printed


def test_reference_to_an_id_with_nul_is_left_out(small: Home, postgres_address: str) -> None:
    small.call("fire", "--all")
    change(small.state / "facts.db", "INSERT INTO slumberd_references VALUES (?, 'e1')",
           values=["a\0"])  # fmt: skip

    copy(small.state, postgres_address)

    assert "equal" in copy(small.state, postgres_address, "--verify")


def test_log_row_without_a_usable_id_names_no_episode(small: Home, postgres_address: str) -> None:
    change(
        small.state / "memory.db",
        "INSERT INTO slumberd_episode_log (rid, eid) VALUES (9, NULL), (9, x'FF'), (9, ?)",
        values=["a\0b"],
    )

    copy(small.state, postgres_address)

    found = execute(
        postgres_address, "SELECT rid, eid FROM slumberd_0.slumberd_episode_log WHERE seq > 3"
    )
    assert found == [(None, "")] * 3


def test_facts_that_other_programs_changed_are_recorded_first(
    home: Home, postgres_address: str
) -> None:
    change(home.state / "facts.db", "DELETE FROM facts WHERE fact_id = 'p1'")
    copy(home.state, postgres_address)
    use_database(home, postgres_address)

    printed = home.call("audit", "verify").stdout

    assert head_of(printed)
    assert "p1" not in {fact["id"] for fact in home.facts()}


@pytest.mark.path
@pytest.mark.parametrize("payload", [b"not JSON", b"[]"], ids=["no JSON", "no object"])
def test_unreadable_fact_is_named(home: Home, postgres_address: str, payload: bytes) -> None:
    change(home.state / "facts.db", "UPDATE facts SET payload = ? WHERE fact_id = 'p1'",
           values=[payload])  # fmt: skip

    printed = copy(home.state, postgres_address, code=65)

    assert "1 of the rows of facts" in printed
    assert "'p1'" in printed


def test_older_directory_without_facts_or_log_is_completed_first(
    tmp_path: Path, postgres_address: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    change(
        state / "memory.db",
        "CREATE TABLE episodes (id TEXT PRIMARY KEY, scope_key TEXT NOT NULL,"
        " content BLOB NOT NULL, timestamp TEXT NOT NULL, metadata BLOB NOT NULL)",
    )
    write_row(state / "memory.db", triple("s1", "x", "is", "y"))

    copy(state, postgres_address)

    assert execute(postgres_address, "SELECT seq, eid FROM slumberd_0.slumberd_episode_log") == [
        (1, "s1")
    ]


def test_erasure_is_remembered_in_the_copy_and_on_the_way_back(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    copy(home.state, postgres_address)
    old = triple("b1", "bob", "likes", "figs", timestamp=at(8), user="bob")

    async def put_old() -> int:
        async with PostgresMemoryStore(postgres_address) as memory:
            await memory.put_many([old])
        return 0

    with pytest.raises(Exception, match="not newer than the erasure"):
        asyncio.run(put_old())
    copy(postgres_address, tmp_path / "back")
    with pytest.raises(Exception, match="not newer than the erasure"):
        asyncio.run(_put_into_file(tmp_path / "back" / "memory.db", old))


async def _put_into_file(path: Path, episode: Episode) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await memory.put_many([episode])


def test_columns_that_programs_added_are_named(
    small: Home, postgres_address: str, tmp_path: Path
) -> None:
    change(small.state / "memory.db", "ALTER TABLE episodes ADD COLUMN colour TEXT")

    assert "not copied: the columns episodes.colour" in copy(small.state, postgres_address)
    execute(postgres_address, "ALTER TABLE slumberd_0.facts ADD COLUMN size bigint")
    assert "not copied: the columns facts.size," in copy(postgres_address, tmp_path / "back")


# What is refused


def test_filled_target_is_refused_and_stays_as_it_is(
    home: Home, small: Home, postgres_address: str
) -> None:
    copy(home.state, postgres_address)

    assert "has rows" in copy(small.state, postgres_address, code=73)
    assert "name a directory without stores" in copy(postgres_address, small.state, code=73)
    assert "equal" in copy(home.state, postgres_address, "--verify")
    assert len(rows_of_files_of_memory(small)) == 3


def rows_of_files_of_memory(home: Home) -> list[Any]:
    async def read() -> list[Any]:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            return await memory.recent("alice", limit=9)

    return asyncio.run(read())


def test_running_daemon_is_not_copied(small: Home, postgres_address: str, tmp_path: Path) -> None:
    with small.daemon():
        assert "is in use" in copy(small.state, postgres_address, code=75)

    copy(small.state, postgres_address)
    use_database(small, postgres_address)
    with small.daemon():
        assert "is held" in copy(postgres_address, tmp_path / "back", code=75)
    copy(postgres_address, tmp_path / "back")


def test_episode_that_is_put_during_a_copy_stops_it(small: Home, postgres_address: str) -> None:
    settings, clock = Settings(state_dir=small.state, rules_dir=small.rules), SystemClock()
    late = iter([triple("late", "alice", "likes", "rice")])

    def put_one(*_: object) -> None:
        for episode in late:
            write_row(small.state / "memory.db", episode)

    with pytest.raises(SourceChangedError, match="1 new versions"):
        asyncio.run(copy_into_database(small.state, postgres_address, settings, clock, put_one))
    assert not execute(postgres_address, "SELECT 1 FROM slumberd_0.episodes")
    copy(small.state, postgres_address)


def test_episode_that_is_put_into_a_database_during_a_copy_stops_it(
    small: Home, postgres_address: str, tmp_path: Path
) -> None:
    copy(small.state, postgres_address)
    settings, clock = Settings(state_dir=tmp_path, rules_dir=tmp_path), SystemClock()
    back = tmp_path / "back"
    statement = (
        "SELECT slumberd_0.put(ARRAY['late'], ARRAY['/user/u/session/s/agent/a/'],"
        " ARRAY['{}'::bytea], ARRAY['2026-01-01T00:00:00+00:00'], ARRAY['{}'::bytea])"
    )
    late = iter([statement])

    def put_one(*_: object) -> None:
        for one in late:
            execute(postgres_address, one)

    with pytest.raises(SourceChangedError, match="1 new versions"):
        asyncio.run(copy_into_files(postgres_address, back, settings, clock, put_one))
    assert [*back.iterdir()] == []
    copy(postgres_address, back)


def test_files_of_two_state_directories_are_refused(
    home: Home, postgres_address: str, tmp_path: Path
) -> None:
    change(home.state / "facts.db", "UPDATE slumberd_erasure_key SET key = x'00'")

    assert "another key of erased scopes" in copy(home.state, postgres_address, code=74)
    assert not execute(postgres_address, "SELECT 1 FROM slumberd_0.episodes")


@pytest.mark.nightly
def test_each_shard_of_several_is_copied_into_a_directory_of_its_own(
    small: Home, postgres: PostgresServer, tmp_path: Path
) -> None:
    episodes = [triple(f"u{n}", f"u{n}", "likes", "tea", user=f"u{n}") for n in range(12)]
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        asyncio.run(put_by_user(address, episodes))
        use_database(small, address)
        small.call("--all-shards", "fire", "--all")
        PausedTable(Shard(2, address)).write(PAUSED)
        found: list[str] = []
        for shard in range(3):
            folder, config = tmp_path / f"shard-{shard}", tmp_path / f"shard-{shard}.yaml"
            config.write_text(f"postgres: {{shard: {shard}}}\n")
            words = ("--config", str(config))
            copy(address, folder, *words)

            assert "equal" in copy(folder, address, "--verify", *words)
            verified = called("audit", "verify", "--state-dir", str(folder))
            assert verified.returncode == 0, verified.stderr
            rows = rows_of_files(folder)
            facts = {row[0].decode() for row in rows["facts.db: facts"]}
            assert facts == {row[1].decode() for row in rows["memory.db: episodes"]} != set()
            assert PausedFile(folder).read() == (PAUSED if shard == 2 else {})
            found += facts

        assert sorted(found) == sorted(each.id for each in episodes)


def test_shard_in_a_directory_is_copied_into_a_database_with_one_shard(
    small: Home, postgres: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    folder, config = tmp_path / "shard-1", tmp_path / "shard-1.yaml"
    config.write_text("postgres: {shard: 1}\n")
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        episodes = [triple(f"u{n}", f"u{n}", "likes", "tea", user=f"u{n}") for n in range(12)]
        asyncio.run(put_by_user(address, episodes))
        use_database(small, address)
        small.call("--shard", "1", "fire", "--all")
        copy(address, folder, "--config", str(config))

    copy(folder, postgres_address)

    assert "equal" in copy(folder, postgres_address, "--verify")


def test_directory_is_copied_into_one_shard_of_several(
    small: Home, postgres: PostgresServer, tmp_path: Path
) -> None:
    users = [user for user in (f"u{n}" for n in range(12)) if shard_of(user, 3) == 1]
    lines = [triple(f"e-{user}", user, "likes", "tea", user=user) for user in users]
    home = Home(tmp_path / "users")
    home.rule("all", cadence={"every": 1})
    home.folder.joinpath("put.jsonl").write_text(
        "".join(line.model_dump_json() + "\n" for line in lines)
    )
    home.call("import", home.folder / "put.jsonl")
    home.call("fire", "--all")
    with postgres.database(shards=3) as name:
        address = postgres.address_of(name)
        unnamed = copy(home.state, address, code=64)
        foreign = copy(home.state, address, before=("--shard", "2"), code=64)
        copy(home.state, address, before=("--shard", "1"))
        again = copy(home.state, address, before=("--shard", "1"), code=73)
        equal = copy(home.state, address, "--verify", before=("--shard", "1"))
        counts = [
            execute(address, f"SELECT count(*) FROM slumberd_{shard}.facts") for shard in range(3)
        ]

    assert "has the shards 0, 1, 2: name one, as --shard 0" in unnamed
    assert "belongs to shard 1, and not to shard 2" in foreign
    assert "has rows" in again
    assert equal.startswith("equal")
    assert counts == [[(0,)], [(len(users),)], [(0,)]]


def test_shard_that_a_database_lacks_is_refused(postgres_address: str, tmp_path: Path) -> None:
    config = tmp_path / "slumberd.yaml"
    config.write_text("postgres: {shard: 1}\n")

    printed = copy(postgres_address, tmp_path / "new", "--config", str(config), code=64)

    assert "no shard 1" in printed
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "ends",
    [("a", "b"), ("postgresql:///a", "postgres:///b")],
    ids=["two directories", "two databases"],
)
def test_copy_needs_a_directory_and_a_database(ends: tuple[str, str]) -> None:
    assert "one state directory and one database" in copy(*ends, code=64)


def test_missing_source_is_reported(tmp_path: Path, postgres_address: str) -> None:
    assert "a state directory with episodes" in copy(tmp_path / "x", postgres_address, code=66)
    assert not (tmp_path / "x").exists()


def test_login_of_the_daemon_may_copy(home: Home, postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database() as name:
        postgres.login("mover", "slumberd_daemon")
        address = postgres.address_of(name, login="mover")
        copy(home.state, address)
        copy(address, tmp_path / "back")

    assert rows_of_files(tmp_path / "back") == rows_of_files(home.state)


# Kills


FILLED = (
    "episodes",
    "facts",
    "slumberd_episode_log",
    "slumberd_erased_scopes",
    "slumberd_erasure_key",
    "slumberd_ledger",
)
PAGES = (1, 2, 7, 8, 12, 18)


@pytest.mark.parametrize("number", PAGES)
def test_copy_into_a_database_that_is_killed_leaves_nothing(
    home: Home, postgres_address: str, number: int
) -> None:
    where = (home.state, postgres_address)
    assert is_killed(*where, into_database=True, event="page", number=number)

    for table in FILLED:
        assert not execute(postgres_address, f"SELECT 1 FROM slumberd_0.{table}"), table
    free_lease(postgres_address)
    copy(home.state, postgres_address)
    assert "equal" in copy(home.state, postgres_address, "--verify")


@pytest.mark.nightly
@pytest.mark.parametrize("event", ["page", "os.rename", "os.link", "os.remove", "sqlite3.connect"])
def test_copy_into_files_that_is_killed_anywhere_leaves_all_or_nothing(
    home: Home, postgres_address: str, tmp_path: Path, event: str
) -> None:
    copy(home.state, postgres_address)
    number, killed = 0, True

    while killed:
        number += 1
        back = tmp_path / f"back{number}"
        free_lease(postgres_address)
        killed = is_killed(back, postgres_address, into_database=False, event=event, number=number)
        free_lease(postgres_address)
        if (back / "restore.json").exists():
            # A daemon that starts now finishes the exchange, as any command that takes the lock.
            assert "exists already" in copy(postgres_address, back, code=73)
        elif not (back / "memory.db").exists():
            assert not (back / "facts.db").exists()
            copy(postgres_address, back)
        assert rows_of_files(back) == rows_of_files(home.state)
        left = {path.name for path in back.iterdir()} - {"slumberd.pid"}
        assert left == {"memory.db", "facts.db", "paused.json"}

    assert number > 1


def free_lease(address: str) -> None:
    """End the lease of a process that was killed, as time does."""
    execute(address, "UPDATE slumberd_0.lease SET held_until = '-infinity'")


def test_rows_not_copied_error_counts_what_it_does_not_name() -> None:
    assert "'a' and 4 more" in str(RowsNotCopiedError("memory.db", "episodes", ["'a'"], 5))

"""Copies between files and a database hold the same rows, and the same ledger."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from slumberd.model.fact import FactPattern
from slumberd.model.scope import ScopeFilter
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, episode, rule, triple
from tests.support.cli_runner import called
from tests.support.example_ledgers import write_ledger_of_every_kind
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


async def write_files(folder: Path) -> None:
    """Write a state directory with a ledger row of every kind, and an erased scope."""
    folder.mkdir()
    async with SQLiteMemoryStore(folder / "memory.db") as memory:
        await memory.put_many(
            [
                episode("m1"),
                triple("m2", "alice", "likes", "tea\0leaf"),
                episode("m3", user="a/b%c"),
                episode("m4", user="anon", session="default", agent="default"),
            ]
        )
        await memory.put(episode("m1", content="edited"), user="alice", session="s1", agent="rag")
        await memory.recent("alice", limit=2)
    await write_ledger_of_every_kind(folder / "facts.db")
    async with SQLiteFactStore(folder / "facts.db", synchronous="normal") as facts:
        await facts.erasures.forget(
            ScopeFilter("bob", None, None), moment=2**51, at=START, by="p", dry_run=False
        )


async def call(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which has an event loop of its own."""
    return await asyncio.to_thread(called, *words)


async def heads(*states: Path) -> set[str]:
    """Return what ``audit verify`` prints about some state directories."""
    verified = [await call("audit", "verify", "--state-dir", str(state)) for state in states]
    return {each.stdout for each in verified}


async def test_copy_and_its_copy_hold_the_rows_of_the_files(
    postgres_address: str, tmp_path: Path
) -> None:
    files, back = tmp_path / "files", tmp_path / "back"
    await write_files(files)

    there = await call("copy", "--from", str(files), "--to", postgres_address)
    compared = await call("copy", "--from", str(files), "--to", postgres_address, "--verify")
    again = await call("copy", "--from", postgres_address, "--to", str(back))

    assert there.returncode == 0, there.stderr
    assert compared.returncode == 0
    assert compared.stdout.startswith("equal: 4 episodes, ")
    assert again.returncode == 0, again.stderr
    assert len(await heads(files, back)) == 1
    assert dump(files / "facts.db") == dump(back / "facts.db")
    # A database has one table of erased scopes; both of its files get it.
    erased = ("slumberd_erasure_key", "slumberd_erased_scopes")
    memory = dump(back / "memory.db")
    assert dump(files / "memory.db") | {name: memory[name] for name in erased} == memory


def dump(path: Path) -> dict[str, list[object]]:
    """Return the rows of every table of a file."""
    with closing(sqlite3.connect(path)) as file:
        names = file.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            " AND name NOT IN ('slumberd_external_changes', '_migrations')"
        ).fetchall()
        return {
            name: sorted(file.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for (name,) in names
        }


async def test_database_goes_on_where_the_files_ended(
    postgres_address: str, tmp_path: Path
) -> None:
    await write_files(tmp_path / "files")
    await call("copy", "--from", str(tmp_path / "files"), "--to", postgres_address)
    later = triple("later", "alice", "likes", "coffee")

    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        await memory.put_many([later])
        new = rule("new")
        window = await facts.next_window(new.id)
        await facts.apply_deltas(await memory.consolidate(new, window=window))
        found = await facts.query(FactPattern(subject="alice", predicate="likes"))
        _, _, broken = await facts.verify()

    assert "later" in [fact.id for fact in found]
    assert broken is None


async def test_difference_is_found(
    postgres: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    await write_files(tmp_path / "files")
    await call("copy", "--from", str(tmp_path / "files"), "--to", postgres_address)
    postgres.run(
        "UPDATE slumberd_0.slumberd_ledger SET commitment = chain WHERE seq = 2",
        database=postgres_address.rpartition("/")[2],
    )

    compared = await call(
        "copy", "--from", str(tmp_path / "files"), "--to", postgres_address, "--verify"
    )

    assert compared.returncode == 1
    assert "different: ledger, 1 row; row 2 is different" in compared.stdout


async def test_filled_target_is_refused(postgres_address: str, tmp_path: Path) -> None:
    await write_files(tmp_path / "files")
    async with PostgresMemoryStore(postgres_address) as memory:
        await memory.put_many([episode("mine")])

    into_database = await call("copy", "--from", str(tmp_path / "files"), "--to", postgres_address)
    into_files = await call("copy", "--from", postgres_address, "--to", str(tmp_path / "files"))
    neither = await call("copy", "--from", str(tmp_path), "--to", str(tmp_path))

    assert [done.returncode for done in (into_database, into_files, neither)] == [73, 73, 64]


async def test_recent_reads_past_unreadable_rows_as_in_files(
    postgres_address: str, tmp_path: Path
) -> None:
    """A row in another spelling is written as `put` writes it; one that says nothing stays."""
    files = tmp_path / "files"
    await write_files(files)
    own = b'{"content":"hi","source_node":"n","agent":"rag","user":"carol","session":"s"}'
    theirs = own.replace(b"carol", b"dan")
    key, noon = "/user/carol/session/s/agent/rag/", "2026-01-02T12:00:00+00:00"
    rows = [
        ("placed", "/user/anon/session/default/agent/default/", own, "2026-01-02", b"{}"),
        ("yesterday", key, own, "yesterday", b"{}"),
        ("0", key, own, "0", b"{}"),
        ("mismatch", key, theirs, noon, b"{}"),
        ("torn", key, own[:-1], noon, b"{}"),
        ("no object", key, own, noon, b"[]"),
        ("no scope", "/", b"{}", noon, b"{}"),
        *(
            (f"c{hour}", key, own, f"2026-01-01T{hour}:00:00+00:00", b"{}")
            for hour in range(10, 20)
        ),
    ]
    with closing(sqlite3.connect(files / "memory.db")) as file:
        file.executemany("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", rows)
        file.commit()

    copied = await call("copy", "--from", str(files), "--to", postgres_address)

    assert copied.returncode == 0, copied.stderr
    async with (
        SQLiteMemoryStore(files / "memory.db") as ours,
        PostgresMemoryStore(postgres_address) as copy,
    ):
        for user in ("carol", "dan", "anon"):
            for session, agent in ((None, None), ("s", None), (None, "rag"), ("s", "rag")):
                for limit in (1, 2, 5, 50):
                    wanted = await ours.recent(user, session=session, agent=agent, limit=limit)
                    found = await copy.recent(user, session=session, agent=agent, limit=limit)
                    assert found == wanted
        assert len(await copy.recent("carol", limit=50)) == 11


@pytest.mark.nightly
def test_copy_that_is_killed_leaves_nothing(
    postgres: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    """The process is killed while its transaction is open; then a new copy is whole."""
    files, database = tmp_path / "files", postgres_address.rpartition("/")[2]
    asyncio.run(write_files(files))
    command = [sys.executable, "-m", "slumberd", "copy", "--from", str(files), "--to"]

    with psycopg.connect(postgres_address) as blocking:
        blocking.execute(b"LOCK TABLE slumberd_0.slumberd_quarantine IN ACCESS EXCLUSIVE MODE")
        copying = subprocess.Popen([*command, postgres_address], stderr=subprocess.DEVNULL)
        wait_until(
            lambda: (
                postgres.rows(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'",
                    database,
                )
                == [(1,)]
            )
        )
        copying.send_signal(signal.SIGKILL)
        copying.wait()
        blocking.rollback()
    wait_until(
        lambda: (
            postgres.rows(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slumberd'"
                " AND datname = current_database()",
                database,
            )
            == [(0,)]
        )
    )
    assert postgres.rows("SELECT count(*) FROM slumberd_0.episodes", database) == [(0,)]
    postgres.run("UPDATE slumberd_0.lease SET held_until = '-infinity'", database=database)

    assert called("copy", "--from", str(files), "--to", postgres_address).returncode == 0

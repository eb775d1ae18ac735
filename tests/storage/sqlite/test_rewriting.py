"""The episode log stays right when the rewriting of a file numbers the episodes anew.

No known SQLite does so, although its documentation allows it. So the tests number them anew
themselves, as VACUUM would: no trigger notices it, and the number of the schema changes.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from slumberd.model.episode import Episode
from slumberd.model.scope import Scope
from slumberd.sql_statements import statements
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite import episode_installation, scrubbing
from slumberd.storage.sqlite.session import schema_version, snapshot
from tests.support.builders import at, triple
from tests.support.failpoints import KILLED
from tests.support.installation import Installation
from tests.support.open_stores import OpenStores, open_stores
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

PUT = "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)"


def said(number: int) -> Episode:
    return triple(f"e{number}", f"s{number}", "is", number, timestamp=at(number))


def number_anew(host: sqlite3.Connection) -> None:
    """Give each episode another number, which no trigger notices."""
    triggers = host.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    host.execute("BEGIN IMMEDIATE")
    for name, _ in triggers:
        host.execute(f"DROP TRIGGER {name}")
    host.execute("UPDATE episodes SET rowid = -rowid")
    host.execute("UPDATE episodes SET rowid = 1000 + rowid")
    for _, sql in triggers:
        host.execute(sql)
    host.execute("COMMIT")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The connection of another program."""
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        yield other


def put_as_host(host: sqlite3.Connection, episode: Episode) -> None:
    scope = Scope(episode.user, episode.session, episode.agent)
    host.execute(PUT, tuple(encode(episode, scope, operation="put")))


def objects_of(*numbers: int) -> dict[str, int]:
    return {f"e{number}": number for number in numbers}


def renumbering_vacuum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make VACUUM number the episodes anew."""
    vacuum = scrubbing._vacuum

    def renumber(connection: sqlite3.Connection, seconds: float) -> None:
        vacuum(connection, seconds)
        with suppress(sqlite3.OperationalError):  # facts.db has no episodes
            number_anew(connection)

    monkeypatch.setattr(scrubbing, "_vacuum", renumber)


async def test_a_rewriting_that_numbers_episodes_anew_loses_no_pending_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renumbering_vacuum(monkeypatch)
    async with open_stores(tmp_path) as home:
        await home.put(said(1), said(2))

        await home.memory.scrub()
        report = await home.fire()

        assert report.channels["facts"].added == 2
        assert await home.objects() == objects_of(1, 2)
        assert (await home.fire()).channels["facts"].read == 0


async def test_an_episode_that_a_host_puts_before_the_log_is_corrected_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: sqlite3.Connection
) -> None:
    renumbering_vacuum(monkeypatch)
    async with open_stores(tmp_path) as home:
        await home.put(said(1), said(2))
        vacuum = scrubbing._vacuum

        def put_after(connection: sqlite3.Connection, seconds: float) -> None:
            vacuum(connection, seconds)
            put_as_host(host, said(2))
            put_as_host(host, said(3))

        monkeypatch.setattr(scrubbing, "_vacuum", put_after)
        await home.memory.scrub()
        report = await home.fire()

        assert report.channels["facts"].added == 3
        assert await home.objects() == objects_of(1, 2, 3)
        assert (await home.fire()).channels["facts"].read == 0


async def test_a_vacuum_of_a_host_after_the_comparison_of_numbers_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: sqlite3.Connection
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(said(1), said(2))

        @contextmanager
        def ending_before_a_vacuum(connection: sqlite3.Connection) -> Iterator[None]:
            with snapshot(connection):
                yield
            number_anew(host)

        monkeypatch.setattr(episode_installation, "snapshot", ending_before_a_vacuum)
        await home.memory.scrub()

        log = host.execute("SELECT eid, rid FROM slumberd_episode_log ORDER BY seq").fetchall()
        assert log == host.execute("SELECT id, rowid FROM episodes ORDER BY id").fetchall()


@pytest.mark.parametrize("first", ["fire", "put", "recent"])
async def test_whoever_comes_first_after_a_crash_corrects_the_log(
    tmp_path: Path, host: sqlite3.Connection, first: str
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(said(1), said(2))
    crash_after_the_rewriting(host)
    put_as_host(host, said(3))

    async with open_stores(tmp_path) as home:
        await use(home, first)

        assert (await home.fire()).channels["facts"].read == (0 if first == "fire" else 3)
        assert await home.objects() == objects_of(1, 2, 3)
        left = host.execute("SELECT 1 FROM sqlite_master WHERE name = 'slumberd_rewriting'")
        assert left.fetchall() == []


def crash_after_the_rewriting(host: sqlite3.Connection) -> None:
    """Leave the file as a process does that ends between VACUUM and what follows."""
    log = statements("episode_log")
    host.execute("BEGIN IMMEDIATE")
    host.execute(log["create_rewriting"])
    host.execute(log["begin_rewriting"], (schema_version(host),))
    host.execute("COMMIT")
    number_anew(host)


async def use(home: OpenStores, how: str) -> None:
    match how:
        case "fire":
            await home.fire()
        case "put":
            await home.put(said(1))
        case _:
            await home.memory.recent("alice", limit=1)


async def test_a_rewriting_changes_no_number_of_the_log(
    tmp_path: Path, host: sqlite3.Connection
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(said(1), said(2), said(3))
        host.execute("DELETE FROM episodes WHERE id = 'e1'")
        rows = host.execute("SELECT seq, rid, eid FROM slumberd_episode_log").fetchall()
        deletions = host.execute("SELECT number, rid FROM slumberd_episode_deletions").fetchall()

        await home.memory.scrub()

        assert host.execute("SELECT seq, rid, eid FROM slumberd_episode_log").fetchall() == rows
        found = host.execute("SELECT number, rid FROM slumberd_episode_deletions").fetchall()
        assert found == deletions


@pytest.mark.slow
def test_a_forget_that_is_killed_after_the_rewriting_loses_no_episode(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.config.write_text("state_dir: state\nrules_dir: rules.d\n")
    site.put(triple("a", "ann", "drinks", "tea", user="ann"), said(1), said(2))
    command = ["forget", "--user", "ann", "--yes", "--config", str(site.config)]
    words = [sys.executable, "-m", "tests.support.failpoints", *command]
    point = "memory.db episode_log.is_renumbered#1"
    environment = {**os.environ, "SLUMBERD_FAILPOINT": point}

    killed = subprocess.run(words, env=environment, timeout=PATIENCE_SECONDS, check=False)
    with closing(sqlite3.connect(site.state / "memory.db", isolation_level=None)) as host:
        assert host.execute("SELECT count(*) FROM slumberd_rewriting").fetchone() == (1,)
        number_anew(host)
        put_as_host(host, said(3))

    assert killed.returncode == KILLED
    assert site.call("fire", "--all").returncode == 0
    with closing(sqlite3.connect(site.state / "facts.db")) as facts:
        ids = facts.execute("SELECT fact_id FROM facts ORDER BY fact_id").fetchall()
    assert ids == [("e1",), ("e2",), ("e3",)]

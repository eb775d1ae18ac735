"""A backup during writes is of one moment; a killed restore changes all or nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.cli import main
from slumberd.model.episode import Episode, microseconds
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.broken_disks import evaluated_more_than_once
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.forked_commands import FORKS
from tests.support.installation import jsonl
from tests.support.oracle import OracleClaim, claim_of, current_claims
from tests.support.scripted_histories import FIRST, LATER, MEANWHILE, State
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

EPISODES, WRITERS, BACKUPS = 150, 2, 4
KILLED = 137
JSON = {"logging": {"format": "json", "file": "slumberd.log"}}


BULK = [
    triple(f"bulk{number}", "a", "weighs", number, content="x" * 200_000) for number in range(150)
]
"""Episodes that take long to copy: a file copied after them separately is of a later moment."""


def episodes_of(writer: int) -> Iterator[Episode]:
    """Yield the episodes that one writer puts, out of order and with shared keys; then edits."""
    for number in count():
        moment = at((number * 7919 + writer) % 1000)
        eid, key = f"w{writer}-{number % EPISODES}", f"s{number % 20}"
        yield triple(eid, key, "is", number, timestamp=moment)


def write(path: Path, writer: int, stop: Path) -> None:
    asyncio.run(_write(path, writer, stop))


async def _write(path: Path, writer: int, stop: Path) -> None:
    async with SQLiteMemoryStore(path) as memory:
        for episode in episodes_of(writer):
            scope = {"user": episode.user, "session": episode.session, "agent": episode.agent}
            await memory.put(episode, **scope)
            if stop.exists():
                return


@contextmanager
def writing(home: Home) -> Iterator[None]:
    """Let several processes put and edit episodes while the block runs."""
    path, stop = home.state / "memory.db", home.folder / "stop"
    started = [FORKS.Process(target=write, args=(path, n, stop)) for n in range(WRITERS)]
    for process in started:
        process.start()
    yield
    assert all(process.is_alive() for process in started)
    stop.touch()
    for process in started:
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == 0


def claims_in(path: Path) -> list[OracleClaim]:
    """Return the claims of the episodes of a database, for the oracle."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT id, timestamp, metadata FROM episodes WHERE id LIKE 'w%'"
        ).fetchall()
    claims = (
        claim_of(
            {
                "id": eid,
                "user": "alice",
                "agent": "rag",
                "at": microseconds(datetime.fromisoformat(timestamp)),
                "metadata": orjson.loads(metadata),
            },
            "facts",
            ("all",),
        )
        for eid, timestamp, metadata in rows
    )
    return [claim for claim in claims if claim is not None]


def expected(path: Path) -> dict[str, Any]:
    return {
        fact_id: claim.object for fact_id, claim in current_claims(claims_in(path), set()).items()
    }


def check_known(state: Path) -> None:
    """Check that memory.db has every episode and log position that facts.db refers to."""
    with closing(sqlite3.connect(state / "memory.db")) as connection:
        connection.execute("ATTACH ? AS known", (str(state / "facts.db"),))
        unknown = connection.execute(
            "SELECT count(*) FROM known.facts WHERE fact_id NOT IN (SELECT id FROM episodes)"
        ).fetchone()[0]
        ahead = connection.execute(
            "SELECT count(*) FROM known.slumberd_watermark AS mark WHERE seq > 0 AND NOT EXISTS"
            " (SELECT 1 FROM slumberd_episode_log AS log WHERE log.seq = mark.seq"
            " AND log.eid = mark.eid)"
        ).fetchone()[0]
    assert (unknown, ahead) == (0, 0)


@pytest.mark.nightly
def test_backup_during_writes_restores_to_the_facts_of_the_oracle(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, {"facts": {"batch": 7}})
    home.rule("all", cadence={"every": 1}, when_filter="predicate = 'is'")
    put(home, BULK)
    backups = [tmp_path / f"backup-{number}" for number in range(BACKUPS)]
    with home.daemon() as daemon, writing(home):
        for folder in backups:
            daemon.wait_for("firing.completed")
            home.call("backup", folder)

    for folder in backups:
        home.call("restore", folder)
        check_known(home.state)
        home.call("fire", "--all")

        facts = {fact["id"]: fact["payload"]["object"] for fact in home.facts()}
        assert facts == expected(home.state / "memory.db")
        assert evaluated_more_than_once(home.state / "facts.db") == []
        home.call("audit", "verify")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home with a backup, and a state with newer episodes."""
    home = Home(tmp_path / "home", JSON)
    home.rule("all", cadence={"every": 1})
    put(home, FIRST)
    home.call("fire", "--all")
    home.call("pause", "all")
    home.call("backup", home.folder / "backup")
    home.call("resume", "all")
    put(home, LATER)
    home.call("fire", "--all")
    put(home, MEANWHILE)
    return home


def put(home: Home, episodes: Sequence[Episode]) -> None:
    file = home.folder / "put.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def die_at(words: Sequence[str], folder: str, step: int) -> None:
    """Run a command; end it as by `kill -9` before step number `step` that touches a folder."""
    passed = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal passed
        if event not in EVENTS or not any(folder in str(argument) for argument in arguments):
            return
        passed += 1
        if passed == step:
            os._exit(KILLED)

    sys.addaudithook(hook)
    main(list(words))


EVENTS = frozenset(
    {"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "sqlite3.connect"}
)
"""The audit events of file operations."""


def kill_at_each_step(home: Home, tmp_path: Path, *words: str) -> Iterator[tuple[Home, int]]:
    """Run a command repeatedly, killed one step later each time; yield the home it leaves."""
    step = 0
    while True:
        step += 1
        folder = tmp_path / f"killed-{step}"
        shutil.copytree(home.folder, folder)
        left = Home(folder, home.settings)
        arguments = (left.words(words), str(tmp_path), step)
        process = FORKS.Process(target=die_at, args=arguments)
        process.start()
        process.join(PATIENCE_SECONDS)
        assert process.exitcode in (0, KILLED)
        yield left, step
        shutil.rmtree(folder)
        if process.exitcode == 0:
            return


@pytest.mark.nightly
def test_killed_restore_changed_nothing_or_is_finished_later(home: Home, tmp_path: Path) -> None:
    now = State.of(home.state / "facts.db")
    then = State.of(home.folder / "backup" / "facts.db")
    outcomes = []

    for left, step in kill_at_each_step(home, tmp_path, "restore", str(home.folder / "backup")):
        begun = (left.state / "restore.json").exists()
        left.call("rules")  # a command that only reads changes nothing
        left.call("resume", "all")  # locks the directory, so it finishes the restore
        found = State.of(left.state / "facts.db")
        outcomes.append(found == then)

        assert found in (now, then), step
        assert found == then or not begun, step
        left.call("restore", home.folder / "backup")
        assert State.of(left.state / "facts.db") == then, step
        assert "all" in (left.state / "paused.json").read_text()
        assert not [*left.state.glob("*.restoring"), *left.state.glob("restore.json*")], step
        replaced = {
            path.name.partition(".replaced-")[0] for path in left.state.glob("*.replaced-*")
        }
        assert {"memory.db", "facts.db"} <= replaced, step

    assert outcomes == sorted(outcomes), "a changed state stays changed"
    assert {False, True} == set(outcomes)


def test_killed_backup_is_invalid_and_can_be_repeated(home: Home, tmp_path: Path) -> None:
    now = State.of(home.state / "facts.db")
    complete = []

    for left, step in kill_at_each_step(home, tmp_path, "backup", str(tmp_path / "fresh")):
        fresh = tmp_path / "fresh"
        complete.append(fresh.exists())
        if not fresh.exists():
            partial = tmp_path / "fresh.incomplete"
            whole = left.call("restore", partial, "--check", check=False).returncode == 0
            assert whole == (partial / "backup.json").exists(), step
            left.call("backup", fresh)
        left.call("restore", fresh, "--check")
        assert State.of(fresh / "facts.db") == now, step
        assert not (tmp_path / "fresh.incomplete").exists()
        shutil.rmtree(fresh)

    assert set(complete) == {False, True}

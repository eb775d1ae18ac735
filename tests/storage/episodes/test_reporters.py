"""Episodes that are dated in the future: accepted, reported, listed, and named by `why-not`."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from slumberd.clock import SystemClock
from slumberd.model.episode import Episode
from slumberd.model.firing import START as BEGINNING
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, rule, triple
from tests.support.cli_runner import called
from tests.support.daemons import Home
from tests.support.fakes import FakeClock
from tests.support.stargraph_rows import INSERT, row_of

pytestmark = pytest.mark.integration

SCOPE = {"user": "alice", "session": "s1", "agent": "rag"}
AHEAD = datetime(2099, 1, 1, tzinfo=UTC)
FUTURE = triple("f1", "alice", "lives_in", "Mars", timestamp=AHEAD)


def store(folder: Path, **settings: Any) -> SQLiteMemoryStore:
    return SQLiteMemoryStore(folder / "memory.db", clock=FakeClock(), **settings)


def insert(folder: Path, *episodes: Episode) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as host, host:
        host.executemany(INSERT, [row_of(given_episode) for given_episode in episodes])


def reported(logs: Any) -> list[list[str]]:
    return [line["episode_ids"] for line in logs if line["event"] == "episode.future"]


async def test_put_beyond_the_tolerance_is_accepted_and_reported(tmp_path: Path) -> None:
    async with store(tmp_path) as memory:
        with capture_logs() as logs:
            await memory.put(episode("now"), **SCOPE)
            await memory.put(episode("within", timestamp=at(300)), **SCOPE)
            await memory.put(episode("beyond", timestamp=at(301)), **SCOPE)
            await memory.put_many([episode(f"m{n}", timestamp=at(n * 1e6)) for n in range(13)])

        assert len(await memory.recent("alice", limit=99)) == 16
    first, many = logs
    assert first == {
        "event": "episode.future", "log_level": "warning", "count": 1, "episode_ids": ["beyond"],
        "latest": at(301).isoformat(), "tolerance_seconds": 300.0,
    }  # fmt: skip
    assert (many["count"], many["episode_ids"]) == (12, [f"m{n}" for n in range(1, 11)])


async def test_a_host_that_configures_no_structlog_finds_the_warning_in_its_logging(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    structlog.reset_defaults()
    # A command that another test ran here has left a handler that prints.
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    async with store(tmp_path) as memory:
        with caplog.at_level(logging.WARNING):
            await memory.put(FUTURE, **SCOPE)

    # Threads that other tests have left behind may log, too.
    [record] = [one for one in caplog.records if "episode.future" in one.getMessage()]
    assert (record.name, record.levelname) == ("slumberd", "WARNING")
    assert "f1" in record.getMessage()
    assert "episode.future" not in capsys.readouterr().out


async def test_a_tolerance_is_a_setting(tmp_path: Path) -> None:
    async with store(tmp_path, future_tolerance_seconds=10) as memory:
        with capture_logs() as logs:
            await memory.put(episode("e1", timestamp=at(10)), **SCOPE)
            await memory.put(episode("e2", timestamp=at(11)), **SCOPE)

    assert reported(logs) == [["e2"]]


async def test_future_episode_that_a_rule_selects_is_reported_once(
    tmp_path: Path,
) -> None:
    async with store(tmp_path) as memory:
        await memory.bootstrap()
        insert(tmp_path, FUTURE, episode("e1"))
        with capture_logs() as logs:
            await memory.select(rule(when_filter="id = 'e1'"), after=BEGINNING, limit=9)
            assert logs == []
            await memory.select(rule(), after=BEGINNING, limit=9)
            await memory.select(rule("other"), after=BEGINNING, limit=9)

    assert reported(logs) == [["f1"]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    home.call("fire", "--all")
    return home


def findings(home: Home, *words: str) -> dict[str, str]:
    done = home.call(*words, "--json", check=False)
    return {finding["id"]: finding["problem"] for finding in json.loads(done.stdout)["findings"]}


def remedy_of(home: Home, episode_id: str) -> str:
    [line] = home.call("why-not", episode_id, "--json").stdout.splitlines()
    return str(json.loads(line)["would_change"])


@pytest.mark.slow
def test_daemon_doctor_status_and_why_not_report_a_future_episode(home: Home) -> None:
    now = triple("e1", "alice", "lives_in", "Porto")
    with home.daemon() as daemon:
        insert(home.state, FUTURE)
        event = daemon.wait_for("episode.future")
        daemon.wait_until_read(1)
        insert(home.state, now)
        daemon.wait_until_read(2)

        urgent = findings(home, "status", "--check")
        assert "daemon.down" not in urgent
        for found in (urgent, findings(home, "doctor")):
            assert found["episodes.future"] == (
                "1 episode is dated in the future: f1 (2099-01-01 00:00:00Z)"
            )
        assert remedy_of(home, "e1") == "nothing needs to change: its fact is current"

        insert(home.state, FUTURE.model_copy(update={"timestamp": START - timedelta(days=1)}))
        daemon.wait_until_read(3)

    assert (event["level"], event["episode_ids"]) == ("warning", ["f1"])
    assert [fact["id"] for fact in home.facts()] == ["e1"]
    assert "episodes.future" not in findings(home, "doctor")


@pytest.mark.slow
def test_future_episodes_replace_and_retract_no_fact(home: Home) -> None:
    deletion = {"intent": "delete", "subject": "alice", "predicate": "likes"}
    insert(home.state, triple("e1", "alice", "lives_in", "Porto"))
    home.call("fire", "--all")
    insert(home.state, FUTURE, episode("f2", timestamp=AHEAD, metadata=deletion))
    home.call("fire", "--all")
    insert(home.state, triple("e2", "alice", "likes", "tea"))
    home.call("fire", "--all")

    for episode_id in ("e1", "e2"):
        assert remedy_of(home, episode_id) == "nothing needs to change: its fact is current"


SPELLED = {
    "east": "+14:00",
    "west": "-12:00",
    "zulu": "Z",
    "naive": "",
    "utc": "+00:00",
}


def test_doctor_finds_any_spelling_of_a_future_instant_and_no_other(home: Home) -> None:
    now = SystemClock().now().replace(microsecond=0, tzinfo=None)
    rows = []
    for name, offset in SPELLED.items():
        for kind, shift in (("later", timedelta(hours=1)), ("past", timedelta(hours=-1))):
            zone = datetime.fromisoformat(f"2026-01-01T00:00:00{offset or '+00:00'}").utcoffset()
            wall = now + shift + (zone or timedelta())
            columns = list(row_of(triple(f"{name}-{kind}", "s", name, kind)))
            columns[3] = f"{wall.isoformat()}{offset}"
            rows.append(columns)
    home.config.write_text(
        json.dumps(json.loads(home.config.read_text()) | {"memory": {"naive_timestamps": "utc"}})
    )
    with closing(sqlite3.connect(home.state / "memory.db")) as host, host:
        host.executemany(INSERT, rows)

    problem = findings(home, "doctor")["episodes.future"]

    assert problem.startswith("5 episodes are dated in the future: ")
    assert "past" not in problem


def test_import_logs_a_future_episode_and_prints_only_its_result(
    home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text(FUTURE.model_dump_json())

    ended = called(*home.words(("import", file, "--json")))

    assert json.loads(ended.stdout)["new"] == 1
    assert json.loads(ended.stderr.splitlines()[-1])["event"] == "episode.future"


def test_check_against_data_logs_no_future_episode(home: Home) -> None:
    insert(home.state, FUTURE)

    ended = home.call("check", "--against-data")

    assert "episode.future" not in ended.stderr


async def test_many_puts_at_once_are_each_reported(tmp_path: Path) -> None:
    async with store(tmp_path) as memory:
        with capture_logs() as logs:
            await asyncio.gather(
                *(memory.put(episode(f"e{n}", timestamp=AHEAD), **SCOPE) for n in range(5))
            )

    assert sorted(reported(logs)) == [[f"e{n}"] for n in range(5)]

"""Every command accepts rules and channels whose names contain colons."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    emits = ["facts", "kg:team", "team:own"]
    home.rule("kg:likes", cadence={"every": "1 episode"}, then_emits=emits)
    return home


def put(home: Home, id: str, what: str, seconds: int) -> None:
    episode = triple(id, "alice", "likes", what, timestamp=at(seconds))

    async def write() -> None:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            await memory.put(
                episode, user=episode.user, session=episode.session, agent=episode.agent
            )

    asyncio.run(write())


def ids(home: Home, *words: str) -> list[str]:
    return sorted(fact["id"] for fact in home.facts(*words))


@pytest.mark.slow
def test_daemon_fires_logs_pauses_and_undoes_a_rule_with_a_colon(home: Home) -> None:
    put(home, "e1", "tea", 0)

    with home.daemon() as daemon:
        line = daemon.wait_for("delta.applied", lambda fields: fields["fact_id"] == "@kg:team/e1")
        daemon.wait_for("delta.applied", lambda fields: fields["fact_id"] == "@team:own/e1")
        home.call("pause", "kg:likes")
        home.call("resume", "kg:likes")
        put(home, "e2", "coffee", 1)
        done = daemon.wait_for("delta.applied", lambda fields: fields["fact_id"] == "e2")
        home.call("undo", done["firing_id"])
        left = ids(home, "--channel", "kg:team")

    assert line["rule_id"] == "kg:likes"
    assert line["firing_id"].startswith("kg:likes@")
    assert left == ["@kg:team/e1"]
    assert home.call("audit", "verify").returncode == 0


def test_commands_accept_names_with_colons(home: Home) -> None:
    put(home, "e1", "tea", 0)

    fired = home.call("fire", "kg:likes")
    why = orjson.loads(home.call("why", "--json", "@kg:team/e1").stdout)
    why_not = home.call("why-not", "--json", "e1").stdout.splitlines()
    rules = [orjson.loads(line) for line in home.call("rules", "--json").stdout.splitlines()]
    home.call("backfill", "kg:likes")
    home.call("unpin", "@kg:team/e1", "--reason", "wrong")

    assert "kg:likes" in fired.stdout + fired.stderr
    assert [promotion["rule_id"] for promotion in why["promoted"]] == ["kg:likes"]
    assert {orjson.loads(reason)["channel"] for reason in why_not} == {
        "facts",
        "kg:team",
        "team:own",
    }
    assert [rule["id"] for rule in rules] == ["kg:likes"]
    assert ids(home) == ["@team:own/e1", "e1"]
    assert home.call("check").returncode == 0
    assert home.call("audit", "verify").returncode == 0
    again = home.folder / "again.db"
    assert home.call("audit", "replay", again).returncode == 0

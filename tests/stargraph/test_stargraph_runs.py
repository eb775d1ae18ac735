"""Real graph runs of the real Stargraph, whose `MemoryWriteNode` names no scope."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.episode import Episode
from slumberd.model.scope import PLACEHOLDER_KEY
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.stargraph.test_stargraph import documents_of, statement_of, theirs
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.stargraph import Stargraph

__all__ = ["theirs"]

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly]

USERS = ("alice", "team/bob")
RUNS = 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A state directory with the default configuration."""
    home = Home(tmp_path)
    home.state.mkdir()
    home.rule("all", cadence={"every": 1})
    return home


def many_episodes() -> list[Episode]:
    """Return episodes of two users; each user states the same subjects again and again."""
    return [
        triple(f"e{n}", f"s{n % 3}", "is", n, user=USERS[n % 2], timestamp=at(n), session=f"run{n}")
        for n in range(RUNS)
    ]


def scope_keys(home: Home) -> set[str]:
    with closing(sqlite3.connect(home.state / "memory.db")) as memory:
        return {key for (key,) in memory.execute("SELECT scope_key FROM episodes")}


async def recent(home: Home, user: str) -> list[Episode]:
    async with SQLiteMemoryStore(home.state / "memory.db") as memory:
        return await memory.recent(user, limit=99)


@pytest.mark.parametrize("store", ["ours", "theirs"])
def test_episodes_of_a_graph_run_become_facts_of_the_user_that_they_name(
    home: Home, theirs: Stargraph, store: str
) -> None:
    if store == "theirs":
        theirs.ask("bootstrap", home.state)

    with home.daemon() as daemon:
        theirs.ask("run_graphs", home.state, episodes=documents_of(*many_episodes()), store=store)
        daemon.wait_until_read(RUNS)
        facts = theirs.ask("query", home.state)

    assert (scope_keys(home) == {PLACEHOLDER_KEY}) == (store == "theirs")
    last = {
        (episode.user, episode.metadata["subject"]): episode.metadata["object"]
        for episode in many_episodes()
    }
    assert {statement_of(fact) for fact in facts} == {
        (*key, object_) for key, object_ in last.items()
    }
    assert home.call("quarantine", "ls", "--json").stdout.strip() in ("", "[]")
    for user in USERS:
        expected = [episode for episode in reversed(many_episodes()) if episode.user == user]
        assert asyncio.run(recent(home, user)) == expected
    assert home.call("audit", "verify").returncode == 0


def test_erasing_a_user_erases_the_episodes_that_graph_runs_wrote_for_them(
    home: Home, theirs: Stargraph
) -> None:
    theirs.ask("bootstrap", home.state)
    theirs.ask("run_graphs", home.state, episodes=documents_of(*many_episodes()), store="theirs")
    home.call("fire", "--all")

    home.call("forget", "--user", "team/bob", "--yes")

    assert asyncio.run(recent(home, "team/bob")) == []
    assert len(asyncio.run(recent(home, "alice"))) == RUNS / 2
    assert {fact["user"] for fact in home.facts()} == {"alice"}
    files = [*home.state.glob("*.db*")]
    of_slumberd = [file for file in files if not file.name.startswith("checkpoints.db")]
    assert not [file.name for file in of_slumberd if b"team/bob" in file.read_bytes()]


def test_episodes_of_users_with_slashes_that_stargraph_puts_become_their_facts(
    home: Home, theirs: Stargraph
) -> None:
    theirs.ask("bootstrap", home.state)
    episodes = [
        episode.model_copy(update={"user": f"team/{episode.user}"}) for episode in many_episodes()
    ]
    with home.daemon() as daemon:
        theirs.ask("put", home.state, episodes=documents_of(*episodes))
        daemon.wait_until_read(RUNS)
        facts = theirs.ask("query", home.state)

    assert {fact["user"] for fact in facts} == {"team/alice", "team/team/bob"}
    assert [episode.id for episode in asyncio.run(recent(home, "team/alice"))] == [
        episode.id for episode in reversed(many_episodes()) if episode.user == "alice"
    ]
    assert asyncio.run(recent(home, "team")) == []

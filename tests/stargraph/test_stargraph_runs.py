"""Real graph runs of the real Stargraph, whose `MemoryWriteNode` names no scope."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.episode import Episode
from slumberd.model.scope import PLACEHOLDER_KEY
from slumberd.storage.episodes.store import SQLiteMemoryStore
from tests.stargraph.test_stargraph import says, theirs, told
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.stargraph import Stargraph

__all__ = ["theirs"]

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

USERS = ("alice", "team/bob")
RUNS = 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A state directory with the default configuration."""
    home = Home(tmp_path)
    home.state.mkdir()
    home.rule("all", cadence={"every": 1})
    return home


def many() -> list[Episode]:
    """Return episodes of two users, of which each object replaces one before."""
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
def test_what_a_graph_run_writes_becomes_facts_of_the_user_that_the_episode_names(
    home: Home, theirs: Stargraph, store: str
) -> None:
    if store == "theirs":
        theirs.ask("bootstrap", home.state)

    with home.daemon() as daemon:
        theirs.ask("run_graphs", home.state, episodes=told(*many()), store=store)
        daemon.wait_until_read(RUNS)
        facts = theirs.ask("query", home.state)

    assert (scope_keys(home) == {PLACEHOLDER_KEY}) == (store == "theirs")
    last = {(one.user, one.metadata["subject"]): one.metadata["object"] for one in many()}
    assert {says(fact) for fact in facts} == {(*key, what) for key, what in last.items()}
    assert home.call("quarantine", "ls", "--json").stdout.strip() in ("", "[]")
    for user in USERS:
        expected = [one for one in reversed(many()) if one.user == user]
        assert asyncio.run(recent(home, user)) == expected
    assert home.call("audit", "verify").returncode == 0


def test_forgetting_a_user_erases_what_graph_runs_wrote_of_them(
    home: Home, theirs: Stargraph
) -> None:
    theirs.ask("bootstrap", home.state)
    theirs.ask("run_graphs", home.state, episodes=told(*many()), store="theirs")
    home.call("fire", "--all")

    home.call("forget", "--user", "team/bob", "--yes")

    assert asyncio.run(recent(home, "team/bob")) == []
    assert len(asyncio.run(recent(home, "alice"))) == RUNS / 2
    assert {fact["user"] for fact in home.facts()} == {"alice"}
    files = [*home.state.glob("*.db*")]
    stargraphs_own = home.state / "checkpoints.db"
    kept = [file for file in files if not file.name.startswith(stargraphs_own.name)]
    assert not [one.name for one in kept if b"team/bob" in one.read_bytes()]


def test_users_with_slashes_that_stargraph_puts_become_their_facts(
    home: Home, theirs: Stargraph
) -> None:
    theirs.ask("bootstrap", home.state)
    spoken = [one.model_copy(update={"user": f"team/{one.user}"}) for one in many()]
    with home.daemon() as daemon:
        theirs.ask("put", home.state, episodes=told(*spoken))
        daemon.wait_until_read(RUNS)
        facts = theirs.ask("query", home.state)

    assert {fact["user"] for fact in facts} == {"team/alice", "team/team/bob"}
    assert [one.id for one in asyncio.run(recent(home, "team/alice"))] == [
        one.id for one in reversed(many()) if one.user == "alice"
    ]
    assert asyncio.run(recent(home, "team")) == []

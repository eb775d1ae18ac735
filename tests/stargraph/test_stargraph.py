"""The real Stargraph and our daemon work on the same files at the same time, both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.episode import Episode
from slumberd.model.health import MigrationPlan
from slumberd.storage.episodes.store import SQLiteMemoryStore
from slumberd.storage.facts.store import SQLiteFactStore
from tests.support.builders import START, at, episode, triple
from tests.support.daemons import Daemon, Home
from tests.support.stargraph import Stargraph, stargraph_or_skip

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

EPISODES = 100
USERS = ("alice", "bob")


@pytest.fixture(scope="module")
def theirs() -> Iterator[Stargraph]:
    with stargraph_or_skip() as process:
        yield process


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    return home


def told(*episodes: Episode) -> list[dict[str, Any]]:
    return [given_episode.model_dump(mode="json") for given_episode in episodes]


def many() -> list[Episode]:
    """Return episodes of two users, of which each object replaces one before."""
    return [
        triple(f"e{n}", f"s{n % 5}", "is", n, user=USERS[n % 2], timestamp=at(n))
        for n in range(EPISODES)
    ]


def gold() -> set[tuple[str, str, int]]:
    last = {(one.user, one.metadata["subject"]): one.metadata["object"] for one in many()}
    return {(*key, what) for key, what in last.items()}


def says(fact: dict[str, Any]) -> tuple[str, str, int]:
    return fact["user"], fact["payload"]["subject"], fact["payload"]["object"]


def instants_alike(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact without its instants: each program writes them in its own form."""
    return {name: fact[name] for name in fact if name not in ("pinned_at", "said_at")}


def wait_for(daemon: Daemon, fact_id: str, rule_id: str) -> None:
    daemon.wait_for(
        "delta.applied",
        lambda one: one["rule_id"] == rule_id and fact_id in orjson.dumps(one).decode(),
    )


def test_what_stargraph_writes_while_the_daemon_works_is_consolidated_and_read_whole(
    home: Home, theirs: Stargraph
) -> None:
    with home.daemon() as daemon:
        theirs.begin("put_and_read", home.state, episodes=told(*many()))
        daemon.wait_until_read(EPISODES)
        read = theirs.answer()
        facts = theirs.ask("query", home.state)
        of_bob = theirs.ask("query", home.state, user="bob", subject="s1")

    assert read["torn"] == []
    assert read["reads"] > 10
    assert {says(fact) for fact in facts} == gold()
    assert [says(fact) for fact in of_bob] == [one for one in gold() if one[:2] == ("bob", "s1")]
    assert [*map(instants_alike, facts)] == [*map(instants_alike, home.facts())]
    assert home.call("audit", "verify").returncode == 0


def test_columns_that_were_added_are_in_nobodys_way(home: Home, theirs: Stargraph) -> None:
    """Their tables grow by our hand; then both write, and the ledger still tells all of it."""
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)
    operation = {"op": "add_column", "column": "mood", "type": "TEXT", "nullable": True}

    async def migrate() -> list[int]:
        async with (
            SQLiteMemoryStore(home.state / "memory.db") as memory,
            SQLiteFactStore(home.state / "facts.db") as facts,
        ):
            for store, table in ((memory, "episodes"), (facts, "facts")):
                asked = [operation | {"table": table}]
                await store.migrate(MigrationPlan(target_version=4, operations=asked))
            return [(await store.health()).version for store in (memory, facts)]

    assert asyncio.run(migrate()) == [4, 4]
    with home.daemon() as daemon:
        theirs.ask("bootstrap", home.state)
        theirs.ask("put", home.state, episodes=told(*many()))
        daemon.wait_until_read(EPISODES)
        fact = theirs.ask("query", home.state, user="bob", subject="s1")[0]
        theirs.ask("pin", home.state, fact=fact | {"id": "theirs", "payload": {"by": "them"}})
        facts = theirs.ask("query", home.state)

    assert {says(found_fact) for found_fact in facts if found_fact["id"] != "theirs"} == gold()
    assert home.call("fire", "--all").returncode == 0
    assert [*map(instants_alike, facts)] == [*map(instants_alike, home.facts())]
    assert home.call("audit", "verify").returncode == 0
    again = str(home.state.with_name("again.db"))
    assert home.call("audit", "replay", again).returncode == 0


def test_facts_that_stargraph_itself_replaces_are_read_torn(home: Home, theirs: Stargraph) -> None:
    """The control of the test above: it would find a reader who misses a fact."""
    one_key = [triple(f"e{n}", "s", "is", n) for n in range(EPISODES)]
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)

    read = theirs.ask("apply_and_read", home.state, episodes=told(*one_key))

    assert read["torn"]


def test_stargraph_begins_the_files_and_the_daemon_goes_on(home: Home, theirs: Stargraph) -> None:
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)
    theirs.ask("put", home.state, episodes=told(*many()[:20]))

    with home.daemon() as daemon:
        daemon.wait_until_read(20)
        facts = theirs.ask("query", home.state)
        theirs.ask("bootstrap", home.state)

    assert len(facts) == 10
    assert home.call("audit", "verify").returncode == 0


def test_an_episode_reads_the_same_on_either_side(home: Home, theirs: Stargraph) -> None:
    ours = episode("ours", user="caf\u00e9", metadata={"n": [1, None, {"a": 0.5}]})
    their = episode("theirs", user="caf\u00e9", timestamp=at(1), content="\u2026")

    async def put_and_read() -> list[Episode]:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            await memory.put(ours, user=ours.user, session=ours.session, agent=ours.agent)
            theirs.ask("put", home.state, episodes=told(their))
            return await memory.recent(ours.user, limit=9)

    assert asyncio.run(put_and_read()) == [their, ours]
    found = theirs.ask("recent", home.state, user=ours.user)
    assert [Episode(**one) for one in found] == [their, ours]


def test_facts_that_stargraph_pins_and_unpins_are_recorded_and_kept(
    home: Home, theirs: Stargraph
) -> None:
    body = {"subject": "s", "predicate": "is", "object": "pinned"}
    fact = {
        "id": "p1",
        "user": "alice",
        "agent": "rag",
        "payload": body,
        "lineage": [{"by": "a host"}],
        "confidence": 0.5,
        "pinned_at": START.isoformat(),
    }

    with home.daemon() as daemon:
        theirs.ask(
            "put", home.state, episodes=told(triple("e1", "s", "is", "said", timestamp=at(-9)))
        )
        wait_for(daemon, "e1", "all")
        theirs.ask("pin", home.state, fact=fact)
        wait_for(daemon, "p1", "@external")
        pinned = {one["id"] for one in theirs.ask("query", home.state)}
        theirs.ask("unpin", home.state, id="p1")
        daemon.wait_for("delta.applied", lambda one: one["kind"] == "delete")
        left = theirs.ask("query", home.state)

    assert pinned == {"e1", "p1"}
    assert (
        [one["id"] for one in left] == [found_fact["id"] for found_fact in home.facts()] == ["e1"]
    )
    assert home.call("audit", "verify").returncode == 0


def test_what_a_person_tells_the_daemon_stargraph_reads(home: Home, theirs: Stargraph) -> None:
    said = ("--user", "alice", "--agent", "rag", "--subject", "s", "--predicate", "is")

    with home.daemon():
        home.call("pin", *said, "--object", "here", "--id", "p1", "--reason", "because")
        [pinned] = theirs.ask("query", home.state, user="alice", subject="s")
        home.call("unpin", "p1", "--reason", "because")
        left = theirs.ask("query", home.state)

    assert (pinned["id"], pinned["payload"]["object"]) == ("p1", "here")
    assert left == []

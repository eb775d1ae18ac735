"""The real Stargraph and our daemon work on the same files at the same time, both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.episode import Episode
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, triple
from tests.support.daemons import Daemon, Home
from tests.support.stargraph import Stargraph, stargraph_or_skip

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly]

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


def documents_of(*episodes: Episode) -> list[dict[str, Any]]:
    return [episode.model_dump(mode="json") for episode in episodes]


def many_episodes() -> list[Episode]:
    """Return episodes of two users; each user states the same subjects again and again."""
    return [
        triple(f"e{n}", f"s{n % 5}", "is", n, user=USERS[n % 2], timestamp=at(n))
        for n in range(EPISODES)
    ]


def last_statements() -> set[tuple[str, str, int]]:
    last = {
        (episode.user, episode.metadata["subject"]): episode.metadata["object"]
        for episode in many_episodes()
    }
    return {(*key, object_) for key, object_ in last.items()}


def statement_of(fact: dict[str, Any]) -> tuple[str, str, int]:
    return fact["user"], fact["payload"]["subject"], fact["payload"]["object"]


def without_instants(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact without its instants: each program writes them in its own form."""
    return {name: fact[name] for name in fact if name not in ("pinned_at", "said_at")}


def wait_for(daemon: Daemon, fact_id: str, rule_id: str) -> None:
    daemon.wait_for(
        "delta.applied",
        lambda event: event["rule_id"] == rule_id and fact_id in orjson.dumps(event).decode(),
    )


def test_episodes_that_stargraph_writes_during_firings_become_facts_that_it_reads_whole(
    home: Home, theirs: Stargraph
) -> None:
    with home.daemon() as daemon:
        theirs.begin("put_and_read", home.state, episodes=documents_of(*many_episodes()))
        daemon.wait_until_read(EPISODES)
        read = theirs.answer()
        facts = theirs.ask("query", home.state)
        of_bob = theirs.ask("query", home.state, user="bob", subject="s1")

    assert read["torn"] == []
    assert read["reads"] > 10
    assert {statement_of(fact) for fact in facts} == last_statements()
    assert [statement_of(fact) for fact in of_bob] == [
        statement for statement in last_statements() if statement[:2] == ("bob", "s1")
    ]
    assert [*map(without_instants, facts)] == [*map(without_instants, home.facts())]
    assert home.call("audit", "verify").returncode == 0


def test_added_columns_disturb_neither_program(home: Home, theirs: Stargraph) -> None:
    """Slumberd adds columns to Stargraph's tables; then both write, and the ledger is complete."""
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)
    operation = {"op": "add_column", "column": "mood", "type": "TEXT", "nullable": True}

    async def migrate() -> list[int]:
        async with (
            SQLiteMemoryStore(home.state / "memory.db") as memory,
            SQLiteFactStore(home.state / "facts.db") as facts,
        ):
            for store, table in ((memory, "episodes"), (facts, "facts")):
                operations = [operation | {"table": table}]
                await store.migrate(MigrationPlan(target_version=4, operations=operations))
            return [(await store.health()).version for store in (memory, facts)]

    assert asyncio.run(migrate()) == [4, 4]
    with home.daemon() as daemon:
        theirs.ask("bootstrap", home.state)
        theirs.ask("put", home.state, episodes=documents_of(*many_episodes()))
        daemon.wait_until_read(EPISODES)
        fact = theirs.ask("query", home.state, user="bob", subject="s1")[0]
        theirs.ask("pin", home.state, fact=fact | {"id": "theirs", "payload": {"by": "them"}})
        facts = theirs.ask("query", home.state)

    assert {statement_of(fact) for fact in facts if fact["id"] != "theirs"} == last_statements()
    assert home.call("fire", "--all").returncode == 0
    assert [*map(without_instants, facts)] == [*map(without_instants, home.facts())]
    assert home.call("audit", "verify").returncode == 0
    again = str(home.state.with_name("again.db"))
    assert home.call("audit", "replay", again).returncode == 0


def test_reader_misses_facts_while_stargraph_itself_replaces_them(
    home: Home, theirs: Stargraph
) -> None:
    """The control of the test above: its reader notices a missing fact."""
    one_key = [triple(f"e{n}", "s", "is", n) for n in range(EPISODES)]
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)

    read = theirs.ask("apply_and_read", home.state, episodes=documents_of(*one_key))

    assert read["torn"]


def test_daemon_continues_the_files_that_stargraph_created(home: Home, theirs: Stargraph) -> None:
    home.state.mkdir()
    theirs.ask("bootstrap", home.state)
    theirs.ask("put", home.state, episodes=documents_of(*many_episodes()[:20]))

    with home.daemon() as daemon:
        daemon.wait_until_read(20)
        facts = theirs.ask("query", home.state)
        theirs.ask("bootstrap", home.state)

    assert len(facts) == 10
    assert home.call("audit", "verify").returncode == 0


def test_both_programs_read_the_same_episodes(home: Home, theirs: Stargraph) -> None:
    ours = episode("ours", user="caf\u00e9", metadata={"n": [1, None, {"a": 0.5}]})
    their = episode("theirs", user="caf\u00e9", timestamp=at(1), content="\u2026")

    async def put_and_read() -> list[Episode]:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            await memory.put(ours, user=ours.user, session=ours.session, agent=ours.agent)
            theirs.ask("put", home.state, episodes=documents_of(their))
            return await memory.recent(ours.user, limit=9)

    assert asyncio.run(put_and_read()) == [their, ours]
    found = theirs.ask("recent", home.state, user=ours.user)
    assert [Episode(**fields) for fields in found] == [their, ours]


def test_ledger_records_the_facts_that_stargraph_pins_and_unpins(
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
            "put",
            home.state,
            episodes=documents_of(triple("e1", "s", "is", "said", timestamp=at(-9))),
        )
        wait_for(daemon, "e1", "all")
        theirs.ask("pin", home.state, fact=fact)
        wait_for(daemon, "p1", "@external")
        pinned = {fact["id"] for fact in theirs.ask("query", home.state)}
        theirs.ask("unpin", home.state, id="p1")
        daemon.wait_for("delta.applied", lambda event: event["kind"] == "delete")
        left = theirs.ask("query", home.state)

    assert pinned == {"e1", "p1"}
    assert [fact["id"] for fact in left] == [fact["id"] for fact in home.facts()] == ["e1"]
    assert home.call("audit", "verify").returncode == 0


def test_stargraph_reads_the_facts_that_a_person_pins(home: Home, theirs: Stargraph) -> None:
    options = ("--user", "alice", "--agent", "rag", "--subject", "s", "--predicate", "is")

    with home.daemon():
        home.call("pin", *options, "--object", "here", "--id", "p1", "--reason", "because")
        [pinned] = theirs.ask("query", home.state, user="alice", subject="s")
        home.call("unpin", "p1", "--reason", "because")
        left = theirs.ask("query", home.state)

    assert (pinned["id"], pinned["payload"]["object"]) == ("p1", "here")
    assert left == []

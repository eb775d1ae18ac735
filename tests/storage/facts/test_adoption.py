"""A host with pinned facts adopts slumberd, and loses none of its facts.

The host is the real Stargraph, in a separate process.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.episode import Episode
from tests.support.builders import at, triple
from tests.support.daemons import Daemon, Home
from tests.support.stargraph import Stargraph, stargraph_or_skip

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly]

KNOWN = ("bob", "carol", "dave")


@pytest.fixture(scope="module")
def theirs() -> Iterator[Stargraph]:
    with stargraph_or_skip() as process:
        yield process


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    home.state.mkdir()
    return home


def as_json(*episodes: Episode) -> list[dict[str, Any]]:
    return [item.model_dump(mode="json") for item in episodes]


def fact(id: str, predicate: str, what: str, **other: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": id,
        "user": "alice",
        "agent": "rag",
        "payload": {"subject": "alice", "predicate": predicate, "object": what},
        "lineage": [{"kind": "host", "source_id": id}],
        "confidence": 0.5,
        "pinned_at": "2026-02-01T09:00:00.5+09:00",
        "metadata": {"of": "the host"},
    }
    return fields | other


def knows(name: str) -> dict[str, Any]:
    return fact(name, "knows", name)


def row(subject: str, what: str) -> dict[str, Any]:
    return {"subject": subject, "predicate": "near", "object": what}


def digest(home: Home) -> str:
    """Return a hash of every row of facts, with its rowid and the types of its values."""
    columns = [
        "fact_id",
        "user",
        "agent",
        "payload",
        "lineage",
        "confidence",
        "metadata",
        "pinned_at",
    ]
    kinds = ", ".join(f"typeof({name})" for name in columns)
    with closing(sqlite3.connect(home.state / "facts.db")) as connection:
        found = connection.execute(f"SELECT rowid, *, {kinds} FROM facts ORDER BY rowid").fetchall()
    return hashlib.sha256(repr(found).encode()).hexdigest()


def begin(home: Home, theirs: Stargraph) -> None:
    """Let the host pin facts and promote from its graph before slumberd is installed."""
    theirs.ask("bootstrap", home.state)
    for name in KNOWN:
        theirs.ask("pin", home.state, fact=knows(name))
    theirs.ask("promote", home.state, rows=[row("berlin", "potsdam"), row("berlin", "spandau")])


def ids(home: Home, theirs: Stargraph) -> set[str]:
    found = theirs.ask("query", home.state)
    assert found == sorted(found, key=lambda item: item["id"])
    return {item["id"] for item in found}


def wait_for(daemon: Daemon, fact_id: str, kind: str) -> None:
    daemon.wait_for(
        "delta.applied",
        lambda item: item["kind"] == kind and fact_id in orjson.dumps(item).decode(),
    )


def proven(home: Home) -> None:
    assert home.call("audit", "verify").returncode == 0
    again = home.state.with_name("again.db")
    again.unlink(missing_ok=True)
    assert home.call("audit", "replay", again).returncode == 0


def test_first_start_changes_no_row_and_logs_how_many_it_found(
    home: Home, theirs: Stargraph
) -> None:
    begin(home, theirs)
    before = digest(home)

    with home.daemon() as daemon:
        [adopted] = [event for event in daemon.seen if event["event"] == "facts.adopted"]
    with home.daemon() as daemon:
        again = [event for event in daemon.seen if event["event"] == "facts.adopted"]

    assert (adopted["found"], adopted["unreadable"]) == (5, 0)
    assert again == []
    assert digest(home) == before
    proven(home)


def test_firings_edits_reloads_and_undos_do_not_change_the_facts_of_the_host(
    home: Home, theirs: Stargraph
) -> None:
    begin(home, theirs)
    before = digest(home)
    hosts = ids(home, theirs)
    episodes = [
        triple("e1", "alice", "knows", "erin", user="alice", timestamp=at(1)),
        triple("e2", "alice", "knows", "frank", user="alice", timestamp=at(2)),
    ]

    with home.daemon() as daemon:
        theirs.ask("put", home.state, episodes=as_json(*episodes))
        daemon.wait_until_read(2)
        assert ids(home, theirs) == {*hosts, "e2"}
        edited = episodes[1].model_copy(update={"content": "edited"})
        theirs.ask("put", home.state, episodes=as_json(edited))
        daemon.wait_until_read(3)
        home.rule("all", cadence={"every": 1}, when_filter="predicate = 'nothing'")
        home.call("reload")
        home.call("backfill", "all")
        assert ids(home, theirs) == hosts
        assert digest(home) == before
        undone = home.call("audit", "ls", "--rule", "all", "--json").stdout.splitlines()
        home.call("undo", orjson.loads(undone[-1])["firing_id"])

    assert hosts < ids(home, theirs) or hosts == ids(home, theirs)
    proven(home)


def test_pins_overwrites_and_unpins_of_the_host_take_effect_while_the_daemon_runs(
    home: Home, theirs: Stargraph
) -> None:
    begin(home, theirs)

    with home.daemon() as daemon:
        theirs.ask("pin", home.state, fact=knows("grace"))
        wait_for(daemon, "grace", "add")
        other = fact("bob", "knows", "robert", pinned_at="2026-02-02T00:00:00+00:00")
        theirs.ask("pin", home.state, fact=other)
        wait_for(daemon, "bob", "update")
        theirs.ask("unpin", home.state, id="carol")
        wait_for(daemon, "carol", "delete")
        [promoted] = theirs.ask("promote", home.state, rows=[row("paris", "lyon")])
        wait_for(daemon, promoted["id"], "add")
        left = {item["id"]: item["payload"]["object"] for item in theirs.ask("query", home.state)}

    assert {name: left.get(name) for name in ("bob", "carol", "dave", "grace")} == {
        "bob": "robert",
        "carol": None,
        "dave": "dave",
        "grace": "grace",
    }
    assert len(left) == 6
    assert left == {item["id"]: item["payload"]["object"] for item in home.facts()}
    proven(home)


def test_episode_removes_facts_of_the_host_by_id_or_by_key(home: Home, theirs: Stargraph) -> None:
    begin(home, theirs)
    late = at(10**8)
    naming = triple("e1", "alice", "likes", "tea", user="alice", timestamp=late)
    naming.metadata.update(intent="update", replaces=["bob"])
    deleting = triple("e2", "alice", "knows", "dave", user="alice", timestamp=late)
    deleting.metadata.update(intent="delete")

    with home.daemon() as daemon:
        theirs.ask("put", home.state, episodes=as_json(naming, deleting))
        daemon.wait_until_read(2)
        left = {item["id"] for item in theirs.ask("query", home.state, user="alice")}

    assert left == {"carol", "e1"}
    proven(home)


def test_erasure_of_a_user_keeps_the_facts_of_other_users(home: Home, theirs: Stargraph) -> None:
    begin(home, theirs)
    theirs.ask("pin", home.state, fact=fact("bobs", "knows", "ann", user="bob"))

    with home.daemon():
        home.call("forget", "--user", "alice", "--yes")
        left = {item["user"] for item in theirs.ask("query", home.state)}

    assert left == {"", "bob"}
    proven(home)

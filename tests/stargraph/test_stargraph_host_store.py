"""The daemon consolidates Stargraph's own two stores, through Stargraph's own classes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from tests.support.builders import at, episode, triple
from tests.support.daemons import PATIENCE_SECONDS, Daemon, Event, Home
from tests.support.forked_commands import start_command
from tests.support.repository import ROOT
from tests.support.stargraph import (
    OURS,
    NoStargraphError,
    Stargraph,
    stargraph_or_skip,
    test_environment,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly]

FACTORY = ROOT / "tests/support/stargraph_factory.py"
DELTAS = 5


@pytest.fixture(scope="module")
def theirs() -> Iterator[Stargraph]:
    with stargraph_or_skip() as process:
        yield process


@pytest.fixture
def home(tmp_path: Path) -> Home:
    try:
        python = test_environment()
    except NoStargraphError as error:
        pytest.skip(f"Stargraph itself is not tested: {error}")
    (tmp_path / "theirs").mkdir()
    # Beside the factory lies a module `stargraph` of the tests, so the daemon imports a copy.
    shutil.copy(FACTORY, tmp_path)
    return Home(tmp_path, {"host_store": "python:stargraph_factory:make_stores"}, python)


def environment(home: Home, kill: str = "") -> dict[str, str]:
    path = os.pathsep.join(map(str, (OURS, home.folder)))
    folder = str(home.folder / "theirs")
    return {"PYTHONPATH": path, "STARGRAPH_FOLDER": folder, "STARGRAPH_KILL": kill}


def put(home: Home, theirs: Stargraph, *episodes: Episode) -> None:
    documents = [episode.model_dump(mode="json") for episode in episodes]
    theirs.ask("bootstrap", home.folder / "theirs")
    theirs.ask("put", home.folder / "theirs", episodes=documents)


def facts_of(home: Home, theirs: Stargraph) -> dict[str, Any]:
    facts = theirs.ask("query", home.folder / "theirs")
    return {fact["id"]: (fact["user"], fact["payload"]["object"]) for fact in facts}


def applied_by(home: Home) -> list[str]:
    return (home.folder / "theirs/facts.log").read_text().splitlines()


def deltas_of(events: list[Event]) -> list[tuple[int, str, list[str]]]:
    return [
        (event["seq"], event["kind"], event["source_episode_ids"])
        for event in events
        if event["event"] == "delta.applied"
    ]


def many_episodes() -> list[Episode]:
    return [
        triple("e1", "tea", "is", "green", timestamp=at(1)),
        triple("e2", "tea", "is", "black", timestamp=at(2)),
        triple("e3", "mate", "is", "bitter", timestamp=at(3), user="bob"),
        triple("e4", "milk", "is", "white", timestamp=at(4)),
        episode("e5", timestamp=at(5), metadata={"intent": "delete", "replaces": ["e4"]}),
    ]


APPLIED = ["add e1", "update e2", "add e3", "add e4", "delete e5"]
FACTS = {"e2": ("alice", "black"), "e3": ("bob", "bitter")}


def test_deltas_that_stargraph_returns_again_are_applied_once(
    home: Home, theirs: Stargraph
) -> None:
    home.rule("all", cadence={"every": 1})
    put(home, theirs, *many_episodes()[:3])
    with home.daemon(**environment(home)) as daemon:
        daemon.wait_for("firing.completed")
        put(home, theirs, *many_episodes()[3:])
        daemon.wait_for("delta.applied", lambda event: event["source_episode_ids"] == ["e5"])
        daemon.wait_for("firing.completed")
        found = facts_of(home, theirs)
        lines = deltas_of(daemon.seen)

    assert found == FACTS
    assert applied_by(home) == APPLIED
    assert [(kind, *ids) for _, kind, ids in lines] == [tuple(one.split()) for one in APPLIED]


@pytest.mark.parametrize("number", range(1, DELTAS + 1))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_daemon_killed_between_two_deltas_loses_none_and_applies_none_twice(
    home: Home, theirs: Stargraph, moment: str, number: int
) -> None:
    home.rule("all", cadence={"every": DELTAS})
    put(home, theirs, *many_episodes())
    kill = environment(home, f"{moment}:{number}")
    killed = Daemon(start_command(home.command("run"), {**os.environ, **kill}))
    assert killed.process.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL
    events = [*killed.remaining()]
    killed.close()

    with home.daemon(**environment(home)) as daemon:
        daemon.wait_for("firing.completed")
        found = facts_of(home, theirs)
        lines = deltas_of([*events, *daemon.seen])

    assert found == FACTS
    assert applied_by(home) == APPLIED
    assert [(kind, *ids) for _, kind, ids in lines] == [tuple(one.split()) for one in APPLIED]


def test_filter_of_a_rule_reaches_stargraph(home: Home, theirs: Stargraph) -> None:
    """The filter is SQL over Stargraph's own columns, which slumberd neither reads nor checks."""
    home.rule(
        "all",
        cadence={"every": 1},
        when_filter="json_extract(metadata, '$.object') = 'bitter' AND scope_key GLOB '*/bob/*'",
    )
    put(home, theirs, *many_episodes())
    with home.daemon(**environment(home)) as daemon:
        daemon.wait_for("firing.completed")
        found = facts_of(home, theirs)

    assert found == {"e3": ("bob", "bitter")}
    assert applied_by(home) == ["add e3"]


def test_error_of_stargraph_is_logged_with_the_rule(home: Home, theirs: Stargraph) -> None:
    home.rule("all", cadence={"every": 1}, when_filter="no_such_column = 1")
    put(home, theirs, *many_episodes()[:1])

    with home.daemon(**environment(home)) as daemon:
        failed = daemon.wait_for("firing.failed")

    assert failed["rule_id"] == "all"
    assert failed["error"] == "HostStoreError"
    assert "no_such_column" in failed["message"]

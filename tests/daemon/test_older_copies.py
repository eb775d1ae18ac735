"""slumberd finds a database copy from before an erasure, and promotes nothing from it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.clock import SystemClock
from tests.support.builders import triple
from tests.support.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MINE = triple("e1", "ann", "drinks", "tea", user="ann", session="s1")
BOBS = triple("b1", "bob", "drinks", "tea", user="bob")


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    """An installation with a copy of each database from before the erasure of ann."""
    site = Installation(tmp_path)
    site.put(MINE, BOBS)
    assert site.call("fire", "profile").returncode == 0
    for name in ("facts.db", "memory.db"):
        with (
            closing(sqlite3.connect(site.state / name)) as live,
            closing(sqlite3.connect(tmp_path / name)) as copy,
        ):
            live.backup(copy)
    return site


def erase(site: Installation, *scope: str) -> None:
    assert site.call("forget", "--user", "ann", *scope, "--yes").returncode == 0


def restore_copy(site: Installation, name: str) -> None:
    for file in site.state.glob(f"{name}*"):
        file.unlink()
    shutil.copy(site.config.with_name(name), site.state / name)
    (site.state / name).chmod(0o600)


def find_contradictions(site: Installation, *command: str) -> list[dict[str, Any]]:
    done = site.call(*command, "--json")
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    return [finding for finding in findings if finding["id"] == "erasure.contradicted"]


def users(site: Installation) -> set[str]:
    return {fact["user"] for fact in site.lines("facts")}


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("scope", [(), ("--session", "s1"), ("--agent", "rag")])
@pytest.mark.parametrize("name", ["facts.db", "memory.db"])
def test_doctor_and_status_find_an_older_copy(
    site: Installation, name: str, scope: tuple[str, ...]
) -> None:
    erase(site, *scope)
    assert (
        find_contradictions(site, "doctor") == find_contradictions(site, "status", "--check") == []
    )

    restore_copy(site, name)

    for command in (("doctor",), ("status", "--check")):
        (finding,) = find_contradictions(site, *command)
        assert finding["subject"].endswith(name)
        assert "1 " in finding["problem"]
        assert "'ann'" in finding["problem"]


@pytest.mark.parametrize("name", ["facts.db", "memory.db"])
def test_firing_restores_no_erased_fact_from_an_older_copy(site: Installation, name: str) -> None:
    erase(site)
    restore_copy(site, name)
    with closing(sqlite3.connect(site.config.with_name("memory.db"))) as copy:
        (row,) = copy.execute("SELECT * FROM episodes WHERE id = 'e1'").fetchall()
    with closing(sqlite3.connect(site.state / "memory.db")) as memory, memory:
        memory.execute("INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)", ("e2", *row[1:]))

    assert site.call("fire", "--all").returncode == 0

    assert "e2" not in {fact["id"] for fact in site.lines("facts")}
    assert site.call("import", str(site.config.with_name("put.jsonl"))).returncode == 65


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts.db", "memory.db"])
def test_repeated_forget_erases_an_older_copy(site: Installation, name: str) -> None:
    erase(site)
    restore_copy(site, name)

    erase(site)

    assert find_contradictions(site, "doctor") == []
    assert users(site) == {"bob"}
    assert site.call("audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts.db", "memory.db"])
def test_daemon_warns_of_an_older_copy_at_its_start(site: Installation, name: str) -> None:
    erase(site)
    restore_copy(site, name)

    with site.daemon():
        pass

    lines = [json.loads(line) for line in (site.state / "slumberd.log").read_text().splitlines()]
    warned = [line for line in lines if line["event"] == "erasure.contradicted"]
    assert [(line["level"], Path(line["path"]).name) for line in warned] == [("warning", name)]


@pytest.mark.slow
def test_episode_newer_than_the_erasure_is_no_older_copy(site: Installation) -> None:
    erase(site)
    soon = SystemClock().now() + timedelta(minutes=2)  # later than the erasure, and not too late
    site.put(triple("new", "ann", "drinks", "water", user="ann", timestamp=soon))

    assert site.call("fire", "profile").returncode == 0

    assert users(site) == {"ann", "bob"}
    assert find_contradictions(site, "doctor") == []

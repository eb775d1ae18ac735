"""`slumberd export` writes what `slumberd import` reads, and facts with their lineage."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from slumberd.cli.commands import export as command
from tests.support.builders import at, episode, triple
from tests.support.installation import Installation, umask

pytestmark = pytest.mark.integration

TEA = triple("e1", "alice", "likes", "tea", timestamp=at(1))
MILK = triple("e2", "alice", "likes", "milk", timestamp=at(2), metadata={"n": 2**63})
OTHER = triple("e3", "bob", "likes", "rum", timestamp=at(10**7), user="bob")


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    made = Installation(tmp_path)
    made.put(TEA, MILK, OTHER)
    return made


def another(tmp_path: Path) -> Installation:
    (tmp_path / "another").mkdir()
    return Installation(tmp_path / "another")


@pytest.mark.slow
def test_exported_episodes_are_imported_with_equal_facts(
    site: Installation, tmp_path: Path
) -> None:
    file, copy = tmp_path / "all.jsonl.gz", another(tmp_path)

    exported = site.call("export", str(file))
    assert copy.call("import", str(file)).stdout.startswith("imported 3 (new 3,")

    assert (exported.returncode, exported.stdout, exported.stderr) == (0, "", "")
    assert copy.call("export").stdout == gzip.decompress(file.read_bytes()).decode()
    for fired in (site, copy):
        assert fired.call("fire", "--all").returncode == 0
    assert [one["payload"] for one in copy.lines("facts")] == [
        one["payload"] for one in site.lines("facts")
    ]


def test_new_file_is_for_owner_and_group_only(site: Installation, tmp_path: Path) -> None:
    with umask(0o022):
        site.call("export", str(tmp_path / "all.jsonl"))

    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o640


@pytest.mark.slow
def test_facts_have_their_channel_sources_and_firings(site: Installation) -> None:
    site.call("fire", "--all")

    done = site.call("export", "--kind", "facts", "--user", "bob", "--agent", "rag")

    (line,) = done.stdout.splitlines()
    found, (shown,) = json.loads(line), site.lines("facts", "--user", "bob")
    assert {key: found[key] for key in shown} == shown
    assert found["channel"] == "facts"
    assert found["sources"] == [
        {"id": "e3", "session": "s1", "at": shown["said_at"], "source_node": "chat"}
    ]
    (promotion,) = found["promotions"]
    assert (promotion["firing"], promotion["rule"], promotion["kind"]) == (
        "profile@2",
        "profile",
        "add",
    )
    assert promotion["at"] == shown["pinned_at"]


def test_unreadable_episode_is_reported_and_the_others_are_exported(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(site.state / "memory.db") as database:
        database.execute("UPDATE episodes SET metadata = '[' WHERE id <> 'e2'")
    database.close()
    monkeypatch.setattr(command, "MOST_PRINTED", 1)

    done = site.call("export")

    assert done.returncode == 65
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["e2"]
    first, last = done.stderr.splitlines()
    assert first.startswith("slumberd: episode 'e1' cannot be read: metadata_unreadable: ")
    assert last == "slumberd: and 1 more episodes that cannot be read"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("episodes", "there are no episodes yet"), ("facts", "no rule has fired yet")],
)
def test_export_of_nothing_is_refused_and_makes_no_file(
    tmp_path: Path, kind: str, problem: str
) -> None:
    site, file = another(tmp_path), tmp_path / "all.jsonl"

    done = site.call("export", str(file), "--kind", kind)

    assert done.returncode == 66
    assert problem in done.stderr
    assert not file.exists()


@pytest.mark.slow
def test_export_of_a_future_episode_logs_nothing(site: Installation) -> None:
    site.put(episode("e4", timestamp=at(10**10)))

    done = site.run("export")

    assert len(done.stdout.splitlines()) == 4
    assert done.stderr == ""


@pytest.mark.slow
def test_export_runs_beside_the_daemon(site: Installation) -> None:
    with site.daemon():
        done = site.run("export", "--user", "alice")

    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["e1", "e2"]

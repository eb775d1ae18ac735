"""Every command refuses files with an unknown schema, and leaves every byte of them as it is."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.installation import Installation
from tests.support.release_files import check_kept_facts, put_kept

pytestmark = pytest.mark.slow

COMMANDS = (
    "fire --all",
    "import put.jsonl",
    "pin --user ann --agent a --subject ann --predicate likes --object tea --reason r",
    "unpin e2 --reason r",
    "undo profile@1",
    "backfill profile",
    "forget --user ann --yes",
    "quarantine retry",
    "approve profile@1",
    "facts",
    "why e2",
    "status",
    "audit verify",
    "audit ls",
    "audit replay replayed.db",
)
READS = ("facts", "why e2", "audit verify", "audit ls", "status", "doctor")


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def newer(folder: Path) -> None:
    put_kept("0.2.0", folder)
    for name, component in (("memory", "episodes"), ("facts", "ledger")):
        with closing(sqlite3.connect(folder / f"{name}.db")) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS slumberd_schema"
                " (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"
            )
            connection.execute("REPLACE INTO slumberd_schema VALUES (?, 99)", [component])


@pytest.fixture(params=["0.1.0", "between/478c2d8b", "between/cb645acb", "newer"])
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    site = Installation(tmp_path)
    if request.param == "newer":
        site.state.mkdir()
        newer(site.state)
    else:
        put_kept(request.param, site.state)
    return site


@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_unknown_files_untouched(
    refused: Installation, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    episode = {"id": "n1", "content": "x", "timestamp": "2026-10-01T00:00:00Z", "user": "ann"}
    owner = {"agent": "a", "session": "s", "source_node": "chat", "metadata": {}}
    Path("put.jsonl").write_text(json.dumps({**episode, **owner}))
    before = digests(refused.state)

    done = refused.call(*command.split())

    found = {name: each for name, each in digests(refused.state).items() if name.endswith(".db")}
    assert done.returncode == 74, done.stdout + done.stderr
    assert found == before
    assert not [*refused.state.glob("*-wal"), *refused.state.glob("*-shm")]


def test_daemon_refuses_unknown_files_untouched(refused: Installation) -> None:
    before = digests(refused.state)

    done = refused.run("run")

    found = {name: each for name, each in digests(refused.state).items() if name.endswith(".db")}
    assert done.returncode == 74, done.stdout + done.stderr
    assert found == before


def test_unknown_facts_keep_the_episodes_from_an_upgrade(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    put_kept("between/bde00475", site.state)
    before = digests(site.state)

    done = site.call("fire", "--all")

    found = {name: each for name, each in digests(site.state).items() if name.endswith(".db")}
    assert done.returncode == 74
    assert found == before


@pytest.mark.parametrize("command", READS)
def test_command_reads_files_of_0_2_0_and_changes_no_byte(tmp_path: Path, command: str) -> None:
    site = Installation(tmp_path)
    put_kept("0.2.0", site.state)
    before = digests(site.state)

    done = site.look(*command.split())

    assert done.returncode in (0, 1), done.stderr
    assert digests(site.state) == before


def test_backup_of_files_of_0_2_0_is_restored_as_it_was(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    put_kept("0.2.0", site.state)
    assert site.call("backup", str(tmp_path / "copy")).returncode == 0
    assert site.call("fire", "--all").returncode == 0

    done = site.call("restore", str(tmp_path / "copy"))

    assert done.returncode == 0, done.stderr
    assert site.call("audit", "verify").returncode == 0
    with closing(sqlite3.connect(site.state / "facts.db")) as connection:
        number = connection.execute("SELECT version FROM slumberd_schema").fetchone()
    assert number == (2,)


def test_doctor_offers_a_backup_before_an_upgrade(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    put_kept("0.2.0", site.state)

    findings = json.loads(site.look("doctor", "--json").stdout)["findings"]

    older = [finding for finding in findings if finding["id"] == "store.older"]
    assert len(older) == 2
    assert all("`slumberd backup DIR`" in finding["remedy"] for finding in older)


def test_start_upgrades_files_of_0_2_0_and_keeps_every_fact(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    put_kept("0.2.0", site.state)

    assert site.call("fire", "--all").returncode == 0

    facts = [json.loads(line) for line in site.look("facts", "--json").stdout.splitlines()]
    check_kept_facts(facts, "0.2.0")
    assert site.look("audit", "verify").returncode == 0
    replayed = site.call("audit", "replay", str(tmp_path / "replayed.db"))
    assert replayed.returncode == 0, replayed.stderr


def test_backup_of_a_newer_release_is_not_restored(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    put_kept("0.2.0", site.state)
    backup = tmp_path / "copy"
    assert site.call("backup", str(backup)).returncode == 0
    with closing(sqlite3.connect(backup / "memory.db")) as connection, connection:
        connection.execute("CREATE TABLE slumberd_schema (component TEXT, version INTEGER)")
        connection.execute("INSERT INTO slumberd_schema VALUES ('episodes', 9)")
    manifest = json.loads((backup / "backup.json").read_text())
    content = (backup / "memory.db").read_bytes()
    for saved in manifest["files"]:
        if saved["name"] == "memory.db":
            saved["sha256"] = hashlib.sha256(content).hexdigest()
            saved["bytes"] = len(content)
    (backup / "backup.json").write_text(json.dumps(manifest))
    before = digests(site.state)

    done = site.call("restore", str(backup))

    assert done.returncode == 74
    assert "was written by a newer slumberd (episodes 9, ours is 3)" in done.stderr
    assert digests(site.state) == before

"""`slumberd backup` and `restore` at the command line: what they refuse, keep and report."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slumberd.daemon.file_exchange import JOURNAL, begin, finish
from slumberd.daemon.tenure import StateLock
from slumberd.model.errors import StoreError
from tests.support.builders import at, triple
from tests.support.command_arguments import installation_with_data
from tests.support.installation import Installation
from tests.support.repository import ROOT

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs/how-to/back-up-and-restore.md"
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("SELECT count(*) FROM episodes").fetchone()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    """Return a site with facts in two channels, and a backup of it."""
    site = installation_with_data(tmp_path)
    assert site.call("pause", "quiet").returncode == 0
    assert site.call("backup", str(backup_of(site))).returncode == 0
    return site


def backup_of(site: Installation) -> Path:
    return site.config.parent / "backup"


def fact_ids(site: Installation, *words: str) -> set[str]:
    return {fact["id"] for fact in site.lines("facts", *words)}


def change_facts(site: Installation) -> None:
    site.put(triple("e9", "alice", "likes", "gin", timestamp=at(9)))
    assert site.call("fire", "--all").returncode == 0
    assert site.call("resume", "quiet").returncode == 0


@contextmanager
def open_in_other_process(path: Path) -> Iterator[None]:
    """Keep a database open in another process."""
    words = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
        process.communicate()


@pytest.mark.slow
def test_restore_replaces_databases_and_paused_rules_and_keeps_the_older_files(
    site: Installation,
) -> None:
    before = fact_ids(site)
    change_facts(site)

    done = site.call("restore", str(backup_of(site)))

    assert done.returncode == 0, done.stderr
    assert fact_ids(site) == before
    assert "quiet" in (site.state / "paused.json").read_text()
    replaced = {path.name.partition(".replaced-")[0] for path in site.state.glob("*.replaced-*")}
    assert replaced == {"memory.db", "facts.db", "paused.json"}
    assert done.stdout.count("kept: ") == 3


@pytest.mark.slow
def test_sql_of_the_documentation_copies_newer_episodes_after_a_restore(site: Installation) -> None:
    change_facts(site)
    assert site.call("restore", str(backup_of(site))).returncode == 0
    before = fact_ids(site)
    [replaced] = site.state.glob("memory.db.replaced-*")
    [block] = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

    with closing(sqlite3.connect(site.state / "memory.db", isolation_level=None)) as connection:
        connection.executescript(re.sub(r"memory\.db\.replaced-\w+", str(replaced), block))
    assert site.call("fire", "--all").returncode == 0

    assert fact_ids(site) - before == {"e9", "@notes/e9"}


@pytest.mark.slow
def test_restore_moves_aside_a_file_that_the_backup_does_not_contain(site: Installation) -> None:
    (site.state / "paused.json").unlink()
    bare = backup_of(site).with_name("bare")
    assert site.call("backup", str(bare)).returncode == 0
    assert site.call("pause", "quiet").returncode == 0

    assert site.call("restore", str(bare)).returncode == 0

    assert not (site.state / "paused.json").exists()
    assert [*site.state.glob("paused.json.replaced-*")]


@pytest.mark.slow
def test_restore_moves_aside_the_write_ahead_log_of_the_older_database(site: Installation) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute("UPDATE facts SET confidence = 0.5")
        files = {end: (site.state / f"facts.db{end}").read_bytes() for end in ("-wal", "-shm")}
    (site.state / "facts.db").write_bytes(b"damaged" * 9999)
    for end, content in files.items():
        (site.state / f"facts.db{end}").write_bytes(content)

    assert site.call("restore", str(backup_of(site))).returncode == 0

    assert not (site.state / "facts.db-wal").exists()
    assert [*site.state.glob("facts.db.replaced-*-wal")]
    assert site.call("audit", "verify").returncode == 0


@pytest.mark.slow
def test_restore_is_refused_while_a_daemon_or_a_host_has_the_files_open(site: Installation) -> None:
    change_facts(site)
    before = fact_ids(site)

    with StateLock(site.state):
        with_daemon = site.call("restore", str(backup_of(site)))
    with open_in_other_process(site.state / "memory.db"):
        with_host = site.call("restore", str(backup_of(site)))

    assert (with_daemon.returncode, with_host.returncode) == (75, 75)
    assert "memory.db" in with_host.stderr
    assert fact_ids(site) == before
    assert not [*site.state.glob("*.restoring"), *site.state.glob("*.replaced-*")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory.db", "facts.db", "paused.json"])
def test_restore_of_a_changed_backup_is_refused_and_changes_nothing(
    site: Installation, name: str
) -> None:
    change_facts(site)
    before = fact_ids(site)
    content = bytearray((backup_of(site) / name).read_bytes())
    content[len(content) // 2] ^= 1
    (backup_of(site) / name).write_bytes(content)

    done = site.call("restore", str(backup_of(site)))

    assert done.returncode == 65
    assert f"is damaged: {name}" in done.stderr
    assert fact_ids(site) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda b: (b / "backup.json").unlink(), "is not complete", id="no manifest"),
        pytest.param(lambda b: (b / "notes").touch() or (b / "facts.db").unlink(), "is missing",
                     id="a missing file"),
        pytest.param(
            lambda b: (b / "backup.json").write_text(
                (b / "backup.json").read_text().replace('"facts.db"', '"../facts.db"')
            ),
            "cannot be read",
            id="a name outside of the backup",
        ),
        pytest.param(
            lambda b: (b / "backup.json").write_text(
                (b / "backup.json").read_text().replace('"head"', '"later": 1, "head"')
            ),
            "cannot be read",
            id="a key of a later version",
        ),
    ],
)  # fmt: skip
def test_restore_of_an_incomplete_backup_is_refused(
    site: Installation, change: object, problem: str
) -> None:
    change(backup_of(site))  # type: ignore[operator]

    done = site.call("restore", str(backup_of(site)))

    assert done.returncode == 65
    assert problem in done.stderr


@pytest.mark.slow
def test_backup_is_on_the_disk_before_its_directory_gets_its_name(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    assert site.call("backup", str(tmp_path / "again")).returncode == 0

    inside = [path for path in synced if path.parent.name.startswith("again")]
    assert {path.name for path in inside} == {path.name for path in (tmp_path / "again").iterdir()}
    assert synced.index(tmp_path) > max(map(synced.index, inside))


@pytest.mark.slow
def test_backup_does_not_overwrite_an_older_backup(site: Installation, tmp_path: Path) -> None:
    manifest = (backup_of(site) / "backup.json").read_bytes()
    (tmp_path / "empty").mkdir()

    assert site.call("backup", str(backup_of(site))).returncode == 73
    assert (backup_of(site) / "backup.json").read_bytes() == manifest
    assert site.call("backup", str(tmp_path / "empty")).returncode == 0


@pytest.mark.slow
def test_second_backup_to_a_directory_in_use_is_refused(site: Installation, tmp_path: Path) -> None:
    place = tmp_path / "another.incomplete"
    place.mkdir()
    (place / "half").touch()
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    refused = site.call("backup", str(tmp_path / "another"))
    os.close(descriptor)
    left = (place / "half").exists()
    done = site.call("backup", str(tmp_path / "another"))

    assert (refused.returncode, left, done.returncode) == (75, True, 0)
    assert not (tmp_path / "another" / "half").exists()


def test_backup_without_episodes_exits_with_66(tmp_path: Path) -> None:
    site = Installation(tmp_path)

    assert site.call("backup", str(tmp_path / "backup")).returncode == 66
    assert site.call("restore", str(tmp_path / "backup")).returncode == 66
    assert [*tmp_path.glob("backup*")] == []


@pytest.mark.slow
def test_backup_of_a_damaged_database_is_refused(site: Installation, tmp_path: Path) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute("UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")

    done = site.call("backup", str(tmp_path / "another"))

    assert done.returncode == 74
    assert "ledger that is broken at row 2" in done.stderr
    assert [*tmp_path.glob("another*")] == []


@pytest.mark.slow
def test_restore_reports_erasures_after_the_backup(site: Installation) -> None:
    assert site.call("forget", "--user", "alice", "--yes").returncode == 0

    done = site.call("restore", str(backup_of(site)))

    assert done.returncode == 0
    assert "erasure is newer than the backup: run `slumberd forget` again" in done.stderr


@pytest.mark.path
def test_backup_contains_the_key_only_with_the_option_with_key(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    key = tmp_path / "ledger.key"
    key.touch(0o600)
    key.write_bytes(b"k" * 32)
    site.config.write_text(site.config.read_text() + f"facts: {{key_file: {key}}}\n")
    site.put(triple("e1", "alice", "likes", "tea"))
    assert site.call("fire", "--all").returncode == 0

    without = site.call("backup", str(tmp_path / "without"))
    with_key = site.call("backup", str(tmp_path / "with"), "--with-key")

    assert "not in it: the key of the ledger" in without.stdout
    assert not (tmp_path / "without" / "ledger.key").exists()
    assert with_key.returncode == 0
    saved = tmp_path / "with" / "ledger.key"
    assert saved.read_bytes() == key.read_bytes()
    assert saved.stat().st_mode & 0o777 == 0o600
    assert site.call("restore", str(tmp_path / "without")).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_backup_and_restore_preserve_owners_and_modes(site: Installation, tmp_path: Path) -> None:
    owner = pwd.getpwnam("nobody")
    for name, mode in (("memory.db", 0o660), ("facts.db", 0o640)):
        os.chown(site.state / name, owner.pw_uid, owner.pw_gid)
        (site.state / name).chmod(mode)
    folder = tmp_path / "owned"
    assert site.call("backup", str(folder)).returncode == 0
    for name in ("memory.db", "facts.db"):
        os.chown(site.state / name, 0, 0)

    assert site.call("restore", str(folder)).returncode == 0

    for place in (folder, site.state):
        for name, mode in (("memory.db", 0o660), ("facts.db", 0o640)):
            status = (place / name).stat()
            assert (status.st_uid, status.st_gid) == (owner.pw_uid, owner.pw_gid)
            assert status.st_mode & 0o777 == mode
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.path
def test_backup_refuses_a_pipe_in_place_of_a_file(site: Installation, tmp_path: Path) -> None:
    (site.state / "paused.json").unlink()
    os.mkfifo(site.state / "paused.json")

    done = site.call("backup", str(tmp_path / "another"))

    assert done.returncode == 74
    assert "is no regular file" in done.stderr


@pytest.mark.slow
def test_restore_does_not_replace_a_database_that_is_a_link(site: Installation) -> None:
    (site.state / "memory.db").rename(site.state / "real.db")
    (site.state / "memory.db").symlink_to("real.db")

    done = site.call("restore", str(backup_of(site)))

    assert done.returncode == 74
    assert "is a link" in done.stderr


@pytest.mark.path
def test_doctor_finds_an_unfinished_restore(site: Installation) -> None:
    begin(site.state, "20260101T000000Z", {})

    found = json.loads(site.look("doctor", "--json").stdout)["findings"]
    check = site.look("status", "--check")

    assert "restore.unfinished" in {finding["id"] for finding in found}
    assert "restore.unfinished" in check.stdout
    assert "run `slumberd restore DIR` again" in check.stdout


@pytest.mark.slow
def test_backup_is_refused_when_a_restore_replaces_a_database_meanwhile(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, other = site.state / "facts.db", tmp_path / "other.db"
    shutil.copy(facts, other)

    class Replacing(sqlite3.Connection):
        """Replaces a database once, when the copying begins."""

        def backup(self, target: sqlite3.Connection, **options: Any) -> None:
            if other.exists():
                other.replace(facts)
            super().backup(target, **options)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Replacing))
    done = site.call("backup", str(tmp_path / "again"))

    assert done.returncode == 75
    assert "was replaced while it was backed up" in done.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_backup_is_refused_while_a_restore_is_unfinished(
    site: Installation, tmp_path: Path
) -> None:
    begin(site.state, "20260101T000000Z", {})

    refused = site.call("backup", str(tmp_path / "another"))
    assert site.call("fire", "--all").returncode == 0
    done = site.call("backup", str(tmp_path / "another"))

    assert (refused.returncode, done.returncode) == (75, 0)
    assert f"{str(site.state)!r} holds a restore that is not finished" in refused.stderr


@pytest.mark.slow
def test_doctor_suggests_a_restore_of_a_damaged_database(site: Installation) -> None:
    with (site.state / "facts.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 9999)

    found = json.loads(site.look("doctor", "--json").stdout)["findings"]

    [damaged] = [finding for finding in found if finding["id"] == "store.damaged"]
    assert "`slumberd restore DIR`" in damaged["remedy"]
    assert site.call("restore", str(backup_of(site))).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"version": 1, "stamp": "../../etc", "changes": {}}',
        '{"version": 1, "stamp": "20260101T000000Z", "changes": {"/etc/passwd": true}}',
    ],
)
def test_forged_restore_journal_is_refused(site: Installation, text: str) -> None:
    (site.state / JOURNAL).write_text(text)

    done = site.call("fire", "--all")

    assert done.returncode == 74
    assert JOURNAL in done.stderr


def test_restore_journal_that_names_an_unknown_file_is_not_finished(tmp_path: Path) -> None:
    target = tmp_path / "memory.db"
    target.write_text("old")
    begin(tmp_path, "20260101T000000Z", {"memory": False})

    assert finish(tmp_path, {"memory": target}) == [
        tmp_path / "memory.db.replaced-20260101T000000Z"
    ]
    assert not target.exists()
    begin(tmp_path, "20260101T000000Z", {"memory": True})
    with pytest.raises(StoreError, match="names 'memory'"):
        finish(tmp_path, {})


@pytest.mark.path
def test_backup_in_json_lists_its_files(site: Installation, tmp_path: Path) -> None:
    (backed_up,) = site.lines("backup", str(tmp_path / "more"))
    (verified,) = site.lines("restore", str(tmp_path / "more"), "--check")

    assert [file["name"] for file in backed_up["files"]] == ["memory.db", "facts.db", "paused.json"]
    assert backed_up["ledger"]["rows"] > 0
    assert verified["files"] == backed_up["files"]
    assert json.loads((tmp_path / "more" / "backup.json").read_text())["format"] == 1

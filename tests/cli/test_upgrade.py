"""`slumberd upgrade`: files of 0.1.0 are carried over, and later files are upgraded in place."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.installation import CONFIG, Installation
from tests.support.release_files import (
    DECLARED,
    FIRST,
    RULES,
    check_kept_facts,
    kept_facts,
    key_setting,
    put_kept,
)

pytestmark = pytest.mark.slow


def old_site(folder: Path, release: str = "0.1.0") -> Installation:
    site = Installation(folder)
    site.rules.write_text(RULES)
    if release.startswith("keyed"):
        site.config.write_text(CONFIG + key_setting(folder))
    put_kept(release, site.state)
    return site


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def carried(site: Installation, *, code: int = 0) -> Installation:
    """Carry the files over, and let the configuration name the new directory."""
    new = site.config.parent / "new"
    done = site.call("upgrade", "--to", str(new))
    assert done.returncode == code, done.stderr
    if code:
        return site
    text = site.config.read_text().replace("state_dir: state", "state_dir: new")
    site.config.write_text(text)
    site.state = new
    return site


def without_names(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact with the names that 0.1.0 had for an edit."""
    lineage = [
        {**entry, "kind": "hand", "rule_id": "@hand"} if entry.get("kind") == "manual" else entry
        for entry in fact["lineage"]
    ]
    return {**fact, "lineage": lineage}


@pytest.mark.parametrize("release", ["0.1.0", "keyed/0.1.0"])
def test_files_of_0_1_0_are_carried_over_and_stay_as_they_are(tmp_path: Path, release: str) -> None:
    site = old_site(tmp_path, release)
    old = site.state
    before = digests(old)

    carried(site)

    assert digests(old) == before
    assert [without_names(fact) for fact in site.lines("facts")] == kept_facts(release)
    assert site.look("audit", "verify").returncode == 0
    assert site.call("fire", "--all").returncode == 0
    assert [without_names(fact) for fact in site.lines("facts")] == kept_facts(release)
    replay = site.call("audit", "replay", str(tmp_path / "replayed.db"))
    assert "nothing differs" in replay.stdout
    assert site.look("doctor", "--json").returncode in (0, 1)


def test_carried_ledger_says_where_it_comes_from(tmp_path: Path) -> None:
    site = old_site(tmp_path)
    with closing(sqlite3.connect(site.state / "facts.db")) as connection:
        rows, head = connection.execute(
            "SELECT seq, hex(chain) FROM slumberd_ledger ORDER BY seq DESC LIMIT 1"
        ).fetchone()

    carried(site)

    with closing(sqlite3.connect(site.state / "facts.db")) as connection:
        seq, payload = connection.execute(
            "SELECT seq, payload FROM slumberd_ledger ORDER BY seq DESC LIMIT 1"
        ).fetchone()
    document = json.loads(payload)
    assert (seq, document["rule"], document["release"]) == (rows + 1, "@copy", "0.1.0")
    assert document["copied"]["head"] == head.lower()
    assert document["by"].startswith("uid ")


def test_erased_scopes_of_0_1_0_stay_erased(tmp_path: Path) -> None:
    site = carried(old_site(tmp_path))
    erased = [episode for episode in FIRST if episode["user"] == "zed"]
    file = tmp_path / "again.jsonl"
    file.write_text("".join(f"{json.dumps(episode)}\n" for episode in erased))

    done = site.call("import", str(file))

    assert "is not newer than the erasure of its scope" in done.stderr
    site.call("fire", "--all")
    assert not [fact for fact in site.lines("facts") if fact["user"] == "zed"]
    assert site.look("audit", "verify").returncode == 0


def test_history_of_0_1_0_can_be_undone_edited_and_erased(tmp_path: Path) -> None:
    site = carried(old_site(tmp_path))
    edits = [
        record["firing_id"]
        for record in site.lines("audit", "ls")
        if record["rule_id"] == "@manual" and record["fact_id"] == "m1"
    ]

    assert site.call("undo", edits[0]).returncode == 0
    assert "m1" not in {fact["id"] for fact in site.lines("facts")}
    assert site.call("backfill", "profile").returncode == 0
    assert site.call("forget", "--user", "bob", "--yes").returncode == 0

    facts = site.lines("facts")
    assert {fact["user"] for fact in facts} == {"ann"}
    assert site.look("audit", "verify").returncode == 0
    why = site.look("why", "e2")
    assert why.returncode == 0, why.stderr


def test_change_that_0_1_0_had_not_recorded_is_recorded(tmp_path: Path) -> None:
    site = old_site(tmp_path)
    values = [value.decode() if isinstance(value, bytes) else value for value in DECLARED]
    quoted = ", ".join(f"'{value}'" for value in ["d2", *values[1:]])
    change(
        site.state / "facts.db",
        "ALTER TABLE facts ADD COLUMN note TEXT DEFAULT 'of the host'",
        f"INSERT INTO facts VALUES ({quoted}, 'x')".replace("'1.0'", "1.0"),
        "CREATE TABLE notes (text)",
        "PRAGMA user_version = 7",
    )

    carried(site)

    assert "d2" in {fact["id"] for fact in site.lines("facts")}
    assert site.look("audit", "verify").returncode == 0
    with closing(sqlite3.connect(site.state / "facts.db")) as connection:
        notes = connection.execute("SELECT note FROM facts WHERE fact_id = 'd2'").fetchall()
        assert notes == [("x",)]
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)


TAMPERED = {
    "payload": "UPDATE slumberd_ledger SET payload ="
    " CAST(replace(payload, 'jazz', 'punk') AS BLOB)"
    " WHERE fact_id = 'e4'",
    "row gone": "DELETE FROM slumberd_ledger WHERE seq = 12",
    "last row gone": "DELETE FROM slumberd_ledger WHERE seq = 34",
    "blanked": "UPDATE slumberd_ledger SET salt = NULL, payload = NULL, fact_id = NULL, at = NULL,"
    " key_id = NULL, replaces = NULL WHERE seq = 19",
    "table gone": "DROP TABLE slumberd_touched",
    "column gone": "ALTER TABLE slumberd_held DROP COLUMN problem",
    "fact": "UPDATE facts SET confidence = 0.5 WHERE fact_id = 'e2'",
}


@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED)
def test_ledger_that_somebody_changed_is_not_carried_over(tmp_path: Path, statement: str) -> None:
    site = old_site(tmp_path)
    change(
        site.state / "facts.db",
        "UPDATE slumberd_numbers SET value = 1 WHERE name = 'ours'",
        statement,
        "UPDATE slumberd_numbers SET value = 0 WHERE name = 'ours'",
    )
    before = digests(site.state)

    carried(site, code=74)

    assert digests(site.state) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rules.d", "slumberd.yaml", "state",
    ]  # fmt: skip


def test_ledger_with_a_key_is_not_carried_over_without_it(tmp_path: Path) -> None:
    site = old_site(tmp_path, "keyed/0.1.0")
    site.config.write_text(CONFIG)

    carried(site, code=78)


def test_new_directory_must_be_empty(tmp_path: Path) -> None:
    site = old_site(tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()

    carried(site, code=73)


@pytest.mark.parametrize("release", ["0.2.0", "between/478c2d8b"])
def test_only_files_of_0_1_0_are_carried_over(tmp_path: Path, release: str) -> None:
    site = old_site(tmp_path, release)
    before = digests(site.state)

    carried(site, code=64)

    assert digests(site.state) == before
    assert not (tmp_path / "new").exists()


def test_files_of_0_2_0_are_upgraded_in_place_once_a_person_agrees(tmp_path: Path) -> None:
    site = old_site(tmp_path, "0.2.0")
    before = digests(site.state)

    asked = site.call("upgrade")
    assert (asked.returncode, digests(site.state)) == (64, before)
    done = site.call("upgrade", "--yes", "--json")
    again = site.call("upgrade")

    versions = {"former": 2, "schema": 3}
    assert json.loads(done.stdout) == {"memory": versions, "facts": versions}
    assert (again.returncode, again.stdout) == (0, "")
    assert "the files have the newest schema" in again.stderr
    check_kept_facts(site.lines("facts"), "0.2.0")


@pytest.mark.parametrize("release", ["0.1.0", "between/478c2d8b"])
def test_other_files_are_not_upgraded_in_place(tmp_path: Path, release: str) -> None:
    site = old_site(tmp_path, release)
    before = digests(site.state)

    done = site.call("upgrade", "--yes")

    assert done.returncode == 74
    assert digests(site.state) == before


def test_keyed_files_of_0_2_0_verify_before_and_after(tmp_path: Path) -> None:
    site = old_site(tmp_path, "keyed/0.2.0")
    assert site.look("audit", "verify").returncode == 0

    assert site.call("upgrade", "--yes").returncode == 0

    assert site.look("audit", "verify").returncode == 0
    check_kept_facts(site.lines("facts"), "keyed/0.2.0")

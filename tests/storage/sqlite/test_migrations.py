"""Versions of slumberd's own tables, and what the file alone shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.errors import SchemaError
from slumberd.storage.sqlite import health
from slumberd.storage.sqlite.migrations import upgrade

pytestmark = pytest.mark.unit

FIRST = "CREATE TABLE a (x); CREATE INDEX i ON a (x)"
SECOND = """
CREATE TABLE b (note TEXT DEFAULT 'a;b');
CREATE TRIGGER t AFTER INSERT ON a BEGIN
  INSERT INTO b VALUES ('x');
  INSERT INTO b VALUES ('y');
END;
"""
BROKEN = "CREATE TABLE c (x); CREATE TABLE a (x);"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as opened:
        yield opened


def names(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    return {name for (name,) in found}


def version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT version FROM slumberd_schema").fetchone()[0]
    return found


def test_every_step_runs_once_in_order(connection: sqlite3.Connection) -> None:
    upgrade(connection, [FIRST], component="ledger")
    upgrade(connection, [FIRST, SECOND], component="ledger")
    upgrade(connection, [FIRST, SECOND], component="ledger")

    assert names(connection) == {"slumberd_schema", "a", "i", "b", "t"}
    assert version(connection) == 2


def test_components_of_one_file_keep_their_own_versions(connection: sqlite3.Connection) -> None:
    upgrade(connection, [FIRST], component="one")
    upgrade(connection, ["CREATE TABLE z (x)"], component="two")

    assert {"a", "z"} <= names(connection)


def test_failed_step_is_rolled_back(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        upgrade(connection, [FIRST, BROKEN], component="ledger")

    assert "c" not in names(connection)
    assert version(connection) == 1


def test_truncated_script_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="ends within a statement"):
        upgrade(connection, ["CREATE TABLE c (x); SELECT 'oh"], component="ledger")

    assert names(connection) == {"slumberd_schema"}


def test_error_names_a_file_of_a_newer_slumberd(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    upgrade(connection, [FIRST, SECOND], component="ledger")

    with pytest.raises(SchemaError, match=r"written by a newer slumberd \(ledger 2, ours is 1\)"):
        upgrade(connection, [FIRST], component="ledger")


def test_file_system_of_a_missing_path_is_reported(tmp_path: Path) -> None:
    assert health.fs_type(Path("/proc/self/status")) == "proc"
    assert health.fs_type(tmp_path / "not" / "there") not in ("", "unknown")


def test_write_lock_is_free_until_a_program_holds_it(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    connection.execute("CREATE TABLE a (x)")

    before = health.lock_state(path)
    connection.execute("BEGIN IMMEDIATE")

    assert (before, health.lock_state(path)) == ("free", "held")
    assert health.lock_state(tmp_path / "none.db") == "free"
    assert not (tmp_path / "none.db").exists()

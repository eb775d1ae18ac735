"""Schemas of slumberd's own tables, and what the file alone shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.errors import SchemaError
from slumberd.storage.sqlite import health
from slumberd.storage.sqlite.file_schema import FileSchema, find_number, prepare_reader, upgrade
from slumberd.storage.sqlite.session import transaction

pytestmark = pytest.mark.unit

FIRST = "CREATE TABLE slumberd_a (x); CREATE INDEX slumberd_i ON slumberd_a (x)"
SECOND = """
CREATE TABLE slumberd_b (note TEXT DEFAULT 'a;b', more);
CREATE TRIGGER t AFTER INSERT ON slumberd_a BEGIN
  INSERT INTO slumberd_b (note) VALUES ('x');
  INSERT INTO slumberd_b (note) VALUES ('y');
END;
"""
THIRD = "ALTER TABLE slumberd_a ADD COLUMN y; DROP INDEX slumberd_i"
BROKEN = "CREATE TABLE slumberd_c (x); CREATE TABLE slumberd_a (x);"


def schema(*steps: str, component: str = "ledger") -> FileSchema:
    return FileSchema(component, steps, unnumbered=None, repairs=False, remedy="ask somebody")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as opened:
        yield opened


def bring_up(connection: sqlite3.Connection, wanted: FileSchema) -> int:
    with transaction(connection):
        return upgrade(connection, wanted)


def names(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    return {name for (name,) in found}


def test_every_step_runs_once_in_order(connection: sqlite3.Connection) -> None:
    former = [
        bring_up(connection, schema(*steps))
        for steps in ([FIRST], [FIRST, SECOND], [FIRST, SECOND, THIRD], [FIRST, SECOND, THIRD])
    ]

    assert former == [0, 2, 3, 4]
    assert names(connection) == {"slumberd_schema", "slumberd_a", "slumberd_b", "t"}
    assert find_number(connection, schema(FIRST, SECOND, THIRD)) == 4


def test_new_file_has_the_tables_of_an_upgraded_one(connection: sqlite3.Connection) -> None:
    bring_up(connection, schema(FIRST, SECOND, THIRD))

    assert find_number(connection, schema(FIRST, SECOND, THIRD)) == 4


def test_components_of_one_file_keep_their_own_numbers(connection: sqlite3.Connection) -> None:
    other = schema("CREATE TABLE slumberd_z (x)", component="other")
    bring_up(connection, schema(FIRST, SECOND))
    bring_up(connection, other)

    assert find_number(connection, schema(FIRST, SECOND)) == 3
    assert find_number(connection, other) == 2


@pytest.mark.parametrize("cut", [BROKEN, "CREATE TABLE slumberd_c (x); SELECT 'oh"])
def test_failed_step_is_rolled_back_with_all_others(
    connection: sqlite3.Connection, cut: str
) -> None:
    bring_up(connection, schema(FIRST))
    before = names(connection)

    # A script that does not even run in memory has no form; the upgrade fails before.
    with pytest.raises((sqlite3.OperationalError, ValueError)):
        bring_up(connection, schema(FIRST, SECOND, cut))

    assert names(connection) == before
    assert find_number(connection, schema(FIRST)) == 2


def test_error_names_a_file_of_a_newer_slumberd(connection: sqlite3.Connection) -> None:
    bring_up(connection, schema(FIRST, SECOND))

    with pytest.raises(SchemaError, match=r"written by a newer slumberd \(ledger 3, ours is 2\)"):
        bring_up(connection, schema(FIRST))


def test_reader_of_an_older_file_sees_the_missing_tables_empty(
    connection: sqlite3.Connection,
) -> None:
    bring_up(connection, schema(FIRST))
    connection.execute("PRAGMA query_only = ON")

    prepare_reader(connection, schema(FIRST, SECOND))

    assert connection.execute("SELECT note, more FROM slumberd_b").fetchall() == []
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO slumberd_a VALUES (1)")
    assert "slumberd_b" not in names(connection)


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

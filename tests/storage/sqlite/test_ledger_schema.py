"""The ledger's tables: created once, and refused in the form of slumberd 0.1.0."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd import SQLiteFactStore, SQLiteMemoryStore
from slumberd.model.errors import SchemaError
from tests.support.installation import Installation

pytestmark = pytest.mark.integration

OF_0_1_0 = r"written by slumberd 0\.1\.0 \(ledger 1, ours is 3\).*`slumberd upgrade --to DIR`"


def write_facts_of_0_1_0(path: Path) -> None:
    """Create the tables that identify a file of slumberd 0.1.0."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """
            CREATE TABLE slumberd_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL);
            INSERT INTO slumberd_schema VALUES ('ledger', 1);
            CREATE TABLE slumberd_ledger (seq INTEGER PRIMARY KEY, what INTEGER) STRICT;
            CREATE TABLE slumberd_names (name TEXT, namer TEXT);
            """
        )


async def test_a_file_of_slumberd_0_1_0_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    write_facts_of_0_1_0(path)

    async with SQLiteFactStore(path) as store:
        with pytest.raises(SchemaError, match=OF_0_1_0) as caught:
            await store.bootstrap()

    assert caught.value.exit_code == 74
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        assert {name for (name,) in tables} == {
            "slumberd_schema", "slumberd_ledger", "slumberd_names",
        }  # fmt: skip


async def test_health_reports_a_file_of_slumberd_0_1_0(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    async with SQLiteFactStore(path) as store:
        await store.bootstrap()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE slumberd_schema SET version = 1")

        health = await store.health()

    assert not health.ok
    assert "was written by slumberd 0.1.0 (ledger 1, ours is 3)" in health.warnings[0]


async def test_a_new_file_has_the_newest_version(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    async with SQLiteFactStore(path) as store:
        await store.bootstrap()
        await store.bootstrap()

    with closing(sqlite3.connect(path)) as connection:
        versions = connection.execute("SELECT component, version FROM slumberd_schema").fetchall()
    assert versions == [("ledger", 3)]


async def test_erased_scopes_of_slumberd_0_1_0_are_never_ignored(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE slumberd_forgotten (digest BLOB, moment INTEGER)")

    async with SQLiteMemoryStore(path) as store:
        with pytest.raises(
            SchemaError,
            match=r"erased scopes of slumberd 0\.1\.0.*`slumberd upgrade --to DIR` carries",
        ):
            await store.bootstrap()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["facts", "audit ls", "audit verify", "audit export", "why e1", "status", "fire --all"],
)
def test_commands_refuse_a_file_of_slumberd_0_1_0(tmp_path: Path, command: str) -> None:
    site = Installation(tmp_path)
    site.state.mkdir()
    write_facts_of_0_1_0(site.state / "facts.db")

    done = site.call(*command.split())

    assert done.returncode == 74
    assert "was written by slumberd 0.1.0 (ledger 1, ours is 3)" in done.stderr

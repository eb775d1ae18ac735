"""The file of facts: its table, its mode, its lock, and the errors that name it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.errors import MigrationNotSupported, SchemaError
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.integration


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteFactStore]:
    path = tmp_path / "facts.db"
    async with SQLiteFactStore(path, synchronous="normal", clock=FakeClock()) as opened:
        await opened.bootstrap()
        yield opened


@pytest.fixture
def connection(store: SQLiteFactStore) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(store.path)) as opened:
        yield opened


async def test_bootstrap_creates_the_table_of_stargraph(
    store: SQLiteFactStore, connection: sqlite3.Connection
) -> None:
    await store.bootstrap()

    columns = connection.execute("PRAGMA table_info(facts)").fetchall()
    assert [(name, kind, notnull, key) for _, name, kind, notnull, _, key in columns] == [
        ("fact_id", "TEXT", 0, 1),
        ("user", "TEXT", 1, 0),
        ("agent", "TEXT", 1, 0),
        ("payload", "BLOB", 1, 0),
        ("lineage", "BLOB", 1, 0),
        ("confidence", "REAL", 1, 0),
        ("metadata", "BLOB", 1, 0),
        ("pinned_at", "TEXT", 1, 0),
    ]


async def test_migration_adds_a_column_to_the_table(
    store: SQLiteFactStore, connection: sqlite3.Connection
) -> None:
    column = {"op": "add_column", "table": "facts", "column": "note", "nullable": True}

    await store.migrate(MigrationPlan(target_version=2, operations=[column]))

    assert "note" in [row[1] for row in connection.execute("PRAGMA table_info(facts)")]


async def test_refused_migration_names_the_kind_of_store(tmp_path: Path) -> None:
    plan = MigrationPlan(target_version=2, operations=[{"op": "drop_table", "table": "facts"}])
    names = []
    for store in (SQLiteFactStore(tmp_path / "f.db"), SQLiteMemoryStore(tmp_path / "m.db")):
        async with store:
            with pytest.raises(MigrationNotSupported) as refused:
                await store.migrate(plan)
        names.append(refused.value.store)

    assert names == ["sqlite_fact", "sqlite_memory"]


async def test_health_of_a_missing_file_creates_none(tmp_path: Path) -> None:
    health = await SQLiteFactStore(tmp_path / "facts.db").health()

    assert not health.ok
    assert list(tmp_path.iterdir()) == []


async def test_health_reports_that_another_program_holds_the_lock(
    store: SQLiteFactStore, connection: sqlite3.Connection
) -> None:
    connection.execute("BEGIN IMMEDIATE")

    health = await store.health()

    assert health.lock_state == "held"


async def test_error_names_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    path.write_text("this is a diary, not a database\n" * 99)

    with pytest.raises(SchemaError, match=r"facts\.db"):
        await SQLiteFactStore(path).bootstrap()


async def test_a_new_file_is_for_owner_and_group_only(store: SQLiteFactStore) -> None:
    assert store.path.stat().st_mode & 0o007 == 0

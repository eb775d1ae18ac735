"""Columns that hosts add to the specified tables: a plan is applied whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.model.errors import MigrationNotSupportedError
from slumberd.model.store_status import MigrationPlan
from slumberd.storage.sqlite import file_schema
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import open_stores

pytestmark = pytest.mark.integration

Store = SQLiteMemoryStore | SQLiteFactStore
TABLES = {"sqlite_memory": "episodes", "sqlite_fact": "facts"}


@pytest.fixture(params=TABLES)
async def named(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Store]]:
    """Return a store of either kind without a file, and its name in errors."""
    kind = SQLiteMemoryStore if request.param == "sqlite_memory" else SQLiteFactStore
    async with kind(tmp_path / "store.db", clock=FakeClock()) as store:
        yield request.param, store


def plan_for(name: str, *operations: dict[str, Any], version: int = 2) -> MigrationPlan:
    usual = {"op": "add_column", "table": TABLES[name], "column": "note", "nullable": True}
    steps = [{**usual, **operation} for operation in operations]
    return MigrationPlan(target_version=version, operations=steps)


def columns_of(path: Path, name: str) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"PRAGMA table_info({TABLES[name]})").fetchall()
    return {column: kind for _, column, kind, *_ in found}


def ledger_of(path: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version, applied_at FROM _migrations").fetchall()


async def test_plan_is_applied_to_a_file_that_does_not_exist_yet(
    named: tuple[str, Store], tmp_path: Path
) -> None:
    name, store = named

    await store.migrate(plan_for(name, {"column": "a"}, {"column": "b", "type": "INTEGER"}))
    await store.migrate(plan_for(name, {"column": "A"}, version=5))
    await store.migrate(plan_for(name, {"column": "a"}))

    added = list(columns_of(tmp_path / "store.db", name).items())[-2:]
    assert added == [("a", "TEXT"), ("b", "INTEGER")]
    at = FakeClock().now().isoformat()
    assert ledger_of(tmp_path / "store.db") == [(2, at), (5, at)]
    health = await store.health()
    assert (health.ok, health.version, health.warnings) == (True, 5, [])


LONG = "n" * 129
REFUSED = [
    pytest.param({"op": "drop_column"}, "v1-add-column-only", id="another operation"),
    pytest.param({"nullable": False}, "non-nullable-add", id="not nullable"),
    pytest.param({"nullable": None}, "non-nullable-add", id="null for nullable"),
    pytest.param({"column": "a\0b"}, "missing-fields", id="NUL"),
    pytest.param({"column": ["a"]}, "missing-fields", id="no text"),
    pytest.param({"default": "x"}, "unsupported field 'default'", id="a default"),
    pytest.param({"table": "_migrations"}, "unknown table '_migrations'", id="its own ledger"),
    pytest.param({"table": "slumberd_ledger"}, "unknown table 'slumberd_ledger'", id="ours"),
    pytest.param({"type": "TEXT DEFAULT 1"}, "unusable type 'TEXT DEFAULT 1'", id="two words"),
    pytest.param(
        {"column": "new", "type": "NULL"}, "has type '' and not 'NULL'", id="a type that is none"
    ),
    pytest.param(
        {"column": "new", "type": "UNIQUE"},
        "SQLite says: Cannot add a UNIQUE column",
        id="a constraint",
    ),
    pytest.param({"column": "new", "type": "AS"}, "SQLite says: ", id="a word of SQL"),
    pytest.param({"column": "ROWID"}, "column 'ROWID' would hide SQLite's own", id="rowid"),
    pytest.param({"column": "_rowid_"}, "would hide SQLite's own", id="another rowid"),
    pytest.param({"column": "note", "type": "BLOB"}, "has type 'TEXT' and not 'BLOB'", id="typed"),
    pytest.param({"column": "NOTE", "type": "REAL"}, "has type 'TEXT' and not 'REAL'", id="cased"),
    pytest.param({"column": LONG}, f"unusable column {LONG[:128]!r}", id="a long name"),
    pytest.param({"column": "\ud800"}, "unusable column '\\ud800'", id="no Unicode"),
]


@pytest.mark.parametrize(("operation", "reason"), REFUSED)
async def test_plan_with_an_unsupported_operation_is_refused_whole(
    named: tuple[str, Store], tmp_path: Path, operation: dict[str, Any], reason: str
) -> None:
    name, store = named
    await store.migrate(plan_for(name, {}))
    before = columns_of(tmp_path / "store.db", name)

    with pytest.raises(MigrationNotSupportedError) as refused:
        await store.migrate(plan_for(name, {"column": "good"}, operation, version=3))

    error = refused.value
    assert reason in error.reason
    assert (error.store, error.operation) == (name, operation.get("op", "add_column"))
    assert columns_of(tmp_path / "store.db", name) == before
    assert (await store.health()).version == 2


@pytest.mark.parametrize("column", ["payload", "content"])
async def test_column_of_another_type_is_refused(named: tuple[str, Store], column: str) -> None:
    name, store = named
    if (name, column) not in (("sqlite_memory", "content"), ("sqlite_fact", "payload")):
        return

    with pytest.raises(MigrationNotSupportedError, match="has type 'BLOB' and not 'TEXT'"):
        await store.migrate(plan_for(name, {"column": column}))


@pytest.mark.parametrize("version", [0, -1, 2**63, 2**70])
async def test_a_version_that_cannot_be_recorded_is_refused(
    named: tuple[str, Store], tmp_path: Path, version: int
) -> None:
    name, store = named

    with pytest.raises(MigrationNotSupportedError, match="write 1 or more") as refused:
        await store.migrate(plan_for(name, {}, version=version))

    assert refused.value.operation == "target_version"
    assert "note" not in columns_of(tmp_path / "store.db", name)


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE _migrations (id INTEGER, name TEXT)",
        "CREATE TABLE _migrations (version INTEGER, applied_at TEXT, by TEXT NOT NULL)",
        "CREATE VIEW _migrations AS SELECT 1 AS version, '' AS applied_at",
    ],
)
async def test_migration_table_of_another_program_is_not_changed(
    named: tuple[str, Store], tmp_path: Path, theirs: str
) -> None:
    name, store = named
    await store.bootstrap()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute(theirs)

    with pytest.raises(MigrationNotSupportedError, match="belongs to another program"):
        await store.migrate(plan_for(name, {}))

    assert "note" not in columns_of(tmp_path / "store.db", name)
    health = await store.health()
    assert (health.ok, health.version) == (True, 1)


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
@example('"; DROP TABLE facts; --')
@example("select")
@example("É")
@example("[a]`b`'c'")
@example("\n\t ")
def test_a_column_of_any_name_is_added_once_or_refused(name: str) -> None:
    """The name is added beside its capitals, which SQLite distinguishes except for a to z."""
    operation = {"op": "add_column", "table": "facts", "column": name, "nullable": True}
    capitals = {**operation, "column": name.upper()}
    plan = MigrationPlan(target_version=2, operations=[operation, capitals, operation])

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE facts (id TEXT)")
        refused = ""
        try:
            file_schema.add_columns(
                connection, plan, store="sqlite_fact", tables=["facts"], at="now"
            )
        except MigrationNotSupportedError as error:
            refused = error.reason
        found = [row[1] for row in connection.execute("PRAGMA table_info(facts)")][1:]

    added = (
        {added_name.encode().lower(): added_name for added_name in (name.upper(), name)}
        if not refused
        else {}
    )
    added.pop(b"id", None)
    assert sorted(found) == sorted(added.values())
    assert bool(refused) == ("\0" in name or name.lower() in ("rowid", "oid", "_rowid_"))


async def test_episodes_before_and_after_a_migration_are_consolidated_and_verified(
    tmp_path: Path,
) -> None:
    """Another program fills the new columns of both tables."""
    async with open_stores(tmp_path) as home:
        await home.put(triple("e1", "s", "is", "a"))
        await home.fire()

        await home.memory.migrate(plan_for("sqlite_memory", {"column": "mood"}))
        await home.facts.migrate(plan_for("sqlite_fact", {"column": "mood"}))
        with closing(sqlite3.connect(tmp_path / "facts.db")) as connection, connection:
            connection.execute("UPDATE facts SET mood = 'glad'")
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection, connection:
            connection.execute("UPDATE episodes SET mood = 'glad'")
        await home.put(triple("e2", "t", "is", "b"))
        await home.fire()
        await home.facts.ledger.notice_external()

        assert await home.objects() == {"e1": "a", "e2": "b"}
        _, _, broken = await home.facts.verify()
        replay = await home.facts.replay(tmp_path / "again.db")
        assert (broken, replay.differing, replay.first) == (None, 0, None)
        with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
            moods = connection.execute("SELECT fact_id, mood FROM facts ORDER BY 1").fetchall()
        assert moods == [("e1", "glad"), ("e2", None)]

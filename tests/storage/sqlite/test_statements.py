"""Every named statement compiles against its schema."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from slumberd.sql_statements import statements
from slumberd.storage.sqlite.carrying_over import _rename_tables
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.file_schema import upgrade
from slumberd.storage.sqlite.ledger_schema import SCHEMA
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.lists import of_each
from tests.support.release_files import put_kept
from tests.support.sql_files import files_of

pytestmark = pytest.mark.integration

FILES = files_of()
UNFINISHED = {"select_by_scope": "1\n)", "select_by_content": "1\n)"}
"""Statements that contain a rule's filter, and the text that ends them."""


@pytest.fixture
async def databases(tmp_path: Path) -> list[Path]:
    async with SQLiteFactStore(tmp_path / "facts.db") as facts:
        await facts.bootstrap()
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        await memory.bootstrap()
    # Statements of a file on its own create their tables in the database in memory.
    made = [tmp_path / "facts.db", tmp_path / "memory.db", Path(":memory:")]
    return [*made, half_carried(tmp_path / "old")]


def half_carried(folder: Path) -> Path:
    """Return a file with the tables of slumberd 0.1.0, under other names, beside the newest."""
    path = put_kept("0.1.0", folder)["facts"]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM slumberd_schema")
        _rename_tables(connection, of_facts=True)
        upgrade(connection, SCHEMA)
        create_all(connection, "erased_scopes")
    return path


def create_all(connection: sqlite3.Connection, file: str) -> None:
    """Run the CREATE statements of a file, except for objects that exist."""
    for sql in statements(file).values():
        if creates(sql):
            with suppress(sqlite3.OperationalError):  # the object exists
                connection.execute(sql)


def problem_of(path: Path, file: str, name: str) -> str:
    """Return why a statement does not compile on a database; empty if it does."""
    sql = statements(file)[name] + UNFINISHED.get(name, "")
    values = dict.fromkeys(re.findall(r":(\w+)", sql)) or [None] * sql.count("?")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS live", [str(path)])
        connection.create_function("slumberd_with_offset", 1, str, deterministic=True)
        for name in ("slumberd_speaker", "slumberd_is_person"):
            connection.create_function(name, 2, max, deterministic=True)
        for needed in (file, "erased_scopes", "migrations"):
            create_all(connection, needed)
        try:
            connection.execute(f"EXPLAIN {sql}", values).fetchall()
        except sqlite3.OperationalError as error:
            return "" if creates(sql) and "already exists" in str(error) else str(error)
    return ""


def creates(sql: str) -> bool:
    return re.search(r"^CREATE ", sql, re.MULTILINE) is not None


@pytest.mark.slow
@of_each(lambda: FILES)
def test_statements_of_a_file_compile(file: str, databases: list[Path]) -> None:
    problems = {
        name: found
        for name in statements(file)
        if all(found := [problem_of(path, file, name) for path in databases])
    }

    assert problems == {}


@of_each(lambda: FILES)
def test_statements_contain_the_text_of_each_part_that_they_include(file: str) -> None:
    unresolved = [name for name, sql in statements(file).items() if "-- include" in sql]

    assert unresolved == []

"""Every named statement of facts.db compiles against the shipped schema."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.queries import statements


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        await store.bootstrap()
    return tmp_path / "facts.db"


@pytest.mark.parametrize(
    ("file", "name"),
    [(file, name) for file in ("facts", "ledger", "external") for name in statements(file)],
)
def test_a_statement_compiles(path: Path, file: str, name: str) -> None:
    sql = statements(file)[name]
    by_name = dict.fromkeys(re.findall(r":(\w+)", sql))
    values = by_name or [None] * sql.count("?")

    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN {sql}", values).fetchall()

    assert plan

"""Every named statement of one database compiles against the schema that its store makes."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.stores.queries import statements
from tests.house import house

OF_FACTS = (
    "external",
    "facts",
    "following",
    "ledger",
    "matching",
    "nearness",
    "parting",
)
OF_EPISODES = ("episodes", "recent")
CASES = [
    *(("facts.db", file, name) for file in OF_FACTS for name in statements(file)),
    *(("memory.db", file, name) for file in OF_EPISODES for name in statements(file)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with both databases, as the stores make them."""
    found = tmp_path_factory.mktemp("schema")

    async def make() -> None:
        async with house(found) as home:
            await home.memory.bootstrap()

    asyncio.run(make())
    return found


@pytest.mark.parametrize(("database", "file", "name"), CASES)
def test_a_statement_compiles(folder: Path, database: str, file: str, name: str) -> None:
    sql = statements(file)[name]
    by_name = dict.fromkeys(re.findall(r":(\w+)", sql))
    values = by_name or [None] * sql.count("?")

    with closing(sqlite3.connect(folder / database)) as connection:
        plan = connection.execute(f"EXPLAIN {sql}", values).fetchall()

    assert plan

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


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("facts", "find_facts_of_user"),
        ("facts", "find_facts_of_subject"),
        ("facts", "find_facts_of_object"),
        ("ledger", "meetings"),
        ("ledger", "namers"),
        ("ledger", "heads"),
        ("ledger", "heads_of_slots"),
        ("ledger", "facts_of_keys"),
        ("ledger", "marks"),
        ("ledger", "last_generation"),
        ("ledger", "lines_of_facts"),
        ("ledger", "lines_that_replace"),
        ("ledger", "lines_of_quarantine"),
        ("ledger", "fact_ids_of_keys"),
        ("ledger", "facts_by_id"),
        ("ledger", "last_counts"),
        ("external", "row"),
        ("external", "mended"),
        ("external", "unreadable"),
    ],
)
def test_a_look_up_scans_no_table(path: Path, file: str, name: str) -> None:
    sql = statements(file)[name]
    by_name = dict.fromkeys(re.findall(r":(\w+)", sql))

    with closing(sqlite3.connect(path)) as connection:
        steps = connection.execute(
            f"EXPLAIN QUERY PLAN {sql}", by_name or [None] * sql.count("?")
        ).fetchall()

    scanned = [step[3] for step in steps if step[3].startswith("SCAN")]
    assert [step for step in scanned if "VIRTUAL TABLE" not in step] == []

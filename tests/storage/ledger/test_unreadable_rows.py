"""Rows of other programs: they leave the quarantine one by one; log lines equal ledger rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import AnyFactStore

pytestmark = pytest.mark.integration

PUT = "INSERT OR REPLACE INTO facts VALUES (?, 'alice', 'rag', ?, '[]', 1.0, '{}', ?)"


def write(path: Path, fact_id: str, payload: bytes) -> None:
    """Write a row as another program does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(PUT, (fact_id, payload, START.isoformat()))


async def quarantined(store: AnyFactStore) -> list[tuple[str, str]]:
    return sorted(
        (entry["rule_id"], entry["episode_id"]) for entry in await store.reads.quarantine()
    )


async def test_repaired_row_leaves_the_quarantine_and_the_other_stays(tmp_path: Path) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", clock=FakeClock()) as store:
        await store.bootstrap()
        for fact_id in ("x", "y", "@notes/x"):
            write(store.path, fact_id, b"?")
        await store.ledger.notice_external()

        write(store.path, "x", b'{"object": 1}')
        await store.ledger.notice_external()

        assert await quarantined(store) == [("@external", "@notes/x"), ("@external", "y")]


async def test_repaired_row_does_not_change_the_quarantine_of_episodes(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await put_malformed(home)
        write(tmp_path / "facts.db", "odd", b"?")
        await home.facts.ledger.notice_external()

        write(tmp_path / "facts.db", "odd", b'{"object": 1}')
        await home.facts.ledger.notice_external()

        assert await quarantined(home.facts) == [("all", "odd")]


async def put_malformed(home: OpenStores) -> None:
    await home.put(triple("odd", "a", "b", "c", metadata={"intent": "shout"}))
    await home.fire(rule("all"))


async def test_changes_of_other_programs_are_reported_as_they_are_recorded(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("e1", "alice", "drinks", "tea"))
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "facts.db")) as connection, connection:
            connection.execute("DELETE FROM facts WHERE fact_id = 'e1'")
        write(tmp_path / "facts.db", "x", b'{"object": 1}')
        write(tmp_path / "facts.db", "y", b"?")

        reported = await home.facts.ledger.notice_external()

        assert reported == (await home.facts.reads.records())[2:]
        assert {record.kind for record in reported} >= {"firing", "delete", "quarantine"}

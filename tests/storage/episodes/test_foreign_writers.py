"""Other programs write episodes in Stargraph's schema, at any moment, and sometimes bad ones."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.daemons import Home
from tests.support.sql_writer import SqlWriter
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

INSERT = "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)"


def row(
    id: str, metadata: str, *, user: str = "alice", owner: str | None = None
) -> tuple[Any, ...]:
    """Return a row as Stargraph writes it; content and metadata as JSON text."""
    content = {
        "content": f"content of {id}",
        "source_node": "chat",
        "agent": "rag",
        "user": owner or user,
        "session": "s1",
    }
    key = f"/user/{user}/session/s1/agent/rag/"
    return id, key, orjson.dumps(content).decode(), "2026-01-01T12:00:00+00:00", metadata


def triple(subject: str, what: str, **metadata: Any) -> str:
    return orjson.dumps(
        {"subject": subject, "predicate": "is", "object": what, **metadata}
    ).decode()


@pytest.mark.timing
def test_insert_of_another_program_becomes_a_fact_within_300_ms(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    waits = []

    with home.daemon(), sqlite3.connect(home.state / "facts.db") as facts:
        writer = SqlWriter(home.state / "memory.db", blobs=(2, 4))
        for number in range(20):
            writer.write(INSERT, row(f"e{number}", triple(f"s{number}", "here")))
            written = time.monotonic()
            while not facts.execute(
                "SELECT 1 FROM facts WHERE fact_id = ?", [f"e{number}"]
            ).fetchone():
                assert time.monotonic() - written < PATIENCE_SECONDS
            waits.append(time.monotonic() - written)
        writer.close()

    assert sorted(waits)[-2] < 0.3, waits


POISON = {
    "bad-intent": (row("bad-intent", triple("a", "b", intent="Delete")), "intent_unknown"),
    "bad-replaces": (
        row("bad-replaces", triple("a", "b", intent="update", replaces={"id": 1})),
        "replaces_malformed",
    ),
    "nothing": (row("nothing", orjson.dumps({"intent": "delete"}).decode()), "delete_of_nothing"),
    "broken": (row("broken", '{"subject": '), "metadata_unreadable"),
    "mixed": (row("mixed", triple("a", "b"), owner="mallory"), "scope_mismatch"),
}


@pytest.mark.path
def test_poisoned_episodes_are_quarantined_and_all_others_commit(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    good = [row("good", triple("s", "here")), row("bobs", triple("s", "there"), user="bob")]
    reaching = [
        row("unknown", triple("t", "x", intent="update", replaces=["never-was"])),
        row("foreign", orjson.dumps({"intent": "delete", "replaces": ["bobs"]}).decode()),
    ]

    with home.daemon() as daemon:
        writer = SqlWriter(home.state / "memory.db", blobs=(2, 4))
        for values in [*good, *(bad for bad, _ in POISON.values()), *reaching]:
            writer.write(INSERT, values)
        writer.close()
        daemon.wait_until_read(len(good) + len(POISON) + len(reaching))

    assert {fact["id"] for fact in home.facts()} == {"good", "bobs", "unknown"}
    with sqlite3.connect(home.state / "facts.db") as facts:
        quarantined = dict(facts.execute("SELECT eid, reason FROM slumberd_quarantine"))
    assert quarantined == {eid: reason for eid, (_, reason) in POISON.items()}
    records = [
        orjson.loads(line) for line in home.slumberd("audit", "ls", "--json").stdout.splitlines()
    ]
    reasons = {record["fact_id"]: record["reason"] for record in records}
    assert reasons["foreign"] == "unresolved"

"""Tamper with the tables beside a ledger: verification finds the place."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slumberd.model.episode import microseconds
from slumberd.model.firing import Limits
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import PostgresProvider

pytestmark = pytest.mark.integration


def execute(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "facts.db")) as facts, facts:
        for sql in statements:
            facts.execute(sql)


FOUND = Path(__file__).with_name("found_breaks.txt")
"""What verification says of each change, with the number of the ledger row; 0 without a row."""


async def problem(home: OpenStores) -> str | None:
    broken = (await home.facts.verify())[2]
    return f"row {broken.seq}: {broken.problem}" if broken else None


async def live(home: OpenStores) -> None:
    """Write rows into every table: keys with retractions, quarantine, a held batch."""
    await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
    odd = {"intent": "shout"}
    deletion = {"intent": "delete"}
    await home.put(
        triple("e1", "alice", "drinks", "tea"),
        triple("e2", "alice", "drinks", "milk", timestamp=at(1)),
        triple("e3", "alice", "likes", "tea"),
        triple("e4", "alice", "likes", "milk", timestamp=at(2)),
        triple("e5", "alice", "is", None, timestamp=at(3), metadata=deletion),
        triple("e6", "alice", "likes", "cake", timestamp=at(3), metadata=deletion),
        triple("odd", "alice", "drinks", "beer", metadata=odd),
    )
    await home.fire()
    await home.put(
        triple("late", "alice", "drinks", "juice", timestamp=at(9), metadata={"intent": "delete"}),
        triple("gone", "alice", "drinks", None, timestamp=at(9), metadata=deletion),
    )
    await home.fire()
    assert await home.facts.watermarks.held()


TAMPERED = {
    "a watermark that passed an episode": "UPDATE slumberd_watermark SET seq = seq + 1",
    "a top": "UPDATE slumberd_keys SET winner_fact = 'e1' WHERE winner_fact = 'e2'",
    "an instant": "UPDATE slumberd_keys SET winner_at = winner_at + 1 WHERE winner_fact = 'e2'",
    "a rank": "UPDATE slumberd_keys SET winner_rank = 2 WHERE winner_fact = 'e2'",
    "an object": """UPDATE slumberd_keys SET winner_object = '"x"' WHERE winner_fact = 'e2'""",
    "no retraction": "UPDATE slumberd_keys SET retractions = NULL WHERE retractions IS NOT NULL",
    "another retraction": "UPDATE slumberd_keys "
    """SET retractions = CAST('{"":[9999,2,"x"]}' AS BLOB)""",
    "a retraction that cannot be read": "UPDATE slumberd_keys SET retractions = CAST('{' AS BLOB) "
    "WHERE retractions IS NOT NULL",
    "nothing replaced": "UPDATE slumberd_keys SET replaced = NULL",
    "another number": "UPDATE slumberd_keys SET key_id = 4 WHERE winner_fact = 'e2'",
    "no summary": "DELETE FROM slumberd_keys WHERE winner_fact = 'e2'",
    "a slot more": "INSERT INTO slumberd_keys SELECT key, 'x', key_id, winner_at, winner_rank, "
    "winner_id, winner_part, winner_fact, winner_object, retractions, replaced FROM slumberd_keys "
    "WHERE winner_fact = 'e3'",
    "an unused key": "INSERT INTO slumberd_keys SELECT 'bob/rag/facts/s/p', slot, 99, winner_at, "
    "winner_rank, winner_id, winner_part, winner_fact, winner_object, retractions, replaced "
    "FROM slumberd_keys WHERE winner_fact = 'e2'",
    "a key of a firing's row": "INSERT INTO slumberd_keys SELECT 'bob/rag/facts/s/p', slot, 1, "
    "winner_at, winner_rank, winner_id, winner_part, winner_fact, winner_object, retractions, "
    "replaced FROM slumberd_keys WHERE winner_fact = 'e2'",
    "a generation": "INSERT INTO slumberd_generations VALUES (2, 0)",
    "a quarantine's reason": "UPDATE slumberd_quarantine SET reason = 'x'",
    "a quarantine's detail": "UPDATE slumberd_quarantine SET detail = 'x'",
    "a quarantine's rule": "UPDATE slumberd_quarantine SET rule = 'x'",
    "a quarantine's episode": "UPDATE slumberd_quarantine SET eid = 'x'",
    "a quarantine's version": "UPDATE slumberd_quarantine SET version = 99",
    "a quarantine's owner": "UPDATE slumberd_quarantine SET owner = 'bob/rag/facts/'",
    "a quarantine's row": "UPDATE slumberd_quarantine SET seq = seq - 1",
    "a quarantine's row before the ledger": "UPDATE slumberd_quarantine SET seq = 0",
    "no quarantine": "DELETE FROM slumberd_quarantine",
    "a quarantine more": "INSERT INTO slumberd_quarantine SELECT rule, channel, 'e1', version, "
    "owner, reason, detail, seq FROM slumberd_quarantine",
    "a held batch's end": "UPDATE slumberd_held_batches SET upto_seq = upto_seq + 1",
    "a held batch's problem": "UPDATE slumberd_held_batches SET problem = 'x'",
    "a held batch's firing": "UPDATE slumberd_held_batches SET n = 1",
    "an approval": "UPDATE slumberd_held_batches SET approved = 1",
    "a held batch more": "INSERT INTO slumberd_held_batches SELECT 'x', n, upto_seq, upto_eid, "
    "problem, 0 FROM slumberd_held_batches",
    "no trigger": "DROP TRIGGER slumberd_facts_updated",
    "another trigger": "DROP TRIGGER slumberd_facts_updated; CREATE TRIGGER slumberd_facts_updated "
    "AFTER UPDATE ON facts BEGIN SELECT 1; END",
    "a view": "ALTER TABLE facts RENAME TO other; CREATE VIEW facts AS SELECT * FROM other",
}
"""The change, by the problem that it causes."""


@pytest.mark.parametrize("name", TAMPERED)
async def test_a_change_of_a_table_beside_the_ledger_is_found(tmp_path: Path, name: str) -> None:
    recorded = dict(line.split(" -> ") for line in FOUND.read_text().splitlines())
    async with open_stores(tmp_path, limits=Limits(max_deletes=0)) as home:
        await live(home)
        assert await problem(home) is None
        with closing(sqlite3.connect(tmp_path / "facts.db")) as facts:
            facts.executescript(TAMPERED[name])

        assert await problem(home) == recorded[name]


@pytest.mark.parametrize(
    "change",
    [
        "subject = 'bob'", "subject = NULL", "predicate = predicate || 'x'", "object = NULL",
        "object_number = 7", "object = object || 'x'",
    ],
)  # fmt: skip
async def test_a_changed_column_for_searches_is_found(postgres_address: str, change: str) -> None:
    async with open_stores(PostgresProvider(postgres_address)) as home:
        odd = triple("odd", "alice", "drinks", {"of": ["tea", 1.5, None]}, user="bob")
        number = triple("number", "alice", "is", 7.5, user="carol")
        await home.put(triple("e1", "alice", "drinks", "tea"), odd, number)
        await home.fire()
        assert await problem(home) is None
        with psycopg.connect(postgres_address, options="-c search_path=slumberd_0") as facts:
            facts.execute(f"UPDATE facts SET {change} WHERE fact_id = 'e1'".encode())

        expected = (
            "row 0: fact 'e1' is searched by another subject, predicate or object than it has"
        )
        assert await problem(home) == expected


async def test_ledger_verifies_after_every_regular_change_of_these_tables(tmp_path: Path) -> None:
    async with open_stores(tmp_path, limits=Limits(max_deletes=0)) as home:
        await live(home)
        edit: dict[str, Any] = {"at": at(50), "by": "me"}

        async def verified(after: str) -> None:
            assert await problem(home) is None, after

        (held,) = (await home.facts.watermarks.held()).values()
        await home.facts.ledger.decide(held, approve=True, **edit)
        await verified("an approval")
        await home.fire()
        await verified("what was approved")
        await home.consolidator.retry(rule("all"), at(60), by="me")
        await verified("a retry")
        await home.put(triple("odd", "alice", "drinks", "water", timestamp=at(4)))
        await home.fire()
        await verified("an episode that was mended")
        await home.put(triple("odd", "alice", "drinks", "wine", metadata={"intent": "?"}))
        await home.fire()
        await verified("an episode that cannot be read again")
        await home.facts.ledger.drop_quarantined(None, None, dry_run=False, **edit)
        await verified("a drop")
        await home.put(triple("more", "alice", "drinks", "x", metadata={"intent": "?"}))
        fired = (await home.fire()).firing_ids[0]
        await home.facts.ledger.undo(fired, dry_run=False, **edit)
        await verified("an undoing")
        await home.put(triple("bobs", "bob", "drinks", "x", user="bob", metadata={"intent": "?"}))
        await home.fire()
        await home.facts.erasures.forget(
            ScopeFilter("bob", None, None), moment=microseconds(at(99)), dry_run=False, **edit
        )
        await verified("an erasure")


async def test_a_restored_log_verifies_and_a_changed_generation_does_not(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*(triple(f"e{n}", f"s{n}", "is", n) for n in range(4)))
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as memory, memory:
            memory.execute("DELETE FROM slumberd_episode_log WHERE seq > 2")
            memory.execute("DELETE FROM sqlite_sequence")
            memory.execute("DELETE FROM episodes WHERE id IN ('e2', 'e3')")
        await home.put(triple("e9", "s9", "is", 9), triple("e8", "s8", "is", 8))
        await home.fire()
        assert await problem(home) is None

        execute(tmp_path, "UPDATE slumberd_generations SET after = after + 1")

        assert "generation" in str(await problem(home))


async def test_lost_quarantine_is_named_at_the_last_row_of_the_episode(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        for intent in ("?", "??"):
            await home.put(triple("odd", "alice", "drinks", "x", metadata={"intent": intent}))
            await home.fire()
        rows = [row.seq for row in await home.facts.reads.records() if row.kind == "quarantine"]
        with closing(sqlite3.connect(tmp_path / "facts.db")) as facts, facts:
            facts.execute("DELETE FROM slumberd_quarantine")

        _, _, broken = await home.facts.verify()

        assert len(rows) == 2
        assert broken is not None
        assert (broken.seq, "lacks it" in broken.problem) == (rows[-1], True)


MIXED = {"intent": "?", "triples": [{"subject": "ann", "predicate": "drinks", "object": "tea"}]}


async def test_ledger_verifies_after_a_filter_leaves_out_a_half_readable_episode(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("odd", "alice", "drinks", "x", metadata=MIXED))
        await home.fire()

        await home.consolidator.backfill(rule("all", when_filter="id <> 'odd'"), at(60), by="me")

        assert (await home.objects(), await home.facts.reads.quarantine()) == ({}, [])
        assert await problem(home) is None


async def test_lost_quarantine_of_a_half_readable_episode_is_found(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("odd", "alice", "drinks", "x", metadata=MIXED))
        await home.fire()

        execute(tmp_path, "DELETE FROM slumberd_quarantine")

        assert "lacks it" in str(await problem(home))

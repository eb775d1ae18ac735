"""Ledgers for tests: a small one with every kind of row, and a large one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.delta import NoopDelta
from slumberd.model.episode import EpisodeVersion, SalienceShortfall
from slumberd.model.fact import Fact
from slumberd.model.firing import Firing, Outcome, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.ledger.rows import GENESIS, chain_of, commitment_of, fixed_part
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at, rule, version
from tests.support.fakes import FakeClock

ALL = rule("all")
NOTES = rule("notes", then_emits=["facts", "notes"])


def said(id: str, seq: int, **metadata: Any) -> EpisodeVersion:
    """Return a version of an episode, as old as its log row."""
    return version(id, seq=seq, timestamp=at(seq), metadata=metadata)


async def fire(
    store: EngineFactStore, fired: ConsolidationRule, versions: Sequence[EpisodeVersion]
) -> Outcome:
    """Let a rule evaluate some versions."""
    upto = Position(versions[-1].seq, versions[-1].id)
    firing = Firing(fired.id, fired.content_hash, "every", at(100), Position(), upto)
    return await store.apply_deltas(DeltaBatch(firing, evaluate(versions, fired)))


async def write_ledger_of_every_kind(path: Path, key: bytes | None = None) -> None:
    """Write a ledger with a row of every kind."""
    clock = FakeClock(at(1000))
    async with SQLiteFactStore(path, synchronous="normal", clock=clock, key=key) as store:
        await store.bootstrap()
        first = await fire(store, ALL, FIRST)
        await fire(store, NOTES, AGAIN)
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(200))
        await _edit_manually(store, clock)
        await store.ledger.undo(
            first.firing_id, at=at(1100), by="uid 0", dry_run=False, reason="the rule was wrong"
        )
        await fire(store, NOTES, LAST_OF_NOTES)
        await fire(store, ALL, LATER)
        await store.watermarks.mark_logged((await store.ledger.head()).rows)


FIRST = [
    said("e1", 1, subject="alice", predicate="lives_in", object="Porto"),
    said("e2", 2, subject="alice", predicate="lives_in", object="Braga"),
    said("e3", 3, subject="alice", predicate="likes", object="tea"),
    said("e4", 4, subject="alice", predicate="likes", object="cake"),
    said("e5", 5, intent="delete", replaces=["e1", "unknown"]),
    said("e6", 6, intent="delete", subject="bob", predicate="likes", object="tea"),
    said("e7", 7, intent="remember"),
    said("e8", 8, intent="noop", subject="alice", predicate="lives_in"),
    said("e9", 9, intent="update", replaces="e4", subject="alice", predicate="likes", object=1),
]
AGAIN = [
    *FIRST[:3],
    version("e4", seq=10, user="mallory", timestamp=at(10)),
    said("e10", 11, subject="cat", predicate="is", object="asleep"),
]
LAST_OF_NOTES = [AGAIN[-1], said("e2", 14)._replace(matched=False)]
LATER = [
    said("e2", 12, intent="remember"),
    said("e10", 13, subject="cat", predicate="is", object="awake"),
    said("e11", 15, subject="alice", predicate="lives_in", object="Faro"),
    said("e12", 16, intent="delete", subject="alice", predicate="lives_in"),
    said("e13", 17, subject="cat", predicate="has", object="a mat")._replace(
        gated=SalienceShortfall(0.02, 0.03)
    ),
]


async def _edit_manually(store: EngineFactStore, clock: FakeClock) -> None:
    entry = {"rule_id": "me", "source_episode_ids": ["x"], "promotion_ts": at(0).isoformat()}
    body = {"subject": "alice", "predicate": "owns", "object": "a pan"}
    pinned = Fact(
        id="p1",
        user="alice",
        agent="rag",
        payload=body,
        lineage=[entry],
        confidence=0.5,
        pinned_at=at(0),
    )
    await store.pin(pinned)
    clock.advance(1)
    await store.unpin("e3")
    clock.advance(1)
    silent = NoopDelta(
        kind="noop", rule_id="me", source_episode_ids=["x"], promotion_ts=at(0), confidence=1.0
    )
    await store.apply_delta(silent)


async def write_large_ledger(path: Path, rows: int, batch: int = 1_000) -> None:
    """Write a ledger of at least so many rows, seeded: a quarter of the keys repeated."""
    chance = random.Random(7)
    async with SQLiteFactStore(path, synchronous="normal") as store:
        await store.bootstrap()
        for begin in range(1, rows + 1, batch):
            versions = [_anything(chance, seq, rows) for seq in range(begin, begin + batch)]
            await fire(store, ALL, versions)


def _anything(chance: random.Random, seq: int, rows: int) -> EpisodeVersion:
    if chance.random() < 0.03:
        return said(f"e{seq}", seq, intent="delete", replaces=f"e{chance.randrange(seq)}")
    subject = f"s{chance.randrange(rows) if chance.random() < 0.25 else seq}"
    return said(f"e{seq}", seq, subject=subject, predicate="is", object=seq)


@contextmanager
def copied(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a copy of a database, in memory, to be tampered with."""
    with (
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as copy,
    ):
        source.backup(copy)
        yield copy


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    """Return every row of a table, in the order of its first column."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


def forge(connection: sqlite3.Connection, seq: int, key: bytes | None, **changes: Any) -> None:
    """Change a row, and compute its hash and all later hashes again."""
    head = connection.execute("SELECT chain FROM slumberd_ledger WHERE seq = ?", [seq - 1])
    previous = (head.fetchone() or [GENESIS])[0]
    for column, value in changes.items():
        connection.execute(f"UPDATE slumberd_ledger SET {column} = ? WHERE seq = ?", (value, seq))
    for row in connection.execute(_WHOLE, [seq]).fetchall():
        number, delta, firing, what, kind, reason, version_, *erasable, salt = row
        key_id, at_, fact_id, replaces, payload = erasable
        commitment = commitment_of(salt, key_id, at_, fact_id, replaces, payload)
        fixed = fixed_part(number, delta, firing, version_, what, kind)
        previous = chain_of(key, previous, commitment, fixed, reason)
        connection.execute(_SEAL, (commitment, previous, number))


_WHOLE = """
SELECT seq, delta, firing, what, kind, CAST(reason AS BLOB), version, key_id, at,
  CAST(fact_id AS BLOB), CAST(replaces AS BLOB), payload, salt
FROM slumberd_ledger
WHERE seq >= ?
ORDER BY seq
"""
_SEAL = "UPDATE slumberd_ledger SET commitment = ?, chain = ? WHERE seq = ?"

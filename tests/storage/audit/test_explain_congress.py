"""Explain every episode and fact of a real stream; each answer agrees with the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.explanation import Decision, Explanation
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import rule
from tests.support.corpora import lines, needs_corpora
from tests.support.fakes import FakeClock, FakeDeltaLog

pytestmark = [pytest.mark.acceptance, needs_corpora, pytest.mark.slow]

ALL = rule("all")
SOME = rule("some", when_filter="predicate = 'twitter'", then_emits=["facts", "notes"])
NEVER = rule("never", enabled=False, then_emits=["archive"])
RULES = [ALL, NEVER, SOME]
PAIRS = [("all", "facts"), ("never", "archive"), ("some", "facts"), ("some", "notes")]

BATCH = 100
KEPT_BACK = 137
"""Episodes that only one of the rules reads."""

KINDS = {1: "add", 2: "update", 3: "delete", 4: "noop", 5: "quarantined"}
NAMES = (
    "seq", "firing", "what", "kind", "reason", "fact_id", "replaces", "payload", "rule",
    "rule_hash",
)  # fmt: skip
ROWS = """
SELECT ledger.seq, ledger.firing, ledger.what, ledger.kind, ledger.reason, ledger.fact_id,
  ledger.replaces, CAST(ledger.payload AS TEXT), firings.rule, firings.rule_hash
FROM slumberd_ledger AS ledger
JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.what != 0
ORDER BY ledger.seq
"""


@dataclass
class Archive:
    """The stream, consolidated, with one firing undone; and its tables as they are.

    Attributes:
        rows: The ledger, oldest first.
        current: The table of facts, by id.
        marks: How far each rule has read.
        log: The number of each episode's log row.
        undone: The number of the firing that was undone.
    """

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore
    episodes: list[Episode]
    rows: list[dict[str, Any]]
    current: dict[str, tuple[Any, ...]]
    marks: dict[str, int]
    log: dict[str, int]
    undone: int

    def __post_init__(self) -> None:
        self._by_fact: dict[str, list[dict[str, Any]]] = {}
        self._by_replaced: dict[str, list[int]] = {}
        for row in self.rows:
            self._by_fact.setdefault(row["fact_id"], []).append(row)
            for replaced in orjson.loads(row["replaces"] or "[]"):
                if (row["fact_id"], row["kind"]) != (replaced, 2):
                    self._by_replaced.setdefault(replaced, []).append(row["seq"])

    def last_row(self, rule_id: str, fact_id: str) -> dict[str, Any] | None:
        evaluations = [
            row for row in self.rows_of(fact_id) if row["rule"] == rule_id and row["what"] == 1
        ]
        return evaluations[-1] if evaluations else None

    def rows_of(self, fact_id: str) -> list[dict[str, Any]]:
        return self._by_fact.get(fact_id, [])

    def replacing(self, fact_id: str) -> list[int]:
        return self._by_replaced.get(fact_id, [])


def select(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    stream = [Episode.model_validate(line) for line in lines("congress_social", "episodes")]
    memory_path, facts_path = tmp_path / "memory.db", tmp_path / "facts.db"
    async with (
        SQLiteMemoryStore(memory_path) as memory,
        SQLiteFactStore(facts_path, synchronous="normal") as facts,
    ):
        await facts.bootstrap()
        undone = await consolidate_and_undo(memory, facts, stream)
        rows = [dict(zip(NAMES, row, strict=True)) for row in select(facts_path, ROWS)]
        found = select(facts_path, "SELECT fact_id, payload, lineage, confidence FROM facts")
        marks = dict(select(facts_path, "SELECT rule, seq FROM slumberd_watermark"))
        log = dict(select(memory_path, "SELECT eid, max(seq) FROM slumberd_episode_log GROUP BY 1"))
        current = {row[0]: row[1:] for row in found}
        yield Archive(memory, facts, stream, rows, current, marks, log, undone)


async def consolidate_and_undo(
    memory: SQLiteMemoryStore, facts: SQLiteFactStore, stream: list[Episode]
) -> int:
    """Consolidate a stream, its end by one rule only; return the number of the undone firing."""
    clock = FakeClock()
    consolidator = Consolidator(memory, facts, FakeDeltaLog(), clock, batch=BATCH)
    await memory.put_many(stream[:-KEPT_BACK])
    report = await consolidator.fire(FireRequest(ALL, "manual", clock.now()))
    await consolidator.fire(FireRequest(SOME, "manual", clock.now()))
    chosen = report.firing_ids[len(report.firing_ids) // 2]
    await facts.ledger.undo(chosen, at=clock.now(), by="me", dry_run=False)
    await memory.put_many(stream[-KEPT_BACK:])
    await consolidator.fire(FireRequest(SOME, "manual", clock.now()))
    return int(chosen.split("@")[1])


def expected(archive: Archive, episode: Episode, rule_id: str, fact_id: str) -> tuple[str, str]:
    """Return the outcome of an episode and its reason, from the tables alone."""
    if archive.log[episode.id] > archive.marks.get(rule_id, 0):
        return "pending", ""
    row = archive.last_row(rule_id, fact_id)
    if row is None:
        assert episode.metadata["predicate"] != "twitter"
        return "filtered", ""
    if row["firing"] == archive.undone:
        return "undone", ""
    return KINDS[row["kind"]], row["reason"]


def check_decision(archive: Archive, episode: Episode, found: Decision) -> None:
    fact_id = episode.id if found.channel == "facts" else f"@{found.channel}/{episode.id}"
    row = archive.last_row(found.rule_id, fact_id)
    removers = [] if found.is_current else archive.replacing(fact_id)
    assert (found.outcome, found.reason) == expected(archive, episode, found.rule_id, fact_id), (
        episode.id
    )
    assert (found.fact_id, found.is_current) == (fact_id, fact_id in archive.current)
    assert (found.row and found.row.record.seq) == (row and row["seq"])
    assert (found.removed_by and found.removed_by.record.seq) == (
        removers[-1] if removers else None
    )


@pytest.mark.nightly
async def test_every_episode_has_one_decision_a_rule_and_channel(archive: Archive) -> None:
    ids = [episode.id for episode in archive.episodes]
    read = {rule.id: await archive.memory.reread(rule, ids, upto=2**63 - 1) for rule in RULES}
    by_id = {id: {version.id: version for version in versions} for id, versions in read.items()}
    outcomes: set[str] = set()
    for episode in archive.episodes:
        versions = {rule_id: found[episode.id] for rule_id, found in by_id.items()}
        decisions = await archive.facts.reads.decisions_of(episode.id, RULES, versions)

        assert [(found.rule_id, found.channel) for found in decisions] == PAIRS, episode.id
        for found in decisions:
            check_decision(archive, episode, found)
            outcomes.add(found.outcome)

    assert outcomes >= {"pending", "filtered", "undone", "add", "update", "delete", "noop"}


def check_rows(archive: Archive, found: Explanation) -> None:
    promoting = [
        row
        for row in archive.rows_of(found.fact_id)
        if row["kind"] in (1, 2) or orjson.loads(row["payload"] or "{}").get("asserts")
    ]
    replaced = [id for row in promoting for id in orjson.loads(row["replaces"] or "[]")]
    assert [asserting.row.record.seq for asserting in found.assertions] == [
        row["seq"] for row in promoting
    ]
    assert [line.record.seq for line in found.replacing] == archive.replacing(found.fact_id)
    assert found.replaced == [id for id in dict.fromkeys(replaced) if id != found.fact_id]


def check_fact(found: Explanation, stored: tuple[Any, ...]) -> None:
    hashes = {rule.id: rule.content_hash for rule in RULES}
    payload, lineage, confidence = orjson.loads(stored[0]), orjson.loads(stored[1]), stored[2]
    assert found.fact
    assert found.fact.payload == payload
    assert (found.fact.lineage, found.fact.confidence) == (lineage, confidence)
    own = [entry["rule_id"] for entry in lineage if "rule_id" in entry]
    counts = [asserting.row for asserting in found.assertions if asserting.counts]
    assert sorted((line.record.rule_id, line.rule_hash) for line in counts) == [
        (rule_id, hashes[rule_id]) for rule_id in own
    ]


@pytest.mark.nightly
async def test_every_fact_has_its_firings_and_the_facts_that_it_replaced(archive: Archive) -> None:
    explained = 0
    for fact_id in {row["fact_id"] for row in archive.rows}:
        found = await archive.facts.why(fact_id)

        check_rows(archive, found)
        assert (found.fact is not None) == (fact_id in archive.current)
        if found.fact:
            check_fact(found, archive.current[fact_id])
            explained += 1

    assert explained == len(archive.current) > 500


@pytest.mark.nightly
async def test_every_source_has_session_instant_and_node(archive: Archive) -> None:
    by_id = {episode.id: episode for episode in archive.episodes}
    for fact_id in archive.current:
        (source,) = (await archive.facts.why(fact_id)).sources

        episode = by_id[source.id]
        assert tuple(source) == (
            episode.id,
            episode.session,
            episode.timestamp,
            episode.source_node,
        )
    assert len(archive.current) > 500

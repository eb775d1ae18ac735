"""Changes of facts by other programs are noticed, recorded as theirs, and not undone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position, Record
from slumberd.storage.ledger.external_changes import record_changes
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.session import MANY, own_writes, transaction
from tests.support.builders import START, at, rule, triple, version
from tests.support.daemons import Home, processor_seconds
from tests.support.fakes import FakeClock, without_firings
from tests.support.installation import jsonl
from tests.support.open_stores import open_stores
from tests.support.sessions import session_of
from tests.support.sql_writer import SqlWriter
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

NOW = 100
"""Seconds: the instant of these tests; episodes are older, unless a test gives another instant."""

STARGRAPH = """
CREATE TABLE IF NOT EXISTS facts (
  fact_id TEXT PRIMARY KEY, user TEXT NOT NULL, agent TEXT NOT NULL, payload BLOB NOT NULL,
  lineage BLOB NOT NULL, confidence REAL NOT NULL, metadata BLOB NOT NULL, pinned_at TEXT NOT NULL)
"""
COLUMNS = "fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at"
PIN = f"INSERT OR REPLACE INTO facts ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
"""The statement of Stargraph's pin."""

Row = tuple[Any, ...]


def row(id: str, what: Any = "tea", **other: Any) -> Row:
    """Return a row as Stargraph's pin writes it."""
    payload = {"subject": "alice", "predicate": "drinks", "object": what, "note": ["a", 1.5]}
    fields: dict[str, Any] = {
        "fact_id": id,
        "user": "alice",
        "agent": "rag",
        "payload": orjson.dumps(payload),
        "lineage": orjson.dumps([{"triple_id": "t1", "rule_id": "kg", "agent_id": "rag"}]),
        "confidence": 0.5,
        "metadata": b'{"of": "another program"}',
        "pinned_at": at(NOW - 1).isoformat(),
    }
    return tuple((fields | other).values())


def write(path: Path, sql: str, *values: Row) -> None:
    """Write through a separate connection, as another program does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(sql, values or [()])


def stored(path: Path) -> dict[str, Row]:
    """Return the rows of the table, by id, with decoded JSON."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT {COLUMNS} FROM facts").fetchall()
    return {columns[0]: meaning(columns) for columns in found}


def meaning(columns: Row) -> Row:
    id, user, agent, payload, lineage, confidence, metadata, pinned_at = columns
    documents = (orjson.loads(value) for value in (payload, lineage, metadata))
    return (id, user, agent, *documents, confidence, pinned_at)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(NOW))


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteFactStore]:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal", clock=clock) as opened:
        await opened.bootstrap()
        yield opened
        await opened.ledger.notice_external()
        rows, _, broken = await opened.verify()
        assert broken is None, broken
        if rows:
            replay = await opened.replay(tmp_path / "replayed.db")
            assert (replay.differing, replay.first) == (0, None)


async def fire(store: SQLiteFactStore, *values: Any, seq: int = 1) -> Any:
    """Fire a rule on one version of an episode; the values are those of `version()`."""
    id, seconds, what, *overrides = values
    metadata = {"subject": "alice", "predicate": "drinks", "object": what}
    evaluated = version(id, seq=seq, timestamp=at(seconds), metadata=metadata, **dict(*overrides))
    firing = Firing("all", "h", "every", at(NOW), Position(), Position(seq, id))
    return await store.apply_deltas(DeltaBatch(firing, evaluate([evaluated], rule("all"))))


async def recorded_deltas(store: SQLiteFactStore) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return the recorded changes of other programs."""
    return [
        (record.kind, record.fact_id, record.replaces, record.reason)
        for record in await store.reads.records()
        if record.rule_id == "@external" and record.kind != "firing"
    ]


async def test_a_pin_of_another_program_is_recorded_with_every_value_it_has(
    store: SQLiteFactStore,
) -> None:
    given = row("theirs", {"a": [1, None, "ü"]})
    write(store.path, PIN, given)

    await store.ledger.notice_external()

    assert stored(store.path) == {"theirs": meaning(given)}
    assert await recorded_deltas(store) == [("add", "theirs", (), "")]
    (fact,) = await store.query(FactPattern(), believed_at=at(NOW))
    assert (fact.confidence, fact.pinned_at) == (0.5, at(NOW - 1))


async def test_an_edit_of_a_promoted_fact_is_recorded_and_kept(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "UPDATE facts SET payload = ?, confidence = 0.25", (b'{"object": "rum"}',))
    edited = stored(store.path)

    await store.ledger.notice_external()

    assert stored(store.path) == edited
    assert await recorded_deltas(store) == [("update", "e1", ("e1",), "")]


async def test_a_delete_by_another_program_is_a_manual_edit(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "DELETE FROM facts")

    await fire(store, "e0", 0, "tea", seq=2)

    assert stored(store.path) == {}
    assert [(kind, removed) for kind, _, removed, _ in await recorded_deltas(store)] == [
        ("delete", ("e1",))
    ]
    await fire(store, "e1", 1, "tea", seq=3)
    assert list(stored(store.path)) == ["e1"], "a newer version of its episode ends the edit"


async def test_rows_that_agree_with_the_ledger_are_no_change(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "UPDATE facts SET user = user")
    write(store.path, PIN, row("came and went"))
    write(store.path, "DELETE FROM facts WHERE fact_id = 'came and went'")

    await store.ledger.notice_external()

    assert await recorded_deltas(store) == []
    assert not await store.ledger.notice_external()


async def test_a_change_is_recorded_before_a_firing_overwrites_it(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, PIN, row("e1", "rum"))

    outcome = await fire(store, "e0", 0, "milk", seq=2)

    assert [record.fact_id for record in outcome.noticed] == ["", "e1"]
    assert outcome.records[0].seq == outcome.noticed[-1].seq + 1
    assert stored(store.path) == {"e1": meaning(row("e1", "rum"))}


async def test_external_changes_that_a_firing_finds_are_logged_before_its_own_rows(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as at_home:
        await at_home.put(triple("e1", "alice", "drinks", "tea"))
        await at_home.fire()
        write(tmp_path / "facts.db", PIN, row("e1", "rum"))
        await at_home.put(triple("e2", "alice", "eats", "cake"))
        await at_home.fire()

        logged = [(record.seq, record.rule_id) for record in at_home.log.lines]

        assert logged == [
            (record.seq, record.rule_id)
            for record in without_firings(await at_home.facts.reads.records())
        ]
        assert [rule_id for _, rule_id in logged].count("@external") == 1


async def test_a_later_firing_of_older_episodes_undoes_nothing(store: SQLiteFactStore) -> None:
    write(store.path, PIN, row("theirs", "rum"))
    await fire(store, "e1", 1, "tea")
    await fire(store, "theirs", 2, "milk", seq=2)
    await store.watermarks.rewind("all", Position())
    await fire(store, "e1", 1, "tea", seq=1)

    assert stored(store.path) == {"theirs": meaning(row("theirs", "rum"))}


async def test_newer_and_older_episodes_do_not_change_a_declared_fact(
    store: SQLiteFactStore,
) -> None:
    given = row("theirs", "rum")
    write(store.path, PIN, given)

    await fire(store, "before", NOW - 50, "tea")
    await fire(store, "since", NOW + 1, "milk", seq=2)

    assert stored(store.path)["theirs"] == meaning(given)
    assert list(stored(store.path)) == ["theirs", "since"]


@pytest.mark.parametrize("seconds", [NOW, NOW + 1])
async def test_a_newer_episode_supersedes_an_edit_of_a_promoted_fact(
    store: SQLiteFactStore, seconds: int
) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, PIN, row("e1", "rum"))
    await store.ledger.notice_external()

    await fire(store, "e2", seconds, "milk", seq=2)

    assert list(stored(store.path)) == ["e2"]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param("UPDATE facts SET confidence = 0.1", id="with its old instant"),
        pytest.param(f"UPDATE facts SET pinned_at = '{at(10**9).isoformat()}'", id="in the future"),
        pytest.param(f"UPDATE facts SET pinned_at = '{at(-99).isoformat()}'", id="long ago"),
    ],
)
async def test_an_edit_is_current_until_a_newer_version_whatever_instant_its_row_has(
    store: SQLiteFactStore, edit: str
) -> None:
    await fire(store, "e1", 50, "tea")
    write(store.path, edit)
    edited = stored(store.path)

    await fire(store, "e1", 50, "tea", {"content": "the same version"})
    assert stored(store.path) == edited
    await fire(store, "e1", 20, "milk", seq=2)

    assert "milk" in str(stored(store.path)["e1"])


async def test_an_edit_with_a_future_instant_does_not_outlast_newer_episodes(
    store: SQLiteFactStore,
) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, PIN, row("e1", "rum", pinned_at=at(10**9).isoformat()))
    await store.ledger.notice_external()

    await fire(store, "e2", NOW + 1, "tea", seq=2)

    assert list(stored(store.path)) == ["e2"]


async def test_an_edit_that_keeps_the_instant_of_its_row_has_the_instant_of_its_recording(
    store: SQLiteFactStore, clock: FakeClock
) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "UPDATE facts SET confidence = 0.1")
    edited = stored(store.path)
    clock.advance(50)
    await store.ledger.notice_external()

    await fire(store, "before", NOW + 20, "milk", seq=2)
    assert stored(store.path) == edited
    await fire(store, "since", NOW + 60, "milk", seq=3)

    assert list(stored(store.path)) == ["since"]


@pytest.mark.parametrize("pinned_at", [at(5).isoformat(), "1960-01-01T00:00:00+00:00"])
async def test_a_row_that_moves_to_another_id_stays_current(
    store: SQLiteFactStore, pinned_at: str
) -> None:
    await fire(store, "e1", 1, "tea")
    given = row("new", "tea", pinned_at=pinned_at)
    write(store.path, "DELETE FROM facts")
    write(store.path, PIN, given)

    await store.ledger.notice_external()

    assert stored(store.path) == {"new": meaning(given)}


async def test_a_new_id_for_a_row_is_a_delete_and_a_pin(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "UPDATE facts SET fact_id = 'renamed'")

    await store.ledger.notice_external()

    assert list(stored(store.path)) == ["renamed"]
    assert [(kind, removed) for kind, _, removed, _ in await recorded_deltas(store)] == [
        ("delete", ("e1",)),
        ("add", ()),
    ]


async def test_rows_for_one_key_are_all_kept(store: SQLiteFactStore) -> None:
    given = [row("bob", "bob"), row("carol", "carol"), row("dave", "dave")]
    write(store.path, PIN, *given)

    await store.ledger.notice_external()

    assert stored(store.path) == {columns[0]: meaning(columns) for columns in given}


async def test_a_row_keeps_every_byte_and_its_rowid(store: SQLiteFactStore) -> None:
    odd = row(
        "odd",
        payload='{ "object" : 1.0e2, "subject":"caf\\u00e9" }',
        lineage=b'[ {"b":1,"a":2} ]',
        pinned_at="2026-01-01T09:00:00.5+09:00",
    )
    write(store.path, PIN, odd, row("naive", pinned_at="2026-01-01 00:00:00"))
    before = whole(store.path)

    await store.ledger.notice_external()
    await fire(store, "e1", 1, "tea")
    await store.unpin("e1")

    assert whole(store.path) == before


def whole(path: Path) -> list[Row]:
    """Return the table with its rowids and the types of its values."""
    kinds = ", ".join(f"typeof({name})" for name in COLUMNS.split(", "))
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT rowid, {COLUMNS}, {kinds} FROM facts").fetchall()


async def test_a_row_that_its_program_removed_can_be_pinned_again(
    store: SQLiteFactStore,
) -> None:
    write(store.path, PIN, row("theirs"))
    await store.ledger.notice_external()
    write(store.path, "DELETE FROM facts")
    await store.ledger.notice_external()
    assert [kind for kind, _, _, _ in await recorded_deltas(store)] == ["add", "delete"]

    write(store.path, PIN, row("theirs"))
    await store.ledger.notice_external()

    assert stored(store.path) == {"theirs": meaning(row("theirs"))}


async def test_a_row_that_a_person_retracted_returns_only_with_a_later_instant(
    store: SQLiteFactStore,
) -> None:
    write(store.path, PIN, row("theirs"))
    await store.retract("theirs", by="me", reason="it is wrong")

    write(store.path, PIN, row("theirs"))
    await store.ledger.notice_external()
    assert stored(store.path) == {}
    again = row("theirs", pinned_at=at(NOW + 1).isoformat())
    write(store.path, PIN, again)
    await store.ledger.notice_external()

    assert stored(store.path) == {"theirs": meaning(again)}


async def test_a_program_that_removes_a_row_with_an_episodes_id_removes_it_for_good(
    store: SQLiteFactStore,
) -> None:
    write(store.path, PIN, row("e1", "tea"))
    await store.ledger.notice_external()
    await fire(store, "e1", 1, "tea")

    write(store.path, "DELETE FROM facts")
    await fire(store, "e0", 0, "tea", seq=2)

    assert stored(store.path) == {}


async def test_a_row_of_another_owner_is_written_back(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    await fire(store, "e2", 2, "milk", seq=2)
    before = stored(store.path)
    write(store.path, PIN, row("e2", user="mallory"), row("e1", agent="other"))

    await store.ledger.notice_external()

    assert stored(store.path) == before
    assert {(entry["episode_id"], entry["reason"]) for entry in await store.reads.quarantine()} == {
        ("e1", "id_taken"),
        ("e2", "id_taken"),
    }
    assert {kind for kind, _, _, _ in await recorded_deltas(store)} == {"quarantine"}


DEEP = b'{"a":' * 300 + b"1" + b"}" * 300
MALFORMED: dict[str, Row] = {
    "payload no JSON": row("x", payload=b'{"subject": '),
    "payload no object": row("x", payload=b"[1]"),
    "payload too deep": row("x", payload=DEEP),
    "payload too deep for a ledger": row("x", payload=b'{"a":' * 254 + b"1" + b"}" * 254),
    "payload of a number too large": row("x", payload=b'{"object": 123456789012345678901}'),
    "payload of another type": row("x", payload=5),
    "lineage no list": row("x", lineage=b"{}"),
    "lineage of texts": row("x", lineage=b'["e1"]'),
    "metadata no object": row("x", metadata=b"[]"),
    "confidence too high": row("x", confidence=7),
    "confidence a text": row("x", confidence="high"),
    "confidence without bound": row("x", confidence=float("inf")),
    "instant no instant": row("x", pinned_at="yesterday"),
    "instant out of range": row("x", pinned_at="0001-01-01T00:00:00+14:00"),
    "instant of bytes": row("x", pinned_at=b"2026-01-01"),
    "user of bytes": row("x", user=b"alice"),
    "user with NUL": row("x", user="ali\0ce"),
    "id empty": row(""),
    "id of bytes": row("x", fact_id=b"\xff"),
    "id missing": row("x", fact_id=None),
    "id with NUL": row("x\0y"),
    "id of the ledger's own": row("@/1"),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_an_unreadable_row_is_quarantined_once_and_not_changed(
    store: SQLiteFactStore, name: str
) -> None:
    write(store.path, PIN, MALFORMED[name])
    before = raw(store.path)

    await store.ledger.notice_external()
    await fire(store, "e1", 1, "tea")
    await store.ledger.notice_external()

    assert [columns for columns in raw(store.path) if columns[0] != "e1"] == before
    assert [(kind, why) for kind, _, _, why in await recorded_deltas(store)] == [
        ("quarantine", "external_unreadable")
    ]
    found = {fact.id for fact in await store.query(FactPattern())}
    assert found - {columns[0] for columns in before} == {"e1"}
    (entry,) = await store.reads.quarantine()
    assert (entry["rule_id"], entry["reason"]) == ("@external", "external_unreadable")
    assert entry["detail"]


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        pytest.param("user with NUL", "//facts/", id="without its user"),
        pytest.param("payload no JSON", "alice/rag/facts/", id="with both names"),
    ],
)
async def test_an_unreadable_row_is_quarantined_under_the_names_that_can_be_read(
    store: SQLiteFactStore, name: str, owner: str
) -> None:
    write(store.path, PIN, MALFORMED[name])

    await store.ledger.notice_external()

    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT owner FROM slumberd_quarantine").fetchall() == [(owner,)]


def raw(path: Path) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM facts ORDER BY fact_id").fetchall()


async def test_a_text_of_invalid_unicode_stops_no_read(store: SQLiteFactStore) -> None:
    bad = "CAST(x'ff41' AS TEXT)"
    write(store.path, f"INSERT INTO facts VALUES ('x', {bad}, 'a', '{{}}', '[]', 1, '{{}}', 't')")
    write(store.path, f"INSERT INTO facts VALUES ({bad}, 'u', 'a', '{{}}', '[]', 1, '{{}}', 't')")

    await fire(store, "e1", 1, "tea")

    assert [fact.id for fact in await store.query(FactPattern())] == ["e1"]
    assert [why for _, _, _, why in await recorded_deltas(store)] == ["external_unreadable"] * 2


async def test_a_repaired_row_leaves_the_quarantine(store: SQLiteFactStore) -> None:
    write(store.path, PIN, row("x", payload=b"?"))
    await store.ledger.notice_external()

    write(store.path, PIN, row("x"))
    await store.ledger.notice_external()

    assert await store.reads.quarantine() == []
    assert stored(store.path) == {"x": meaning(row("x"))}


async def test_a_malformed_edit_of_a_promoted_fact_is_overwritten_when_the_fact_is_resolved_again(
    store: SQLiteFactStore,
) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, "UPDATE facts SET payload = 'no JSON'")
    await store.ledger.notice_external()
    _, _, broken = await store.verify()
    assert broken is None
    assert raw(store.path)[0][3] == "no JSON"

    await fire(store, "e1", 1, "water", seq=3)

    assert stored(store.path)["e1"][3]["object"] == "water"


async def test_a_row_that_is_not_recorded_yet_can_be_retracted(store: SQLiteFactStore) -> None:
    write(store.path, PIN, row("theirs"))

    await store.unpin("theirs")

    assert stored(store.path) == {}
    assert await recorded_deltas(store) == [("add", "theirs", (), "")]


async def test_a_correction_of_a_declared_fact_does_not_change_its_row(
    store: SQLiteFactStore,
) -> None:
    write(store.path, PIN, row("theirs", "rum"))
    mine = Fact(
        id="ours", user="alice", agent="rag", lineage=[{"a": 1}], confidence=1.0,
        payload={"subject": "alice", "predicate": "drinks", "object": "tea"}, pinned_at=START,
    )  # fmt: skip

    await store.correct(mine, by="me", reason="it is so")

    assert sorted(stored(store.path)) == ["ours", "theirs"]


async def test_a_pin_of_another_program_can_be_undone(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    before = stored(store.path)
    write(store.path, PIN, row("e1", "rum"), row("more", "rum", agent="another"))
    noticed = await store.ledger.notice_external()

    await store.ledger.undo(noticed[0].firing_id, at=at(NOW), by="uid 0", dry_run=False)

    assert noticed[0].firing_id.startswith("@external@")
    assert stored(store.path) == before


async def test_a_delete_by_another_program_can_be_undone(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    before = stored(store.path)
    write(store.path, "DELETE FROM facts")
    noticed = await store.ledger.notice_external()

    await store.ledger.undo(noticed[0].firing_id, at=at(NOW), by="uid 0", dry_run=False)

    assert stored(store.path) == before


async def test_a_dry_run_records_no_change_and_loses_none(store: SQLiteFactStore) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, PIN, row("e1", "rum"))
    evaluated = version("e2", seq=2, metadata={"subject": "a", "predicate": "b", "object": "c"})
    firing = Firing("all", "h", "manual", at(NOW), Position(), Position(2, "e2"))

    await store.apply_deltas(DeltaBatch(firing, evaluate([evaluated], rule("all"))), dry_run=True)

    assert await recorded_deltas(store) == []
    assert [record.fact_id for record in await store.ledger.notice_external()] == ["", "e1"]


async def test_verify_distinguishes_unrecorded_changes_from_tampering(
    store: SQLiteFactStore,
) -> None:
    await fire(store, "e1", 1, "tea")
    write(store.path, PIN, row("theirs", user="bob"))
    _, _, pending = await store.verify()
    write(store.path, "UPDATE facts SET confidence = 0.9 WHERE fact_id = 'e1'")
    write(store.path, "DELETE FROM slumberd_external_changes WHERE fact_id = 'e1'")
    _, _, tampered = await store.verify()
    write(store.path, "UPDATE facts SET confidence = 1.0 WHERE fact_id = 'e1'")

    assert pending is not None
    assert pending.problem == (
        "fact 'theirs' was changed by another program and is not recorded yet"
    )
    assert tampered is not None
    assert tampered.problem == "fact 'e1' is not what the ledger says"


async def test_facts_older_than_the_ledger_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    given = row("old", "tea", pinned_at=at(5).isoformat())
    write(path, STARGRAPH)
    write(path, PIN, given)
    async with SQLiteFactStore(path, clock=FakeClock(at(NOW))) as store:
        await store.bootstrap()
        await fire(store, "e1", 1, "milk")

        assert list(stored(path)) == ["old", "e1"]
        assert stored(path)["old"] == meaning(given)
        assert await recorded_deltas(store) == [("add", "old", (), "")]
        assert (await store.verify())[2] is None


def record_in_chunks(path: Path, *, chunk: int) -> list[Record]:
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        transaction(connection),
    ):
        return record_changes(session_of(connection), 8, at(2), chunk=chunk)


def count_firings(records: list[Record]) -> int:
    return sum(record.kind == "firing" for record in records)


async def test_many_changes_are_recorded_in_several_firings(
    store: SQLiteFactStore,
) -> None:
    given = [row(f"f{n:02}", n, agent=f"agent {n}") for n in range(20)]
    write(store.path, PIN, *given)
    assert count_firings(record_in_chunks(store.path, chunk=7)) == 3

    write(store.path, "DELETE FROM facts WHERE fact_id < 'f10'")
    moved = [row(f"g{n:02}", n, agent=f"agent {n}", pinned_at=str(at(1))) for n in range(10)]
    write(store.path, PIN, *moved)
    assert count_firings(record_in_chunks(store.path, chunk=7)) == 3

    expected = [*given[10:], *moved]
    assert stored(store.path) == {columns[0]: meaning(columns) for columns in expected}


@pytest.mark.parametrize("rows", [1, MANY])
async def test_own_writes_are_not_recorded_and_later_writes_of_others_are(
    store: SQLiteFactStore, rows: int
) -> None:
    def write_ours(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        with own_writes(connection, rows=rows):
            connection.execute(PIN, row("ours"))
            connection.execute("UPDATE facts SET confidence = 0.1")
            connection.execute("DELETE FROM facts")
        connection.execute("COMMIT")

    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        write_ours(connection)
        assert connection.execute("SELECT * FROM slumberd_external_changes").fetchall() == []
    write(store.path, PIN, row("theirs"))

    assert [record.fact_id for record in await store.ledger.notice_external()] == ["", "theirs"]


@pytest.mark.parametrize("rows", [1, MANY])
async def test_a_rolled_back_own_write_keeps_the_triggers(
    store: SQLiteFactStore, rows: int
) -> None:
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(KeyError), own_writes(connection, rows=rows):
            raise KeyError
        connection.execute("ROLLBACK")
    write(store.path, PIN, row("theirs"))

    assert [record.fact_id for record in await store.ledger.notice_external()] == ["", "theirs"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"])
async def test_no_trigger_makes_a_write_of_another_program_fail(
    store: SQLiteFactStore, policy: str
) -> None:
    """SQLite lets a statement's conflict policy overrule those of the triggers that it fires."""
    insert = PIN.replace("REPLACE", policy)
    write(store.path, insert, row("a"), row("b", agent="another"))
    write(store.path, f"UPDATE OR {policy} facts SET confidence = 0.1")
    write(store.path, f"UPDATE OR {policy} facts SET fact_id = fact_id || '!'")
    write(store.path, "DELETE FROM facts WHERE fact_id = 'a!'")
    write(store.path, insert, row("a!"))

    await store.ledger.notice_external()

    assert sorted(stored(store.path)) == ["a!", "b!"]


FACT_BLOBS = (3, 4, 6)
"""The places of the columns of ``facts`` that are blobs."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    return home


def put(home: Home, *episodes: Any) -> None:
    file = home.folder / "put.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def seconds_until(true: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < PATIENCE_SECONDS
        time.sleep(0.005)
    return time.monotonic() - began


def rows_of_others(home: Home) -> int:
    with closing(sqlite3.connect(home.state / "facts.db", timeout=30)) as connection:
        found = connection.execute(
            "SELECT count(*) FROM slumberd_firings WHERE rule = '@external'"
        ).fetchone()
    return int(found[0])


@pytest.mark.timing
def test_a_running_daemon_records_a_change_of_another_process_within_a_second(home: Home) -> None:
    waits = []
    with home.daemon() as daemon:
        program = SqlWriter(home.state / "facts.db", blobs=FACT_BLOBS)
        for number in range(1, 6):
            program.write(PIN, row(f"f{number}", number, agent=f"a{number}"))
            waits.append(seconds_until(lambda: rows_of_others(home) == number))  # noqa: B023
        program.write("DELETE FROM facts WHERE fact_id = 'f1'")
        waits.append(seconds_until(lambda: rows_of_others(home) == 6))
        program.close()
        daemon.wait_for("delta.applied", lambda event: event["rule_id"] == "@external")
        daemon.wait_for("external.noticed")

    assert sorted(waits)[-2] < 1, waits
    assert {fact["id"] for fact in home.facts()} == {"f2", "f3", "f4", "f5"}
    assert home.call("audit", "verify").returncode == 0


@pytest.mark.slow
def test_polling_for_changes_takes_a_daemon_almost_no_processor_time(home: Home) -> None:
    with home.daemon() as daemon:
        readings = [processor_seconds(daemon.process.pid)]
        for _ in range(5):
            time.sleep(2)
            readings.append(processor_seconds(daemon.process.pid))

    # All that an idle daemon does is in there. It takes 0.02 seconds of each two on a fast machine,
    # and 0.09 on a slow one. A poll that reads a table takes several times as much.
    # The median: the daemon still starts during the first, and a busy machine may spoil another.
    used = [after - before for before, after in pairwise(readings)]
    assert median(used) < 0.15, used


@pytest.mark.slow
def test_a_daemon_and_another_program_change_the_same_fact_in_turns(home: Home) -> None:
    put(home, triple("e1", "alice", "drinks", "tea"))
    with home.daemon() as daemon:
        daemon.wait_until_read(1)
        program = SqlWriter(home.state / "facts.db", blobs=FACT_BLOBS)
        program.write(PIN, row("e1", "rum"))
        put(home, triple("e1", "alice", "drinks", "milk", content="edited"))
        daemon.wait_until_read(2)
        program.close()

        (fact,) = home.facts()
        assert fact["payload"]["object"] == "milk"

    assert home.call("audit", "verify").returncode == 0
    assert home.call("why", "e1").returncode == 0


@pytest.mark.slow
def test_a_command_records_what_was_changed_while_no_daemon_ran(home: Home) -> None:
    put(home, triple("e1", "alice", "drinks", "tea"))
    home.call("fire", "all")
    write(home.state / "facts.db", PIN, row("e1", "rum"))
    pending = home.call("audit", "verify", check=False)

    home.call("fire", "all")
    verified = home.call("audit", "verify")

    assert pending.returncode == 1
    assert "'e1' was changed by another program and is not recorded yet" in pending.stdout
    assert verified.returncode == 0
    (fact,) = home.facts()
    assert fact["payload"]["object"] == "rum"

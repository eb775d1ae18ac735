"""A firing records a row for itself, one row for each delta, and exact counts."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.precedence import newest_law
from slumberd.model.episode import Episode, microseconds
from slumberd.model.firing import Counts, Record
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import without_firings
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import path_of

pytestmark = pytest.mark.integration

Row = tuple[str, str, tuple[str, ...], str, tuple[str, ...], float]


def statement(id: str, what: Any, seconds: float, **metadata: Any) -> Episode:
    """Return an episode about what alice drinks."""
    return triple(id, "alice", "drinks", what, timestamp=at(seconds), metadata=metadata)


MORNING = [
    statement("tea", "tea", 10, confidence=0.5),
    statement("coffee", "coffee", 20),
    statement("milk", "milk", 15),
    statement("stop", None, 40, intent="delete", replaces=["coffee"]),
    statement("again", "coffee", 30),
    statement("quiet", None, 50, intent="noop"),
    statement("odd", "ink", 60, intent="shout"),
    statement("vain", None, 61, intent="delete", replaces=["nowhere"]),
    triple("other", "alice", "thinks", "x", timestamp=at(62)),
]
DRINKS = rule("drinks", when_filter="predicate = 'drinks'")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[OpenStores]:
    async with open_stores(tmp_path) as opened:
        yield opened
        assert (await opened.facts.verify())[2] is None


def visible_fields(record: Record) -> Row:
    """Return the fields of a row, without its numbers and instant."""
    return (
        record.kind,
        record.fact_id,
        record.replaces,
        record.reason,
        record.source_episode_ids,
        record.confidence,
    )


async def last_rows(home: OpenStores) -> list[Row]:
    """Return the rows of the newest firing, without the row of the firing itself."""
    records = await home.facts.reads.records()
    newest = records[-1].firing_id
    return [
        visible_fields(record)
        for record in records
        if record.firing_id == newest and record.kind != "firing"
    ]


def select(home: OpenStores, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path_of(home.facts))) as connection:
        return connection.execute(sql).fetchall()


async def test_each_episode_has_the_row_of_its_delta_in_the_order_of_instants(
    home: OpenStores,
) -> None:
    await home.put(*MORNING)

    await home.fire(DRINKS)

    assert await last_rows(home) == [
        ("add", "tea", (), "", ("tea",), 0.5),
        ("update", "milk", ("tea",), "", ("milk",), 1.0),
        ("update", "coffee", ("milk",), "", ("coffee",), 1.0),
        ("update", "again", ("coffee",), "", ("again",), 1.0),
        ("delete", "stop", ("again",), "", ("stop",), 1.0),
        ("noop", "quiet", (), "noop", ("quiet",), 1.0),
        ("quarantine", "odd", (), "intent_unknown", ("odd",), 1.0),
        ("noop", "vain", (), "unresolved", ("vain",), 1.0),
    ]
    assert await home.objects() == {}


async def test_counts_of_a_firing_add_up_to_the_versions_that_it_read(home: OpenStores) -> None:
    await home.put(*MORNING)

    report = await home.fire(DRINKS)

    counts = Counts(
        read=9, filtered=1, added=1, updated=3, deleted=1, noop=2, quarantined=1, restored=0
    )
    assert report.channels == {"facts": counts}
    (outcome,) = home.log.batches
    assert outcome.channels == {"facts": counts}


async def test_the_row_of_a_firing_records_its_trigger_and_requester(home: OpenStores) -> None:
    await home.put(*MORNING)
    stamped = rule("drinks", when_filter="predicate = 'drinks'", then_emits=["facts", "notes"])

    await home.consolidator.fire(FireRequest(stamped, "catchup", at(100), by="uid 7"))

    counts = {
        "read": 9, "filtered": 1, "added": 1, "updated": 3, "deleted": 1, "noop": 2,
        "quarantined": 1, "restored": 0,
    }  # fmt: skip
    ((payload,),) = select(home, "SELECT payload FROM slumberd_ledger WHERE what = 0")
    assert orjson.loads(payload) == {
        "rule": "drinks",
        "law": newest_law(),
        "rule_hash": stamped.content_hash,
        "trigger": "catchup",
        "at": at(100).isoformat(),
        "after": 0,
        "upto": 9,
        "generation": 0,
        "last_seq": 17,
        "by": "uid 7",
        "counts": {"facts": counts, "notes": counts},
    }
    ((counted, *firing),) = select(
        home,
        "SELECT counts, n, rule, rule_hash, cause, last_seq, generation, upto_seq, upto_eid"
        " FROM slumberd_firings",
    )
    assert firing == [1, "drinks", stamped.content_hash, "catchup", 17, 0, 9, "other"]
    assert orjson.loads(counted) == {"facts": counts, "notes": counts}


async def test_rows_are_numbered_without_gaps_over_channels_and_firings(home: OpenStores) -> None:
    await home.put(*MORNING[:2])
    await home.fire(rule("both", then_emits=["facts", "notes"]))
    await home.put(MORNING[2])
    await home.fire(rule("both", then_emits=["facts", "notes"]))

    records = await home.facts.reads.records()

    assert [(record.seq, record.firing_id, record.fact_id) for record in records] == [
        (1, "both@1", ""),
        (2, "both@1", "tea"),
        (3, "both@1", "coffee"),
        (4, "both@1", "@notes/tea"),
        (5, "both@1", "@notes/coffee"),
        (6, "both@6", ""),
        (7, "both@6", "milk"),
        (8, "both@6", "@notes/milk"),
    ]


async def test_quarantine_lists_an_episode_with_its_fault(home: OpenStores) -> None:
    await home.put(statement("odd", "ink", 60, intent="shout"))

    await home.fire(rule("all", then_emits=["notes"]))

    assert select(home, "SELECT * FROM slumberd_quarantine") == [
        (
            "all", "notes", "odd", 1, "alice/rag/notes/", "intent_unknown",
            "intent is 'shout'; write one of add, update, delete, noop, set", 2,
        )
    ]  # fmt: skip


async def test_late_episode_is_stale_or_retracted(
    home: OpenStores,
) -> None:
    await home.put(
        statement("coffee", "coffee", 20), statement("gone", "coffee", 40, intent="delete")
    )
    await home.fire()
    await home.put(statement("early", "tea", 10), statement("between", "coffee", 30))

    report = await home.fire()

    assert await last_rows(home) == [
        ("noop", "early", (), "stale", ("early",), 1.0),
        ("noop", "between", (), "retracted", ("between",), 1.0),
    ]
    assert report.channels["facts"] == Counts(read=2, noop=2)


async def test_edit_that_moves_a_fact_to_another_key_restores_the_fact_that_it_replaced(
    home: OpenStores,
) -> None:
    await home.put(statement("tea", "tea", 10), statement("wine", "wine", 20))
    await home.fire()
    await home.put(triple("wine", "alice", "eats", "cake", timestamp=at(20)))

    report = await home.fire()

    assert await last_rows(home) == [
        ("update", "wine", ("wine",), "", ("wine",), 1.0),
        ("add", "tea", (), "", ("tea",), 1.0),
    ]
    assert report.channels["facts"] == Counts(read=1, updated=1, restored=1)


async def test_each_restored_fact_is_counted(home: OpenStores) -> None:
    await home.put(
        statement("tea", "tea", 10),
        triple("porto", "alice", "lives_in", "Porto", timestamp=at(11)),
        triple("end", "alice", "x", "y", timestamp=at(20), metadata={"intent": "noop"}),
    )
    gone = {"intent": "delete", "replaces": ["tea", "porto"]}
    await home.put(triple("end", "alice", "x", "y", timestamp=at(20), metadata=gone))
    assert (await home.fire()).channels["facts"] == Counts(read=3, added=2, deleted=1)
    await home.put(triple("end", "alice", "x", "y", timestamp=at(20), metadata={"intent": "noop"}))

    report = await home.fire()

    assert report.channels["facts"] == Counts(read=1, noop=1, restored=2)
    assert await home.objects() == {"tea": "tea", "porto": "Porto"}


async def test_batches_of_a_firing_are_added_up(tmp_path: Path) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*MORNING)

        report = await home.fire(DRINKS)

        assert report.firing_ids == ["drinks@1", "drinks@4", "drinks@7", "drinks@10", "drinks@13"]
        counts = report.channels["facts"]
        assert (counts.read, counts.filtered, counts.quarantined) == (9, 1, 1)
        assert counts.added + counts.updated + counts.deleted + counts.noop == 7


async def test_undo_records_the_undone_claims_and_the_restored_facts(home: OpenStores) -> None:
    await home.put(statement("tea", "tea", 10))
    await home.fire()
    await home.put(statement("gone", None, 20, intent="delete"))
    (firing_id,) = (await home.fire()).firing_ids

    outcome = await home.facts.ledger.undo(firing_id, at=at(99), by="me", dry_run=False)

    assert await last_rows(home) == [
        ("noop", "gone", (), "undone", ("gone",), 1.0),
        ("add", "tea", (), "", ("tea",), 1.0),
    ]
    assert outcome.firing_id == "@undo@5"
    assert outcome.records == (await home.facts.reads.records())[4:]
    ((payload,),) = select(home, "SELECT payload FROM slumberd_ledger WHERE seq = 5")
    payload_of_undo = orjson.loads(payload)
    assert (payload_of_undo["rule"], payload_of_undo["by"], payload_of_undo["undoes"]) == (
        "@undo",
        "me",
        firing_id,
    )


@pytest.mark.slow
async def test_log_lines_equal_the_records_that_a_crash_would_repeat(
    home: OpenStores,
) -> None:
    await home.put(*MORNING)
    await home.fire(DRINKS)
    await home.put(statement("coffee", "cocoa", 25, confidence=0.25), statement("odd", "ink", 60))
    await home.fire(DRINKS)
    await home.consolidator.backfill(rule("drinks"), at(200), by="me")

    assert home.log.lines == without_firings(await home.facts.reads.records())


@pytest.mark.slow
async def test_dry_run_reports_the_rows_that_a_firing_then_writes(home: OpenStores) -> None:
    await home.put(*MORNING)

    rehearsed = await home.consolidator.preview(DRINKS, START)
    report = await home.fire(DRINKS)

    assert rehearsed.records == await home.facts.reads.records()
    assert rehearsed.channels == report.channels
    assert (rehearsed.firing_ids, rehearsed.dry_run, rehearsed.held) == ([], True, None)
    assert rehearsed.unread == 0


async def test_dry_retry_reports_and_keeps_the_quarantine(home: OpenStores) -> None:
    await home.put(statement("odd", "ink", 60, intent="shout"), statement("bad", "x", 61, intent=5))
    await home.fire()
    rows = await home.facts.reads.records()

    report = await home.consolidator.retry(
        rule("all"), at(99), by="me", eids=["bad", "unknown"], dry_run=True
    )

    assert report.channels["facts"].read == 1
    assert await home.facts.reads.records() == rows
    assert sorted(row["episode_id"] for row in await home.facts.reads.quarantine()) == [
        "bad",
        "odd",
    ]


async def test_recorded_instants_never_decrease(home: OpenStores) -> None:
    await home.put(statement("tea", "tea", 10))
    await home.consolidator.fire(FireRequest(rule("all"), "manual", at(500)))
    await home.put(statement("coffee", "coffee", 20))

    await home.consolidator.fire(FireRequest(rule("all"), "manual", at(400)))

    assert {record.at for record in await home.facts.reads.records()} == {at(500)}


async def test_claims_that_name_others_are_listed_by_name(home: OpenStores) -> None:
    await home.put(
        statement("b", "tea", 10, intent="update", replaces=["x", "y"]),
        statement("c", "milk", 20, intent="delete", replaces="b"),
        statement("d", "milk", 30, intent="noop", replaces=["b"]),
    )

    await home.fire()

    assert select(
        home, "SELECT referenced, referrer FROM slumberd_references ORDER BY referenced"
    ) == [
        ("b", "c"),
        ("x", "b"),
        ("y", "b"),
    ]


async def test_edit_that_does_not_change_the_claim_is_recorded_as_a_new_version(
    home: OpenStores,
) -> None:
    await home.put(statement("tea", "tea", 10))
    await home.fire()
    await home.put(statement("tea", "tea", 10, mood="calm"))

    report = await home.fire()

    assert await last_rows(home) == [("update", "tea", ("tea",), "", ("tea",), 1.0)]
    assert report.channels["facts"] == Counts(read=1, updated=1)
    ((version,),) = select(home, "SELECT max(version) FROM slumberd_ledger")
    assert version == 2


async def test_every_column_of_a_ledger_row_has_the_expected_value(home: OpenStores) -> None:
    await home.put(*MORNING[:3], *MORNING[6:8])

    await home.fire(DRINKS)

    columns = "seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces"
    noon = microseconds(START)
    assert select(home, f"SELECT {columns} FROM slumberd_ledger ORDER BY seq") == [
        (1, 1, 1, 0, 0, "", 0, None, None, None, None),
        (2, 2, 1, 1, 1, "", 1, 2, noon + 10_000_000, "tea", None),
        (3, 3, 1, 1, 2, "", 3, 2, noon + 15_000_000, "milk", '["tea"]'),
        (4, 4, 1, 1, 2, "", 2, 2, noon + 20_000_000, "coffee", '["milk"]'),
        (5, 5, 1, 3, 5, "intent_unknown", 4, None, noon + 60_000_000, "odd", None),
        (6, 6, 1, 1, 4, "unresolved", 5, 2, noon + 61_000_000, "vain", None),
    ]


async def test_payload_of_a_row_holds_the_whole_claim(home: OpenStores) -> None:
    await home.put(
        statement("a", "tea", 1, confidence=0.5),
        statement("b", None, 2, intent="delete"),
        statement("c", "rum", 3, intent="update", replaces=["a"]),
        statement("d", None, 4, intent="shout"),
    )

    await home.fire()

    found = {
        fact_id: orjson.loads(payload)
        for fact_id, payload in select(
            home, "SELECT fact_id, payload FROM slumberd_ledger WHERE what != 0"
        )
    }
    for document in found.values():
        document.get("payload", {}).pop("timestamp", None)
    triple = {"subject": "alice", "predicate": "drinks"}
    about = {"user": "alice", "agent": "rag"}
    text = {"source_node": "chat"}
    assert found == {
        "a": {
            "asserts": True,
            "payload": {
                "id": "a", **about, "content": "content of a", **text, **triple, "object": "tea"
            },
            "confidence": 0.5,
            "session": "s1",
        },
        "b": {
            "asserts": False,
            "payload": {"id": "b", **about, **triple},
            "clears": True,
            "session": "s1",
        },
        "c": {
            "asserts": True,
            "payload": {
                "id": "c", **about, "content": "content of c", **text, **triple, "object": "rum"
            },
            "names": ["a"],
            "rank": 1,
            "session": "s1",
        },
        "d": {
            "eid": "d",
            "detail": "intent is 'shout'; write one of add, update, delete, noop, set",
            "owner": "alice/rag/facts/",
            "session": "s1",
        },
    }  # fmt: skip


@pytest.mark.slow
async def test_an_episode_that_another_rule_holds_back_is_counted_in_no_channel(
    home: OpenStores,
) -> None:
    both = rule("both", then_emits=["facts", "notes"])
    await home.put(statement("tea", "tea", 1))
    await home.fire(rule("gated", salience={"min": 0.03}))
    await home.fire(both)
    await home.memory.recent("alice", limit=10)
    await home.memory.close()
    await home.put(statement("milk", "milk", 2))

    report = await home.fire(both)

    assert report.channels == {
        "facts": Counts(read=1, updated=1),
        "notes": Counts(read=1, updated=1),
    }

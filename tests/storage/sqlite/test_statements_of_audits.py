"""The statements of checks, erasure and the promotion feed, compared with plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.support.statement_tables import (
    EPISODES,
    FACTS,
    RULES,
    SEEDS,
    Oracles,
    Tables,
    changed,
    recorded_at,
    tables_of_facts,
    values_of,
)

pytestmark = pytest.mark.integration

FACT_CHECK = Oracles("fact_check")
VERIFY = Oracles("verify_tables")
ERASURE = Oracles("erasure")
FEED = Oracles("promotion_feed")
ALL = (FACT_CHECK, VERIFY, ERASURE, FEED)

FACT = ("fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at")
ROW = ("seq", "delta", "firing", "what", "kind", "reason", "version", "key_id", "at", "fact_id",
       "replaces", "payload")  # fmt: skip
FIRING = ("rule", "rule_hash", "cause", "at")
SOME_IDS = {"ids": ["f3", "f1", "@/m1", "@x/m3", "%", "unknown"]}
KEY_RANGES = [{"low": "k2", "high": "k5"}, {"low": "k1", "high": "k2"}]
SOME_ROWS = {"rows": [*range(3, 40), 900]}
SOME_EPISODES = {"eids": ["e2", "e1", "unknown"]}
LARGE = 1_000


def names_of(row: SimpleNamespace) -> list[str]:
    """Return the ids that a claim names."""
    names: list[str] = orjson.loads(row.payload or b"{}").get("names", [])
    return names


def find(rows: list[SimpleNamespace], **columns: Any) -> SimpleNamespace:
    """Return the first row with some values; one of which every value is None without any."""
    matching = (row for row in rows if all(vars(row)[name] == columns[name] for name in columns))
    return next(matching, SimpleNamespace(**dict.fromkeys(vars(rows[0]))))


@FACT_CHECK.rows({"first": 0, "last": LARGE}, {"first": 4, "last": 9})
def claims_by_key(t: Tables, first: int, last: int) -> list[Any]:
    keyed = [row for row in t.ledger if row.key_id and first <= row.key_id <= last]
    rows = [row for row in keyed if row.what == 1 and row.fact_id]
    return [
        (row.fact_id, row.seq, t.firing(row).rule, row.version, row.what, row.at, row.payload,
         t.firing(row).at, row.firing, row.key_id)
        for row in sorted(rows, key=lambda row: (row.key_id, row.seq))
    ]  # fmt: skip


@FACT_CHECK.rows()
def count_keyed_rows(t: Tables) -> list[Any]:
    return [[sum(row.key_id is not None for row in t.ledger)]]


@FACT_CHECK.rows(*({"place": place} for place in (0, 5, LARGE)))
def key_at(t: Tables, place: int) -> list[Any]:
    keys = sorted(row.key_id for row in t.ledger if row.key_id is not None)
    return [[key] for key in keys[place : place + 1]]


@FACT_CHECK.rows(in_any_order=True)
def ids_of_other_rows(t: Tables) -> list[Any]:
    found = []
    for fact_id in {row.fact_id for row in t.ledger if row.fact_id}:
        rows = [row for row in t.ledger if row.fact_id == fact_id]
        evaluations = [row for row in rows if row.what in (1, 2, 3, 6)]
        keys = {row.key_id for row in evaluations if row.key_id}
        others = [row for row in evaluations if row.what > 1]
        if len(rows) > 1 and (others or len(keys) > 1):
            found.append([fact_id])
    return found


@FACT_CHECK.rows(SOME_IDS, in_any_order=True)
def facts_of(t: Tables, ids: list[str]) -> list[Any]:
    return [values_of(fact, *FACT) for fact in t.facts if fact.fact_id in ids]


@FACT_CHECK.rows()
def count_summaries(t: Tables) -> list[Any]:
    kept = [row for row in t.keys if row.winner_at is not None or row.retractions is not None]
    return [[len(kept)]]


@FACT_CHECK.rows()
def all_facts(t: Tables) -> list[Any]:
    return [values_of(fact, *FACT) for fact in t.facts]


@VERIFY.rows()
def watermarks(t: Tables) -> list[Any]:
    found = []
    for mark in t.watermark:
        ends = [firing.upto_seq for firing in t.own_firings if firing.rule == mark.rule]
        found.append([mark.rule, mark.seq, ends[-1] if ends else None])
    return found


@VERIFY.rows()
def generations(t: Tables) -> list[Any]:
    return [values_of(row) for row in reversed(t.generations)]


@VERIFY.rows()
def highest_generation(t: Tables) -> list[Any]:
    return [[max(firing.generation for firing in t.firings)]]


@VERIFY.rows()
def versions(t: Tables) -> list[Any]:
    return [
        (row.seq, row.version, t.firing(row).generation)
        for row in t.ledger
        if row.version and not t.firing(row).rule.startswith("@")
        if t.firing(row).generation >= 0
    ]


@VERIFY.rows(in_any_order=True)
def approvals(t: Tables) -> list[Any]:
    return [[row.payload] for row in t.ledger if row.what == 0 and b'"approves":' in row.payload]


@VERIFY.rows()
def held_batches(t: Tables) -> list[Any]:
    return [
        (*values_of(held, "rule", "n", "upto_seq", "problem", "approved"),
         find(t.firings, n=held.n).rule, find(t.ledger, seq=held.n).payload)
        for held in t.held_batches
    ]  # fmt: skip


@VERIFY.rows(in_any_order=True)
def quarantine(t: Tables) -> list[Any]:
    found = []
    for held in t.quarantine:
        row = find(t.ledger, seq=held.seq)
        rule = find(t.firings, n=row.firing).rule
        found.append([*vars(held).values(), row.what, rule, row.version, row.reason, row.payload])
    return found


@VERIFY.rows(in_any_order=True)
def quarantined_ids(t: Tables) -> list[Any]:
    return [values_of(row, "rule", "channel", "eid") for row in t.quarantine]


@VERIFY.rows()
def quarantine_rows(t: Tables) -> list[Any]:
    return [
        (row.seq, row.firing, t.firing(row).rule, row.payload)
        for row in t.ledger
        if row.what == 3 and row.payload is not None and t.firing(row).rule != "@undo"
    ]


@VERIFY.rows(in_any_order=True)
def quarantine_removals(t: Tables) -> list[Any]:
    firings = [firing for firing in t.firings if firing.rule in ("@quarantine", "@undo")]
    return [[t.row(firing.n).payload] for firing in firings]


@VERIFY.rows(
    *(
        {"fact_id": fact_id, "seq": seq, "rule": rule}
        for fact_id, seq, rule in product(FACTS, range(1, 90, 3), RULES)
    )
)
def is_read_later(t: Tables, fact_id: str, seq: int, rule: str) -> list[Any]:
    of_episode = [
        row
        for row in t.ledger
        if row.fact_id is not None
        and (row.fact_id == fact_id or row.fact_id.startswith(f"{fact_id}#"))
    ]
    before = [row.firing for row in t.ledger if row.seq == seq]  # a random table may be shorter
    rows = [row for row in of_episode if before and row.firing > before[0] and row.version]
    later = [row for row in rows if row.what not in (3, 4) and t.firing(row).rule == rule]
    return [[1] for _ in later[:1]]


@ERASURE.rows(*KEY_RANGES, in_any_order=True)
def rows_of_keys(t: Tables, low: str, high: str) -> list[Any]:
    names = dict(numbers_of_keys(t, low, high))
    rows = [row for row in t.ledger if row.key_id in names and row.what == 1]
    return [(*values_of(row, "seq", "fact_id", "at", "payload"), names[row.key_id]) for row in rows]


@ERASURE.rows(in_any_order=True)
def rows_without_key(t: Tables) -> list[Any]:
    rows = [row for row in t.ledger if row.what in (2, 3, 8) and row.payload is not None]
    return [values_of(row, "seq", "fact_id", "at", "payload") for row in rows]


@ERASURE.rows(*KEY_RANGES, in_any_order=True)
def numbers_of_keys(t: Tables, low: str, high: str) -> list[Any]:
    return [(row.key_id, row.key) for row in t.keys if low <= row.key < high and row.slot == ""]


@ERASURE.rows(SOME_IDS, in_any_order=True)
def rows_of_facts(t: Tables, ids: list[str]) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in ids]
    return [values_of(row, "seq", "fact_id", "key_id", "payload") for row in rows]


@ERASURE.rows(SOME_IDS, {"ids": FACTS}, in_any_order=True)
def manual_claims_that_refer(t: Tables, ids: list[str]) -> list[Any]:
    return [
        (refers.referenced, refers.referrer, claim.payload)
        for refers in t.references
        for claim in t.ledger
        if refers.referenced in ids
        and refers.referrer.startswith("@/")
        and claim.fact_id == refers.referrer
        and claim.what == 1
    ]


@ERASURE.table("ledger", SOME_ROWS)
def erase_rows(t: Tables, rows: list[int]) -> list[Any]:
    personal = dict.fromkeys(("key_id", "at", "fact_id", "replaces", "salt", "payload"))
    return [changed(row, **personal) if row.seq in rows else values_of(row) for row in t.ledger]


@ERASURE.rows(SOME_ROWS)
def rows_to_erase(t: Tables, rows: list[int]) -> list[Any]:
    return [
        [row.seq, row.key_id, row.at, encoded(row.fact_id), encoded(row.replaces), row.payload,
         row.salt, row.commitment]
        for row in t.ledger
        if row.seq in rows
    ]  # fmt: skip


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@ERASURE.rows()
def erased(t: Tables) -> list[Any]:
    return [[row.seq] for row in t.ledger if row.salt is None]


@ERASURE.table(
    "facts",
    *(
        {**SOME_IDS, "user": user, "agent": agent, "whole": whole}
        for user, agent, whole in product(("alice", "bob", "al"), (None, "rag", "web"), (0, 1))
    ),
)
def drop_facts_of_scope(
    t: Tables, ids: list[str], user: str, agent: str | None, whole: int
) -> list[Any]:
    return [
        values_of(fact)
        for fact in t.facts
        if fact.user != user
        or agent not in (None, fact.agent)
        or not (whole or fact.fact_id in ids)
    ]


@ERASURE.table("references", SOME_IDS, {"ids": FACTS})
def drop_references(t: Tables, ids: list[str]) -> list[Any]:
    claims = [row for row in t.ledger if row.what == 1]
    named = {(name, claim.fact_id) for claim in claims for name in names_of(claim)}
    return [
        values_of(row)
        for row in t.references
        if row.referrer not in ids or (row.referenced, row.referrer) in named
    ]


@ERASURE.table("keys", {"keys": ["k2", "k1", "unused", "erased", "unknown"]})
def drop_keys(t: Tables, keys: list[str]) -> list[Any]:
    used = {row.key_id for row in t.ledger if row.fact_id is not None}
    return [values_of(row) for row in t.keys if row.key not in keys or row.key_id in used]


@ERASURE.table("quarantine", SOME_ROWS)
def drop_quarantine_of_rows(t: Tables, rows: list[int]) -> list[Any]:
    return [values_of(row) for row in t.quarantine if row.seq not in rows]


@ERASURE.table("firings", SOME_EPISODES)
def blank_firings(t: Tables, eids: list[str]) -> list[Any]:
    return [
        changed(row, upto_eid="") if row.upto_eid in eids else values_of(row) for row in t.firings
    ]


@ERASURE.table("watermark", *({"eids": [eid, "unknown"]} for eid in EPISODES))
def blank_watermarks(t: Tables, eids: list[str]) -> list[Any]:
    return [changed(row, eid="") if row.eid in eids else values_of(row) for row in t.watermark]


@ERASURE.table("held_batches", *({"eids": [eid, "unknown"]} for eid in EPISODES))
def blank_held_batches(t: Tables, eids: list[str]) -> list[Any]:
    return [
        changed(row, upto_eid="") if row.upto_eid in eids else values_of(row)
        for row in t.held_batches
    ]


OWNERS = [
    {**SOME_IDS, "user": user, "agent": agent, "whole": whole}
    for user, agent, whole in product(("alice", "bob", "al"), (None, "rag", "web"), (0, 1))
]


@ERASURE.rows(*OWNERS)
def count_facts_of_scope(
    t: Tables, ids: list[str], user: str, agent: str | None, whole: int
) -> list[Any]:
    counted = [
        fact
        for fact in t.facts
        if fact.user == user and agent in (None, fact.agent) and (whole or fact.fact_id in ids)
        if not fact.fact_id.startswith(("@marks/", "@summaries/", "@weights/"))
    ]
    return [[len(counted)]]


@ERASURE.rows(*OWNERS, in_any_order=True)
def facts_of_scope(
    t: Tables, ids: list[str], user: str, agent: str | None, whole: int
) -> list[Any]:
    return sorted(
        [fact.fact_id, fact.payload]
        for fact in t.facts
        if fact.user == user and agent in (None, fact.agent) and (whole or fact.fact_id in ids)
    )


@ERASURE.rows()
def count_facts(t: Tables) -> list[Any]:
    return [[len(t.facts)]]


PAGES = [{"after": after, "limit": limit} for after in (0, 7, 900) for limit in (1, 3, LARGE)]
SPANS = [{"after": after, "upto": upto} for after in range(30) for upto in (9, 30, 31, LARGE)]


@FEED.rows(*PAGES)
def end_of_page(t: Tables, after: int, limit: int) -> list[Any]:
    page = [row.seq for row in t.ledger if row.seq > after][:limit]
    return [[max(page, default=None)]]


@FEED.rows(*SPANS)
def promotions(t: Tables, after: int, upto: int) -> list[Any]:
    return [promotion(t, row) for row in promoting(t, after, upto) if t.firing(row).generation >= 0]


def promoting(t: Tables, after: int, upto: int) -> list[SimpleNamespace]:
    rows = [row for row in t.ledger if after < row.seq <= upto and row.kind in (1, 2)]
    return [row for row in rows if row.fact_id]


def promotion(t: Tables, row: SimpleNamespace) -> list[Any]:
    return [*values_of(row, *ROW), *values_of(t.firing(row), *FIRING)]


@FEED.rows(*SPANS)
def promotions_of_current_facts(t: Tables, after: int, upto: int) -> list[Any]:
    current = {fact.fact_id for fact in t.facts}
    return [promotion(t, row) for row in promoting(t, after, upto) if row.fact_id in current]


@FEED.rows(*({"seq": seq, "limit": limit} for seq in (0, 7, 900) for limit in (1, 3, LARGE)))
def changed_facts(t: Tables, seq: int, limit: int) -> list[Any]:
    rules = {firing.n: firing.rule for firing in t.firings}
    found = [
        [row.fact_id, row.replaces, rules.get(row.seq)]
        for row in t.ledger
        if row.seq > seq and not (row.fact_id or "").startswith("@weights/")
    ]
    return found[:limit]


@FEED.rows(*({"seq": seq} for seq in (*range(1, 60), 900)))
def has_content(t: Tables, seq: int) -> list[Any]:
    return [[1] for row in t.ledger if row.seq == seq and row.salt is not None]


@FEED.table("numbers", {"name": "logged", "value": 3}, {"name": "new", "value": 3})
def put_number(t: Tables, name: str, value: int) -> list[Any]:
    return [*(values_of(row) for row in t.numbers if row.name != name), (name, value)]


@FEED.rows()
def sinks(t: Tables) -> list[Any]:
    found = [row.name for row in t.numbers if row.name.startswith("asserted:")]
    return [[name.removeprefix("asserted:")] for name in sorted(found)]


@FEED.rows(*({"after": after} for after in (0, 1, 7, 30, 900)))
def lag(t: Tables, after: int) -> list[Any]:
    later = [recorded_at(t, t.firing(row)) for row in t.ledger if row.seq > after]
    return [[t.ledger[-1].seq - after, later[0] if later else None]]


CASES = {case.name: case for oracles in ALL for case in oracles.cases.values()}


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_facts(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
def test_statement_does_what_its_oracle_computes(tables: Tables, name: str) -> None:
    CASES[name].check(tables)


def test_quarantine_is_read_in_the_order_of_its_rows(tables: Tables) -> None:
    numbers = [row[7] for row in tables.rows("verify_tables.quarantine", ())]

    assert numbers == sorted(numbers)


@pytest.mark.parametrize("oracles", ALL)
def test_every_statement_has_an_oracle(oracles: Oracles) -> None:
    assert oracles.without_oracle() == set()


def test_empty_ledger_has_no_lag() -> None:
    with tables_of_facts(0) as empty:
        empty.run("DELETE FROM slumberd_ledger")

        assert empty.rows("promotion_feed.lag", {"after": 0}) == [(0, None)]

"""The statements of reports, and on changes of other programs, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, product
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.support.statement_tables import (
    RULES,
    SEEDS,
    Oracles,
    Tables,
    recorded_at,
    tables_of_facts,
    values_of,
)

pytestmark = pytest.mark.integration

INSPECTION = Oracles("inspection")
EXTERNAL = Oracles("external_changes")
PARTITION = Oracles("partition")
SIMILARITY = Oracles("similarity")
UNFINISHED = Oracles("unfinished_erasures")

ROW = ("seq", "delta", "firing", "what", "kind", "reason", "version", "key_id", "at", "fact_id",
       "replaces", "payload")  # fmt: skip
SOME_FACTS = {"values": ["f2", "f1", "@/m1", "unknown"]}
LARGE = 1_000


def claim_names(row: SimpleNamespace) -> list[str]:
    names: list[str] = orjson.loads(row.payload or b"{}").get("names", [])
    return names


@INSPECTION.rows({"table": "facts"}, {"table": "slumberd_facts_owner"}, in_any_order=True)
def triggers(t: Tables, table: str) -> list[Any]:
    return [
        values_of(row, "name", "sql")
        for row in t.schema
        if row.type == "trigger" and row.tbl_name == table
    ]


@INSPECTION.rows(in_any_order=True)
def quarantined(t: Tables) -> list[Any]:
    found = sorted({(row.rule, row.reason, row.eid) for row in t.quarantine})
    groups = groupby(found, key=lambda row: row[:2])
    return [(*pair, len([*rows])) for pair, rows in groups]


@INSPECTION.rows()
def unlogged(t: Tables) -> list[Any]:
    (logged,) = (row.value for row in t.numbers if row.name == "logged")
    return [[max(0, t.ledger[-1].seq - logged)]]


@INSPECTION.rows({"limit": LARGE}, {"limit": 1})
def disagreements(t: Tables, limit: int) -> list[Any]:
    current = {fact.fact_id for fact in t.facts}
    return [
        (declared.winner_fact, other.winner_fact)
        for declared, other in product(t.keys, t.keys)
        if declared.slot[:1] == "@" and declared.slot != "@" and other.slot == ""
        if declared.key == other.key and declared.winner_object != other.winner_object
        if {declared.winner_fact, other.winner_fact} <= current
    ][:limit]


def is_extracted(row: SimpleNamespace) -> bool:
    """Return whether a retraction of a key was found in a text."""
    document = orjson.loads(row.payload or b"{}")
    return "clears" in document and "extracted" in document.get("payload", {})


@INSPECTION.rows({"limit": LARGE}, {"limit": 1})
def unresolved(t: Tables, limit: int) -> list[Any]:
    found = []
    for claim in t.ledger:
        later = [row for row in t.ledger if row.seq > claim.seq and row.fact_id]
        covered = {row.fact_id for row in later if row.reason == "retracted"}
        again = claim.fact_id in {row.fact_id for row in later}
        is_unresolved = claim.reason == "unresolved" and claim.what == 1 and claim.fact_id
        is_unresolved = is_unresolved and not is_extracted(claim)
        if is_unresolved and not again and not covered & {*claim_names(claim)}:
            found.append([claim.fact_id])
    return found[:limit]


@INSPECTION.rows(in_any_order=True)
def last_firings(t: Tables) -> list[Any]:
    newest = {firing.rule: firing for firing in t.own_firings}
    return [
        [*values_of(firing, "rule", "n"), recorded_at(t, firing), firing.counts]
        for firing in newest.values()
    ]


@INSPECTION.rows()
def last_recorded(t: Tables) -> list[Any]:
    return [[t.firings[-1].at]]


@INSPECTION.rows()
def latest_claim(t: Tables) -> list[Any]:
    return [[max(row.winner_at for row in t.keys if row.winner_at is not None)]]


@INSPECTION.rows()
def origin_of_slumberd_ledger(t: Tables) -> list[Any]:
    return [[t.ledger[0].chain]]


@INSPECTION.rows(*({"since": since} for since in (0, 1, 10**15, 10**18)))
def first_firing_since(t: Tables, since: int) -> list[Any]:
    return [[row.n] for row in t.own_firings if row.at >= since][:1]


@INSPECTION.rows(in_any_order=True)
def facts_by_user(t: Tables) -> list[Any]:
    counts = Counter(fact.user for fact in t.facts if not is_of_stages(fact.fact_id))
    return [[user, count] for user, count in counts.items()]


def is_of_stages(fact_id: str) -> bool:
    return fact_id.startswith(("@marks/", "@summaries/", "@weights/"))


def changes_of_facts(t: Tables, first: int) -> Iterator[tuple[Any, str, list[str]]]:
    """Yield each row that changed facts, with one of these, and those that went."""
    for row in t.ledger:
        went = orjson.loads(row.replaces or "[]")
        changed = went[0] if row.kind == 3 and went else row.fact_id
        if row.seq >= first and row.kind in (1, 2, 3) and changed and not is_of_stages(changed):
            yield row, changed, went


@INSPECTION.rows(*({"first": first} for first in (0, 20, 40, 10**6)))
def any_loss(t: Tables, first: int) -> list[Any]:
    lost = any(row.kind == 3 or len(went) > 1 for row, _, went in changes_of_facts(t, first))
    return [[lost or bool(erasures_since(t, first))]]


@INSPECTION.rows(*({"first": first} for first in (0, 20, 40)), in_any_order=True)
def changes_by_user(t: Tables, first: int) -> list[Any]:
    owners: dict[str, str] = {}
    for row in t.ledger:
        stated = (_object(row.payload) or {}).get("payload")
        if isinstance(stated, dict) and "user" in stated:
            owners.setdefault(row.fact_id, stated["user"])
    owners |= {fact.fact_id: fact.user for fact in t.facts}
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, changed, went in changes_of_facts(t, first):
        payload = _object(row.payload)
        inner = payload.get("payload") if payload else None
        user = inner.get("user") if isinstance(inner, dict) else None
        owner = payload.get("owner") if payload else None
        of_fact = owners.get(changed) if payload is None else None
        counted = found.setdefault((row.firing, user, owner, of_fact), [0, 0])
        counted[0] += row.kind != 3
        counted[1] += len(went)
    return [[*group, *counted] for group, counted in found.items()]


def _object(payload: bytes | None) -> dict[str, Any] | None:
    try:
        return dict(orjson.loads(payload)) if payload is not None else None
    except orjson.JSONDecodeError:
        return None


@INSPECTION.rows({"first": 0}, {"first": 40}, in_any_order=True)
def erasures_since(t: Tables, first: int) -> list[Any]:
    return [
        [row.seq, row.payload]
        for row in t.ledger
        if row.seq >= first and row.what == 0 and b'"removed":' in (row.payload or b"")
    ]


@INSPECTION.rows(*({"after": after} for after in range(100)))
def erasures(t: Tables, after: int) -> list[Any]:
    firings = [firing for firing in t.firings if firing.rule == "@erasure"]
    return [[len([firing for firing in firings if firing.last_seq > after])]]


@INSPECTION.rows({"limit": LARGE}, {"limit": 2})
def users_of_facts(t: Tables, limit: int) -> list[Any]:
    return [[user] for user in sorted({fact.user for fact in t.facts})][:limit]


@INSPECTION.rows()
def count_facts(t: Tables) -> list[Any]:
    return [[len(t.facts)]]


@INSPECTION.rows({"name": "FACTS"}, {"name": "slumberd_ledger_seq"}, {"name": "unknown"})
def has_table(t: Tables, name: str) -> list[Any]:
    tables = {row.name for row in t.schema if row.type == "table"}
    return [[name.lower() in tables]]


@INSPECTION.rows(*({"user": user} for user in ("", "al", "alice", "bob")))
def any_fact_of_user(t: Tables, user: str) -> list[Any]:
    return [[any(fact.user == user for fact in t.facts)]]


@INSPECTION.rows()
def kind_of_facts(_: Tables) -> list[Any]:
    return [["table"]]


@EXTERNAL.table("numbers")
def begin_own_write(t: Tables) -> list[Any]:
    return [(row.name, 1 if row.name == "ours" else row.value) for row in t.numbers]


@EXTERNAL.table("numbers")
def end_own_write(t: Tables) -> list[Any]:
    return [(row.name, 0 if row.name == "ours" else row.value) for row in t.numbers]


@EXTERNAL.rows()
def any_change(_: Tables) -> list[Any]:
    return [[1]]


@EXTERNAL.rows(in_any_order=True)
def all_changed_ids(t: Tables) -> list[Any]:
    return [[row.fact_id] for row in t.external_changes]


@EXTERNAL.table("external_changes")
def drop_changes(_: Tables) -> list[Any]:
    return []


QUARANTINED = list(product(RULES[:3], ("facts", "x"), ("e1", "e2", "e3")))


@EXTERNAL.table(
    "quarantine", *({"rule": rule, "channel": to, "eid": eid} for rule, to, eid in QUARANTINED)
)
def drop_unreadable(t: Tables, rule: str, channel: str, eid: str) -> list[Any]:
    key = (rule, channel, eid)
    return [values_of(row) for row in t.quarantine if (row.rule, row.channel, row.eid) != key]


@EXTERNAL.rows(
    *({"rule": rule, "reason": reason} for rule, reason in product(RULES, ("r1", "r2", "x"))),
    in_any_order=True,
)
def unreadable_ids(t: Tables, rule: str, reason: str) -> list[Any]:
    return [[row.eid] for row in t.quarantine if (row.rule, row.reason) == (rule, reason)]


@PARTITION.rows(in_any_order=True)
def keys_of_shared(t: Tables) -> list[Any]:
    found: dict[str, list[int | None]] = {}
    for row in t.ledger:
        if row.fact_id is not None:
            found.setdefault(row.fact_id, []).append(row.key_id)
    shared = {fact_id for fact_id, keys in found.items() if len({*keys}) > 1 or None in keys}
    ids = {fact_id for fact_id in shared if len(found[fact_id]) > 1}
    return [(row.fact_id, row.key_id) for row in t.ledger if row.fact_id in ids]


@PARTITION.rows(in_any_order=True)
def claims_with_references(t: Tables) -> list[Any]:
    rows = [row for row in t.ledger if row.what == 1 and row.key_id and claim_names(row)]
    return [values_of(row, "key_id", "payload") for row in rows]


@PARTITION.rows(SOME_FACTS, in_any_order=True)
def keys_of_facts(t: Tables, values: list[str]) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in values and row.key_id is not None]
    return [values_of(row, "fact_id", "key_id") for row in rows]


@PARTITION.rows({"numbers": [LARGE, *range(20)]}, in_any_order=True)
def firings(t: Tables, numbers: list[int]) -> list[Any]:
    return [values_of(firing, "n", "rule", "at") for firing in t.firings if firing.n in numbers]


@PARTITION.rows()
def rows_by_key(t: Tables) -> list[Any]:
    rows = sorted((row for row in t.ledger if row.key_id), key=lambda row: (row.key_id, row.seq))
    return [values_of(row, *ROW) for row in rows]


@PARTITION.rows({"values": [4, 2, 99]}, in_any_order=True)
def rows_of_keys(t: Tables, values: list[int]) -> list[Any]:
    return [values_of(row, *ROW) for row in t.ledger if row.key_id in values]


@PARTITION.rows(SOME_FACTS, in_any_order=True)
def rows_of_facts(t: Tables, values: list[str]) -> list[Any]:
    return [values_of(row, *ROW) for row in t.ledger if row.fact_id in values]


@PARTITION.rows(in_any_order=True)
def facts_without_key(t: Tables) -> list[Any]:
    return [[row.fact_id] for row in t.ledger if row.key_id is None and row.fact_id]


@PARTITION.rows()
def rows_without_fact(t: Tables) -> list[Any]:
    rows = [row for row in t.ledger if row.key_id is None and row.fact_id is None]
    return [values_of(row, *ROW) for row in rows if row.salt is not None and row.what]


@PARTITION.rows()
def all_rows(t: Tables) -> list[Any]:
    return [values_of(row, *ROW) for row in t.ledger if row.salt is not None and row.what]


@SIMILARITY.rows(
    *({"low": "k2", "high": high, "most": most} for high in ("k4", "k9") for most in (2, LARGE))
)
def winners_between(t: Tables, low: str, high: str, most: int) -> list[Any]:
    payloads = {fact.fact_id: fact.payload for fact in t.facts}
    found = []
    for row in t.keys:
        replaced = orjson.loads(row.replaced or b"[]")
        siblings = replaced["siblings"] if isinstance(replaced, dict) else []
        own = [row.winner_part, row.winner_fact]
        precedence = row.winner_at, row.winner_rank, row.winner_id
        found += [
            [row.key, row.slot, fact_id, *precedence, part, payloads[fact_id]]
            for part, fact_id, *_ in [own, *siblings]
            if low <= row.key < high and fact_id in payloads
        ]
    return sorted(found, key=lambda row: row[3:7], reverse=True)[:most]


@UNFINISHED.table(
    "unfinished_erasures",
    *({"scope": scope, "eids": b"[1]", "moment": 9, "by": "me"} for scope in ("s2", "new")),
)
def begin(t: Tables, scope: str, eids: bytes, moment: int, by: str) -> list[Any]:
    kept = [values_of(row) for row in t.unfinished_erasures if row.scope != scope]
    return [*kept, (scope, eids, moment, by)]


@UNFINISHED.table("unfinished_erasures", ("s2",), ("unknown",))
def end(t: Tables, scope: str) -> list[Any]:
    return [values_of(row) for row in t.unfinished_erasures if row.scope != scope]


@UNFINISHED.rows()
def all_(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.unfinished_erasures]


@UNFINISHED.rows()
def count(t: Tables) -> list[Any]:
    return [[len(t.unfinished_erasures)]]


REWRITES = Oracles("rewrites")


@REWRITES.rows()
def pending(t: Tables) -> list[Any]:
    return sorted([row.name, row.value] for row in t.numbers if row.name.startswith("rewrite/"))


@REWRITES.table("numbers", ("rewrite/facts/7",), ("unknown",))
def finish(t: Tables, name: str) -> list[Any]:
    return [values_of(row) for row in t.numbers if row.name != name]


ALL = (INSPECTION, EXTERNAL, PARTITION, SIMILARITY, UNFINISHED, REWRITES)
CASES = {case.name: case for oracles in ALL for case in oracles.cases.values()}


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_facts(request.param) as opened:
        yield opened


@pytest.fixture
def fresh() -> Iterator[Tables]:
    with tables_of_facts(0) as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
def test_statement_does_what_its_oracle_computes(tables: Tables, name: str) -> None:
    CASES[name].check(tables)


def test_changes_of_other_programs_name_the_rows_of_their_facts(fresh: Tables) -> None:
    """Ids without a fact come first, then facts by the instant at which they were pinned."""
    fresh.run("DELETE FROM slumberd_external_changes")
    fresh.run("UPDATE facts SET fact_id = NULL WHERE fact_id = (SELECT min(fact_id) FROM facts)")
    fresh.run("INSERT INTO slumberd_external_changes VALUES ('gone')")
    fresh.run(
        "UPDATE facts SET pinned_at = '2026' WHERE fact_id = (SELECT max(fact_id) FROM facts)"
    )
    fresh.run("UPDATE facts SET confidence = 0.25")
    rows = {fact.rid: (fact.pinned_at, fact.fact_id or "") for fact in fresh.rowids_of_facts}

    found = fresh.rows("external_changes.changes", ())

    wanted = [("gone", None)]
    wanted += [(rows[rid][1], rid) for rid in sorted(rows, key=lambda rid: rows[rid])]
    assert [row for row in found if row[0] in {name for name, _ in wanted}] == wanted
    assert [row[1] for row in found if row not in wanted] == [None] * (len(found) - len(wanted))


def test_change_that_slumberd_makes_is_not_noted(fresh: Tables) -> None:
    fresh.run("DELETE FROM slumberd_external_changes")
    fresh.run("UPDATE slumberd_numbers SET value = 1 WHERE name = 'ours'")

    fresh.run("UPDATE facts SET confidence = 0.25")
    fresh.run("DELETE FROM facts")

    assert fresh.rows("external_changes.any_change", ()) == [(0,)]


def test_nothing_is_unlogged_in_an_empty_ledger(fresh: Tables) -> None:
    fresh.run("DELETE FROM slumberd_ledger")

    assert fresh.rows("inspection.unlogged", ()) == [(0,)]


def test_newest_claims_of_facts_are_counted_as_erased_content(tables: Tables) -> None:
    """The session is that of the newest claim: SQLite takes it from the row of the maximum."""
    wanted = []
    for fact in tables.facts:
        claims = [row for row in tables.ledger if row.fact_id == fact.fact_id and row.what == 1]
        instants = [row.at for row in claims if row.at is not None]
        newest = [row for row in claims if not instants or row.at == max(instants)]
        if claims:
            sessions = {orjson.loads(row.payload or b"{}").get("session") for row in newest}
            wanted.append((fact.user, fact.agent, max(instants, default=None), sessions))

    found = tables.rows("erased_content.facts", ())

    assert sorted((row[:3] for row in found), key=repr) == sorted(
        (row[:3] for row in wanted), key=repr
    )
    assert all(any(row[3] in other[3] for other in wanted if other[:3] == row[:3]) for row in found)

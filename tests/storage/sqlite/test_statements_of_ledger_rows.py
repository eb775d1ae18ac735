"""The statements that read rows and firings of the ledger, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.support.statement_tables import (
    FACTS,
    RULES,
    SEEDS,
    Oracles,
    Tables,
    recorded_at,
    tables_of_facts,
    values_of,
)

pytestmark = pytest.mark.integration

ORACLES = Oracles("ledger")
EVALUATIONS = (1, 2, 3, 6)
SOME_FACTS = {"values": ["f2", "f1", "@/m1", "unknown"]}
SOME_IDS = {"ids": ["f2", "f1", "@/m1", "unknown"]}
ROW = ("seq", "delta", "firing", "what", "kind", "reason", "version", "key_id", "at", "fact_id",
       "replaces", "payload")  # fmt: skip
FIRING = ("rule", "rule_hash", "cause", "at")
LARGE = 1_000
RANGES = [{"first": -(2**63), "last": 2**63 - 1}, {"first": 3, "last": 9}]
OF_FIRING = ("n", *FIRING, "last_seq", "generation", "upto_seq", "counts")
ALL_WHOLE_ROWS = ("ledger.whole_rows", {"after": 0, "limit": LARGE})
ALL_RECORDS = ("ledger.records", {"after": 0, "limit": LARGE})


def content_of(row: SimpleNamespace) -> dict[str, Any]:
    """Return the JSON of a row; empty when it is none."""
    try:
        content: dict[str, Any] = orjson.loads(row.payload or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return content


def evaluation(t: Tables, row: SimpleNamespace) -> list[Any]:
    firing = t.firing(row)
    read = [row.fact_id, row.seq, firing.rule, row.version, row.what, row.at, row.payload]
    return [*read, firing.at, row.firing]


def record(t: Tables, row: SimpleNamespace) -> list[Any]:
    firing = t.firing(row)
    run = content_of(t.row(firing.n)).get("run")
    of_firing = [*values_of(firing, *FIRING[:-1]), recorded_at(t, firing)]
    return [*values_of(row, *ROW), *of_firing, claim_of(t, row), run]


def claim_of(t: Tables, row: SimpleNamespace) -> bytes | None:
    """Return the first claim of a row's fact, for rows that have none of their own."""
    wanted = {4: (1, 2, 3, 8), 5: (1,), 6: (1,)}.get(row.what, ())
    siblings = [other for other in t.ledger if row.fact_id and other.fact_id == row.fact_id]
    found = [other.payload for other in siblings if other.what in wanted and other.payload]
    return found[0] if found else None


@ORACLES.rows()
def last_row(t: Tables) -> list[Any]:
    return [values_of(t.ledger[-1], "seq", "chain")]


@ORACLES.rows((1,), (5,), (LARGE,))
def chain_at(t: Tables, seq: int) -> list[Any]:
    return [[row.chain] for row in t.ledger if row.seq == seq]


@ORACLES.rows(SOME_FACTS)
def evaluations(t: Tables, values: list[str]) -> list[Any]:
    return [
        evaluation(t, row) for row in t.ledger if row.fact_id in values and row.what in EVALUATIONS
    ]


@ORACLES.rows(*({"first": first, "upto": upto} for first in (0, 9) for upto in (LARGE, *range(40))))
def all_evaluations(t: Tables, first: int, upto: int) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id and first <= row.seq <= upto]
    return [evaluation(t, row) for row in rows if row.what in EVALUATIONS]


@ORACLES.rows(
    *({"firing": n, "rule": rule} for n in range(60) for rule in RULES), in_any_order=True
)
def evaluated_in_firing(t: Tables, firing: int, rule: str) -> list[Any]:
    rows = [row for row in t.ledger if row.firing == firing and t.firing(row).rule == rule]
    return [*{(row.fact_id,) for row in rows if row.fact_id and row.what in EVALUATIONS}]


@ORACLES.rows(*({**SOME_IDS, "rule": rule} for rule in RULES))
def last_of_rule(t: Tables, ids: list[str], rule: str) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in ids and row.what in (1, 2, 3, 4, 8)]
    return [
        values_of(row, "fact_id", "what", "version") for row in rows if t.firing(row).rule == rule
    ]


@ORACLES.rows((1,), (2,), (LARGE,))
def firing(t: Tables, n: int) -> list[Any]:
    return [values_of(firing, "rule", "at", "generation") for firing in t.firings if firing.n == n]


@ORACLES.rows({"run": "r1"}, {"run": "r2"}, {"run": "r3"}, {"run": "u"})
def firings_of_run(t: Tables, run: str) -> list[Any]:
    return [
        values_of(firing, "n", "rule")
        for firing in t.own_firings
        if firing.last_seq > firing.n and content_of(t.row(firing.n)).get("run") == run
    ]


@ORACLES.rows(*({"rules": ["c", "a", "unknown"], "since": since} for since in range(10)))
def firings_since(t: Tables, rules: list[str], since: int) -> list[Any]:
    return [
        values_of(firing, "n", "rule")
        for firing in t.own_firings
        if firing.last_seq > firing.n and firing.rule in rules and recorded_at(t, firing) >= since
    ]


@ORACLES.rows({"rules": ["unknown", "a"]}, {"rules": ["unknown"]}, {"rules": []})
def any_firing_of(t: Tables, rules: list[str]) -> list[Any]:
    return [[any(firing.rule in rules for firing in t.own_firings)]]


@ORACLES.rows({"undo": "@undo"}, {"undo": "a"})
def undone_by(t: Tables, undo: str) -> list[Any]:
    undoing = [firing.n for firing in reversed(t.own_firings) if firing.rule == undo]
    return [(n, content_of(t.row(n)).get("undoes")) for n in undoing]


PLACES = [
    {"before": before, "upto": upto, "limit": limit}
    for before in (1, 30, LARGE)
    for upto in (0, 4, LARGE)
    for limit in (1, 3, LARGE)
]


def stored_firing(t: Tables, firing: SimpleNamespace) -> list[Any]:
    first, last = values_of(firing, "n", "rule", "cause"), values_of(firing, "last_seq", "counts")
    return [*first, recorded_at(t, firing), *last, t.row(firing.n).payload]


@ORACLES.rows(*PLACES)
def firings_before(t: Tables, before: int, upto: int, limit: int) -> list[Any]:
    found = [firing for firing in reversed(t.own_firings) if firing.n < before]
    upto_then = [firing for firing in found if recorded_at(t, firing) <= upto]
    return [stored_firing(t, firing) for firing in upto_then][:limit]


@ORACLES.rows(*({**place, "rule": rule} for place in PLACES for rule in ("a", "c", "unknown")))
def firings_of_rule_before(t: Tables, rule: str, before: int, upto: int, limit: int) -> list[Any]:
    found = firings_before(t, before, upto, LARGE)
    return [row for row in found if row[1] == rule][:limit]


@ORACLES.rows(
    *(
        {"before": place["before"], "upto": place["upto"], "run": run}
        for place in PLACES
        for run in ("r1", "r2", "unknown")
    )
)
def firings_of_run_before(t: Tables, run: str, before: int, upto: int) -> list[Any]:
    found = firings_before(t, before, upto, LARGE)
    return [row for row in found if content_of(t.row(row[0])).get("run") == run]


@ORACLES.rows(*({"undo": undo, "after": after} for undo in ("@undo", "a") for after in range(60)))
def undone_after(t: Tables, undo: str, after: int) -> list[Any]:
    return [row for row in undone_by(t, undo) if row[0] > after]


@ORACLES.rows({"numbers": [1, LARGE, *range(2, 40)]}, {"numbers": []}, in_any_order=True)
def kinds_in_firings(t: Tables, numbers: list[int]) -> list[Any]:
    firings = [firing for firing in t.firings if firing.n in numbers]
    counted = Counter(
        (firing.n, row.what, row.kind)
        for firing in firings
        for row in t.ledger
        if firing.n < row.seq <= firing.last_seq
    )
    return [[*group, rows] for group, rows in counted.items()]


@ORACLES.rows(
    *(
        {"firing": firing, "after": after, "limit": limit}
        for firing in range(40)
        for after in (0, firing + 2)
        for limit in (2, LARGE)
    )
)
def records_of_firing(t: Tables, firing: int, after: int, limit: int) -> list[Any]:
    ends = {each.n: each.last_seq for each in t.firings}
    rows = [row for row in t.ledger if firing < row.seq <= ends.get(firing, 0) if row.seq > after]
    return [record(t, row) for row in rows][:limit]


@ORACLES.rows((0,), *((n,) for n in range(1, 60)), (LARGE,))
def end_of_firing(t: Tables, number: int) -> list[Any]:
    return [[firing.last_seq] for firing in t.firings if firing.n <= number][-1:]


@ORACLES.rows(*((rule,) for rule in (*RULES, "unknown")))
def last_of_firings(t: Tables, rule: str) -> list[Any]:
    return [[max((firing.n for firing in t.own_firings if firing.rule == rule), default=None)]]


@ORACLES.rows(*({"after": after, "upto": upto} for after in (0, 9, 30) for upto in (8, 25, LARGE)))
def owned_rows(t: Tables, after: int, upto: int) -> list[Any]:
    found = []
    for row in t.ledger:
        if after < row.seq <= upto:
            of = t.firing(row)
            firing = [*values_of(of, "n", "rule"), recorded_at(t, of)]
            own = values_of(row, "kind", "reason", "fact_id")
            found.append([*firing, *own, claim_of(t, row), row.payload, row.key_id])
    return found


@ORACLES.rows(*({"after": after} for after in (0, 5, 30, LARGE)), in_any_order=True)
def rules_after(t: Tables, after: int) -> list[Any]:
    return [values_of(firing, "rule") for firing in t.firings if firing.n > after]


@ORACLES.rows(
    *({"rule": rule, "after": after} for rule in ("@erasure", "r") for after in (0, 5, LARGE)),
    in_any_order=True,
)
def erasures_after(t: Tables, rule: str, after: int) -> list[Any]:
    chains = {row.seq: row.chain for row in t.ledger}
    found = [one.n for one in t.firings if one.rule == rule and one.n > after]
    return [[n, chains[n]] for n in found if n in chains]


@ORACLES.rows(*({"after": after} for after in (0, 5, 30, LARGE)), in_any_order=True)
def rows_of_channels_after(t: Tables, after: int) -> list[Any]:
    return [
        values_of(row, "fact_id", "replaces", "payload")
        for row in t.ledger
        if row.seq > after and ((row.fact_id or "")[:1] == "@" or '"@' in (row.replaces or ""))
    ]


@ORACLES.rows({"numbers": [1, LARGE, *range(2, 20)]}, in_any_order=True)
def rules_of_firings(t: Tables, numbers: list[int]) -> list[Any]:
    return [values_of(firing, "n", "rule") for firing in t.firings if firing.n in numbers]


@ORACLES.rows(SOME_FACTS, in_any_order=True)
def parts(t: Tables, values: list[str]) -> list[Any]:
    ids = {row.fact_id for row in t.ledger if row.fact_id}
    return [[whole, id] for whole in values for id in ids if id.startswith(f"{whole}#")]


@ORACLES.rows(SOME_FACTS, in_any_order=True)
def referrers(t: Tables, values: list[str]) -> list[Any]:
    return [values_of(row) for row in t.references if row.referenced in values]


@ORACLES.rows(
    {"low": "k2", "high": "k4", "upto": LARGE},
    *({"low": "k1", "high": "k9", "upto": upto} for upto in range(40)),
    in_any_order=True,
)
def evaluations_between(t: Tables, low: str, high: str, upto: int) -> list[Any]:
    numbers = {key.key_id for key in t.keys if low <= key.key < high and key.slot == ""}
    rows = [row for row in t.ledger if row.key_id in numbers and row.what == 1 and row.fact_id]
    ids = [row.fact_id for row in t.ledger]
    return [[*evaluation(t, row), ids.count(row.fact_id) > 1] for row in rows if row.seq <= upto]


@ORACLES.rows({"values": ["k3", "k2", "k1", "unknown"]}, in_any_order=True)
def facts_of_keys(t: Tables, values: list[str]) -> list[Any]:
    names = {key.key_id: key.key for key in t.keys if key.key in values and not key.slot}
    rows = [row for row in t.ledger if row.key_id in names and row.fact_id]
    return [*{(names[row.key_id], row.fact_id) for row in rows}]


@ORACLES.rows({"key_ids": [3, 1, 99]}, in_any_order=True)
def fact_ids_of_keys(t: Tables, key_ids: list[int]) -> list[Any]:
    return [*{(row.fact_id,) for row in t.ledger if row.key_id in key_ids and row.fact_id}]


@ORACLES.rows(*({**SOME_IDS, "rule": rule} for rule in RULES), in_any_order=True)
def promoted_by(t: Tables, ids: list[str], rule: str) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in ids and row.what == 1]
    return [*{(row.fact_id,) for row in rows if t.firing(row).rule == rule}]


@ORACLES.rows(*({"after": after, "limit": limit} for after, limit in [(0, LARGE), (7, 5), (7, 1)]))
def records(t: Tables, after: int, limit: int) -> list[Any]:
    return [record(t, row) for row in t.ledger if row.seq > after][:limit]


@ORACLES.rows(*({"fact_id": fact_id} for fact_id in FACTS))
def records_of_fact(t: Tables, fact_id: str) -> list[Any]:
    return [record(t, row) for row in t.ledger if row.fact_id == fact_id]


@ORACLES.rows(SOME_IDS)
def detailed_records(t: Tables, ids: list[str]) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in ids]
    return [[t.row(row.firing).payload, *record(t, row)] for row in rows]


@ORACLES.rows(*({"ids": ["f2", *FACTS[2:]], "fact_id": fact_id} for fact_id in FACTS))
def removals(t: Tables, ids: list[str], fact_id: str) -> list[Any]:
    rows = [row for row in t.ledger if row.fact_id in ids]
    return [
        [t.row(row.firing).payload, *record(t, row)]
        for row in rows
        if fact_id in orjson.loads(row.replaces or b"[]")
    ]


@ORACLES.rows(
    *(
        {"pairs": [["a", "facts"], ["b", "notes"], ["c", "facts"]], "eid": eid}
        for eid in ("e1", "e2", "e3")
    ),
    in_any_order=True,
)
def quarantined_records(t: Tables, pairs: list[list[str]], eid: str) -> list[Any]:
    return [
        [held.channel, t.row(row.firing).payload, *record(t, row)]
        for held in t.quarantine
        for row in t.ledger
        if held.eid == eid and [held.rule, held.channel] in pairs and held.seq == row.seq
    ]


@ORACLES.rows(*({"after": after, "limit": limit} for after, limit in [(0, LARGE), (7, 5), (7, 1)]))
def whole_rows(t: Tables, after: int, limit: int) -> list[Any]:
    rows = [row for row in t.ledger if row.seq > after][:limit]
    columns = (*ROW, "salt", "commitment", "chain")
    return [[*values_of(row, *columns), *values_of(t.firing(row), *FIRING)] for row in rows]


@ORACLES.rows(*RANGES)
def rows_to_export(t: Tables, first: int, last: int) -> list[Any]:
    rows = [row for row in t.ledger if first <= row.seq <= last]
    return [values_of(row, *ROW, "salt", "commitment", "chain") for row in rows]


@ORACLES.rows(*RANGES)
def hash_links(t: Tables, first: int, last: int) -> list[Any]:
    columns = ("seq", "delta", "firing", "version", "what", "kind", "reason", "commitment", "chain")
    return [values_of(row, *columns) for row in t.ledger if first <= row.seq <= last]


@ORACLES.rows(*({"seq": seq} for seq in (1, 2, 12, 2**63 - 1)))
def link_before(t: Tables, seq: int) -> list[Any]:
    return [values_of(row, "seq", "chain") for row in t.ledger if row.seq < seq][-1:]


@ORACLES.rows(*({"seq": seq} for seq in (1, 2, 12, 2**63 - 1)))
def count_rows_before(t: Tables, seq: int) -> list[Any]:
    return [[sum(row.seq < seq for row in t.ledger)]]


@ORACLES.rows(*({"first": first} for first in (-(2**63), 2, 12)))
def firings_from(t: Tables, first: int) -> list[Any]:
    return [values_of(firing, *OF_FIRING) for firing in t.firings if firing.n >= first]


@ORACLES.rows(*({"first": first} for first in (-(2**63), 2, 12)))
def last_firing_before(t: Tables, first: int) -> list[Any]:
    return [values_of(firing, *OF_FIRING) for firing in t.firings if firing.n < first][-1:]


@ORACLES.rows(in_any_order=True)
def claims_with_references(t: Tables) -> list[Any]:
    rows = [row for row in t.ledger if row.what == 1 and "names" in content_of(row)]
    return [values_of(row, "fact_id", "payload") for row in rows]


@ORACLES.rows(in_any_order=True)
def object_counts(t: Tables) -> list[Any]:
    found: dict[str, set[Any]] = {}
    names = {key.key_id: key.key for key in t.keys if key.slot == ""}
    for row in t.ledger:
        if row.what == 1 and row.key_id in names and content_of(row).get("asserts"):
            found.setdefault(names[row.key_id], set()).add(content_of(row)["payload"]["object"])
    return [(key, len(objects)) for key, objects in found.items()]


@pytest.fixture
def fresh() -> Iterator[Tables]:
    with tables_of_facts(SEEDS[0]) as opened:
        yield opened


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_facts(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", ORACLES.cases)
def test_statement_returns_what_its_oracle_computes(tables: Tables, name: str) -> None:
    ORACLES.cases[name].check(tables)


def test_row_without_its_firing_is_read_too(fresh: Tables) -> None:
    wanted = [(*row[:15], None, None, None, None) for row in fresh.rows(*ALL_WHOLE_ROWS)]

    fresh.run("DELETE FROM slumberd_firings")

    assert fresh.rows(*ALL_WHOLE_ROWS) == wanted


def test_record_without_the_row_of_its_firing_is_read_too(fresh: Tables) -> None:
    wanted = [row[0] for row in fresh.rows(*ALL_RECORDS) if row[3] != 0]

    fresh.run("DELETE FROM slumberd_ledger WHERE what = 0")

    assert [row[0] for row in fresh.rows(*ALL_RECORDS)] == wanted

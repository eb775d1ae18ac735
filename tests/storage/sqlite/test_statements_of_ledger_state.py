"""The statements on keys, marks and quarantine of the ledger, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.storage.sqlite.test_statements_of_ledger_rows import ORACLES as OF_ROWS
from tests.support.statement_tables import (
    EPISODES,
    FACTS,
    RULES,
    SEEDS,
    Oracles,
    Tables,
    changed,
    tables_of_facts,
    values_of,
)

pytestmark = pytest.mark.integration

ORACLES = Oracles("ledger")
STATE = ("key", "slot", "key_id", "winner_at", "winner_rank", "winner_id", "winner_part",
         "winner_fact",         "winner_object", "retractions", "replaced")  # fmt: skip
LARGE = 1_000
KEYS = {"values": ["k4", "k3", "k1", "unknown"]}
EVERY_RULE = [*((rule,) for rule in RULES), ("unknown",)]
QUARANTINED = [
    (rule, channel, eid) for rule in "ab" for channel in ("facts", "x") for eid in EPISODES
]


def replaced(rows: list[SimpleNamespace], row: tuple[Any, ...], key: int = 1) -> list[Any]:
    """Return all rows, and one that takes the place of the row with its key."""
    return [*(other for other in map(values_of, rows) if other[:key] != row[:key]), row]


def newest_firing(t: Tables, rule: str) -> list[SimpleNamespace]:
    return [firing for firing in reversed(t.own_firings) if firing.rule == rule][:1]


@ORACLES.rows()
def end(t: Tables) -> list[Any]:
    generations = [[row.generation, row.after] for row in reversed(t.generations)]
    key = next(row.value for row in t.numbers if row.name == "key")
    last, newest = t.ledger[-1], t.firings[-1].at
    rest = [1, 1, orjson.dumps(generations)]
    return [[last.seq, last.chain, newest, key, t.channels[-1].multi_valued, *rest]]


@ORACLES.rows((1,), (5,), (1_000,))
def chain(t: Tables, seq: int) -> list[Any]:
    return [[row.chain] for row in t.ledger if row.seq == seq]


@ORACLES.rows(("logged",), ("depth",), ("unknown",))
def number(t: Tables, name: str) -> list[Any]:
    return [[row.value] for row in t.numbers if row.name == name]


@ORACLES.table("numbers", {"name": "logged", "value": 3}, {"name": "new", "value": 3})
def add_number(t: Tables, name: str, value: int) -> list[Any]:
    known = [values_of(row) for row in t.numbers]
    return known if any(row.name == name for row in t.numbers) else [*known, (name, value)]


@ORACLES.table("numbers", {"name": "logged", "value": 3}, {"name": "new", "value": 3})
def set_number(t: Tables, name: str, value: int) -> list[Any]:
    return [(row.name, value if row.name == name else row.value) for row in t.numbers]


@ORACLES.table("numbers", {"name": "logged", "value": 3}, {"name": "logged", "value": 99})
def raise_number(t: Tables, name: str, value: int) -> list[Any]:
    return [
        (row.name, max(row.value, value) if row.name == name else row.value) for row in t.numbers
    ]


@ORACLES.rows()
def generations(t: Tables) -> list[Any]:
    return [(row.after, row.generation) for row in reversed(t.generations)]


@ORACLES.table("generations", (7, 8))
def add_generation(t: Tables, generation: int, after: int) -> list[Any]:
    return [*map(values_of, t.generations), (generation, after)]


@ORACLES.rows(in_any_order=True)
def held_batches(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.held_batches]


@ORACLES.table("held_batches", ("new", 1, 2, "e1", "why"))
def add_held_batch(t: Tables, *values: Any) -> list[Any]:
    return [*map(values_of, t.held_batches), (*values, 0)]


@ORACLES.table("held_batches", *EVERY_RULE)
def approve_held_batch(t: Tables, rule: str) -> list[Any]:
    return [
        changed(row, approved=1) if row.rule == rule else values_of(row) for row in t.held_batches
    ]


@ORACLES.table("held_batches", *({"rule": rule, "seq": n} for rule in RULES for n in range(30)))
def drop_held_batch(t: Tables, rule: str, seq: int) -> list[Any]:
    return [values_of(row) for row in t.held_batches if row.rule != rule or row.upto_seq > seq]


@ORACLES.table("firings", (900, "a", "h", "every", 1, 901, 2, 3, "e1", b"{}"))
def add_firing(t: Tables, *values: Any) -> list[Any]:
    return [*map(values_of, t.firings), values]


NEW_ROW = (901, 1, 899, 3, 4, "why", 5, 6, 7, "f1", "[]", b"payload", b"salt", b"c", b"h")


@ORACLES.table("ledger", NEW_ROW)
def add_row(t: Tables, *values: Any) -> list[Any]:
    *columns, payload, salt, commitment, chain = values
    return [*map(values_of, t.ledger), (*columns, salt, payload, commitment, chain)]


@ORACLES.table("references", *((left, right) for left in FACTS for right in ("f1", "new")))
def add_reference(t: Tables, *pair: str) -> list[Any]:
    return [*{*map(values_of, t.references), pair}]


@ORACLES.rows(in_any_order=True)
def all_references(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.references]


@ORACLES.table("quarantine", *({"firing": n} for n in range(70)))
def drop_quarantine_of_firing(t: Tables, firing: int) -> list[Any]:
    numbers = {row.seq for row in t.ledger if row.firing == firing and row.seq != firing}
    return [values_of(row) for row in t.quarantine if row.seq not in numbers]


@ORACLES.rows({"keys": KEYS["values"]}, in_any_order=True)
def states_of_keys(t: Tables, keys: list[str]) -> list[Any]:
    return [values_of(row, *STATE) for row in t.keys if row.key in keys]


@ORACLES.rows(KEYS, in_any_order=True)
def whole_states(t: Tables, values: list[str]) -> list[Any]:
    return [values_of(row, *STATE) for row in t.keys if row.key in values and row.slot == ""]


@ORACLES.rows(KEYS, in_any_order=True)
def declared_states(t: Tables, values: list[str]) -> list[Any]:
    rows = [row for row in t.keys if row.key in values]
    return [values_of(row, *STATE) for row in rows if row.slot[:1] == "@" and row.slot != "@"]


@ORACLES.rows(
    {"values": [["k4", "@"], ["k3", "@f1"], ["k1", ""], ["k1", "A"], ["x", ""]]}, in_any_order=True
)
def states_of_slots(t: Tables, values: list[list[str]]) -> list[Any]:
    return [values_of(row, *STATE) for row in t.keys if [row.key, row.slot] in values]


@ORACLES.table(
    "keys",
    *(
        (key, slot, 77, 88, 1, "id", 2, "f1", '"new"', b"r", b"l")
        for key in ("k1", "k3", "new")
        for slot in ("", "@", "new")
    ),
)
def put_state(t: Tables, *values: Any) -> list[Any]:
    key_ids = [row.key_id for row in t.keys if [row.key, row.slot] == [*values[:2]]]
    kept = values[:2] + tuple(key_ids or [77]) + values[3:]
    return replaced(t.keys, kept, key=2)


@ORACLES.table("keys", ("k1",), ("k3",), ("unknown",))
def drop_states(t: Tables, key: str) -> list[Any]:
    return [values_of(row) for row in t.keys if row.key != key or row.slot == ""]


@ORACLES.rows(in_any_order=True)
def keys(t: Tables) -> list[Any]:
    return [[row.key] for row in t.keys if row.slot == ""]


@ORACLES.rows(*EVERY_RULE)
def watermark(t: Tables, rule: str) -> list[Any]:
    return [values_of(row, "seq", "eid") for row in t.watermark if row.rule == rule]


MARKS = [{"rule": rule, "seq": 77, "eid": "x", "served": 99} for rule in ("a", "new")]


@ORACLES.table("watermark", *MARKS)
def set_watermark(t: Tables, rule: str, seq: int, eid: str, served: int) -> list[Any]:
    known = [row.served for row in t.watermark if row.rule == rule]
    return replaced(t.watermark, (rule, seq, eid, *(known or [served])))


@ORACLES.table("watermark", *MARKS)
def first_watermark(t: Tables, rule: str, seq: int, eid: str, served: int) -> list[Any]:
    known = [values_of(row) for row in t.watermark]
    return known if any(row[0] == rule for row in known) else [*known, (rule, seq, eid, served)]


@ORACLES.rows(in_any_order=True)
def watermarks(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.watermark]


@ORACLES.rows(*EVERY_RULE)
def batch_ends(t: Tables, rule: str) -> list[Any]:
    firings = [firing for firing in reversed(t.own_firings) if firing.rule == rule]
    return [values_of(firing, "upto_seq", "upto_eid") for firing in firings]


@ORACLES.rows(*EVERY_RULE)
def last_generation(t: Tables, rule: str) -> list[Any]:
    return [[firing.generation] for firing in newest_firing(t, rule)]


@ORACLES.rows(*EVERY_RULE)
def served(t: Tables, rule: str) -> list[Any]:
    return [[row.served] for row in t.watermark if row.rule == rule]


@ORACLES.table("watermark", *({"rule": rule, "served": n} for rule in RULES for n in range(25)))
def set_served(t: Tables, rule: str, served: int) -> list[Any]:
    return [
        changed(row, served=max(row.served, served)) if row.rule == rule else values_of(row)
        for row in t.watermark
    ]


@ORACLES.table("watermark", *({"rule": rule, "served": n} for rule in RULES for n in range(25)))
def correct_served(t: Tables, rule: str, served: int) -> list[Any]:
    return [
        changed(row, served=min(row.served, served)) if row.rule == rule else values_of(row)
        for row in t.watermark
    ]


@ORACLES.table("watermark", *({"at": n} for n in range(25)))
def cap_served(t: Tables, at: int) -> list[Any]:
    return [changed(row, served=min(row.served, at)) for row in t.watermark]


@ORACLES.table("successes", *({"at": n} for n in range(25)))
def cap_successes(t: Tables, at: int) -> list[Any]:
    return [changed(row, at=min(row.at, at)) for row in t.successes]


@ORACLES.table("successes", {"rule": "a", "at": 99}, {"rule": "new", "at": 99})
def set_success(t: Tables, rule: str, at: int) -> list[Any]:
    return replaced(t.successes, (rule, at))


@ORACLES.rows(in_any_order=True)
def successes(t: Tables) -> list[Any]:
    return [values_of(row) for row in t.successes]


@ORACLES.rows(*({"after": n, "limit": limit} for n in (0, 1, 20) for limit in (1, 3, 99)))
def counts_after(t: Tables, after: int, limit: int) -> list[Any]:
    return [values_of(row, "n", "rule", "counts") for row in t.firings if row.n > after][:limit]


@ORACLES.rows(*EVERY_RULE)
def firing_rows_of_rule(t: Tables, rule: str) -> list[Any]:
    own = {firing.n for firing in t.own_firings if firing.rule == rule}
    return [(row.seq, row.payload) for row in reversed(t.ledger) if row.seq in own]


@ORACLES.rows(*((at,) for at in range(-1, 11)))
def last_seq_by(t: Tables, at: int) -> list[Any]:
    return [[firing.last_seq] for firing in reversed(t.own_firings) if firing.at <= at][:1]


@ORACLES.rows(*((seq,) for seq in range(70)))
def channels(t: Tables, seq: int) -> list[Any]:
    return [[row.multi_valued] for row in reversed(t.channels) if row.seq <= seq][:1]


@ORACLES.rows(*((seq,) for seq in range(70)))
def firing_document(t: Tables, seq: int) -> list[Any]:
    last = [firing.n for firing in t.firings if firing.n <= seq][-1:]
    return [[row.payload] for row in t.ledger if row.seq in last]


@ORACLES.rows({"low": "k", "high": "l"}, {"low": "k2", "high": "k4"}, {"low": "x", "high": "y"})
def first_key_between(t: Tables, low: str, high: str) -> list[Any]:
    return [[min((row.key_id for row in t.keys if low <= row.key < high), default=None)]]


@ORACLES.rows(*({"first": 0, "arrival": LARGE, "at": at} for at in range(25)))
def last_moved_by(t: Tables, first: int, arrival: int, at: int) -> list[Any]:
    moved = [firing for firing in t.firings if first <= firing.n < arrival]
    moved = [firing for firing in moved if firing.generation < 0 and firing.upto_seq <= at]
    return [[firing.last_seq] for firing in reversed(moved)][:1]


@ORACLES.table("channels", (900, b"{}"))
def add_channels(t: Tables, *values: Any) -> list[Any]:
    return [*map(values_of, t.channels), values]


@ORACLES.rows(*({"first": first, "last": 2**63 - 1} for first in (0, 5)), in_any_order=True)
def channels_between(t: Tables, first: int, last: int) -> list[Any]:
    return [values_of(row) for row in t.channels if first <= row.seq <= last]


@ORACLES.table("quarantine", *((*key, 7, "bob", "new", "text", 99) for key in QUARANTINED))
def put_quarantine(t: Tables, *values: Any) -> list[Any]:
    return replaced(t.quarantine, values, key=3)


@ORACLES.table("quarantine", *QUARANTINED)
def drop_quarantine(t: Tables, *key: str) -> list[Any]:
    return [values_of(row) for row in t.quarantine if (row.rule, row.channel, row.eid) != key]


@ORACLES.rows(*EVERY_RULE)
def quarantined(t: Tables, rule: str) -> list[Any]:
    return sorted({(row.eid,) for row in t.quarantine if row.rule == rule})


@ORACLES.rows(in_any_order=True)
def quarantine_by_rule(t: Tables) -> list[Any]:
    pairs = sorted({(row.rule, row.eid) for row in t.quarantine})
    return [(rule, len([*ids])) for rule, ids in groupby(pairs, key=lambda pair: pair[0])]


def future_of(t: Tables) -> list[SimpleNamespace]:
    return [row for row in t.quarantine if row.reason == "future"]


@ORACLES.rows(in_any_order=True)
def future_of_rules(t: Tables) -> list[Any]:
    found = {row.rule: [one.detail for one in future_of(t) if one.rule == row.rule] for row in
             future_of(t)}  # fmt: skip
    return [(rule, min(details)) for rule, details in found.items()]


@ORACLES.rows(in_any_order=True)
def future_instants(t: Tables) -> list[Any]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in future_of(t):
        found.setdefault((row.rule, row.eid), []).append(row.detail)
    return [(rule, min(details)) for (rule, _), details in found.items()]


@ORACLES.rows(*((seq,) for seq in range(1, 40)))
def payload(t: Tables, seq: int) -> list[Any]:
    return [[row.payload] for row in t.ledger if row.seq == seq]


@ORACLES.rows(*({"latest": at} for at in range(0, 60, 5)))
def future_facts(t: Tables, latest: int) -> list[Any]:
    found = [row for row in t.keys if row.winner_at is not None and row.winner_at > latest]
    found.sort(key=lambda row: (-row.winner_at, row.winner_fact))
    return [values_of(row, "winner_fact", "winner_at") for row in found]


@ORACLES.rows(*({"latest": at} for at in range(0, 60, 5)))
def future_claims(t: Tables, latest: int) -> list[Any]:
    return [
        (fact_id,)
        for fact_id in sorted(
            {
                row.fact_id
                for row in t.ledger
                if row.what == 1 and row.fact_id is not None and row.at is not None
                if row.at > latest
            }
        )
    ]


@ORACLES.rows(
    *(
        {"rule": rule, "latest": latest, "limit": limit}
        for rule in RULES
        for latest in ("d0", "d1", "d2", "d3")
        for limit in (1, 99)
    )
)
def future_upto(t: Tables, rule: str, latest: str, limit: int) -> list[Any]:
    first: dict[str, str] = {}
    for row in future_of(t):
        if row.rule == rule and row.detail <= latest:
            first[row.eid] = min(row.detail, first.get(row.eid, row.detail))
    return [(eid,) for eid in sorted(first, key=lambda eid: (first[eid], eid))][:limit]


@ORACLES.rows(
    *({"rule": rule, "ids": ids} for rule in RULES for ids in ([], EPISODES, ["%", "unknown"])),
    in_any_order=True,
)
def future_entries(t: Tables, rule: str, ids: list[str]) -> list[Any]:
    found = [row for row in future_of(t) if row.rule == rule and row.eid in ids]
    return [values_of(row, "rule", "channel", "eid", "version") for row in found]


@ORACLES.rows()
def list_quarantine(t: Tables) -> list[Any]:
    columns = ("rule", "channel", "eid", "reason", "detail", "seq")
    return sorted(values_of(row, *columns) for row in t.quarantine)


def entries_with_owner(t: Tables) -> list[Any]:
    columns = ("rule", "channel", "eid", "reason", "detail", "seq", "owner")
    return sorted(values_of(row, *columns) for row in t.quarantine)


PLACES = [dict(zip(("rule", "channel", "eid"), key, strict=True)) for key in QUARANTINED]


@ORACLES.rows(
    *({**place, "limit": limit} for place in PLACES for limit in (1, 3, 99)),
    {"rule": "", "channel": "", "eid": "", "limit": 99},
)
def quarantine_after(t: Tables, rule: str, channel: str, eid: str, limit: int) -> list[Any]:
    found = [row for row in entries_with_owner(t) if tuple(row[:3]) > (rule, channel, eid)]
    return found[:limit]


@ORACLES.rows(
    *({**place, "limit": limit} for place in PLACES for limit in (1, 3, 99)),
    *({"rule": rule, "channel": "", "eid": "", "limit": 99} for rule in RULES),
)
def quarantine_of_rule_after(t: Tables, rule: str, channel: str, eid: str, limit: int) -> list[Any]:
    found = [row for row in entries_with_owner(t) if row[0] == rule]
    return [row for row in found if tuple(row[1:3]) > (channel, eid)][:limit]


@ORACLES.rows(
    *(
        {**place, "limit": limit, "ids": ids}
        for place in PLACES
        for limit in (1, 99)
        for ids in ([], ["%", "unknown"], [place["eid"], PLACES[-1]["eid"]])
    ),
    *(
        {"rule": rule, "channel": "", "eid": "", "limit": 99, "ids": [one["eid"] for one in PLACES]}
        for rule in RULES
    ),
)
def quarantine_of_episodes_after(
    t: Tables, rule: str, channel: str, eid: str, limit: int, ids: list[str]
) -> list[Any]:
    found = [row for row in entries_with_owner(t) if row[0] == rule and row[2] in ids]
    return [row for row in found if tuple(row[1:3]) > (channel, eid)][:limit]


@ORACLES.rows(in_any_order=True)
def last_firings(t: Tables) -> list[Any]:
    return [
        values_of(firing, "rule", "n", "at") for rule in RULES for firing in newest_firing(t, rule)
    ]


@ORACLES.rows({"ids": ["f2", "f1", "f5", "%", "unknown"]}, in_any_order=True)
def facts_by_id(t: Tables, ids: list[str]) -> list[Any]:
    columns = ("fact_id", "user", "agent", "payload", "lineage", "confidence", "pinned_at")
    return [values_of(row, *columns, "metadata") for row in t.facts if row.fact_id in ids]


@ORACLES.rows(*EVERY_RULE)
def last_counts(t: Tables, rule: str) -> list[Any]:
    firings = [firing for firing in reversed(t.firings) if firing.rule == rule]
    return [[firing.counts] for firing in firings if firing.counts != b"{}"][:1]


@ORACLES.rows(in_any_order=True)
def last_mentioned(t: Tables) -> list[Any]:
    marks = [row for row in t.numbers if row.name == "logged" or row.name.startswith("asserted:")]
    rows = [*(row.seq for row in t.quarantine), *(row.key_id for row in t.keys)]
    return [[max(*rows, *(row.value for row in marks))]]


@ORACLES.rows(*({"rule": rule, "limit": limit} for rule in RULES for limit in (1, 3, 1_000)))
def latest_batches(t: Tables, rule: str, limit: int) -> list[Any]:
    counted = [row for row in t.firings if row.rule == rule and row.counts != b"{}"]
    newest = sorted(counted, key=lambda row: -row.n)
    return [values_of(row, "n", "last_seq", "upto_seq", "counts") for row in newest[:limit]]


SOME_BATCHES = tuple({"batches": text} for text in ("[]", "[[0,30]]", "[[5,12],[40,60],[900,901]]"))


def rows_in_batches(t: Tables, batches: str) -> list[Any]:
    spans = orjson.loads(batches)
    return [row for row in t.ledger if any(low < row.seq <= high for low, high in spans)]


@ORACLES.rows(*SOME_BATCHES)
def readings(t: Tables, batches: str) -> list[Any]:
    versions: dict[int | None, list[Any]] = {}
    for row in rows_in_batches(t, batches):
        versions.setdefault(row.version, []).append(row)
    counts = Counter(
        "learned"
        if any(row.kind in (1, 2, 3) for row in rows)
        else "said_nothing"
        if any(row.reason == "nothing_said" for row in rows)
        else "quarantined"
        if any(row.kind == 5 for row in rows)
        else "other"
        for rows in versions.values()
    )
    found = [counts[name] for name in ("learned", "said_nothing", "quarantined")]
    return [[len(versions), *found]]


@ORACLES.rows(*SOME_BATCHES, in_any_order=True)
def learned_versions(t: Tables, batches: str) -> list[Any]:
    rows = rows_in_batches(t, batches)
    return [[one] for one in {row.version for row in rows if row.kind in (1, 2, 3)}]


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_facts(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", ORACLES.cases)
def test_statement_does_what_its_oracle_computes(tables: Tables, name: str) -> None:
    ORACLES.cases[name].check(tables)


def test_counts_by_content_are_those_of_one_firing_for_each_content(tables: Tables) -> None:
    for rule in RULES:
        counted = [row for row in tables.firings if row.rule == rule and row.counts != b"{}"]
        contents = {row.counts: row.rule_hash for row in counted}

        found = tables.rows("ledger.counts_by_content", (rule,))

        assert sorted(contents[counts] for (counts,) in found) == sorted({*contents.values()})


def test_every_statement_of_the_ledger_has_an_oracle() -> None:
    assert ORACLES.without_oracle() - OF_ROWS.cases.keys() == {"counts_by_content"}


def test_end_of_an_empty_ledger_has_no_row() -> None:
    with tables_of_facts(0) as empty:
        for table in ("ledger", "firings", "quarantine", "generations", "channels"):
            empty.run(f"DELETE FROM slumberd_{table}")
        empty.run("DROP TABLE slumberd_erased_scopes")

        assert empty.rows("ledger.end", ()) == [(None, None, None, 0, None, 0, 0, "[]")]


@pytest.mark.parametrize(
    ("change", "last"),
    [
        pytest.param("numbers SET value = 500 WHERE name = 'logged'", 500, id="logged"),
        pytest.param("numbers SET value = 500 WHERE name = 'asserted:a'", 500, id="asserted"),
        pytest.param("quarantine SET seq = 500 WHERE eid = 'e1'", 500, id="quarantine"),
        pytest.param("keys SET key_id = 500 WHERE key = 'k2'", 500, id="key"),
        pytest.param("numbers SET value = 500 WHERE name = 'other'", 99, id="another number"),
    ],
)
def test_last_mentioned_row_is_the_highest_of_all_mentions(change: str, last: int) -> None:
    with tables_of_facts(0) as mentions:
        mentions.run("UPDATE slumberd_numbers SET value = 99 WHERE name = 'logged'")
        mentions.run("UPDATE slumberd_quarantine SET seq = 1")
        mentions.run(f"UPDATE slumberd_{change}")

        assert mentions.rows("ledger.last_mentioned", ()) == [(last,)]

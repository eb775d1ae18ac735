"""The statements on the table of facts, compared with plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.support.statement_tables import (
    SEEDS,
    Oracles,
    Tables,
    tables_of_facts,
    values_of,
)

pytestmark = pytest.mark.integration

ORACLES = Oracles("facts")
FACT = ("fact_id", "user", "agent", "payload", "lineage", "confidence", "pinned_at", "metadata")
NEW = ("bob", "web", b"{}", b"[]", 0.25, b"{1}", "2026-02-01T00:00:00+00:00")
USERS, AGENTS, TEXTS = ("alice", "bob", "al", "x"), ("rag", "web", "r", "x"), ("x", "y", "z", "w")
RANGES = [{"low": low, "high": high} for low, high in [("@/m2", "f3"), ("f1", "f9"), ("f", "f1")]]
TEXT_RANGES = [{"low": low, "high": high} for low, high in [("x", "y"), ("x", "z"), ("y", "~")]]
OWNERS = [{"user": user, "agent": agent} for user, agent in product(USERS, AGENTS)]
SOME_TEXTS = {"values": ["z", "x", "w"]}


def slot(fact: SimpleNamespace, name: str) -> str | None:
    """Return a slot of a fact; None when its payload has none."""
    try:
        found: str | None = orjson.loads(fact.payload).get(name)
    except orjson.JSONDecodeError:
        return None
    return found


def read(facts: list[SimpleNamespace]) -> list[Any]:
    return [values_of(fact, *FACT) for fact in facts]


def within(text: str | None, low: str, high: str) -> bool:
    return text is not None and low <= text < high


@ORACLES.rows(*({"user": user} for user in USERS), in_any_order=True)
def find_facts_of_user(t: Tables, user: str) -> list[Any]:
    return read([fact for fact in t.facts if fact.user == user])


@ORACLES.rows(*({"user": user} for user in USERS), in_any_order=True)
def ids_of_user(t: Tables, user: str) -> list[Any]:
    return [[fact.fact_id, fact.agent] for fact in t.facts if fact.user == user]


@ORACLES.rows(*OWNERS, in_any_order=True)
def find_facts_of_user_and_agent(t: Tables, user: str, agent: str) -> list[Any]:
    return read([fact for fact in t.facts if (fact.user, fact.agent) == (user, agent)])


@ORACLES.rows(*({"subject": text} for text in TEXTS), in_any_order=True)
def find_facts_of_subject(t: Tables, subject: str) -> list[Any]:
    return read([fact for fact in t.facts if slot(fact, "subject") == subject])


@ORACLES.rows(
    *({"subject": one, "predicate": other} for one, other in product(TEXTS, TEXTS)),
    in_any_order=True,
)
def find_facts_of_subject_and_predicate(t: Tables, subject: str, predicate: str) -> list[Any]:
    facts = [fact for fact in t.facts if slot(fact, "subject") == subject]
    return read([fact for fact in facts if slot(fact, "predicate") == predicate])


@ORACLES.rows(*({"object": text} for text in TEXTS), in_any_order=True)
def find_facts_of_object(t: Tables, object: str) -> list[Any]:  # the parameter's name
    return read([fact for fact in t.facts if slot(fact, "object") == object])


@ORACLES.rows()
def all_facts(t: Tables) -> list[Any]:
    return read(t.facts)


@ORACLES.table("facts", *((fact_id, *NEW) for fact_id in ("f1", "f2", "@/m1", "new")))
def put_fact(t: Tables, *values: Any) -> list[Any]:
    return [*(values_of(fact) for fact in t.facts if fact.fact_id != values[0]), values]


@ORACLES.table("facts", {"ids": ["f3", "f1", "%", "@/m1", "unknown"]}, {"ids": []})
def drop_facts(t: Tables, ids: list[str]) -> list[Any]:
    return [values_of(fact) for fact in t.facts if fact.fact_id not in ids]


@ORACLES.rows(("f1",), ("f2",), ("f3",), ("unknown",))
def has_fact(t: Tables, fact_id: str) -> list[Any]:
    return [[1] for fact in t.facts if fact.fact_id == fact_id]


@ORACLES.rows({"ids": ["e1", "e2", "e3", "e4"]}, {"ids": ["e2"]}, {"ids": []}, in_any_order=True)
def cited_episodes(t: Tables, ids: list[str]) -> list[Any]:
    facts = [fact for fact in t.facts if not fact.fact_id.startswith(("@marks/", "@weights/"))]
    named = {eid for fact in facts for eid in eids_in(fact.lineage)}
    return [[eid] for eid in named.intersection(ids)]


@ORACLES.rows({"ids": ["f1", "f2", "f3"]}, {"ids": ["@/1", "x"]}, {"ids": []}, in_any_order=True)
def retracted_by_people(t: Tables, ids: list[str]) -> list[Any]:
    found = [row for row in t.references if row.referenced in ids]
    return [[id] for id in {row.referenced for row in found if row.referrer.startswith("@/")}]


def eids_in(lineage: bytes | str) -> list[str]:
    """Return the episodes that a lineage names; a text in place of a list counts, too."""
    try:
        entries = orjson.loads(lineage)
    except orjson.JSONDecodeError:
        return []
    objects = [entry for entry in entries if isinstance(entry, dict)]
    found = [entry.get("source_episode_ids", []) for entry in objects]
    lists = [eids if isinstance(eids, list) else [eids] for eids in found]
    return [eid for eids in lists for eid in eids if isinstance(eid, str)]


@ORACLES.rows()
def count_facts(t: Tables) -> list[Any]:
    return [[len(t.facts)]]


@ORACLES.rows()
def count_limited_facts(t: Tables) -> list[Any]:
    return [[sum(not fact.fact_id.startswith(("@marks/", "@weights/")) for fact in t.facts)]]


@ORACLES.rows(*RANGES)
def facts_from_id(t: Tables, low: str, high: str) -> list[Any]:
    return read([fact for fact in t.facts if low <= fact.fact_id < high])


@ORACLES.rows(*RANGES)
def facts_from_id_backwards(t: Tables, low: str, high: str) -> list[Any]:
    return facts_from_id(t, low, high)[::-1]


@ORACLES.rows(*({**owner, **range_} for owner, range_ in product(OWNERS, RANGES)))
def facts_of_owner_from_id(t: Tables, user: str, agent: str, low: str, high: str) -> list[Any]:
    facts = [fact for fact in t.facts if low <= fact.fact_id < high]
    return read([fact for fact in facts if (fact.user, fact.agent) == (user, agent)])


@ORACLES.rows(*({**owner, **range_} for owner, range_ in product(OWNERS, RANGES)))
def facts_of_owner_from_id_backwards(
    t: Tables, user: str, agent: str, low: str, high: str
) -> list[Any]:
    return facts_of_owner_from_id(t, user, agent, low, high)[::-1]


@ORACLES.rows(*({"user": user, "limit": limit} for user, limit in product(USERS, (1, 2, 9))))
def agents_of_user(t: Tables, user: str, limit: int) -> list[Any]:
    return sorted({(fact.agent,) for fact in t.facts if fact.user == user})[:limit]


@ORACLES.rows(
    *({"low": low, "high": high} for low, high in [("", b""), ("al", "am"), ("alice\0", b"")])
)
def owners_from(t: Tables, low: str, high: str | bytes) -> list[Any]:
    owners = sorted({(fact.user, fact.agent) for fact in t.facts})
    found = [owner for owner in owners if low <= owner[0] and (high == b"" or owner[0] < high)]
    counted = [
        (fact.user, fact.agent)
        for fact in t.facts
        if not fact.fact_id.startswith(("@marks/", "@weights/"))
    ]
    return [(*owner, counted.count(owner)) for owner in found]


@ORACLES.rows({"values": ["f3", "f1", "%", "unknown"]}, in_any_order=True)
def find_facts_of_ids(t: Tables, values: list[str]) -> list[Any]:
    return read([fact for fact in t.facts if fact.fact_id in values])


@ORACLES.rows({"values": ["bob", "al", "x"]}, in_any_order=True)
def find_facts_of_users(t: Tables, values: list[str]) -> list[Any]:
    return read([fact for fact in t.facts if fact.user in values])


@ORACLES.rows(
    {"low": "al", "high": "alice"}, {"low": "al", "high": "am"}, {"low": "b", "high": "c"},
    in_any_order=True,
)  # fmt: skip
def find_facts_of_users_between(t: Tables, low: str, high: str) -> list[Any]:
    return read([fact for fact in t.facts if low <= fact.user < high])


@ORACLES.rows(SOME_TEXTS, in_any_order=True)
def find_facts_of_subjects(t: Tables, values: list[str]) -> list[Any]:
    return read([fact for fact in t.facts if slot(fact, "subject") in values])


@ORACLES.rows(*TEXT_RANGES, in_any_order=True)
def find_facts_of_subjects_between(t: Tables, low: str, high: str) -> list[Any]:
    return read([fact for fact in t.facts if within(slot(fact, "subject"), low, high)])


@ORACLES.rows(*({**SOME_TEXTS, "subject": text} for text in TEXTS), in_any_order=True)
def find_facts_of_subject_and_predicates(t: Tables, subject: str, values: list[str]) -> list[Any]:
    facts = [fact for fact in t.facts if slot(fact, "subject") == subject]
    return read([fact for fact in facts if slot(fact, "predicate") in values])


@ORACLES.rows(
    *({**range_, "subject": text} for text, range_ in product(TEXTS, TEXT_RANGES)),
    in_any_order=True,
)
def find_facts_of_subject_and_predicates_between(
    t: Tables, subject: str, low: str, high: str
) -> list[Any]:
    facts = [fact for fact in t.facts if slot(fact, "subject") == subject]
    return read([fact for fact in facts if within(slot(fact, "predicate"), low, high)])


@ORACLES.rows(SOME_TEXTS, in_any_order=True)
def find_facts_of_objects(t: Tables, values: list[str]) -> list[Any]:
    return read([fact for fact in t.facts if slot(fact, "object") in values])


@ORACLES.rows(*TEXT_RANGES, in_any_order=True)
def find_facts_of_objects_between(t: Tables, low: str, high: str) -> list[Any]:
    return read([fact for fact in t.facts if within(slot(fact, "object"), low, high)])


@ORACLES.rows(in_any_order=True)
def find_facts_without_object(t: Tables) -> list[Any]:
    return read([fact for fact in t.facts if slot(fact, "object") is None])


@pytest.fixture(scope="module", params=SEEDS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of_facts(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", ORACLES.cases)
def test_statement_does_what_its_oracle_computes(tables: Tables, name: str) -> None:
    ORACLES.cases[name].check(tables)


def test_every_statement_of_facts_has_an_oracle() -> None:
    assert ORACLES.without_oracle() == {"create_facts"}

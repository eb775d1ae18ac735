"""For the present instant, the ledger gives the same facts as the table, in every field."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from slumberd.model.fact import Fact, FactPattern
from slumberd.model.pattern import Prefix
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

LATER = START + timedelta(days=400)
EVERYTHING = FactPattern()


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    """Return stores with facts of one rule, of two rules, of a person, and without a subject."""
    async with open_stores(provider) as opened:
        await opened.put(
            triple("e1", "alice", "drinks", "tea", timestamp=at(1), metadata={"confidence": 0.5}),
            triple("e2", "alice", "drinks", "rum", timestamp=at(2)),
            triple("e3", "bob", "is", {"b": [1, None], "a": "ü"}, timestamp=at(3), user="bob"),
            triple("e4", None, None, None, timestamp=at(4), agent="planner"),
        )
        await opened.fire(rule("all", then_emits=["facts", "notes"]))
        await opened.fire(rule("other"))
        pinned = Fact(
            id="p1",
            user="eve",
            agent="rag",
            payload={"subject": "eve", "predicate": "is", "object": 7},
            lineage=[{"kind": "note", "source_id": "n1"}],
            confidence=0.25,
            pinned_at=at(4),
            metadata={"colour": "red"},
        )
        await opened.facts.pin(pinned)
        yield opened


@pytest.mark.parametrize(
    "clocks",
    [
        pytest.param({"valid_at": LATER}, id="valid"),
        pytest.param({"believed_at": LATER}, id="believed"),
        pytest.param({"valid_at": LATER, "believed_at": LATER}, id="both"),
    ],
)
async def test_every_field_of_every_fact_is_as_in_the_table(
    home: OpenStores, clocks: dict[str, Any]
) -> None:
    stored = await home.facts.query(EVERYTHING)

    found = await home.facts.query(EVERYTHING, **clocks)

    assert {fact.id for fact in stored} == {
        "e2", "e3", "e4", "p1", "@notes/e2", "@notes/e3", "@notes/e4",
    }  # fmt: skip
    assert found == stored


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        pytest.param({"user": "alice"}, ["@notes/e2", "@notes/e4", "e2", "e4"], id="user"),
        pytest.param({"agent": "planner"}, ["@notes/e4", "e4"], id="agent"),
        pytest.param({"channel": "notes"}, ["@notes/e2", "@notes/e3", "@notes/e4"], id="channel"),
        pytest.param({"subject": "eve"}, ["p1"], id="subject"),
        pytest.param({"min_confidence": 0.3, "subject": "eve"}, [], id="confidence"),
        pytest.param({"id": Prefix("e")}, ["e2", "e3", "e4"], id="prefix"),
        pytest.param({"limit": 2}, ["@notes/e2", "@notes/e3"], id="limit"),
        pytest.param({"limit": 2, "descending": True}, ["p1", "e4"], id="last first"),
    ],
)
async def test_pattern_selects_the_same_facts_from_the_ledger_and_the_table(
    home: OpenStores, pattern: dict[str, Any], ids: list[str]
) -> None:
    searched = FactPattern(**pattern)

    stored = await home.facts.query(searched)
    found = await home.facts.query(searched, valid_at=LATER)

    assert [fact.id for fact in stored] == ids
    assert [fact.id for fact in found] == ids


async def test_no_fact_is_valid_before_the_first_episode(home: OpenStores) -> None:
    assert await home.facts.query(EVERYTHING, valid_at=at(0.5)) == []
    assert await home.facts.query(EVERYTHING, believed_at=START - timedelta(days=1)) == []


async def test_at_an_instant_in_between_the_older_fact_was_true(home: OpenStores) -> None:
    then = await home.facts.query(FactPattern(user="alice", predicate="drinks"), valid_at=at(1))

    facts = {fact.id: (fact.payload["object"], fact.confidence, fact.metadata) for fact in then}
    assert facts == {"e1": ("tea", 0.5, {}), "@notes/e1": ("tea", 0.5, {})}

"""Patterns search a database as they search files: the same oracle, the same order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.model.fact import Fact, FactPattern
from slumberd.storage.engine import Session
from slumberd.storage.facts.search import search
from slumberd.storage.ledger.fact_rows import find
from slumberd.storage.postgres.engine import PostgresFactEngine
from slumberd.storage.postgres.shard_map import Shard
from tests.storage.facts.test_patterns import (
    OBJECT_FORMS,
    OWNER_FORMS,
    OWNERS,
    PATTERNS,
    TEXTS,
    Oracle,
    ids_of,
    instant,
    rows,
)
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled]

QUIET = settings(
    max_examples=amount(60, full=600), deadline=None, suppress_health_check=list(HealthCheck)
)


def as_slumberd_writes(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row without U+0000 in what names it, and with an instant in UTC."""
    names = (part.replace("\0", "\x02") for part in row[:3])
    return (*names, *row[3:7], instant(row).isoformat())


FACTS = st.lists(rows().map(as_slumberd_writes), max_size=12, unique_by=lambda row: row[0])


def find_in(address: str, facts: list[tuple[Any, ...]], pattern: FactPattern) -> list[Fact]:
    """Return what a pattern finds among facts, in a transaction that is rolled back."""

    def work(session: Session) -> list[Fact]:
        session.insert("facts.put_fact", facts)
        return search(session, pattern)

    return asyncio.run(run(address, work))


async def run(address: str, work: Any) -> Any:
    engine = PostgresFactEngine(Shard(0, address))
    try:
        return await engine.write(work, keep=False)
    finally:
        await engine.close()


@QUIET
@given(FACTS, PATTERNS)
def test_search_returns_what_the_oracle_returns_in_the_same_order(
    postgres_address: str, facts: list[tuple[Any, ...]], pattern: FactPattern
) -> None:
    found = ids_of(find_in(postgres_address, facts, pattern))

    assert found == Oracle(pattern).of(facts)[: pattern.limit]


@pytest.mark.nightly
@QUIET
@given(
    FACTS,
    st.sampled_from(["subject", "predicate", "object", "user", "agent", "id"]),
    OBJECT_FORMS,
    st.booleans(),
    st.data(),
)
def test_each_slot_alone_finds_what_a_full_scan_finds(
    postgres_address: str,
    facts: list[tuple[Any, ...]],
    slot: str,
    form: Any,
    descending: bool,
    data: st.DataObject,
) -> None:
    if slot != "object":
        form = data.draw(OWNER_FORMS)
    slots = {slot: form} if slot != "predicate" else {"subject": data.draw(TEXTS), slot: form}
    pattern = FactPattern(**slots, descending=descending)

    found = ids_of(find_in(postgres_address, facts, pattern))

    assert found == Oracle(pattern).of(facts)


@pytest.mark.nightly
@QUIET
@given(
    FACTS,
    st.dictionaries(
        st.sampled_from(["subject", "predicate", "object", "user", "agent"]), OWNERS | TEXTS
    ),
)
def test_five_slots_find_the_same_through_an_index(
    postgres_address: str, facts: list[tuple[Any, ...]], slots: dict[str, str]
) -> None:
    pattern = FactPattern(**{slot: text for slot, text in slots.items() if "\0" not in text})

    def work(session: Session) -> tuple[list[Fact], list[Fact]]:
        session.insert("facts.put_fact", facts)
        return find(session, pattern), search(session, pattern)

    quick, general = asyncio.run(run(postgres_address, work))

    assert quick == general
    assert ids_of(general) == Oracle(pattern).of(facts)

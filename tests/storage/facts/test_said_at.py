"""Facts have `said_at`, however late their rule fired, in Python, JSON and tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.delta import AddDelta, UpdateDelta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, at, rule, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeClock
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

OLD = triple("e1", "ada", "likes", "tea", timestamp=at(-90_000))
NEW = triple("e2", "ada", "lives_in", "Porto", timestamp=at(7))
SAID = {"e1": at(-90_000), "e2": at(7)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two facts: the newer episode is imported and fired first."""
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    for number, item in enumerate((NEW, OLD)):
        file = tmp_path / f"{number}.jsonl"
        file.write_text(item.model_dump_json())
        home.call("import", file)
        home.call("fire", "--all")
    return home


def ids(home: Home, *words: str) -> list[str]:
    return [fact["id"] for fact in home.facts(*words)]


async def test_promoted_fact_has_the_instant_of_its_episode(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(OLD, NEW)
        await home.fire()

        facts = await home.facts.query(FactPattern())
        then = await home.facts.query(FactPattern(), valid_at=at(9))

    assert {fact.id: fact.said_at for fact in facts} == SAID
    assert {fact.id: fact.said_at for fact in then} == SAID
    assert {fact.payload["timestamp"] for fact in facts} == {
        instant.isoformat() for instant in SAID.values()
    }


async def test_edit_of_the_instant_alone_changes_said_at(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(OLD)
        await home.fire()
        await home.put(OLD.model_copy(update={"timestamp": at(-5)}))
        await home.fire()

        [fact] = await home.facts.query(FactPattern())
        assert fact.said_at == at(-5)
        assert (await home.facts.verify())[2] is None


async def test_deltas_of_consolidate_contain_said_at_and_apply_delta_stores_it(
    provider: Provider,
    tmp_path: Path,
) -> None:
    late = START + timedelta(days=9)
    async with open_stores(provider, clock=FakeClock(late)) as home:
        await home.put(OLD, NEW, triple("e3", "ada", "likes", "milk", timestamp=at(8)))
        deltas = await home.memory.consolidate(rule())
        async with SQLiteFactStore(tmp_path / "hosts.db", clock=FakeClock(late)) as facts:
            await facts.bootstrap()
            for delta in deltas:
                await facts.apply_delta(delta)
            found = await facts.query(FactPattern(order="said_at"))

    payloads = [d.fact_payload for d in deltas if isinstance(d, AddDelta | UpdateDelta)]
    assert [payload["timestamp"] for payload in payloads] == [
        at(seconds).isoformat() for seconds in (-90_000, 7, 8)
    ]
    assert [(fact.id, fact.said_at) for fact in found] == [("e2", at(7)), ("e3", at(8))]
    assert {fact.pinned_at for fact in found} == {late}


TOLD = {
    "nothing": ({}, START),
    "no instant": ({"timestamp": "soon"}, START),
    "a number": ({"timestamp": 5}, START),
    "an instant": ({"timestamp": "2026-01-01T14:00:01+02:00"}, at(1)),
    "an instant without an offset": ({"timestamp": "2026-01-01T12:00:01"}, at(1)),
    "an instant beyond the calendar": ({"timestamp": "0001-01-01T00:00:00+14:00"}, START),
}


@pytest.mark.parametrize(("payload", "expected"), TOLD.values(), ids=TOLD)
def test_said_at_of_a_declared_fact_is_its_timestamp_or_its_pinned_at(
    payload: dict[str, Any], expected: object
) -> None:
    fact = Fact(
        id="f", user="u", agent="a", payload=payload, lineage=[{}], confidence=1.0, pinned_at=START
    )

    assert fact.said_at == expected
    assert "said_at" not in fact.model_dump()


@pytest.mark.slow
def test_said_at_of_a_correction_is_the_instant_of_the_edit(home: Home) -> None:
    who = ("--user", "alice", "--agent", "rag", "--subject", "ada", "--predicate", "likes")
    home.call("pin", *who, "--object", "rum", "--id", "p1", "--reason", "she corrected it")

    [fact] = home.facts("--id", "p1")

    assert fact["said_at"] == fact["pinned_at"]


@pytest.mark.slow
def test_facts_are_ordered_and_bounded_by_said_at(home: Home) -> None:
    assert ids(home, "--order", "pinned_at") == ["e2", "e1"]
    assert ids(home, "--order", "said_at") == ["e1", "e2"]
    assert ids(home, "--order", "said_at", "--descending") == ["e2", "e1"]
    assert ids(home, "--since", START.isoformat()) == ["e2"]
    assert ids(home, "--since", at(7).isoformat()) == ["e2"]
    assert ids(home, "--until", at(7).isoformat()) == ["e1"]
    assert ids(home, "--since", at(8).isoformat()) == []


@pytest.mark.slow
def test_pages_in_said_at_order_lose_and_repeat_no_fact(home: Home) -> None:
    by = ("facts", "--json", "--order", "said_at", "--limit", "1")
    first = home.call(*by)
    second = home.call(*by, "--after", json.loads(first.stderr)["after"])

    assert [json.loads(page.stdout)["id"] for page in (first, second)] == ["e1", "e2"]
    assert second.stderr == ""


@pytest.mark.slow
def test_facts_and_why_show_said_at(home: Home) -> None:
    heading, *rows = home.call("facts").stdout.splitlines()
    why = home.call("why", "e2").stdout
    document = json.loads(home.call("why", "e2", "--json").stdout)

    assert "said at" in heading
    assert [line for line in rows if "2025-12-31 11:00:00Z" in line and line.startswith("e1 ")]
    assert "said at     2026-01-01 12:00:07Z" in why
    assert document["fact"]["said_at"] == "2026-01-01T12:00:07.000000Z"


@pytest.mark.slow
def test_ledger_contains_said_at_of_every_fact(home: Home) -> None:
    again = home.folder / "again.db"

    home.call("audit", "replay", str(again))
    home.call("audit", "verify")

    with closing(sqlite3.connect(again)) as replayed:
        rows = replayed.execute("SELECT fact_id, payload FROM facts").fetchall()
    assert {id: json.loads(payload)["timestamp"] for id, payload in rows} == {
        id: instant.isoformat() for id, instant in SAID.items()
    }
    with closing(sqlite3.connect(home.state / "facts.db")) as facts:
        stored = dict(facts.execute("SELECT fact_id, at FROM slumberd_ledger WHERE at IS NOT NULL"))
    assert stored == {id: microseconds(instant) for id, instant in SAID.items()}

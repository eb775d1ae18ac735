"""The ledger keeps why a person requested a firing, beside who requested it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from slumberd.model.firing import Limits
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.storage.ledger.undo import ByRun
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
WHY = 'the rule "drinks" was wrong,\nso {"run":"r","undoes":"all@1"}'
ODD = triple("odd", "bob", "drinks", "tea", user="bob", metadata={"intent": "shout"})
TEA = triple("tea", "alice", "drinks", "tea", user="alice")
PORTO = triple("porto", "bob", "lives_in", "Porto", user="bob")
DRINKS = rule("all", when_filter="subject = 'alice'")


class Story(NamedTuple):
    """A request that changes something, and what happened before.

    Attributes:
        operation: The operation.
        request: Its fields, without the reason.
        prepare: Does what must happen before.
    """

    operation: str
    request: dict[str, Any]
    prepare: Callable[[OpenStores], Awaitable[object]]


async def put_pending(home: OpenStores) -> None:
    await home.put(TEA, PORTO)


async def promote(home: OpenStores) -> None:
    await home.put(TEA, PORTO)
    await home.fire(DRINKS)


async def quarantine(home: OpenStores) -> None:
    await home.put(ODD)
    await home.fire()


async def hold(home: OpenStores) -> None:
    await put_pending(home)
    await home.fire()
    ends = {"intent": "delete"}
    await home.put(
        triple("t2", "alice", "drinks", "tea", user="alice", timestamp=at(1), metadata=ends),
        triple("p2", "bob", "lives_in", "Porto", user="bob", timestamp=at(1), metadata=ends),
    )
    report = await home.fire()
    assert report.held is not None
    assert report.held.firing_id == HELD


HELD = "all@4"
SINCE = int(START.timestamp() * 1_000_000)

STORIES = [
    pytest.param(Story("fire", {"rules": ["all"]}, put_pending), id="fire"),
    pytest.param(Story("backfill", {"rule": "all"}, promote), id="backfill"),
    pytest.param(Story("retry", {"rules": ["all"]}, quarantine), id="retry"),
    pytest.param(Story("drop", {"all": True}, quarantine), id="drop"),
    pytest.param(Story("undo", {"firing": "all@1"}, promote), id="undo of a firing"),
    pytest.param(Story("undo", {"rule": "all", "since": SINCE}, promote), id="undo of a rule"),
    pytest.param(Story("decide", {"firing": HELD, "approve": True}, hold), id="approve"),
    pytest.param(Story("decide", {"firing": HELD}, hold), id="reject"),
    pytest.param(Story("forget", {"user": "alice"}, promote), id="forget"),
]


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    async with open_stores(provider, limits=Limits(max_deletes=1)) as home:
        yield home


async def call(
    home: OpenStores, operation: str, request: dict[str, Any], fired: ConsolidationRule
) -> Answer:
    handlers = home.operations(fired, clock=FakeClock(at(60))).handlers
    return await handlers[operation](request, ME)


async def firings(home: OpenStores, after: int = 0) -> list[dict[str, Any]]:
    """Return what the ledger keeps of each firing above a row."""
    _, lines = await home.facts.reads.export(after=after, limit=1_000)
    rows = [orjson.loads(line) for line in lines]
    return [row["payload"] for row in rows if row["what"] == "firing"]


@pytest.mark.parametrize("story", STORIES)
async def test_ledger_keeps_the_reason_of_a_request_beside_its_author(
    home: OpenStores, story: Story, tmp_path: Path
) -> None:
    await story.prepare(home)
    before = await home.facts.reads.ledger_rows()

    await call(home, story.operation, {**story.request, "reason": WHY}, rule("all"))

    written = await firings(home, before)
    assert {(firing["by"], firing["reason"]) for firing in written} == {("uid 7", WHY)}
    records = await home.facts.reads.records(after=before)
    assert {(record.kind == "firing", record.reason == WHY) for record in records} <= {
        (True, True),
        (False, False),
    }
    assert (await home.facts.verify())[2] is None
    assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


@pytest.mark.parametrize("story", STORIES)
async def test_firing_without_a_reason_has_the_keys_that_it_had_before(
    home: OpenStores, story: Story
) -> None:
    await story.prepare(home)
    before = await home.facts.reads.ledger_rows()

    await call(home, story.operation, {**story.request, "reason": None}, rule("all"))

    known = ["rule", "rule_hash", "trigger", "at", "after", "upto", "generation", "last_seq", "by"]
    for firing in await firings(home, before):
        assert [*firing][: len(known)] == known
        assert [*firing][len(known)] in ("run", "counts")
        assert "reason" not in firing
    records = await home.facts.reads.records(after=before)
    assert {record.reason for record in records if record.kind == "firing"} == {""}


@pytest.mark.parametrize("story", STORIES)
async def test_dry_run_records_no_reason(home: OpenStores, story: Story) -> None:
    await story.prepare(home)
    before = await home.facts.ledger.head()

    request = {**story.request, "reason": WHY, "dry_run": True}
    answer = await call(home, story.operation, request, rule("all"))

    assert await home.facts.ledger.head() == before
    assert WHY not in json.dumps(answer)


@pytest.mark.slow
async def test_row_of_an_undo_without_a_reason_has_the_same_bytes_as_before(
    home: OpenStores,
) -> None:
    await promote(home)
    before = await home.facts.reads.ledger_rows()

    await home.facts.ledger.undo("all@1", at=at(99), by="uid 7", dry_run=False)

    _, [line, *_] = await home.facts.reads.export(after=before, limit=10)
    assert (
        b'"payload":{"rule":"@undo","rule_hash":"","trigger":"manual",'
        b'"at":"2026-01-01T12:01:39+00:00","after":0,"upto":0,"generation":0,"last_seq":4,'
        b'"by":"uid 7","counts":{},"law":2,"undoes":"all@1"},'
    ) in line


async def test_words_of_a_reason_select_no_firing(home: OpenStores) -> None:
    await home.put(TEA)
    fired = await call(home, "fire", {"rules": ["all"], "reason": WHY}, rule("all"))

    undone = await call(home, "undo", {"run": fired["run"], "reason": WHY}, rule("all"))
    again = await call(home, "undo", {"run": fired["run"]}, rule("all"))

    assert undone["undone"] == fired["reports"][0]["firing_ids"]
    assert again["undone"] == []
    assert not await home.facts.reads.has_any(ByRun("r"))


async def test_reason_shows_in_the_explanation_of_a_fact(home: OpenStores) -> None:
    await home.put(TEA)
    await call(home, "fire", {"rules": ["all"], "reason": WHY}, rule("all"))

    [asserting] = (await home.facts.why("tea")).assertions

    assert (asserting.row.by, asserting.row.firing_reason) == ("uid 7", WHY)


@pytest.mark.slow
async def test_certificate_names_author_and_reason(home: OpenStores) -> None:
    await promote(home)

    done = await call(home, "forget", {"user": "alice", "reason": "a request of law"}, DRINKS)
    again = await call(home, "forget", {"user": "alice"}, DRINKS)

    assert (done["by"], done["reason"]) == ("uid 7", "a request of law")
    assert "reason" not in again


@pytest.mark.slow
async def test_erasure_removes_the_reason_of_an_edit_and_keeps_that_of_a_firing(
    home: OpenStores,
) -> None:
    pin = {"user": "alice", "agent": "rag", "subject": "alice", "predicate": "is", "object": 1}
    await home.put(TEA)
    await call(home, "fire", {"rules": ["all"], "reason": "of the firing"}, rule("all"))
    await call(home, "pin", {**pin, "reason": "of the edit"}, rule("all"))

    await call(home, "forget", {"user": "alice", "reason": "of the erasure"}, rule("all"))

    _, lines = await home.facts.reads.export(after=0, limit=1_000)
    whole = b"".join(lines)
    assert b"of the edit" not in whole
    assert b"of the firing" in whole
    assert b"of the erasure" in whole
    assert (await home.facts.verify())[2] is None
    assert await home.facts.erasures.covers(ScopeFilter("alice", None, None))

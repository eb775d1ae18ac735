"""An undo accepts the exact id of an existing firing, refuses an erasure, and can be undone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from slumberd.consolidation.precedence import newest_law
from slumberd.model.errors import UsageError
from slumberd.model.firing import Counts
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

LATER = at(99)


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    """Open stores in which the firing ``all@1`` has promoted one fact."""
    async with open_stores(provider) as stores:
        await stores.put(triple("tea", "alice", "drinks", "tea"))
        await stores.fire()
        yield stores


@pytest.mark.slow
@pytest.mark.parametrize(
    "firing_id",
    [
        pytest.param("", id="nothing"),
        pytest.param("all", id="a rule"),
        pytest.param("@1", id="a number"),
        pytest.param("1", id="a bare number"),
        pytest.param("all@", id="no number"),
        pytest.param("all@2", id="the number of another row"),
        pytest.param("all@3", id="a number to come"),
        pytest.param("other@1", id="another rule"),
        pytest.param("all@-1", id="a negative number"),
        pytest.param("all@1.0", id="a fraction"),
        pytest.param("all@1 ", id="a space"),
        pytest.param("all@one", id="a word"),
        pytest.param("all@²", id="a superscript"),
        pytest.param("all@\u0661", id="a digit of another script"),
    ],
)
async def test_firing_that_does_not_exist_is_refused(home: OpenStores, firing_id: str) -> None:
    with pytest.raises(UsageError, match=r"no firing .*audit ls --kind firing"):
        await home.facts.ledger.undo(firing_id, at=LATER, by="me", dry_run=False)

    assert await home.objects() == {"tea": "tea"}
    assert await home.facts.reads.ledger_rows() == 2


async def test_undo_of_an_erasure_is_refused(home: OpenStores) -> None:
    scope = ScopeFilter.of("alice", None, None)
    await home.facts.erasures.forget(scope, moment=10**17, at=START, by="me", dry_run=False)

    with pytest.raises(UsageError, match="firing '@erasure@3' is an erasure"):
        await home.facts.ledger.undo("@erasure@3", at=LATER, by="me", dry_run=False)


async def test_undo_of_an_undo_restores_the_facts(home: OpenStores) -> None:
    first = await home.facts.ledger.undo("all@1", at=LATER, by="me", dry_run=False)
    assert await home.objects() == {}

    second = await home.facts.ledger.undo(first.firing_id, at=LATER, by="me", dry_run=False)

    assert await home.objects() == {"tea": "tea"}
    assert (first.firing_id, second.firing_id) == ("@undo@3", "@undo@5")
    assert [(record.kind, record.fact_id) for record in second.records] == [
        ("firing", ""),
        ("add", "tea"),
    ]


async def test_dry_run_of_an_undo_reports_its_deltas_and_writes_nothing(
    home: OpenStores,
) -> None:
    outcome = await home.facts.ledger.undo("all@1", at=LATER, by="me", dry_run=True)

    assert [(record.kind, record.fact_id, record.replaces) for record in outcome.records] == [
        ("firing", "", ()),
        ("delete", "tea", ("tea",)),
    ]
    assert await home.objects() == {"tea": "tea"}
    assert await home.facts.reads.ledger_rows() == 2


async def test_ledger_row_of_an_undo_names_its_author_instant_and_target(home: OpenStores) -> None:
    await home.facts.ledger.undo("all@1", at=LATER, by="uid 7", dry_run=False)

    _, lines = await home.facts.reads.export(after=2, limit=1)
    payload = orjson.loads(lines[0])["payload"]
    assert payload == {
        "rule": "@undo",
        "rule_hash": "",
        "trigger": "manual",
        "at": LATER.isoformat(),
        "after": 0,
        "upto": 0,
        "generation": 0,
        "last_seq": 4,
        "by": "uid 7",
        "counts": {},
        "law": newest_law(),
        "undoes": "all@1",
    }


async def test_only_a_backfill_or_an_edit_evaluates_an_undone_version_again(
    home: OpenStores,
) -> None:
    await home.facts.ledger.undo("all@1", at=LATER, by="me", dry_run=False)
    assert (await home.fire()).firing_ids == []

    report = await home.consolidator.backfill(rule("all"), LATER, by="me")

    assert report.channels["facts"] == Counts(read=1, added=1)
    assert await home.objects() == {"tea": "tea"}


async def test_undo_keeps_a_fact_that_another_rule_promotes(home: OpenStores) -> None:
    await home.fire(rule("other"))

    outcome = await home.facts.ledger.undo("all@1", at=LATER, by="me", dry_run=False)

    assert await home.objects() == {"tea": "tea"}
    assert [(record.kind, record.fact_id, record.replaces) for record in outcome.records[1:]] == [
        ("update", "tea", ("tea",))
    ]


@pytest.mark.parametrize("subject", ["s", "t"], ids=["of its key", "of another key"])
async def test_undone_undo_of_an_update_removes_the_fact_that_it_replaces(
    provider: Provider, subject: str
) -> None:
    update = {"intent": "update", "replaces": ["e1"]}
    async with open_stores(provider) as home:
        await home.put(triple("e1", "s", "is", "a"))
        await home.fire()
        await home.put(triple("e2", subject, "is", "b", timestamp=at(1), metadata=update))
        [second] = (await home.fire()).firing_ids

        undo = await home.facts.ledger.undo(second, at=START, by="me", dry_run=False)
        assert set(await home.objects()) == {"e1"}
        await home.facts.ledger.undo(undo.firing_id, at=START, by="me", dry_run=False)

        assert set(await home.objects()) == {"e2"}
        assert (await home.facts.verify())[2] is None

"""The operations that list firings, and the rows of one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from slumberd.clock import CommitSignal
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.model.errors import NoInputError, NotAllowedError, UsageError
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer, handlers_of
from slumberd.operations.ledger import LedgerReads
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

OPERATOR = Caller(name="me")
OF_ADA = Caller(name="token", user="ada", rights=frozenset({Right.READ}))
READER = Caller(name="token", rights=frozenset({Right.READ}))
MINUTE = timedelta(minutes=1)


class Firings:
    """Open stores, and the operations that read their ledger."""

    def __init__(self, home: OpenStores) -> None:
        self.home = home
        self._handlers = handlers_of(LedgerReads(home.facts, CommitSignal()))

    async def call(self, operation: str, caller: Caller = OPERATOR, **request: Any) -> Answer:
        return await self._handlers[operation](request, caller)

    async def listed(self, **request: Any) -> list[Answer]:
        firings: list[Answer] = (await self.call("firings", **request))["firings"]
        return firings

    async def ids(self, **request: Any) -> list[str]:
        return [firing["firing_id"] for firing in await self.listed(**request)]

    async def fire(self, minute: int, *rules: ConsolidationRule, users: str = "ada") -> None:
        """Put an episode of each user, and fire rules at a minute."""
        moment = START + minute * MINUTE
        for user in users.split():
            await self.home.put(
                triple(f"{user}{minute}", "s", "is", minute, timestamp=at(minute), user=user)
            )
        for each in rules or (rule("all"),):
            await self.home.consolidator.fire(
                FireRequest(each, "manual", moment, by="me", run=f"run{minute}")
            )

    async def undo(self, firing_id: str) -> str:
        outcome = await self.home.facts.ledger.undo(
            firing_id, at=START + timedelta(days=1), by="eve", dry_run=False, run="undoing"
        )
        return outcome.firing_id


@pytest.fixture
async def firings(provider: Provider) -> AsyncIterator[Firings]:
    async with open_stores(provider) as home:
        yield Firings(home)


async def test_firing_says_what_it_did(firings: Firings) -> None:
    await firings.fire(0, rule("both", then_emits=["facts", "notes"]), users="ada bob")

    (found,) = await firings.listed()

    counts = found.pop("counts")
    assert found == {
        "seq": 1, "firing_id": "both@1", "rule_id": "both", "at": "2026-01-01T12:00:00Z",
        "trigger": "manual", "by": "me", "reason": "", "run": "run0", "undone_by": None,
        "undoes": None,
    }  # fmt: skip
    assert (counts.pop("read"), counts.pop("added")) == (4, 4)
    assert not any(counts.values())


async def test_pages_hold_each_firing_once_newest_first(firings: Firings) -> None:
    for minute in range(5):
        await firings.fire(minute, rule("a"), rule("b"))

    every = await firings.ids()
    seen, before = [], None
    for _ in range(4):
        page = await firings.call("firings", limit=3, before=before)
        seen += [firing["firing_id"] for firing in page["firings"]]
        before = page["next"]

    assert seen == every
    assert before is None
    assert every == [
        f"{name}@{number}" for number, name in zip(range(19, 0, -2), "ba" * 5, strict=True)
    ]


async def test_page_that_ends_with_the_oldest_firing_is_the_last(firings: Firings) -> None:
    await firings.fire(0)

    assert (await firings.call("firings", limit=1))["next"] is None
    assert await firings.call("firings", before="9.1") == {"firings": [], "next": None}


async def test_firings_of_one_rule_are_those_for_episodes_and_for_a_graph(
    firings: Firings,
) -> None:
    for minute, name in enumerate(["a", "b", ledger_rule_id("a"), "a"]):
        await firings.fire(minute, rule("x").model_copy(update={"id": name}))

    found = [firing["rule_id"] for firing in await firings.listed(rule="a")]

    assert found == ["a", ledger_rule_id("a"), "a"]
    assert len(await firings.ids(rule="a", limit=2)) == 2
    assert await firings.ids(rule="c") == []


async def test_firings_since_an_instant_include_it(firings: Firings) -> None:
    for minute in range(4):
        await firings.fire(minute)

    every = await firings.ids()

    assert await firings.ids(since="2026-01-01T12:02:00Z") == every[:2]
    assert await firings.ids(since="2026-01-01T14:02:01+02:00") == every[:1]
    assert await firings.ids(rule="all", since="2026-01-01T12:01:00Z", limit=2) == every[:2]


async def test_undone_firing_names_the_firing_that_undid_it(firings: Firings) -> None:
    await firings.fire(0)
    await firings.fire(1)
    undo = await firings.undo("all@1")

    by_id = {firing["firing_id"]: firing for firing in await firings.listed()}

    assert {id: one["undone_by"] for id, one in by_id.items()} == {
        undo: None, "all@3": None, "all@1": undo,
    }  # fmt: skip
    assert (by_id[undo]["undoes"], by_id[undo]["by"]) == ("all@1", "eve")


async def test_firing_whose_undo_is_undone_is_not_undone(firings: Firings) -> None:
    await firings.fire(0)
    first = await firings.undo("all@1")
    second = await firings.undo(first)

    undone = {firing["firing_id"]: firing["undone_by"] for firing in await firings.listed()}
    third = await firings.undo(second)
    again = {firing["firing_id"]: firing["undone_by"] for firing in await firings.listed()}

    assert undone == {second: None, first: second, "all@1": None}
    assert again == {third: None, second: third, first: None, "all@1": first}


async def test_firing_that_was_undone_twice_names_the_first_undo(firings: Firings) -> None:
    await firings.fire(0)
    first, _ = [await firings.undo("all@1") for _ in range(2)]

    assert (await firings.listed())[-1]["undone_by"] == first


async def test_undo_counts_its_rows(firings: Firings) -> None:
    await firings.fire(0, users="ada bob")
    await firings.fire(1)
    await firings.undo("all@4")
    await firings.undo("all@1")

    last, first, *_ = await firings.listed()

    assert (last["counts"]["deleted"], last["counts"]["read"]) == (2, 0)
    assert first["counts"]["restored"] + first["counts"]["added"] == 1
    rows = (await firings.call("deltas", firing=last["firing_id"]))["changes"]
    assert [row["kind"] for row in rows].count("delete") == 2


async def test_rows_of_a_firing_come_in_pages(firings: Firings) -> None:
    await firings.fire(0)
    await firings.fire(1, users="ada bob cy")
    await firings.fire(2)

    page = await firings.call("deltas", firing="all@3", limit=2)
    rest = await firings.call("deltas", firing="all@3", limit=2, after=page["last"])

    assert [row["user"] for row in page["changes"] + rest["changes"]] == ["ada", "bob", "cy"]
    assert {row["firing_id"] for row in page["changes"] + rest["changes"]} == {"all@3"}
    assert (page["last"], page["more"], rest["last"], rest["more"]) == (5, True, 6, False)
    assert page["changes"][0]["replaces"] == ["ada0"]


async def test_operator_narrows_the_rows_to_one_user(firings: Firings) -> None:
    await firings.fire(0, users="ada bob")

    rows = (await firings.call("deltas", firing="all@1", user="bob"))["changes"]

    assert [row["fact_id"] for row in rows] == ["bob0"]


async def test_caller_of_one_user_gets_only_its_own_rows(firings: Firings) -> None:
    await firings.fire(0, users="ada bob")
    await firings.fire(1, users="bob")

    own = await firings.call("deltas", OF_ADA, firing="all@1")
    others = await firings.call("deltas", OF_ADA, firing="all@4")

    assert [row["fact_id"] for row in own["changes"]] == ["ada0"]
    assert others["changes"] == []
    with pytest.raises(NotAllowedError):
        await firings.call("deltas", OF_ADA, firing="all@1", user="bob")


@pytest.mark.parametrize("firing", ["all@2", "other@1", "all@", "all@\u0661", "@1", "x"])
async def test_rows_of_an_unknown_firing_are_refused(firings: Firings, firing: str) -> None:
    await firings.fire(0)

    with pytest.raises(NoInputError, match="no firing"):
        await firings.call("deltas", firing=firing)


async def test_only_an_operator_reads_all_rows_and_the_firings(firings: Firings) -> None:
    with pytest.raises(UsageError, match="name a user"):
        await firings.call("deltas", READER, firing="all@1")
    with pytest.raises(NotAllowedError):
        await firings.call("firings", OF_ADA)


@ON_FILES
@pytest.mark.parametrize(
    "request_",
    [
        {"before": "1"}, {"before": "1.2.3"}, {"before": "1.2\n"}, {"before": "-1.1"},
        {"before": "1." + "9" * 19}, {"limit": 0}, {"limit": 1_001}, {"since": "yesterday"},
        {"since": "2026-01-01T12:00:00"}, {"user": "ada"},
    ],
)  # fmt: skip
async def test_mistaken_request_is_refused(firings: Firings, request_: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await firings.call("firings", **request_)


async def test_changes_are_selected_by_rule_fact_run_and_among_the_newest(
    firings: Firings,
) -> None:
    await firings.fire(0, rule("one"), rule("two", then_emits=["notes"]))
    await firings.fire(1, rule("one"))

    async def seqs(**request: Any) -> list[int]:
        page = await firings.call("changes", **request)
        return [change["seq"] for change in page["changes"]]

    every = await seqs()
    assert every == [1, 2, 3, 4, 5, 6]
    assert await seqs(rule="one") == [1, 2, 5, 6]
    assert await seqs(rule="two", kinds=["add"]) == [4]
    assert await seqs(fact="ada1") == [6]
    assert await seqs(run="run0") == [1, 2, 3, 4]
    assert await seqs(newest=2) == [5, 6]
    assert await seqs(newest=2, after=5) == [6]
    assert await seqs(newest=9, rule="one", limit=2) == [1, 2]


async def test_page_of_unselected_changes_says_where_to_go_on(firings: Firings) -> None:
    await firings.fire(0)

    page = await firings.call("changes", fact="nobody", limit=1)

    assert page == {"changes": [], "last": 1, "more": True}

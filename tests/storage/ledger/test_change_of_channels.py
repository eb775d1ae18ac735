"""A change of the multi-valued predicates resolves some keys at a time, and can be held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.precedence import MultiValued, order_in_change
from slumberd.daemon.reload import ChannelChange, apply_channels
from slumberd.model.fact import FactPattern
from slumberd.model.firing import CHANNELS, Limits
from slumberd.model.predicates import ManyBut, describe, union_of
from slumberd.operations.caller import Caller
from slumberd.operations.firing import BackfillForm, DecideForm
from slumberd.rules.rule_loader import RuleSet
from slumberd.storage.facts import settings_changes
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

MANY = {"facts": ManyBut(frozenset({"lives_in"}))}


def put_values(home: OpenStores, people: int) -> Any:
    return home.put(*(
        triple(f"{predicate}{n}{value}", f"p{n}", predicate, value, timestamp=at(second))
        for n in range(people)
        for predicate in ("likes", "lives_in")
        for second, value in enumerate("ab")
    ))  # fmt: skip


def test_values_many_holds_several_but_of_the_single_valued_predicates() -> None:
    multi = MultiValued(MANY | {"notes": ["has"], "none": []})

    assert "u/a/facts/s/likes" in multi
    assert "u/a/facts/s/lives_in" not in multi
    assert "u/a/notes/s/has" in multi
    assert "u/a/notes/s/likes" not in multi
    assert "u/a/none/s/likes" not in multi
    assert "u/a/facts///e1" not in multi
    assert multi.document() == {"facts": {"single_valued": ["lives_in"]}, "notes": ["has"]}
    assert MultiValued.from_document(multi.document()).channels == multi.channels
    assert MultiValued({"facts": ManyBut()}).channels == {"facts": ManyBut()}
    assert describe(MANY["facts"]) == "values: many, single_valued: [lives_in]"
    assert describe(frozenset({"b", "a"})) == "multi_valued: [a, b]"


PREDICATES = st.frozensets(st.sampled_from("abc"))
SETTINGS = PREDICATES | st.builds(ManyBut, PREDICATES)


@given(SETTINGS, SETTINGS, st.sampled_from("abc"))
def test_the_union_of_two_settings_holds_what_one_of_them_holds(
    several: Any, other: Any, predicate: str
) -> None:
    def holds(setting: Any) -> bool:
        return f"u/a/facts/s/{predicate}" in MultiValued({"facts": setting})

    assert holds(union_of(several, other)) == (holds(several) or holds(other))
    assert union_of(several, None) == several


@given(SETTINGS, SETTINGS, st.floats(0, 1), st.sampled_from("abc"))
def test_during_a_change_the_first_keys_have_the_new_setting(
    old: Any, new: Any, share: float, predicate: str
) -> None:
    key = f"u/a/facts/s/{predicate}"
    before, after = MultiValued({"facts": old}), MultiValued({"facts": new})
    between = MultiValued({"facts": new}, before, share)

    held = key in MultiValued.from_document(between.document())

    assert held == (key in between)
    assert held == (key in (after if order_in_change(key) < share else before))


async def test_change_goes_on_where_it_was_interrupted_and_each_step_verifies(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(settings_changes, "_KEYS_PER_BATCH", 4)
    async with open_stores(provider) as home:
        await put_values(home, people=9)
        await home.fire()
        ledger, target = home.facts.ledger, MultiValued(MANY)
        counts: list[int] = []
        while await ledger.plan_channels(MANY) is not None:
            await home.facts.transactions.append_batch(
                lambda session: settings_changes.change_channels(session, target, 8, START)
            )
            counts.append(len(await home.facts.query(FactPattern())))
            await home.put(triple(f"late{len(counts)}", "p1", "likes", f"c{len(counts)}"))
            await home.fire(rule("late"))
            _, _, broken = await home.facts.verify()
            assert broken is None

        assert len(counts) >= 3
        assert counts == sorted(counts)
        assert await ledger.plan_channels(MANY) is None
        objects = await home.objects()
        assert len([id for id in objects if id.startswith("likes")]) == 18
        assert len([id for id in objects if id.startswith("lives_in")]) == 9
        replayed = await home.facts.replay(tmp_path / "again.db")
        assert replayed.differing == 0


async def test_plan_counts_the_facts_that_appear_and_go(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await put_values(home, people=3)
        await home.fire()

        plan = await home.facts.ledger.plan_channels(MANY)
        assert plan is not None
        assert (plan.keys, plan.appear, plan.go, plan.current) == (3, 3, 0, 6)
        await home.facts.ledger.set_channels(MANY, at=START)

        back = await home.facts.ledger.plan_channels({})
        assert back is not None
        assert (back.appear, back.go) == (0, 3)


async def test_change_above_a_limit_awaits_approval(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await put_values(home, people=3)
        await home.facts.ledger.set_channels(MANY, at=START)
        await home.fire()
        operations = home.operations(clock=FakeClock())
        runner, rules = operations._runner, RuleSet((), {}, {})
        runner.consolidator.limits = Limits(max_deletes=2)

        held = await apply_channels(runner, rules, START)
        again = await apply_channels(runner, rules, START)

        assert (held.facts_appear, held.facts_go) == (0, 3)
        assert held.held_firing_id == again.held_firing_id
        assert len(await home.objects()) == 9
        waiting = (await home.facts.watermarks.held())[CHANNELS]
        assert "would delete 3 facts" in waiting.problem

        decision = DecideForm(firing=waiting.firing_id, approve=True)
        await operations.decide(decision, Caller.of_user(7, 7))

        assert await home.facts.ledger.plan_channels({}) is None
        assert len(await home.objects()) == 6
        assert await home.facts.watermarks.held() == {}
        _, _, broken = await home.facts.verify()
        assert broken is None


async def test_rejected_change_is_not_asked_again_and_another_one_is(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await put_values(home, people=3)
        await home.facts.ledger.set_channels(MANY, at=START)
        await home.fire()
        runner = home.operations(clock=FakeClock())._runner
        runner.consolidator.limits = Limits(max_deletes=2)
        rules = RuleSet((), {}, {})
        held = await apply_channels(runner, rules, START)
        waiting = (await home.facts.watermarks.held())[CHANNELS]
        await home.facts.ledger.decide(waiting, approve=False, at=START, by="me")

        again = await apply_channels(runner, rules, START)

        assert again == ChannelChange(0, 3, None, held.held_firing_id)
        assert await home.facts.watermarks.held() == {}
        assert len(await home.objects()) == 9
        other = RuleSet((), {"facts": frozenset({"lives_in"})}, {})
        assert (await apply_channels(runner, other, START)).held_firing_id is not None
        runner.consolidator.limits = Limits()
        assert await apply_channels(runner, rules, START) == ChannelChange(0, 3)
        assert len(await home.objects()) == 6
        _, _, broken = await home.facts.verify()
        assert broken is None


async def test_approval_of_a_change_plans_again_and_leaves_a_held_backfill(
    provider: Provider,
) -> None:
    none_left, me = rule("all", when_filter="object < 0"), Caller.of_user(7, 7)
    async with open_stores(provider, limits=Limits(max_deletes=2)) as home:
        await put_values(home, people=3)
        await home.facts.ledger.set_channels(MANY, at=START)
        await home.fire()
        operations = home.operations(none_left, clock=FakeClock())
        backfill = await operations.backfill(BackfillForm(rule="all"), me)
        held_backfill = backfill["reports"][0]["held_batch"]["firing_id"]
        rules = RuleSet((none_left,), {}, {})
        change = await apply_channels(operations._runner, rules, START)
        assert change.held_firing_id is not None
        assert set(await home.facts.watermarks.held()) == {CHANNELS, held_backfill}

        await home.put(*(triple(f"more{what}", "p9", "likes", what) for what in "ab"))
        await home.fire()
        first = DecideForm(firing=change.held_firing_id, approve=True)
        (report,) = (await operations.decide(first, me))["reports"]
        again = report["held_batch"]

        assert "this change would delete 4 facts" in again["problem"]
        assert again["firing_id"] != change.held_firing_id
        assert len(await home.objects()) == 11
        second = DecideForm(firing=again["firing_id"], approve=True)
        assert (await operations.decide(second, me))["reports"] == []
        assert len(await home.objects()) == 7
        assert set(await home.facts.watermarks.held()) == {held_backfill}

        await operations.decide(DecideForm(firing=held_backfill, approve=True), me)

        assert await home.facts.watermarks.held() == {}
        assert set(await home.objects()) == {"moreb"}
        _, _, broken = await home.facts.verify()
        assert broken is None

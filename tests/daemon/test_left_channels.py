"""After a rule leaves a channel, an edit or a backfill removes the facts it promoted there."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.firing import BackfillForm
from tests.support.builders import at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider
from tests.support.state_directory import state_directory

pytestmark = pytest.mark.integration

BOTH = rule("all", then_emits=["facts", "notes"])
ONE = rule("all", then_emits=["facts"])
TEA = triple("e1", "alice", "drinks", "tea")


async def objects_after(home: OpenStores, fired: ConsolidationRule) -> dict[str, object]:
    report = await home.fire(fired)
    assert all(channel.read == sum(channel[1:7]) for channel in report.channels.values())
    return await home.objects()


async def test_backfill_removes_facts_from_a_channel_that_the_rule_left(
    provider: Provider,
    tmp_path: Path,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        await home.fire(BOTH)

        report = await home.consolidator.backfill(ONE, at(60), by="me")

        assert await home.objects() == {"e1": "tea"}
        assert report.channels["notes"].deleted == 1
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_edit_removes_its_fact_from_a_channel_that_the_rule_left(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, triple("e2", "bob", "drinks", "milk"))
        await home.fire(BOTH)
        await home.put(triple("e1", "alice", "drinks", "juice", timestamp=at(1)))

        assert await objects_after(home, ONE) == {
            "e1": "juice", "e2": "milk", "@notes/e2": "milk"
        }  # fmt: skip


async def test_backfill_fills_a_channel_that_the_rule_emits_into_again(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        await home.fire(ONE)
        await home.consolidator.backfill(BOTH, at(50), by="me")
        await home.consolidator.backfill(ONE, at(60), by="me")
        assert set(await home.objects()) == {"e1"}

        await home.consolidator.backfill(BOTH, at(70), by="me")

        assert set(await home.objects()) == {"e1", "@notes/e1"}


async def test_new_episode_adds_no_count_to_a_channel_that_the_rule_left(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        await home.fire(BOTH)
        await home.put(triple("e2", "bob", "drinks", "milk"))

        report = await home.fire(ONE)

        assert set(report.channels) == {"facts"}


async def test_backfill_keeps_the_facts_of_another_rule_in_the_channel(provider: Provider) -> None:
    other = rule("other", then_emits=["notes"])
    async with open_stores(provider) as home:
        await home.put(TEA)
        await home.fire(BOTH)
        await home.fire(other)

        await home.consolidator.backfill(ONE, at(60), by="me")

        assert set(await home.objects()) == {"e1", "@notes/e1"}


async def test_edit_and_backfill_remove_all_facts_from_the_channel(tmp_path: Path) -> None:
    async with state_directory(tmp_path, [BOTH]) as home:
        await home.stores.memory.put_many([TEA, triple("e2", "bob", "drinks", "milk")])
        await home.fire(BOTH)
        home.rules[:] = [ONE]
        await home.stores.memory.put_many([triple("e1", "alice", "drinks", "juice")])

        await home.fire(ONE)
        edited = await home.ids()
        await home.operations.backfill(BackfillForm(rule="all"), Caller.of_user(1, 1))

        assert (edited, await home.ids()) == (["@notes/e2", "e1", "e2"], ["e1", "e2"])

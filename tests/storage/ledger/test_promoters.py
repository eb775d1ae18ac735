"""Facts that several rules promote: their instant, their lineage, and their removal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

TEA = triple("tea", "alice", "drinks", "tea")
FIRST, SECOND, THIRD = START, at(60), at(120)


async def fire(home: OpenStores, fired: ConsolidationRule | str, instant: datetime) -> str:
    """Fire a rule at an instant; return the id of its one firing."""
    chosen = rule(fired) if isinstance(fired, str) else fired
    report = await home.consolidator.fire(FireRequest(chosen, "manual", instant))
    (firing_id,) = report.firing_ids
    return firing_id


async def only_fact(home: OpenStores) -> Fact:
    (fact,) = await home.facts.query(FactPattern())
    return fact


def pinned_at(folder: Path) -> list[str]:
    """Return the column as other programs read it."""
    with closing(sqlite3.connect(folder / "facts.db")) as connection:
        return [pinned for (pinned,) in connection.execute("SELECT pinned_at FROM facts")]


@ON_FILES
@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
async def test_fact_of_several_rules_is_pinned_at_the_newest_promotion(
    provider: Provider, tmp_path: Path, order: str
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        for name, instant in zip(order, (FIRST, SECOND, THIRD), strict=True):
            await fire(home, name, instant)

        fact = await only_fact(home)

        assert fact.pinned_at == THIRD
        assert pinned_at(tmp_path) == [THIRD.isoformat()]
        promoted = {
            name: instant.isoformat()
            for name, instant in zip(order, (FIRST, SECOND, THIRD), strict=True)
        }
        assert [(entry["rule_id"], entry["promotion_ts"]) for entry in fact.lineage] == [
            (name, promoted[name]) for name in "abc"
        ]


async def test_fact_keeps_the_instant_of_the_rule_that_still_promotes_it(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        await fire(home, "b", FIRST)
        later = await fire(home, "a", SECOND)

        await home.facts.ledger.undo(later, at=THIRD, by="me", dry_run=False)

        fact = await only_fact(home)
        assert (fact.pinned_at, [entry["rule_id"] for entry in fact.lineage]) == (FIRST, ["b"])


async def test_fact_stays_when_one_of_two_rules_no_longer_selects_its_episode(
    provider: Provider,
) -> None:
    picky = rule("picky", when_filter="confidence > 0.5")
    async with open_stores(provider) as home:
        await home.put(TEA)
        await fire(home, picky, FIRST)
        await fire(home, "all", SECOND)
        await home.put(triple("tea", "alice", "drinks", "tea", metadata={"confidence": 0.1}))
        await fire(home, picky, THIRD)

        await fire(home, "all", THIRD)

        fact = await only_fact(home)
        assert (fact.confidence, [entry["rule_id"] for entry in fact.lineage]) == (0.1, ["all"])


async def test_newest_version_counts_whichever_rule_has_read_it(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA)
        await fire(home, "one", FIRST)
        await fire(home, "two", FIRST)
        await home.put(triple("tea", "alice", "drinks", "green tea"))

        await fire(home, "two", SECOND)

        fact = await only_fact(home)
        assert (fact.payload["object"], fact.pinned_at) == ("green tea", SECOND)
        assert [entry["rule_id"] for entry in fact.lineage] == ["two"]


async def test_new_content_is_current_once_one_rule_has_read_the_new_log(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("old", "bob", "is", "here"), TEA)
        await fire(home, "one", FIRST)
        await fire(home, "two", FIRST)
    for file in tmp_path.glob("memory.db*"):
        file.unlink()

    async with open_stores(tmp_path) as home:
        await home.put(triple("tea", "alice", "drinks", "green tea"))
        await fire(home, "one", SECOND)

        assert await home.objects() == {"old": "here", "tea": "green tea"}


async def test_versions_of_a_restored_log_are_known_under_their_old_numbers(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path, batch=1) as home:
        await home.put(triple("old", "bob", "is", "here"), TEA)
        await fire_all(home, FIRST)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute("DELETE FROM slumberd_episode_log WHERE eid = 'tea'")
            host.execute("DELETE FROM episodes WHERE id = 'tea'")
            host.execute("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'slumberd_episode_log'")
        await home.put(triple("new", "eve", "is", "here"))
        await home.put(triple("tea", "alice", "drinks", "green tea"))
        await fire_all(home, SECOND)

        report = await home.consolidator.backfill(rule("all"), THIRD, by="me")

        assert await home.objects() == {"old": "here", "new": "here", "tea": "green tea"}
        assert report.channels["facts"] == Counts(read=3, noop=3), "all of it is known"


async def fire_all(home: OpenStores, instant: datetime) -> None:
    await home.consolidator.fire(FireRequest(rule("all"), "manual", instant))

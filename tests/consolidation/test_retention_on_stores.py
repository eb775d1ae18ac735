"""Episodes that were archived long ago are deleted, and no other."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.stage_runs import Retention
from slumberd.model.episode import Episode
from slumberd.model.errors import StoreError
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Limits, Report
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import Decay, Dedup, Summarise
from slumberd.rules.vocabulary_loader import conversation_extraction
from tests.support.builders import START, at, episode, rule
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

DAY = 86_400.0
NIGHTLY = rule(
    "nightly", extract=conversation_extraction({}), stages=(Dedup(), Decay(half_life=DAY))
)  # fmt: skip


def said(id: str, content: str, day: float = 0.0, **overrides: Any) -> Episode:
    return episode(id, content=content, timestamp=at(day * DAY), **overrides)


async def fire(home: OpenStores, day: float, fired: ConsolidationRule = NIGHTLY) -> Report:
    request = FireRequest(fired, "cron", START + timedelta(days=day))
    return await home.consolidator.fire(request)


def keep_for(home: OpenStores, days: float, *rule_ids: str) -> None:
    home.consolidator.retention = Retention(days * DAY, lambda: ["nightly", *rule_ids])


async def ids(home: OpenStores) -> list[str]:
    return sorted(found.id for found in await home.memory.recent("alice", limit=99))


async def test_archived_episode_is_deleted_after_its_time(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 30)
        await home.put(said("e1", "Hello there"), said("e2", "How are you?", 20))
        await fire(home, 9)

        early = await fire(home, 38.9)
        with capture_logs() as logs:
            late = await fire(home, 39)
        idle = await fire(home, 39.1)

        assert (early.purged, late.purged) == ([], ["e1"])
        # The log has a report of each firing but the last, which did nothing.
        assert (idle.firing_ids, idle.purged) == ([], [])
        assert [len(report.purged) for report in home.log.reports] == [0, 0, 1]
        assert await ids(home) == ["e2"]
        [line] = [line for line in logs if line["event"] == "episodes.purged"]
        assert (line["rule_id"], line["count"], line["episode_ids"]) == ("nightly", 1, ["e1"])
        assert await marked(home) == ["@marks/e2"]
        assert (await home.facts.verify())[2] is None


async def marked(home: OpenStores) -> list[str]:
    return [fact.id for fact in await home.facts.query(FactPattern(channel="marks"))]


async def test_mark_of_a_deleted_episode_ends_and_its_past_can_be_asked_for(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 30)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        late = await fire(home, 99)
        assert (late.purged, await marked(home)) == (["e1"], [])

        day_before = at(98 * DAY)
        pattern = FactPattern(channel="marks")
        then = await home.facts.query(pattern, believed_at=day_before)

        assert [fact.id for fact in then] == ["@marks/e1"]
        await home.facts.ledger.undo(late.firing_ids[-1], at=at(99 * DAY), by="me", dry_run=False)
        assert await marked(home) == ["@marks/e1"]
        assert (await fire(home, 100)).purged == []
        assert (await home.facts.verify())[2] is None


async def test_marks_of_deleted_episodes_end_above_the_deletion_limits(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 30)
        home.consolidator.limits = Limits(max_deletes=1, max_delete_fraction=0.1)
        await home.put(*(said(f"e{number}", f"Hello {number}") for number in range(30)))
        await fire(home, 9)

        late = await fire(home, 99)

        assert (len(late.purged), late.held, await marked(home)) == (30, None, [])


async def be_killed(*_: object) -> NoReturn:
    raise StoreError("killed")


async def test_episode_whose_deletion_was_killed_is_archived_and_deleted_later(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 30)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        with monkeypatch.context() as killed:
            killed.setattr(type(home.memory), "purge", be_killed)
            with pytest.raises(StoreError, match="killed"):
                await fire(home, 99)
        assert (await marked(home), await ids(home)) == ([], ["e1"])

        again = await fire(home, 99)
        late = await fire(home, 129)

        assert (again.purged, late.purged) == ([], ["e1"])
        assert (await marked(home), await ids(home)) == ([], [])


async def test_other_copies_of_a_deleted_episode_are_removed_of_its_user(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        users: list[str] = []
        home.consolidator.retention = Retention(30 * DAY, lambda: ["nightly"], users.append)
        await home.put(said("e1", "Hello there"), said("b1", "Hello", 38, user="bob"))
        await fire(home, 9)
        assert users == []

        await fire(home, 39)

        assert users == ["alice"]


async def test_nothing_is_deleted_without_retention(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)

        report = await fire(home, 9_999)

        assert report.purged == []
        assert await ids(home) == ["e1"]


async def test_episode_that_a_fact_cites_stays(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(
            said("e1", "Bob lives in Oslo."),
            said("e2", "noted", metadata={"subject": "ann", "predicate": "is", "object": "old"}),
            said("e3", "noted", 1, metadata={"subject": "ann", "predicate": "is", "object": "new"}),
            said("e4", "Hello there"),
        )
        await fire(home, 9)

        report = await fire(home, 99)

        # The fact of e3 names e2 in its lineage.
        assert report.purged == ["e4"]
        assert (await fire(home, 100)).purged == []
        assert await ids(home) == ["e1", "e2", "e3"]


async def test_episode_that_changes_while_it_is_purged_stays(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        purge = home.memory.purge

        async def purge_another_version(seqs: dict[str, int]) -> list[str]:
            return await purge({id: seq - 1 for id, seq in seqs.items()})

        monkeypatch.setattr(home.memory, "purge", purge_another_version)

        assert (await fire(home, 99)).purged == []
        assert await ids(home) == ["e1"]


async def test_cited_episodes_are_not_read_again_night_after_night(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        triple = {"subject": "ann", "predicate": "is", "object": "old"}
        await home.put(said("e1", "noted", metadata=triple), said("e2", "Hello there"))
        await fire(home, 9)
        asked: list[str] = []
        reread = home.memory.reread

        async def reread_and_note(*arguments: Any, **options: Any) -> Any:
            asked.extend(arguments[1])
            return await reread(*arguments, **options)

        monkeypatch.setattr(home.memory, "reread", reread_and_note)

        assert (await fire(home, 99)).purged == ["e2"]
        assert (await fire(home, 100)).purged == []
        assert asked == ["e2"]


@pytest.mark.slow
async def test_summarised_episodes_stay(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(*(said(f"e{n}", f"Hello number{n}", n / 100) for n in range(4)))
        summarising = NIGHTLY.model_copy(update={"stages": (Summarise(when_more_than=1),)})
        await fire(home, 9, summarising)

        assert (await fire(home, 99, summarising)).purged == []
        assert len(await ids(home)) == 4


async def test_duplicate_is_deleted_and_the_kept_episode_stays(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(
            said("e1", "Hello there"), said("e2", "Hello there", 1, metadata={"importance": 1})
        )
        await fire(home, 1)

        assert (await fire(home, 99)).purged == ["e1"]
        assert await ids(home) == ["e2"]
        assert (await fire(home, 100)).firing_ids == []


async def test_weight_neither_deletes_an_episode_nor_keeps_one_that_is_archived(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1, "weighing")
        stages = (Decay(action="reweight"),)
        weighing = NIGHTLY.model_copy(update={"id": "weighing", "stages": stages})
        await home.put(said("e1", "Hello there"), said("e2", "How are you?", 98))
        await fire(home, 3, weighing)
        await fire(home, 50, weighing)
        weighted = await ids(home)
        await fire(home, 60)

        report = await fire(home, 99)

        assert weighted == ["e1", "e2"]
        assert report.purged == ["e1"]
        weights = await home.facts.query(FactPattern(channel="weights"))
        assert [fact.id for fact in weights] == ["@weights/e1"]
        assert [(await fire(home, day, weighing)).purged for day in (99, 999)] == [[], []]
        assert await ids(home) == ["e2"]


@pytest.mark.parametrize("reads", [False, True])
async def test_episode_that_another_rule_has_not_read_stays(
    provider: Provider, reads: bool
) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1, "later")
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        if reads:
            await fire(home, 9, rule("later", when_filter="0"))

        report = await fire(home, 99)

        assert report.purged == (["e1"] if reads else [])


@pytest.mark.slow
async def test_episode_that_another_rule_archived_stays(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1, "other")
        await home.put(said("e1", "Hello there"))
        other = NIGHTLY.model_copy(update={"id": "other"})
        await fire(home, 9, other)

        assert (await fire(home, 99)).purged == []
        assert (await fire(home, 99, other)).purged == ["e1"]


async def test_episode_that_changed_meanwhile_stays(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(said("e1", "Hello there"), said("e2", "Hello you"), said("e3", "Hello"))
        mark = (await home.memory.newest()).seq
        versions = await home.memory.reread(NIGHTLY, ["e1", "e2"], upto=mark)
        await home.put(said("e1", "Hello again"))

        purged = await home.memory.purge({found.id: found.seq for found in versions})

        assert purged == ["e2"]
        assert await ids(home) == ["e1", "e3"]


async def test_preview_and_backfill_delete_nothing_in_a_dry_run(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        late = START + timedelta(days=99)

        await home.consolidator.preview(NIGHTLY, late)
        await home.consolidator.backfill(NIGHTLY, late, by="me", dry_run=True)

        assert await ids(home) == ["e1"]


async def test_another_users_episode_under_the_id_of_a_mark_stays(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        keep_for(home, 1)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute("DELETE FROM episodes")
        await home.put(said("e1", "Hello there", user="bob"))
        await fire(home, 98)

        report = await fire(home, 99)

        assert report.purged == []
        assert [found.id for found in await home.memory.recent("bob", limit=9)] == ["e1"]


@pytest.mark.slow
async def test_many_episodes_are_deleted_in_parts(provider: Provider) -> None:
    async with open_stores(provider) as home:
        keep_for(home, 1)
        await home.put(*(said(f"e{n:04}", f"Hello number {n}") for n in range(1_001)))
        await fire(home, 9)

        with capture_logs() as logs:
            report = await fire(home, 99)

        assert len(report.purged) == 1_001
        [line] = [line for line in logs if line["event"] == "episodes.purged"]
        names: Sequence[str] = line["episode_ids"]
        assert (line["count"], len(names), names[0]) == (1_001, 20, "e0000")
        assert await ids(home) == []


async def test_nothing_is_deleted_while_no_rule_is_in_force(provider: Provider) -> None:
    async with open_stores(provider) as home:
        home.consolidator.retention = Retention(DAY, list)
        await home.put(said("e1", "Hello there"))
        await fire(home, 9)

        assert (await fire(home, 99)).purged == []

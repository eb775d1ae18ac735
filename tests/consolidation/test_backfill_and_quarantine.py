"""Backfill, retry of quarantined episodes, and batches that await approval."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from slumberd.model.episode import Episode, microseconds
from slumberd.model.firing import DeletionImpact, Limits, Report
from slumberd.model.rule import ConsolidationRule
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

TEA = triple("tea", "alice", "drinks", "tea")
PORTO = triple("porto", "alice", "lives_in", "Porto", timestamp=at(1))


def only(predicate: str) -> ConsolidationRule:
    return rule("all", when_filter=f"predicate = '{predicate}'")


async def backfill(
    home: OpenStores, fired: ConsolidationRule | None = None, *, dry_run: bool = False
) -> Report:
    return await home.consolidator.backfill(
        fired or rule("all"), at(60), by="uid 7", dry_run=dry_run
    )


async def test_a_backfill_promotes_the_episodes_that_the_rule_selects_now(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        await home.fire(only("drinks"))

        report = await backfill(home, only("lives_in"))

        assert await home.objects() == {"porto": "Porto"}
        assert report.channels["facts"].added == report.channels["facts"].deleted == 1


@pytest.mark.slow
async def test_backfill_of_unchanged_episodes_leaves_only_its_own_row(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        await home.fire()
        before = await home.facts.reads.ledger_rows()

        report = await backfill(home)

        assert report.channels["facts"].noop == report.channels["facts"].read == 2
        assert await home.facts.reads.ledger_rows() == before + 1


async def test_a_backfill_records_its_requester(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(TEA)
        await home.fire()
        await backfill(home)

    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
        payloads = connection.execute("SELECT payload FROM slumberd_ledger WHERE what = 0")
        assert [b'"uid 7"' in payload for (payload,) in payloads] == [False, True]


async def test_backfill_restores_undone_facts(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        fired = await home.fire()
        await home.facts.ledger.undo(fired.firing_ids[0], at=START, by="me", dry_run=False)
        assert await home.objects() == {}

        await backfill(home)

        assert await home.objects() == {"tea": "tea", "porto": "Porto"}


async def test_undo_of_the_first_evaluation_withdraws_the_evaluations_of_a_later_backfill(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        fired = await home.fire()
        await backfill(home, only("lives_in"))
        await backfill(home)

        await home.facts.ledger.undo(fired.firing_ids[0], at=START, by="me", dry_run=False)

        assert await home.objects() == {}


async def test_undoing_a_backfill_restores_the_earlier_claim_of_each_episode(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        await home.fire(only("drinks"))
        filled = await backfill(home, only("lives_in"))

        await home.facts.ledger.undo(filled.firing_ids[0], at=START, by="me", dry_run=False)

        assert await home.objects() == {"tea": "tea"}


async def test_a_backfill_covers_only_its_range_below_the_watermark(
    provider: Provider,
) -> None:
    async with open_stores(provider, batch=2) as home:
        await home.put(*stream(6))
        await home.fire(only("nothing"))
        await home.put(triple("new", "s9", "is", 9, timestamp=at(3)))
        since, until = microseconds(at(2)), microseconds(at(4))

        await home.consolidator.backfill(rule("all"), START, by="me", between=(since, until))

        assert set(await home.objects()) == {"e2", "e3"}


async def test_a_dry_backfill_writes_nothing(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, PORTO)
        await home.fire(only("drinks"))
        before = await home.facts.reads.records()

        report = await backfill(home, dry_run=True)

        assert [record.fact_id for record in report.records if record.kind == "add"] == ["porto"]
        assert await home.facts.reads.records() == before


async def test_versions_keep_their_numbers_after_a_rewind(provider: Provider) -> None:
    async with open_stores(provider, batch=1) as home:
        await home.put(TEA, PORTO)
        await home.fire()
        mark = (await home.facts.watermarks.batch_ends("all"))[-1]
        await home.facts.watermarks.rewind("all", mark)
        await home.fire()
        rows = await home.facts.reads.ledger_rows()

        report = await backfill(home)

        assert report.channels["facts"].noop == 2
        assert await home.facts.reads.ledger_rows() == rows + 2  # the own rows of two batches


POISONED = triple("poisoned", "alice", "drinks", "ink", metadata={"intent": "shout"})


async def test_retry_leaves_unreadable_episodes_in_quarantine(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(TEA, POISONED)
        await home.fire()

        await home.consolidator.retry(rule("all"), at(60), by="me")

        assert [entry["episode_id"] for entry in await home.facts.reads.quarantine()] == [
            "poisoned"
        ]


async def test_retry_resolves_readable_episodes_as_if_they_had_come_in_order(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(triple("older", "alice", "drinks", "milk"), TEA)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
            connection.execute(
                "UPDATE episodes SET scope_key = '/user/eve/session/s1/agent/rag/',"
                " timestamp = ? WHERE id = 'older'",
                (at(-1).isoformat(),),
            )
            connection.commit()
        await home.fire()
        assert [entry["episode_id"] for entry in await home.facts.reads.quarantine()] == ["older"]
        home.memory._mismatch = "trust_episode"

        report = await home.consolidator.retry(rule("all"), at(60), by="me", eids=["older"])

        assert report.channels["facts"].noop == 1  # stale, as in the order of the log
        assert await home.facts.reads.quarantine() == []
        assert await home.objects() == {"tea": "tea"}


async def test_row_that_leaves_quarantine_stays_in_the_ledger(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(POISONED)
        await home.fire()

        async def drop(rules: list[str] | None, eids: list[str] | None, *, dry_run: bool) -> int:
            return await home.facts.ledger.drop_quarantined(
                rules, eids, at=START, by="me", dry_run=dry_run
            )

        assert await drop(None, ["other"], dry_run=False) == 0
        assert await drop(None, None, dry_run=True) == 1
        assert len(await home.facts.reads.quarantine()) == 1

        assert await drop(["all"], None, dry_run=False) == 1

        assert await home.facts.reads.quarantine() == []
        assert "quarantine" in {record.kind for record in await home.facts.reads.records()}


def deletes(count: int) -> list[Episode]:
    return [
        triple(f"d{n}", f"s{n}", "is", n, timestamp=at(100 + n), metadata={"intent": "delete"})
        for n in range(count)
    ]


async def hold_batch(home: OpenStores) -> Report:
    """Consolidate a stream, then hold a batch that would delete three facts of it."""
    await home.put(*stream(6))
    await home.fire()
    await home.put(*deletes(3), triple("late", "s9", "is", 9, timestamp=at(200)))
    return await home.fire()


AT_MOST_TWO = Limits(max_deletes=2)


async def test_batch_over_a_deletion_limit_is_held_as_a_whole(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        report = await hold_batch(home)

        assert report.held is not None
        assert "would delete 3 facts; the limit is 2 (max_deletes)" in report.held.problem
        assert report.firing_ids == []
        assert len(await home.objects()) == 6
        assert (await home.fire()).held == report.held  # a second firing holds no second batch
        kinds = [record.kind for record in await home.facts.reads.records(after=7)]
        assert kinds == ["firing"]


async def test_approved_batch_is_committed_and_its_rule_continues_after_it(
    provider: Provider,
) -> None:
    async with open_stores(provider, batch=3, limits=AT_MOST_TWO) as home:
        report = await hold_batch(home)
        assert report.held is not None

        await home.facts.ledger.decide(report.held, approve=True, at=START, by="me")
        await home.fire()

        assert set(await home.objects()) == {"e3", "e4", "e5", "late"}
        assert await home.facts.watermarks.held() == {}


@pytest.mark.slow
async def test_approved_batch_is_committed_whole_when_batches_are_smaller_now(
    provider: Provider,
) -> None:
    async with open_stores(provider, batch=3, limits=AT_MOST_TWO) as home:
        report = await hold_batch(home)
        assert report.held is not None
        await home.facts.ledger.decide(report.held, approve=True, at=START, by="me")

    async with open_stores(provider, batch=1, limits=AT_MOST_TWO) as home:
        await home.fire()

        assert set(await home.objects()) == {"e3", "e4", "e5", "late"}


async def test_a_rejected_batch_is_skipped(provider: Provider) -> None:
    async with open_stores(provider, batch=3, limits=AT_MOST_TWO) as home:
        report = await hold_batch(home)
        assert report.held is not None

        await home.facts.ledger.decide(report.held, approve=False, at=START, by="me")
        await home.fire()

        assert set(await home.objects()) == {"e0", "e1", "e2", "e3", "e4", "e5", "late"}
        report = await backfill(home)
        assert report.rejected == 3
        assert set(await home.objects()) == {"e0", "e1", "e2", "e3", "e4", "e5", "late"}


async def test_the_limits_of_a_rule_override_the_general_limits(provider: Provider) -> None:
    generous = rule("all", limits={"max_deletes": 3})
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire(generous)
        await home.put(*deletes(3))

        report = await home.fire(generous)

        assert report.held is None
        assert len(await home.objects()) == 3


@pytest.mark.slow
async def test_a_fact_that_a_batch_asserts_again_and_then_deletes_counts_as_deleted(
    provider: Provider,
) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=0)) as home:
        await home.put(*stream(1))
        await home.fire(rule("earlier"))
        await home.put(*deletes(1))

        report = await home.fire()

        assert report.held is not None, "both rules promoted it, and it was current before"
        assert list(await home.objects()) == ["e0"]


@pytest.mark.parametrize("emptied", [False, True], ids=["replaced", "emptied"])
async def test_a_fact_counts_as_deleted_only_when_no_other_fact_replaces_it(
    provider: Provider, *, emptied: bool
) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=0)) as home:
        await home.put(triple("e", "alice", "lives_in", "Porto"))
        await home.fire()
        moves = [triple(f"n{n}", "alice", "lives_in", n, timestamp=at(n + 1)) for n in range(3)]
        await home.put(*moves)
        if emptied:
            deletion = {"intent": "delete"}
            await home.put(
                triple("x", "alice", "lives_in", None, timestamp=at(9), metadata=deletion)
            )

        report = await home.fire()

        assert (report.held is not None) == emptied
        assert list(await home.objects()) == (["e"] if emptied else ["n2"])


@pytest.mark.parametrize(("most", "is_held"), [(1, False), (0, True)])
async def test_replaced_fact_does_not_count_beside_a_deleted_one(
    provider: Provider, most: int, *, is_held: bool
) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=most)) as home:
        await home.put(triple("old", "alice", "lives_in", "Porto"), *stream(1))
        await home.fire()
        await home.put(triple("new", "alice", "lives_in", "Lima", timestamp=at(9)), *deletes(1))

        report = await home.fire()

        assert (report.held is not None) == is_held
        assert sorted(await home.objects()) == (["e0", "old"] if is_held else ["new"])


async def test_first_backlog_is_not_held(provider: Provider) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=0, max_delete_fraction=0)) as home:
        await home.put(*stream(6), *deletes(6))

        report = await home.fire()

        assert report.held is None


@pytest.mark.parametrize(
    ("limits", "lost", "current", "problem"),
    [
        pytest.param(Limits(5, None), 5, 5, "", id="as many as allowed"),
        pytest.param(
            Limits(5, None), 6, 900, "6 facts; the limit is 5 (max_deletes)", id="more than allowed"
        ),
        pytest.param(Limits(None, 0.5), 100, 100, "", id="100 facts"),
        pytest.param(Limits(None, 0.5), 101, 101, "101 of 101 facts (100 %)", id="101 facts"),
        pytest.param(Limits(0, None), 0, 0, "", id="no deletion"),
        pytest.param(Limits(None, 0.5), 150, 300, "", id="the part that is allowed"),
        pytest.param(
            Limits(None, 0.5), 151, 300, "(50.33 %); the limit is 50 %", id="a larger part"
        ),
        pytest.param(
            Limits(None, 0.5),
            399,
            516,
            "this batch would delete 399 of 516 facts (77 %); the limit is 50 % "
            "(max_delete_fraction)",
            id="most of them",
        ),
        pytest.param(Limits(), 10**6, 1, "", id="no limits"),
    ],
)
def test_limits_report_which_of_them_a_batch_exceeds(
    limits: Limits, lost: int, current: int, problem: str
) -> None:
    assert problem in limits.describe_excess(DeletionImpact(lost, lost), current)
    assert bool(problem) == bool(limits.describe_excess(DeletionImpact(lost, lost), current))


def test_added_facts_count_against_deleted_ones() -> None:
    assert Limits(None, 0.5).describe_excess(DeletionImpact(lost=300, fewer=10), 300) == ""


@pytest.mark.slow
async def test_batch_that_replaces_facts_by_others_is_not_held(provider: Provider) -> None:
    async with open_stores(provider, limits=Limits(max_delete_fraction=0.5)) as home:
        await home.put(*stream(200))
        await home.fire()
        others = [triple(f"n{n}", f"new{n}", "is", n, timestamp=at(n + 500)) for n in range(150)]
        await home.put(*deletes(200), *others)

        report = await home.fire()

        assert report.held is None, "150 facts are current after it, as against 200 before"
        await home.put(*(_deletion_of(episode) for episode in others))
        assert (await home.fire()).held is not None


def _deletion_of(episode: Episode) -> Episode:
    metadata = {**episode.metadata, "intent": "delete"}
    later = episode.timestamp + timedelta(hours=1)
    return episode.model_copy(
        update={"id": f"-{episode.id}", "metadata": metadata, "timestamp": later}
    )

"""Deletion limits hold for each command of a rule, and count over all of its batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.resolution import ResolvedEffect, losses_after
from slumberd.model.fact import FactPattern
from slumberd.model.firing import NO_LOSSES, DeletionImpact, HeldScope, Limits, Losses
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import Dedup
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.firing import BackfillForm, DecideForm, FireForm
from slumberd.operations.quarantine import QuarantineForm
from slumberd.storage.engine import Session
from tests.support.builders import at, rule, triple
from tests.support.builders import episode as built
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.providers import NewStores, Provider

ME = Caller.of_user(7, 7)
AT_MOST_TWO = Limits(max_deletes=2)
NONE_LEFT = "object < 0"
ALL = {f"e{n}" for n in range(6)}

CUTS = pytest.mark.parametrize("batch", [1, 4, 100])


def deletes(count: int) -> list[Any]:
    return [
        triple(f"d{n}", f"s{n}", "is", n, timestamp=at(100 + n), metadata={"intent": "delete"})
        for n in range(count)
    ]


def narrowed(when: str = NONE_LEFT) -> ConsolidationRule:
    return rule("all", when_filter=when) if when else rule("all")


def operations(home: OpenStores, *rules: ConsolidationRule) -> Operations:
    return home.operations(*(rules or (narrowed(),)), clock=FakeClock(at(500)))


async def backfill(
    home: OpenStores, when: str = NONE_LEFT, *, dry_run: bool = False, **request: Any
) -> dict[str, Any]:
    form = BackfillForm(rule="all", dry_run=dry_run, **request)
    (report,) = (await operations(home, narrowed(when)).backfill(form, ME))["reports"]
    return dict(report)


async def decide(
    home: OpenStores, firing: str, when: str = NONE_LEFT, *, approve: bool, dry_run: bool = False
) -> list[dict[str, Any]]:
    form = DecideForm(firing=firing, approve=approve, dry_run=dry_run)
    reports = (await operations(home, narrowed(when)).decide(form, ME))["reports"]
    return [*reports]


@pytest.mark.integration
@CUTS
async def test_a_backfill_over_a_limit_changes_nothing_and_waits(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()

        report = await backfill(home)

        problem = "this backfill would delete 6 facts; the limit is 2 (max_deletes)"
        assert report["held_batch"]["problem"] == problem
        assert report["firing_ids"] == []
        assert set(await home.objects()) == ALL
        assert (await backfill(home))["held_batch"] == report["held_batch"]
        (waiting,) = (await home.facts.watermarks.held()).values()
        assert waiting.rule_hash == narrowed().content_hash
        assert waiting.scope == HeldScope("backfill", upto=6)
        assert waiting.impact == DeletionImpact(6, 6)
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
async def test_a_dry_run_of_a_backfill_over_a_limit_says_so(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()

        report = await backfill(home, dry_run=True)

        assert "would delete 6 facts" in report["held_batch"]["problem"]
        assert report["held_batch"]["firing_id"] == ""
        assert report["channels"]["facts"]["deleted"] == 6
        assert await home.facts.watermarks.held() == {}


@pytest.mark.integration
async def test_a_dry_run_of_a_firing_over_a_limit_says_so(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(*deletes(3))

        form = FireForm(rules=["all"], dry_run=True)
        (report,) = (await operations(home, rule("all")).fire(form, ME))["reports"]

        assert "would delete 3 facts" in report["held_batch"]["problem"]


@pytest.mark.integration
async def test_firings_go_on_while_a_backfill_waits(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await backfill(home)
        await home.put(*deletes(3), triple("late", "s9", "is", 9, timestamp=at(300)))

        held = await home.fire()
        assert held.held is not None
        assert len(await home.facts.watermarks.held()) == 2

        await decide(home, held.held.firing_id, "", approve=False)
        await home.put(triple("later", "s8", "is", 8, timestamp=at(400)))
        await home.fire()

        assert set(await home.objects()) == ALL | {"later"}
        assert len(await home.facts.watermarks.held()) == 1
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
@CUTS
async def test_an_approved_backfill_is_applied(provider: Provider, batch: int) -> None:
    async with open_stores(provider, batch=batch, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        firing = (await backfill(home))["held_batch"]["firing_id"]

        (preview,) = await decide(home, firing, approve=True, dry_run=True)
        (report,) = await decide(home, firing, approve=True)

        assert preview["channels"]["facts"]["deleted"] == 6
        assert "held_batch" not in report
        assert await home.objects() == {}
        assert await home.facts.watermarks.held() == {}
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
async def test_an_approval_of_a_changed_rule_asks_again(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        firing = (await backfill(home))["held_batch"]["firing_id"]

        (report,) = await decide(home, firing, "object > 0", approve=True)

        again = report["held_batch"]
        assert again["firing_id"] != firing
        assert again["problem"].endswith(f"the rule changed since {firing}")
        assert set(await home.objects()) == ALL
        (report,) = await decide(home, again["firing_id"], "object > 0", approve=True)
        assert set(await home.objects()) == ALL - {"e0"}


@pytest.mark.integration
async def test_an_approval_asks_again_when_more_would_go(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.facts.unpin("e0")
        firing = (await backfill(home))["held_batch"]["firing_id"]
        await home.facts.ledger.undo(
            (await home.facts.reads.records())[-2].firing_id, at=at(1), by="", dry_run=False
        )
        assert set(await home.objects()) == ALL

        (report,) = await decide(home, firing, approve=True)

        assert "deletes more" in report["held_batch"]["problem"]
        assert set(await home.objects()) == ALL


@pytest.mark.integration
async def test_an_approval_of_a_firing_asks_again_when_its_rule_changed(
    provider: Provider,
) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(*deletes(3))
        held = (await home.fire()).held
        assert held is not None

        (report,) = await decide(home, held.firing_id, "object >= 0", approve=True)

        again = report["held_batch"]["firing_id"]
        assert again != held.firing_id
        assert set(await home.objects()) == ALL
        (report,) = await decide(home, again, "object >= 0", approve=True)
        assert set(await home.objects()) == {"e3", "e4", "e5"}


@pytest.mark.integration
@CUTS
async def test_a_rejected_backfill_holds_for_its_rule_whatever_command_comes(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        firing = (await backfill(home))["held_batch"]["firing_id"]

        await decide(home, firing, approve=False)

        assert (await backfill(home))["rejected"] == 6
        part = await backfill(home, between=[0, 2**61])
        assert (part["rejected"], part["firing_ids"]) == (6, [])
        assert set(await home.objects()) == ALL
        assert await home.facts.watermarks.held() == {}
        changed = await backfill(home, "object > 1")
        assert "rejected" not in changed
        assert set(await home.objects()) == ALL - {"e0", "e1"}
        assert (await home.facts.verify())[2] is None


@pytest.mark.integration
async def test_a_rejected_firing_holds_against_parts_of_a_backfill(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(*deletes(3))
        held = (await home.fire()).held
        assert held is not None
        await decide(home, held.firing_id, "", approve=False)

        report = await backfill(home, "")

        assert report["rejected"] == 3
        assert set(await home.objects()) == ALL


@pytest.mark.integration
@CUTS
async def test_a_firing_counts_the_deletions_of_all_its_batches(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(triple("new", "s9", "is", 9, timestamp=at(50)), *deletes(3))

        report = await home.fire()

        assert report.held is not None
        assert "would delete 3 facts" in report.held.problem
        assert set(await home.objects()) - {"new"} == ALL
        await decide(home, report.held.firing_id, "", approve=True)
        assert set(await home.objects()) == {"e3", "e4", "e5", "new"}


@pytest.mark.integration
@CUTS
async def test_facts_that_a_command_added_itself_do_not_count(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch, limits=Limits(max_deletes=0)) as home:
        await home.put(*stream(6), *deletes(6))

        assert (await home.fire()).held is None

        await home.put(triple("n", "s1", "is", "new", timestamp=at(200)), *deletes(0))
        assert (await home.fire()).held is None


@pytest.mark.integration
async def test_a_retry_over_a_limit_waits(provider: Provider) -> None:
    async with open_stores(provider, limits=AT_MOST_TWO) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(*deletes(3))
        home.memory._mismatch = "quarantine"
        await break_scopes(provider, home)
        await home.fire()
        assert len(await home.facts.reads.quarantine()) == 3
        home.memory._mismatch = "trust_episode"
        form = QuarantineForm(rules=["all"])

        (report,) = (await operations(home, rule("all")).retry(form, ME))["reports"]

        assert "this retry would delete 3 facts" in report["held_batch"]["problem"]
        assert set(await home.objects()) == ALL
        (report,) = await decide(home, report["held_batch"]["firing_id"], "", approve=True)
        assert set(await home.objects()) == {"e3", "e4", "e5"}
        assert await home.facts.watermarks.held() == {}


async def break_scopes(provider: Provider, home: OpenStores) -> None:
    """Give the deletions another scope key than their content has, as another program may."""

    def work(session: Session) -> None:
        found = session.rows("erased_scopes.episodes_of", {"eids": ["d0", "d1", "d2"]})
        rows = [(eid, "/user/eve/session/s1/agent/rag/", *rest) for _, eid, _, *rest in found]
        numbers = [row[0] for row in found]
        session.do("erased_scopes.drop_episodes", {"rowids": numbers})
        session.insert("episodes.insert", rows)

    await provider.episode_engine().write(work)


# What a command deletes does not depend on how it is cut into batches.

NAMES = st.sampled_from("abcdef")
EFFECTS = st.lists(
    st.tuples(st.sampled_from(["add", "update", "delete"]), NAMES, st.sets(NAMES, max_size=2)),
    max_size=12,
)


def entries_of(story: list[tuple[Any, str, set[str]]], old: set[str]) -> list[ResolvedEffect]:
    """Return effects that are possible: each removes only what is current."""
    current = set(old)
    entries = []
    for effect, name, removed in story:
        gone = (removed | {name} if effect != "add" else {name}) & current
        asserts = effect != "delete"
        if asserts or gone:
            replaces = tuple(sorted(gone))
            entries.append(ResolvedEffect(1, "claim", effect, None, name, "k", replaces))
        current = (current - gone) | ({name} if asserts else set())
    return entries


@pytest.mark.unit
@given(story=EFFECTS, old=st.sets(NAMES), cuts=st.sets(st.integers(1, 11)))
def test_losses_do_not_depend_on_the_batches(
    story: list[tuple[Any, str, set[str]]], old: set[str], cuts: set[int]
) -> None:
    entries = entries_of(story, old)
    whole = losses_after(NO_LOSSES, entries, old.__contains__)

    parts: Losses = NO_LOSSES
    bounds = [0, *sorted(cut for cut in cuts if cut < len(entries)), len(entries)]
    for first, last in pairwise(bounds):
        parts = losses_after(parts, entries[first:last], old.__contains__)

    assert parts == whole
    current = set(old)
    for entry in entries:
        current -= set(entry.replaces)
        current |= {entry.fact_id} if entry.effect != "delete" else set()
    assert whole.fewer == len(old) - len(current)
    assert 0 <= whole.impact.lost <= len(old)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        (HeldScope(after=2, upto=4), [3, 4]),
        (HeldScope("backfill", upto=4), [1, 2, 3, 4]),
        (HeldScope("backfill", upto=4, between=(20, 40)), [2, 3]),
        (HeldScope("retry", upto=9, versions=[1, 5]), [1, 5]),
    ],
)
def test_a_rejection_covers_what_its_command_would_evaluate(
    scope: HeldScope, covered: list[int]
) -> None:
    assert [seq for seq in range(1, 7) if scope.covers(seq, 10 * seq)] == covered


async def test_limit_of_deletions_does_not_count_marks_as_facts(new_stores: NewStores) -> None:
    stages = (Dedup(method="exact"),)
    staged = rule("staged", when_filter="predicate IS NULL", stages=stages, then_emits=[])
    with new_stores() as stores:
        async with open_stores(stores, limits=Limits(None, 0.5)) as home:
            await home.put(*stream(150))
            await home.put(*(built(f"n{n}", content="the same words") for n in range(300)))
            stating = rule("stating", when_filter="predicate IS NOT NULL")
            await home.fire(stating)
            await home.fire(staged)
            assert len(await home.facts.query(FactPattern(channel="marks", limit=999))) == 299
            await home.put(*deletes(120))
            report = await home.fire(stating)

    assert report.held is not None
    assert "120 of 150 facts" in report.held.problem

"""A held back episode leaves a row without a claim, and a read makes its rule evaluate it again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import ExtraMissingError, FiringTimeoutError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations.reads.explanations import would_change
from tests.support.builders import START, at, rule, triple
from tests.support.embedders import FakeEmbedder
from tests.support.fakes import FakeClock, without_firings
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider, path_of
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

GATED = rule("gated", salience={"min": 0.03})
"""Promotes an episode that was read once lately, and no episode that was never read."""

PLAIN = rule("plain")
NOTES = rule("notes", salience={"min": 0.03}, then_emits=["notes"])

DAY = 86_400
_EXAMPLES = amount(8, full=25)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def home(provider: Provider, clock: FakeClock) -> AsyncIterator[OpenStores]:
    async with open_stores(provider, clock=clock) as found:
        yield found


async def read(home: OpenStores, times: int = 1, user: str = "alice") -> None:
    """Read all episodes of a user, and write the accesses."""
    for _ in range(times):
        await home.memory.recent(user, limit=100)
    await home.memory.close()


async def read_rows(home: OpenStores) -> list[tuple[str, str, str]]:
    """Return kind, fact id and reason of every row, without the rows of firings."""
    rows = await home.facts.reads.records(limit=10_000)
    return [(row.kind, row.fact_id, row.reason) for row in rows if row.kind != "firing"]


def event_numbers(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "facts.db")) as connection:
        found = connection.execute("SELECT what FROM slumberd_ledger ORDER BY seq")
        return [what for (what,) in found]


def facts_in(folder: Path, like: str = "%") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "facts.db")) as connection:
        sql = "SELECT * FROM facts WHERE fact_id LIKE ? ORDER BY fact_id"
        return connection.execute(sql, (like,)).fetchall()


TEA = triple("e1", "ada", "likes", "tea")


async def test_episode_below_the_minimum_leaves_a_row_with_its_reason_and_no_fact(
    home: OpenStores,
) -> None:
    await home.put(TEA)

    report = await home.fire(GATED)

    assert report.channels["facts"] == Counts(read=1, noop=1)
    assert await read_rows(home) == [("noop", "e1", "below_salience")]
    assert await home.objects() == {}
    assert (await home.fire(GATED)).firing_ids == []


async def test_episode_that_passes_the_gate_is_promoted(home: OpenStores, tmp_path: Path) -> None:
    await home.put(TEA)

    await home.fire(rule("gated", salience={"min": 0.019}))

    assert await read_rows(home) == [("add", "e1", "")]


async def test_held_back_episode_is_evaluated_again_when_it_is_read(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)

    await read(home)
    report = await home.fire(GATED)

    assert report.channels["facts"] == Counts(read=1, added=1)
    assert await home.objects() == {"e1": "tea"}
    [fact] = await home.facts.query(FactPattern())
    assert fact.lineage[0]["source_episode_ids"] == ["e1"]


async def test_episode_that_was_not_read_enough_is_held_back_again(
    home: OpenStores, clock: FakeClock
) -> None:
    often = rule("gated", salience={"min": 0.05})
    await home.put(TEA)
    await home.fire(often)

    for _ in range(2):
        await read(home)
        await home.fire(often)

    assert await read_rows(home) == [
        ("noop", "e1", "below_salience"),
        ("noop", "e1", "below_salience"),
        ("add", "e1", ""),
    ]


async def test_read_of_an_episode_that_is_not_held_back_logs_nothing(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(PLAIN)
    before = await home.memory.newest()

    await read(home, 3)

    assert await home.memory.newest() == before
    assert await home.memory.accesses(["e1"]) == {"e1": (3, 1_767_268_800_000_000)}


async def test_reads_of_an_episode_count_as_one_pending_row(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)
    mark = await home.facts.watermarks.position("gated")
    assert mark is not None

    await read(home, 2)

    assert await home.memory.pending(mark.seq, at_most=9) == 1


async def test_many_reads_before_a_firing_cause_one_evaluation(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(rule("gated", salience={"min": 0.19}))

    await read(home)
    await read(home)
    await home.fire(rule("gated", salience={"min": 0.19}))

    assert len(await read_rows(home)) == 2


async def test_promoted_fact_stays_when_its_salience_falls(
    home: OpenStores, clock: FakeClock
) -> None:
    await home.put(TEA)
    await read(home)
    await home.fire(GATED)
    clock.advance(400 * DAY)

    await home.put(triple("e1", "ada", "likes", "cake"))
    await home.consolidator.fire(FireRequest(GATED, "manual", clock.now()))
    await home.consolidator.backfill(GATED, clock.now(), by="me")
    await home.consolidator.backfill(rule("gated", salience={"min": 0.19}), clock.now(), by="me")

    assert await home.objects() == {"e1": "cake"}
    assert [kind for kind, _, _ in await read_rows(home)] == ["add", "update"]


async def test_edit_of_a_held_back_episode_is_evaluated(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)
    await read(home)
    await home.put(triple("e1", "ada", "likes", "cake"))

    report = await home.fire(GATED)

    assert report.channels["facts"] == Counts(read=1, added=1)
    assert await home.objects() == {"e1": "cake"}


async def test_episode_that_leaves_the_filter_is_withdrawn_at_any_salience(
    home: OpenStores,
) -> None:
    likes = rule("gated", salience={"min": 0.03}, when_filter="predicate = 'likes'")
    await home.put(TEA)
    await read(home)
    await home.fire(likes)

    await home.put(triple("e1", "ada", "owns", "tea"))
    await home.fire(likes)

    assert await home.objects() == {}


async def test_unreadable_episode_is_quarantined_and_not_held_back(home: OpenStores) -> None:
    await home.put(triple("e1", "ada", "likes", "tea", metadata={"intent": "remember"}))

    await home.fire(GATED)

    assert await read_rows(home) == [("quarantine", "e1", "intent_unknown")]


async def test_a_read_does_not_restore_an_undone_fact(home: OpenStores) -> None:
    """The rule that held the episode back evaluates it after the read; the undone rule does not."""
    await home.put(TEA)
    [firing] = (await home.fire(PLAIN)).firing_ids
    await home.fire(NOTES)
    await home.facts.ledger.undo(firing, at=START, by="me", dry_run=False)

    await read(home)
    plain, notes = await home.fire(PLAIN), await home.fire(NOTES)

    assert plain.channels["facts"] == Counts()
    assert notes.channels["notes"] == Counts(read=1, added=1)
    assert await home.objects() == {"@notes/e1": "tea"}


async def test_a_read_does_not_restore_a_fact_that_passed_the_gate_and_was_undone(
    home: OpenStores,
) -> None:
    other = rule("other", salience={"min": 0.1}, then_emits=["notes"])
    await home.put(TEA)
    await home.fire(GATED)
    await home.fire(other)
    await read(home)
    [firing] = (await home.fire(GATED)).firing_ids
    await home.fire(other)
    await home.facts.ledger.undo(firing, at=START, by="me", dry_run=False)

    await read(home)
    await home.fire(GATED)

    assert await home.objects() == {}


async def test_a_read_withdraws_no_fact_of_a_rule_whose_filter_was_edited(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(PLAIN)
    await home.fire(NOTES)

    await read(home)
    await home.fire(rule("plain", when_filter="predicate = 'owns'"))

    assert await home.objects() == {"e1": "tea"}


@ON_FILES
async def test_a_read_changes_no_byte_of_the_facts_of_another_rule(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(TEA)
    await home.fire(PLAIN)
    await home.fire(NOTES)
    before = facts_in(tmp_path)

    await read(home)
    await home.consolidator.fire(FireRequest(PLAIN, "manual", at(DAY)))
    await home.consolidator.fire(FireRequest(NOTES, "manual", at(DAY)))

    assert facts_in(tmp_path, "e1") == before


async def test_a_fact_names_both_rules_after_the_second_rule_stops_holding_it_back(
    home: OpenStores,
) -> None:
    await home.put(TEA)
    await home.fire(PLAIN)
    await home.fire(GATED)

    await read(home)
    await home.fire(GATED)

    [fact] = await home.facts.query(FactPattern())
    assert [entry["rule_id"] for entry in fact.lineage] == ["gated", "plain"]


async def test_later_rule_evaluates_an_episode_that_was_read_as_new(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(NOTES)
    await read(home)

    report = await home.fire(PLAIN)

    assert report.channels["facts"] == Counts(read=1, added=1)


@pytest.mark.parametrize("batch", [1, 2])
async def test_later_rule_evaluates_an_episode_once_at_any_batch_size(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch, clock=FakeClock()) as home:
        await home.put(TEA, triple("e2", "ada", "owns", "a cup"))
        await home.fire(NOTES)
        await read(home)
        await home.put(triple("e3", "ada", "reads", "Pessoa"))

        report = await home.fire(PLAIN)

        assert await home.objects() == {"e1": "tea", "e2": "a cup", "e3": "Pessoa"}
        assert report.channels["facts"].added == 3
        assert report.channels["facts"].noop == 0


async def test_a_rule_that_starts_now_ignores_a_read_of_an_earlier_episode(
    home: OpenStores,
) -> None:
    starts_now = rule("late", start="now")
    await home.put(TEA)
    await home.fire(NOTES)
    await home.fire(starts_now)

    await read(home)
    report = await home.fire(starts_now)

    assert report.channels["facts"] == Counts()


async def test_rule_whose_gate_was_removed_promotes_a_held_back_episode_after_a_read(
    home: OpenStores,
) -> None:
    await home.put(TEA)
    await home.fire(GATED)

    await read(home)
    await home.fire(rule("gated"))

    assert await home.objects() == {"e1": "tea"}


async def test_a_backfill_of_held_back_episodes_adds_no_row(home: OpenStores) -> None:
    await home.put(TEA, triple("e2", "ada", "owns", "a cup"))
    await home.fire(GATED)

    report = await home.consolidator.backfill(GATED, START, by="me")

    assert report.channels["facts"] == Counts(read=2, noop=2)
    assert len(await read_rows(home)) == 2


async def test_backfill_promotes_held_back_episodes_that_pass_now(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)

    await home.consolidator.backfill(rule("gated"), START, by="me")

    assert await home.objects() == {"e1": "tea"}


async def test_repaired_episode_that_is_held_back_leaves_quarantine(home: OpenStores) -> None:
    await home.put(triple("e1", "ada", "likes", "tea", metadata={"intent": "remember"}))
    await home.fire(GATED)

    await home.put(TEA)
    await home.fire(GATED)

    assert await home.facts.reads.quarantine() == []
    assert (await read_rows(home))[-1] == ("noop", "e1", "below_salience")


async def test_an_episode_read_between_its_evaluation_and_the_commit_is_logged_at_once(
    home: OpenStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.put(TEA)
    log_again = home.memory.log_again_after_read

    async def read_first(seen: dict[str, int]) -> None:
        await read(home)
        await log_again(seen)

    monkeypatch.setattr(home.memory, "log_again_after_read", read_first)
    await home.fire(GATED)

    await home.fire(GATED)

    assert await home.objects() == {"e1": "tea"}


async def test_a_firing_that_fails_before_its_commit_loses_no_reevaluation(
    home: OpenStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.put(TEA)
    with monkeypatch.context() as failing:
        failing.setattr(home.facts, "apply_deltas", _fail)
        with pytest.raises(OSError, match="no space"):
            await home.fire(GATED)

    await home.fire(rule("gated", salience={"min": 0.19}))
    await read(home)
    await home.fire(GATED)

    assert await home.objects() == {"e1": "tea"}


def _fail(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


async def test_undo_of_a_firing_ignores_its_held_back_episodes(home: OpenStores) -> None:
    await home.put(TEA)
    [firing] = (await home.fire(GATED)).firing_ids

    outcome = await home.facts.ledger.undo(firing, at=START, by="me", dry_run=False)
    await read(home)
    await home.fire(GATED)

    assert [record.kind for record in outcome.records] == ["firing"]
    assert await home.objects() == {"e1": "tea"}


@ON_FILES
async def test_rehearsal_reports_held_back_episodes_and_writes_nothing(home: OpenStores) -> None:
    await home.put(TEA)
    await home.memory.newest()
    before = dump(home)

    report = await home.consolidator.preview(GATED, START)

    assert report.channels["facts"] == Counts(read=1, noop=1)
    assert dump(home) == before


def dump(home: OpenStores) -> list[str]:
    with closing(sqlite3.connect(path_of(home.memory))) as connection:
        return [*connection.iterdump()]


@ON_FILES
async def test_a_ledger_with_held_back_episodes_verifies_and_replays(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(TEA, triple("e2", "ada", "likes", "cake", timestamp=at(1)))
    await home.fire(PLAIN)
    await home.fire(NOTES)
    await read(home)
    await home.fire(NOTES)
    await home.put(triple("e3", "ada", "likes", "rye", timestamp=at(2)))
    [firing] = (await home.fire(NOTES)).firing_ids
    await home.facts.ledger.undo(firing, at=START, by="me", dry_run=False)

    _, _, broken = await home.facts.verify()
    replay = await home.facts.replay(tmp_path / "again.db")

    assert broken is None
    assert (replay.differing, replay.unclear) == (0, 0)
    assert event_numbers(tmp_path).count(8) == 3


async def test_the_row_of_a_held_back_episode_records_its_salience_and_the_minimum(
    home: OpenStores,
) -> None:
    await home.put(TEA)
    await home.fire(GATED)

    _, lines = await home.facts.reads.export(after=1, limit=9)

    row = orjson.loads(lines[0])
    assert (row["what"], row["kind"], row["reason"]) == ("gated", "noop", "below_salience")
    assert row["payload"]["min"] == 0.03
    assert row["payload"]["salience"] == pytest.approx(0.019672, abs=1e-6)
    assert (row["key_id"], row["replaces"]) == (None, None)


async def test_repeated_log_lines_equal_the_first_lines(home: OpenStores) -> None:
    await home.put(triple("e1", "ada", "likes", "tea", metadata={"confidence": 0.5}))
    await home.fire(GATED)

    assert home.log.lines == without_firings(await home.facts.reads.records())


async def decision(home: OpenStores, fired: ConsolidationRule) -> Decision:
    versions = {
        version.id: version for version in await home.memory.reread(fired, ["e1"], upto=2**62)
    }
    [found] = await home.facts.reads.decisions_of("e1", [fired], {fired.id: versions["e1"]})
    return found


async def test_why_not_explains_the_gate_and_what_would_change_its_result(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)

    found = await decision(home, GATED)

    assert (found.outcome, found.reason, found.is_current) == ("noop", "below_salience", False)
    assert would_change(found, GATED) == (
        "its salience was 0.0197, and gated requires 0.03; the rule scores it again when it is read"
    )


async def test_why_not_reports_the_fact_once_its_episode_was_read(home: OpenStores) -> None:
    await home.put(TEA)
    await home.fire(GATED)
    await read(home)
    await home.fire(GATED)

    found = await decision(home, GATED)

    assert (found.outcome, found.is_current) == ("add", True)


async def test_erased_scope_leaves_neither_reads_nor_scores(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(TEA, triple("b1", "bob", "likes", "figs", user="bob"))
    await home.fire(GATED)
    await read(home)
    await read(home, user="bob")

    scope = ScopeFilter.of("alice", None, None)
    counts = await home.memory.forget(scope, [], moment=2**51)
    done = await home.facts.erasures.forget(
        scope, ["e1"], moment=2**51, at=START, by="me", dry_run=False
    )

    assert counts["slumberd_accesses"] == 1
    assert done.counts["slumberd_ledger"] == 1
    assert [*await home.memory.accesses(["e1", "b1"])] == ["b1"]
    assert await read_rows(home) == [
        ("noop", "b1", "below_salience"),
        ("noop", "", "below_salience"),
    ]
    assert (await home.facts.verify())[2] is None
    assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_read_of_an_erased_episode_leaves_no_row(home: OpenStores) -> None:
    """The scope is erased from facts.db, and not yet from memory.db."""
    await home.put(TEA, triple("b1", "bob", "likes", "figs", user="bob"))
    await home.fire(PLAIN)
    await home.fire(NOTES)
    scope = ScopeFilter.of("alice", None, None)
    await home.facts.erasures.forget(scope, [], moment=2**51, at=START, by="me", dry_run=False)
    before = len(await read_rows(home))

    await read(home)
    reports = await home.fire(PLAIN), await home.fire(NOTES)

    assert [report.channels for report in reports] == [{"facts": Counts()}, {"notes": Counts()}]
    assert len(await read_rows(home)) == before


async def test_erasure_of_the_owner_of_a_held_back_episode_removes_no_fact_of_another_user(
    home: OpenStores,
) -> None:
    """A fact that bob pinned has the id of alice's episode, which was never promoted."""
    await home.put(TEA)
    await home.fire(GATED)
    fact = await _pinned_by_bob(home)

    await home.facts.erasures.forget(
        ScopeFilter.of("alice", None, None), ["e1"], moment=2**51, at=START, by="me", dry_run=False
    )

    assert await home.facts.query(FactPattern()) == [fact]
    assert (await home.facts.verify())[2] is None


async def _pinned_by_bob(home: OpenStores) -> Fact:
    await home.facts.pin(
        Fact(
            id="e1",
            user="bob",
            agent="rag",
            payload={"subject": "bob", "predicate": "owns", "object": "a boat"},
            lineage=[{"rule_id": "me", "source_episode_ids": ["x"], "promotion_ts": "now"}],
            confidence=1.0,
            pinned_at=START,
        )
    )
    [fact] = await home.facts.query(FactPattern())
    return fact


async def test_held_back_episode_under_an_id_that_another_user_pinned_is_quarantined(
    home: OpenStores,
) -> None:
    await _pinned_by_bob(home)
    await home.put(TEA)

    await home.fire(GATED)

    assert (await read_rows(home))[-1] == ("quarantine", "", "id_taken")


@pytest.mark.slow
async def test_a_scrubbed_memory_still_distinguishes_reads_from_versions(
    home: OpenStores,
) -> None:
    await home.put(triple("b1", "bob", "likes", "figs", user="bob"), TEA)
    [firing] = (await home.fire(PLAIN)).firing_ids
    await home.facts.ledger.undo(firing, at=START, by="me", dry_run=False)
    await home.fire(NOTES)
    await home.memory.forget(ScopeFilter.of("bob", None, None), [], moment=2**51)
    await read(home)

    await home.memory.scrub()
    plain, notes = await home.fire(PLAIN), await home.fire(NOTES)

    assert plain.channels["facts"] == Counts()
    assert notes.channels["notes"] == Counts(read=1, added=1)


@ON_FILES
@pytest.mark.parametrize("held", [False, True])
async def test_an_id_that_another_user_takes_later_has_none_of_the_earlier_reads(
    home: OpenStores, tmp_path: Path, held: bool
) -> None:
    await home.put(TEA)
    await read(home, 9)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
        host.execute("DELETE FROM episodes")  # the host prunes its episodes
    await home.put(triple("e1", "bob", "owns", "a boat", user="bob"))

    assert await home.memory.accesses(["e1"]) == {}
    if held:
        await home.fire(GATED)
        assert await home.objects() == {}
    await read(home, user="bob")
    assert (await home.memory.accesses(["e1"]))["e1"].reads == 1


class Compass(FakeEmbedder):
    """An embedder that detects whether a text is about tea."""

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [(1.0, 0.0) if "tea" in text else (0.0, 1.0) for text in texts]


ABOUT_TEA = rule(
    "gated", salience={"min": 0.015, "weights": {"recency": 0, "relevance": 1}, "about": "tea"}
)


async def test_a_gate_measures_the_relevance_of_contents(provider: Provider) -> None:
    async with open_stores(provider, embedding=Compass) as home:
        await home.put(
            triple("e1", "ada", "likes", "tea", content="Ada drinks tea."),
            triple("e2", "ada", "likes", "figs", content="Ada eats figs."),
        )

        await home.fire(ABOUT_TEA)

        assert await home.objects() == {"e1": "tea"}


class SlowCompass(Compass):
    """An embedder that takes a second for each long text that it has not seen."""

    def __init__(self, clock: FakeClock, seen: set[str]) -> None:
        self._clock = clock
        self._seen = seen

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        for text in texts:
            if len(text) > 1_000 and text not in self._seen:
                self._clock.advance(1)
                self._seen.add(text)
        return super().embed(texts)


async def test_long_contents_of_one_user_delay_other_users_only_for_some_firings(
    provider: Provider,
) -> None:
    """One firing cannot measure all of them; the next firing continues where it ended."""
    clock, seen = FakeClock(), set[str]()
    embedding = partial(SlowCompass, clock, seen)
    mallory = [
        triple(f"m{n}", "mallory", f"p{n}", n, user="mallory", content=f"{n}" + "x " * 50_000)
        for n in range(12)
    ]
    timed = ABOUT_TEA.model_copy(update={"timeout": 3.0})
    async with open_stores(provider, embedding=embedding, clock=clock) as home:
        await home.put(*mallory)
        await home.put(triple("e1", "ada", "likes", "tea", content="Ada drinks tea."))
        failures = 0
        for _ in range(10):
            try:
                await home.fire(timed)
            except FiringTimeoutError:
                failures += 1

        assert failures > 0
        assert await home.objects() == {"e1": "tea"}
        kinds = [record.kind for record in await home.facts.reads.records()]
        assert kinds.count("noop") == 12


async def test_a_slow_gate_makes_batches_smaller_and_loses_no_episode(provider: Provider) -> None:
    clock, seen = FakeClock(), set[str]()
    episodes = [
        triple(f"e{n}", "ada", f"p{n}", n, content=f"{n} tea" + " tea" * 20_000) for n in range(23)
    ]
    async with open_stores(
        provider, embedding=partial(SlowCompass, clock, seen), clock=clock
    ) as home:
        await home.put(*episodes)

        report = await home.fire(ABOUT_TEA)

        assert len(report.firing_ids) > 1
        assert report.channels["facts"].read == report.channels["facts"].added == 23
        assert len(await home.objects()) == 23


async def test_only_the_episode_that_makes_the_embedder_fail_is_quarantined(
    provider: Provider,
) -> None:
    class FailingCompass(Compass):
        def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
            if any("poison" in text for text in texts):
                raise OverflowError
            return super().embed(texts)

    async with open_stores(provider, embedding=FailingCompass) as home:
        await home.put(
            triple("e1", "mallory", "is", "x", user="mallory", content="poison"),
            triple("e2", "ada", "likes", "tea", content="Ada drinks tea."),
        )

        report = await home.fire(ABOUT_TEA)

        assert await home.objects() == {"e2": "tea"}
        assert report.channels["facts"].quarantined == 1


async def test_gate_without_its_extra_reports_what_to_install(home: OpenStores) -> None:
    await home.put(TEA)

    with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]"):
        await home.fire(ABOUT_TEA)


async def test_gate_uses_the_importance_of_an_episode(home: OpenStores) -> None:
    important = rule("gated", salience={"min": 0.015, "weights": {"recency": 0, "importance": 1}})
    await home.put(
        triple("e1", "ada", "likes", "tea", metadata={"importance": 0.9}),
        triple("e2", "ada", "owns", "a cup", metadata={"importance": 0.5}),
        triple("e3", "ada", "reads", "Pessoa", metadata={"importance": "very"}),
    )

    await home.fire(important)

    assert await home.objects() == {"e1": "tea"}


Step = tuple[Literal["put", "plain", "gated", "undo", "backfill", "read"], int]

steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "plain", "gated", "undo", "backfill", "read", "read"]),
        st.integers(0, 5),
    ),
    max_size=14,
)


async def run_story(folder: Path, story: Sequence[Step], *, reads: bool) -> list[list[Fact]]:
    """Run a story, with its reads or without; the plain rule's channel is ``facts``.

    Returns:
        The facts that were valid, and those that were believed, at some instants.
    """
    folder.mkdir()
    fired: list[list[str]] = []
    async with open_stores(folder, batch=2, clock=FakeClock()) as home:
        for number, (step, n) in enumerate(story):
            now = at(number)
            match step:
                case "put":
                    await home.put(triple(f"e{n % 3}", "ada", f"p{n % 2}", n, timestamp=at(n)))
                case "plain":
                    done = await home.consolidator.fire(FireRequest(PLAIN, "manual", now))
                    # A story undoes all batches of a firing or none, as their sizes may differ.
                    fired += [done.firing_ids] if done.channels["facts"].added else []
                case "gated" if reads:
                    await home.consolidator.fire(FireRequest(NOTES, "manual", now))
                case "undo" if fired:
                    await undo(home, fired.pop(), number)
                case "backfill":
                    await home.consolidator.backfill(PLAIN, now, by="me")
                case "read" if reads:
                    await read(home)
        assert (await home.facts.verify())[2] is None
        replay = await home.facts.replay(folder / "again.db")
        assert (replay.differing, replay.unclear) == (0, 0)
        return [
            [fact for fact in facts if not fact.id.startswith("@")]
            for n in range(0, len(story) + 1, 2)
            for facts in (
                await home.facts.query(FactPattern(), valid_at=at(n)),
                await home.facts.query(FactPattern(), believed_at=at(n)),
            )
        ]


async def undo(home: OpenStores, firing_ids: Sequence[str], seconds: int) -> None:
    for firing_id in firing_ids:
        await home.facts.ledger.undo(firing_id, at=at(seconds), by="me", dry_run=False)


def rows_of_facts(folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows of the channel ``facts``."""
    return [row for row in facts_in(folder) if not row[0].startswith("@")]


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=_EXAMPLES, suppress_health_check=list(HealthCheck))
@given(steps)
@example([("put", 0), ("plain", 0), ("gated", 0), ("undo", 0), ("read", 0), ("plain", 0)])
async def test_reads_and_gates_change_no_facts_of_other_rules(
    tmp_path_factory: pytest.TempPathFactory, story: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("story")

    with_reads = await run_story(folder / "read", story, reads=True)
    without = await run_story(folder / "unread", story, reads=False)

    assert with_reads == without
    assert rows_of_facts(folder / "read") == rows_of_facts(folder / "unread")
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=_EXAMPLES, suppress_health_check=list(HealthCheck))
@given(steps)
async def test_all_episodes_that_are_read_at_the_end_are_promoted(
    tmp_path_factory: pytest.TempPathFactory, story: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("story")
    await run_story(folder / "read", story, reads=True)

    async with open_stores(folder / "read", batch=2, clock=FakeClock()) as home:
        await home.fire(NOTES)
        await read(home)
        await home.fire(NOTES)
        gated = {id: value for id, value in (await home.objects()).items() if id.startswith("@")}
        await home.fire(rule("fresh", then_emits=["all"]))
        every = {
            id.replace("@all/", "@notes/"): value
            for id, value in (await home.objects()).items()
            if id.startswith("@all/")
        }

    assert gated == every
    shutil.rmtree(folder)

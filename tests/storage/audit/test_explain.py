"""Why a fact is current or was removed, and the outcome of an episode: small stories."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from slumberd.cli import call
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.explanation import Decision, Explanation
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode, instant, microseconds
from slumberd.model.errors import NoInputError
from slumberd.model.fact import Fact
from slumberd.model.firing import Limits, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations.reads.explainer import explain_fact
from slumberd.operations.reads.explanations import describe_removal, would_change
from slumberd.storage.audit.explain import MOST_CHANGES
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, rule, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.random_histories import EVERYTHING, Step, Story, play
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

ALL = rule("all")
SHORT = rule("short", when_filter="predicate = 'lives_in'", then_emits=["facts", "notes"])
PORTO = triple("e1", "alice", "lives_in", "Porto", timestamp=at(0))
BRAGA = triple("e2", "alice", "lives_in", "Braga", timestamp=at(60))
LATE = triple("e0", "alice", "lives_in", "Lisbon", timestamp=at(-60))
LEFT = triple("e3", "alice", "lives_in", None, timestamp=at(90), metadata={"intent": "delete"})
TEA = triple("tea", "alice", "likes", "tea", timestamp=at(5))
ODD = triple("odd", "alice", "owns", "a pan", timestamp=at(6), metadata={"intent": "remember"})


@dataclass
class ExplainedStores:
    """Both stores and a consolidator; each firing is a minute after the last."""

    folder: Path
    memory: SQLiteMemoryStore
    facts: SQLiteFactStore
    clock: FakeClock

    @property
    def consolidator(self) -> Consolidator:
        return Consolidator(self.memory, self.facts, FakeDeltaLog(), self.clock, batch=5_000)

    async def put(self, *episodes: Episode) -> None:
        await self.memory.put_many(episodes)

    async def fire(self, *rules: ConsolidationRule, by: str = "") -> list[str]:
        done = []
        for loaded in rules or (ALL,):
            self.clock.advance(60)
            report = await self.consolidator.fire(
                FireRequest(loaded, "manual", self.clock.now(), by=by)
            )
            done += report.firing_ids
        return done

    async def backfill(self, loaded: ConsolidationRule = ALL) -> None:
        self.clock.advance(60)
        await self.consolidator.backfill(loaded, self.clock.now(), by="me")

    async def put_and_fire(self, *episodes: Episode) -> str:
        """Put episodes, fire the rule that selects every episode; return the firing's id."""
        await self.put(*episodes)
        return (await self.fire())[0]

    async def undo(self, firing_id: str) -> str:
        self.clock.advance(60)
        outcome = await self.facts.ledger.undo(
            firing_id, at=self.clock.now(), by="me", dry_run=False
        )
        return outcome.firing_id

    async def decisions_of(self, id: str, *rules: ConsolidationRule) -> list[Decision]:
        found = {
            loaded.id: await self.memory.reread(loaded, [id], upto=2**63 - 1) for loaded in rules
        }
        versions = {rule_id: some[0] for rule_id, some in found.items() if some}
        return await self.facts.reads.decisions_of(id, rules, versions)

    async def decision(self, id: str, loaded: ConsolidationRule = ALL) -> Decision:
        (decision,) = await self.decisions_of(id, loaded)
        return decision

    async def outcome_of(self, id: str, loaded: ConsolidationRule = ALL) -> tuple[str, str]:
        """Return the outcome of an episode, and what would change it."""
        decision = await self.decision(id, loaded)
        return decision.outcome, would_change(decision, loaded)

    async def removal_of(self, fact_id: str) -> str:
        """Return how a fact was removed that is not current."""
        explanation = await self.facts.why(fact_id)
        assert explanation.fact is None
        assert explanation.taken_out is not None
        return describe_removal(explanation.taken_out, fact_id)

    def sql(self, file: str, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / file)) as connection, connection:
            return connection.execute(statement).fetchall()


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[ExplainedStores]:
    clock = FakeClock(START + timedelta(days=1))
    async with (
        SQLiteMemoryStore(folder / "memory.db") as memory,
        SQLiteFactStore(folder / "facts.db", synchronous="normal", clock=clock) as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        yield ExplainedStores(folder, memory, facts, clock)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ExplainedStores]:
    async with house(tmp_path) as home:
        yield home


# The outcome of an episode.


async def test_episode_that_no_rule_has_read_is_pending(home: ExplainedStores) -> None:
    await home.put(PORTO)

    assert await home.outcome_of("e1") == ("pending", "`slumberd fire all`")


async def test_newer_version_is_pending_for_every_outcome_of_the_older(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(PORTO)
    await home.put(PORTO.model_copy(update={"content": "Porto!"}))

    decision = await home.decision("e1")

    assert (decision.outcome, decision.is_current) == ("pending", True)
    assert decision.row
    assert decision.row.record.kind == "add"


async def test_disabled_rule_fires_only_on_request(home: ExplainedStores) -> None:
    await home.put(PORTO)

    outcome, remedy = await home.outcome_of("e1", rule("off", enabled=False))

    assert (outcome, remedy) == ("pending", "off is disabled, but: `slumberd fire off`")


async def test_episode_of_a_held_batch_is_pending_until_approval(home: ExplainedStores) -> None:
    braked = rule("all", limits=Limits(max_deletes=0))
    await home.put_and_fire(PORTO)
    await home.put(LEFT)
    await home.fire(braked)
    held = (await home.facts.watermarks.held())["all"]

    decision = await home.decision("e3", braked)

    assert decision.outcome == "pending"
    remedy = would_change(decision, braked, held=held)
    assert remedy == (
        "all awaits approval: this batch would delete 1 fact; the limit is 0 (max_deletes); "
        "`slumberd approve all@3` applies it"
    )


async def test_episode_that_the_filter_does_not_select_is_filtered(home: ExplainedStores) -> None:
    await home.put(TEA)
    await home.fire(SHORT)

    facts, notes = await home.decisions_of("tea", SHORT)

    assert (facts.outcome, facts.row, facts.is_current) == ("filtered", None, False)
    assert (notes.outcome, notes.channel, notes.fact_id) == (
        "filtered",
        "notes",
        "@notes/tea",
    )
    remedy = would_change(facts, SHORT)
    assert remedy == "the filter of short does not select it: predicate = 'lives_in'"


async def test_quarantined_episode_whose_repair_is_not_selected_is_filtered(
    home: ExplainedStores,
) -> None:
    picky = rule("picky", when_filter="predicate = 'owns'")
    await home.put(ODD)
    await home.fire(picky)
    await home.put(triple("odd", "alice", "likes", "a pan", timestamp=at(6)))
    await home.fire(picky)

    decision = await home.decision("odd", picky)

    assert (decision.outcome, decision.reason, decision.detail) == ("filtered", "", "")


async def test_stale_episode_that_the_filter_no_longer_selects_is_filtered(
    home: ExplainedStores,
) -> None:
    picky = rule("picky", when_filter="predicate = 'lives_in'")
    await home.put(PORTO, BRAGA)
    await home.fire(picky)
    await home.put(LATE)
    await home.fire(picky)
    await home.put(triple("e0", "alice", "lived_in", "Lisbon", timestamp=at(-60)))
    await home.fire(picky)

    decision = await home.decision("e0", picky)

    assert decision.outcome == "filtered"
    assert decision.row
    assert (decision.row.event, decision.row.record.kind) == ("withdrawal", "noop")


async def test_rule_that_starts_now_skips_earlier_episodes(home: ExplainedStores) -> None:
    late = rule("late", start="now")
    await home.put(PORTO)

    before = await home.outcome_of("e1", late)
    await home.fire(late)
    after = await home.outcome_of("e1", late)

    await home.backfill(late)

    assert before == after
    assert before[0] == "skipped"
    assert before[1].endswith("`slumberd backfill late`")
    assert (await home.decision("e1", late)).outcome == "add"


async def test_channel_that_a_rule_got_later_has_skipped_the_episode(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)

    facts, notes = await home.decisions_of("e1", rule("all", then_emits=["facts", "notes"]))

    assert (facts.outcome, notes.outcome) == ("add", "skipped")


async def test_pruned_episode_that_a_rule_never_evaluated_must_be_put_again(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(PORTO)
    home.sql("memory.db", "DELETE FROM episodes")

    evaluated, skipped = await home.decisions_of("e1", ALL, rule("new"))

    assert (evaluated.outcome, evaluated.is_current) == ("add", True)
    assert skipped.outcome == "skipped"
    assert would_change(skipped, rule("new"), in_memory=False).endswith("put it again")


async def test_current_fact_needs_no_change(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)

    assert await home.outcome_of("e1") == ("add", "nothing needs to change: its fact is current")


async def test_replaced_fact_names_its_successor(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO, BRAGA)

    old, new = await home.decision("e1"), await home.decision("e2")

    assert (old.outcome, old.is_current, new.outcome, new.is_current) == (
        "add",
        False,
        "update",
        True,
    )
    remedy = would_change(old, ALL)
    assert remedy == "e2 replaced it; say it again with a later timestamp"


async def test_fact_that_was_removed_twice_names_the_last_removal(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.undo(await home.put_and_fire(BRAGA))
    await home.put_and_fire(BRAGA.model_copy(update={"id": "e9", "timestamp": at(99)}))

    assert (await home.outcome_of("e1"))[1].startswith("e9 replaced it")


async def test_fact_that_an_edit_of_another_restores_is_an_add(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(PORTO, BRAGA)
    await home.put_and_fire(BRAGA.model_copy(update={"metadata": TEA.metadata}))

    decision = await home.decision("e1")

    assert (decision.outcome, decision.is_current) == ("add", True)
    assert decision.row
    assert decision.row.event == "claim"


async def test_delete_names_the_facts_that_it_removed(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO, LEFT)

    assert await home.outcome_of("e3") == ("delete", "nothing needs to change: it deleted e1")


async def test_filter_that_no_longer_selects_an_episode_deletes_its_fact(
    home: ExplainedStores,
) -> None:
    picky = rule("picky", when_filter="predicate = 'lives_in'")
    await home.put(PORTO)
    await home.fire(picky)
    await home.put(triple("e1", "alice", "lived_in", "Porto", timestamp=at(0)))
    await home.fire(picky)

    outcome, remedy = await home.outcome_of("e1", picky)

    assert outcome == "delete"
    assert remedy == "the filter of picky does not select it: predicate = 'lives_in'"
    assert await home.removal_of("e1") == "picky no longer selects its episode"


NOOPS = {
    "stale": (
        [[PORTO, BRAGA], [LATE]],
        "a newer episode holds the key: e2; say it again with a later timestamp",
    ),
    "retracted": (
        [[PORTO, LEFT], [triple("e0", "alice", "lives_in", "Faro", timestamp=at(80))]],
        "a newer retraction covers it; say it again with a later timestamp",
    ),
    "unresolved": (
        [[episode("e0", metadata={"intent": "delete", "replaces": ["absent"]})]],
        "it retracts nothing known yet; it will retract what arrives later and is older",
    ),
    "noop": (
        [[episode("e0", metadata={"intent": "noop"})]],
        "its intent is noop; put it with another intent",
    ),
}


@pytest.mark.parametrize("reason", NOOPS)
async def test_noop_has_its_reason(home: ExplainedStores, reason: str) -> None:
    windows, remedy = NOOPS[reason]
    for window in windows:
        await home.put_and_fire(*window)

    decision = await home.decision("e0")

    assert (decision.outcome, decision.reason, decision.is_current) == ("noop", reason, False)
    assert would_change(decision, ALL) == remedy


async def test_delete_that_is_too_old_removes_no_fact(home: ExplainedStores) -> None:
    early = LEFT.model_copy(update={"id": "e0", "timestamp": at(-9)})
    await home.put_and_fire(PORTO)
    await home.put_and_fire(early)

    decision = await home.decision("e0")

    assert (decision.outcome, decision.reason, decision.holder) == ("noop", "stale", "")
    assert would_change(decision, ALL).startswith("what it retracts is newer")


async def test_stale_object_of_several_names_the_newer_one_of_its_own_slot(
    home: ExplainedStores,
) -> None:
    await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
    again = TEA.model_copy(update={"id": "tea2", "timestamp": at(1)})
    cake = triple("cake", "alice", "likes", "cake", timestamp=at(9))
    await home.put_and_fire(TEA, cake)
    await home.put_and_fire(again)

    assert (await home.decision("tea2")).holder == "tea"


async def test_version_that_is_evaluated_again_unchanged_is_known(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.put(BRAGA)
    await home.fire(ALL)
    await home.facts.watermarks.rewind("all", Position())
    home.sql("facts.db", "DELETE FROM slumberd_generations")  # as if no row had been lost
    await home.fire(ALL)

    decision = await home.decision("e2")

    assert (decision.outcome, decision.reason, decision.is_current) == ("noop", "known", True)


async def test_quarantined_episode_has_reason_and_detail(home: ExplainedStores) -> None:
    await home.put_and_fire(ODD)

    decision = await home.decision("odd")

    assert (decision.outcome, decision.reason) == ("quarantined", "intent_unknown")
    assert decision.detail.startswith("intent is 'remember'")
    assert would_change(decision, ALL).endswith("`slumberd quarantine retry odd`")


async def test_quarantined_edit_of_a_current_fact_keeps_its_reason(home: ExplainedStores) -> None:
    await make_unreadable(home)

    decision = await home.decision("e4")

    assert (decision.outcome, decision.reason) == ("quarantined", "intent_unknown")


async def test_episode_of_an_unknown_owner_is_found_in_quarantine(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(TEA)
    home.sql(
        "memory.db",
        "INSERT INTO episodes SELECT 'e1', replace(scope_key, 'alice', 'bob'), content, timestamp,"
        " metadata FROM episodes",
    )
    await home.fire()

    decision = await home.decision("e1")

    assert (decision.outcome, decision.reason) == ("quarantined", "scope_mismatch")
    assert decision.row
    assert decision.row.record.fact_id == ""


async def declare(home: ExplainedStores) -> None:
    await home.facts.pin(
        Fact(
            id="p1", user="alice", agent="rag", payload={}, lineage=[{"by": "a host"}],
            confidence=1, pinned_at=START,
        )
    )  # fmt: skip


async def test_why_shows_that_a_fact_is_declared(home: ExplainedStores) -> None:
    await declare(home)
    await home.put_and_fire(PORTO)

    assert (await home.facts.why("p1")).declared
    assert not (await home.facts.why("e1")).declared


async def test_why_shows_that_its_program_removed_a_declared_fact(home: ExplainedStores) -> None:
    await declare(home)

    await home.facts.unpin("p1")

    assert await home.removal_of("p1") == "its program removed it"


async def test_id_that_another_owner_holds_is_not_current_for_the_episode(
    home: ExplainedStores,
) -> None:
    await home.facts.correct(
        Fact(
            id="e1", user="bob", agent="rag", payload={}, lineage=[{"by": "bob"}], confidence=1,
            pinned_at=START,
        ),
        by="me",
        reason="so",
    )  # fmt: skip
    await home.put_and_fire(PORTO)

    decision = await home.decision("e1")

    assert (decision.outcome, decision.reason) == ("quarantined", "id_taken")
    assert not decision.is_current
    assert "holds its id" in would_change(decision, ALL)


async def test_undone_episode_is_restored_by_a_backfill(home: ExplainedStores) -> None:
    firing = await home.put_and_fire(PORTO)
    await home.undo(firing)

    outcome = await home.outcome_of("e1")
    await home.backfill()

    assert outcome == ("undone", "`slumberd backfill all`")
    assert (await home.decision("e1")).is_current


async def test_undo_that_is_undone_has_no_effect(home: ExplainedStores) -> None:
    undoing = await home.undo(await home.put_and_fire(PORTO))
    await home.undo(undoing)

    decision = await home.decision("e1")

    assert (decision.outcome, decision.is_current) == ("add", True)


async def test_rule_that_is_no_longer_loaded_is_reported_from_the_ledger(
    home: ExplainedStores,
) -> None:
    await home.put(PORTO, ODD)
    await home.fire(ALL, rule("gone", then_emits=["archive"]))

    _, removed = await home.decisions_of("e1", ALL)
    found = await home.decisions_of("odd")

    assert (removed.rule_id, removed.channel, removed.outcome) == ("gone", "archive", "add")
    assert removed.fact_id == "@archive/e1"
    assert [(decision.rule_id, decision.outcome) for decision in found] == [
        ("all", "quarantined"), ("gone", "quarantined"),
    ]  # fmt: skip


async def test_manual_edits_are_not_rules_and_explain_the_fact(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.facts.unpin("e1")

    outcome, remedy = await home.outcome_of("e1")

    assert outcome == "add"
    assert remedy == "a person retracted it; say it again with a later timestamp"


async def test_erased_rows_do_not_stop_an_explanation(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO, BRAGA, ODD)
    erase = "UPDATE slumberd_ledger SET {} = NULL WHERE what != 0"
    for column in ("key_id", "at", "replaces", "salt", "payload"):
        home.sql("facts.db", erase.format(column))
    home.sql("facts.db", "UPDATE slumberd_ledger SET fact_id = NULL WHERE fact_id != 'odd'")

    odd, skipped = await home.decision("odd"), await home.decision("e1")

    assert (odd.outcome, odd.detail) == ("quarantined", "")
    assert (skipped.outcome, skipped.row) == ("skipped", None)
    assert (await home.facts.why("e2")).assertions == []


async def test_erased_scope_needs_newer_episodes(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO, TEA)
    moment = microseconds(home.clock.now())
    await home.facts.erasures.forget(
        ScopeFilter.of("alice", None, None),
        moment=moment,
        at=home.clock.now(),
        by="me",
        dry_run=False,
    )

    outcome, remedy = await home.outcome_of("e1")

    assert outcome == "erased"
    assert remedy == "its scope was erased; only episodes that are newer than the erasure count"
    with pytest.raises(NoInputError):
        await home.facts.why("e1")


# Why a fact is current, or was removed.


async def test_why_shows_rule_version_instant_trigger_and_requester(home: ExplainedStores) -> None:
    await home.put(PORTO)
    (firing,) = await home.fire(by="uid 7")

    explanation = await home.facts.why("e1")

    (saying,) = explanation.assertions
    line = saying.row
    assert saying.counts
    assert (line.record.firing_id, line.rule_hash, line.by) == (firing, ALL.content_hash, "uid 7")
    assert (line.trigger, line.record.at) == ("manual", home.clock.now())
    assert [tuple(source) for source in explanation.sources] == [("e1", "s1", at(0), "chat")]
    assert explanation.fact
    assert explanation.replacing == []


async def test_why_shows_every_rule_that_promoted_the_fact(home: ExplainedStores) -> None:
    await home.put(PORTO)
    await home.fire(ALL, SHORT)

    explanation = await home.facts.why("e1")

    assertions = [
        (asserting.row.record.rule_id, asserting.row.record.kind, asserting.counts)
        for asserting in explanation.assertions
    ]
    assert assertions == [("all", "add", True), ("short", "update", True)]
    assert (explanation.replaced, explanation.replacing) == ([], [])


async def test_why_shows_the_facts_before_and_after(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO, BRAGA)

    old, new = await home.facts.why("e1"), await home.facts.why("e2")

    assert (new.replaced, new.replacing) == (["e1"], [])
    assert [line.record.fact_id for line in old.replacing] == ["e2"]
    assert old.fact is None


async def test_only_the_newest_version_of_an_episode_counts(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.put_and_fire(triple("e1", "alice", "lives_in", "Faro", timestamp=at(0)))

    explanation = await home.facts.why("e1")

    assertions = [
        (asserting.row.record.kind, asserting.counts) for asserting in explanation.assertions
    ]
    assert assertions == [("add", False), ("update", True)]
    assert explanation.replacing == []


async def test_source_is_the_version_that_counts(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.undo(await home.put_and_fire(PORTO.model_copy(update={"timestamp": at(10)})))

    explanation = await home.facts.why("e1")

    assert [source.at for source in explanation.sources] == [at(0)]


async def restated(home: ExplainedStores) -> None:
    # A reference to the older of two equal facts also removes the newer one, by another key.
    again = PORTO.model_copy(update={"id": "e4", "timestamp": at(10)})
    referrer = triple("e5", "x", "is", "y", timestamp=at(20))
    referrer = referrer.model_copy(
        update={"metadata": {**referrer.metadata, "intent": "update", "replaces": ["e1"]}}
    )
    await home.put_and_fire(again)
    await home.put_and_fire(PORTO)
    await home.put_and_fire(referrer)


async def edited_away(home: ExplainedStores) -> None:
    await home.put_and_fire(BRAGA.model_copy(update={"id": "e4"}))
    await home.put_and_fire(episode("e4", timestamp=at(60), metadata={"intent": "noop"}))


async def make_unreadable(home: ExplainedStores) -> None:
    await home.put_and_fire(ODD.model_copy(update={"id": "e4", "metadata": TEA.metadata}))
    await home.put_and_fire(ODD.model_copy(update={"id": "e4"}))


async def undone(home: ExplainedStores) -> None:
    await home.undo(await home.put_and_fire(PORTO.model_copy(update={"id": "e4"})))


async def remove_by_an_undo(home: ExplainedStores) -> None:
    moved = BRAGA.model_copy(update={"metadata": TEA.metadata})
    await home.put_and_fire(BRAGA, PORTO.model_copy(update={"id": "e4"}))
    await home.undo(await home.put_and_fire(moved))


async def make_single_valued(home: ExplainedStores) -> None:
    await home.facts.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
    await home.put_and_fire(TEA.model_copy(update={"id": "e4"}))
    await home.put_and_fire(triple("cake", "alice", "likes", "cake", timestamp=at(9)))
    await home.facts.ledger.set_channels({}, at=home.clock.now())


async def retracted_by_a_person(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO.model_copy(update={"id": "e4"}), TEA)
    await home.facts.unpin("e4")


async def deleted_by_another_program(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO.model_copy(update={"id": "e4"}))
    home.sql("facts.db", "DELETE FROM facts")
    await home.put_and_fire(TEA)


async def pinned_over(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO.model_copy(update={"id": "e4"}))
    await home.facts.correct(
        Fact(
            id="pin", user="alice", agent="rag", payload=BRAGA.metadata, lineage=[{"by": "me"}],
            confidence=1, pinned_at=START,
        ),
        by="me",
        reason="so",
    )  # fmt: skip


WENT = [
    (restated, "e5 replaced it"),
    (edited_away, "a newer version of its episode does not assert it"),
    (make_unreadable, "a newer version of its episode cannot be read (intent_unknown)"),
    (undone, "all@1 was undone"),
    (remove_by_an_undo, "e2 is current again since all@4 was undone"),
    (make_single_valued, "its predicate holds several objects, or one, where it did not before"),
    (retracted_by_a_person, "a person retracted it"),
    (deleted_by_another_program, "another program retracted it"),
    (pinned_over, "pin replaced it: a person pinned it (me), because: so"),
]


@pytest.mark.parametrize(("story", "how"), WENT, ids=[story.__name__ for story, _ in WENT])
async def test_why_explains_the_removal_of_a_fact(
    home: ExplainedStores, story: Any, how: str
) -> None:
    await story(home)

    assert await home.removal_of("e4") == how


async def test_restored_fact_is_current_and_shows_both_assertions(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.undo(await home.put_and_fire(BRAGA))

    explanation = await home.facts.why("e1")

    assert explanation.fact
    assert explanation.taken_out is None
    assert [line.record.fact_id for line in explanation.replacing] == ["e2"]
    assert [asserting.row.event for asserting in explanation.assertions] == ["claim", "restored"]


async def test_fact_of_another_program_is_shown_without_a_row_of_the_ledger(
    home: ExplainedStores,
) -> None:
    home.sql(
        "facts.db",
        "INSERT INTO facts VALUES ('x', 'u', 'a', '{}', '[]', 1, '{}', '2026-01-01T00:00:00Z')",
    )

    explanation = await home.facts.why("x")

    assert explanation.fact
    assert (explanation.assertions, explanation.sources) == ([], [])


async def test_unknown_fact_is_an_error(home: ExplainedStores) -> None:
    with pytest.raises(NoInputError, match="'e9' does not exist: the ledger has no such fact"):
        await home.facts.why("e9")


async def check_every_fact(story: Story) -> None:
    """Find what removed each fact by reading all rows; `why` uses an index."""
    records = await story.store.reads.records(limit=10_000)
    for fact_id in {record.fact_id for record in records} - {""}:
        explanation = await story.store.why(fact_id)
        out = [
            record.seq for record in records if fact_id in record.replaces
            if (record.fact_id, record.kind) != (fact_id, "update")
        ]  # fmt: skip
        assert [line.record.seq for line in explanation.replacing] == out
        check_who_counts(explanation)


def check_who_counts(explanation: Explanation) -> None:
    if explanation.fact and "rule_id" in explanation.fact.lineage[0]:
        own = [entry["rule_id"] for entry in explanation.fact.lineage if "rule_id" in entry]
        promoters = [
            asserting.row.record.rule_id for asserting in explanation.assertions if asserting.counts
        ]
        assert sorted({*promoters} - {"@manual"}) == own


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(30, full=150), deadline=None, suppress_health_check=list(HealthCheck))
@given(EVERYTHING)
def test_removal_of_a_fact_is_found_in_every_story(steps: list[Step]) -> None:
    play(steps, check_every_fact)


async def test_explanation_does_not_quote_an_episode_that_another_user_put_since(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(PORTO)
    home.sql("memory.db", "DELETE FROM episodes WHERE id = 'e1'")
    await home.put(PORTO.model_copy(update={"user": "bob", "content": "the secret of bob"}))
    scope = ScopeFilter.of("alice", None, None)

    explained = await explain_fact(home.facts, home.memory, "e1", content=True, scope=scope)

    (source,) = explained.document()["sources"]
    assert (source["in_memory"], source["content"]) == (False, None)


# The commands.


@pytest.fixture
def site(tmp_path: Path) -> Home:
    """Return a home with two rules, one of which has fired on a few episodes."""
    site = Home(tmp_path)
    site.rule("all", cadence={"every": 1})
    site.rule("later", cadence={"every": 9}, then_emits=["notes"])
    site.state.mkdir()

    async def story() -> None:
        async with house(site.state) as home:
            await home.put(PORTO, BRAGA, ODD)
            loaded = rule("all")
            await home.fire(loaded, by="uid 7")

    asyncio.run(story())
    return site


def run_command(
    site: Home, capfd: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> tuple[str, str]:
    """Run a command in this process; return what it printed on both streams."""
    found = call([*words, "--config", str(site.config)])
    out, err = capfd.readouterr()
    assert (found, "Traceback" in err) == (code, False), err
    return out, err


def documents_of(
    site: Home, capfd: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, Any]]:
    out, _ = run_command(site, capfd, *words, "--json")
    return [orjson.loads(line) for line in out.splitlines()]


def test_why_prints_fact_lineage_episodes_and_firing(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    (document,) = documents_of(site, capfd, "why", "e2")
    out, _ = run_command(site, capfd, "why", "e2")

    assert (document["current"], document["removal"], document["replaced"]) == (True, None, ["e1"])
    assert document["fact"]["lineage"][0]["rule_id"] == "all"
    (promoted,) = document["promoted"]
    assert (promoted["firing_id"], promoted["by"], promoted["kind"]) == ("all@1", "uid 7", "update")
    assert document["sources"] == [
        {"id": "e2", "session": "s1", "at": "2026-01-01T12:01:00.000000Z",
         "speaker": "chat", "source_node": "chat", "in_memory": True}
    ]  # fmt: skip
    assert "says        alice lives_in Braga" in out
    assert "replaced    e1" in out


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_content_is_shown_only_on_request(
    site: Home, capfd: pytest.CaptureFixture[str], form: Sequence[str]
) -> None:
    without, _ = run_command(site, capfd, "why", "e2", *form)
    with_it, _ = run_command(site, capfd, "why", "e2", "--content", *form)

    assert "content of e2" not in without
    assert "content of e2" in with_it


def test_why_shows_that_an_episode_is_no_longer_in_memory(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(site.state / "memory.db")) as connection, connection:
        connection.execute("DELETE FROM episodes WHERE id = 'e2'")

    out, _ = run_command(site, capfd, "why", "e2", "--content")

    assert "no longer among the episodes" in out


def test_why_of_a_removed_fact_explains_its_removal(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    (document,) = documents_of(site, capfd, "why", "e1")
    out, _ = run_command(site, capfd, "why", "e1")

    assert (document["current"], document["fact"], document["removal"]) == (
        False,
        None,
        "e2 replaced it",
    )
    assert [line["fact_id"] for line in document["replaced_by"]] == ["e2"]
    assert "current     no: e2 replaced it" in out


def test_why_of_a_fact_that_was_never_current_points_to_why_not(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    out, _ = run_command(site, capfd, "why", "odd")

    assert "it never was; `slumberd why-not odd` shows" in out


def test_why_not_prints_one_decision_a_rule_and_channel(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    documents = documents_of(site, capfd, "why-not", "e1")
    out, _ = run_command(site, capfd, "why-not", "odd")

    found = [
        (document["rule_id"], document["channel"], document["outcome"], document["current"])
        for document in documents
    ]
    assert found == [("all", "facts", "add", False), ("later", "notes", "pending", False)]
    assert documents[0]["removal"] == "e2 replaced it"
    assert documents[1]["would_change"] == "`slumberd fire later`"
    assert "quarantined (intent_unknown: intent is 'remember'" in out
    assert "in memory   session s1, at 2026-01-01 12:00:06Z" in out


def test_why_not_before_any_firing_is_pending(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    site = Home(tmp_path)
    site.rule("all", cadence={"every": 1})

    async def story() -> None:
        async with SQLiteMemoryStore(site.state / "memory.db") as memory:
            await memory.put_many([PORTO])

    asyncio.run(story())
    documents = documents_of(site, capfd, "why-not", "e1")

    assert [
        (document["rule_id"], document["outcome"], document["row"]) for document in documents
    ] == [("all", "pending", None)]
    assert not (site.state / "facts.db").exists()


@pytest.mark.parametrize("command", ["why", "why-not"])
def test_unknown_id_exits_with_66_and_a_message(
    site: Home, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    _, err = run_command(site, capfd, command, "e9", code=66)

    assert err.startswith("slumberd: 'e9' does not exist: ")


@pytest.mark.parametrize("command", ["why", "why-not"])
def test_empty_installation_exits_with_66_and_stays_empty(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    site = Home(tmp_path)

    run_command(site, capfd, command, "e1", code=66)

    assert not site.state.exists()


@pytest.mark.parametrize("command", ["why", "why-not"])
def test_id_of_invalid_unicode_exits_with_64(
    site: Home, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    _, err = run_command(site, capfd, command, "\udcff", code=64)

    assert "is not valid Unicode" in err


@pytest.mark.slow
def test_both_commands_only_read_while_a_daemon_runs(
    site: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    with site.daemon():
        (why,) = documents_of(site, capfd, "why", "e2")
        decisions = documents_of(site, capfd, "why-not", "e2")

    assert why["current"]
    assert [decision["outcome"] for decision in decisions] == ["update", "pending"]


# The history of a key.


def told(explanation: Explanation) -> list[tuple[str, str, Any, datetime | None]]:
    """Return kind, fact, object and instant of what is said, of each change of the key."""
    return [
        (
            change.row.record.kind,
            change.row.record.fact_id,
            change.payload.get("object"),
            instant(change.said_at) if change.said_at is not None else None,
        )
        for change in explanation.history
    ]


async def test_history_has_every_change_of_the_key_and_its_late_claims(
    home: ExplainedStores,
) -> None:
    for said in (PORTO, BRAGA, LATE, TEA, LEFT):
        await home.put_and_fire(said)

    explanation = await home.facts.why("e2")

    assert told(explanation) == [
        ("add", "e1", "Porto", at(0)),
        ("update", "e2", "Braga", at(60)),
        ("noop", "e0", "Lisbon", at(-60)),
        ("delete", "e3", None, at(90)),
    ]
    recorded = [change.row.record.at for change in explanation.history]
    assert recorded == sorted(recorded)
    assert explanation.changes == 4


async def test_history_says_what_an_undo_takes_back_and_restores(home: ExplainedStores) -> None:
    await home.put_and_fire(PORTO)
    await home.undo(await home.put_and_fire(BRAGA))

    assert told(await home.facts.why("e1"))[2:] == [
        ("delete", "e2", "Braga", at(60)),
        ("add", "e1", "Porto", at(0)),
    ]


async def test_history_leaves_out_other_keys_unless_they_removed_the_fact(
    home: ExplainedStores,
) -> None:
    moved = triple(
        "e9",
        "alice",
        "moved_to",
        "Faro",
        timestamp=at(70),
        metadata={"intent": "update", "replaces": "e1"},
    )
    await home.put_and_fire(PORTO)
    await home.put_and_fire(moved)

    assert told(await home.facts.why("e1")) == [
        ("add", "e1", "Porto", at(0)),
        ("update", "e9", "Faro", at(70)),
    ]
    assert told(await home.facts.why("e9")) == [("update", "e9", "Faro", at(70))]


@pytest.mark.slow
async def test_history_of_a_long_key_has_the_last_changes_and_their_number(
    home: ExplainedStores,
) -> None:
    await home.put_and_fire(
        *(
            triple(f"m{n:04}", "alice", "lives_in", f"town {n}", timestamp=at(n))
            for n in range(MOST_CHANGES + 3)
        )
    )

    explanation = await home.facts.why(f"m{MOST_CHANGES + 2:04}")

    assert explanation.changes == MOST_CHANGES + 3
    assert [fact_id for _, fact_id, _, _ in told(explanation)] == [
        f"m{n:04}" for n in range(3, MOST_CHANGES + 3)
    ]

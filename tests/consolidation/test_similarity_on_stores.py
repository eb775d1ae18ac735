"""New facts are linked with near current facts, and replace none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.model.episode import EpisodeVersion, SalienceShortfall
from slumberd.model.errors import ExtraMissingError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Outcome, Position, Trigger
from slumberd.model.rule import ConsolidationRule, Similarity
from slumberd.model.scope import ScopeFilter
from slumberd.search.embeddings import WordEmbedder
from tests.support.builders import at, rule, version
from tests.support.fakes import FakeClock, FakeComparer
from tests.support.providers import AnyFactStore, NewStores, Provider, new_files
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

NEAR = rule("near", similarity=Similarity(min=0.5))
PLAIN = rule("plain")


def statement(id: str, seq: int, content: str, **overrides: Any) -> EpisodeVersion:
    return version(id, seq=seq, timestamp=at(seq), content=content, **overrides)


@asynccontextmanager
async def open_store(provider: Provider) -> AsyncIterator[AnyFactStore]:
    async with provider.facts(clock=FakeClock(at(5000)), comparer=FakeComparer) as store:
        await store.bootstrap()
        yield store


async def fire(
    store: AnyFactStore,
    fired: ConsolidationRule,
    *versions: EpisodeVersion,
    trigger: Trigger = "every",
) -> Outcome:
    upto = Position(versions[-1].seq, versions[-1].id)
    min_similarity = fired.similarity.min if fired.similarity else None
    firing = Firing(
        fired.id,
        fired.content_hash,
        trigger,
        at(100),
        Position(),
        upto,
        min_similarity=min_similarity,
    )
    return await store.apply_deltas(DeltaBatch(firing, evaluate(versions, fired)))


async def near_ids(store: AnyFactStore) -> dict[str, Any]:
    """Return the ids of the current facts, each with the ids of the facts linked to it."""
    facts = await store.query(FactPattern())
    return {fact.id: fact.metadata.get("possible_duplicate", []) for fact in facts}


async def check_ledger(store: AnyFactStore, folder: Path) -> None:
    """Expect the ledger to verify, and to give the same facts again."""
    assert (await store.verify())[2] is None
    replay = await store.replay(folder / "again.db")
    assert (replay.differing, replay.unclear, replay.first) == (0, 0, None)


@pytest.fixture
def run_story(provider: Provider, tmp_path: Path) -> Any:
    """Run a story on a new store, and verify the ledger after it."""

    def run(story: Any) -> Any:
        async def run_on_store() -> Any:
            async with open_store(provider) as store:
                result = await story(store)
                await check_ledger(store, tmp_path)
                return result

        return asyncio.run(run_on_store())

    return run


MORNING, TURNED = "every morning ada drinks tea", "ada drinks tea every morning"


@pytest.mark.parametrize("again", [MORNING, TURNED])
def test_a_repeated_statement_is_linked_and_both_facts_stay(run_story: Any, again: str) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        outcome = await fire(store, NEAR, statement("e2", 2, again))
        assert [(record.kind, record.replaces) for record in outcome.records[1:]] == [("add", ())]
        assert await near_ids(store) == {"e1": [], "e2": ["e1"]}
        why = await store.why("e2")
        assert [*why.near] == [("e1", 1.0)]

    run_story(story)


def test_a_new_version_with_the_same_text_is_linked_again(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        await fire(store, NEAR, statement("e2", 2, TURNED))
        again = version("e1", seq=3, timestamp=at(1), content=MORNING)
        outcome = await fire(store, NEAR, again)
        assert [record.kind for record in outcome.records[1:]] == ["update"]
        assert await near_ids(store) == {"e1": ["e2"], "e2": ["e1"]}

    run_story(story)


def test_an_opposite_is_linked_and_both_facts_stay(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, "the shop is open on monday"))
        await fire(store, NEAR, statement("e2", 2, "the shop is closed on monday"))
        assert await near_ids(store) == {"e1": [], "e2": ["e1"]}
        [near] = (await store.why("e2")).near
        assert near.fact_id == "e1"
        assert 0.5 <= near.cosine < 1

    run_story(story)


def test_a_rule_without_similarity_links_nothing(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, PLAIN, statement("e1", 1, MORNING), statement("e2", 2, TURNED))
        assert await near_ids(store) == {"e1": [], "e2": []}

    run_story(story)


@pytest.mark.parametrize(
    ("other", "stay"),
    [
        pytest.param({"user": "bob"}, {"e2": [], "e3": ["e2"]}, id="user"),
        pytest.param({"agent": "other"}, {"e2": [], "e3": ["e2"]}, id="agent"),
        pytest.param({"metadata": {"subject": "tea"}}, {"e2": [], "e3": ["e2"]}, id="subject"),
        pytest.param({"metadata": {"subject": "tea", "predicate": "is"}}, {"e3": []}, id="key"),
    ],
)
def test_facts_of_others_and_about_others_are_never_compared(
    run_story: Any, other: Any, stay: dict[str, list[str]]
) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING), statement("e2", 2, MORNING, **other))
        await fire(store, NEAR, statement("e3", 3, MORNING, **other))
        assert await near_ids(store) == {"e1": [], **stay}

    run_story(story)


def test_channels_are_never_compared(run_story: Any) -> None:
    notes = rule("notes", then_emits=["notes"], similarity=Similarity())

    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        await fire(store, notes, statement("e2", 2, MORNING))
        assert await near_ids(store) == {"e1": [], "@notes/e2": []}

    run_story(story)


def test_several_values_of_one_predicate_are_compared(run_story: Any) -> None:
    def likes(id: str, seq: int, what: str) -> EpisodeVersion:
        metadata = {"subject": "ada", "predicate": "likes", "object": what}
        return statement(id, seq, "ada likes it", metadata=metadata)

    async def story(store: AnyFactStore) -> None:
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(1))
        await fire(store, NEAR, likes("e1", 1, "tea"), likes("e2", 2, "tea."))
        await fire(store, NEAR, likes("e3", 3, "coffee"))
        assert await near_ids(store) == {"e1": [], "e2": ["e1"], "e3": ["e1", "e2"]}

    run_story(story)


def test_a_fact_that_its_own_batch_replaces_is_linked_with_no_other(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        home = {"subject": "ada", "predicate": "lives_in"}
        said = {"subject": "ada", "predicate": "says"}
        await fire(
            store,
            NEAR,
            statement("e1", 1, "ada lives in porto now", metadata={**home, "object": "porto"}),
            statement("e2", 2, "her flat faces a river", metadata={**home, "object": "faro"}),
            statement("e3", 3, "now ada lives in porto", metadata=said),
        )
        assert await near_ids(store) == {"e2": [], "e3": []}

    run_story(story)


def test_a_late_statement_is_linked_with_a_newer_one(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e2", 2, TURNED)._replace(at=10**16))
        await fire(store, NEAR, statement("e1", 3, MORNING))
        assert await near_ids(store) == {"e2": [], "e1": ["e2"]}

    run_story(story)


def test_a_rule_links_its_fact_with_a_pinned_fact(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        payload = {"content": MORNING}
        manually = [{"kind": "note", "source_id": "n1"}]
        await store.pin(
            Fact(
                id="p1", user="alice", agent="rag", payload=payload, lineage=manually,
                confidence=1.0, pinned_at=at(1),
            )
        )  # fmt: skip
        later = statement("e1", 3, MORNING)._replace(at=10**16)
        await fire(store, NEAR, later)
        assert await near_ids(store) == {"p1": [], "e1": ["p1"]}

    run_story(story)


def test_an_undo_and_an_edit_remove_the_link(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        again = await fire(store, NEAR, statement("e2", 2, TURNED))
        undone = await store.ledger.undo(again.firing_id, at=at(200), by="", dry_run=False)
        assert await near_ids(store) == {"e1": []}
        await store.ledger.undo(undone.firing_id, at=at(201), by="", dry_run=False)
        assert await near_ids(store) == {"e1": [], "e2": ["e1"]}
        await fire(store, NEAR, statement("e2", 3, "something else altogether"))
        assert await near_ids(store) == {"e1": [], "e2": []}

    run_story(story)


def test_an_edited_episode_is_compared_by_its_newest_version(run_story: Any) -> None:
    edited, near = statement("e1", 2, "something else altogether"), statement("e2", 3, TURNED)
    also = statement("e3", 4, "altogether something else")

    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        await fire(store, NEAR, edited, near, also)
        assert await near_ids(store) == {"e1": [], "e2": [], "e3": ["e1"]}

    run_story(story)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(NEAR, PLAIN), (PLAIN, NEAR)])
def test_the_links_of_the_first_rule_hold_for_every_rule(run_story: Any, order: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        first, second = order
        for fired in order:
            await fire(store, fired, statement("e1", 1, MORNING))
        await fire(store, first, statement("e2", 2, TURNED))
        before = await near_ids(store)
        await fire(store, second, statement("e2", 2, TURNED))
        assert await near_ids(store) == before
        assert before == {"e1": [], "e2": ["e1"] if first is NEAR else []}
        for fired in order:
            await fire(store, fired, statement("e2", 2, TURNED), trigger="backfill")
        assert await near_ids(store) == before

    run_story(story)


def test_a_newer_version_that_the_other_rule_evaluated_first_decides(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, PLAIN, statement("e2", 1, "something else"))
        await fire(store, NEAR, statement("e1", 2, MORNING)._replace(at=0))
        await fire(store, NEAR, statement("e2", 3, TURNED))
        assert await near_ids(store) == {"e1": [], "e2": ["e1"]}
        await fire(store, PLAIN, statement("e2", 3, TURNED))
        assert await near_ids(store) == {"e1": [], "e2": ["e1"]}

    run_story(story)


def test_an_erased_session_leaves_the_facts_that_it_was_linked_with(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        await fire(store, NEAR, statement("e2", 2, TURNED, session="s2"))
        scope = ScopeFilter.of("alice", "s2", None)
        await store.erasures.forget(scope, moment=10**15 * 2, at=at(300), by="", dry_run=False)
        assert await near_ids(store) == {"e1": []}

    run_story(story)


def test_without_the_extra_a_firing_reports_what_to_install(provider: Provider) -> None:
    async def story() -> None:
        async with provider.facts() as store:
            await store.bootstrap()
            with pytest.raises(ExtraMissingError, match="near"):
                await fire(store, NEAR, statement("e1", 1, MORNING))
            assert await near_ids(store) == {}

    asyncio.run(story())


def test_an_episode_below_the_salience_minimum_is_not_compared(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        held_back = statement("e2", 2, TURNED)._replace(gated=SalienceShortfall(0.01, 0.1))
        await fire(store, NEAR, held_back, statement("e3", 3, "ada drinks tea"))
        assert await near_ids(store) == {"e1": [], "e3": ["e1"]}
        await fire(store, NEAR, statement("e2", 2, TURNED), trigger="backfill")
        assert await near_ids(store) == {"e1": [], "e2": ["e1", "e3"], "e3": ["e1"]}

    run_story(story)


OPPOSITES = [
    ("The shop in Main Street is open on Sunday", "The shop in Main Street is closed on Sunday"),
    ("Ada likes green tea in the morning", "Ada hates green tea in the morning"),
    ("Ada is allergic to peanuts", "Ada is not allergic to peanuts"),
    ("The meeting with Bob is at 10:00", "The meeting with Bob is at 11:00"),
    ("Bob owes Ada money for lunch", "Ada owes Bob money for lunch"),
    ("The flight to Rome leaves from gate B", "The flight to Rome leaves from gate C"),
    ("Turn the heating on before lunch", "Turn the heating on after lunch"),
    ("likes dogs but not cats", "likes cats but not dogs"),
]


@pytest.mark.parametrize(("text", "opposite"), OPPOSITES)
def test_opposites_are_near_for_a_real_model_and_both_stay_current(
    provider: Provider, text: str, opposite: str
) -> None:
    async def story() -> None:
        async with provider.facts(comparer=WordEmbedder) as store:
            await store.bootstrap()
            fired = rule("near", similarity=Similarity(min=0.8))
            await fire(store, fired, statement("e1", 1, text), statement("e2", 2, opposite))
            assert await near_ids(store) == {"e1": [], "e2": ["e1"]}

    asyncio.run(story())


WORDS = ["ada likes tea", "ada likes tea.", "tea ada likes", "ada hates tea", "ada likes tea not",
         "at 5 ada drinks tea", "ada drinks tea at 5", "ada drinks tea at 6"]  # fmt: skip

ABOUT: list[dict[str, str]] = [
    {},
    {"subject": "ada"},
    *({"subject": "ada", "predicate": "likes", "object": what} for what in ("tea", "tea.", "x")),
    {"subject": "ada", "predicate": "is", "object": "tea"},
]

stories = st.lists(
    st.tuples(
        st.sampled_from(WORDS),
        st.sampled_from(["alice", "bob"]),
        st.sampled_from(ABOUT),
    ),
    max_size=8,
)


def versions_of(statements: Sequence[tuple[str, str, dict[str, str]]]) -> list[EpisodeVersion]:
    return [
        statement(f"e{seq}", seq, content, user=user, metadata=about)
        for seq, (content, user, about) in enumerate(statements, 1)
    ]


async def outcome_of(
    new_stores: NewStores, fired: ConsolidationRule, batches: Sequence[Sequence[EpisodeVersion]]
) -> Any:
    with new_stores() as provider, TemporaryDirectory() as name:
        async with open_store(provider) as store:
            await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(1))
            for batch in batches:
                await fire(store, fired, *batch)
            await check_ledger(store, Path(name))
            return await near_ids(store)


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(8, full=40))
@given(stories, st.data())
def test_similarity_removes_no_fact_and_batch_sizes_change_no_link(
    statements: list[tuple[str, str, dict[str, str]]], data: st.DataObject
) -> None:
    check_links(new_files, statements, data)


@pytest.mark.sampled
@settings(max_examples=amount(3, full=25), suppress_health_check=list(HealthCheck))
@given(stories, st.data())
def test_similarity_in_a_database_removes_no_fact_and_batch_sizes_change_no_link(
    new_databases: NewStores,
    statements: list[tuple[str, str, dict[str, str]]],
    data: st.DataObject,
) -> None:
    check_links(new_databases, statements, data)


def check_links(
    new_stores: NewStores, statements: list[tuple[str, str, dict[str, str]]], data: st.DataObject
) -> None:
    versions = versions_of(statements)
    cut = data.draw(st.integers(0, len(versions)))
    parts = [part for part in (versions[:cut], versions[cut:]) if part]

    found = asyncio.run(outcome_of(new_stores, NEAR, parts))

    assert found == asyncio.run(outcome_of(new_stores, NEAR, [[each] for each in versions]))
    assert found.keys() == asyncio.run(outcome_of(new_stores, PLAIN, parts)).keys()


def test_manual_edits_are_not_compared(run_story: Any) -> None:
    async def story(store: AnyFactStore) -> None:
        await fire(store, NEAR, statement("e1", 1, MORNING))
        [row] = await store.query(FactPattern())
        await store.pin(row.model_copy(update={"id": "p1"}))
        assert await near_ids(store) == {"e1": [], "p1": []}
        assert (await store.why("p1")).assertions[-1].row.record.rule_id == MANUAL_RULE_ID

    run_story(story)


async def test_claim_that_takes_no_effect_is_linked_with_no_fact(
    provider: Provider, tmp_path: Path
) -> None:
    held_back = statement("e1", 1, "tea tea")._replace(gated=SalienceShortfall(0.02, 0.03))
    passed = statement("e2", 2, "tea tea")._replace(reread=True)
    async with open_store(provider) as store:
        await fire(store, NEAR, held_back, passed, statement("e3", 3, "tea tea"))

        assert await near_ids(store) == {"e3": []}
        assert not (await store.why("e3")).near
        await check_ledger(store, tmp_path)

"""The promotion feed contains each promotion once, with the fact as it was after its row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings

from slumberd.model.episode import microseconds
from slumberd.model.errors import StaleWriterError
from slumberd.model.fact import Fact
from slumberd.model.provenance import SLOTS, Lag, Promotion, assertion_document, bundle_of, slots_of
from slumberd.model.scope import ScopeFilter, channel_of
from slumberd.storage.facts.promotion_feed import sink_names
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, at, rule
from tests.support.example_ledgers import ALL, fire, said, write_ledger_of_every_kind
from tests.support.fakes import FakeClock
from tests.support.providers import AnyFactStore, NewStores, Provider
from tests.support.random_histories import EVERYTHING, Shown, Step, Story, play
from tests.support.sample_sizes import amount
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

QUIET = settings(
    max_examples=amount(30, full=150), deadline=None, suppress_health_check=list(HealthCheck)
)
FEW = settings(QUIET, max_examples=amount(4, full=60))

SAID = {"subject": "s", "predicate": "is"}
HANDS_OWN: list[Step] = [
    ("put", {"id": "e1", "user": "alice", "agent": "rag", "at": microseconds(START), "tag": 1,
             "metadata": SAID}),
    ("pin", "e1", "a"),
]  # fmt: skip
"""Two rules promote a fact that a manual edit then replaces under the same id."""


async def promotions_of(
    store: AnyFactStore, *, limit: int = 1_000, current_only: bool = False
) -> list[Promotion]:
    """Return every promotion, read page by page."""
    found: list[Promotion] = []
    page = await store.promotion_feed.promotions(0, limit=limit, current_only=current_only)
    while True:
        found += page.promotions
        after = page.upto
        page = await store.promotion_feed.promotions(after, limit=limit, current_only=current_only)
        if page.upto == after:
            assert after == await store.reads.ledger_rows()
            return found


def as_shown(fact: dict[str, Any]) -> dict[str, Any]:
    """Return the feed's entry for a current fact."""
    payload = fact["payload"]
    return {
        "user": fact["user"],
        "agent": fact["agent"],
        "channel": channel_of(fact["id"]),
        "subject": payload.get("subject") or "",
        "predicate": payload.get("predicate") or "",
        "object": orjson.dumps(payload.get("object")).decode(),
        "confidence": fact["confidence"],
    }


async def check_against_what_stood(story: Story) -> None:
    promotions = await promotions_of(story.store, limit=3)
    records = await story.store.reads.records(limit=10_000)
    assert [promotion.seq for promotion in promotions] == [
        record.seq for record in records if record.kind in ("add", "update")
    ]
    before: Shown = {}
    for moment, shown in story.shots:
        last = {promotion.fact_id: promotion for promotion in promotions if promotion.at == moment}
        for fact_id, promotion in last.items():
            if fact_id in shown:
                assert promotion._asdict() | as_shown(shown[fact_id]) == promotion._asdict()
        for fact_id, fact in shown.items():
            if fact_id not in before or as_shown(before[fact_id]) != as_shown(fact):
                assert fact_id in last
        before = shown


@pytest.mark.slow
@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotion_describes_the_fact_that_was_current_after_its_row(steps: list[Step]) -> None:
    play(steps, check_against_what_stood)


@pytest.mark.sampled
@FEW
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotion_in_a_database_describes_the_fact_that_was_current_after_its_row(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, check_against_what_stood, new_databases)


async def check_current_facts(story: Story) -> None:
    _, shown = story.shots[-1] if story.shots else (None, {})
    last = {
        promotion.fact_id: promotion
        for promotion in await promotions_of(story.store, limit=3, current_only=True)
    }
    assert last.keys() == shown.keys()
    for fact_id, promotion in last.items():
        assert promotion._asdict() | as_shown(shown[fact_id]) == promotion._asdict()


@pytest.mark.slow
@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotions_of_current_facts_end_with_the_state_of_every_fact(steps: list[Step]) -> None:
    play(steps, check_current_facts)


@pytest.mark.sampled
@FEW
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotions_of_current_facts_in_a_database_end_with_the_state_of_every_fact(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, check_current_facts, new_databases)


async def test_every_promotion_of_a_ledger_can_be_published(tmp_path: Path) -> None:
    await write_ledger_of_every_kind(tmp_path / "facts.db")
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        promotions = await promotions_of(store)
        records = {record.seq: record for record in await store.reads.records()}
    assert {promotion.rule_id for promotion in promotions} >= {"all", "notes", "@manual"}
    assert {promotion.kind for promotion in promotions} == {"add", "update"}
    for promotion in promotions:
        sent = assertion_document(slots_of(promotion), bundle_of(promotion))
        assert tuple(sent)[: len(SLOTS)] == SLOTS
        assert sent["_run_id"] == sent["firing"] == records[promotion.seq].firing_id
        assert sent["_step"] == sent["seq"] == promotion.seq
        assert orjson.loads(str(sent["replaces"])) == [*records[promotion.seq].replaces]


@pytest.mark.parametrize("rule_id", ["9.lives", "-.-", "a_b", "@manual", "née (1)", "X"])
async def test_source_is_an_identifier_whatever_the_rule_is_called(
    provider: Provider, rule_id: str
) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, rule(rule_id), [said("e1", 1, subject="s", predicate="p", object=1)])
        [promotion] = await promotions_of(store)
    sent = assertion_document(slots_of(promotion), bundle_of(promotion))
    assert sent["rule"] == rule_id
    assert str(sent["_source"]).startswith("rule-")


async def test_parts_of_a_triple_that_are_not_texts_are_published_as_json(
    provider: Provider,
) -> None:
    episodes = [said("e1", 1, subject=5, object={"b": [1.5], "a": None}), said("e2", 2)]
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, ALL, episodes)
        first, second = await promotions_of(store)
    assert (first.subject, first.predicate, first.object) == ("5", "", '{"a":null,"b":[1.5]}')
    assert (second.subject, second.object) == ("", "null")


async def test_erased_rows_are_not_published(provider: Provider) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, ALL, [said("e1", 1, subject="s", predicate="p", object=1)])
        [promotion] = await promotions_of(store)
        assert await store.promotion_feed.is_publishable(promotion.seq)
        await store.erasures.forget(
            ScopeFilter.of("alice", None, None),
            moment=microseconds(at(200)),
            at=at(9),
            by="me",
            dry_run=False,
        )
        assert not await store.promotion_feed.is_publishable(promotion.seq)
        assert await promotions_of(store) == []


async def test_lag_counts_the_rows_above_the_position_and_has_their_first_instant(
    provider: Provider,
) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        assert await store.promotion_feed.lag("file") == Lag(0, None)
        assert await store.promotion_feed.published_position("file") == (0, 0)
        await fire(store, ALL, [said("e1", 1), said("e2", 2)])
        assert await store.promotion_feed.lag("file") == Lag(3, at(100))
        await store.promotion_feed.save_published_position("file", 2, 1)
        assert await store.promotion_feed.lag("file") == Lag(1, at(100))
        assert await store.promotion_feed.published_position("file") == (2, 1)
        await store.promotion_feed.save_published_position("file", 3, 1)
        assert await store.promotion_feed.lag("file") == Lag(0, None)
    async with provider.facts() as store:
        assert await store.promotion_feed.published_position("file") == (3, 1)
        assert await store.promotion_feed.published_position("another") == (0, 0)
        assert await store.promotion_feed.lag("another") == Lag(3, at(100))


def test_lag_is_never_negative_when_the_clock_was_set_back() -> None:
    assert Lag(1, at(10)).seconds(at(70.5)) == 60.5
    assert Lag(1, at(10)).seconds(START) == 0.0
    assert Lag(0, None).seconds(START) == 0.0


async def test_position_is_saved_only_by_the_newest_writer(provider: Provider) -> None:
    async with (
        provider.facts() as old,
        provider.facts() as new,
    ):
        await old.bootstrap()
        await old.transactions.take_over()
        await new.transactions.take_over()
        with pytest.raises(StaleWriterError):
            await old.promotion_feed.save_published_position("file", 1, 0)
        assert await new.promotion_feed.published_position("file") == (0, 0)


async def test_a_position_above_the_last_row_shows_that_the_ledger_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    async with SQLiteFactStore(path) as store:
        await store.bootstrap()
        await fire(store, ALL, [said("e1", 1)])
        await store.promotion_feed.save_published_position("file", 2, 0)
        assert (await store.verify())[2] is None
        await store.promotion_feed.save_published_position("file", 3, 0)
        _, _, broken = await store.verify()
    assert broken is not None
    assert "3" in broken.problem


async def test_replayed_file_keeps_the_position_of_each_sink(tmp_path: Path) -> None:
    await write_ledger_of_every_kind(tmp_path / "facts.db")
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        await store.promotion_feed.save_published_position("file", 4, 2)
        replay = await store.replay(tmp_path / "again.db")
        assert replay.first is None
    async with SQLiteFactStore(tmp_path / "again.db") as store:
        assert await store.promotion_feed.published_position("file") == (4, 2)


async def test_manual_edits_are_published_too(provider: Provider) -> None:
    clock = FakeClock(at(5))
    async with provider.facts(clock=clock) as store:
        await store.bootstrap()
        entry = {"rule_id": "me", "source_episode_ids": ["x"]}
        fact = Fact(
            id="p1", user="u", agent="a", payload={"subject": "s", "predicate": "p", "object": "o"},
            lineage=[entry], confidence=0.25, pinned_at=at(0),
        )  # fmt: skip
        await store.pin(fact)
        [promotion] = await promotions_of(store)
    assert bundle_of(promotion)["confidence"].as_tuple().exponent == -2  # type: ignore[union-attr]
    assert (promotion.rule_id, promotion.confidence, promotion.user, promotion.at) == (
        "@manual",
        0.25,
        "u",
        at(5),
    )


def test_names_of_slots_are_those_of_every_promotion() -> None:
    promotion = Promotion(
        1, "add", "r@1", "r", START, "f", "u", "a", "facts", "", "", "1", 1.0, ("g",)
    )
    assert tuple(slots_of(promotion)) == SLOTS


async def test_sink_names_are_those_with_a_position(tmp_path: Path) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", clock=FakeClock()) as store:
        await store.bootstrap()
        await store.transactions.take_over()
        await store.promotion_feed.save_published_position("two", 3, 1)
        await store.promotion_feed.save_published_position("one", 0, 0)

    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
        assert sink_names(session_of(connection)) == ["one", "two"]

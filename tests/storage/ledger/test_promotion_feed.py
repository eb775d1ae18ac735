"""What a ledger tells a sink of provenance: each promotion once, with what stood then."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings

from slumberd.errors import StaleWriterError
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact
from slumberd.model.fact_ids import channel_of
from slumberd.model.provenance import SLOTS, Lag, Promotion, assertion_document, bundle_of, slots_of
from slumberd.model.scope import ScopeFilter
from slumberd.storage.facts.store import SQLiteFactStore
from slumberd.storage.ledger.promotion_feed import sink_names
from tests.support.builders import START, at, rule
from tests.support.fakes import FakeClock
from tests.support.histories import EVERYTHING, Shown, Step, Story, play
from tests.support.samples import amount
from tests.support.stories import ALL, fire, said, tell_everything

pytestmark = pytest.mark.integration

QUIET = settings(
    max_examples=amount(30, full=150), deadline=None, suppress_health_check=list(HealthCheck)
)

SAID = {"subject": "s", "predicate": "is"}
HANDS_OWN: list[Step] = [
    ("put", {"id": "e1", "user": "alice", "agent": "rag", "at": microseconds(START), "tag": 1,
             "metadata": SAID}),
    ("pin", "e1", "a"),
]  # fmt: skip
"""Two rules say what a hand has said otherwise since, under the same id: the hand's stands."""


async def told_by(
    store: SQLiteFactStore, *, limit: int = 1_000, current_only: bool = False
) -> list[Promotion]:
    """Return every promotion, read in stretches."""
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
    """Return what a sink is told of a fact as it stands."""
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
    told = await told_by(story.store, limit=3)
    records = await story.store.reads.records(limit=10_000)
    assert [one.seq for one in told] == [
        one.seq for one in records if one.kind in ("add", "update")
    ]
    before: Shown = {}
    for moment, shown in story.shots:
        last = {one.fact_id: one for one in told if one.at == moment}
        for fact_id, one in last.items():
            if fact_id in shown:
                assert one._asdict() | as_shown(shown[fact_id]) == one._asdict()
        for fact_id, fact in shown.items():
            if fact_id not in before or as_shown(before[fact_id]) != as_shown(fact):
                assert fact_id in last
        before = shown


@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotion_tells_what_stood_when_it_was_written(steps: list[Step]) -> None:
    play(steps, check_against_what_stood)


async def check_what_stands(story: Story) -> None:
    _, shown = story.shots[-1] if story.shots else (None, {})
    last = {one.fact_id: one for one in await told_by(story.store, limit=3, current_only=True)}
    assert last.keys() == shown.keys()
    for fact_id, one in last.items():
        assert one._asdict() | as_shown(shown[fact_id]) == one._asdict()


@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
@example(HANDS_OWN)
def test_promotions_that_stand_end_with_every_fact_as_it_is(steps: list[Step]) -> None:
    play(steps, check_what_stands)


async def test_whatever_a_ledger_holds_can_be_asserted(tmp_path: Path) -> None:
    await tell_everything(tmp_path / "facts.db")
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        told = await told_by(store)
        records = {one.seq: one for one in await store.reads.records()}
    assert {one.rule_id for one in told} >= {"all", "notes", "@manual"}
    assert {one.kind for one in told} == {"add", "update"}
    for one in told:
        sent = assertion_document(slots_of(one), bundle_of(one))
        assert tuple(sent)[: len(SLOTS)] == SLOTS
        assert sent["_run_id"] == sent["firing"] == records[one.seq].firing_id
        assert sent["_step"] == sent["seq"] == one.seq
        assert orjson.loads(str(sent["replaces"])) == [*records[one.seq].replaces]


@pytest.mark.parametrize("rule_id", ["9.lives", "-.-", "a_b", "@manual", "née (1)", "X"])
async def test_source_is_an_identifier_whatever_the_rule_is_called(
    tmp_path: Path, rule_id: str
) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
        await store.bootstrap()
        await fire(store, rule(rule_id), [said("e1", 1, subject="s", predicate="p", object=1)])
        [told] = await told_by(store)
    sent = assertion_document(slots_of(told), bundle_of(told))
    assert sent["rule"] == rule_id
    assert str(sent["_source"]).startswith("rule-")


async def test_parts_that_are_no_text_are_told_as_json(tmp_path: Path) -> None:
    episodes = [said("e1", 1, subject=5, object={"b": [1.5], "a": None}), said("e2", 2)]
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
        await store.bootstrap()
        await fire(store, ALL, episodes)
        first, second = await told_by(store)
    assert (first.subject, first.predicate, first.object) == ("5", "", '{"a":null,"b":[1.5]}')
    assert (second.subject, second.object) == ("", "null")


async def test_forgotten_rows_are_told_to_nobody(tmp_path: Path) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
        await store.bootstrap()
        await fire(store, ALL, [said("e1", 1, subject="s", predicate="p", object=1)])
        [told] = await told_by(store)
        assert await store.promotion_feed.is_publishable(told.seq)
        await store.erasures.forget(
            ScopeFilter.of("alice", None, None),
            moment=microseconds(at(200)),
            at=at(9),
            by="me",
            dry_run=False,
        )
        assert not await store.promotion_feed.is_publishable(told.seq)
        assert await told_by(store) == []


async def test_lag_is_what_lies_above_the_place_and_since_when(tmp_path: Path) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
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
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        assert await store.promotion_feed.published_position("file") == (3, 1)
        assert await store.promotion_feed.published_position("another") == (0, 0)
        assert await store.promotion_feed.lag("another") == Lag(3, at(100))


def test_lag_is_never_negative_when_the_clock_was_set_back() -> None:
    assert Lag(1, at(10)).seconds(at(70.5)) == 60.5
    assert Lag(1, at(10)).seconds(START) == 0.0
    assert Lag(0, None).seconds(START) == 0.0


async def test_place_is_kept_by_the_only_writer(tmp_path: Path) -> None:
    async with (
        SQLiteFactStore(tmp_path / "facts.db") as old,
        SQLiteFactStore(tmp_path / "facts.db") as new,
    ):
        await old.bootstrap()
        await old.file.take_over()
        await new.file.take_over()
        with pytest.raises(StaleWriterError):
            await old.promotion_feed.save_published_position("file", 1, 0)
        assert await new.promotion_feed.published_position("file") == (0, 0)


async def test_a_place_above_the_ledger_shows_that_it_was_cut(tmp_path: Path) -> None:
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


async def test_replayed_file_goes_on_at_the_same_place(tmp_path: Path) -> None:
    await tell_everything(tmp_path / "facts.db")
    async with SQLiteFactStore(tmp_path / "facts.db") as store:
        await store.promotion_feed.save_published_position("file", 4, 2)
        replay = await store.reads.replay(tmp_path / "again.db")
        assert replay.first is None
    async with SQLiteFactStore(tmp_path / "again.db") as store:
        assert await store.promotion_feed.published_position("file") == (4, 2)


async def test_hand_is_told_too(tmp_path: Path) -> None:
    clock = FakeClock(at(5))
    async with SQLiteFactStore(tmp_path / "facts.db", clock=clock) as store:
        await store.bootstrap()
        entry = {"rule_id": "me", "source_episode_ids": ["x"]}
        fact = Fact(
            id="p1", user="u", agent="a", payload={"subject": "s", "predicate": "p", "object": "o"},
            lineage=[entry], confidence=0.25, pinned_at=at(0),
        )  # fmt: skip
        await store.pin(fact)
        [told] = await told_by(store)
    assert bundle_of(told)["confidence"].as_tuple().exponent == -2  # type: ignore[union-attr]
    assert (told.rule_id, told.confidence, told.user, told.at) == ("@manual", 0.25, "u", at(5))


def test_names_of_slots_are_those_of_every_promotion() -> None:
    told = Promotion(1, "add", "r@1", "r", START, "f", "u", "a", "facts", "", "", "1", 1.0, ("g",))
    assert tuple(slots_of(told)) == SLOTS


async def test_readers_are_those_that_have_a_place_and_no_other_number(tmp_path: Path) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", clock=FakeClock()) as store:
        await store.bootstrap()
        await store.file.take_over()
        await store.promotion_feed.save_published_position("two", 3, 1)
        await store.promotion_feed.save_published_position("one", 0, 0)

    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection:
        assert sink_names(connection) == ["one", "two"]

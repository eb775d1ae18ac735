"""Channels with fact stores of their own: the same facts, each store with its ledger and marks."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.errors import StoreError, UsageError
from slumberd.model.episode import Episode, instant
from slumberd.model.fact import Fact
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Limits
from slumberd.service.control_socket import Peer
from tests.support.builders import START, at, rule, triple
from tests.support.estate import OTHERS, estate
from tests.support.histories import episodes
from tests.support.samples import amount

pytestmark = pytest.mark.integration

ME = Peer(7, 7, 7)
EVERYWHERE = rule("everywhere", then_emits=["facts", "work", "home"])
ABROAD = rule("abroad", then_emits=["notes", "work"], when_filter="predicate = 'likes'")
SETS = [EVERYWHERE, ABROAD]
SEVERAL = {name: frozenset({"likes"}) for name in ("facts", "work", "notes")}

Step = tuple[str, Any]


def put(id: str, **overrides: Any) -> Episode:
    return triple(id, "alice", "likes", overrides.pop("what", id), **overrides)


def told(fact: Fact) -> dict[str, Any]:
    """Return what a fact says, without the instants of the firings that it came by."""
    lineage = [
        {name: value for name, value in entry.items() if name != "promotion_ts"}
        for entry in fact.lineage
    ]
    return fact.model_dump(exclude={"pinned_at", "lineage"}) | {"lineage": lineage}


async def lived(folder: Path, channels: dict[str, Path], steps: list[Step]) -> list[Any]:
    """Return what stands after a story, whatever stores its channels have."""
    async with estate(folder, SETS, channels, multi_valued=SEVERAL) as home:
        for what, which in [*steps, ("fire", 0), ("fire", 1)]:
            if what == "put":
                await home.stores.memory.put_many([_episode(which)])
            elif what == "fire":
                await home.fire(SETS[which])
            else:
                await _undo_last(home, SETS[which].id)
        return [told(fact) for fact in await home.facts()]


async def _undo_last(home: Any, rule_id: str) -> None:
    """Undo the last firing of a rule, in every store that has one."""
    for branch in home.branches:
        last = (await branch.facts.last_firings()).get(rule_id)
        if last is not None:
            await branch.facts.undo(
                f"{rule_id}@{last[0]}", at=home.clock.now(), by="me", dry_run=False
            )


def _episode(said: dict[str, Any]) -> Episode:
    return triple(
        said["id"], "s", "is", "x", user=said["user"], agent=said["agent"],
        timestamp=instant(said["at"]), metadata={"object": None, **said["metadata"]},
    )  # fmt: skip


STEPS = st.lists(
    st.tuples(st.just("put"), episodes())
    | st.tuples(st.just("put"), episodes())
    | st.tuples(st.sampled_from(["fire", "fire", "undo"]), st.integers(0, 1)),
    min_size=3,
    max_size=14,
)


@pytest.mark.sampled
@settings(max_examples=amount(4, full=12), deadline=None)
@given(STEPS)
def test_what_stands_does_not_depend_on_which_store_a_channel_has(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        together = asyncio.run(lived(Path(one), {}, steps))
        apart = asyncio.run(lived(Path(many), dict(OTHERS), steps))

    assert apart == together


async def test_each_store_holds_the_facts_of_its_channels_and_a_ledger_that_verifies(
    tmp_path: Path,
) -> None:
    async with estate(tmp_path, SETS) as home:
        await home.stores.memory.put_many([put("e1")])
        await home.fire(EVERYWHERE)
        await home.fire(ABROAD)

        assert await home.ids("facts.db") == ["e1"]
        assert await home.ids("work.db") == ["@notes/e1", "@work/e1"]
        assert await home.ids("home.db") == ["@home/e1"]
        for store in home.stores.facts.values():
            rows, _, broken = await store.verify()
            assert (rows > 0, broken) == (True, None)


async def test_lines_and_reports_name_their_store(tmp_path: Path) -> None:
    async with estate(tmp_path, SETS) as home:
        await home.stores.memory.put_many([put("e1")])

        answer = await home.operations.fire({"rules": ["everywhere"]}, ME)

        found = {report["store"]: list(report["channels"]) for report in answer["reports"]}
        assert found == {"facts.db": ["facts"], "work.db": ["work"], "home.db": ["home"]}
        lines = {name: [one.fact_id for one in log.lines if one.fact_id] for name, log in
                 home.logs.stores.items()}  # fmt: skip
        assert lines == {"facts.db": ["e1"], "work.db": ["@work/e1"], "home.db": ["@home/e1"]}


async def test_a_channel_that_moves_to_a_store_of_its_own_is_consolidated_from_the_beginning(
    tmp_path: Path,
) -> None:
    async with estate(tmp_path, [EVERYWHERE], {}) as home:
        await home.stores.memory.put_many([put("e1"), put("e2")])
        await home.fire(EVERYWHERE)

    async with estate(tmp_path, [EVERYWHERE], {"work": Path("work.db")}) as home:
        assert await home.branches.watermarks() == {}, "the rule is new in one of its stores"
        await home.branches.begin("everywhere", BEGINNING, served=START)
        await home.fire(EVERYWHERE)

        assert await home.ids("work.db") == ["@work/e2"], "of one key the newest stands"
        assert await home.marks() == {"facts.db": {"everywhere": 2}, "work.db": {"everywhere": 2}}


async def test_a_channel_that_moves_where_its_rule_has_been_is_filled_by_a_backfill(
    tmp_path: Path,
) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1")])
        await home.fire(EVERYWHERE)

    async with estate(tmp_path, [EVERYWHERE], {}) as home:
        await home.stores.memory.put_many([put("e2", timestamp=at(5))])
        await home.fire(EVERYWHERE)
        assert await home.ids("facts.db") == ["@home/e2", "@work/e2", "e2"]
        kept = len((await home.facts())[0].lineage)

        await home.operations.backfill({"rule": "everywhere"}, ME)

        assert len((await home.facts())[0].lineage) > kept, "the past is known there, too"


async def test_a_rule_is_due_where_it_lags_behind(tmp_path: Path) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.fire(EVERYWHERE)
        await home.stores.memory.put_many([put("e1")])
        ahead = next(iter(home.branches))
        await ahead.consolidator.fire(EVERYWHERE, "manual", home.clock.now())

        ((position, _),) = (await home.branches.watermarks()).values()

        assert (await home.marks())["facts.db"] == {"everywhere": 1}
        assert position.seq == 0


async def test_what_fails_in_one_store_does_not_stop_another_and_is_caught_up(
    tmp_path: Path,
) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.fire(EVERYWHERE)
        await home.stores.memory.put_many([put("e1")])
        _rename(tmp_path / "work.db", "slumberd_ledger", "gone")

        with pytest.raises(StoreError):
            await home.fire(EVERYWHERE)

        marks = await home.marks()
        assert marks["facts.db"] == marks["home.db"] == {"everywhere": 1}
        assert marks["work.db"] == {"everywhere": 0}

        _rename(tmp_path / "work.db", "gone", "slumberd_ledger")
        await home.fire(EVERYWHERE)
        assert [fact.id for fact in await home.facts()] == ["@home/e1", "@work/e1", "e1"]


def _rename(path: Path, table: str, name: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO {name}")


async def test_a_batch_that_waits_in_one_store_holds_no_other(tmp_path: Path) -> None:
    both = rule("both", then_emits=["facts", "work"], limits=Limits(max_deletes=0))
    only = rule("only")
    async with estate(tmp_path, [both, only]) as home:
        await home.stores.memory.put_many([put("e1")])
        await home.fire(only)
        gone = put("e2", what="e1", metadata={"intent": "delete"}, timestamp=at(5))
        await home.stores.memory.put_many([gone])

        (facts, work) = await home.branches.fire(both, "manual", home.clock.now())

        assert (facts.held is not None, work.held) == (True, None)
        assert await home.branches.held() == {}, "it goes on in a store"
        assert (await home.branches.watermarks())["both"][0].seq == 2


async def test_a_firing_id_that_two_stores_have_needs_a_channel(tmp_path: Path) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1")])
        answer = await home.operations.fire({"rules": ["everywhere"]}, ME)
        (firing_id,) = {id for report in answer["reports"] for id in report["firing_ids"]}

        with pytest.raises(UsageError, match=r"facts\.db and work\.db and home\.db .*--channel"):
            await home.operations.undo({"firing": firing_id}, ME)
        await home.operations.undo({"firing": firing_id, "channel": "notes"}, ME)

        assert [fact.id for fact in await home.facts()] == ["@home/e1", "e1"]


async def test_hands_go_to_the_store_of_the_fact(tmp_path: Path) -> None:
    said = {
        "user": "alice", "agent": "rag", "subject": "s", "predicate": "is", "object": 1,
        "reason": "so", "id": "p1", "channel": "work",
    }  # fmt: skip
    async with estate(tmp_path, SETS) as home:
        await home.operations.pin(said, ME)
        assert await home.ids("work.db") == ["@work/p1"]

        with pytest.raises(UsageError, match="one store at a time"):
            await home.operations.unpin({"facts": ["@work/p1", "e1"], "reason": "so"}, ME)
        await home.operations.unpin({"facts": ["@work/p1"], "reason": "so"}, ME)

        assert await home.facts() == []


async def test_forget_reaches_every_store(tmp_path: Path) -> None:
    async with estate(tmp_path, SETS) as home:
        canary = put("canary-1", user="canary-user", what="canary-what", content="canary-said")
        await home.stores.memory.put_many([canary, put("e1")])
        await home.operations.fire({"rules": None}, ME)
        pinned = {"user": "canary-user", "agent": "rag", "subject": "canary-s", "predicate": "is"}
        await home.operations.pin({**pinned, "object": 1, "reason": "so", "channel": "home"}, ME)

        certificate = await home.operations.forget({"user": "canary-user"}, ME)

        counts = {name: rows.get("facts") for name, rows in certificate["rows"].items()}
        assert counts == {"facts.db": 1, "work.db": 2, "home.db": 2, "memory.db": None}
        heads = {name: (await one.head()).head.hex() for name, one in home.stores.facts.items()}
        assert certificate["head_after"] == heads
        assert [fact.id for fact in await home.facts()] == [
            "@home/e1", "@notes/e1", "@work/e1", "e1",
        ]  # fmt: skip
        for store in home.stores.facts.values():
            assert (await store.verify())[2] is None
    for path in tmp_path.iterdir():
        assert b"canary" not in path.read_bytes(), path.name


async def test_a_backfill_reaches_every_store_of_its_rule(tmp_path: Path) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1")])
        answer = await home.operations.fire({"rules": ["everywhere"]}, ME)
        firing_id = answer["reports"][0]["firing_ids"][0]
        for channel in ("facts", "work", "home"):
            await home.operations.undo({"firing": firing_id, "channel": channel}, ME)
        assert await home.facts() == []

        filled = await home.operations.backfill({"rule": "everywhere"}, ME)

        assert [report["store"] for report in filled["reports"]] == list(home.stores.facts)
        assert [fact.id for fact in await home.facts()] == ["@home/e1", "@work/e1", "e1"]


async def test_the_quarantine_of_every_store_is_retried_and_dropped(tmp_path: Path) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1", metadata={"intent": "shout"})])
        await home.operations.fire({"rules": ["everywhere"]}, ME)

        retried = await home.operations.retry({"rules": ["everywhere"]}, ME)
        dropped = await home.operations.drop({"all": True}, ME)

        assert [
            counts["read"]
            for report in retried["reports"]
            for counts in report["channels"].values()
        ] == [1, 1, 1]
        assert dropped == {"dropped": 3}


async def test_a_dry_run_covers_every_store(tmp_path: Path) -> None:
    async with estate(tmp_path, [EVERYWHERE]) as home:
        await home.stores.memory.put_many([put("e1")])
        dry = await home.operations.fire({"rules": ["everywhere"], "dry_run": True}, ME)
        home.clock.advance(timedelta(minutes=1).total_seconds())
        done = await home.operations.fire({"rules": ["everywhere"]}, ME)

        assert [len(report["firing_ids"]) for report in done["reports"]] == [1, 1, 1]
        assert [len(report["deltas"]) for report in dry["reports"]] == [1, 1, 1]

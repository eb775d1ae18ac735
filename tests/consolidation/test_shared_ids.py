"""Two users under one id: an edit by one of them does not change the facts of the other."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from slumberd.model.episode import Episode
from slumberd.model.errors import UsageError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Limits
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.writes.erasures import ForgetForm
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

ME = Caller.of_user(1, 1)


@pytest_asyncio.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    async with open_stores(provider) as home:
        yield home


def of_ann(id: str = "e0", what: str = "tea", **overrides: Any) -> Episode:
    return triple(id, "ann", "drinks", what, **{"user": "ann"} | overrides)


def of_bob(id: str = "e0", what: str = "milk", **overrides: Any) -> Episode:
    return triple(id, "bob", "drinks", what, **{"user": "bob"} | overrides)


def unreadable(id: str = "e0") -> Episode:
    return of_ann(id, metadata={"intent": "shout"})


def operations(home: OpenStores) -> Operations:
    return home.operations(rule("all"), clock=FakeClock(at(60)))


async def pin_for_bob(home: OpenStores, id: str = "e0") -> None:
    payload = {"subject": "bob", "predicate": "is", "object": "pinned"}
    await home.facts.pin(
        Fact(
            id=id, user="bob", agent="rag", payload=payload, lineage=[{"by": "a person"}],
            confidence=1.0, pinned_at=START,
        )
    )  # fmt: skip


async def undo(home: OpenStores, firing_id: str) -> str:
    done = await home.facts.ledger.undo(firing_id, at=at(30), by="me", dry_run=False)
    return done.firing_id


async def forget(home: OpenStores, user: str, **scope: Any) -> dict[str, Any]:
    return await operations(home).erasures.forget(ForgetForm(user=user, **scope), ME)


async def facts_of(home: OpenStores, user: str) -> list[dict[str, Any]]:
    return [fact.model_dump() for fact in await home.facts.query(FactPattern(user=user))]


async def is_sound(home: OpenStores) -> bool:
    return (await home.facts.verify())[2] is None


def prune(folder: Path, id: str = "e0") -> None:
    """Delete an episode without slumberd, as a host does."""
    with closing(sqlite3.connect(folder / "memory.db")) as host, host:
        assert host.execute("DELETE FROM episodes WHERE id = ?", (id,)).rowcount == 1


def select_facts(folder: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "facts.db")) as facts:
        return facts.execute(sql).fetchall()


def rows_of(folder: Path, text: str) -> list[int]:
    """Return the numbers of the ledger's rows whose payload contains a text."""
    found = select_facts(
        folder, "SELECT seq, payload FROM slumberd_ledger WHERE payload IS NOT NULL"
    )
    return [seq for seq, payload in found if text.encode() in payload]


@pytest.mark.slow
@ON_FILES
async def test_erasure_of_a_quarantined_owner_keeps_a_fact_pinned_under_the_id(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(unreadable())
    await home.fire()
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    certificate = await forget(home, "ann")

    assert await facts_of(home, "bob") == before != []
    assert certificate["rows"]["facts"]["facts"] == 0
    assert rows_of(tmp_path, "ann") == []
    assert rows_of(tmp_path, "pinned")
    assert await is_sound(home)


@pytest.mark.slow
@ON_FILES
async def test_erasure_of_the_owner_of_a_pruned_episode_keeps_the_episode_of_another_user(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(unreadable())
    await home.fire()
    prune(tmp_path)
    await home.put(of_bob())
    await home.fire()
    before = await facts_of(home, "bob")

    await forget(home, "ann")

    assert await facts_of(home, "bob") == before != []
    assert (await home.fire()).firing_ids == []
    assert select_facts(tmp_path, "SELECT eid FROM slumberd_watermark") == [("e0",)]
    assert await is_sound(home)


@pytest.mark.slow
@ON_FILES
async def test_erasure_of_the_owner_of_an_undone_firing_keeps_a_fact_pinned_under_the_id(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(of_ann())
    await home.fire()
    await undo(home, "all@1")
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    await forget(home, "ann")

    assert await facts_of(home, "bob") == before != []
    assert rows_of(tmp_path, "ann") == []
    assert select_facts(tmp_path, "SELECT DISTINCT key FROM slumberd_keys") == [
        ("bob/rag/facts/bob/is",)
    ]
    assert await is_sound(home)


@pytest.mark.slow
async def test_erasure_of_a_session_keeps_the_facts_of_another_user_with_the_same_ids(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(unreadable(), of_ann("e1", session="s2"))
    await home.fire()
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    await forget(home, "ann", session="s1")

    assert await facts_of(home, "bob") == before != []
    assert [fact["id"] for fact in await facts_of(home, "ann")] == ["e1"]
    assert await is_sound(home)


@pytest.mark.slow
@ON_FILES
async def test_erasure_keeps_the_delete_by_another_user_of_the_same_id(
    home: OpenStores, tmp_path: Path
) -> None:
    naming = of_bob("e1", "milk", timestamp=at(9), metadata={"intent": "delete", "replaces": "e0"})
    await home.put(unreadable(), naming)
    await home.fire()
    prune(tmp_path)

    await forget(home, "ann")
    await home.put(of_bob("e0", timestamp=at(1)))
    await home.fire()

    assert await facts_of(home, "bob") == []
    assert await is_sound(home)


@pytest.mark.slow
@ON_FILES
async def test_log_row_of_another_user_is_not_read_again_when_an_id_was_shared(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(unreadable())
    await home.fire()
    prune(tmp_path)
    await home.put(of_bob())
    await home.fire()

    await forget(home, "ann")

    assert await home.facts.watermarks.batch_ends("all") != []
    assert select_facts(tmp_path, "SELECT upto_eid FROM slumberd_firings ORDER BY n") == [
        ("e0",), ("e0",), ("",)
    ]  # fmt: skip
    await home.fire()
    assert select_facts(tmp_path, "SELECT count(*) FROM slumberd_generations") == [(0,)]


async def test_undo_of_an_undo_does_not_give_one_id_to_two_users(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(of_ann())
    await home.fire()
    undoing = await undo(home, "all@1")
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    done = await home.facts.ledger.undo(undoing, at=at(40), by="me", dry_run=False)

    assert [(record.kind, record.reason) for record in done.records[1:]] == [
        ("quarantine", "id_taken")
    ]
    assert await facts_of(home, "bob") == before
    assert await facts_of(home, "ann") == []
    assert await is_sound(home)
    assert (await home.facts.replay(tmp_path / "again.db")).differing == 0
    quarantined = await home.facts.reads.quarantine()
    assert [(row["rule_id"], row["episode_id"], row["reason"]) for row in quarantined] == [
        ("all", "e0", "id_taken")
    ]


async def test_retry_restores_the_claim_that_an_undo_could_not_restore_when_the_id_is_free(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(of_ann())
    await home.fire()
    undoing = await undo(home, "all@1")
    await pin_for_bob(home)
    pinning = (await home.facts.reads.records())[-1].firing_id
    await undo(home, undoing)

    await undo(home, pinning)
    await home.consolidator.retry(rule("all"), at(50), by="me")

    assert [fact["id"] for fact in await facts_of(home, "ann")] == ["e0"]
    assert await home.facts.reads.quarantine() == []
    assert await is_sound(home)
    assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


@pytest.mark.slow
async def test_undoing_a_withdrawal_does_not_take_an_id_back_from_another_user(
    home: OpenStores, tmp_path: Path
) -> None:
    picky = rule("all", when_filter="object = 'tea'")
    await home.put(of_ann())
    await home.fire(picky)
    await home.put(of_ann(what="juice"))
    withdrawing = (await home.fire(picky)).firing_ids[0]
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    done = await home.facts.ledger.undo(withdrawing, at=at(40), by="me", dry_run=False)

    assert [(record.kind, record.reason) for record in done.records[1:]] == [
        ("quarantine", "id_taken")
    ]
    assert await facts_of(home, "bob") == before
    assert await is_sound(home)
    assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_a_backfill_does_not_take_an_id_back_from_another_user(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(of_ann())
    await home.fire()
    await undo(home, "all@1")
    await pin_for_bob(home)
    before = await facts_of(home, "bob")

    await home.consolidator.backfill(rule("all"), at(40), by="me")

    assert await facts_of(home, "bob") == before
    assert [row["reason"] for row in await home.facts.reads.quarantine()] == ["id_taken"]
    assert await is_sound(home)


async def test_restoring_an_undone_pin_does_not_take_an_id_back_from_an_episode(
    home: OpenStores, tmp_path: Path
) -> None:
    await pin_for_bob(home)
    undoing = await undo(home, (await home.facts.reads.records())[0].firing_id)
    await home.put(of_ann())
    await home.fire()
    before = await facts_of(home, "ann")

    await undo(home, undoing)

    assert await facts_of(home, "ann") == before != []
    assert await facts_of(home, "bob") == []
    assert await is_sound(home)


async def test_why_explains_a_formerly_shared_id_for_one_user_only(home: OpenStores) -> None:
    await home.put(of_ann())
    await home.fire()
    await undo(home, "all@1")
    await pin_for_bob(home)

    explanation = await home.facts.why("e0")

    assert b"ann" not in orjson.dumps(explanation, default=str)


@pytest.mark.slow
@ON_FILES
async def test_erasure_leaves_no_trace_of_a_filtered_episode_that_took_over_an_id(
    home: OpenStores, tmp_path: Path
) -> None:
    """Two rules: the slow one still knows ann's first version when the id has no holder."""
    slow, quick = (
        rule("slow", when_filter="object = 'tea'"),
        rule("quick", when_filter="object = 'tea'"),
    )
    await home.put(of_ann())
    await home.fire(slow)
    await home.fire(quick)
    await home.put(of_ann(what="juice"))
    await home.fire(quick)
    prune(tmp_path)
    await home.put(of_bob())
    await home.fire(slow)
    assert rows_of(tmp_path, "bob")

    await forget(home, "bob")

    assert rows_of(tmp_path, "bob") == []
    assert await is_sound(home)


async def test_undo_of_a_firing_removes_its_episodes_from_quarantine(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(unreadable("e1"))
    await home.fire()
    await home.put(unreadable("e2"))
    second = (await home.fire()).firing_ids[0]

    await undo(home, second)

    assert [row["episode_id"] for row in await home.facts.reads.quarantine()] == ["e1"]


async def test_undo_restores_the_fact_of_a_quarantined_episode(home: OpenStores) -> None:
    await home.put(of_ann())
    await home.fire()
    await home.put(unreadable())
    second = (await home.fire()).firing_ids[0]
    assert await facts_of(home, "ann") == []

    await undo(home, second)

    assert [fact["payload"]["object"] for fact in await facts_of(home, "ann")] == ["tea"]
    await home.consolidator.backfill(rule("all"), at(50), by="me")
    assert [row["episode_id"] for row in await home.facts.reads.quarantine()] == ["e0"]
    assert await is_sound(home)


@pytest.mark.slow
async def test_erasure_keeps_the_end_of_a_held_batch_at_the_episode_of_another_user(
    provider: Provider,
) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=0)) as home:
        await home.put(of_ann("a"), of_bob("b"))
        await home.fire()
        gone = of_bob("c", timestamp=at(9), metadata={"intent": "delete", "replaces": "b"})
        await home.put(gone)
        await home.fire()
        assert (await home.facts.watermarks.held())["all"].upto == (3, "c")

        await forget(home, "ann")
        unchanged = (await home.facts.watermarks.held())["all"].upto
        await forget(home, "bob")

        assert (unchanged, (await home.facts.watermarks.held())["all"].upto) == ((3, "c"), (3, ""))


@pytest.mark.slow
@ON_FILES
async def test_erasure_of_one_user_keeps_a_row_of_another_user_that_a_program_changed(
    home: OpenStores, tmp_path: Path
) -> None:
    await home.put(of_ann(), of_bob("b"))
    await home.fire()
    with closing(sqlite3.connect(tmp_path / "facts.db")) as facts, facts:
        facts.execute("UPDATE facts SET confidence = 0.25 WHERE user = 'bob'")

    await forget(home, "ann")
    await home.fire()

    assert [fact["confidence"] for fact in await facts_of(home, "bob")] == [0.25]
    assert await is_sound(home)


@pytest.mark.parametrize("number", ["9" * 19, "9" * 18, "-1", "1e3"])
async def test_undo_refuses_an_impossible_firing_id(home: OpenStores, number: str) -> None:
    await home.put(of_ann())
    await home.fire()

    with pytest.raises(UsageError, match="no firing"):
        await undo(home, f"all@{number}")

"""Delta lines contain user and agent, also when written late, but not after an erasure."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.logs.output import configure
from slumberd.model.episode import Episode, microseconds
from slumberd.model.fact import Fact
from slumberd.model.firing import Firing, Outcome, Position, Record
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, rule, triple, version
from tests.support.cli_runner import restored_logging
from tests.support.daemons import Home
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.integration

LATER = at(10**6)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteFactStore]:
    async with SQLiteFactStore(tmp_path / "facts.db", clock=FakeClock(LATER)) as facts:
        await facts.bootstrap()
        yield facts


async def fire(store: SQLiteFactStore, name: str, *episodes: Episode) -> Outcome:
    """Let a rule evaluate episodes, numbered in their order."""
    versions = [
        version(seq=number, **(given.model_dump() | {"timestamp": given.timestamp}))
        for number, given in enumerate(episodes, 1)
    ]
    end = Position(len(versions), versions[-1].id)
    firing = Firing(name, "", "manual", START, Position(), end)
    return await store.apply_deltas(DeltaBatch(firing, evaluate(versions, rule(name))))


def given_episodes() -> list[Episode]:
    return [
        triple("e1", "alice", "likes", "tea", user="al/ice%", timestamp=at(0)),
        triple("e2", "alice", "likes", "mate", user="al/ice%", timestamp=at(1)),
        triple("b1", "bob", "likes", "tea", user="bob", agent="other", timestamp=at(2)),
        triple("p1", "bob", "is", "here", user="bob", timestamp=at(2)),
        episode("n1", user="bob", metadata={"intent": "noop"}, timestamp=at(3)),
        episode("q1", user="bob", metadata={"intent": "?"}, timestamp=at(4)),
    ]


def deletion(predicate: str, object_: str) -> dict[str, str]:
    """Return the metadata of an episode that deletes by a key and its object."""
    return {"intent": "delete", "subject": "alice", "predicate": predicate, "object": object_}


async def test_fact_id_of_a_delete_is_the_deleted_fact_and_its_episode_is_a_source(
    store: SQLiteFactStore,
) -> None:
    outcome = await fire(
        store,
        "one",
        triple("e1", "alice", "drinks", "tea", timestamp=at(0)),
        episode("d1", metadata=deletion("drinks", "tea"), timestamp=at(1)),
        triple("e2", "alice", "lives_in", "Bonn", timestamp=at(2)),
        episode("d2", metadata={"intent": "delete", "replaces": "e2"}, timestamp=at(3)),
        triple("e3", "alice", "eats", "rice", timestamp=at(4)),
        episode("d3", metadata=deletion("eats", "soup"), timestamp=at(5)),
    )
    stream = io.BytesIO()
    with restored_logging():
        logs = configure("json", "info", stream, terminal=False, now=lambda: LATER)
        logs.applied(outcome.records)

    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    deletes = [line for line in lines if line["kind"] == "delete"]
    assert [(one["fact_id"], one["replaces"], one["source_episode_ids"]) for one in deletes] == [
        ("e1", ["e1"], ["d1"]),
        ("e2", ["e2"], ["d2"]),
    ]
    assert {one["fact_id"] for one in lines if one["kind"] != "delete"} >= {"e1", "e2", "e3", "d3"}


async def create_rows(store: SQLiteFactStore) -> list[Record]:
    """Create ledger rows of every kind; return their records in order."""
    mine = Fact(
        id="p1", user="al/ice%", agent="rag",
        payload={"subject": "s", "predicate": "p", "object": 1},
        lineage=[{"by": "me"}], confidence=1.0, pinned_at=START,
    )  # fmt: skip
    await store.pin(mine)
    pinned = await store.watermarks.unlogged(limit=9)
    fired = await fire(store, "one", *given_episodes())
    known = await fire(store, "one", *given_episodes())
    again = await fire(store, "two", *given_episodes())
    undone = await store.ledger.undo(fired.firing_id, at=LATER, by="me", dry_run=False)
    both = await store.ledger.undo(again.firing_id, at=LATER, by="me", dry_run=False)
    back = await store.ledger.undo(both.firing_id, at=LATER, by="me", dry_run=False)
    await store.unpin("p1")
    outcomes = [fired, known, again, undone, both, back]
    return [*pinned, *(record for outcome in outcomes for record in outcome.records)]


def owners(records: Iterable[Record]) -> dict[int, tuple[str, str]]:
    return {
        record.seq: (record.user, record.agent) for record in records if record.kind != "firing"
    }


def rows_without_owner(records: Iterable[Record]) -> set[int]:
    """Return the rows that undo a quarantine; they have no owner."""
    return {
        record.seq for record in records if record.fact_id == "q1" and record.reason == "undone"
    }


@pytest.mark.slow
async def test_rows_contain_user_and_agent_at_commit_and_when_read_again(
    store: SQLiteFactStore,
) -> None:
    records = await create_rows(store)

    read = await store.watermarks.unlogged(limit=1_000)

    assert read[: len(records)] == records
    known = {owner for seq, owner in owners(read).items() if seq not in rows_without_owner(read)}
    assert known == {("al/ice%", "rag"), ("bob", "other"), ("bob", "rag")}
    assert {record.reason for record in records} >= {
        "known",
        "intent_unknown",
        "id_taken",
        "undone",
    }


@pytest.mark.slow
async def test_rows_that_are_erased_before_they_are_logged_contain_no_user(
    store: SQLiteFactStore,
) -> None:
    await create_rows(store)

    await store.erasures.forget(
        ScopeFilter.of("al/ice%", None, None), moment=microseconds(LATER), at=LATER, by="me",
        dry_run=False,
    )  # fmt: skip

    left = await store.watermarks.unlogged(limit=1_000)
    assert {user for user, _ in owners(left).values()} == {"", "bob"}
    assert not [record for record in left if "e1" in (record.fact_id, *record.replaces)]


async def test_scope_key_is_stable_and_differs_between_stores(
    store: SQLiteFactStore, tmp_path: Path
) -> None:
    first = await store.transactions.scope_key()
    async with SQLiteFactStore(tmp_path / "other.db") as other:
        await other.bootstrap()
        foreign = await other.transactions.scope_key()
    await store.close()

    assert await store.transactions.scope_key() == first != foreign
    assert len(first) == 16


def fired_lines(home: Home) -> list[dict[str, Any]]:
    home.rule("all", cadence={"every": 1})
    tea = triple("e1", "alice", "likes", "tea")

    async def put() -> None:
        async with SQLiteMemoryStore(home.state / "memory.db") as memory:
            await memory.put(tea, user=tea.user, session=tea.session, agent=tea.agent)

    home.state.mkdir()
    asyncio.run(put())
    done = home.call("fire", "all", "--verbose")
    lines = [orjson.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "delta.applied"]


@pytest.mark.slow
def test_delta_lines_contain_user_agent_and_firing_instant(tmp_path: Path) -> None:
    [line] = fired_lines(Home(tmp_path))

    assert (line["user"], line["agent"]) == ("alice", "rag")
    assert line["promotion_ts"].endswith("Z")


@pytest.mark.parametrize(("scope", "kind"), [("hashed", str), ("none", type(None))])
def test_scope_setting_keeps_names_out_of_the_log(tmp_path: Path, scope: str, kind: type) -> None:
    [line] = fired_lines(Home(tmp_path, {"logging": {"format": "json", "scope": scope}}))

    assert {type(line["user"]), type(line["agent"])} == {kind}
    assert "alice" not in line.values()

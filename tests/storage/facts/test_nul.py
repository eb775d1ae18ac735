"""A NUL in a text: SQLite's JSON may end the text there, and so confuse two owners."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from slumberd.model.delta import UpdateDelta
from slumberd.model.errors import InputError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

BODY = {"subject": "s", "predicate": "is", "object": "a"}


def fact(id: str, user: str) -> Fact:
    return Fact(
        id=id,
        user=user,
        agent="rag",
        payload=BODY,
        lineage=[{"by": "me"}],
        confidence=1.0,
        pinned_at=START,
    )


def delta(id: str, *replaces: str) -> UpdateDelta:
    return UpdateDelta(
        kind="update",
        fact_payload={"id": id, "user": "bob", "agent": "rag", **BODY},
        replaces=list(replaces),
        source_episode_ids=["b1"],
        rule_id="r",
        promotion_ts=START,
        confidence=1.0,
    )


@pytest.mark.parametrize("bad", ["e1\0", "e1\ud800"], ids=["nul", "no text"])
async def test_manual_edit_refuses_an_id_that_contains_nul(tmp_path: Path, bad: str) -> None:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as facts:
        await facts.bootstrap()
        await facts.pin(fact("e1", "alice"))

        for refused in (facts.pin(fact(bad, "bob")), facts.pin(fact("b1", bad))):
            with pytest.raises(InputError, match="contains NUL or invalid Unicode"):
                await refused
        for invalid in (delta(bad, "b0"), delta("b1", bad)):
            with pytest.raises(InputError, match="contains NUL or invalid Unicode"):
                await facts.apply_delta(invalid)

        await facts.erasures.forget(
            ScopeFilter("bob", None, None), moment=1, at=START, by="", dry_run=False
        )
        assert (await facts.why("e1")).assertions


async def test_key_that_contains_nul_is_the_same_key_in_every_batch(provider: Provider) -> None:
    async with open_stores(provider) as there:
        for n, predicate in enumerate(["is\0here", "is", "is\0here"]):
            await there.put(triple(f"e{n}", "s", predicate, n, timestamp=at(n)))
            await there.fire()

        assert await there.objects() == {"e1": 1, "e2": 2}


async def test_reference_that_contains_nul_names_no_episode(provider: Provider) -> None:
    fired = rule("all")
    refers = triple("e2", "s", "is", "b", metadata={"intent": "update", "replaces": ["e\0", "e1"]})
    async with provider.memory() as memory, provider.facts() as facts:
        await facts.bootstrap()
        for episodes in ([triple("e1", "t", "is", "a")], [refers], [triple("e3", "u", "is", "c")]):
            await memory.put_many(episodes)
            window = await facts.next_window(fired.id)
            await facts.apply_deltas(await memory.consolidate(fired, window=window))

        assert {fact.id for fact in await facts.query(FactPattern())} == {"e2", "e3"}
        assert (await facts.why("e2")).assertions
        _, _, broken = await facts.verify(())
        assert broken is None


async def test_ledger_with_a_stored_reference_that_contains_nul_verifies(tmp_path: Path) -> None:
    refers = triple("e2", "s", "is", "b", metadata={"intent": "update", "replaces": ["e\0"]})
    async with open_stores(tmp_path) as there:
        await there.put(refers)
        await there.fire()
        with closing(sqlite3.connect(tmp_path / "facts.db")) as connection, connection:
            connection.execute("INSERT INTO slumberd_references VALUES (?, ?)", ("e\0", "e2"))

        _, _, broken = await there.facts.verify(())

        assert broken is None


async def test_episode_of_another_program_whose_id_contains_nul_is_quarantined(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as there:
        await there.put(triple("e1", "s", "is", "here"))
        scope = {"user": "bob", "session": "s1", "agent": "rag"}
        content = orjson.dumps({"content": "x", "source_node": "chat", **scope})
        row = ("e1\0", "/user/bob/session/s1/agent/rag/", content, START.isoformat(), b"{}")
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection, connection:
            connection.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)

        await there.fire()

        [entry] = await there.facts.reads.quarantine()
        assert (entry["episode_id"], entry["reason"]) == ("e1\\x00", "id_unusable")
        assert entry["detail"] == "the id is a text that holds NUL"
        assert await there.objects() == {"e1": "here"}

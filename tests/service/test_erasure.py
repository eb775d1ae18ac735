"""Erasing a scope: nothing of it is left, nothing brings it back, and nobody else notices."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.errors import ForgottenError
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact
from slumberd.service.control_socket import Peer
from slumberd.service.operations import Operations
from slumberd.service.requests import ForgetForm
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.open_stores import OpenStores, open_stores

pytestmark = pytest.mark.integration

CANARY = "canary-7f3a"


def canary(id: str, what: str = "tea", **overrides: Any) -> Episode:
    """Return an episode whose every part sings."""
    fields: dict[str, Any] = {
        "user": f"{CANARY}-user", "agent": f"{CANARY}-agent", "session": f"{CANARY}-session",
        "content": f"{CANARY} said something", "source_node": f"{CANARY}-node",
        "metadata": {"secret": CANARY},
    }  # fmt: skip
    fields |= overrides
    return triple(f"{CANARY}-{id}", f"{CANARY}-subject", "likes", f"{CANARY}-{what}", **fields)


def operations(home: OpenStores) -> Operations:
    return home.operations(rule("all"), clock=FakeClock(at(60)))


async def forget(home: OpenStores, user: str = f"{CANARY}-user", **request: Any) -> dict[str, Any]:
    return await operations(home).forget(ForgetForm(user=user, **request), Peer(7, 7, 7))


def singing(folder: Path) -> list[str]:
    """Return the files of a directory in which the canary is still heard."""
    return sorted(
        file.name
        for file in folder.rglob("*")
        if file.is_file() and CANARY.encode() in file.read_bytes()
    )


OTHER = triple("other", "bob", "likes", "tea", user="bob")


async def live(home: OpenStores) -> None:
    """Let the canary leave traces wherever there can be some."""
    await home.put(canary("1"), canary("2", "milk", timestamp=at(1)), OTHER)
    await home.fire()
    await home.put(canary("1", "juice", timestamp=at(2)))
    await home.fire()
    odd = canary("3", timestamp=at(3), metadata={"intent": "shout"})
    taken = canary("4", timestamp=at(3), metadata={"intent": "delete", "replaces": [f"{CANARY}-2"]})
    await home.put(odd, taken)
    await home.fire()
    pinned = Fact(
        id=f"{CANARY}-pin", user=f"{CANARY}-user", agent=f"{CANARY}-agent", pinned_at=START,
        payload={"subject": CANARY, "predicate": "is", "object": CANARY},
        lineage=[{"kind": "hand", "source_id": CANARY}], confidence=1.0,
    )  # fmt: skip
    await home.facts.pin(pinned)
    await home.facts.unpin(f"{CANARY}-pin")
    fired = await home.facts.watermarks.batch_ends("all")
    assert len(fired) == 3
    await home.facts.ledger.undo("all@1", at=at(50), by="me", dry_run=False)


async def test_nothing_of_a_forgotten_user_is_found_in_any_file(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await live(home)
        assert singing(tmp_path)

        certificate = await forget(home)

        assert singing(tmp_path) == []
        assert certificate["rows"]["memory.db"]["episodes"] == 4
        assert certificate["rows"]["facts.db"]["slumberd_ledger"] > 8
        assert certificate["write_ahead_log_emptied"] == {"facts.db": True, "memory.db": True}
        assert await home.facts.reads.quarantine() == []
        _, head, broken = await home.facts.verify()
        assert broken is None
        assert head == certificate["head_after"] != certificate["head_before"]
    assert singing(tmp_path) == []


async def test_an_episode_that_no_rule_selected_leaves_no_mark_behind(tmp_path: Path) -> None:
    picky = rule("picky", when_filter="source_node = 'chat'")
    async with open_stores(tmp_path) as home:
        await home.put(OTHER, canary("1"))
        await home.fire(rule("all"))
        await home.fire(picky)
        await home.put(canary("2", timestamp=at(1)))
        await home.fire(picky)

        await forget(home)

        assert singing(tmp_path) == []
        await home.fire(picky)
        assert generations(tmp_path) == 0


def generations(folder: Path) -> int:
    """Return how often a rule found that the log is no longer the one that it had read."""
    with closing(sqlite3.connect(folder / "facts.db")) as facts:
        return int(facts.execute("SELECT count(*) FROM slumberd_generations").fetchone()[0])


async def test_what_a_rewritten_page_still_held_goes_too(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"), OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as foreign:
            foreign.execute("PRAGMA secure_delete = OFF")
            foreign.execute("DELETE FROM episodes WHERE id LIKE 'canary%'")
            foreign.commit()
        assert "memory.db" in " ".join(singing(tmp_path))

        await forget(home)

        assert singing(tmp_path) == []


async def test_nobody_else_notices(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await live(home)
        await home.put(triple("x", "bob", "lives_in", "Porto", user=f"{CANARY}-use"))
        await home.fire()
        before = {id: what for id, what in (await home.objects()).items() if CANARY not in id}

        await forget(home)

        assert await home.objects() == before
        assert [episode.id for episode in await home.memory.recent("bob", limit=9)] == ["other"]


async def test_the_same_again_is_refused_and_what_is_newer_is_not(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"))
        await home.fire()
        await forget(home)

        with pytest.raises(ForgottenError, match="erasure"):
            await home.put(canary("1"))
        with pytest.raises(ForgottenError, match="erasure"):
            await home.memory.put(
                canary("9"), user=f"{CANARY}-user", session=f"{CANARY}-session",
                agent=f"{CANARY}-agent",
            )  # fmt: skip
        await home.put(canary("new", timestamp=at(61)))
        await home.fire()

        assert list(await home.objects()) == [f"{CANARY}-new"]


async def test_what_another_program_puts_back_is_met_without_a_word(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"), OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as foreign:
            (row,) = foreign.execute("SELECT * FROM episodes WHERE id LIKE 'canary%'").fetchall()
        await forget(home)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as foreign:
            foreign.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)
            foreign.commit()

        report = await home.fire()
        await home.consolidator.backfill(rule("all"), at(70), by="me")

        assert report.channels["facts"].noop == 1
        assert list(await home.objects()) == ["other"]
        met = [one for one in await home.facts.reads.records() if one.reason == "forgotten"]
        assert [(one.kind, one.fact_id) for one in met] == [("noop", "")] * 2
        assert (await home.facts.verify())[2] is None


async def test_a_session_takes_its_acts_with_it_and_what_they_covered_stands_again(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(
            triple("old", "alice", "drinks", "tea", session="s1"),
            triple("new", "alice", "drinks", "milk", session="s2", timestamp=at(1)),
            triple("kept", "alice", "lives_in", "Porto", session="s1"),
            triple(
                "gone", "alice", "lives_in", None, session="s2", timestamp=at(2),
                metadata={"intent": "delete"},
            ),
        )  # fmt: skip
        await home.fire()
        assert await home.objects() == {"new": "milk"}

        certificate = await forget(home, "alice", session="s2")

        assert await home.objects() == {"old": "tea", "kept": "Porto"}
        assert sorted(certificate["stand_again"]) == ["kept", "old"]
        assert (await home.facts.verify())[2] is None


async def test_what_another_program_wrote_into_the_facts_goes_too(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "facts.db")) as foreign:
            payload = json.dumps({"subject": CANARY, "predicate": "is", "object": CANARY}).encode()
            foreign.execute(
                "INSERT INTO facts VALUES (?, ?, ?, ?, ?, 1.0, ?, ?)",
                (
                    f"{CANARY}-f", f"{CANARY}-user", "rag", payload,
                    b'[{"kind": "fathom"}]', b"{}", START.isoformat(),
                ),
            )  # fmt: skip
            foreign.commit()

        await forget(home)

        assert singing(tmp_path) == []
        assert list(await home.objects()) == ["other"]
        assert (await home.facts.verify())[2] is None


async def test_a_replay_of_the_ledger_brings_nothing_back(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await live(home)
        await forget(home)

        replayed = await home.facts.reads.replay(tmp_path / "again.db")

        assert replayed.differing == 0
        assert singing(tmp_path) == []


async def test_an_agent_is_forgotten_and_the_others_of_the_user_are_not(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(
            triple("a", "alice", "drinks", "tea", agent="rag"),
            triple("b", "alice", "drinks", "milk", agent="bot"),
        )
        await home.fire()

        await forget(home, "alice", agent="rag")

        assert await home.objects() == {"b": "milk"}
        assert [episode.id for episode in await home.memory.recent("alice", limit=9)] == ["b"]


async def test_rules_go_on_where_they_were(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(OTHER, canary("1"))
        await home.fire()
        await forget(home)
        await home.put(triple("later", "bob", "drinks", "tea", user="bob"))

        report = await home.fire()

        assert report.channels["facts"].read == 1


async def test_a_dry_run_erases_nothing(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await live(home)
        before = await home.facts.reads.records()

        certificate = await forget(home, dry_run=True)

        assert certificate["rows"]["memory.db"] == {"episodes": 4}
        assert await home.facts.reads.records() == before
        assert len(await home.memory.recent(f"{CANARY}-user", limit=9)) == 4


@pytest.mark.parametrize("running", [False, True])
def test_the_command_prints_a_certificate(tmp_path: Path, *, running: bool) -> None:
    site = Installation(tmp_path)
    site.config.write_text("state_dir: state\nrules_dir: rules.d\n")
    site.put(canary("1"), OTHER)
    assert site.call("fire", "profile").returncode == 0
    asked = ["forget", "--user", f"{CANARY}-user"]

    refused = site.run(*asked)
    if running:
        with site.daemon():
            done = site.call(*asked, "--yes")
    else:
        done = site.call(*asked, "--yes")

    assert (refused.returncode, "--yes" in refused.stderr) == (64, True)
    certificate = json.loads(done.stdout)
    assert certificate["rows"]["facts.db"]["facts"] == 1
    assert certificate["scope"] == {"user": f"{CANARY}-user", "session": None, "agent": None}
    assert singing(site.state) == []
    again = site.look("import", str(site.config.with_name("put.jsonl")))
    assert again.returncode == 65
    assert "erasure of its scope" in again.stderr
    assert site.call("audit", "verify").returncode == 0

"""An erasure removes every trace of a scope, which nothing restores; other scopes do not change."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.logs.lines import timestamp
from slumberd.model.episode import Episode
from slumberd.model.errors import ForgottenError
from slumberd.model.fact import Fact
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.writes.erasures import ForgetForm
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

CANARY = "canary-7f3a"


def canary(id: str, what: str = "tea", **overrides: Any) -> Episode:
    """Return an episode whose every part contains the canary."""
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
    return await operations(home).erasures.forget(
        ForgetForm(user=user, **request), Caller.of_user(7, 7)
    )


def files_with_canary(folder: Path) -> list[str]:
    """Return the names of the files of a directory that contain the canary."""
    return sorted(
        file.name
        for file in folder.rglob("*")
        if file.is_file() and CANARY.encode() in file.read_bytes()
    )


OTHER = triple("other", "bob", "likes", "tea", user="bob")


async def leave_traces(home: OpenStores) -> None:
    """Write the canary wherever slumberd stores something."""
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
        lineage=[{"kind": "manual", "source_id": CANARY}], confidence=1.0,
    )  # fmt: skip
    await home.facts.pin(pinned)
    await home.facts.unpin(f"{CANARY}-pin")
    fired = await home.facts.watermarks.batch_ends("all")
    assert len(fired) == 3
    await home.facts.ledger.undo("all@1", at=at(50), by="me", dry_run=False)


@pytest.mark.slow
async def test_no_file_contains_anything_of_an_erased_user(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await leave_traces(home)
        assert files_with_canary(tmp_path)

        certificate = await forget(home)

        assert files_with_canary(tmp_path) == []
        assert certificate["rows"]["episodes"]["episodes"] == 4
        assert certificate["rows"]["facts"]["slumberd_ledger"] > 8
        assert certificate["write_ahead_log_emptied"] == {"facts": True, "episodes": True}
        assert list(certificate["rewritten"]) == ["facts", "episodes"]
        assert (certificate["pending"], certificate["bytes_gone_at"]) == ({}, timestamp(at(60)))
        assert await home.facts.reads.quarantine() == []
        _, head, broken = await home.facts.verify()
        assert broken is None
        assert head == certificate["head_after"] != certificate["head_before"]
    assert files_with_canary(tmp_path) == []


@pytest.mark.slow
async def test_erasure_removes_an_unselected_episode_from_the_watermarks(tmp_path: Path) -> None:
    picky = rule("picky", when_filter="source_node = 'chat'")
    async with open_stores(tmp_path) as home:
        await home.put(OTHER, canary("1"))
        await home.fire(rule("all"))
        await home.fire(picky)
        await home.put(canary("2", timestamp=at(1)))
        await home.fire(picky)

        await forget(home)

        assert files_with_canary(tmp_path) == []
        await home.fire(picky)
        assert generations(tmp_path) == 0


def generations(folder: Path) -> int:
    """Return how often a rule found that the log is not the one that it has read."""
    with closing(sqlite3.connect(folder / "facts.db")) as facts:
        return int(facts.execute("SELECT count(*) FROM slumberd_generations").fetchone()[0])


@pytest.mark.slow
async def test_erasure_removes_ids_when_another_program_wrote_an_episode_without_an_id(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(OTHER, canary("1"))
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute("UPDATE episodes SET id = NULL WHERE id = 'other'")
        await home.fire()

        await forget(home)

        assert files_with_canary(tmp_path) == []


@pytest.mark.slow
async def test_erasure_removes_content_from_free_space_of_pages(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"), OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host:
            host.execute("PRAGMA secure_delete = OFF")
            host.execute("DELETE FROM episodes WHERE id LIKE 'canary%'")
            host.commit()
        assert "memory.db" in " ".join(files_with_canary(tmp_path))

        await forget(home)

        assert files_with_canary(tmp_path) == []


@pytest.mark.slow
async def test_erasure_changes_nothing_of_other_users(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await leave_traces(home)
        await home.put(triple("x", "bob", "lives_in", "Porto", user=f"{CANARY}-use"))
        await home.fire()
        before = {id: what for id, what in (await home.objects()).items() if CANARY not in id}

        await forget(home)

        assert await home.objects() == before
        assert [episode.id for episode in await home.memory.recent("bob", limit=9)] == ["other"]


@pytest.mark.slow
async def test_store_refuses_an_erased_episode_and_accepts_a_newer_one(provider: Provider) -> None:
    async with open_stores(provider) as home:
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


@pytest.mark.slow
async def test_store_refuses_every_erased_episode_that_no_rule_has_evaluated(
    provider: Provider,
) -> None:
    said = [canary("1", timestamp=at(70)), canary("2", timestamp=at(90))]
    async with open_stores(provider) as home:
        await home.put(*said)
        await forget(home)

        for episode in said:
            with pytest.raises(ForgottenError, match="erasure"):
                await home.put(episode)
        await home.put(canary("new", timestamp=at(91)))


@pytest.mark.slow
async def test_erased_row_that_another_program_restores_is_a_noop(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"), OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host:
            (row,) = host.execute("SELECT * FROM episodes WHERE id LIKE 'canary%'").fetchall()
        await forget(home)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host:
            host.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)
            host.commit()

        report = await home.fire()
        await home.consolidator.backfill(rule("all"), at(70), by="me")

        assert report.channels["facts"].noop == 1
        assert list(await home.objects()) == ["other"]
        noops = [record for record in await home.facts.reads.records() if record.reason == "erased"]
        assert [(record.kind, record.fact_id) for record in noops] == [("noop", "")] * 2
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_erasure_of_a_session_restores_the_facts_that_it_had_replaced(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
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
        assert sorted(certificate["current_again"]) == ["kept", "old"]
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_erasure_of_a_session_removes_the_retraction_of_its_fact(tmp_path: Path) -> None:
    said = {"user": "alice", "agent": "rag", "content": CANARY, "source_node": "chat"}
    async with open_stores(tmp_path) as home:
        await home.put(canary("1", **said, session="s1"), OTHER)
        await home.fire()
        await home.facts.unpin(f"{CANARY}-1")

        await forget(home, "alice", session="s1")

        assert files_with_canary(tmp_path) == []
        assert list(await home.objects()) == ["other"]
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_second_erasure_of_a_user_finds_nothing_of_the_first(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await leave_traces(home)
        await forget(home)

        certificate = await forget(home)

        assert certificate["rows"]["facts"]["slumberd_ledger"] == 0
        assert certificate["rows"]["episodes"]["episodes"] == 0
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_erasure_removes_facts_of_other_programs(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "facts.db")) as host:
            payload = json.dumps({"subject": CANARY, "predicate": "is", "object": CANARY}).encode()
            host.execute(
                "INSERT INTO facts VALUES (?, ?, ?, ?, ?, 1.0, ?, ?)",
                (
                    f"{CANARY}-f", f"{CANARY}-user", "rag", payload,
                    b'[{"kind": "fathom"}]', b"{}", START.isoformat(),
                ),
            )  # fmt: skip
            host.commit()

        await forget(home)

        assert files_with_canary(tmp_path) == []
        assert list(await home.objects()) == ["other"]
        assert (await home.facts.verify())[2] is None


@pytest.mark.slow
async def test_replay_of_the_ledger_restores_no_erased_fact(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await leave_traces(home)
        await forget(home)

        replayed = await home.facts.replay(tmp_path / "again.db")

        assert replayed.differing == 0
        assert files_with_canary(tmp_path) == []


@pytest.mark.slow
async def test_erasure_of_an_agent_keeps_other_agents_of_the_user(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(
            triple("a", "alice", "drinks", "tea", agent="rag"),
            triple("b", "alice", "drinks", "milk", agent="bot"),
        )
        await home.fire()

        await forget(home, "alice", agent="rag")

        assert await home.objects() == {"b": "milk"}
        assert [episode.id for episode in await home.memory.recent("alice", limit=9)] == ["b"]


@pytest.mark.slow
async def test_rule_reads_only_new_episodes_after_an_erasure(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(OTHER, canary("1"))
        await home.fire()
        await forget(home)
        await home.put(triple("later", "bob", "drinks", "tea", user="bob"))

        report = await home.fire()

        assert report.channels["facts"].read == 1


async def test_dry_run_erases_nothing(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await leave_traces(home)
        before = await home.facts.reads.records()

        certificate = await forget(home, dry_run=True)

        assert certificate["rows"]["episodes"] == {"episodes": 4}
        assert await home.facts.reads.records() == before
        assert len(await home.memory.recent(f"{CANARY}-user", limit=9)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True])
def test_forget_command_prints_a_certificate(tmp_path: Path, *, running: bool) -> None:
    site = Installation(tmp_path)
    site.config.write_text("state_dir: state\nrules_dir: rules.d\n")
    site.put(canary("1"), OTHER)
    assert site.call("fire", "profile").returncode == 0
    command = ["forget", "--user", f"{CANARY}-user"]

    refused = site.run(*command)
    if running:
        with site.daemon():
            done = site.call(*command, "--yes")
    else:
        done = site.call(*command, "--yes")

    assert (refused.returncode, "--yes" in refused.stderr) == (64, True)
    certificate = json.loads(done.stdout)
    assert certificate["rows"]["facts"]["facts"] == 1
    assert certificate["scope"] == {"user": f"{CANARY}-user", "session": None, "agent": None}
    assert files_with_canary(site.state) == []
    again = site.look("import", str(site.config.with_name("put.jsonl")))
    assert again.returncode == 65
    assert "erasure of its scope" in again.stderr
    assert site.call("audit", "verify").returncode == 0


async def test_erasure_finds_an_episode_that_is_written_after_its_search(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"), OTHER)
        scope = ScopeFilter(f"{CANARY}-user", None, None)
        with closing(sqlite3.connect(path, isolation_level=None)) as host:
            write = home.memory.engine.write

            async def write_late(*arguments: Any, **more: Any) -> Any:
                host.execute(
                    "INSERT INTO episodes SELECT 'late', scope_key, content, timestamp, "
                    "metadata FROM episodes WHERE id LIKE 'canary%'"
                )
                return await write(*arguments, **more)

            home.memory.engine.write = write_late  # type: ignore[method-assign]

            rows = await home.memory.forget(scope, (), moment=0)

            left = host.execute("SELECT id FROM episodes").fetchall()
        assert (rows["episodes"], left) == (2, [("other",)])

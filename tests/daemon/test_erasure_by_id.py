"""An erasure of one episode or one fact removes all that came from it, and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import Episode
from slumberd.model.errors import (
    ForgottenError,
    NothingKeptError,
    StoreBusyError,
    UsageError,
    VersionConflictError,
)
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.stages import Dedup, Summarise
from slumberd.operations.caller import Caller, Right
from slumberd.operations.changes import Operations
from slumberd.operations.edits import PinForm
from slumberd.operations.writes.erasures import ForgetForm
from slumberd.operations.writes.put_once import OncePutter
from slumberd.storage.episodes.writes import PutCounts
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider, SQLiteProvider

pytestmark = pytest.mark.integration

CANARY = "canary-9b1e"
ME = Caller.of_user(7, 7)
ANN = Caller(name="ann", user="ann", rights=frozenset({Right.ERASE, Right.READ, Right.WRITE}))


def secret(id: str = "e1", what: str = "tea", **overrides: Any) -> Episode:
    """Return an episode of alice whose text and statement hold the canary."""
    fields = {"content": f"{CANARY} said it", "metadata": {"note": CANARY}} | overrides
    return triple(id, f"{CANARY}-subject", "likes", f"{CANARY}-{what}", **fields)


def operations(home: OpenStores, seconds: float = 60) -> Operations:
    return home.operations(rule("all"), clock=FakeClock(at(seconds)))


async def forget(home: OpenStores, caller: Caller = ME, **request: Any) -> dict[str, Any]:
    return await operations(home).erasures.forget(ForgetForm(**request), caller)


def files_with_canary(folder: Path) -> list[str]:
    return sorted(
        file.name
        for file in folder.rglob("*")
        if file.is_file() and CANARY.encode() in file.read_bytes()
    )


async def check_audit(home: OpenStores, folder: Path) -> None:
    """Check that the ledger verifies, and that its replay makes the same facts."""
    assert (await home.facts.verify(episodes=await home.memory.erased_scopes()))[2] is None
    replayed = await home.facts.replay(folder / "again.db")
    assert replayed.differing == 0


OTHER = triple("other", "alice", "drinks", "milk", timestamp=at(3))


async def leave_traces(home: OpenStores) -> None:
    """Put versions of one episode, and let the ledger, marks and the quarantine know of it."""
    await home.put(secret(), OTHER)
    await home.fire()
    await home.put(secret(what="juice", timestamp=at(1)))
    await home.fire()
    await home.put(secret(timestamp=at(2), metadata={"intent": "shout", "note": CANARY}))
    await home.fire(rule("all"))
    await home.fire(rule("notes", then_emits=["notes"]))
    several = {"triples": [{"subject": CANARY, "predicate": "is", "object": CANARY}]}
    await home.put(secret(what="water", timestamp=at(2), metadata=several))
    await home.fire()
    await home.fire(rule("notes", then_emits=["notes"]))
    await home.facts.unpin("e1#1")


async def test_an_erased_episode_leaves_nothing_in_any_file(tmp_path: Path) -> None:
    async with open_stores(tmp_path / "home") as home:
        await leave_traces(home)
        assert files_with_canary(tmp_path)

        certificate = await forget(home, episode="e1")

        assert files_with_canary(tmp_path) == []
        assert await home.objects() == {"other": "milk", "@notes/other": "milk"}
        assert certificate["scope"] == {"user": "alice", "session": None, "agent": None}
        assert certificate["episodes"] == ["e1"]
        assert certificate["erased_up_to"] is None
        assert certificate["rows"]["episodes"]["episodes"] == 1
        assert "statements" not in certificate
        assert [each.id for each in await home.memory.recent("alice", limit=9)] == ["other"]
        await check_audit(home, tmp_path)
        assert files_with_canary(tmp_path) == []


async def test_later_puts_of_an_erased_episode_store_nothing(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(secret())
        await home.fire()
        await forget(home, episode="e1")
        again = [
            secret(), secret(what="wine", timestamp=at(900)), secret(session="s9", agent="bot"),
        ]  # fmt: skip

        counts = [await home.memory.put_many([each, OTHER]) for each in again]
        for each in again:
            await home.memory.put(each, user="alice", session=each.session, agent=each.agent)
        taken = await OncePutter(home.memory).put([secret(), episode("new", timestamp=at(5))])

        assert counts[0] == PutCounts(new=1, erased=1)
        assert counts[1:] == [PutCounts(unchanged=1, erased=1)] * 2
        assert (taken.new, taken.known, taken.refused, taken.erased) == (1, 0, {}, 1)
        stored = await home.memory.recent("alice", limit=9)
        assert sorted(each.id for each in stored) == ["new", "other"]


@pytest.mark.slow
async def test_any_id_of_any_user_is_refused_after_its_erasure(
    provider: Provider, tmp_path: Path
) -> None:
    ids = [
        "e#1",
        "#7",
        "a\nb\tc",
        "ü/%2F/",
        "\U0001f600",
        "x" * 900,
        "@facts/e",
        "@notes/e#2",
        '"\\',
    ]
    said = [
        triple(id, f"{CANARY}{number}", "is", id, user=user)
        for number, (id, user) in enumerate(
            zip(ids, ["al/ice%", "ü \U0001f600"] * len(ids), strict=False)
        )
    ]
    async with open_stores(provider) as home:
        await home.put(*said)
        await home.fire()
        await home.fire(rule("notes", then_emits=["notes"]))

        for each in said[1:]:
            await forget(home, episode=each.id)
        counts = await home.memory.put_many(said)

        assert counts == PutCounts(unchanged=1, erased=len(ids) - 1)
        assert set((await home.objects()).values()) == {ids[0]}
        await check_audit(home, tmp_path)


async def test_another_user_may_use_the_id_of_an_erased_episode(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(secret())
        await home.fire()
        await forget(home, episode="e1")

        counts = await home.memory.put_many([triple("e1", "bob", "is", "here", user="bob")])
        await home.fire()

        assert counts == PutCounts(new=1)
        assert await home.objects() == {"e1": "here"}


async def test_a_user_learns_nothing_of_the_episodes_and_facts_of_another(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(secret(), triple("a1", "ann", "is", "here", user="ann"))
        await home.fire()
        answers: dict[str, str] = {}

        for name in ("episode", "fact"):
            for id in ("e1", "unknown"):
                with pytest.raises(NothingKeptError) as refused:
                    await forget(home, ANN, **{name: id}, dry_run=True)
                answers[f"{name} {id}"] = str(refused.value).replace(id, "ID")

        assert answers["episode e1"] == answers["episode unknown"]
        assert answers["fact e1"] == answers["fact unknown"]
        plan = (await forget(home, ANN, episode="a1", dry_run=True))["plan"]
        await forget(home, ANN, episode="a1", plan=plan)
        assert list(await home.objects()) == ["e1"]


async def test_an_id_that_two_users_had_in_turn_is_erased_for_one_of_them(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(triple("e1", "ada", "likes", "tea"))
        await home.fire()
        await home.memory.owned.delete("alice", "rag", ["e1"])
        await home.put(triple("e1", "ada", "likes", "milk", user="bob"))
        await home.fire()

        with pytest.raises(UsageError, match="several users have it"):
            await forget(home, episode="e1")
        certificate = await forget(home, episode="e1", user="alice")

        rows = [one for one in await home.facts.reads.records() if one.user]
        assert {one.user for one in rows if one.kind != "firing"} == {"bob"}
        assert certificate["rows"]["episodes"]["episodes"] == 0
        assert [each.user for each in await home.memory.recent("bob", limit=9)] == ["bob"]
        assert await home.memory.put_many([triple("e1", "ada", "likes", "tea")]) == PutCounts(
            erased=1
        )
        await check_audit(home, tmp_path)


async def test_an_episode_that_its_host_deleted_is_erased_from_the_ledger(
    provider: Provider, tmp_path: Path
) -> None:
    several = {"triples": [{"subject": "ada", "predicate": "likes", "object": "tea"}]}
    async with open_stores(provider) as home:
        await home.put(episode("e1", metadata=several), OTHER)
        await home.fire()
        await home.memory.owned.delete("alice", "rag", ["e1"])

        await forget(home, episode="e1")

        assert await home.objects() == {"other": "milk"}
        await check_audit(home, tmp_path)


async def test_a_plan_names_the_facts_that_go_and_holds_only_for_them(provider: Provider) -> None:
    more = {"triples": [{"subject": "ada", "predicate": "knows", "object": "Eve"}]}
    async with open_stores(provider) as home:
        await home.put(
            triple("old", "ada", "lives_in", "Porto"),
            triple("e1", "ada", "lives_in", "Lisbon", timestamp=at(1), metadata=more),
        )
        await home.fire()

        plan = await forget(home, fact="e1#1", dry_run=True)

        assert dict(zip(plan["facts"], plan["statements"], strict=True)) == {
            "e1": "ada lives_in Lisbon", "e1#1": "ada knows Eve",
        }  # fmt: skip
        assert (plan["episodes"], plan["current_again"]) == (["e1"], ["old"])
        await home.put(triple("e1", "ada", "lives_in", "Faro", timestamp=at(2)))
        await home.fire()
        with pytest.raises(VersionConflictError):
            await forget(home, fact="e1", plan=plan["plan"])
        assert (await home.objects())["e1"] == "Faro"


async def test_a_fact_goes_with_every_episode_that_says_it(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(
            triple("first", "ada", "lives_in", "Porto"),
            triple("other", "ada", "lives_in", "Faro", timestamp=at(1)),
            triple("again", "ada", "lives_in", "Porto", timestamp=at(2)),
            triple("bobs", "ada", "lives_in", "Porto", user="bob"),
            triple("edited", "ada", "lives_in", "Porto", timestamp=at(-1)),
        )
        await home.fire()
        await home.put(triple("edited", "ada", "lives_in", "Oslo", timestamp=at(-1)))
        await home.fire()

        certificate = await forget(home, fact="again")

        assert certificate["episodes"] == ["again", "first"]
        assert certificate["facts"] == ["again"]
        assert await home.objects() == {"other": "Faro", "bobs": "Porto"}
        await check_audit(home, tmp_path)


async def test_a_manual_edit_is_erased_as_a_fact(provider: Provider, tmp_path: Path) -> None:
    async with open_stores(provider) as home:
        await home.put(triple("e1", "ada", "lives_in", "Porto"))
        await home.fire()
        pinned = PinForm(
            user="alice", agent="rag", subject="ada", predicate="lives_in", object="Faro",
            reason="so it is", id="p1",
        )  # fmt: skip
        await operations(home).pin(pinned, ME)
        assert await home.objects() == {"p1": "Faro"}

        certificate = await forget(home, fact="p1")

        assert await home.objects() == {"e1": "Porto"}
        assert (certificate["facts"], certificate["current_again"]) == (["p1"], ["e1"])
        assert "episodes" not in certificate
        await check_audit(home, tmp_path)


async def test_a_declared_fact_is_erased_as_a_fact(provider: Provider, tmp_path: Path) -> None:
    declared = Fact(
        id="d1", user="alice", agent="rag", pinned_at=START, confidence=1.0,
        payload={"subject": "ada", "predicate": "is", "object": CANARY},
        lineage=[{"kind": "manual", "source_id": CANARY}],
    )  # fmt: skip
    async with open_stores(provider) as home:
        await home.put(OTHER)
        await home.fire()
        await home.facts.pin(declared)

        await forget(home, fact="d1")

        assert await home.objects() == {"other": "milk"}
        await check_audit(home, tmp_path)


@pytest.mark.slow
async def test_the_retraction_and_the_correction_of_an_erased_fact_go_with_it(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path / "home") as home:
        await home.put(secret(), secret("e2", "wine", timestamp=at(1)), OTHER)
        await home.fire()
        await home.facts.unpin("e1")
        corrected = PinForm(
            user="alice", agent="rag", subject=f"{CANARY}-subject", predicate="likes",
            object=CANARY, reason="so it is", id="e2",
        )  # fmt: skip
        await operations(home).pin(corrected, ME)

        await forget(home, episode="e1")
        await forget(home, episode="e2")

        assert files_with_canary(tmp_path) == []
        assert await home.objects() == {"other": "milk"}
        await check_audit(home, tmp_path)


async def test_a_retraction_in_another_episode_stays(provider: Provider, tmp_path: Path) -> None:
    gone = {"intent": "delete", "replaces": ["e1", "e2"]}
    async with open_stores(provider) as home:
        await home.put(
            triple("e1", "ada", "likes", "tea"),
            triple("e2", "ada", "owns", "a cup"),
            episode("e3", timestamp=at(1), metadata=gone),
        )
        await home.fire()

        await forget(home, episode="e1")
        await home.fire()

        assert await home.objects() == {}
        await check_audit(home, tmp_path)


async def facts_of_channel(home: OpenStores, channel: str) -> dict[str, object]:
    found = await home.facts.query(FactPattern(channel=channel))
    return {fact.id: fact.payload.get("object") for fact in found}


async def test_an_episode_is_found_again_when_what_repeated_it_is_erased(
    provider: Provider, tmp_path: Path
) -> None:
    text = "Ann likes green tea very much indeed"
    marking = rule("marking", stages=(Dedup(),))
    async with open_stores(provider) as home:
        await home.put(
            episode("e1", content=text),
            episode("e2", content=text, timestamp=at(1)),
            episode("e3", content="She moved to a town at the sea", timestamp=at(2)),
        )
        await home.fire(marking)
        assert await facts_of_channel(home, "marks") == {"@marks/e1": "e2"}

        await forget(home, episode="e2")

        assert await facts_of_channel(home, "marks") == {}
        await home.fire(marking)
        assert await facts_of_channel(home, "marks") == {}
        await check_audit(home, tmp_path)


@pytest.mark.slow
async def test_summaries_of_an_erased_episode_go_with_it(tmp_path: Path) -> None:
    sums = rule("sums", stages=(Summarise(when_more_than=1),))
    async with open_stores(tmp_path / "home") as home:
        said = [secret(), triple("e2", "ada", "is", "here", timestamp=at(1)),
                triple("e3", "ada", "is", "there", timestamp=at(2))]  # fmt: skip
        await home.put(*said)
        await home.fire(sums)
        assert any(id.startswith("@summaries/") for id in await home.objects())

        plan = await forget(home, episode="e1", dry_run=True)
        await forget(home, episode="e1")

        assert any(id.startswith("@summaries/") for id in plan["facts"])
        assert files_with_canary(tmp_path) == []
        assert await facts_of_channel(home, "marks") == {}
        await home.fire(sums)
        assert await facts_of_channel(home, "summaries") != {}
        assert set(await facts_of_channel(home, "marks")) == {"@marks/e2", "@marks/e3"}
        await check_audit(home, tmp_path)


async def test_a_restored_row_of_an_erased_episode_is_a_noop(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(secret(), OTHER)
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host:
            (row,) = host.execute("SELECT * FROM episodes WHERE id = 'e1'").fetchall()
        await forget(home, episode="e1")
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)

        report = await home.fire()
        await home.consolidator.backfill(rule("all"), at(70), by="me")

        assert report.channels["facts"].noop == 1
        assert await home.objects() == {"other": "milk"}
        noops = [one for one in await home.facts.reads.records() if one.reason == "erased"]
        assert [(one.kind, one.fact_id) for one in noops] == [("noop", "")] * 2


async def test_undo_does_not_bring_an_erased_episode_back(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(triple("e1", "ada", "likes", "tea"), triple("e2", "ada", "has", "cups"))
        await home.fire()
        await home.facts.ledger.undo("all@1", at=at(5), by="me", dry_run=False)
        undone = (await home.facts.watermarks.batch_ends("all"), await home.objects())
        await forget(home, episode="e1")

        await home.consolidator.backfill(rule("all"), at(70), by="me")

        assert undone[1] == {}
        assert await home.objects() == {"e2": "cups"}
        await check_audit(home, tmp_path)


async def test_an_erasure_of_an_episode_that_ended_early_is_finished(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    async with open_stores(SQLiteProvider(folder, busy_seconds=0.05)) as home:
        await home.put(secret(), OTHER)
        await home.fire()
        with closing(sqlite3.connect(folder / "memory.db", isolation_level=None)) as busy:
            busy.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError):
                await forget(home, episode="e1")
            busy.execute("ROLLBACK")
        assert "memory.db" in " ".join(files_with_canary(folder))
        (unfinished,) = await home.facts.erasures.find_unfinished()
        assert (unfinished.moment, unfinished.alone) == (None, frozenset({"e1"}))

        finished = await operations(home).erasures.finish_all()

        assert finished == 1
        assert files_with_canary(folder) == []
        assert await home.facts.erasures.find_unfinished() == []
        await check_audit(home, tmp_path)


@pytest.mark.slow
async def test_an_erasure_of_an_episode_may_be_repeated(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(secret(), OTHER)
        await home.fire()
        await forget(home, episode="e1")

        certificate = await forget(home, episode="e1", user="alice")

        assert certificate["rows"]["episodes"]["episodes"] == 0
        with pytest.raises(NothingKeptError, match="'e1'"):
            await forget(home, episode="e1")


async def test_the_lists_of_erased_ids_are_restored_from_the_ledger(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(secret(), OTHER)
        await home.fire()
        await forget(home, episode="e1")
        for name in ("facts.db", "memory.db"):
            with closing(sqlite3.connect(tmp_path / name)) as file, file:
                file.execute("DELETE FROM slumberd_erased_scopes")
        broken = (await home.facts.verify())[2]

        await operations(home).erasures.share()

        assert broken is not None
        assert "lacks 1 entry" in broken.problem
        assert (await home.facts.verify(episodes=await home.memory.erased_scopes()))[2] is None
        assert await home.memory.put_many([secret()]) == PutCounts(erased=1)


async def test_only_one_of_session_episode_and_fact_is_erased_at_once(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(secret())

        with pytest.raises(UsageError, match="only one"):
            await forget(home, user="alice", session="s1", episode="e1")


# instants that are still to come


async def test_an_erased_row_of_the_future_does_not_refuse_what_comes_until_then(
    provider: Provider, tmp_path: Path
) -> None:
    early = triple("far", "ada", "lives_in", "Mars", timestamp=at(9_000))
    near = triple("near", "ada", "is", "here", timestamp=at(200))
    async with open_stores(provider) as home:
        await home.put(early, near, triple("now", "ada", "likes", "tea"))
        await home.fire()

        certificate = await forget(home, user="alice")

        assert certificate["erased_up_to"] == "2026-01-01T12:03:20.000000Z"
        assert certificate["episodes"] == ["far"]
        with pytest.raises(ForgottenError):
            await home.put(near)
        later = triple("later", "ada", "likes", "milk", timestamp=at(400))
        counts = await home.memory.put_many([early, later])
        assert counts == PutCounts(new=1, erased=1)
        await home.fire()
        assert await home.objects() == {"later": "milk"}
        await check_audit(home, tmp_path)


async def test_a_clock_that_is_behind_the_ledger_makes_no_row_one_of_the_future(
    provider: Provider,
) -> None:
    said = triple("e1", "ada", "lives_in", "Faro", timestamp=at(9_000))
    async with open_stores(provider) as home:
        await home.put(said)
        await home.fire(when=at(9_500))

        certificate = await forget(home, user="alice")

        assert certificate["erased_up_to"] == "2026-01-01T14:30:00.000000Z"
        assert "episodes" not in certificate
        with pytest.raises(ForgottenError):
            await home.put(said)


async def test_a_waiting_row_of_the_future_that_its_host_deleted_stays_erased(
    tmp_path: Path,
) -> None:
    early = triple("far", "ada", "lives_in", "Mars", timestamp=at(9_000))
    async with open_stores(tmp_path, future_tolerance_seconds=300) as home:
        await home.put(early, triple("now", "ada", "likes", "tea"))
        await home.fire()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute("DELETE FROM episodes WHERE id = 'far'")

        certificate = await forget(home, user="alice")

        assert certificate["episodes"] == ["far"]
        assert await home.memory.put_many([early]) == PutCounts(erased=1)

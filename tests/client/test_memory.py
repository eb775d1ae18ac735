"""The facade gives the same answers in process, through the daemon's socket, and over HTTP."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory, SyncMemory, Triple
from slumberd.clock import SystemClock
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.daemon.tenure import StateLock
from slumberd.model.episode import Episode
from slumberd.model.errors import (
    ConfigurationError,
    FutureInstantError,
    KeyReusedError,
    MemoryScopeError,
    NoInputError,
    NothingKeptError,
    NotRunningError,
    OtherSettingsError,
    RecordRefusedError,
    StateDirectoryLockedError,
    UnreadableEpisodeError,
    UsageError,
    VersionConflictError,
)
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.daemons_in_loop import PROGRAM_TOKEN, memory_in_loop, served_over_http

pytestmark = pytest.mark.integration

Open = Callable[[str], AbstractAsyncContextManager[Memory]]
"""Opens the memory of a user."""

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(directory: Path, way: str) -> AsyncIterator[Open]:
    """Run a daemon, and yield what opens memories on it."""
    if way == "by http":
        async with memory_in_loop(directory) as own, served_over_http(own) as address:
            yield lambda user: Memory.open(
                address, user=user, token=PROGRAM_TOKEN, agent="desk", session="s1"
            )
        return
    address = f"unix:{directory}" if way == "by socket" else str(directory)
    async with Memory.open(directory, user="host"):
        yield lambda user: Memory.open(address, user=user, agent="desk", session="s1")


WAYS = ["in process", "by socket", pytest.param("by http", marks=pytest.mark.slow)]


@pytest.fixture(params=WAYS)
async def open_memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    async with opened(tmp_path / "memory", request.param) as open_one:
        yield open_one


async def moved(memory: Memory, where: str, id: str) -> None:
    """Remember a move, and wait until it is a fact."""
    await memory.remember(f"I moved to {where}", triples=[("ann", "lives_in", where)], id=id)
    outcome = await memory.wait_for(id)
    assert outcome.settled


@pytest.mark.slow
async def test_what_is_remembered_becomes_a_fact_and_is_recalled(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")

        hits = await memory.recall("Lisbon")
        context = await memory.context("Lisbon?", budget=500)
        [fact] = (await memory.facts()).facts

    assert {(hit.kind, hit.id) for hit in hits} == {("episode", "e1"), ("fact", "e1")}
    assert "I moved to Lisbon" in context.text
    assert 0 < context.tokens <= context.budget == 500
    assert fact.payload["object"] == "Lisbon"


async def test_exact_text_of_an_episode_and_of_a_fact_has_the_score_1(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")

        [episode, *_] = await memory.recall("i moved to Lisbon")
        [fact, *_] = await memory.recall("Ann lives in Lisbon")

    assert (episode.kind, episode.score) == ("episode", 1)
    assert (fact.kind, fact.score) == ("fact", 1)


@pytest.mark.slow
async def test_same_id_and_text_change_nothing_and_another_text_is_a_new_version(
    open_memory: Open,
) -> None:
    async with open_memory("ann") as memory:
        states = [
            (await memory.remember(text, id="e1", when=NOON)).state for text in ("a", "a", "b")
        ]
        [stored] = await memory.episodes()

    assert states == ["new", "unchanged", "changed"]
    assert (stored.content, stored.session, stored.timestamp) == ("b", "s1", NOON)


async def test_call_without_an_instant_that_is_sent_again_changes_nothing(
    open_memory: Open,
) -> None:
    triples = [("ann", "likes", "tea"), ("ann", "age", 7)]
    async with open_memory("ann") as memory:
        calls = [
            await memory.remember("a", triples=triples, id="e1", metadata={"n": [1.5]})
            for _ in range(2)
        ]
        edit = await memory.remember("b", triples=triples, id="e1", metadata={"n": [1.5]})

    assert [call.state for call in (*calls, edit)] == ["new", "unchanged", "changed"]


async def test_each_triple_becomes_a_fact(open_memory: Open) -> None:
    triples: list[Triple | tuple[str, str, Any]] = [
        Triple("ann", "lives_in", "Oslo"),
        ("ann", "age", 7),
        Triple("ann", "likes", "tea", 0.9),
    ]
    async with open_memory("ann") as memory:
        remembered = await memory.remember("much", triples=triples, speaker="Ann", id="e")
        await memory.wait_for(remembered.id)
        facts = (await memory.facts()).facts
        [episode] = await memory.episodes()

    assert [(fact.id, fact.payload["object"], fact.confidence) for fact in facts] == [
        ("e", "Oslo", 1.0), ("e#1", 7, 1.0), ("e#2", "tea", 0.9),
    ]  # fmt: skip
    assert episode.metadata["speaker"] == "Ann"


@pytest.mark.slow
async def test_a_new_directory_keeps_every_allergy_and_the_newest_home(open_memory: Open) -> None:
    said: list[Any] = [
        [("ada", "allergic_to", "peanuts")],
        [{"subject": "ada", "predicate": "allergic_to", "object": "penicillin"}],
        [("ada", "lives_in", "Oslo")],
        [Triple("ada", "lives_in", "Rome")],
        [("ada", "speaks", "Swedish"), ("ada", "speaks", "English"), ("ada", "likes", "tea")],
        [Triple("ada", "likes", "jazz", intent="set")],
        [Triple("ada", "allergic_to", "peanuts", intent="delete")],
    ]
    async with open_memory("ada") as memory:
        for number, triples in enumerate(said):
            when = NOON + timedelta(seconds=number)
            remembered = await memory.remember("said", triples=triples, when=when)
            await memory.wait_for(remembered.id)
        objects = {fact.payload["object"] for fact in (await memory.facts()).facts}

    assert objects == {"penicillin", "Rome", "Swedish", "English", "jazz"}


async def test_same_key_and_content_change_nothing_whatever_the_time(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        first = await memory.remember("tea", key="turn 1", when=NOON, metadata={"n": 1})
        again = await memory.remember("tea", key="turn 1", metadata={"n": 1})
        later = await memory.remember(
            "tea", key="turn 1", when=NOON + timedelta(days=1), metadata={"n": 1}
        )
        [stored] = await memory.episodes()
        edited = await memory.remember("rum", key="turn 1", metadata={"n": 1})
        [new] = await memory.episodes()

    assert first.id == again.id == later.id == edited.id == "key:ann/desk/turn 1"
    assert [one.state for one in (first, again, later, edited)] == [
        "new", "unchanged", "unchanged", "changed",
    ]  # fmt: skip
    assert (stored.timestamp, new.content) == (NOON, "rum")


async def test_users_and_agents_have_keys_of_their_own(open_memory: Open) -> None:
    async with open_memory("a") as memory:
        memories = [
            memory, memory.for_user("b"), memory.for_user("a", agent="b"),
            memory.for_user("a/b", agent="c"), memory.for_user("a", agent="b/c"),
            memory.for_user("a%2Fb", agent="c"),
        ]  # fmt: skip
        put = [await one.remember("tea", key="k/%") for one in memories]
        outcome = await memories[-1].wait_for(put[-1].id)

    assert {one.state for one in put} == {"new"}
    assert len({one.id for one in put}) == len(memories)
    assert put[-1].id == outcome.id == "key:a%252Fb/c/k%2F%25"


async def test_key_of_another_session_is_refused(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await memory.remember("tea", key="k", session="one")
        with pytest.raises(KeyReusedError, match="'k'"):
            await memory.remember("tea", key="k", session="two")

        [stored] = await memory.episodes()

    assert stored.session == "one"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param({"id": "key:ann/desk/k"}, "give `key`", id="an id as keys make it"),
        pytest.param({"id": "key:bob/desk/k"}, "give `key`", id="an id of another user's key"),
        pytest.param({"id": "e", "key": "k"}, "one name", id="an id and a key"),
        pytest.param({"key": ""}, "key", id="an empty key"),
        pytest.param({"key": "k" * 990}, "too long", id="too long a key"),
    ],
)
async def test_wrong_name_of_an_episode_is_refused(
    open_memory: Open, given: dict[str, str], problem: str
) -> None:
    async with open_memory("ann") as memory:
        with pytest.raises(UsageError, match=problem):
            await memory.remember("tea", **given)  # type: ignore[arg-type] # names only
        with pytest.raises((UsageError, RecordRefusedError), match=problem):
            await memory.put_many([{"text": "tea", **given}])

        assert await memory.episodes() == []


async def test_taken_id_answers_with_one_text_whoever_has_it(open_memory: Open) -> None:
    async with open_memory("ann") as ann:
        await ann.remember("tea", id="e1")
        texts = []
        for other in (ann.for_user("bob"), ann.for_user("cy"), ann.for_user("ann", agent="x")):
            with pytest.raises(MemoryScopeError) as caught:
                await other.remember("mine", id="e1")
            texts.append(caught.value.violation)
        with pytest.raises(MemoryScopeError) as caught:
            await ann.remember("mine", id="e1", session="s2")

    assert {*texts, caught.value.violation} == {
        "episode 'e1' belongs to another scope; give it another id, or a key"
    }


async def test_unknown_id_and_that_of_another_user_answer_with_one_text(open_memory: Open) -> None:
    async with open_memory("ann") as ann:
        await moved(ann, "Lisbon", "e1")
        bob, texts = ann.for_user("bob"), set()
        for id in ("e1", "e2"):
            for call in (bob.explain(id), bob.wait_for(id)):
                with pytest.raises(NoInputError) as caught:
                    await call
                texts.add(str(caught.value).replace(id, "ID"))

    assert texts == {
        "'ID' does not exist: neither the episodes nor the ledger of this scope have it"
    }


async def test_many_episodes_are_put_in_their_order_with_an_answer_for_each(
    open_memory: Open,
) -> None:
    given: list[dict[str, Any]] = [
        {"text": "I live in Oslo", "triples": [("ann", "lives_in", "Oslo")], "key": "1"},
        {"text": "I live in Rome", "triples": [Triple("ann", "lives_in", "Rome")], "key": "2"},
        {"text": "Noted", "speaker": "assistant", "session": "s2", "when": NOON},
        {"text": "I live in Oslo", "triples": [("ann", "lives_in", "Oslo")], "key": "1"},
    ]
    async with open_memory("ann") as memory:
        put = await memory.put_many(given)
        again = await memory.put_many(given[:2])
        await memory.wait_for(put[1].id)
        [fact] = (await memory.facts()).facts
        stored = {one.content: one for one in await memory.episodes()}

    assert [one.state for one in put] == ["new", "new", "new", "unchanged"]
    assert [one.state for one in again] == ["unchanged", "unchanged"]
    assert fact.payload["object"] == "Rome"
    assert (stored["Noted"].session, stored["Noted"].timestamp) == ("s2", NOON)
    assert {one.session for one in stored.values()} == {"s1", "s2"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        pytest.param({"text": "x", "metadata": {"intent": "shout"}}, "intent", id="unreadable"),
        pytest.param({"text": "x", "id": "bobs"}, "another scope", id="a taken id"),
        pytest.param(
            {"text": "x", "when": datetime(2999, 1, 1, tzinfo=UTC)}, "still to come", id="coming"
        ),
        pytest.param({"text": "x", "id": "a", "key": "b"}, "one name", id="two names"),
    ],
)
async def test_one_refused_episode_of_many_refuses_all_with_its_place(
    open_memory: Open, wrong: dict[str, Any], problem: str
) -> None:
    async with open_memory("ann") as memory:
        await memory.for_user("bob").remember("mine", id="bobs")
        with pytest.raises(RecordRefusedError, match=problem) as caught:
            await memory.put_many([{"text": "a"}, {"text": "b"}, wrong, {"text": "c"}])

        assert await memory.episodes() == []

    assert caught.value.position == 2


@pytest.mark.parametrize(
    "episodes", [["tea"], [{}], [{"text": "a", "txt": "b"}], [7], [{"text": "a"}] * 10_001]
)
async def test_what_is_no_list_of_episodes_is_refused(open_memory: Open, episodes: Any) -> None:
    async with open_memory("ann") as memory:
        with pytest.raises(UsageError):
            await memory.put_many(episodes)

        assert await memory.episodes() == []


@pytest.mark.slow
async def test_ten_thousand_episodes_are_put_at_once(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        many = [
            {"text": f"tea {number} " + "x" * 200, "key": str(number)} for number in range(10_000)
        ]
        put = await memory.put_many(many)

    assert {one.state for one in put} == {"new"}
    assert len(put) == 10_000


async def test_one_memory_serves_many_users(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        bob = memory.for_user("bob", session="s9")
        await memory.remember("tea of ann", key="1")
        await bob.remember("tea of bob", key="1")
        await memory.remember("tea of cy", key="1", user="cy")
        by_call = {
            user: [one.content for one in await memory.episodes(user=user)]
            for user in ("ann", "bob", "cy", "dee")
        }
        [hit] = await memory.recall("tea", user="cy")
        [of_bob] = await bob.episodes()

    assert by_call == {"ann": ["tea of ann"], "bob": ["tea of bob"], "cy": ["tea of cy"], "dee": []}
    assert (hit.text, of_bob.session, of_bob.agent) == ("tea of cy", "s9", "desk")


async def test_every_call_takes_a_user(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        put = await memory.remember("home", triples=[("bob", "lives_in", "Oslo")], user="bob")
        assert (await memory.wait_for(put.id, user="bob")).settled
        [fact] = (await memory.facts(user="bob")).facts
        assert (await memory.explain(fact.id, user="bob")).kind == "fact"
        assert "home" in (await memory.context("home", user="bob")).text
        [more] = await memory.put_many([{"text": "more"}], user="bob")
        assert (await memory.wait_for(more.id, user="bob")).settled
        await memory.correct(fact=fact.id, object="Rome", reason="no", user="bob")
        plan = await memory.forget(user="bob")
        assert (await memory.forget(plan=plan.plan, user="bob")).done
        assert await memory.episodes(user="bob") == []


async def test_memory_without_a_user_asks_for_one(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        nobody = Memory(memory._transport, user=None, agent="desk", session="s1")
        with pytest.raises(UsageError, match="name a user"):
            await nobody.remember("tea")
        with pytest.raises(UsageError, match="user"):
            await memory.remember("tea", user="")

        assert (await nobody.remember("tea", user="bob")).state == "new"


async def test_reads_may_see_what_all_agents_of_the_user_know(open_memory: Open) -> None:
    async with open_memory("ann") as desk:
        home = desk.for_user("ann", agent="home")
        await moved(home, "Lisbon", "e1")
        await moved(desk.for_user("bob", agent="home"), "Rome", "e2")

        assert (await desk.facts()).facts == []
        assert [fact.id for fact in (await desk.facts(all_agents=True)).facts] == ["e1"]
        hits = await desk.recall("Where did I move?", all_agents=True)
        assert {hit.agent for hit in hits} == {"home"}
        assert "Lisbon" in (await desk.context("Lisbon?", all_agents=True)).text
        assert [one.id for one in await desk.episodes(all_agents=True)] == ["e1"]
        assert (await desk.explain("e1", all_agents=True)).kind == "fact"
        assert (await desk.wait_for("e1", all_agents=True)).settled


@pytest.mark.parametrize(
    "triples",
    [
        ["abc"],
        [("ann", "likes")],
        [("ann", "likes", "tea", 1.0, None, "x")],
        [7],
        ("ann", "likes", "tea"),
        Triple("ann", "likes", "tea"),
        "abc",
        {"subject": "ann", "predicate": "likes", "object": "tea"},
    ],
)
async def test_what_is_no_list_of_triples_is_refused(tmp_path: Path, triples: Any) -> None:
    memory = Memory(None, user="ann", agent="a", session="s")  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"is no triple; write Triple|write a list of triples"):
        await memory.remember("x", triples=triples)


@pytest.mark.slow
async def test_dictionary_with_an_unknown_key_is_refused(open_memory: Open) -> None:
    wrong = {"subject": "ann", "predicate": "likes", "obj": "tea"}
    async with open_memory("ann") as memory:
        with pytest.raises(UsageError, match="obj"):
            await memory.remember("x", triples=[wrong])


@pytest.mark.slow
async def test_episode_without_text_is_neither_recalled_nor_quoted(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await memory.remember("Lisbon is sunny", when=NOON)
        await memory.remember("", when=NOON + timedelta(seconds=1))
        await memory.remember("gone", id="e", when=NOON + timedelta(seconds=2))
        await memory.recall("Lisbon")
        await memory.remember(" ", id="e", when=NOON + timedelta(seconds=2))

        hits = await memory.recall("Lisbon")
        context = await memory.context("Lisbon")

    assert [hit.text for hit in hits] == ["Lisbon is sunny"]
    assert [item.text for item in context.items] == ["Lisbon is sunny"]


async def test_what_was_found_in_a_text_is_told_from_what_was_stated(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await memory.remember("I moved to Bergen.", id="e1")
        await memory.remember("tea", triples=[("ann", "likes", "tea")], id="e2")
        for id in ("e1", "e2"):
            await memory.wait_for(id)
        facts = {fact.id: fact for fact in (await memory.facts()).facts}
        hits = {hit.id: hit for hit in await memory.recall("ann") if hit.kind == "fact"}

    by = {"by": "conversation/moved", "span": [0, 18]}
    assert {id: fact.payload.get("extracted") for id, fact in facts.items()} == {
        "e1#1": by, "e2": None,
    }  # fmt: skip
    assert facts["e1#1"].confidence < facts["e2"].confidence == 1
    assert {id: hit.trust for id, hit in hits.items()} == {"e1#1": "extracted", "e2": "derived"}


async def test_episode_that_no_rule_could_read_is_refused(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        with pytest.raises(UnreadableEpisodeError):
            await memory.remember("x", metadata={"intent": "shout"})

        assert await memory.episodes() == []


@pytest.mark.slow
async def test_outcome_without_an_enabled_rule_that_reads_it_is_settled(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        remembered = await memory.remember("no triple")

        outcome = await memory.wait_for(remembered.id)

    assert outcome.settled
    assert [rule.outcome for rule in outcome.rules] == ["noop", "filtered"]


@pytest.mark.slow
async def test_correction_by_id_replaces_the_fact(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")
        [before] = (await memory.facts()).facts

        done = await memory.correct(
            fact="e1", object="Porto", reason="she said so", if_version=before.version
        )
        [after] = (await memory.facts()).facts

    assert done.fact_ids == ["e1"]
    assert done.firing_id is not None
    assert after.payload["object"] == "Porto"
    assert after.lineage[0]["reason"] == "she said so"
    assert after.version != before.version


@pytest.mark.slow
async def test_correction_by_subject_and_predicate_replaces_every_value(open_memory: Open) -> None:
    both = [("ann", "likes", "tea"), ("ann", "likes", "rum")]
    async with open_memory("ann") as memory:
        await memory.remember("both", triples=both, id="e1")
        await memory.wait_for("e1")

        await asyncio.gather(*(
            memory.correct(subject="ann", predicate="likes", object=what, reason="she said so")
            for what in ("jazz", "milk")
        ))  # fmt: skip
        facts = (await memory.facts()).facts

    assert len(facts) == 1
    assert facts[0].payload["object"] in ("jazz", "milk")


@pytest.mark.slow
async def test_correction_by_subject_and_predicate_asserts_what_was_unknown(
    open_memory: Open,
) -> None:
    async with open_memory("ann") as memory:
        await memory.correct(subject="ann", predicate="age", object=None, reason="unknown")

        [fact] = (await memory.facts()).facts

    assert (fact.payload["predicate"], fact.payload["object"]) == ("age", None)


@pytest.mark.slow
async def test_retraction_removes_the_fact_of_its_scope_only(open_memory: Open) -> None:
    async with open_memory("ann") as ann, open_memory("bob") as bob:
        await moved(ann, "Lisbon", "e1")
        await moved(bob, "Lisbon", "e2")

        await ann.correct(subject="ann", predicate="lives_in", retract=True, reason="no")

        assert (await ann.facts()).facts == []
        assert [fact.id for fact in (await bob.facts()).facts] == ["e2"]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param({}, id="neither value nor retract"),
        pytest.param({"fact": "e1", "object": 1, "retract": True}, id="both"),
        pytest.param({"object": 1}, id="no fact"),
        pytest.param({"fact": "e1", "subject": "a", "predicate": "b", "object": 1}, id="two facts"),
        pytest.param({"subject": "a", "object": 1}, id="no predicate"),
    ],
)
async def test_unclear_correction_is_refused(open_memory: Open, call: dict[str, object]) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")

        with pytest.raises(UsageError):
            await memory.correct(reason="why", **call)  # type: ignore[arg-type] # any of them

        [fact] = (await memory.facts()).facts
        assert fact.payload["object"] == "Lisbon"


async def test_correction_of_a_fact_that_has_changed_since_is_refused(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")
        [seen] = (await memory.facts()).facts
        await memory.correct(fact="e1", object="Porto", reason="first")

        with pytest.raises(VersionConflictError) as caught:
            await memory.correct(fact="e1", object="Oslo", reason="second", if_version=seen.version)

    assert caught.value.what == "e1"
    assert caught.value.exit_code == 75


async def test_user_sees_and_changes_nothing_of_another(open_memory: Open) -> None:
    async with open_memory("ann") as ann, open_memory("bob") as bob:
        await moved(ann, "Lisbon", "e1")

        assert await bob.recall("Lisbon") == []
        assert (await bob.context("Lisbon")).text == ""
        assert await bob.episodes() == []
        assert (await bob.facts(id="e1")).facts == []
        for attempt in (
            lambda: bob.explain("e1"),
            lambda: bob.wait_for("e1"),
            lambda: bob.correct(fact="e1", object="x", reason="x"),
            lambda: bob.correct(fact="e1", retract=True, reason="x"),
        ):
            with pytest.raises(NoInputError):
                await attempt()
        with pytest.raises(MemoryScopeError):
            await bob.remember("mine", id="e1")
        [fact] = (await ann.facts()).facts
        assert fact.payload["object"] == "Lisbon"


@pytest.mark.slow
async def test_facts_come_in_pages(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        for number in range(5):
            await memory.correct(
                subject="ann", predicate=f"p{number}", object=number, reason="page"
            )
        pages, cursor = [], None
        while True:
            page = await memory.facts(limit=2, cursor=cursor)
            pages.append(page.facts)
            if (cursor := page.next) is None:
                break
        whole = (await memory.facts()).facts

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [fact for page in pages for fact in page] == whole


async def test_facts_are_listed_by_the_beginning_of_their_subjects(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        for subject in ("/a/1", "/a/2", "/A/3", "/ab", "%"):
            await memory.correct(subject=subject, predicate="p", object=1, reason="list")

        found = (await memory.facts(subject_prefix="/a/")).facts
        with pytest.raises(UsageError, match="not both"):
            await memory.facts(subject="/ab", subject_prefix="/a/")

    assert {fact.payload["subject"] for fact in found} == {"/a/1", "/a/2"}


@pytest.mark.slow
async def test_episodes_come_in_pages(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        for number in range(5):
            await memory.remember(str(number), when=NOON + timedelta(seconds=number))

        pages = [await memory.episodes(limit=2, skip=skip) for skip in (0, 2, 4, 6)]

    assert [[one.content for one in page] for page in pages] == [["4", "3"], ["2", "1"], ["0"], []]


@pytest.mark.slow
async def test_memory_is_forgotten_by_plan_only(open_memory: Open) -> None:
    async with open_memory("ann") as ann, open_memory("bob") as bob:
        await moved(ann, "Lisbon", "e1")
        await moved(bob, "Lisbon", "e2")

        plan = await ann.forget()
        still = await ann.episodes()
        done = await ann.forget(plan=plan.plan)

        assert (plan.done, done.done, len(still)) == (False, True, 1)
        assert done.certificate["rows"]["episodes"]["episodes"] == 1
        assert await ann.episodes() == []
        assert (await ann.facts()).facts == []
        assert len(await bob.episodes()) == 1


async def test_one_episode_or_fact_is_forgotten_and_does_not_come_back(open_memory: Open) -> None:
    async with open_memory("ann") as ann, open_memory("bob") as bob:
        await moved(ann, "Lisbon", "e1")
        await moved(ann, "Porto", "e2")
        await moved(bob, "Lisbon", "e3")

        plan = await ann.forget(fact="e1")
        done = await ann.forget(fact="e1", plan=plan.plan)
        again = await ann.remember("I moved to Lisbon", id="e1", session="other")
        with pytest.raises(NothingKeptError) as unknown:
            await ann.forget(episode="e9")
        with pytest.raises(NothingKeptError) as others:
            await ann.forget(episode="e3")

        assert (plan.done, done.done, again.state) == (False, True, "erased")
        assert done.certificate["episodes"] == ["e1"]
        assert str(others.value).replace("e3", "e9") == str(unknown.value)
        assert [each.id for each in await ann.episodes()] == ["e2"]
        assert {hit.id for hit in await ann.recall("Lisbon")} == set()
        assert len((await bob.facts()).facts) == 1


async def test_plan_is_refused_when_the_scope_has_changed_since(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")
        plan = await memory.forget()
        await memory.remember("one more")

        with pytest.raises(VersionConflictError, match="ask for a new plan"):
            await memory.forget(plan=plan.plan)

        assert len(await memory.episodes()) == 2


@pytest.mark.slow
async def test_plan_stays_valid_when_another_user_remembers(open_memory: Open) -> None:
    async with open_memory("ann") as ann, open_memory("bob") as bob:
        await moved(ann, "Lisbon", "e1")
        plan = await ann.forget()
        await moved(bob, "Oslo", "e2")

        done = await ann.forget(plan=plan.plan)

        assert done.done


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.inf, id="infinity"),
        pytest.param("\ud83d", id="half a character"),
        pytest.param(2**64, id="a large number"),
        pytest.param({1, 2}, id="a set"),
    ],
)
async def test_value_that_json_cannot_hold_is_refused(open_memory: Open, value: object) -> None:
    async with open_memory("ann") as memory:
        with pytest.raises(UsageError, match="the request cannot be written as JSON"):
            await memory.remember("a", triples=[("ann", "knows", value)])
        with pytest.raises(UsageError, match="the request cannot be written as JSON"):
            await memory.correct(subject="ann", predicate="knows", object=value, reason="so")

        assert await memory.episodes() == []


async def test_unknown_user_has_nothing_to_forget(open_memory: Open) -> None:
    async with open_memory("nobody") as memory:
        with pytest.raises(NothingKeptError):
            await memory.forget()


async def test_fact_and_episode_are_explained(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")
        await moved(memory, "Porto", "e2")

        fact, episode = await memory.explain("e2"), await memory.explain("e1")

    assert (fact.kind, fact.explanation["replaced"]) == ("fact", ["e1"])
    assert episode.kind == "episode"
    assert "e2 replaced it" in episode.explanation["rules"][0]["removal"]


@pytest.mark.parametrize(
    ("given", "speaker"),
    [
        pytest.param({}, "user", id="the person"),
        pytest.param({"speaker": "assistant"}, "assistant", id="an agent"),
        pytest.param({"metadata": {"role": "tool"}}, "tool", id="a role"),
    ],
)
async def test_explanation_of_a_fact_says_who_spoke(
    tmp_path: Path, given: dict[str, Any], speaker: str
) -> None:
    async with Memory.open(tmp_path / "m", user="ann") as memory:
        put = await memory.remember("Oslo", triples=[("ann", "lives_in", "Oslo")], **given)
        await memory.wait_for(put.id)

        [source] = (await memory.explain(put.id)).explanation["sources"]

    assert (source["speaker"], source["source_node"]) == (speaker, "remember")


async def test_explanation_of_a_fact_names_no_interface_as_its_speaker(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m", user="ann", agent="desk", session="s") as memory:
        async with SQLiteMemoryStore(tmp_path / "m/memory.db") as host:
            await host.put(
                Episode(
                    id="e1",
                    content="Oslo",
                    timestamp=NOON,
                    source_node="remember",
                    user="ann",
                    agent="desk",
                    session="s",
                    metadata={"subject": "ann", "predicate": "lives_in", "object": "Oslo"},
                ),
                user="ann",
                session="s",
                agent="desk",
            )
        await memory.wait_for("e1")

        [source] = (await memory.explain("e1")).explanation["sources"]

    assert (source["speaker"], source["source_node"]) == (None, "remember")


@pytest.mark.slow
async def test_wait_ends_when_the_time_is_up(open_memory: Open, tmp_path: Path) -> None:
    rule = tmp_path / "memory/rules.d/conversation.yaml"
    rule.write_text(rule.read_text().replace("every: 1}", "every: 9}"))
    await reload_rules(tmp_path / "memory")
    async with open_memory("ann") as memory:
        await memory.remember("later", id="e1", triples=[("ann", "likes", "tea")])

        outcome = await memory.wait_for("e1", seconds=0)

    assert not outcome.settled
    assert [one.outcome for one in outcome.rules] == ["pending", "pending"]


NEEDED = "a predicate, or an intent, or `triples` in the metadata"


async def test_what_became_of_an_episode_is_said_in_a_word_and_a_sentence(
    open_memory: Open,
) -> None:
    async with open_memory("ann") as memory:
        put = await memory.remember("I moved", id="e1", triples=[("ann", "lives_in", "Rome")])
        plain = await memory.remember("It rains", seconds=30)
        outcome = await memory.wait_for("e1")
        explained = (await memory.explain(plain.id)).explanation

    assert (put.became, put.results) == ("waiting", [])
    assert (plain.became, plain.sentence) == ("said_nothing", "nothing said: no pattern matched")
    assert (outcome.became, outcome.sentence) == ("learned", "learned: ann lives_in Rome")
    [result] = [one for one in outcome.results if one.became == "learned"]
    assert [(fact.id, fact.object, fact.current) for fact in result.facts] == [("e1", "Rome", True)]
    assert [(one["rule_id"], one["sentence"]) for one in explained["results"]] == [
        ("said", "nothing said: no pattern matched"),
        ("stated", f"filtered: the rule's filter needs {NEEDED}"),
    ]


async def test_remember_never_waits_for_a_rule_that_is_not_due(
    open_memory: Open, tmp_path: Path
) -> None:
    rule = tmp_path / "memory/rules.d/conversation.yaml"
    rule.write_text(rule.read_text().replace("every: 1}", "every: 100}"))
    await reload_rules(tmp_path / "memory")
    async with open_memory("ann") as memory, asyncio.timeout(45):
        await memory.remember("a")
        put = await memory.remember("b", seconds=60)

    assert put.became == "waiting"
    assert put.sentence == "waiting: the rule fires every 100 episodes, 2 pending"


@pytest.mark.slow
async def test_repeated_episode_says_what_became_of_the_stored_one(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        await moved(memory, "Lisbon", "e1")
        triples = [("ann", "lives_in", "Lisbon")]

        at_once, later = [
            await memory.remember("I moved to Lisbon", id="e1", triples=triples, seconds=seconds)
            for seconds in (0, 30)
        ]

    assert (at_once.state, at_once.became) == ("unchanged", None)
    assert (later.state, later.became) == ("unchanged", "learned")


async def reload_rules(directory: Path) -> None:
    """Make the daemon of a directory read its rules again."""
    from slumberd.daemon.control_socket import ask_asynchronously

    await ask_asynchronously(directory, "reload", {})


async def test_two_memories_of_one_directory_share_it_until_the_last_one_closes(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "m"
    async with AsyncExitStack() as later:
        async with Memory.open(directory, user="ann") as ann:
            (tmp_path / "link").symlink_to(directory)
            bob = await later.enter_async_context(Memory.open(tmp_path / "link", user="bob"))
            await moved(ann, "Lisbon", "e1")
        await moved(bob, "Oslo", "e2")
        with pytest.raises(StateDirectoryLockedError), StateLock(directory):
            pass

    with StateLock(directory):
        pass
    async with Memory.open(directory, user="ann") as ann:
        assert [fact.id for fact in (await ann.facts()).facts] == ["e1"]


async def test_directory_is_shared_and_closed_after_the_program_moved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    async with Memory.open("m", user="ann") as ann:
        monkeypatch.chdir(tmp_path / "other")
        async with Memory.open(tmp_path / "m", user="ann") as same:
            await same.remember("tea", key="1")
        assert (await ann.remember("tea", key="1")).state == "unchanged"

    with StateLock(tmp_path / "m"):
        pass


async def test_memories_in_several_threads_and_loops_share_a_directory(tmp_path: Path) -> None:
    directory = tmp_path / "m"

    def remember(user: str) -> str:
        with SyncMemory.open(directory, user=user) as memory:
            memory.remember("tea", id=user)
            return memory.episodes()[0].id

    async with Memory.open(directory, user="ann") as ann:
        users = [f"u{number}" for number in range(4)]
        stored = await asyncio.gather(*(asyncio.to_thread(remember, user) for user in users))
        await ann.remember("tea", id="ann")

    assert stored == users


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        pytest.param(
            "slumberd.yaml", "memory: {naive_timestamps: utc}\n", "memory", id="a setting"
        ),
        pytest.param(
            "rules.d/more.yaml",
            "rules: [{id: r, cadence: {every: 1}, when_filter: '', then_emits: [notes]}]\n",
            "the rules",
            id="the rules",
        ),
    ],
)
async def test_second_memory_with_other_settings_is_refused_with_their_names(
    tmp_path: Path, file: str, text: str, named: str
) -> None:
    directory = tmp_path / "m"
    async with Memory.open(directory, user="ann") as ann:
        with (directory / file).open("a") as opened_file:
            opened_file.write(text)

        with pytest.raises(OtherSettingsError) as caught:
            async with Memory.open(directory, user="bob"):
                pass
        await ann.remember("tea")

    assert named in str(caught.value)
    async with Memory.open(directory, user="bob"):
        pass


async def test_directory_that_another_program_holds_is_refused_with_its_address(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "m"
    make_state_directory(directory)
    with StateLock(directory), pytest.raises(StateDirectoryLockedError) as caught:
        async with Memory.open(directory, user="ann"):
            pass

    assert f"unix:{directory}" in str(caught.value)
    assert "--state-dir" not in str(caught.value)


async def test_memory_that_is_cancelled_while_it_opens_leaves_no_daemon(tmp_path: Path) -> None:
    directory = tmp_path / "m"

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), Memory.open(directory, user="ann"):
            await asyncio.Event().wait()

    with StateLock(directory):
        pass


@pytest.mark.slow
async def test_address_of_no_daemon_says_that_none_runs(tmp_path: Path) -> None:
    async with Memory.open(f"unix:{tmp_path}", user="ann") as memory:
        with pytest.raises(NotRunningError):
            await memory.episodes()


async def test_unknown_scheme_is_refused() -> None:
    with pytest.raises(UsageError, match="no address"):
        async with Memory.open("redis://here", user="ann"):
            pass


async def test_mistake_in_a_rule_is_told_before_anything_starts(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m", user="ann"):
        pass
    (tmp_path / "m/rules.d/conversation.yaml").write_text("rules: [{id: 1}]")

    with pytest.raises(ConfigurationError):
        async with Memory.open(tmp_path / "m", user="ann"):
            pass


@pytest.mark.slow
async def test_what_was_remembered_is_there_after_the_next_start(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m", user="ann") as memory:
        await moved(memory, "Lisbon", "e1")

    async with Memory.open(tmp_path / "m", user="ann") as memory:
        assert [fact.id for fact in (await memory.facts()).facts] == ["e1"]


@pytest.mark.slow
async def test_tasks_remember_and_recall_at_the_same_time(open_memory: Open) -> None:
    async with open_memory("ann") as memory:
        ids = [f"e{number}" for number in range(20)]
        await asyncio.gather(*(memory.remember(f"tea {id}", id=id) for id in ids))

        hits = await asyncio.gather(*(memory.recall("tea", limit=50) for _ in range(5)))

    assert all({hit.id for hit in found} == {*ids} for found in hits)


async def test_configuration_without_a_state_directory_means_its_own(tmp_path: Path) -> None:
    (tmp_path / "m" / "rules.d").mkdir(parents=True)
    (tmp_path / "m" / "slumberd.yaml").write_text("search: {language: english}\n")

    async with Memory.open(tmp_path / "m", user="ann") as memory:
        await memory.remember("I moved to Lisbon")

    assert (tmp_path / "m" / "memory.db").is_file()


@pytest.mark.slow
async def test_program_keeps_its_interpreter_settings(tmp_path: Path) -> None:
    interval, frozen = sys.getswitchinterval(), gc.get_freeze_count()

    async with Memory.open(tmp_path / "m", user="ann") as memory:
        await moved(memory, "Lisbon", "e1")

        assert sys.getswitchinterval() == interval
        assert gc.get_freeze_count() <= frozen  # a frozen object may have died meanwhile


PROGRAM = """
import sys
from slumberd import SyncMemory

with SyncMemory.open(sys.argv[1], user="ann") as memory:
    remembered = memory.remember("I moved to Lisbon", triples=[("ann", "lives_in", "Lisbon")])
    assert memory.wait_for(remembered.id).settled
    print(memory.facts().facts[0].payload["object"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [False, True], ids=["words", "vectors"])
def test_synchronous_program_prints_only_what_it_prints_itself(
    tmp_path: Path, vectors: bool
) -> None:
    make_state_directory(tmp_path / "m")
    configuration = tmp_path / "m/slumberd.yaml"
    search = f"{{language: auto, vectors: {str(vectors).lower()}}}"
    configuration.write_text(configuration.read_text().replace("{language: auto}", search))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.stdout, run.stderr, run.returncode) == ("Lisbon\n", "", 0)
    log = (tmp_path / "m/slumberd.log").read_text()
    assert '"delta.applied"' in log
    assert '"daemon.ready"' in log
    assert "Lisbon" not in log


@pytest.mark.parametrize(
    ("given", "speaker"),
    [
        pytest.param({}, "user", id="nobody"),
        pytest.param({"speaker": "assistant"}, "assistant", id="a speaker"),
        pytest.param({"speaker": " \u200b"}, "user", id="a speaker that shows nothing"),
        pytest.param({"metadata": {"role": "assistant"}}, "assistant", id="a role"),
        pytest.param({"metadata": {"role": 7}}, "user", id="a role that is no text"),
    ],
)
async def test_words_are_the_person_s_unless_the_caller_names_another(
    open_memory: Open, given: dict[str, Any], speaker: str
) -> None:
    async with open_memory("ann") as memory:
        await memory.remember("I live in Rome", **given)
        [stored] = await memory.episodes()
        [hit] = await memory.recall("Rome", kinds=["episode"])

    assert (stored.speaker, hit.speaker) == (speaker, speaker)
    assert ("speaker" in stored.metadata) == ("role" not in stored.metadata or speaker == "user")


async def test_call_that_only_adds_the_speaker_keeps_the_instant(tmp_path: Path) -> None:
    make_state_directory(tmp_path / "m")
    async with SQLiteMemoryStore(tmp_path / "m" / "memory.db") as store:
        await store.put_many([
            Episode(
                id="e1", content="I live in Rome", timestamp=NOON, source_node="remember",
                user="ann", agent="desk", session="s1",
            )
        ])  # fmt: skip
    async with Memory.open(tmp_path / "m", user="ann", agent="desk", session="s1") as memory:
        [before] = await memory.episodes()
        states = [(await memory.remember("I live in Rome", id="e1")).state for _ in range(2)]
        [after] = await memory.episodes()

    assert (before.speaker, before.timestamp) == (None, NOON)
    assert states == ["changed", "unchanged"]
    assert (after.speaker, after.timestamp) == ("user", NOON)


async def test_instant_that_is_still_to_come_is_refused_with_its_remedy(open_memory: Open) -> None:
    async with open_memory("ada") as memory:
        coming = SystemClock().now() + timedelta(minutes=6)
        with pytest.raises(FutureInstantError, match="give the time at which it was said"):
            await memory.remember("my flight leaves", id="flight", when=coming)
        assert await memory.episodes() == []

        soon = SystemClock().now() + timedelta(minutes=4)
        assert (await memory.remember("my flight leaves", id="flight", when=soon)).state == "new"

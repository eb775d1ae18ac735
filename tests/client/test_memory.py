"""The facade gives the same answers in process and through the daemon's socket."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory, Triple
from slumberd.clock import SystemClock
from slumberd.errors import (
    ConfigurationError,
    FutureInstantError,
    MemoryScopeError,
    NoInputError,
    NothingKeptError,
    NotRunningError,
    StateDirectoryLockedError,
    UnreadableEpisodeError,
    UsageError,
    VersionConflictError,
)
from slumberd.model.episode import Episode
from slumberd.service.new_state_directory import make_state_directory
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore

pytestmark = pytest.mark.integration

Open = Callable[[str], AbstractAsyncContextManager[Memory]]
"""Opens the memory of a user."""

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(directory: Path, way: str) -> AsyncIterator[Open]:
    """Run a daemon in this loop, and yield what opens memories on it."""
    async with Memory.open(directory, user="host") as own:

        @asynccontextmanager
        async def open_here(user: str) -> AsyncIterator[Memory]:
            yield Memory(own._transport, user=user, agent="desk", session="s1")

        def open_by_socket(user: str) -> AbstractAsyncContextManager[Memory]:
            return Memory.open(f"unix:{directory}", user=user, agent="desk", session="s1")

        yield open_here if way == "in process" else open_by_socket


@pytest.fixture(params=["in process", "by socket"])
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
        await memory.remember("I moved to Lisbon", when=NOON)
        await memory.remember("", when=NOON + timedelta(seconds=1))
        await memory.remember("gone", id="e", when=NOON + timedelta(seconds=2))
        await memory.recall("Lisbon")
        await memory.remember(" ", id="e", when=NOON + timedelta(seconds=2))

        hits = await memory.recall("Lisbon")
        context = await memory.context("Lisbon")

    assert [hit.text for hit in hits] == ["I moved to Lisbon"]
    assert [item.text for item in context.items] == ["I moved to Lisbon"]


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
    assert [rule.outcome for rule in outcome.rules] == ["filtered"]


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


@pytest.mark.slow
async def test_wait_ends_when_the_time_is_up(open_memory: Open, tmp_path: Path) -> None:
    rule = tmp_path / "memory/rules.d/preferences.yaml"
    rule.write_text(rule.read_text().replace("every: 1}", "every: 9}"))
    async with open_memory("ann") as memory:
        await reload_rules(tmp_path / "memory")
        await memory.remember("later", id="e1", triples=[("ann", "likes", "tea")])

        outcome = await memory.wait_for("e1", seconds=0)

    assert not outcome.settled
    assert [one.outcome for one in outcome.rules] == ["pending"]


async def reload_rules(directory: Path) -> None:
    """Make the daemon of a directory read its rules again."""
    from slumberd.service.control_socket import ask_asynchronously

    await ask_asynchronously(directory, "reload", {})


async def test_second_daemon_on_a_directory_is_refused(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m", user="ann"):
        with pytest.raises(StateDirectoryLockedError):
            async with Memory.open(tmp_path / "m", user="ann"):
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
    (tmp_path / "m/rules.d/preferences.yaml").write_text("rules: [{id: 1}]")

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
def test_synchronous_program_prints_only_what_it_prints_itself(tmp_path: Path) -> None:
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

"""Manual edits: a retraction and a pin last, and the ledger records their author and reason."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.cli.commands.edit import value_of
from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.consolidation.manual import ManualBatch, Retract
from slumberd.daemon.control_socket import RefusedError, ask
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import FactConflictError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.operations.caller import Caller
from slumberd.operations.edits import PinForm
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, at, rule, triple, version
from tests.support.catalogue_check import problems_of_lines
from tests.support.daemons import Home
from tests.support.fakes import FakeClock
from tests.support.installation import jsonl
from tests.support.open_stores import open_stores
from tests.support.sample_sizes import amount
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

EDIT_AT, LATER = 100, 200
"""Seconds: the manual edit retracts the fact, and a later episode asserts it again."""

TEA = ("s", "is", "tea")
RULES = {"all": rule("all"), "other": rule("other")}


@dataclass
class Story:
    """A fact store, and the episodes that rules have evaluated into it."""

    store: SQLiteFactStore
    versions: list[EpisodeVersion] = field(default_factory=list)

    async def say(self, rule_id: str, id: str, seconds: int, what: str, *names: str) -> None:
        """Put one version of an episode, and let a rule evaluate it."""
        replaces = {"intent": "update", "replaces": list(names)} if names else {}
        metadata = {"subject": "s", "predicate": "is", "object": what, **replaces}
        episode = version(id, seq=len(self.versions) + 1, timestamp=at(seconds), metadata=metadata)
        self.versions.append(episode)
        await self._evaluate(rule_id, [episode])

    async def rewind(self, rule_id: str) -> None:
        """Let a rule evaluate everything again, as after a restored backup."""
        if await self.store.watermarks.position(rule_id) is not None:
            await self.store.watermarks.rewind(rule_id, Position())
        newest = {episode.id: episode for episode in self.versions}
        await self._evaluate(rule_id, sorted(newest.values(), key=lambda episode: episode.seq))

    async def read_again(self, rule_id: str) -> None:
        """Let a rule evaluate once more what it has evaluated before."""
        newest = {episode.id: episode for episode in self.versions}
        await self._evaluate(rule_id, list(newest.values()))

    async def _evaluate(self, rule_id: str, versions: Sequence[EpisodeVersion]) -> None:
        if not versions:
            return
        upto = Position(len(self.versions), self.versions[-1].id)
        firing = Firing(rule_id, "h", "every", at(EDIT_AT), Position(), upto)
        await self.store.apply_deltas(DeltaBatch(firing, evaluate(versions, RULES[rule_id])))

    async def pin(self, id: str, what: str) -> None:
        payload = {"subject": "s", "predicate": "is", "object": what}
        lineage = [{"kind": "manual", "source_id": "me"}]
        fact = Fact(
            id=id, user="alice", agent="rag", payload=payload, lineage=lineage, confidence=1.0,
            pinned_at=START,
        )  # fmt: skip
        await self.store.correct(fact, by="me", reason="it is so")

    async def unpin(self, id: str) -> None:
        await self.store.retract(id, by="me", reason="it is not so")

    async def triples(self) -> dict[str, tuple[Any, ...]]:
        found = await self.store.query(FactPattern())
        return {
            fact.id: tuple(fact.payload.get(part) for part in ("subject", "predicate", "object"))
            for fact in found
        }


async def promoted(story: Story) -> str:
    await story.say("all", "e1", 1, "tea")
    return "e1"


async def restated(story: Story) -> str:
    await story.say("all", "e0", 0, "tea")
    await story.say("other", "e2", 2, "tea")
    await story.say("all", "e1", 3, "tea")
    return "e1"


async def updated(story: Story) -> str:
    await story.say("all", "e0", 0, "milk")
    await story.say("all", "e1", 1, "tea", "e0")
    return "e1"


async def pinned(story: Story) -> str:
    await story.say("all", "e0", 0, "tea")
    await story.pin("p1", "tea")
    return "p1"


async def pinned_over_an_episode(story: Story) -> str:
    await story.say("all", "e1", 1, "milk")
    await story.pin("e1", "tea")
    return "e1"


async def promoted_by_two_rules(story: Story) -> str:
    await story.say("all", "e1", 1, "tea")
    await story.read_again("other")
    return "e1"


async def promoted_before_an_older_episode_arrived(story: Story) -> str:
    await story.say("all", "e1", 5, "tea")
    await story.say("all", "e2", 2, "tea")
    return "e1"


BEGINNINGS = {
    "promoted": promoted,
    "restated": restated,
    "updated": updated,
    "pinned": pinned,
    "pinned over an episode": pinned_over_an_episode,
    "promoted by two rules": promoted_by_two_rules,
    "promoted before an older episode arrived": promoted_before_an_older_episode_arrived,
}

STEPS = st.lists(
    st.tuples(
        st.just("say"),
        st.sampled_from(sorted(RULES)),
        st.sampled_from(["e0", "e1", "e2", "e3", "p1"]),
        st.integers(0, EDIT_AT),
        st.sampled_from(["tea", "tea", "milk"]),
        st.sampled_from([(), (), ("e1",), ("e0", "p1")]),
    )
    | st.tuples(st.just("rewind"), st.sampled_from(sorted(RULES)))
    | st.tuples(st.just("read again"), st.sampled_from(sorted(RULES))),
    min_size=1,
    max_size=8,
)


async def run_step(story: Story, what: str, *arguments: Any) -> None:
    if what == "say":
        rule_id, id, seconds, value, names = arguments
        await story.say(rule_id, id, seconds, value, *names)
    elif what == "rewind":
        await story.rewind(*arguments)
    else:
        await story.read_again(*arguments)


async def check_removed_fact_stays_out(
    beginning: str, steps: Sequence[tuple[Any, ...]], path: Path
) -> None:
    clock = FakeClock(at(EDIT_AT))
    async with SQLiteFactStore(path / "facts.db", synchronous="normal", clock=clock) as store:
        await store.bootstrap()
        story = Story(store)
        fact_id = await BEGINNINGS[beginning](story)
        assert (await story.triples())[fact_id] == TEA

        await story.unpin(fact_id)

        for step in steps:
            await run_step(story, *step)
            assert TEA not in (await story.triples()).values(), step
        await story.say("all", "new", LATER, "tea")
        assert (await story.triples())["new"] == TEA
        _, _, broken = await store.verify()
        assert broken is None
        replay = await store.replay(path / "replayed.db")
        assert (replay.differing, replay.first) == (0, None)


@pytest.mark.nightly
@pytest.mark.sampled
@settings(max_examples=amount(25, full=150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(BEGINNINGS)), STEPS)
def test_only_a_newer_episode_restores_a_retracted_fact(
    beginning: str, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_removed_fact_stays_out(beginning, steps, Path(folder)))


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    clock = FakeClock(at(EDIT_AT))
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal", clock=clock) as store:
        await store.bootstrap()
        yield Story(store)
        _, _, broken = await store.verify()
        assert broken is None


async def test_edit_of_an_episode_restores_no_older_fact_after_several_retractions(
    story: Story,
) -> None:
    await story.say("all", "older", 0, "tea")
    await story.say("all", "e1", 1, "tea")
    await story.pin("p1", "milk")
    await story.unpin("p1")
    await story.say("all", "e2", LATER, "juice")
    await story.store.apply_deltas(ManualBatch([Retract(["e2", "e1"])]))

    await story.say("all", "e2", 50, "something else")

    assert "juice" not in [what for _, _, what in (await story.triples()).values()]


async def test_edit_of_an_episode_does_not_restore_its_retracted_fact(
    story: Story,
) -> None:
    await story.say("all", "e1", 1, "tea")
    await story.unpin("e1")

    await story.say("all", "e1", 50, "milk")
    assert await story.triples() == {}
    await story.say("all", "e1", LATER, "milk")

    assert (await story.triples())["e1"][2] == "milk"


async def test_retraction_of_several_facts_is_one_firing(story: Story) -> None:
    fact = Fact(
        id="bobs", user="bob", agent="rag", payload={"a": 1}, lineage=[{"b": 2}], confidence=1.0,
        pinned_at=START,
    )  # fmt: skip
    await story.store.correct(fact, by="me", reason="it is so")
    await story.say("all", "e1", 1, "tea")

    outcome = await story.store.apply_deltas(ManualBatch([Retract(["bobs", "e1", "bobs"])]))

    assert outcome is not None
    assert [(record.kind, record.replaces) for record in outcome.records[1:]] == [
        ("delete", ("bobs",)),
        ("delete", ("e1",)),
    ]
    assert await story.triples() == {}


async def test_repeated_pin_replaces_the_fact_of_an_episode_with_its_id(story: Story) -> None:
    await story.pin("e1", "tea")
    await story.say("all", "e1", LATER, "milk")
    assert (await story.triples())["e1"][2] == "milk"

    await story.pin("e1", "tea")

    assert (await story.triples())["e1"] == TEA


async def test_current_pin_is_not_recorded_again_after_its_episode_is_evaluated(
    story: Story,
) -> None:
    await story.pin("e1", "tea")
    await story.say("all", "e1", 1, "milk")
    rows = await story.store.reads.ledger_rows()

    await story.pin("e1", "tea")

    assert await story.store.reads.ledger_rows() == rows


async def test_pin_with_an_id_of_the_ledger_is_refused(story: Story) -> None:
    await story.say("all", "e1", 1, "tea")
    await story.unpin("e1")
    retraction_id = (await story.store.reads.records())[-1].fact_id

    with pytest.raises(FactConflictError, match="reserved for the ledger"):
        await story.pin(retraction_id, "tea")

    assert await story.triples() == {}


async def test_undo_restores_a_manually_retracted_fact(story: Story) -> None:
    await story.say("all", "e1", 1, "tea")
    outcome = await story.store.apply_deltas(ManualBatch([Retract(["e1"])]))
    assert outcome is not None

    await story.store.ledger.undo(outcome.firing_id, at=at(LATER), by="uid 1", dry_run=False)

    assert await story.triples() == {"e1": TEA}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("tea", "tea", id="text"),
        pytest.param("5", 5, id="a number"),
        pytest.param('"5"', "5", id="a number as text"),
        pytest.param("null", None, id="null"),
        pytest.param('{"a": [1]}', {"a": [1]}, id="an object"),
        pytest.param("0049 30 1234", "0049 30 1234", id="no JSON"),
        pytest.param('"123456789012345678901234"', "123456789012345678901234", id="digits"),
        pytest.param("nan", "nan", id="a word"),
        pytest.param("1e3", 1000.0, id="a fraction"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_value_is_json_if_it_parses_and_text_otherwise(text: str, value: Any) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("123456789012345678901234", "more than 64 bits", id="a large number"),
        pytest.param('{"a": [1, 123456789012345678901234]}', "64 bits", id="a large number within"),
        pytest.param('{"a": 1, "a": 2}', "key 'a' is given twice", id="a key twice"),
        pytest.param("NaN", "cannot be kept", id="NaN"),
        pytest.param("-Infinity", "cannot be kept", id="infinity"),
        pytest.param("1e400", "cannot be kept", id="beyond a float"),
        pytest.param("[" * 200 + "]" * 200, "nested deeper", id="deep"),
        pytest.param("[" * 100_000, "nested too deep", id="deeper"),
    ],
)
def test_value_that_json_cannot_store_unchanged_is_refused(text: str, problem: str) -> None:
    with pytest.raises(typer.BadParameter, match=problem):
        value_of(text)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    return home


WHAT = ("--user", "alice", "--agent", "rag", "--subject", "alice", "--predicate", "lives_in")
REASON = "her own message"
PIN = ("pin", *WHAT, "--object", "Lisbon", "--reason", REASON)


def put(home: Home, *episodes: Any) -> None:
    file = home.folder / "put.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def run_for_pid(home: Home, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command; return its process id and the answer that it prints."""
    command = home.command(*words, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        answer, log = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert not problems_of_lines(log.splitlines())
    return process.pid, orjson.loads(answer)


def answer_of(home: Home, *words: str) -> dict[str, Any]:
    """Return the answer that a command prints."""
    answer: dict[str, Any] = orjson.loads(home.call(*words, "--json").stdout)
    return answer


def ledger(home: Home, rule_id: str = "@manual") -> list[dict[str, Any]]:
    """Return the payloads of a rule's rows in the ledger, oldest first."""
    lines = map(orjson.loads, home.call("audit", "export").stdout.splitlines())
    return [line["payload"] for line in lines if line["firing_id"].startswith(f"{rule_id}@")]


def check_author_and_reason_are_recorded(home: Home) -> None:
    me = f"uid {os.getuid()}"
    pin_pid, pinned = run_for_pid(home, *PIN)
    (fact,) = home.facts()
    unpin_pid, unpinned = run_for_pid(home, "unpin", fact["id"], "--reason", "a slip of mine")

    assert (fact["id"], fact["payload"]["object"]) == (pinned["fact_id"], "Lisbon")
    (entry,) = fact["lineage"]
    recorded = (entry["kind"], entry["by"], entry["pid"], entry["reason"])
    assert recorded == ("manual", me, pin_pid, REASON)
    assert (unpinned["counts"], unpinned["not_current"]) == ({"delete": 1}, [])
    assert home.facts() == []
    first, pin, second, unpin = ledger(home)
    assert (first["by"], second["by"]) == (me, me)
    assert pin["lineage"] == [entry]
    (why,) = unpin["lineage"]
    assert (why["by"], why["pid"], why["reason"]) == (me, unpin_pid, "a slip of mine")
    explained = home.call("why", fact["id"]).stdout
    assert f"a person retracted it ({me}), because: a slip of mine" in explained
    assert home.call("audit", "verify").returncode == 0


@pytest.mark.nightly
def test_manual_edits_without_a_daemon_record_author_and_reason(home: Home) -> None:
    check_author_and_reason_are_recorded(home)


@pytest.mark.slow
def test_manual_edits_through_a_daemon_record_author_and_reason(home: Home) -> None:
    with home.daemon() as daemon:
        check_author_and_reason_are_recorded(home)
        daemon.wait_for("delta.applied", lambda event: event["rule_id"] == "@manual")


@pytest.mark.slow
def test_request_cannot_name_its_author(home: Home) -> None:
    fields = dict(zip(("user", "agent", "subject", "predicate"), "uasp", strict=True))
    with home.daemon():
        with pytest.raises(RefusedError, match="pin: by: unknown key 'by'"):
            ask(home.state, "pin", **fields, reason="r", by="uid 4243", pid=1, uid=4243)
        ask(home.state, "pin", **fields, reason="r")

    (fact,) = home.facts()
    (entry,) = fact["lineage"]
    assert (entry["by"], entry["pid"]) == (f"uid {os.getuid()}", os.getpid())


async def test_daemon_records_the_peer_of_the_socket_as_author(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as at_home:
        operations = at_home.operations(clock=FakeClock())
        request = dict.fromkeys(("user", "agent", "subject", "predicate", "object", "reason"), "x")

        await operations.pin(PinForm(**request), Caller.of_user(4242, 77))

        (fact,) = await at_home.facts.query(FactPattern())
    assert (fact.lineage[0]["by"], fact.lineage[0]["pid"]) == ("uid 4242", 77)


@pytest.mark.slow
@pytest.mark.parametrize("through", ["a daemon", "itself"])
def test_retracted_fact_stays_retracted_after_later_commands(home: Home, through: str) -> None:
    tea = triple("e1", "alice", "drinks", "tea", timestamp=at(1))
    put(home, triple("e0", "alice", "drinks", "tea", timestamp=at(0)), tea)
    home.call("fire", "all")

    home.call("unpin", "e1", "--reason", "she stopped")
    with home.daemon() if through == "a daemon" else nullcontext():
        put(home, tea, triple("e2", "alice", "drinks", "tea", timestamp=at(2)))
        put(home, tea.model_copy(update={"content": "edited"}))
        home.call("fire", "all")
        home.call("backfill", "all")

        assert home.facts() == []
        now = datetime.now(UTC) + timedelta(seconds=1)  # noqa: TID251 # newer than the manual edit
        put(home, triple("e3", "alice", "drinks", "tea", timestamp=now))
        home.call("fire", "all")

    assert [fact["id"] for fact in home.facts()] == ["e3"]
    assert home.call("audit", "verify").returncode == 0


@pytest.mark.slow
def test_unpin_reports_ids_that_are_not_current_and_writes_no_row_for_them(home: Home) -> None:
    put(home, triple("e1", "alice", "drinks", "tea"), triple("e2", "alice", "drinks", "milk"))
    home.call("fire", "all")
    (current,) = home.facts()
    gone = ({"e1", "e2"} - {current["id"]}).pop()

    done = home.call("unpin", gone, current["id"], "--reason", "neither")
    again = home.call("unpin", current["id"], "--reason", "neither")

    assert f"{gone} is not current; the ledger gets no row for it" in done.stdout
    assert "1 delete" in done.stdout
    assert again.stdout.startswith("nothing recorded: nothing to do")
    assert len(ledger(home)) == 2


@pytest.mark.slow
def test_unpin_of_an_unknown_id_changes_nothing(home: Home) -> None:
    put(home, triple("e1", "alice", "drinks", "tea"))
    home.call("fire", "all")

    done = home.call("unpin", "e1", "e11", "--reason", "a slip", check=False)

    assert done.returncode == 66
    assert done.stderr.startswith("slumberd: 'e11' does not exist: no fact ever had this id")
    assert [fact["id"] for fact in home.facts()] == ["e1"]


@pytest.mark.slow
def test_dry_run_of_a_manual_edit_reports_its_deltas_and_writes_nothing(home: Home) -> None:
    put(home, triple("e1", "alice", "lives_in", "Porto"))
    home.call("fire", "all")

    pinned = answer_of(home, *PIN, "--dry-run")
    unpinned = answer_of(home, "unpin", "e1", "--reason", "r", "--dry-run")

    assert (pinned["dry_run"], pinned["firing_id"], pinned["counts"]) == (True, None, {"update": 1})
    assert pinned["deltas"][0]["fact_id"] == pinned["fact_id"]
    assert (unpinned["counts"], unpinned["not_current"]) == ({"delete": 1}, [])
    assert [fact["id"] for fact in home.facts()] == ["e1"]
    assert ledger(home) == []


@pytest.mark.slow
def test_pin_accepts_an_id_a_channel_and_a_confidence(home: Home) -> None:
    plain = answer_of(home, *PIN, "--id", "mine", "--confidence", "0.5")
    noted = answer_of(home, *PIN, "--id", "mine", "--channel", "notes")
    again = answer_of(home, *PIN, "--id", "@notes/mine")
    new = answer_of(home, *PIN, "--channel", "notes")

    assert (plain["fact_id"], noted["fact_id"]) == ("mine", "@notes/mine")
    assert again["fact_id"] == noted["fact_id"]
    assert new["fact_id"].startswith("@notes/")
    confidences = {fact["id"]: fact["confidence"] for fact in home.facts()}
    assert confidences == {"mine": 0.5, new["fact_id"]: 1.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(PIN[:-2], "Missing option '--reason'", id="no reason"),
        pytest.param((*PIN[:-1], "  "), "'reason' must be a text that is not empty", id="blank"),
        pytest.param((*PIN, "--confidence", "nan"), "--confidence", id="nan"),
        pytest.param((*PIN, "--confidence", "2"), "--confidence", id="more than sure"),
        pytest.param((*PIN, "--subject", ""), "'subject' must be a text", id="no subject"),
        pytest.param(
            (*PIN, "--id", "@notes/x", "--channel", "facts"), "not of the channel", id="channel"
        ),
        pytest.param(("unpin", "--reason", "r"), "FACT_ID", id="nothing to unpin"),
        pytest.param(("unpin", "", "--reason", "r"), "'fact id' must be a text", id="empty id"),
        pytest.param(("unpin", "\udcff", "--reason", "r"), "not valid Unicode", id="bytes"),
        pytest.param(("undo", "all@\udcff"), "cannot be written as JSON", id="bytes to undo"),
        pytest.param(("fire", "\udcff"), "cannot be written as JSON", id="bytes to fire"),
        pytest.param(("forget", "--user", "\udcff", "--yes"), "as JSON", id="bytes to forget"),
        pytest.param(
            (*PIN, "--object", "[" * 300 + "]" * 300), "nested deeper than 100", id="too deep"
        ),
    ],
)
def test_wrong_use_of_a_manual_edit_exits_with_64(
    home: Home, words: Sequence[str], message: str
) -> None:
    done = home.call(*words, check=False)

    assert done.returncode == 64
    assert message in done.stderr


async def test_correction_of_a_known_id_is_current_at_once_in_a_multi_valued_key(
    tmp_path: Path,
) -> None:
    """A claim of the future, of another object, goes into the quarantine."""
    clock = FakeClock(at(LATER))
    async with SQLiteFactStore(tmp_path / "facts.db", clock=clock) as store:
        await store.bootstrap()
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(0))
        for number, (id, what) in enumerate([("e4", "tea"), ("future", "milk")], start=1):
            instant = at(0) if id == "e4" else datetime(2099, 1, 1, tzinfo=UTC)
            metadata = {"subject": "s", "predicate": "likes", "object": what}
            episode = version(id, seq=number, timestamp=instant, metadata=metadata)
            firing = Firing("all", "h", "every", at(0), Position(), Position(number, id))
            await store.apply_deltas(DeltaBatch(firing, evaluate([episode], RULES["all"])))

        for id in ("e4", "fresh"):
            payload = {"subject": "s", "predicate": "likes", "object": f"{id} by a person"}
            fact = Fact(
                id=id, user="alice", agent="rag", payload=payload, lineage=[{"by": "me"}],
                confidence=1.0, pinned_at=START,
            )  # fmt: skip
            await store.correct(fact, by="me", reason="it is so")

        found = await store.query(FactPattern(), valid_at=clock.now())
        assert {fact.id: fact.payload["object"] for fact in found} == {
            "e4": "e4 by a person", "fresh": "fresh by a person",
        }  # fmt: skip
        assert [entry["reason"] for entry in await store.reads.quarantine()] == ["future"]
        assert (await store.verify())[2] is None

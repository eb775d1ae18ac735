"""The precedence rule on real stores: current facts are a function of the set of claims."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.episode import EpisodeVersion, instant, microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, rule
from tests.support.oracle import (
    OracleClaim,
    asserted_at,
    claims_in,
    current_claims,
    fact_id,
    plain_id,
    replaced_ids,
)
from tests.support.providers import AnyFactStore, NewStores, Provider, new_files, path_of
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

MULTI = {("facts", "likes"), ("notes", "likes")}
CHANNELS = {"facts": frozenset({"likes"}), "notes": frozenset({"likes"})}
DEPTH = 1

RULES = {
    "all": (rule("all", then_emits=["facts"]), lambda tag: True),
    "tagged": (rule("tagged", then_emits=["facts", "notes"]), lambda tag: tag > 0),
    "first": (rule("a-first", then_emits=["notes"]), lambda tag: tag < 2),
}


class AdvancingClock:
    """A clock that advances at each reading, and is later than every episode."""

    def __init__(self) -> None:
        self.calls = 0

    def now(self) -> datetime:
        self.calls += 1
        return START + timedelta(days=1, seconds=self.calls)

    def monotonic(self) -> float:
        return 0.0


FORGETTABLE = "s2"
"""The session that may be erased."""


def session_of(eid: str) -> str:
    return FORGETTABLE if eid in ("e2", "@e4") else "s1"


def scope_of(eid: str) -> ScopeFilter:
    return ScopeFilter("bob" if eid == "bobs" else "alice", None, None)


@dataclass
class RecordedEvaluation:
    """A rule's evaluation of an episode in a firing; without an episode it makes no claim."""

    firing: str
    rule_id: str
    eid: str
    seq: int
    episode: dict[str, Any] | None


@dataclass
class StoreAndOracle:
    """A store, and the claims that the oracle has after the same steps."""

    store: AnyFactStore
    episodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    evaluations: list[RecordedEvaluation] = field(default_factory=list)
    edits: list[tuple[str, str, OracleClaim | None]] = field(default_factory=list)
    """Firing, fact id and claim of each edit by a person or a program; a removal has no claim."""
    firings: list[str] = field(default_factory=list)
    undone: dict[str, str] = field(default_factory=dict)
    erased: bool = False
    erased_ids: set[str] = field(default_factory=set)
    quarantined: set[tuple[str, str]] = field(default_factory=set)
    """The episodes with unreadable claims, each with the names of these in the ledger."""
    fired: int = 0
    moments: int = 0
    multi: set[tuple[str, str]] = field(default_factory=lambda: set(MULTI))

    def put(self, episode: dict[str, Any]) -> None:
        if self.episodes.get(episode["id"]) != episode:
            self.episodes[episode["id"]] = episode
            self.log.append(episode["id"])

    async def fire(self, name: str, limit: int) -> None:
        fired, matches = RULES[name]
        after = self.read.get(name, 0)
        upto = min(after + limit, len(self.log))
        if upto == after:
            return
        newest = {eid: seq for seq, eid in enumerate(self.log, start=1)}
        current = {eid: seq for eid, seq in newest.items() if after < seq <= upto}
        versions = [self._version(eid, seq, matches) for eid, seq in current.items()]
        self.fired += 1
        at = START + timedelta(seconds=self.fired)
        position = Position(upto, self.log[upto - 1])
        outcome = await self.store.apply_deltas(
            DeltaBatch(
                Firing(fired.id, "h", "every", at, Position(), position), evaluate(versions, fired)
            )
        )
        self.read[name] = upto
        self.firings.append(outcome.firing_id)
        self._remember(outcome.firing_id, fired, versions)

    def _version(self, eid: str, seq: int, matches: Any) -> EpisodeVersion:
        episode = self.episodes[eid]
        return EpisodeVersion(
            seq, eid, episode["user"], session_of(eid), episode["agent"], episode["at"], "text",
            "node", episode["metadata"], matches(episode["tag"]),
        )  # fmt: skip

    def _remember(
        self, firing: str, fired: ConsolidationRule, versions: Sequence[EpisodeVersion]
    ) -> None:
        known = self.last_evaluations(fired.id)
        for version in versions:
            if self.erased and session_of(version.id) == FORGETTABLE:
                continue
            if version.id in self.erased_ids:
                continue
            episode = self.episodes[version.id]
            readable = bool(claims_in(episode, "facts"))
            if version.matched:
                names = unreadable_ids(episode, fired.then_emits)
                self.quarantined |= {(version.id, name) for name in names}
            if version.matched or known.get(version.id, (0, None))[1] is not None:
                claimed = episode if version.matched and readable else None
                self.evaluations.append(
                    RecordedEvaluation(firing, fired.id, version.id, version.seq, claimed)
                )

    def is_in_force(self, firing: str) -> bool:
        """Return whether a firing is not undone; an undo that was itself undone undoes nothing."""
        return not any(of == firing and self.is_in_force(by) for by, of in self.undone.items())

    def last_evaluations(self, rule_id: str) -> dict[str, tuple[int, dict[str, Any] | None]]:
        """Return a rule's last evaluation of each episode, without those that were undone."""
        return {
            evaluation.eid: (evaluation.seq, evaluation.episode)
            for evaluation in self.evaluations
            if evaluation.rule_id == rule_id and self.is_in_force(evaluation.firing)
        }

    async def forget(self, eids: Iterable[str] = ()) -> None:
        """Erase a session, and the manual edits that retract its facts."""
        moment = microseconds(START) + 10
        at = START + timedelta(days=2, seconds=self.fired)
        scope = ScopeFilter("alice", FORGETTABLE, None)
        await self.store.erasures.forget(scope, eids, moment=moment, at=at, by="me", dry_run=False)
        self._drop({eid for eid in IDS if session_of(eid) == FORGETTABLE})
        self.erased = True

    async def forget_episode(self, eid: str) -> None:
        """Erase one episode by its id, and the manual edits of its facts."""
        at = START + timedelta(days=2, seconds=self.fired)
        await self.store.erasures.forget(
            scope_of(eid), [eid], alone=[eid], moment=None, at=at, by="me", dry_run=False
        )
        self._drop({eid})
        self.erased_ids.add(eid)

    def _drop(self, eids: Set[str]) -> None:
        """Drop what some episodes say, and the manual edits of their facts."""
        gone = {
            name
            for evaluation in self.evaluations
            if evaluation.eid in eids
            for fired, _ in RULES.values()
            if fired.id == evaluation.rule_id
            for channel in fired.then_emits
            for name in (fact_id(channel, evaluation.eid), *fact_ids_of(evaluation, channel))
        }
        gone |= {name for eid, name in self.quarantined if eid in eids}
        self.evaluations = [one for one in self.evaluations if one.eid not in eids]
        self.edits = [
            (firing, name, claim)
            for firing, name, claim in self.edits
            if name not in gone and (claim is None or claim.asserts or not gone & set(claim.names))
        ]

    async def undo(self, firing: str) -> None:
        moment = START + timedelta(days=2, seconds=self.fired)
        outcome = await self.store.ledger.undo(firing, at=moment, by="me", dry_run=False)
        self.undone[outcome.firing_id] = firing
        self.firings.append(outcome.firing_id)

    def claims_of_episodes(self) -> tuple[list[OracleClaim], dict[str, int]]:
        """Return the claims of all episodes, and the newest version of each fact id's."""
        found: list[OracleClaim] = []
        newest_of: dict[str, int] = {}
        for channel in ("facts", "notes"):
            by_episode: dict[str, list[tuple[int, str, dict[str, Any] | None]]] = {}
            for fired, _ in RULES.values():
                if channel in fired.then_emits:
                    for eid, (seq, episode) in self.last_evaluations(fired.id).items():
                        by_episode.setdefault(eid, []).append((seq, fired.id, episode))
            for eid, versions in by_episode.items():
                newest = max(seq for seq, _, _ in versions)
                newest_of[fact_id(channel, eid)] = newest
                now = [(rule_id, e) for seq, rule_id, e in versions if seq == newest and e]
                if now:
                    found += claims_in(now[0][1], channel, tuple(sorted(r for r, _ in now)))
        return found, newest_of

    def claims(self) -> list[OracleClaim]:
        found, newest_of = self.claims_of_episodes()
        edits = {name: claim for firing, name, claim in self.edits if self.is_in_force(firing)}
        given = {name: claim for name, claim in edits.items() if claim is not None}
        # Another program's edit counts alone, until a newer version of its episode.
        ended = {
            name
            for name, claim in given.items()
            if claim.covers and newest_of.get(name.partition("#")[0], 0) > claim.covers
        }
        alone = {name for name, claim in given.items() if claim.covers} - ended
        kept = [claim for name, claim in given.items() if name not in ended]
        return [*(claim for claim in found if claim.fact_id not in alone), *kept]

    def newest_evaluated(self, name: str) -> int:
        """Return the newest version of an id's episode that any rule evaluated, undone or not.

        0 when no rule ever promoted the id.
        """
        found = [
            (evaluation, channel)
            for evaluation in self.evaluations
            for fired, _ in RULES.values()
            if fired.id == evaluation.rule_id
            for channel in fired.then_emits
            if fact_id(channel, evaluation.eid) == name.partition("#")[0]
        ]
        promoted = {
            claim.fact_id
            for evaluation, channel in found
            if evaluation.episode
            for claim in claims_in(evaluation.episode, channel)
            if claim.asserts
        }
        return max(evaluation.seq for evaluation, _ in found) if name in promoted else 0


def unreadable_ids(episode: dict[str, Any], channels: Iterable[str]) -> Iterator[str]:
    """Yield the fact ids of the parts of an episode that make no claim."""
    triples = episode["metadata"].get("triples")
    for channel in channels:
        found = {claim.fact_id for claim in claims_in(episode, channel)}
        parts = range(len(triples)) if isinstance(triples, list) else ()
        names = (plain_id(channel, f"{episode['id']}#{part + 1}") for part in parts)
        yield from (name for name in names if name not in found)


def fact_ids_of(evaluation: RecordedEvaluation, channel: str) -> list[str]:
    episode = evaluation.episode
    return [claim.fact_id for claim in claims_in(episode, channel)] if episode else []


async def check_equals_oracle(world: StoreAndOracle) -> None:
    claims = world.claims()
    expected = current_claims(claims, world.multi)
    facts = await world.store.query(FactPattern())
    found = {fact.id: fact for fact in facts}
    assert set(found) == set(expected)
    for id_, claim in expected.items():
        check_fact(found[id_], claim, replaced_ids(claim, claims, world.multi, DEPTH))
    rows, _, broken = await world.store.verify()
    assert broken is None, (rows, broken)


def check_fact(fact: Fact, claim: OracleClaim, older: list[str]) -> None:
    assert (fact.user, fact.agent) == (claim.user, claim.agent)
    assert fact.confidence == claim.confidence
    assert fact.payload.get("object") == claim.object
    instant_at = asserted_at(claim)
    assert fact.said_at == (fact.pinned_at if instant_at is None else instant(instant_at))
    if claim.precedence[1] < 2:
        own = [entry["rule_id"] for entry in fact.lineage if "rule_id" in entry]
        assert own == list(claim.rules)
        assert [entry["replaces"] for entry in fact.lineage[len(own) :]] == older


IDS = ["e1", "e2", "e3", "@e4", "bobs"]
NAMES = [*IDS, "e1#1", "e1#2", "e2#2"]
INTENTS = [None, None, "set", "add", "update", "update", "delete", "delete", "noop", "?"]
OBJECTS = ["a", "a", "b", "b a", 1, {"x": 1}]


@st.composite
def any_metadata(draw: st.DrawFn) -> dict[str, Any]:
    """Return metadata of any kind, some of it malformed."""
    metadata: dict[str, Any] = {}
    if draw(st.integers(0, 9)):
        metadata["subject"] = draw(st.sampled_from(["s", "s", "s", "t/u", "", None]))
        metadata["predicate"] = draw(st.sampled_from(["is", "likes"]))
    if draw(st.integers(0, 3)):
        metadata["object"] = draw(st.sampled_from(OBJECTS))
    intent = draw(st.sampled_from(INTENTS))
    if intent:
        metadata["intent"] = intent
        metadata["replaces"] = draw(
            st.none() | st.sampled_from(IDS) | st.lists(st.sampled_from(NAMES), max_size=2)
        )
    if draw(st.booleans()):
        metadata["confidence"] = draw(st.sampled_from([0.5, 0.5, 0.5, 1, 0, "high", True, 1.5]))
    return metadata


@st.composite
def metadata_with_triples(draw: st.DrawFn) -> dict[str, Any]:
    """Return metadata of several statements, with or without one of its own."""
    own = draw(st.just({}) | any_metadata())
    statements = competing_metadata() | any_metadata()
    return {**own, "triples": draw(st.lists(statements, max_size=3))}


@st.composite
def competing_metadata(draw: st.DrawFn) -> dict[str, Any]:
    """Return metadata that competes for two keys, one of them multi-valued."""
    metadata = {"subject": "s", "predicate": draw(st.sampled_from(["is", "likes"]))}
    if draw(st.integers(0, 4)):
        chosen = draw(st.sampled_from([{}, {}, {"intent": "set"}]))
        return metadata | {"object": draw(st.sampled_from(["a", "b", "b a"]))} | chosen
    words = draw(st.sampled_from([{}, {"object_words": ["A"]}, {"object_words": ["b", "a"]}]))
    return metadata | {"intent": "delete"} | words


@st.composite
def episodes(draw: st.DrawFn) -> dict[str, Any]:
    id_ = draw(st.sampled_from(IDS))
    return {
        "id": id_,
        "user": "bob" if id_ == "bobs" else "alice",
        "agent": "rag",
        "at": microseconds(START) + draw(st.integers(0, 3)),
        "tag": draw(st.integers(0, 2)),
        "metadata": draw(competing_metadata() | any_metadata() | metadata_with_triples()),
    }


PINNABLE = st.sampled_from(["e1", "e2", "e1#1", "p1", "p2"])
ANY_ID = st.sampled_from([*IDS, "e1#1", "e2#2", "p1", "p2", "@notes/e1", "@notes/e1#1"])
STEPS = st.lists(
    st.tuples(st.just("put"), episodes())
    | st.tuples(st.just("put"), episodes())
    | st.tuples(st.just("fire"), st.sampled_from(list(RULES)), st.integers(1, 4))
    | st.tuples(st.just("fire"), st.sampled_from(list(RULES)), st.integers(1, 4))
    | st.tuples(st.just("correct"), PINNABLE, st.sampled_from("ab"))
    | st.tuples(st.just("declare"), PINNABLE, st.sampled_from("ab"), st.integers(0, 5))
    | st.tuples(st.just("write_row"), PINNABLE, st.sampled_from("ab"), st.integers(0, 5))
    | st.tuples(st.just("channels"), st.booleans())
    | st.tuples(st.just("undo"), st.integers(1, 6))
    | st.just(("forget",))
    | st.tuples(st.just("forget_episode"), st.sampled_from(IDS))
    | st.tuples(st.sampled_from(["retract", "remove", "delete_row"]), ANY_ID),
    min_size=5,
    max_size=40,
)


async def do_step(world: StoreAndOracle, step: tuple[Any, ...]) -> None:
    name, *arguments = step
    if name == "put":
        world.put(*arguments)
    elif name == "fire":
        await world.fire(*arguments)
    elif name == "forget":
        await world.forget()
    elif name == "forget_episode":
        await world.forget_episode(*arguments)
    elif name == "undo":
        if len(world.firings) >= arguments[0]:
            await world.undo(world.firings[-arguments[0]])
    elif name == "channels":
        await change_channels(world, several=bool(arguments[0]))
    else:
        await DIRECT[name](world, *arguments)


async def change_channels(world: StoreAndOracle, *, several: bool) -> None:
    world.multi = set(MULTI) if several else set()
    await world.store.ledger.set_channels(CHANNELS if several else {}, at=START)


def fact_of(id_: str, what: str, at: int = 0) -> Fact:
    return Fact(
        id=id_,
        user="alice",
        agent="rag",
        payload={"subject": "s", "predicate": "is", "object": what},
        lineage=[{"kind": "manual", "source_id": "me"}],
        confidence=1.0,
        pinned_at=START + timedelta(microseconds=at),
    )


async def next_firing_id(world: StoreAndOracle, rule_id: str = "@manual") -> str:
    """Return the id that the next firing will have."""
    return f"{rule_id}@{await world.store.reads.ledger_rows() + 1}"


def add_edit(world: StoreAndOracle, firing: str, name: str, claim: OracleClaim | None) -> None:
    world.edits.append((firing, name, claim))
    world.firings.append(firing)


def assertion_of(world: StoreAndOracle, id_: str, what: str) -> OracleClaim:
    return OracleClaim(
        id_, "alice", "rag", "facts", precedence_of_edit(world), True, "s", "is", what, (), ""
    )


async def correct(world: StoreAndOracle, id_: str, what: str) -> None:
    """Correct a fact as a person; the ledger does not record an equal correction again."""
    claim = assertion_of(world, id_, what)
    rows = await world.store.reads.ledger_rows()
    await world.store.correct(fact_of(id_, what), by="me", reason="so it is")
    if await world.store.reads.ledger_rows() > rows:
        add_edit(world, f"@manual@{rows + 1}", id_, claim)


def current(world: StoreAndOracle, id_: str) -> OracleClaim | None:
    return current_claims(world.claims(), world.multi).get(id_)


async def retract(world: StoreAndOracle, id_: str) -> None:
    """Retract a fact as a person."""
    target = current(world, id_)
    firing = await next_firing_id(world)
    await world.store.retract(id_, by="me", reason="it is not so")
    if target is not None:
        claim = retraction(world, id_, target)
        add_edit(world, firing, claim.fact_id, claim)


def retraction(world: StoreAndOracle, id_: str, target: OracleClaim) -> OracleClaim:
    precedence = precedence_of_edit(world)
    return OracleClaim(
        f"manual {precedence}", target.user, target.agent, target.channel, precedence, False,
        target.subject, target.predicate, target.object, (id_,),
        "" if target.declared else "object", about=target,
    )  # fmt: skip


def declaration_of(world: StoreAndOracle, id_: str, what: str, at: int) -> OracleClaim:
    """Return the claim of a program's pin; it is a manual edit if a promoted fact has the id."""
    before = current(world, id_)
    assertion = assertion_of(world, id_, what)
    if before is not None and not before.declared:
        return assertion
    precedence = (microseconds(START) + at, 2, "")
    return replace(assertion, precedence=precedence, declared=True)


async def declare(world: StoreAndOracle, id_: str, what: str, at: int) -> None:
    """Pin a fact through the library, as a Stargraph host does; an equal pin is not recorded."""
    claim = declaration_of(world, id_, what, at)
    rows = await world.store.reads.ledger_rows()
    await world.store.pin(fact_of(id_, what, at))
    if await world.store.reads.ledger_rows() > rows:
        add_edit(world, f"@manual@{rows + 1}", id_, claim)
    else:
        assert current(world, id_) is not None


async def remove(world: StoreAndOracle, id_: str) -> None:
    """Unpin a fact through the library."""
    target = current(world, id_)
    firing = await next_firing_id(world)
    await world.store.unpin(id_)
    if target is not None:
        remove_from_oracle(world, firing, id_, target)


def remove_from_oracle(world: StoreAndOracle, firing: str, id_: str, target: OracleClaim) -> None:
    rivals = [claim for claim in world.claims() if claim.fact_id == id_ and not claim.declared]
    if target.declared and not rivals:
        add_edit(world, firing, id_, None)
    else:
        claim = retraction(world, id_, target)
        add_edit(world, firing, claim.fact_id, claim)


async def write_row(world: StoreAndOracle, id_: str, what: str, at: int) -> None:
    """Let another program write a row into the table of facts."""
    before, claim = current(world, id_), declaration_of(world, id_, what, at)
    firing = await next_firing_id(world, "@external")
    fact = fact_of(id_, what, at)
    known = await world.store.query(FactPattern(id=id_))
    if not claim.declared and [each.pinned_at for each in known] != [fact.pinned_at]:
        claim = with_instant_of_row(world, claim, at)
    if not claim.declared:
        claim = replace(claim, covers=world.newest_evaluated(id_))
    row = (
        id_, "alice", "rag", orjson.dumps(fact.payload), b'[ {"of": "another program"} ]', 1.0,
        "{}", fact.pinned_at.isoformat(),
    )  # fmt: skip
    with closing(sqlite3.connect(path_of(world.store))) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    if await world.store.ledger.notice_external():
        add_edit(world, firing, id_, claim)
    else:
        assert before is not None


def with_instant_of_row(world: StoreAndOracle, claim: OracleClaim, at: int) -> OracleClaim:
    """Return an edit with the instant of its row, or the newest that its id and key hold then.

    An episode after that instant supersedes the edit. A row with the instant that was stored
    already has none of its own.
    """
    claims = world.claims()
    of_key = [other for other in claims if other.key == claim.key and not other.declared]
    retracting = [other for other in claims if any(other.names_claim(each) for each in of_key)]
    of_id = [other for other in claims if other.fact_id == claim.fact_id]
    held = [other.precedence[0] for other in (*of_key, *retracting, *of_id)]
    instant_of_edit = max([microseconds(START) + at, *held])
    return replace(claim, precedence=(instant_of_edit, *claim.precedence[1:]))


async def delete_row(world: StoreAndOracle, id_: str) -> None:
    """Let another program delete a row from the table of facts."""
    target = current(world, id_)
    firing = await next_firing_id(world, "@external")
    with closing(sqlite3.connect(path_of(world.store))) as connection, connection:
        connection.execute("DELETE FROM facts WHERE fact_id = ?", (id_,))
    await world.store.ledger.notice_external()
    covers = world.newest_evaluated(id_)
    if target is not None and covers and not target.declared:
        claim = replace(retraction(world, id_, target), fact_id=id_, covers=covers)
        add_edit(world, firing, id_, claim)
    elif target is not None:
        remove_from_oracle(world, firing, id_, target)


DIRECT: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "correct": correct,
    "retract": retract,
    "declare": declare,
    "remove": remove,
    "write_row": write_row,
    "delete_row": delete_row,
}
"""The edits of people and programs, by name."""


def precedence_of_edit(world: StoreAndOracle) -> tuple[int, int, str]:
    world.moments += 1
    return (10**18, 2, f"{world.moments:09d}")


OF_OTHER_PROGRAMS = ("write_row", "delete_row")
"""The steps that a database does not allow."""


def play(steps: Iterable[tuple[Any, ...]], new_stores: NewStores = new_files) -> None:
    with new_stores() as provider, tempfile.TemporaryDirectory() as folder:
        asyncio.run(take_steps(steps, provider, Path(folder)))


def without_other_programs(steps: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [step for step in steps if step[0] not in OF_OTHER_PROGRAMS]


async def take_steps(steps: Iterable[tuple[Any, ...]], provider: Provider, folder: Path) -> None:
    async with provider.facts(lineage_depth=DEPTH, clock=AdvancingClock()) as store:
        await store.bootstrap()
        await store.ledger.set_channels(CHANNELS, at=START)
        world = StoreAndOracle(store)
        for step in steps:
            await do_step(world, step)
            if step[0] != "put":
                await check_equals_oracle(world)
        for name in RULES:
            await world.fire(name, 1_000)
        await check_equals_oracle(world)
        replayed = await store.replay(folder / "again.db")
        assert replayed.differing == 0, replayed


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(20, full=50), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_current_facts_equal_the_oracle_after_every_step(steps: list[tuple[Any, ...]]) -> None:
    play(steps)


@pytest.mark.nightly
@pytest.mark.sampled
@settings(max_examples=amount(6, full=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_current_facts_of_a_database_equal_the_oracle_after_every_step(
    new_databases: NewStores, steps: list[tuple[Any, ...]]
) -> None:
    play(without_other_programs(steps), new_databases)


def put_of_e1(at: int, what: str) -> tuple[Any, ...]:
    metadata = {"subject": "s", "predicate": "is", "object": what}
    instant_of_episode = microseconds(START) + at
    return (
        "put",
        {
            "id": "e1",
            "user": "alice",
            "agent": "rag",
            "at": instant_of_episode,
            "tag": 0,
            "metadata": metadata,
        },
    )


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [
                put_of_e1(0, "a"), ("fire", "all", 1), ("write_row", "e1", "b", 0),
                put_of_e1(1, "c"), ("fire", "all", 1),
            ],
            id="a newer episode",
        ),
        pytest.param(
            [
                put_of_e1(1, "b"), ("fire", "all", 1), put_of_e1(0, "a"), ("fire", "all", 1),
                ("write_row", "e1", "a", 0), ("undo", 2),
            ],
            id="an earlier version that an undo brings back",
        ),
        pytest.param(
            [
                put_of_e1(0, "delete"), put_of_e1(1, "b"), ("fire", "all", 2), put_of_e1(0, "a"),
                ("fire", "all", 1), ("write_row", "e1", "b", 0), ("undo", 2),
            ],
            id="an earlier version that is later than the row",
        ),
        pytest.param(
            [
                put_of_e1(1, "b"), ("fire", "all", 1), ("delete_row", "e1"), put_of_e1(0, "b"),
                ("fire", "all", 1),
            ],
            id="a newer version after a removal",
        ),
        pytest.param(
            [
                put_of_e1(0, "a"), ("correct", "e2", "a"), ("fire", "all", 1), ("undo", 2),
                ("write_row", "e1", "a", 0), ("undo", 2),
            ],
            id="an earlier edit that an undo brings back",
        ),
    ],
)  # fmt: skip
def test_row_of_another_program_gives_way_to_what_is_later_than_its_instant(
    steps: list[tuple[Any, ...]],
) -> None:
    play(steps)


@pytest.mark.parametrize("first", ["p1", "e2"])
def test_replay_lists_the_removed_facts_of_an_edited_delete_in_the_same_order(
    new_stores: NewStores, first: str
) -> None:
    def delete_by_key(later: int) -> dict[str, Any]:
        metadata = {"subject": "s", "predicate": "is", "intent": "delete"}
        at = 1_767_268_800_000_000 + later
        return {"id": "e1", "user": "alice", "agent": "rag", "at": at, "tag": 0} | {
            "metadata": metadata
        }

    second = "e2" if first == "p1" else "p1"
    steps: list[tuple[Any, ...]] = [
        ("declare", first, "a", 0),
        ("put", delete_by_key(0)),
        ("declare", second, "a", 0),
        ("put", delete_by_key(1)),
    ]

    play(steps, new_stores)


def episode_of(id_: str, tag: int, **metadata: str) -> dict[str, Any]:
    return {
        "id": id_, "user": "alice", "agent": "rag", "at": microseconds(START), "tag": tag,
        "metadata": {"subject": "s", **metadata},
    }  # fmt: skip


def test_delete_of_a_key_by_a_second_rule_has_the_same_reason_in_the_replay(
    new_stores: NewStores,
) -> None:
    steps = [
        ("put", episode_of("e1", 0, predicate="is", intent="delete")),
        ("put", episode_of("e1", 0, predicate="likes", object="a")),
        ("put", episode_of("e2", 0, predicate="is", intent="delete")),
        ("fire", "tagged", 2),
        ("put", episode_of("e2", 1, predicate="likes", intent="delete")),
    ]
    play(steps, new_stores)


def put(id_: str, *, later: int = 0, tag: int = 0, **metadata: Any) -> tuple[str, dict[str, Any]]:
    at = microseconds(START) + later
    episode = {"id": id_, "user": "alice", "agent": "rag", "at": at, "tag": tag}
    return "put", {**episode, "metadata": metadata}


DELETE: dict[str, Any] = {"subject": "s", "predicate": "is", "intent": "delete"}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [put("e1", triples=[{}]), ("fire", "all", 1), put("e1", **DELETE),
             ("correct", "e1#1", "a")],
            id="correction of a triple",
        ),
        pytest.param(
            [put("e1", triples=[{"intent": "update", "replaces": ["e2"]}]), ("fire", "all", 1),
             put("e1", later=1, **DELETE), put("e2")],
            id="withdrawn triple names what arrives",
        ),
        pytest.param(
            [put("e1", object="a", intent="update", replaces=["e2"]), ("fire", "all", 4),
             put("e2", subject="s", predicate="is", object="a"), ("fire", "all", 4), ("forget",)],
            id="fact that names an erased episode",
        ),
        pytest.param(
            [put("e1", triples=[{"object": "a", "intent": "update", "replaces": ["e2#1"]}]),
             ("fire", "all", 4), put("e2", triples=[{"subject": "s", "predicate": "is"}]),
             ("fire", "all", 4), ("forget",)],
            id="triple that names an erased triple",
        ),
    ],
)  # fmt: skip
def test_history_that_once_differed_equals_the_oracle(
    new_stores: NewStores, steps: list[tuple[Any, ...]]
) -> None:
    play(steps, new_stores)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [put("e1", subject="s", predicate="likes", object="a"), ("fire", "all", 3),
             put("e1", triples=[]), ("write_row", "e1", "a", 0), ("correct", "e1", "a")],
            id="a person's edit after that of a program",
        ),
        pytest.param(
            [put("e1", tag=1, subject="s", predicate="likes", object="a"), ("channels", False),
             ("fire", "all", 1), ("write_row", "e1", "a", 0)],
            id="a second rule evaluates what the edit covers",
        ),
    ],
)  # fmt: skip
def test_edit_of_a_program_that_hides_a_claim_equals_the_oracle(
    steps: list[tuple[Any, ...]],
) -> None:
    play(steps)


def test_what_one_of_two_siblings_names_may_arrive_later(new_stores: NewStores) -> None:
    named = {"subject": "s", "predicate": "is", "object": "a", "intent": "update"}
    triples = [named | {"replaces": "e2"}, {"subject": "s", "predicate": "is"}]
    late = put("e2", tag=1, later=1, subject="s", predicate="likes", object="a")

    play([put("e3", triples=triples), ("fire", "all", 3), late], new_stores)


def test_row_of_another_program_for_a_triple_equals_the_oracle() -> None:
    write = ("write_row", "e1#1", "a", 0)

    play([put("e1", triples=[{}]), ("fire", "all", 1), put("e1", **DELETE), write])

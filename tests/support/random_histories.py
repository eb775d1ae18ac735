"""Random histories: the steps for a store, and the same steps for an oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.oracle import OracleClaim, claims_in, is_withdrawn
from tests.support.providers import AnyFactStore, NewStores, Provider, new_files

MULTI = {"facts": frozenset({"likes"}), "notes": frozenset({"likes"})}
PAIRS = {(channel, predicate) for channel, some in MULTI.items() for predicate in some}
DEPTH = 2
MOMENTS = range(5)
"""The instants of episodes, in seconds after the start."""

RULES = {
    "all": (rule("all"), lambda tag: True),
    "tagged": (rule("tagged", then_emits=["facts", "notes"]), lambda tag: tag > 0),
}
USERS = {"e1": "alice", "e2": "alice", "e3": "alice", "e4": "bob"}

Step = tuple[Any, ...]
Shown = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class RecordedEvaluation:
    """A rule's evaluation of a version; no episode when the version makes no claim."""

    firing: int
    at: datetime
    rule_id: str
    eid: str
    seq: int
    episode: dict[str, Any] | None


@dataclass(frozen=True)
class RecordedUndo:
    """The undo of a firing, which may itself be an undo."""

    firing: int
    at: datetime
    undoes: int


@dataclass
class Story:
    """A store, and a record of the same steps for the oracle."""

    store: AnyFactStore
    clock: FakeClock
    log: list[dict[str, Any]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    evaluations: list[RecordedEvaluation] = field(default_factory=list)
    undos: list[RecordedUndo] = field(default_factory=list)
    firings: list[tuple[int, str]] = field(default_factory=list)
    shots: list[tuple[datetime, Shown]] = field(default_factory=list)

    async def take_step(self, step: Step) -> None:
        """Take a step at a later instant; record the facts that are current after it."""
        self.clock.advance(60)
        what, *rest = step
        rows = await self.store.reads.ledger_rows()
        await getattr(self, what)(*rest)
        if await self.store.reads.ledger_rows() > rows:
            self.shots.append((self.clock.now(), await facts_of(self.store)))

    async def put(self, episode: dict[str, Any]) -> None:
        self.log.append(episode)

    async def fire(self, name: str, limit: int) -> None:
        fired, matches = RULES[name]
        after = self.read.get(name, 0)
        upto = min(after + limit, len(self.log))
        newest = {episode["id"]: seq for seq, episode in enumerate(self.log, start=1)}
        window = {eid: seq for eid, seq in newest.items() if after < seq <= upto}
        if upto == after:
            return
        versions = [self._version(seq, matches) for seq in window.values()]
        end = Position(upto, self.log[upto - 1]["id"])
        firing = Firing(name, "h", "every", self.clock.now(), Position(), end)
        outcome = await self.store.apply_deltas(DeltaBatch(firing, evaluate(versions, fired)))
        number = outcome.records[0].seq
        for version in versions:
            self._remember(number, name, version)
        self.read[name] = upto
        self.firings.append((number, outcome.firing_id))

    def _version(self, seq: int, matches: Callable[[int], bool]) -> EpisodeVersion:
        episode = self.log[seq - 1]
        return EpisodeVersion(
            seq, episode["id"], episode["user"], "s", "rag", episode["at"], f"text {seq}", "node",
            episode["metadata"], matches(episode["tag"]),
        )  # fmt: skip

    def _remember(self, number: int, rule_id: str, version: EpisodeVersion) -> None:
        episode = self.log[version.seq - 1]
        if not version.matched or is_withdrawn(version.metadata):
            before = [
                evaluation
                for evaluation in self.remaining(self.clock.now())
                if is_of(evaluation, rule_id, version.id)
            ]
            if not before or before[-1].episode is None:
                return
            episode = {}
        claimed = episode if episode and claims_in(episode, "facts") else None
        self.evaluations.append(
            RecordedEvaluation(number, self.clock.now(), rule_id, version.id, version.seq, claimed)
        )

    async def undo(self, which: int) -> None:
        if not self.firings:
            return
        number, firing_id = self.firings[which % len(self.firings)]
        now = self.clock.now()
        outcome = await self.store.ledger.undo(firing_id, at=now, by="me", dry_run=False)
        self.undos.append(RecordedUndo(outcome.records[0].seq, now, number))
        self.firings.append((outcome.records[0].seq, outcome.firing_id))

    async def pin(self, fact_id: str, what: str) -> None:
        payload = {"subject": "s", "predicate": "is", "object": what}
        await self.store.pin(
            Fact(
                id=fact_id, user="alice", agent="rag", payload=payload, lineage=[{"by": "me"}],
                confidence=1.0, pinned_at=START,
            )
        )  # fmt: skip

    async def unpin(self, fact_id: str) -> None:
        await self.store.unpin(fact_id)

    async def several(self, yes: bool) -> None:
        await self.store.ledger.set_channels(MULTI if yes else {}, at=self.clock.now())

    def remaining(self, believed_at: datetime) -> list[RecordedEvaluation]:
        """Return the evaluations up to an instant, without those that were undone by then."""
        undone: set[int] = set()
        for undo in reversed(self.undos):
            if undo.at <= believed_at and undo.firing not in undone:
                undone.add(undo.undoes)
        return [
            evaluation
            for evaluation in self.evaluations
            if evaluation.at <= believed_at and evaluation.firing not in undone
        ]

    def claims(self, believed_at: datetime, valid_at: datetime) -> list[OracleClaim]:
        """Return the claims up to `valid_at` that were evaluated up to `believed_at`."""
        found = []
        for channel in MULTI:
            by_episode: dict[str, dict[str, RecordedEvaluation]] = {}
            for evaluation in self.remaining(believed_at):
                if channel in RULES[evaluation.rule_id][0].then_emits:
                    by_episode.setdefault(evaluation.eid, {})[evaluation.rule_id] = evaluation
            found += list(claims_of(by_episode, channel))
        return [claim for claim in found if claim.precedence[0] <= microseconds(valid_at)]


def is_of(evaluation: RecordedEvaluation, rule_id: str, eid: str) -> bool:
    return (evaluation.rule_id, evaluation.eid) == (rule_id, eid)


def claims_of(
    by_episode: dict[str, dict[str, RecordedEvaluation]], channel: str
) -> Iterator[OracleClaim]:
    for by_rule in by_episode.values():
        newest = max(evaluation.seq for evaluation in by_rule.values())
        now = [
            evaluation
            for evaluation in by_rule.values()
            if evaluation.seq == newest and evaluation.episode
        ]
        if now and now[0].episode:
            rules = tuple(sorted(evaluation.rule_id for evaluation in now))
            yield from claims_in(now[0].episode, channel, rules)


async def facts_of(store: AnyFactStore, user: str | None = None, **then: Any) -> Shown:
    found = await store.query(FactPattern(user=user), **then)
    return {fact.id: fact.model_dump() for fact in found}


@st.composite
def episodes(draw: st.DrawFn) -> dict[str, Any]:
    """Return an episode at one of a few instants, so that many are late and most are edited."""
    eid = draw(st.sampled_from(list(USERS)))
    metadata: dict[str, Any] = {"subject": "s"}
    metadata["predicate"] = draw(st.sampled_from(["is", "is", "likes"]))
    if draw(st.integers(0, 5)):
        metadata["object"] = draw(st.sampled_from("abc"))
    if not draw(st.integers(0, 3)):
        several = st.fixed_dictionaries(
            {"subject": st.just("s"), "predicate": st.just("is"), "object": st.sampled_from("ab")}
        )
        metadata["triples"] = draw(st.lists(several, max_size=2))
    intent = draw(st.sampled_from([None, None, None, "update", "delete", "noop", "?"]))
    if intent:
        metadata["intent"] = intent
    if intent in ("update", "delete") and draw(st.booleans()):
        metadata["replaces"] = draw(st.sampled_from(list(USERS)))
    if not draw(st.integers(0, 5)):
        metadata["withdrawn"] = draw(st.sampled_from(["rewound", "", None]))
    return {
        "id": eid,
        "user": USERS[eid],
        "agent": "rag",
        "at": microseconds(START) + 1_000_000 * draw(st.sampled_from(MOMENTS)),
        "tag": draw(st.integers(0, 1)),
        "metadata": metadata,
    }


PUT = st.tuples(st.just("put"), episodes())
FIRE = st.tuples(st.just("fire"), st.sampled_from(list(RULES)), st.integers(1, 3))
UNDO = st.tuples(st.just("undo"), st.integers(0, 30))
PIN = st.tuples(st.just("pin"), st.sampled_from(["e1", "p1"]), st.sampled_from("ab"))
UNPIN = st.tuples(st.just("unpin"), st.sampled_from(["e1", "e2", "p1", "@notes/e1"]))
SEVERAL = st.tuples(st.just("several"), st.booleans())

ACTS = st.lists(PUT | PUT | FIRE | FIRE | UNDO, min_size=5, max_size=30)
"""Episodes, firings and undos, without manual edits."""

EVERYTHING = st.lists(
    PUT | PUT | FIRE | FIRE | UNDO | PIN | UNPIN | SEVERAL, min_size=5, max_size=30
)


def play(
    steps: Sequence[Step],
    check: Callable[[Story], Coroutine[None, None, None]],
    new_stores: NewStores = new_files,
) -> None:
    """Take all steps on a new store, fire every rule to the end, and check the result."""

    async def main(provider: Provider) -> None:
        clock = FakeClock(START + timedelta(days=1))
        async with provider.facts(lineage_depth=DEPTH, clock=clock) as store:
            await store.bootstrap()
            story = Story(store, clock)
            for step in [("several", True), *steps, *(("fire", name, 99) for name in RULES)]:
                await story.take_step(step)
            await check(story)

    with new_stores() as provider:
        asyncio.run(main(provider))

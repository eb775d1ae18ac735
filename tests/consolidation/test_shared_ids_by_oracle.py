"""Two users take the same ids in turn; the facts equal those of a naive model."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import FactConflictError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position, Trigger
from slumberd.model.scope import ScopeFilter
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.oracle import OracleClaim, claim_of, current_claims
from tests.support.providers import AnyFactStore, NewStores, Provider, new_files
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

USERS = ("ann", "bob")
IDS = ("e0", "e1")
MULTI = {"facts": frozenset({"likes"})}
PAIRS = {("facts", "likes")}
RULES: dict[str, Callable[[int], bool]] = {"all": lambda tag: True, "tagged": lambda tag: tag > 0}
MANUAL = "@manual"

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Evaluated:
    """A rule's evaluation of an id, or a manual edit; the claim may be missing."""

    firing: int
    by: str
    version: int
    id: str
    user: str
    claim: OracleClaim | None

    @property
    def source(self) -> tuple[str, int]:
        """Its source: a version of an episode, or the firing of a manual edit."""
        return self.by, self.version or -self.firing


@dataclass
class StoreAndOracle:
    """A store, and the naive model of the same steps."""

    store: AnyFactStore
    clock: FakeClock
    log: list[dict[str, Any]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    evaluations: list[Evaluated] = field(default_factory=list)
    undoings: list[tuple[int, int, frozenset[str]]] = field(default_factory=list)
    firings: list[tuple[int, str]] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)
    manual_edits: int = 0

    # queries of the model

    def remaining(
        self, id: str, undoings: Sequence[tuple[int, int, frozenset[str]]]
    ) -> list[Evaluated]:
        """Return the evaluations under an id that were not undone."""
        voided: dict[int, int] = {}
        for number, undoes, ids in reversed(undoings):
            if id in ids and number not in voided:
                voided.setdefault(undoes, number)
        first: dict[tuple[str, int], int] = {}
        mine = [evaluation for evaluation in self.evaluations if evaluation.id == id]
        for evaluation in mine:
            first.setdefault(evaluation.source, evaluation.firing)
        return [
            evaluation
            for evaluation in mine
            if evaluation.firing not in voided
            and evaluation.firing > voided.get(first[evaluation.source], 0)
        ]

    def last_evaluations(self, id: str) -> dict[str, Evaluated]:
        return {evaluation.by: evaluation for evaluation in self.remaining(id, self.undoings)}

    def holders(self, id: str) -> set[str]:
        return {
            evaluation.user for evaluation in effective_claims(self.last_evaluations(id).values())
        }

    def claims(self) -> list[OracleClaim]:
        ids = dict.fromkeys(evaluation.id for evaluation in self.evaluations)
        found = [
            evaluation
            for id in ids
            for evaluation in effective_claims(self.last_evaluations(id).values())
        ]
        by_id: dict[str, set[str]] = {}
        for evaluation in found:
            by_id.setdefault(evaluation.id, set()).add(evaluation.user)
        assert all(len(users) == 1 for users in by_id.values())
        rules = {id: promoters(self.last_evaluations(id).values()) for id in ids}
        return [
            OracleClaim(**{**evaluation.claim.__dict__, "rules": rules[evaluation.id]})
            for evaluation in found
            if evaluation.claim
        ]

    # steps of both

    async def put(self, episode: dict[str, Any]) -> None:
        self.log.append(episode)

    async def fire(self, name: str, limit: int) -> None:
        after = self.read.get(name, 0)
        upto = min(after + limit, len(self.log))
        if upto > after:
            self.read[name] = upto
            await self._evaluate(name, after, upto, "every")

    async def backfill(self, name: str) -> None:
        if self.read.get(name):
            await self._evaluate(name, 0, self.read[name], "backfill")

    async def _evaluate(self, name: str, after: int, upto: int, trigger: Trigger) -> None:
        newest = {episode["id"]: number for number, episode in enumerate(self.log, start=1)}
        numbers = [number for number in newest.values() if after < number <= upto]
        versions = [self._version(name, number) for number in numbers]
        end = Position(self.read[name], self.log[self.read[name] - 1]["id"])
        firing = Firing(name, "h", trigger, self.clock.now(), Position(), end)
        outcome = await self.store.apply_deltas(DeltaBatch(firing, evaluate(versions, rule(name))))
        number = outcome.records[0].seq
        for version in sorted(versions, key=lambda version: (version.at, version.id)):
            self._remember(number, name, version)
        self.firings.append((number, outcome.firing_id))

    def _version(self, name: str, number: int) -> EpisodeVersion:
        episode = self.log[number - 1]
        return EpisodeVersion(
            number, episode["id"], episode["user"], "s", "rag", episode["at"], "text", "node",
            episode["metadata"], RULES[name](episode["tag"]),
        )  # fmt: skip

    def _remember(self, firing: int, name: str, version: EpisodeVersion) -> None:
        holders = self.holders(version.id)
        last = self.last_evaluations(version.id).get(name)
        if version.user in self.erased or (holders and version.user not in holders):
            return
        claim = claim_of(self.log[version.seq - 1], "facts", (name,)) if version.matched else None
        if not version.matched and (last is None or last.claim is None):
            return
        evaluation = Evaluated(firing, name, version.seq, version.id, version.user, claim)
        if last is None or (last.version, last.claim) != (
            evaluation.version,
            evaluation.claim,
        ):
            self.evaluations.append(evaluation)

    async def pin(self, user: str, id: str) -> None:
        holders = self.holders(id)
        self.manual_edits += 1
        precedence = (10**18, 2, f"{self.manual_edits:09d}")
        what = f"pin {self.manual_edits}"
        fact = Fact(
            id=id, user=user, agent="rag", lineage=[{"by": "me"}], confidence=1.0, pinned_at=START,
            payload={"subject": "s", "predicate": "is", "object": what},
        )  # fmt: skip
        if holders and user not in holders:
            with pytest.raises(FactConflictError):
                await self.store.correct(fact, by="me", reason="so")
            return
        claim = OracleClaim(id, user, "rag", "facts", precedence, True, "s", "is", what, (), "")
        await self._edit(self.store.correct(fact, by="me", reason="so"), id, claim)

    async def unpin(self, id: str) -> None:
        target = current_claims(self.claims(), PAIRS).get(id)
        self.manual_edits += 1
        precedence = (10**18, 2, f"{self.manual_edits:09d}")
        if target is None:
            await self.store.retract(id, by="me", reason="so")
            return
        claim = OracleClaim(
            f"manual {self.manual_edits}", target.user, "rag", "facts", precedence, False,
            target.subject, target.predicate, target.object, (id,), "object", about=target,
        )  # fmt: skip
        await self._edit(self.store.retract(id, by="me", reason="so"), claim.fact_id, claim)

    async def _edit(self, edit: Any, id: str, claim: OracleClaim) -> None:
        number = await self.store.reads.ledger_rows() + 1
        await edit
        self.evaluations.append(Evaluated(number, MANUAL, 0, id, claim.user, claim))
        self.firings.append((number, f"{MANUAL}@{number}"))

    async def undo(self, which: int) -> None:
        if not self.firings:
            return
        number, firing_id = self.firings[which % len(self.firings)]
        outcome = await self.store.ledger.undo(firing_id, at=self.clock.now(), by="", dry_run=False)
        by = outcome.records[0].seq
        ids_of_firing = {
            evaluation.id for evaluation in self.evaluations if evaluation.firing == number
        }
        ids_of_firing.update(
            id for undoing, _, ids in self.undoings if undoing == number for id in ids
        )
        undone = {
            id for id in ids_of_firing if not self._is_taken(id, (by, number, frozenset([id])))
        }
        self.undoings.append((by, number, frozenset(undone)))
        self.firings.append((by, outcome.firing_id))

    def _is_taken(self, id: str, undoing: tuple[int, int, frozenset[str]]) -> bool:
        """Return whether an undo would restore a claim of a user who does not hold the id."""
        before = self.last_evaluations(id).values()
        after = {
            evaluation.by: evaluation
            for evaluation in self.remaining(id, [*self.undoings, undoing])
        }.values()
        holders = {
            evaluation.user
            for evaluation in effective_claims(
                [evaluation for evaluation in after if evaluation in before]
            )
        }
        return bool(holders) and any(
            evaluation.user not in holders
            for evaluation in after
            if evaluation.claim and evaluation not in before
        )

    async def forget(self, user: str) -> None:
        now = self.clock.now()
        await self.store.erasures.forget(
            ScopeFilter(user, None, None), moment=microseconds(now), at=now, by="", dry_run=False
        )
        self.evaluations = [
            evaluation for evaluation in self.evaluations if evaluation.user != user
        ]
        self.erased.add(user)


def effective_claims(evaluations: Any) -> list[Evaluated]:
    """Return those that count: a rule's of the newest version, and the last manual edit."""
    evaluations = list(evaluations)
    newest = max(
        (evaluation.version for evaluation in evaluations if evaluation.by != MANUAL), default=0
    )
    of_rules = [
        evaluation
        for evaluation in evaluations
        if evaluation.by != MANUAL and evaluation.version == newest and evaluation.claim
    ]
    return [*of_rules[:1], *(evaluation for evaluation in evaluations if evaluation.by == MANUAL)]


def promoters(evaluations: Any) -> tuple[str, ...]:
    evaluations = [evaluation for evaluation in evaluations if evaluation.by != MANUAL]
    newest = max((evaluation.version for evaluation in evaluations), default=0)
    return tuple(
        sorted(
            evaluation.by
            for evaluation in evaluations
            if evaluation.version == newest and evaluation.claim
        )
    )


@st.composite
def episodes(draw: st.DrawFn) -> dict[str, Any]:
    metadata = {"subject": "s", "predicate": draw(st.sampled_from(["is", "is", "likes"]))}
    if draw(st.integers(0, 4)):
        metadata["object"] = draw(st.sampled_from("ab"))
    intent = draw(st.sampled_from([None, None, None, "update", "delete", "?"]))
    if intent:
        metadata["intent"] = intent
    if intent in ("update", "delete") and draw(st.booleans()):
        metadata["replaces"] = draw(st.sampled_from(IDS))
    return {
        "id": draw(st.sampled_from(IDS)),
        "user": draw(st.sampled_from(USERS)),
        "agent": "rag",
        "at": microseconds(START) + 1_000_000 * draw(st.integers(0, 3)),
        "tag": draw(st.integers(0, 1)),
        "metadata": metadata,
    }


PUT = st.tuples(st.just("put"), episodes())
FIRE = st.tuples(st.just("fire"), st.sampled_from(list(RULES)), st.integers(1, 3))
UNDO = st.tuples(st.just("undo"), st.integers(0, 30))
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    PUT
    | PUT
    | FIRE
    | FIRE
    | UNDO
    | UNDO
    | st.tuples(st.just("backfill"), st.sampled_from(list(RULES)))
    | st.tuples(st.just("pin"), st.sampled_from(USERS), st.sampled_from(IDS))
    | st.tuples(st.just("unpin"), st.sampled_from(IDS))
    | st.tuples(st.just("forget"), st.sampled_from(USERS)),
    min_size=4,
    max_size=30,
)


async def check(world: StoreAndOracle) -> None:
    expected = {
        id: (claim.user, claim.object)
        for id, claim in current_claims(world.claims(), PAIRS).items()
    }
    facts = await world.store.query(FactPattern())
    assert {fact.id: (fact.user, fact.payload.get("object")) for fact in facts} == expected
    _, _, broken = await world.store.verify()
    assert broken is None


def play(steps: Sequence[Step], new_stores: NewStores = new_files) -> None:
    with new_stores() as provider, tempfile.TemporaryDirectory() as folder:
        asyncio.run(take_steps(steps, provider, Path(folder)))


async def take_steps(steps: Sequence[Step], provider: Provider, folder: Path) -> None:
    clock = FakeClock(START + timedelta(days=1))
    async with provider.facts(clock=clock) as store:
        await store.bootstrap()
        await store.ledger.set_channels(MULTI, at=START)
        world = StoreAndOracle(store, clock)
        for name, *arguments in steps:
            clock.advance(60)
            await getattr(world, name)(*arguments)
            if name != "put":
                await check(world)
        replayed = await store.replay(folder / "again.db")
        assert replayed.differing == 0, replayed.first


@pytest.mark.slow
@settings(
    max_examples=amount(120, full=600), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(STEPS)
def test_two_users_of_the_same_ids_equal_the_oracle(steps: list[Step]) -> None:
    play(steps)


@pytest.mark.nightly
@settings(max_examples=amount(20, full=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_two_users_of_the_same_ids_in_a_database_equal_the_oracle(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, new_databases)

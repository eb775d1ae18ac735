"""Two users who use the same ids in turn, against a naive model: the first one holds an id."""

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

from slumberd.consolidation.incoming import evaluate
from slumberd.errors import FactConflictError
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Firing, Position, Trigger
from slumberd.model.scope import ScopeFilter
from slumberd.storage.facts.store import SQLiteFactStore
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.oracle import OracleClaim, claim_of, current_claims

pytestmark = pytest.mark.integration

USERS = ("ann", "bob")
IDS = ("e0", "e1")
MULTI = {"facts": frozenset({"likes"})}
PAIRS = {("facts", "likes")}
RULES: dict[str, Callable[[int], bool]] = {"all": lambda tag: True, "tagged": lambda tag: tag > 0}
MANUAL = "@manual"

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Word:
    """What a rule evaluated, or a person said, under an id; no act when it says nothing."""

    firing: int
    by: str
    version: int
    id: str
    user: str
    claim: OracleClaim | None

    @property
    def same(self) -> tuple[str, int]:
        """What it is evaluated from: a version, or a person's moment."""
        return self.by, self.version or -self.firing


@dataclass
class StoreAndOracle:
    """A store, and the naive model of what it was told."""

    store: SQLiteFactStore
    clock: FakeClock
    log: list[dict[str, Any]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    undoings: list[tuple[int, int, frozenset[str]]] = field(default_factory=list)
    firings: list[tuple[int, str]] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    hands: int = 0

    # what the model says

    def remaining(self, id: str, undoings: Sequence[tuple[int, int, frozenset[str]]]) -> list[Word]:
        """Return the words under an id that were not undone."""
        voided: dict[int, int] = {}
        for number, undoes, ids in reversed(undoings):
            if id in ids and number not in voided:
                voided.setdefault(undoes, number)
        first: dict[tuple[str, int], int] = {}
        mine = [word for word in self.words if word.id == id]
        for word in mine:
            first.setdefault(word.same, word.firing)
        return [
            word
            for word in mine
            if word.firing not in voided and word.firing > voided.get(first[word.same], 0)
        ]

    def last(self, id: str) -> dict[str, Word]:
        return {word.by: word for word in self.remaining(id, self.undoings)}

    def holders(self, id: str) -> set[str]:
        return {word.user for word in effective_claims(self.last(id).values())}

    def claims(self) -> list[OracleClaim]:
        ids = dict.fromkeys(word.id for word in self.words)
        found = [word for id in ids for word in effective_claims(self.last(id).values())]
        by_id: dict[str, set[str]] = {}
        for word in found:
            by_id.setdefault(word.id, set()).add(word.user)
        assert all(len(users) == 1 for users in by_id.values())
        rules = {id: promoters(self.last(id).values()) for id in ids}
        return [
            OracleClaim(**{**word.claim.__dict__, "rules": rules[word.id]})
            for word in found
            if word.claim
        ]

    # what is done to both

    async def put(self, episode: dict[str, Any]) -> None:
        self.log.append(episode)

    async def fire(self, name: str, limit: int) -> None:
        after = self.read.get(name, 0)
        upto = min(after + limit, len(self.log))
        if upto > after:
            self.read[name] = upto
            await self._meet(name, after, upto, "every")

    async def backfill(self, name: str) -> None:
        if self.read.get(name):
            await self._meet(name, 0, self.read[name], "backfill")

    async def _meet(self, name: str, after: int, upto: int, trigger: Trigger) -> None:
        newest = {one["id"]: number for number, one in enumerate(self.log, start=1)}
        numbers = [number for number in newest.values() if after < number <= upto]
        versions = [self._version(name, number) for number in numbers]
        end = Position(self.read[name], self.log[self.read[name] - 1]["id"])
        firing = Firing(name, "h", trigger, self.clock.now(), Position(), end)
        outcome = await self.store.ledger.commit(firing, evaluate(versions, rule(name)))
        number = outcome.records[0].seq
        for one in sorted(versions, key=lambda one: (one.at, one.id)):
            self._remember(number, name, one)
        self.firings.append((number, outcome.firing_id))

    def _version(self, name: str, number: int) -> EpisodeVersion:
        one = self.log[number - 1]
        return EpisodeVersion(
            number, one["id"], one["user"], "s", "rag", one["at"], "text", "node",
            one["metadata"], RULES[name](one["tag"]),
        )  # fmt: skip

    def _remember(self, firing: int, name: str, one: EpisodeVersion) -> None:
        holders, last = self.holders(one.id), self.last(one.id).get(name)
        if one.user in self.forgotten or (holders and one.user not in holders):
            return
        claim = claim_of(self.log[one.seq - 1], "facts", (name,)) if one.matched else None
        if not one.matched and (last is None or last.claim is None):
            return
        word = Word(firing, name, one.seq, one.id, one.user, claim)
        if last is None or (last.version, last.claim) != (word.version, word.claim):
            self.words.append(word)

    async def pin(self, user: str, id: str) -> None:
        holders = self.holders(id)
        self.hands += 1
        precedence = (10**18, 2, f"{self.hands:09d}")
        what = f"pin {self.hands}"
        fact = Fact(
            id=id, user=user, agent="rag", lineage=[{"by": "me"}], confidence=1.0, pinned_at=START,
            payload={"subject": "s", "predicate": "is", "object": what},
        )  # fmt: skip
        if holders and user not in holders:
            with pytest.raises(FactConflictError):
                await self.store.correct(fact, by="me", reason="so")
            return
        claim = OracleClaim(id, user, "rag", "facts", precedence, True, "s", "is", what, (), "")
        await self._manually(self.store.correct(fact, by="me", reason="so"), id, claim)

    async def unpin(self, id: str) -> None:
        target = current_claims(self.claims(), PAIRS).get(id)
        self.hands += 1
        precedence = (10**18, 2, f"{self.hands:09d}")
        if target is None:
            await self.store.retract(id, by="me", reason="so")
            return
        claim = OracleClaim(
            f"hand {self.hands}", target.user, "rag", "facts", precedence, False, target.subject,
            target.predicate, target.object, (id,), "object", about=target,
        )  # fmt: skip
        await self._manually(self.store.retract(id, by="me", reason="so"), claim.fact_id, claim)

    async def _manually(self, doing: Any, id: str, claim: OracleClaim) -> None:
        number = await self.store.reads.ledger_rows() + 1
        await doing
        self.words.append(Word(number, MANUAL, 0, id, claim.user, claim))
        self.firings.append((number, f"{MANUAL}@{number}"))

    async def undo(self, which: int) -> None:
        if not self.firings:
            return
        number, firing_id = self.firings[which % len(self.firings)]
        outcome = await self.store.ledger.undo(firing_id, at=self.clock.now(), by="", dry_run=False)
        by = outcome.records[0].seq
        said = {word.id for word in self.words if word.firing == number}
        said.update(id for one, _, ids in self.undoings if one == number for id in ids)
        undone = {id for id in said if not self._is_taken(id, (by, number, frozenset([id])))}
        self.undoings.append((by, number, frozenset(undone)))
        self.firings.append((by, outcome.firing_id))

    def _is_taken(self, id: str, undoing: tuple[int, int, frozenset[str]]) -> bool:
        """Say whether an undoing would bring back what another than the holder said."""
        before = self.last(id).values()
        after = {word.by: word for word in self.remaining(id, [*self.undoings, undoing])}.values()
        holders = {
            word.user for word in effective_claims([word for word in after if word in before])
        }
        return bool(holders) and any(
            word.user not in holders for word in after if word.claim and word not in before
        )

    async def forget(self, user: str) -> None:
        now = self.clock.now()
        await self.store.erasures.forget(
            ScopeFilter(user, None, None), moment=microseconds(now), at=now, by="", dry_run=False
        )
        self.words = [word for word in self.words if word.user != user]
        self.forgotten.add(user)


def effective_claims(words: Any) -> list[Word]:
    """Return the words that count under an id: of the newest version, and the last hand's."""
    words = list(words)
    newest = max((word.version for word in words if word.by != MANUAL), default=0)
    said = [word for word in words if word.by != MANUAL and word.version == newest and word.claim]
    return [*said[:1], *(word for word in words if word.by == MANUAL)]


def promoters(words: Any) -> tuple[str, ...]:
    words = [word for word in words if word.by != MANUAL]
    newest = max((word.version for word in words), default=0)
    return tuple(sorted(word.by for word in words if word.version == newest and word.claim))


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
        id: (one.user, one.object) for id, one in current_claims(world.claims(), PAIRS).items()
    }
    facts = await world.store.query(FactPattern())
    assert {fact.id: (fact.user, fact.payload.get("object")) for fact in facts} == expected
    _, _, broken = await world.store.verify()
    assert broken is None


async def play(steps: Sequence[Step], folder: Path) -> None:
    clock = FakeClock(START + timedelta(days=1))
    async with SQLiteFactStore(folder / "facts.db", clock=clock, synchronous="normal") as store:
        await store.bootstrap()
        await store.ledger.set_channels(MULTI, at=START)
        world = StoreAndOracle(store, clock)
        for what, *rest in steps:
            clock.advance(60)
            await getattr(world, what)(*rest)
            if what != "put":
                await check(world)
        replayed = await store.reads.replay(folder / "again.db")
        assert replayed.differing == 0, replayed.first


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_two_users_of_the_same_ids_equal_the_oracle(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(steps, Path(folder)))

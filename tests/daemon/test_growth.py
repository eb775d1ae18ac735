"""Work that must not grow with the stored data, counted in steps of SQLite's virtual machine.

A statement takes a step for each row and each value that it reads. The same work takes the same
number of steps on every computer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern, Order, cursor
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine, SQLiteFactEngine
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores

pytestmark = pytest.mark.integration

LITTLE, MUCH = 60, 3_000
NEW = 30

Work = Callable[[OpenStores], Awaitable[object]]


def _after(id: str, order: Order = "id") -> str:
    """Return the cursor of a page that ended with a fact of an id."""
    fact = Fact(
        id=id, user="", agent="", payload={}, lineage=[], confidence=1.0, pinned_at=START
    )  # fmt: skip
    return cursor(order, fact)


# The ids that begin with `o` lie in the middle: many ids come before them, and many after.
PAGES = {
    "first page of all": FactPattern(limit=5),
    "page of all": FactPattern(limit=5, after=_after("old3")),
    "page backwards": FactPattern(limit=5, after=_after("old3"), descending=True),
    "first page of a user": FactPattern(user="alice", limit=5),
    "page of a user": FactPattern(user="alice", limit=5, after=_after("old3")),
    "page of a user, backwards": FactPattern(
        user="alice", limit=5, after=_after("old3"), descending=True
    ),
    "page of a user and agent": FactPattern(
        user="alice", agent="rag", limit=5, after=_after("old3")
    ),
    "page of a user and some agents": FactPattern(
        user="alice", agent=OneOf("rag", "seldom"), limit=5, after=_after("old3")
    ),
    "by id": FactPattern(id="often7"),
    "by some ids": FactPattern(id=OneOf("often7", "seldom1", "none")),
    "by the beginning of ids": FactPattern(id=Prefix("often")),
    "of a user, by the beginning of ids": FactPattern(user="alice", id=Glob("often1*"), limit=9),
    "by some subjects": FactPattern(subject=OneOf("often 7", "often 8")),
    "by the beginning of subjects": FactPattern(subject=Prefix("often")),
    "by the shape of subjects": FactPattern(subject=Glob("often [1-3]")),
    "by an expression for subjects": FactPattern(subject=Matches(r"often \d")),
    "by subject and the beginning of predicates": FactPattern(
        subject="often 7", predicate=Prefix("i")
    ),
    "by subject and some predicates": FactPattern(subject="often 7", predicate=OneOf("is", "has")),
    "by some objects": FactPattern(object=OneOf("often 7", 5, True)),
    "by the beginning of objects": FactPattern(object=Prefix("seldom")),
    "by a number": FactPattern(object=Equals(7)),
    "by an object with keys": FactPattern(object=Equals({"a": 1})),
    "without object": FactPattern(object=Equals(None)),
    "by the beginning of users": FactPattern(user=Prefix("b")),
    "by some users": FactPattern(user=OneOf("bob", "carol")),
    "newest of a user and agent": FactPattern(
        user="alice", agent="seldom", order="pinned_at", descending=True, limit=2
    ),
    "least sure of a subject": FactPattern(
        subject=Prefix("often"), order="confidence", limit=2, after=_after("often15", "confidence")
    ),
}
"""Patterns of facts whose search must not grow with what is stored."""


class Steps:
    """Counts the steps of all connections of open stores."""

    def __init__(self, home: OpenStores) -> None:
        self._home = home
        self.count = 0

    def step(self) -> None:
        self.count += 1

    async def of(self, work: Work) -> int:
        """Return how many steps the work takes."""
        engines = self._home.memory.engine, self._home.facts.engine
        assert isinstance(engines[0], SQLiteEpisodeEngine)
        assert isinstance(engines[1], SQLiteFactEngine)
        for database in (engines[0].database, engines[1].database):
            for access in (database.write, database.read):
                await access(lambda connection: connection.set_progress_handler(self.step, 1))
        before = self.count
        await work(self._home)
        return self.count - before


def episodes_of_alice(count: int, name: str = "old", **overrides: object) -> list[Episode]:
    """Return episodes of one user and agent: half of them in one session, the others in many."""
    return [
        triple(
            f"{name}{n}",
            f"{name} {n}",
            "is",
            f"{name} {n}",
            session="long" if n % 2 else f"{name}{n}",
            timestamp=at(n),
        ).model_copy(update=overrides)
        for n in range(count)
    ]


@asynccontextmanager
async def consolidated_stores(folder: Path, *older: Episode) -> AsyncIterator[OpenStores]:
    """Open stores with consolidated episodes: the older ones, then some of two newer groups."""
    async with open_stores(folder) as home:
        seldom = episodes_of_alice(3, "seldom", agent="seldom", session="talk", timestamp=at(9_000))
        for episodes in (older, episodes_of_alice(20, "often", session="talk"), seldom):
            await home.put(*episodes)
            await home.fire()  # a large batch changes the schema, which the next one reads again
        yield home


async def put_and_fire(home: OpenStores) -> None:
    await home.put(*episodes_of_alice(NEW, "new", user="bob", timestamp=at(10_000)))
    report = await home.fire()

    assert report.channels["facts"].added == NEW


async def steps_of(folder: Path, older: Sequence[Episode], work: Work) -> int:
    async with consolidated_stores(folder, *older) as home:
        return await Steps(home).of(work)


@pytest.mark.slow
async def test_firing_takes_the_same_steps_in_a_large_store(tmp_path: Path) -> None:
    little = await steps_of(tmp_path / "little", episodes_of_alice(LITTLE), put_and_fire)

    much = await steps_of(tmp_path / "much", episodes_of_alice(MUCH), put_and_fire)

    assert much == little


async def test_put_takes_the_same_steps_after_many_erasures(
    tmp_path: Path,
) -> None:
    async def steps(folder: Path, erased: int) -> int:
        async with open_stores(folder) as home:
            await home.put(*episodes_of_alice(1, "before"))
            for number in range(erased):
                scope = ScopeFilter.of(f"gone {number}", None, None)
                await home.memory.forget(scope, [], moment=0)
            return await Steps(home).of(lambda home: home.put(*episodes_of_alice(1, "new")))

    # The first erasure changes the schema, which the next transaction reads.
    assert await steps(tmp_path / "many", 50) == await steps(tmp_path / "few", 2)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of a small and a large consolidated store of the same user."""
    folders = tmp_path_factory.mktemp("little"), tmp_path_factory.mktemp("much")

    async def build(folder: Path, count: int) -> None:
        async with consolidated_stores(folder, *episodes_of_alice(count)):
            pass

    for folder, count in zip(folders, (LITTLE, MUCH), strict=True):
        asyncio.run(build(folder, count))
    return folders


@pytest.mark.cases(10)
@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda home: home.memory.recent("alice", limit=10), id="a user"),
        pytest.param(
            lambda home: home.memory.recent("alice", agent="rag", limit=10), id="a user and agent"
        ),
        pytest.param(
            lambda home: home.memory.recent("alice", agent="seldom", limit=10),
            id="a user and an agent with few episodes",
        ),
        pytest.param(lambda home: home.memory.recent("alice", "talk", limit=10), id="a session"),
        pytest.param(lambda home: home.memory.recent("alice", "long", limit=10), id="a long one"),
        pytest.param(
            lambda home: home.memory.recent("alice", "talk", "rag", limit=10), id="a scope"
        ),
        pytest.param(
            lambda home: home.memory.recent("alice", "long", "rag", limit=10), id="a large scope"
        ),
        pytest.param(
            lambda home: home.facts.query(FactPattern(user="alice", agent="seldom")),
            id="facts of a user and agent",
        ),
        pytest.param(
            lambda home: home.facts.query(FactPattern(subject="often 7")), id="facts of a subject"
        ),
        pytest.param(
            lambda home: home.facts.query(FactPattern(subject="often 7", predicate="is")),
            id="facts of a subject and predicate",
        ),
        pytest.param(
            lambda home: home.facts.query(FactPattern(object="often 7")), id="facts of an object"
        ),
        *(
            pytest.param(lambda home, pattern=pattern: home.facts.query(pattern), id=f"facts: {id}")
            for id, pattern in PAGES.items()
        ),
        pytest.param(lambda home: home.facts.why("often7"), id="why"),
        pytest.param(
            lambda home: home.consolidator.resume(rule("all"), START), id="where a rule resumes"
        ),
        pytest.param(lambda home: home.memory.pending(50, at_most=10), id="what is pending"),
        pytest.param(lambda home: home.facts.reads.last_firings(), id="the last firings"),
    ],
)
async def test_read_takes_the_same_steps_in_a_large_store(
    homes: tuple[Path, Path], work: Work
) -> None:
    counts = []
    for folder in homes:
        async with open_stores(folder) as home:
            counts.append(await Steps(home).of(work))

    little, much = counts
    assert little > 0
    assert much == little


def scheduler_of(home: OpenStores, rules: Sequence[ConsolidationRule]) -> Scheduler:
    async def fire(due: ConsolidationRule, _: Due, now: datetime) -> None:
        await home.consolidator.fire(FireRequest(due, "every", now))

    scheduler = Scheduler(
        clock=FakeClock(), episodes=home.memory, watermarks=home.facts.watermarks, fire=fire
    )
    scheduler.replace(rules, "UTC")
    return scheduler


@pytest.mark.slow
async def test_each_further_due_rule_takes_the_same_steps(
    tmp_path: Path,
) -> None:
    of_1, of_10, of_20 = [await steps_of_a_pass(tmp_path / str(n), n) for n in (1, 10, 20)]

    assert (of_20 - of_10) / 10 == pytest.approx((of_10 - of_1) / 9, rel=0.002)


async def steps_of_a_pass(folder: Path, number: int) -> int:
    # Without filters, because rules with a filter count steps themselves.
    rules = [rule(f"r{n:02}", then_emits=[f"channel{n:02}"]) for n in range(number)]
    async with open_stores(folder) as home:
        loop = scheduler_of(home, rules)
        await home.put(*episodes_of_alice(NEW))
        await loop.turn(asyncio.Event())  # the first turn creates watermarks

        async def turn(home: OpenStores) -> None:
            await home.put(*episodes_of_alice(NEW, "new"))
            await loop.turn(asyncio.Event())

        return await Steps(home).of(turn)

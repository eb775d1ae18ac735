"""What must not grow with what is stored: counted in steps of SQLite's machine, not in seconds.

A step for each row that a statement looks at, and for each value that it takes from one: the same
work is the same number of steps, on any computer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from slumberd.consolidation.fire_request import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern, Order, cursor
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.scheduling.due import Due
from slumberd.scheduling.scheduler import Scheduler
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


# Of ids, `o` lies in the midst: there is much before it, and after it.
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
    """Counts every step of every connection of a house."""

    def __init__(self, home: OpenStores) -> None:
        self._home = home
        self.count = 0

    def step(self) -> None:
        self.count += 1

    async def of(self, work: Work) -> int:
        """Return how many steps some work takes."""
        for database in (self._home.memory._database, self._home.facts.file.database):
            for access in (database.write, database.read):
                await access(lambda connection: connection.set_progress_handler(self.step, 1))
        before = self.count
        await work(self._home)
        return self.count - before


def said(count: int, name: str = "old", **overrides: object) -> list[Episode]:
    """Return what one user said to one agent: half of it in one session, else in many."""
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
async def lived_in(folder: Path, *below: Episode) -> AsyncIterator[OpenStores]:
    """Open a house whose episodes are consolidated, and so are a few of a rare agent since."""
    async with open_stores(folder) as home:
        seldom = said(3, "seldom", agent="seldom", session="talk", timestamp=at(9_000))
        for told in (below, said(20, "often", session="talk"), seldom):
            await home.put(*told)
            await home.fire()  # a large batch changes the schema, which the next one reads again
        yield home


async def put_and_fire(home: OpenStores) -> None:
    await home.put(*said(NEW, "new", user="bob", timestamp=at(10_000)))
    report = await home.fire()

    assert report.channels["facts"].added == NEW


async def steps_of(folder: Path, below: Sequence[Episode], work: Work) -> int:
    async with lived_in(folder, *below) as home:
        return await Steps(home).of(work)


async def test_a_firing_takes_as_many_steps_above_much_as_above_little(tmp_path: Path) -> None:
    little = await steps_of(tmp_path / "little", said(LITTLE), put_and_fire)

    much = await steps_of(tmp_path / "much", said(MUCH), put_and_fire)

    assert much == little


async def test_a_put_takes_as_many_steps_whether_many_were_forgotten_or_one(
    tmp_path: Path,
) -> None:
    async def steps(folder: Path, forgotten: int) -> int:
        async with open_stores(folder) as home:
            await home.put(*said(1, "before"))
            for number in range(forgotten):
                reach = ScopeFilter.of(f"gone {number}", None, None)
                await home.memory.forget(reach, [], moment=0)
            return await Steps(home).of(lambda home: home.put(*said(1, "new")))

    assert await steps(tmp_path / "many", 50) == await steps(tmp_path / "one", 1)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder with little, and one with much, of the same user; each is consolidated."""
    folders = tmp_path_factory.mktemp("little"), tmp_path_factory.mktemp("much")

    async def build(folder: Path, count: int) -> None:
        async with lived_in(folder, *said(count)):
            pass

    for folder, count in zip(folders, (LITTLE, MUCH), strict=True):
        asyncio.run(build(folder, count))
    return folders


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda home: home.memory.recent("alice", limit=10), id="a user"),
        pytest.param(
            lambda home: home.memory.recent("alice", agent="rag", limit=10), id="a user and agent"
        ),
        pytest.param(
            lambda home: home.memory.recent("alice", agent="seldom", limit=10),
            id="a user and an agent that he rarely spoke with",
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
            lambda home: home.consolidator.resume(rule("all"), START), id="where a rule goes on"
        ),
        pytest.param(lambda home: home.memory.pending(50, at_most=10), id="what is pending"),
        pytest.param(lambda home: home.facts.reads.last_firings(), id="the last firings"),
    ],
)
async def test_a_read_takes_as_many_steps_of_much_as_of_little(
    homes: tuple[Path, Path], work: Work
) -> None:
    counts = []
    for folder in homes:
        async with open_stores(folder) as home:
            counts.append(await Steps(home).of(work))

    little, much = counts
    assert little > 0
    assert much == little


def scheduler(home: OpenStores, rules: Sequence[ConsolidationRule]) -> Scheduler:
    async def fire(due: ConsolidationRule, _: Due, now: datetime) -> None:
        await home.consolidator.fire(FireRequest(due, "every", now))

    made = Scheduler(clock=FakeClock(), episodes=home.memory, ledger=home.facts.ledger, fire=fire)
    made.replace(rules, "UTC")
    return made


async def test_each_further_rule_that_is_due_takes_as_many_steps_as_the_one_before(
    tmp_path: Path,
) -> None:
    one, some, many = [await steps_of_a_pass(tmp_path / str(n), n) for n in (1, 10, 20)]

    assert (many - some) / 10 == pytest.approx((some - one) / 9, rel=0.002)


async def steps_of_a_pass(folder: Path, number: int) -> int:
    # No filter: those that have one count their steps themselves.
    rules = [rule(f"r{n:02}", then_emits=[f"channel{n:02}"]) for n in range(number)]
    async with open_stores(folder) as home:
        loop = scheduler(home, rules)
        await home.put(*said(NEW))
        await loop.turn(asyncio.Event())  # the first makes watermarks

        async def turn(home: OpenStores) -> None:
            await home.put(*said(NEW, "new"))
            await loop.turn(asyncio.Event())

        return await Steps(home).of(turn)

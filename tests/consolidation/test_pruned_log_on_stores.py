"""A pruned episode log changes nothing of what rules, stages and indexes say."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import ForgottenError, LogRestoredError
from slumberd.model.fact import FactPattern
from slumberd.model.feed import FeedPlace
from slumberd.model.firing import START, Limits, Position, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.storage.episodes.index_feed import IndexFeed
from slumberd.storage.episodes.log_pruning import LogPruner
from slumberd.storage.sqlite.stage_file import StageFile
from tests.consolidation.test_deletion_limits import deletes
from tests.consolidation.test_incremental_stages import OWNERS, Side, Story, usual_steps
from tests.support.builders import rule, triple
from tests.support.embedders import WordSums
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.providers import NewStores, PostgresProvider, Provider, new_files, path_of
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled]

KEPT_ROWS = 4
DELETIONS = 3
"""How many deletions the stores know; the real bound would take 10,000 of them."""

NEW_IDS = [f"n{number}" for number in range(40)]
FOLLOWERS = range(3)
LATE = rule("late", when_filter="content LIKE '%tea%'")

histories = st.lists(
    st.one_of(
        usual_steps,
        st.tuples(st.just("come"), st.integers(1, 3)),
        st.tuples(st.just("go"), st.integers(1, 3)),
        st.tuples(st.just("late")),
        st.tuples(st.just("prune"), st.integers(1, 4)),
        st.tuples(st.just("prune"), st.integers(1, 4)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("follow"), st.sampled_from(FOLLOWERS)),
        st.tuples(st.just("follow"), st.sampled_from(FOLLOWERS)),
    ),
    min_size=10,
    max_size=60,
)


FIRED: list[tuple[Any, ...]] = [("fire", "first", 90), ("fire", "second", 90)]

Known = dict[Any, tuple[str, str]]
"""The ids and contents of episodes, by their rows or their ids."""


@dataclass
class Follower:
    """What two readers of the changes know since places that a file keeps."""

    rows: Known = field(default_factory=dict)
    place: FeedPlace | None = None
    ids: Known = field(default_factory=dict)
    last: FeedPlace | None = None

    async def follow(self, feed: IndexFeed) -> None:
        """Read what changed, and compare what is known then with all that there is."""
        found: dict[str, Known] = {"rows": {}, "ids": {}}
        for user in sorted({user for user, _ in OWNERS}):
            for row, version in (await feed.read_scope(ScopeFilter(user, None, None))).versions:
                found["rows"][row] = version.id, version.content
                found["ids"][version.id] = version.id, version.content
        await self._follow_rows(feed, found["rows"])
        await self._follow_ids(feed, found["ids"])
        assert {"rows": self.rows, "ids": self.ids} == found

    async def _follow_rows(self, feed: IndexFeed, found: Known) -> None:
        place = self.place and FeedPlace.of_saved(self.place.saved())
        changes = None if place is None else await feed.changes(place, most=10**6)
        if changes is None:
            self.rows, self.place = dict(found), await feed.place()
            return
        for row in changes.rows:
            self.rows.pop(row, None)
        self.rows |= {row: (one.id, one.content) for row, one in changes.versions}
        self.place = changes.place

    async def _follow_ids(self, feed: IndexFeed, found: Known) -> None:
        changes = await feed.changed_ids(self.last)
        if self.last is None or not changes.known:
            self.ids = dict(found)
        else:
            for id in {*changes.written, *changes.deleted}:
                self.ids.pop(id, None)
                self.ids |= {id: found[id]} if id in found else {}
        self.last = changes.place


class PrunedStory(Story):
    """A history in two pairs of stores: only the log of the first pair is pruned."""

    def __init__(
        self, sides: Sequence[Side], clock: FakeClock, providers: Sequence[Provider]
    ) -> None:
        super().__init__(sides, clock)
        self._engine = providers[0].episode_engine()
        self._providers = providers
        self._feed = sides[0].home.memory.feed = IndexFeed(
            self._engine, mismatch="quarantine", naive="local", kept_rows=KEPT_ROWS
        )
        self._pruner = self._new_pruner()
        self._followers = [Follower() for _ in FOLLOWERS]
        self._put_ids: list[str] = []
        self.pruned = 0

    async def close(self) -> None:
        await self._engine.close()

    def _new_pruner(self) -> LogPruner:
        return LogPruner(self._engine, kept_rows=KEPT_ROWS, step_rows=2)

    async def take(self, step: tuple[Any, ...]) -> None:
        await super().take(step)
        first, second = [await pending(side.home) for side in self._sides]
        assert first == second, step
        if step[0] == "forget":  # the ledger tells who follows ids, and then all is read again
            for follower in self._followers:
                follower.last = None
        if step[0] in ("delete", "go", "forget"):
            for provider, side in zip(self._providers, self._sides, strict=True):
                await asyncio.to_thread(drop_deletions, provider, side.home)

    def move(self, step: tuple[Any, ...]) -> None:
        super().move(step)
        if step[0] == "come":
            new = NEW_IDS[len(self._put_ids) :][: step[1]]
            self._put_ids += new
            self._coming = new
        if step[0] == "go":
            self._going = self._put_ids[-step[1] :]

    async def _come(self, side: Side, _: int) -> None:
        user, agent = OWNERS[0]
        for id in self._coming:
            new = triple(
                id, user, "likes", f"tea {id}", user=user, agent=agent, timestamp=self._now()
            )
            with suppress(ForgottenError):
                await side.home.put(new)

    async def _go(self, side: Side, _: int) -> None:
        for id in self._going:
            await self._delete(side, id)

    async def _late(self, side: Side) -> None:
        await side.home.consolidator.fire(FireRequest(LATE, "cron", self._now()))

    async def _prune(self, side: Side, times: int) -> None:
        if side is self._sides[0]:
            in_force = [self._rule("first"), self._rule("second")]
            for _ in range(times):
                self.pruned += await self._pruner.prune(side.home.facts.watermarks, in_force)

    async def _restart(self, side: Side) -> None:
        """The daemon ended between two steps."""
        if side is self._sides[0]:
            self._pruner = self._new_pruner()

    async def _follow(self, side: Side, follower: int) -> None:
        if side is self._sides[0]:
            await self._followers[follower].follow(self._feed)

    async def compare_ends(self) -> None:
        """Compare what only the end of a history shows."""
        found = []
        for side in self._sides:
            home = side.home
            marks = await home.facts.watermarks.positions()
            await home.consolidator.fire(FireRequest(LATE, "cron", self._now()))
            new: ConsolidationRule = rule("new")
            await home.consolidator.fire(FireRequest(new, "cron", self._now()))
            rows, _, broken = await home.facts.verify()
            found.append(
                {
                    "marks": marks,
                    "facts": await home.facts.query(FactPattern()),
                    "lines": home.log.lines,
                    "rows": rows,
                    "broken": broken,
                    "health": (await home.memory.health()).warnings,
                    "newest": await home.memory.newest(),
                }
            )
        assert found[0] == found[1]
        assert found[0]["broken"] is None
        assert isinstance(found[0]["newest"], Position)


def drop_deletions(provider: Provider, home: OpenStores, known: int = DELETIONS) -> None:
    """Forget old deletions, as the triggers do later."""
    if isinstance(provider, PostgresProvider):
        with psycopg.connect(provider._address) as server:
            server.execute(
                "DELETE FROM slumberd_0.slumberd_episode_deletions WHERE number <="
                " (SELECT max(number) FROM slumberd_0.slumberd_episode_deletions) - %s",
                (known,),
            )
        return
    with closing(sqlite3.connect(path_of(home.memory))) as connection, connection:
        connection.execute(
            "DELETE FROM slumberd_episode_deletions"
            " WHERE number <= (SELECT max(number) FROM slumberd_episode_deletions) - ?",
            (known,),
        )


@asynccontextmanager
async def pruner_of(provider: Provider) -> AsyncIterator[LogPruner]:
    engine = provider.episode_engine()
    yield LogPruner(engine, kept_rows=KEPT_ROWS)
    await engine.close()


async def pending(home: OpenStores) -> dict[str, int]:
    """Return how many rows of the log each rule in force has not read."""
    marks = await home.facts.watermarks.positions()
    return {
        id: await home.memory.pending(marks[id][0].seq if id in marks else 0, at_most=99)
        for id in ("first", "second")
    }


async def run(new_stores: NewStores, history: Iterable[tuple[Any, ...]]) -> int:
    with TemporaryDirectory() as folder, new_stores() as first, new_stores() as second:
        async with AsyncExitStack() as stack:
            clock = FakeClock()
            homes = [
                await stack.enter_async_context(
                    open_stores(one, clock=clock, embedding=WordSums, future_tolerance_seconds=300)
                )
                for one in (first, second)
            ]
            file = StageFile(Path(folder, "stages.db"), "as always")
            homes[0].consolidator.note_stages_in(file)
            sides = [Side(homes[0], file), Side(homes[1], None)]
            story = PrunedStory(sides, clock, [first, second])
            stack.push_async_callback(story.close)
            for step in history:
                story.move(step)
                await story.take(step)
            await story.compare_ends()
            return story.pruned


MANY = settings(
    max_examples=amount(30, full=3_000),
    deadline=None,
    # Each example makes its own stores.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FEW = settings(MANY, max_examples=amount(6, full=600))


@pytest.mark.parametrize("new_stores", ["sqlite"], indirect=True)
@MANY
@given(history=histories)
def test_pruning_changes_nothing_that_a_reader_of_the_log_sees(
    new_stores: NewStores, history: list[tuple[Any, ...]]
) -> None:
    prune_at_last(new_stores, history)


@FEW
@given(history=histories)
def test_pruning_changes_nothing_that_a_reader_of_the_log_sees_in_a_database(
    new_databases: NewStores, history: list[tuple[Any, ...]]
) -> None:
    prune_at_last(new_databases, history)


def prune_at_last(new_stores: NewStores, history: list[tuple[Any, ...]]) -> None:
    """Run a history, then fire, prune and follow, and fire again."""
    ends = [*FIRED, ("prune", 20), ("prune", 20), *(("follow", number) for number in FOLLOWERS)]

    asyncio.run(run(new_stores, [*history, *ends, *FIRED]))


CHANGES: list[tuple[Any, ...]] = [("come", 3), ("go", 3), ("come", 3), ("come", 1)]
"""After them no earlier deletion is known, and no earlier row is one of the last."""


@pytest.mark.parametrize(
    ("history", "are_pruned"),
    [
        pytest.param([("come", 3), ("go", 2), ("come", 2), *FIRED], False, id="one of the last"),
        pytest.param([("come", 3), ("go", 2), *CHANGES, *FIRED], True, id="deleted"),
        pytest.param([("come", 1), ("go", 1), *CHANGES, *FIRED], False, id="the first"),
        pytest.param([("come", 3), *CHANGES, *FIRED], False, id="existing"),
        pytest.param(
            [("come", 2), ("late",), ("go", 1), *CHANGES, *FIRED],
            False,
            id="at the watermark of a rule that is not in force",
        ),
        pytest.param(
            [("come", 3), ("go", 2), *CHANGES, ("fire", "first", 1)],
            False,
            id="not read by a rule in force",
        ),
    ],
)
async def test_only_rows_of_deleted_episodes_that_nobody_needs_are_pruned(
    new_stores: NewStores, history: list[tuple[Any, ...]], are_pruned: bool
) -> None:
    pruned = await run(new_stores, [*history, ("prune", 1), ("prune", 9)])

    assert bool(pruned) is are_pruned


EDITED: list[tuple[Any, ...]] = [
    ("put", "e3", 0, 0, None),
    ("put", "e0", 0, 0, None),
    ("come", 2),
    ("put", "e3", 1, 0, None),
]
"""The last row of the log is of an existing episode, so the place of a reader stays."""

REUSED: list[tuple[Any, ...]] = [("go", 1), ("come", 1), ("come", 3)]
"""In a file, the first of the new episodes gets the number of the deleted one."""


@pytest.mark.parametrize(
    ("changes", "are_pruned"),
    [
        pytest.param([("delete", "e0"), ("come", 3)], False, id="its number is free"),
        pytest.param(REUSED, False, id="another one has its number"),
        pytest.param([*REUSED, ("come", 1)], True, id="another one has had it for long"),
    ],
)
async def test_reader_of_ids_learns_of_a_deleted_episode(
    changes: list[tuple[Any, ...]], are_pruned: bool
) -> None:
    history = [*EDITED, ("follow", 0), *changes, *FIRED, ("prune", 1), ("prune", 9), ("follow", 0)]

    assert bool(await run(new_files, history)) is are_pruned


async def test_reader_that_lies_far_behind_reads_everything_again(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*stream(2))
        engine = provider.episode_engine()
        feed = IndexFeed(engine, mismatch="quarantine", naive="local", kept_rows=3)
        place = await feed.place()
        known = []
        for n in range(4):
            await home.put(triple(f"n{n}", "ada", "likes", n))
            changes = await feed.changes(place, most=99)
            known.append((changes is not None, (await feed.changed_ids(place)).known))
        await engine.close()

        assert known == [(True, True)] * 3 + [(False, False)]


async def test_pass_over_the_log_goes_on_after_its_last_row_was_pruned(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*stream(9))
        first = await home.memory.select(rule("all"), after=START, limit=3)
        await home.memory.purge({"e2": 3})
        drop_deletions(provider, home, known=0)

        async with pruner_of(provider) as pruner:
            pruned = await pruner.prune(home.facts.watermarks, [])

        assert (pruned, first.upto) == (1, Position(3, "e2"))
        second = await home.memory.select(rule("all"), after=first.upto, limit=2)
        assert [version.id for version in second.versions] == ["e3", "e4"]
        with pytest.raises(LogRestoredError):
            await home.memory.consolidate(rule("all"), window=Window(first.upto))


async def test_end_of_a_batch_that_awaits_approval_stays(provider: Provider) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=2)) as home:
        await home.put(*stream(6))
        await home.fire()
        await home.put(*deletes(3))
        held = (await home.fire()).held
        await home.put(*(triple(f"n{n}", "ada", "likes", n) for n in range(6)))
        await home.memory.purge({"d1": 8, "d2": 9})
        drop_deletions(provider, home, known=0)

        async with pruner_of(provider) as pruner:
            pruned = await pruner.prune(home.facts.watermarks, [])

        assert held is not None
        assert held.upto == (9, "d2")
        assert (pruned, await home.memory.episode_at(8)) == (1, None)
        assert await home.memory.episode_at(9) == "d2"


async def test_pruning_begins_anew_after_a_change(provider: Provider) -> None:
    async with open_stores(provider) as home, pruner_of(provider) as pruner:
        await home.put(*stream(9))
        await home.memory.purge({"e2": 3})
        drop_deletions(provider, home, known=0)
        marks = home.facts.watermarks

        pruned = [await pruner.prune(marks, []) for _ in range(2)]
        await home.memory.purge({"e3": 4})
        await home.put(triple("new", "ada", "likes", "tea"))
        drop_deletions(provider, home, known=0)
        pruned += [await pruner.prune(marks, []) for _ in range(2)]

        assert pruned == [1, 0, 1, 0]


async def test_pruning_begins_anew_after_a_rule_has_read(provider: Provider) -> None:
    async with open_stores(provider) as home, pruner_of(provider) as pruner:
        await home.put(*stream(9))
        await home.memory.purge({"e2": 3})
        drop_deletions(provider, home, known=0)
        marks, rules = home.facts.watermarks, [rule("all")]

        before = [await pruner.prune(marks, rules) for _ in range(2)]
        await home.fire()
        after = await pruner.prune(marks, rules)

        assert (before, after) == ([0, 0], 1)

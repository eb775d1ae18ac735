"""The index of facts that follows a store equals one that is built anew, whatever was written."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import Changes, FactPlace, NumberedFact, NumberedVersion, Reading
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARKS
from slumberd.search.episode_index import EpisodeIndex
from slumberd.search.fact_index import FactIndex
from slumberd.search.followed_scopes import FollowedScopes, MemoryBound, UserThreads
from slumberd.search.saved_indexes import SavedIndexes
from slumberd.search.saved_scopes import SavedScopes
from slumberd.storage.engine import Work
from slumberd.storage.facts.index_feed import FactFeed
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START
from tests.support.fakes import FakeClock
from tests.support.providers import AnyFactStore, NewStores, Provider, path_of
from tests.support.random_histories import FIRE, PIN, PUT, SEVERAL, UNDO, UNPIN, Step, Story

pytestmark = pytest.mark.integration

SCOPES = [
    ScopeFilter("alice", None, None),
    ScopeFilter("alice", None, "rag"),
    ScopeFilter("alice", None, "bot"),
    ScopeFilter("bob", None, None),
]
QUESTIONS = ["What is s?", "Where is Johansson, or Johanson?", "Will Ann or Bettina like b?"]
NAMES = ["Johansson", "Bettina", "Will", "Ann", "s", "b"]

DECLARE = st.tuples(
    st.just("declare"),
    st.sampled_from(["d1", "d2", "@marks/e1", "@marks/e2", "@weights/e1", "@notes/d1"]),
    st.sampled_from(["alice", "bob"]),
    st.sampled_from(["rag", "bot"]),
    st.sampled_from(NAMES),
    st.sampled_from(["alias", "likes"]),
    st.sampled_from([*NAMES, ["Ann", "Will"], 5]),
)
ERASE = st.tuples(st.just("erase"), st.sampled_from(["alice", "bob"]), st.booleans())
OUTSIDE = st.tuples(
    st.just("write_outside"), st.sampled_from(["e1", "d1", "x1"]), st.sampled_from(["b", None])
)
RECORD = st.tuples(st.just("record"))
WAIT = st.tuples(st.just("wait"), st.integers(0, 3))
LOOK = st.tuples(st.just("look"), st.sampled_from(SCOPES))

STEPS = st.lists(
    PUT | FIRE | UNDO | PIN | UNPIN | SEVERAL | DECLARE | DECLARE | ERASE | OUTSIDE | RECORD | WAIT
    | LOOK | LOOK,
    min_size=5,
    max_size=40,
)  # fmt: skip

MANY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class FollowedStory(Story):
    """A store that programs write, and indexes that follow it through another store."""

    def follow(self, reader: AnyFactStore, state: Path) -> None:
        """Begin to follow.

        Args:
            state: Where indexes are saved.
        """
        self.reader = reader
        self.followed = followed(reader.feed)
        self.saved = SavedIndexes(state, store=[], made_with=[])

    async def declare(  # the parts of a fact
        self, id: str, user: str, agent: str, subject: str, predicate: str, object: Any
    ) -> None:
        payload = {"subject": subject, "predicate": predicate, "object": object}
        if (held := await self.store.query(FactPattern(id=id))) and held[0].user != user:
            return
        if held and held[0].agent != agent:
            return
        lineage = [{"rule_id": "host", "source_episode_ids": [subject]}]
        await self.store.pin(
            Fact(
                id=id, user=user, agent=agent, payload=payload, lineage=lineage, confidence=0.5,
                pinned_at=START,
            )
        )  # fmt: skip

    async def erase(self, user: str, whole: bool) -> None:
        scope = ScopeFilter(user, None if whole else "s", None)
        await self.store.erasures.forget(
            scope, moment=2**51, key=b"k" * 32, at=self.clock.now(), by="me", dry_run=False
        )

    async def write_outside(self, id: str, object: str | None) -> None:
        """Write or delete a row as another program does, where one may."""
        if not isinstance(self.store, SQLiteFactStore):
            return
        payload = orjson.dumps({"subject": "Bettina", "predicate": "alias", "object": object})
        row = (id, "alice", "rag", payload, b'[{"by": "host"}]', 1.0, b"{}", START.isoformat())
        with closing(sqlite3.connect(path_of(self.store))) as connection, connection:
            connection.execute("DELETE FROM facts WHERE fact_id = ?", (id,))
            if object is not None:
                connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    async def record(self) -> None:
        await self.store.transactions.notice_external()

    async def wait(self, days: int) -> None:
        self.clock.advance(86_400 * days)

    async def look(self, scope: ScopeFilter) -> None:
        """Compare an index that follows with one that is built anew from a search of all facts.

        Another process begins with what the last look has saved of the scope.
        """
        expected = seen_in(await built_anew(self.reader, scope))
        process = followed(self.reader.feed, self.saved)

        assert seen_in(await self.followed.current(scope)) == expected
        assert seen_in(await process.current(scope)) == expected
        await process.save(self.saved, scope)


def followed(feed: Any, saved: SavedIndexes | None = None) -> SavedScopes[FactIndex, NumberedFact]:
    make = partial(FactIndex, language="auto", vectors=False)
    return SavedScopes[FactIndex, NumberedFact](
        feed, make, UserThreads(), MemoryBound(10**9),
        kind="fact", read_place=FactPlace.of_saved, saved=saved,
    )  # fmt: skip


async def built_anew(store: AnyFactStore, scope: ScopeFilter) -> FactIndex:
    """Return an index of what `FactStore.query` returns, without the feed."""
    index = FactIndex(scope, language="auto", vectors=False)
    pattern = FactPattern(user=scope.user, agent=scope.agent)
    marks = pattern.model_copy(update={"channel": MARKS})
    found = [*await store.query(pattern), *await store.query(marks)]
    index.replace((), [NumberedFact(fact.id, fact) for fact in found])
    return index


def seen_in(index: FactIndex) -> dict[str, Any]:
    """Return all that a search reads of an index."""
    return {
        "facts": index.kept,
        "hidden": index.hidden,
        "aliases": index.aliases,
        "languages": index.index.languages,
        "found": [index.search(question, limit=100) for question in QUESTIONS],
        "named": [{*index.named_in(question, index.kept)} for question in QUESTIONS],
    }


def run(steps: Sequence[Step], new_stores: NewStores) -> None:
    async def main(provider: Provider, state: str) -> None:
        clock = FakeClock(START + timedelta(days=1))
        async with (
            provider.facts(lineage_depth=2, clock=clock) as store,
            provider.facts(lineage_depth=2, clock=clock) as reader,
        ):
            await store.bootstrap()
            story = FollowedStory(store, clock)
            story.follow(reader, Path(state))
            for step in [*steps, *(("look", scope) for scope in SCOPES)]:
                await story.take_step(step)

    with new_stores() as provider, TemporaryDirectory() as state:
        asyncio.run(main(provider, state))


LOOKS = [("look", scope) for scope in SCOPES]


def says(id: str, object: str, second: int) -> Step:
    """Return the step that puts an episode which says that s is something."""
    return "put", {
        "id": id,
        "user": "alice",
        "agent": "rag",
        "at": microseconds(START) + 1_000_000 * second,
        "tag": 1,
        "metadata": {"subject": "s", "predicate": "is", "object": object},
    }


FIRE_ALL = "fire", "all", 9
REPLACED = [says("e1", "a", 1), FIRE_ALL, *LOOKS, says("e2", "b", 2), FIRE_ALL, *LOOKS, ("undo", 1)]


@pytest.mark.cases(1)
@MANY
@given(STEPS)
@example(REPLACED)
@example([*LOOKS, ("write_outside", "x1", "b"), *LOOKS, ("write_outside", "x1", None), ("record",)])
@example(
    [
        ("declare", "d1", "alice", "rag", "Ann", "alias", "Will"),
        *LOOKS,
        ("declare", "d1", "alice", "rag", "Ann", "likes", "Will"),
        *LOOKS,
        ("erase", "alice", True),
    ]
)
def test_index_that_follows_equals_one_that_is_built_anew(
    new_stores: NewStores, steps: list[Step]
) -> None:
    run(steps, new_stores)


class WritesBetween:
    """The transactions of a store; a fact is written or erased after each read."""

    def __init__(self, store: AnyFactStore, writes: list[Callable[[], Awaitable[None]]]) -> None:
        self._store = store
        self._writes = writes

    async def read(self, work: Work[Any]) -> Any:
        found = await self._store.transactions.read(work)
        if self._writes:
            await self._writes.pop(0)()
        return found


@pytest.mark.parametrize("erases", [False, True], ids=["writes", "erases"])
@pytest.mark.parametrize("agent", [None, "rag"])
async def test_facts_that_change_while_pages_are_read_are_as_they_are_at_the_end(
    provider: Provider, agent: str | None, erases: bool
) -> None:
    async with provider.facts(clock=FakeClock(START)) as store:
        await store.bootstrap()
        story = FollowedStory(store, FakeClock(START))
        for number in range(7):
            await story.declare(f"f{number}", "alice", "rag", "Ann", "likes", "b")
        await story.declare("b1", "bob", "rag", "Ann", "likes", "b")

        writes: list[Callable[[], Awaitable[None]]] = [
            partial(story.declare, f"f{number}", "alice", "rag", "Will", "likes", "s")
            for number in (6, 0)
        ]
        writes += [partial(story.unpin, "f1"), partial(story.declare, "a", "alice", "rag", *"xyz")]
        if erases:
            writes.append(partial(story.erase, "bob", True))
        feed = FactFeed(cast("Any", WritesBetween(store, writes)), page=2)
        scope = ScopeFilter("alice", None, agent)
        reading = await feed.read_scope(scope)

        found = {one.row: one.version for one in reading.versions}
        pattern = FactPattern(user="alice", agent=agent)
        assert writes == []
        assert found == {fact.id: fact for fact in await store.query(pattern)}


async def test_every_page_is_read_whatever_its_size(provider: Provider) -> None:
    async with provider.facts(clock=FakeClock(START)) as store:
        await store.bootstrap()
        story = FollowedStory(store, FakeClock(START))
        for number in range(5):
            await story.declare(f"f{number}", "alice", "rag", "Ann", "likes", "b")
            await story.declare(f"g{number}", "alice", "bot", "Ann", "likes", "b")
        await story.declare("@marks/e1", "alice", "rag", "e1", "is", "old")
        await story.declare("@weights/e1", "alice", "rag", "e1", "is", 5)

        read = [
            await FactFeed(store.transactions, page=page).read_scope(SCOPES[0])
            for page in (1, 2, 5, 100)
        ]

        rows = [sorted(one.row for one in reading.versions) for reading in read]
        kept = ["@marks/e1", *(f"{letter}{number}" for letter in "fg" for number in range(5))]
        assert rows == [kept] * 4


async def test_search_reads_what_is_new_not_what_there_is(provider: Provider) -> None:
    async with provider.facts(clock=FakeClock(START)) as store:
        await store.bootstrap()
        story = FollowedStory(store, FakeClock(START))
        for number in range(50):
            await story.declare(f"f{number}", "alice", "rag", "Ann", "likes", "b")
        place = await store.feed.place()
        await story.declare("f7", "alice", "rag", "Ann", "likes", "s")

        changes = await store.feed.changes(place, most=5)

        assert changes is not None
        assert changes.rows == {"f7"}
        assert [one.row for one in changes.versions] == ["f7"]
        assert await store.feed.changes(place, most=1) is None, "two rows: a firing and its claim"


async def test_erasure_of_one_user_lets_the_index_of_another_stay(
    provider: Provider, tmp_path: Path
) -> None:
    async with provider.facts(clock=FakeClock(START)) as store:
        await store.bootstrap()
        story = FollowedStory(store, FakeClock(START))
        story.follow(store, tmp_path)
        await story.declare("a1", "alice", "rag", "Ann", "likes", "b")
        await story.declare("b1", "bob", "rag", "Bettina", "likes", "b")
        of_alice, of_bob = [await story.followed.current(scope) for scope in (ALICE, BOB)]

        await story.erase("bob", True)

        assert await story.followed.current(ALICE) is of_alice
        assert (texts(of_alice), texts(of_bob)) == (["Ann likes b"], ["Bettina likes b"])
        assert await story.followed.current(BOB) is of_bob
        assert texts(of_bob) == []


class PausedFeed:
    """A feed of facts in memory whose readings wait until they are let go."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.changed: list[str] = []
        self.is_known = True
        self.reads_at_the_end = False
        self.paused: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        """By user, what a reading sets when it has begun, and what it waits for."""
        self.begun: list[str] = []
        self.follows = 0

    def put(self, id: str, user: str, object: str) -> None:
        self.facts[id] = Fact(
            id=id, user=user, agent="rag", payload={"subject": "s", "predicate": "is",
            "object": object}, lineage=[], confidence=1.0, pinned_at=START,
        )  # fmt: skip
        self.changed.append(id)

    async def place(self) -> int:
        return len(self.changed)

    async def read_scope(self, scope: ScopeFilter) -> Reading[int, NumberedFact]:
        self.begun.append(scope.user)
        if scope.user in self.paused:
            has_begun, may_end = self.paused[scope.user]
            if not self.reads_at_the_end:
                reading = self._reading()
                has_begun.set()
                await may_end.wait()
                return reading
            has_begun.set()
            await may_end.wait()
        return self._reading()

    def _reading(self) -> Reading[int, NumberedFact]:
        found = [NumberedFact(id, fact) for id, fact in self.facts.items()]
        return Reading(len(self.changed), found)

    async def changes(self, place: int, *, most: int) -> Changes[int, NumberedFact] | None:
        self.follows += 1
        await asyncio.sleep(0)  # others may call meanwhile
        if not self.is_known:
            self.is_known = True
            return None
        ids = frozenset(self.changed[place:])
        now = [NumberedFact(id, self.facts[id]) for id in ids if id in self.facts]
        return Changes(len(self.changed), ids, now)

    def remove(self, id: str) -> None:
        del self.facts[id]
        self.changed.append(id)


ALICE, BOB = ScopeFilter("alice", None, None), ScopeFilter("bob", None, None)


def texts(index: FactIndex) -> list[str]:
    return sorted(fact.text for fact in index.kept.values())


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_user_is_found_while_another_is_read_and_both_are_exact(is_known: bool) -> None:
    feed = PausedFeed()
    feed.put("a1", "alice", "tea")
    feed.put("b1", "bob", "milk")
    has_begun, may_end = feed.paused["alice"] = asyncio.Event(), asyncio.Event()
    scopes = followed(feed)
    first = asyncio.ensure_future(scopes.current(ALICE))
    await has_begun.wait()

    assert texts(await scopes.current(BOB)) == ["s is milk"]
    feed.put("a1", "alice", "rain")
    feed.put("b1", "bob", "rain")
    feed.is_known = is_known
    assert texts(await scopes.current(BOB)) == ["s is rain"]
    may_end.set()
    found = await first

    if is_known:
        assert texts(found) == ["s is rain"]
    assert texts(await scopes.current(ALICE)) == ["s is rain"]


async def test_change_that_is_older_than_the_reading_does_not_come_back() -> None:
    feed = PausedFeed()
    feed.put("a1", "alice", "tea")
    feed.reads_at_the_end = True
    has_begun, may_end = feed.paused["alice"] = asyncio.Event(), asyncio.Event()
    scopes = followed(feed)
    first = asyncio.ensure_future(scopes.current(ALICE))
    await has_begun.wait()

    feed.put("a1", "alice", "milk")
    await scopes.current(BOB)
    feed.put("a1", "alice", "rain")
    may_end.set()

    assert texts(await first) == ["s is rain"]


async def test_fact_that_comes_and_goes_before_the_next_search_of_its_user_is_gone() -> None:
    feed = PausedFeed()
    feed.put("a1", "alice", "tea")
    scopes = followed(feed)
    await scopes.current(ALICE)

    feed.put("a2", "alice", "milk")
    await scopes.current(BOB)
    feed.remove("a2")
    await scopes.current(BOB)

    assert texts(await scopes.current(ALICE)) == ["s is tea"]


async def test_callers_that_wait_together_read_the_changes_once() -> None:
    feed = PausedFeed()
    feed.put("a1", "alice", "tea")
    scopes = followed(feed)
    await asyncio.gather(scopes.current(ALICE), scopes.current(BOB))
    feed.put("a1", "alice", "rain")
    before = feed.follows

    some = [ScopeFilter(f"user {number}", None, None) for number in range(6)]
    found, *_ = await asyncio.gather(scopes.current(ALICE), *map(scopes.current, some))

    assert texts(found) == ["s is rain"]
    assert feed.follows - before == 2, "the one that had begun, and one for all who came later"


async def test_change_of_another_user_waits_for_nobody_and_takes_its_memory() -> None:
    feed, bound = PausedFeed(), MemoryBound(10**9)
    feed.put("a1", "alice", "tea")
    make = partial(FactIndex, language=None, vectors=False)
    scopes = FollowedScopes[FactIndex, NumberedFact](feed, make, UserThreads(), bound)
    index = await scopes.current(ALICE)
    await scopes.current(BOB)
    before = bound.size_bytes

    feed.put("a2", "alice", "rain")
    await scopes.current(BOB)

    assert texts(index) == ["s is tea"], "nobody has searched it since"
    assert bound.size_bytes > before
    assert texts(await scopes.current(ALICE)) == ["s is rain", "s is tea"]


async def test_kinds_share_one_bound_and_what_was_used_longest_ago_goes() -> None:
    feed = PausedFeed()
    users = [ScopeFilter(f"u{number}", None, None) for number in range(4)]
    for scope in users:
        feed.put(scope.user, scope.user, "tea")
    make = partial(FactIndex, language=None, vectors=False)
    one = FollowedScopes[FactIndex, NumberedFact](
        feed, make, UserThreads(), alone := MemoryBound(10**9)
    )
    await one.current(users[0])
    bound = MemoryBound(3 * alone.size_bytes + 10, kinds=2)
    kinds = [
        FollowedScopes[FactIndex, NumberedFact](feed, make, UserThreads(), bound) for _ in range(2)
    ]
    feed.begun.clear()

    for kind, which in ((0, 0), (1, 1), (0, 2), (0, 0), (1, 3), (0, 0), (1, 1)):
        await kinds[kind].current(users[which])
        assert bound.size_bytes <= bound.most_bytes

    assert feed.begun == ["u0", "u1", "u2", "u3", "u1"]
    assert len(bound) == 3


async def test_work_of_a_cancelled_caller_ends_before_the_next_of_its_user() -> None:
    threads, going, order = UserThreads(), Event(), list[str]()

    def slow() -> None:
        going.wait()
        order.append("slow")

    async def ask() -> None:
        async with threads.turn("alice"):
            await threads.run("alice", slow)

    cancelled = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cancelled.cancel()
    with suppress(asyncio.CancelledError):
        await cancelled
    later = asyncio.ensure_future(threads.run("alice", lambda: order.append("later")))
    await threads.run("bob", lambda: order.append("bob"))
    going.set()
    await later

    assert order == ["bob", "slow", "later"]


def many_facts(count: int) -> list[NumberedFact]:
    chance = Random(count)
    found = []
    for number in range(count):
        words = [f"{chance.choice(NAMES)}{chance.randrange(count)}" for _ in range(6)]
        # As a store reads it: no two facts share an object of Python.
        id, payload, lineage = orjson.loads(
            orjson.dumps(
                [
                    f"episode-{number}",
                    {"subject": words[0], "predicate": "likes", "object": " ".join(words[1:])},
                    [{"rule_id": "r", "source_episode_ids": [f"episode-{number}"]}],
                ]
            )
        )
        fact = Fact(
            id=id, user="alice", agent="rag", payload=payload, lineage=lineage, confidence=1.0,
            pinned_at=START + timedelta(seconds=number),
        )  # fmt: skip
        found.append(NumberedFact(id, fact))
    return found


def index_of_facts(count: int) -> FactIndex:
    index = FactIndex(ALICE, language="auto", vectors=False)
    index.replace((), many_facts(count))
    return index


def index_of_marks(count: int) -> FactIndex:
    index = FactIndex(ALICE, language="auto", vectors=False)
    marks = many_facts(count)
    index.replace(
        (), [NumberedFact(f"@marks/{id}", fact.model_copy(update={"id": f"@marks/{id}"}))
             for id, fact in marks]
    )  # fmt: skip
    assert index.hidden
    return index


def index_of_episodes(count: int, *, words: int) -> EpisodeIndex:
    chance, index = Random(count), EpisodeIndex(ALICE, language="auto", vectors=False)
    index.replace(
        (),
        [
            NumberedVersion(
                number,
                EpisodeVersion(
                    number, f"episode-{number}", "alice", f"s{number // 20}", "rag",
                    microseconds(START) + number, " ".join(f"w{chance.randrange(999)}"
                    for _ in range(words)), "chat", orjson.loads(b'{"speaker": "Ada"}'),
                ),
            )
            for number in range(count)
        ],
    )  # fmt: skip
    return index


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(index_of_facts, 0), id="no facts"),
        pytest.param(partial(index_of_facts, 30), id="few facts"),
        pytest.param(partial(index_of_facts, 1_500), id="many facts"),
        pytest.param(partial(index_of_marks, 800), id="marks"),
        pytest.param(partial(index_of_episodes, 0, words=5), id="no episodes"),
        pytest.param(partial(index_of_episodes, 1_000, words=6), id="short episodes"),
        pytest.param(partial(index_of_episodes, 300, words=200), id="long episodes"),
    ],
)
def test_estimate_of_the_memory_is_near_to_what_an_index_takes(
    make: Callable[[], FactIndex | EpisodeIndex],
) -> None:
    make()  # what the process keeps for all indexes
    gc.collect()
    tracemalloc.start()
    try:
        index = make()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken / 1.5 < index.size_bytes < taken * 1.5, f"{taken:,} are taken"

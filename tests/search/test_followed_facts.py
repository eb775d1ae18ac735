"""The index of facts that follows a store equals one that is built anew, whatever was written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import NumberedFact
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARKS
from slumberd.search.followed_scopes import FollowedScopes, MemoryBound, UserThreads
from slumberd.search.indexes import FactIndex
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

    def follow(self, reader: AnyFactStore) -> None:
        """Begin to follow."""
        self.reader = reader
        self.followed = followed(reader.feed)

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
        """Compare an index that follows with one that is built anew from a search of all facts."""
        index = await self.followed.current(scope)
        expected = await built_anew(self.reader, scope)

        assert seen_in(index) == seen_in(expected)


def followed(feed: Any) -> FollowedScopes[FactIndex, NumberedFact]:
    make = partial(FactIndex, language="auto", vectors=False)
    return FollowedScopes[FactIndex, NumberedFact](feed, make, UserThreads(), MemoryBound(10**9))


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
        "facts": index.facts,
        "hidden": index.hidden,
        "aliases": index.aliases,
        "languages": index.index.languages,
        "found": [index.search(question, limit=100) for question in QUESTIONS],
        "named": [{*index.named_in(question, index.facts)} for question in QUESTIONS],
    }


def run(steps: Sequence[Step], new_stores: NewStores) -> None:
    async def main(provider: Provider) -> None:
        clock = FakeClock(START + timedelta(days=1))
        async with (
            provider.facts(lineage_depth=2, clock=clock) as store,
            provider.facts(lineage_depth=2, clock=clock) as reader,
        ):
            await store.bootstrap()
            story = FollowedStory(store, clock)
            story.follow(reader)
            for step in [*steps, *(("look", scope) for scope in SCOPES)]:
                await story.take_step(step)

    with new_stores() as provider:
        asyncio.run(main(provider))


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

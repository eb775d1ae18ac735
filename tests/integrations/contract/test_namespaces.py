"""Namespaces in memory read only what has changed."""

from __future__ import annotations

import pytest

from slumberd.integrations.contract.records import draft_records, episodes_of, scope_of_namespace
from slumberd.integrations.contract.store import Namespace
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.feed import FeedChanges, FeedPlace, NumberedVersion, ScopeReading
from slumberd.model.firing import Position
from slumberd.model.scope import ScopeFilter
from slumberd.search.followed_scopes import FollowedScopes, MemoryBound, UserThreads
from slumberd.search.scope_index import ScopeIndex
from tests.support.builders import START
from tests.support.record_stores import ask, ids, record

pytestmark = pytest.mark.unit

ADA, BOB = (ScopeFilter(*scope_of_namespace(name, operation="test")) for name in ("ada", "bob"))


def namespaces_of(
    feed: FakeFeed, *, most_bytes: int = 10**9
) -> FollowedScopes[Namespace, NumberedVersion]:
    return FollowedScopes(
        feed,
        lambda scope: Namespace(scope, ScopeIndex()),
        UserThreads(),
        MemoryBound(most_bytes),
    )


def versions_of(namespace: str, **contents: str) -> list[EpisodeVersion]:
    drafts = draft_records([record(text, id) for id, text in contents.items()], namespace)
    scope = scope_of_namespace(namespace, operation="test")
    return [
        EpisodeVersion(
            0, one.id, *scope, microseconds(START), one.content, "contract", one.metadata
        )
        for one in episodes_of(drafts, scope, {}, START)
    ]


PLACE = FeedPlace(Position(), 0)


class FakeFeed:
    """A feed of versions in rows, that counts how often a scope is read."""

    def __init__(self, *versions: EpisodeVersion) -> None:
        self.rows: dict[int, EpisodeVersion] = dict(enumerate(versions))
        self.changed: set[int] | None = set()
        self.read: list[str] = []

    async def place(self) -> FeedPlace:
        return PLACE

    async def read_scope(self, scope: ScopeFilter) -> ScopeReading:
        self.read.append(scope.user)
        found = [NumberedVersion(*one) for one in self.rows.items() if scope.holds(one[1])]
        return ScopeReading(PLACE, found)

    async def changes(self, place: FeedPlace, *, most: int) -> FeedChanges | None:
        if self.changed is None:
            return None
        changed, self.changed = frozenset(self.changed), set()
        found = [NumberedVersion(row, self.rows[row]) for row in changed if row in self.rows]
        return FeedChanges(PLACE, changed, found)


async def test_namespace_is_read_once_and_then_follows_the_changes() -> None:
    feed = FakeFeed(*versions_of("ada", a="tea", b="milk"))
    namespaces = namespaces_of(feed)
    assert ids((await namespaces.current(ADA)).search(ask("tea"))) == ["a"]

    feed.rows |= enumerate(versions_of("ada", a="milk", b="milk", c="tea"))
    feed.changed = {0, 2}

    assert ids((await namespaces.current(ADA)).search(ask("tea"))) == ["c"]
    assert feed.read == ["ada"]


async def test_deleted_record_is_not_found() -> None:
    feed = FakeFeed(*versions_of("ada", a="tea", b="tea"))
    namespaces = namespaces_of(feed)
    await namespaces.current(ADA)

    del feed.rows[0]
    feed.changed = {0}

    assert ids((await namespaces.current(ADA)).search(ask("tea"))) == ["b"]


async def test_row_that_moves_to_another_namespace_leaves_the_first() -> None:
    feed = FakeFeed(*versions_of("ada", a="tea"))
    namespaces = namespaces_of(feed)
    await namespaces.current(ADA)
    await namespaces.current(BOB)

    feed.rows[0], feed.changed = versions_of("bob", a="tea")[0], {0}

    assert (await namespaces.current(ADA)).search(ask("tea")) == []
    assert ids((await namespaces.current(BOB)).search(ask("tea"))) == ["a"]


async def test_namespaces_are_read_again_when_the_changes_are_unknown() -> None:
    feed = FakeFeed(*versions_of("ada", a="tea"))
    namespaces = namespaces_of(feed)
    await namespaces.current(ADA)

    feed.rows, feed.changed = {7: versions_of("ada", b="tea")[0]}, None

    assert ids((await namespaces.current(ADA)).search(ask("tea"))) == ["b"]
    assert feed.read == ["ada", "ada"]


async def test_namespace_that_was_searched_last_stays_when_memory_is_short() -> None:
    feed = FakeFeed(*versions_of("ada", a="tea"), *versions_of("bob", a="tea"))
    namespaces = namespaces_of(feed, most_bytes=1)

    for scope in (ADA, BOB, BOB, ADA):
        assert ids((await namespaces.current(scope)).search(ask("tea"))) == ["a"]

    assert feed.read == ["ada", "bob", "ada"]


async def test_episode_that_is_no_record_is_not_found() -> None:
    [good] = versions_of("ada", a="tea")
    kept = good.metadata["record"]
    others = [
        good._replace(id="e1"),
        good._replace(metadata={}),
        good._replace(metadata={"record": [1]}),
        good._replace(metadata={"record": {**kept, "item_id": "b"}}),
        good._replace(metadata={"record": {**kept, "created_at": 5}}),
        good._replace(session="s"),
    ]

    for other in others:
        namespace = await namespaces_of(FakeFeed(other)).current(ADA)
        assert namespace.search(ask("tea")) == []

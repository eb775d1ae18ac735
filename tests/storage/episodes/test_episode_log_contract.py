"""The contract of every episode log: positions, windows, pending rows and reads."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import Episode, microseconds
from slumberd.model.errors import FilterError
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Position
from slumberd.storage.episodes.store import EngineMemoryStore
from tests.support.builders import START, at, episode, rule
from tests.support.fakes import FakeEpisodeLog
from tests.support.providers import maker_of
from tests.support.selection import ENGINES

pytestmark = pytest.mark.integration


FILTERED = pytest.mark.parametrize("host", ENGINES, indirect=True)
"""For tests that run a filter; the fake runs no filter."""


class Host(Protocol):
    """An episode log, and the writes and reads of its host."""

    @property
    def log(self) -> EpisodeLog: ...
    async def put(self, *episodes: Episode) -> None: ...
    async def read_all_of_alice(self) -> None: ...


class FakeHost:
    """The fake."""

    def __init__(self) -> None:
        self.log = FakeEpisodeLog()

    async def put(self, *episodes: Episode) -> None:
        self.log.put(*episodes)

    async def read_all_of_alice(self) -> None:
        versions = self.log.versions
        self.log.read(*{version.id for version in versions if version.user == "alice"})


class StoreHost:
    """A store; its counts of reads are written when it is closed."""

    def __init__(self, store: EngineMemoryStore) -> None:
        self.log = store

    async def put(self, *episodes: Episode) -> None:
        for given_episode in episodes:
            await self.log.put(
                given_episode,
                user=given_episode.user,
                session=given_episode.session,
                agent=given_episode.agent,
            )

    async def read_all_of_alice(self) -> None:
        await self.log.recent("alice", limit=5)
        await self.log.close()


@pytest.fixture(params=["fake", *ENGINES])
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    if request.param == "fake":
        yield FakeHost()
        return
    with maker_of(request.param, request)() as provider:
        async with provider.memory() as store:
            await store.bootstrap()
            yield StoreHost(store)


@pytest.fixture
def log(host: Host) -> EpisodeLog:
    return host.log


def test_methods_of_an_episode_log_have_the_parameters_of_the_protocol(log: EpisodeLog) -> None:
    for name, method in inspect.getmembers(EpisodeLog, inspect.iscoroutinefunction):
        ours = getattr(type(log), name)
        assert inspect.iscoroutinefunction(ours)
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(method).parameters
        )


async def test_empty_log_ends_where_it_begins(log: EpisodeLog) -> None:
    window = await log.select(rule(), after=BEGINNING, limit=5)

    assert (await log.newest(), window.upto, window.versions) == (BEGINNING, BEGINNING, [])
    assert await log.episode_at(1) is None
    assert await log.pending(0, at_most=5) == 0


async def test_window_ends_at_its_limit_and_the_next_one_begins_there(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(*(episode(f"e{n}") for n in range(5)))

    first = await log.select(rule(), after=BEGINNING, limit=3)
    second = await log.select(rule(), after=first.upto, limit=3)

    assert [version.id for version in first.versions] == ["e0", "e1", "e2"]
    assert first.upto == Position(3, "e2")
    assert [version.id for version in second.versions] == ["e3", "e4"]
    assert (second.after, second.upto) == (first.upto, Position(5, "e4"))


@FILTERED
async def test_window_marks_versions_that_the_filter_does_not_select(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a", user="bob"), episode("b"))

    window = await log.select(rule(when_filter="user = 'bob'"), after=BEGINNING, limit=5)

    assert [(version.id, version.matched) for version in window.versions] == [
        ("a", True),
        ("b", False),
    ]


@FILTERED
async def test_window_marks_the_version_on_which_the_filter_fails(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a", source_node="{}"), episode("b", source_node="{"))

    window = await log.select(
        rule(when_filter="json_extract(source_node, '$.x') IS NULL"), after=BEGINNING, limit=5
    )

    assert [(version.id, version.matched, version.fault) for version in window.versions] == [
        ("a", True, ""),
        ("b", True, "filter_failed: malformed JSON"),
    ]


async def test_window_has_the_newest_version_of_each_episode(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"), episode("b"), episode("a", content="x"))

    window = await log.select(rule(), after=BEGINNING, limit=5)

    assert [(version.seq, version.id, version.content) for version in window.versions] == [
        (2, "b", "content of b"),
        (3, "a", "x"),
    ]


async def test_pending_rows_are_counted_up_to_a_bound(host: Host, log: EpisodeLog) -> None:
    await host.put(*(episode(f"e{n}") for n in range(5)))

    assert await log.pending(0, at_most=100) == 5
    assert await log.pending(0, at_most=3) == 3
    assert await log.pending(4, at_most=3) == 1
    assert await log.pending(9, at_most=3) == 0


async def test_oldest_instant_is_that_of_the_first_pending_episode(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a", timestamp=at(1)), episode("b", timestamp=at(2)))

    assert await log.oldest_at(0) == at(1)
    assert await log.oldest_at(1) == at(2)
    assert await log.oldest_at(2) is None


async def test_oldest_instant_of_a_replaced_version_is_that_of_the_newest(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a", timestamp=at(1)), episode("b", timestamp=at(2)))
    await host.put(episode("a", timestamp=at(3)))

    assert await log.oldest_at(0) == at(3)


async def test_log_row_names_its_episode(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"), episode("b"))

    assert await log.episode_at(2) == "b"
    assert await log.newest() == Position(2, "b")


async def test_change_is_reported_once(host: Host, log: EpisodeLog) -> None:
    seen = [await log.changed(), await log.changed()]
    await host.put(episode())
    seen += [await log.changed(), await log.changed()]

    assert seen == [True, False, True, False]


async def test_forbidden_filter_is_refused(log: EpisodeLog) -> None:
    with pytest.raises(FilterError):
        await log.select(rule(when_filter="1; DROP TABLE episodes"), after=BEGINNING, limit=1)


async def test_reads_of_an_episode_are_counted(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"), episode("b", user="bob"))

    await host.read_all_of_alice()
    found = await log.accesses(["a", "b", "absent"])

    assert [(eid, access.reads) for eid, access in found.items()] == [("a", 1)]


async def test_held_episode_is_logged_once_more_when_it_is_read(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a"), episode("b"))
    await log.log_again_after_read({"a": 0})

    for _ in range(2):
        await host.read_all_of_alice()
    whole = await log.select(rule(), after=BEGINNING, limit=5)
    rest = await log.select(rule(), after=Position(2, "b"), limit=5)

    assert [(version.seq, version.id, version.reread) for version in whole.versions] == [
        (1, "a", False),
        (2, "b", False),
    ]
    assert [(version.seq, version.id, version.reread) for version in rest.versions] == [
        (1, "a", True)
    ]
    assert rest.upto == whole.upto == Position(3, "a")
    assert [version.seq for version in await log.reread(rule(), ["a"], upto=1)] == [1]


async def test_held_episode_with_an_unknown_read_is_logged_at_once(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a"))
    await host.read_all_of_alice()

    await log.log_again_after_read({"a": 1})
    assert await log.newest() == Position(1, "a")
    await log.log_again_after_read({"a": 0})

    assert await log.newest() == Position(2, "a")


async def test_edit_of_an_episode_that_was_logged_again_is_a_new_version(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a"))
    await log.log_again_after_read({"a": 0})
    await host.read_all_of_alice()
    await host.put(episode("a", content="x"))

    between = await log.select(rule(), after=Position(1, "a"), limit=1)
    rest = await log.select(rule(), after=Position(1, "a"), limit=5)

    assert between.versions == []
    assert [(version.seq, version.content, version.reread) for version in rest.versions] == [
        (3, "x", False)
    ]


async def test_window_ends_at_the_last_row_that_it_may_read(host: Host, log: EpisodeLog) -> None:
    await host.put(*(episode(f"e{n}") for n in range(5)))

    window = await log.select(rule(), after=Position(1, "e0"), limit=9, upto=3)
    empty = await log.select(rule(), after=Position(3, "e2"), limit=9, upto=3)

    assert ([version.id for version in window.versions], window.upto) == (
        ["e1", "e2"],
        Position(3, "e2"),
    )
    assert (empty.versions, empty.upto) == ([], Position(3, "e2"))


async def test_old_row_of_an_edited_episode_is_read_at_its_newest_row_only(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a"), episode("b"), episode("a", content="x"))

    first = await log.select(rule(), after=BEGINNING, limit=1)

    assert (first.versions, first.upto) == ([], Position(1, "a"))


async def test_episodes_are_read_again_in_log_order_unless_they_changed_later(
    host: Host, log: EpisodeLog
) -> None:
    await host.put(episode("a"), episode("b"), episode("c"), episode("a", content="x"))

    early = await log.reread(rule(), ["c", "b", "a", "missing", "b"], upto=3)
    late = await log.reread(rule(), ["a", "c"], upto=4)

    assert [(version.seq, version.id) for version in early] == [(2, "b"), (3, "c")]
    assert [(version.seq, version.content) for version in late] == [(3, "content of c"), (4, "x")]


async def test_version_has_what_its_host_wrote(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a", user="bob", metadata={"intent": "add"}, content="x"))

    (found,) = (await log.select(rule(), after=BEGINNING, limit=1)).versions

    assert (found.user, found.session, found.agent) == ("bob", "s1", "rag")
    assert (found.content, found.metadata, found.source_node) == ("x", {"intent": "add"}, "chat")
    assert (found.at, found.matched, found.fault) == (microseconds(START), True, "")


async def test_episode_that_the_log_does_not_know_is_not_held(host: Host, log: EpisodeLog) -> None:
    await log.log_again_after_read({"a": 0})
    await host.put(episode("a"))
    await host.read_all_of_alice()

    assert await log.newest() == Position(1, "a")


async def test_log_survives_a_call_of_fsync(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"))

    await log.fsync()

    assert await log.newest() == Position(1, "a")


async def test_ids_are_listed_by_user_and_agent(host: Host, log: EpisodeLog) -> None:
    await host.put(
        episode("a"), episode("b", user="bob"), episode("c", agent="web"), episode("d"),
        episode("a", content="x"),
    )  # fmt: skip

    found = await log.ids_by_owner(rule())

    assert {owner: sorted(ids) for owner, ids in found.items()} == {
        ("alice", "rag"): ["a", "d"], ("bob", "rag"): ["b"], ("alice", "web"): ["c"],
    }  # fmt: skip


@FILTERED
async def test_ids_are_those_that_the_filter_selects(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"), episode("b", user="bob"))

    assert await log.ids_by_owner(rule(when_filter="user = 'bob'")) == {("bob", "rag"): ["b"]}


async def test_unchanged_episodes_are_purged(host: Host, log: EpisodeLog) -> None:
    await host.put(episode("a"), episode("b"), episode("c"), episode("a", content="x"))

    purged = await log.purge({"a": 1, "b": 2, "missing": 3})

    assert purged == ["b"]
    assert await log.ids_by_owner(rule()) == {("alice", "rag"): ["a", "c"]}
    assert [found.id for found in await log.reread(rule(), ["a", "b"], upto=9)] == ["a"]
    assert await log.purge({"b": 2}) == []
    await host.put(episode("b"))
    assert [found.id for found in await log.reread(rule(), ["b"], upto=9)] == ["b"]

"""What every episode log keeps to: places, windows, and what is pending."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slumberd.consolidation.protocols import EpisodeLog
from slumberd.errors import FilterError
from slumberd.model.episode import Episode
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Position
from slumberd.storage.episodes.store import SQLiteMemoryStore
from tests.support.builders import episode, rule

pytestmark = pytest.mark.integration


@pytest.fixture(params=["sqlite"])
async def memory(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.bootstrap()
        yield store


async def put(memory: SQLiteMemoryStore, *episodes: Episode) -> None:
    for one in episodes:
        await memory.put(one, user=one.user, session=one.session, agent=one.agent)


def test_its_methods_take_what_the_port_says_and_are_coroutine_functions() -> None:
    for name, method in inspect.getmembers(EpisodeLog, inspect.iscoroutinefunction):
        ours = getattr(SQLiteMemoryStore, name)
        assert inspect.iscoroutinefunction(ours)
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(method).parameters
        )


async def test_an_empty_log_ends_where_it_begins(memory: SQLiteMemoryStore) -> None:
    window = await memory.select(rule(), after=BEGINNING, limit=5)

    assert (await memory.newest(), window.upto, window.versions) == (BEGINNING, BEGINNING, [])
    assert await memory.episode_at(1) is None
    assert await memory.pending(0, at_most=5) == 0


async def test_a_window_is_cut_at_its_limit_and_goes_on_from_there(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, *(episode(f"e{n}") for n in range(5)))

    first = await memory.select(rule(), after=BEGINNING, limit=3)
    second = await memory.select(rule(), after=first.upto, limit=3)

    assert [one.id for one in first.versions] == ["e0", "e1", "e2"]
    assert first.upto == Position(3, "e2")
    assert [one.id for one in second.versions] == ["e3", "e4"]
    assert (second.after, second.upto) == (first.upto, Position(5, "e4"))


async def test_a_window_holds_what_the_filter_does_not_select_unmatched(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a", user="bob"), episode("b"))

    window = await memory.select(rule(when_filter="user = 'bob'"), after=BEGINNING, limit=5)

    assert [(one.id, one.matched) for one in window.versions] == [("a", True), ("b", False)]


async def test_a_row_that_the_filter_fails_on_is_at_fault_and_the_others_are_not(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a", source_node="{}"), episode("b", source_node="{"))

    window = await memory.select(
        rule(when_filter="json_extract(source_node, '$.x') IS NULL"), after=BEGINNING, limit=5
    )

    assert [(one.id, one.matched, one.fault) for one in window.versions] == [
        ("a", True, ""),
        ("b", True, "filter_failed: malformed JSON"),
    ]


async def test_of_an_episode_only_its_newest_log_row_in_a_window_counts(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a"), episode("b"), episode("a", content="x"))

    window = await memory.select(rule(), after=BEGINNING, limit=5)

    assert [(one.seq, one.id, one.content) for one in window.versions] == [
        (2, "b", "content of b"),
        (3, "a", "x"),
    ]


async def test_what_is_pending_is_counted_up_to_a_bound(memory: SQLiteMemoryStore) -> None:
    await put(memory, *(episode(f"e{n}") for n in range(5)))

    assert await memory.pending(0, at_most=100) == 5
    assert await memory.pending(0, at_most=3) == 3
    assert await memory.pending(4, at_most=3) == 1
    assert await memory.pending(9, at_most=3) == 0


async def test_a_log_row_tells_its_episode(memory: SQLiteMemoryStore) -> None:
    await put(memory, episode("a"), episode("b"))

    assert await memory.episode_at(2) == "b"
    assert await memory.newest() == Position(2, "b")


async def test_a_change_is_noticed_once(memory: SQLiteMemoryStore) -> None:
    seen = [await memory.changed(), await memory.changed()]
    await put(memory, episode())
    seen += [await memory.changed(), await memory.changed()]

    assert seen == [True, False, True, False]


async def test_a_filter_that_must_not_run_does_not(memory: SQLiteMemoryStore) -> None:
    with pytest.raises(FilterError):
        await memory.select(rule(when_filter="1; DROP TABLE episodes"), after=BEGINNING, limit=1)


async def test_how_an_episode_was_read_is_known_once_it_is_written(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a"), episode("b", user="bob"))

    await memory.recent("alice", limit=5)
    await memory.close()
    found = await memory.accesses(["a", "b", "nobody"])

    assert [(eid, access.reads) for eid, access in found.items()] == [("a", 1)]


async def test_what_is_held_is_logged_again_for_one_read_with_the_number_that_it_had(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a"), episode("b"))
    await memory.hold({"a": 0})

    for _ in range(2):
        await memory.recent("alice", limit=5)
        await memory.close()
    whole = await memory.select(rule(), after=BEGINNING, limit=5)
    rest = await memory.select(rule(), after=Position(2, "b"), limit=5)

    assert [(one.seq, one.id, one.reread) for one in whole.versions] == [
        (1, "a", False),
        (2, "b", False),
    ]
    assert [(one.seq, one.id, one.reread) for one in rest.versions] == [(1, "a", True)]
    assert rest.upto == whole.upto == Position(3, "a")
    assert [one.seq for one in await memory.reread(rule(), ["a"], upto=1)] == [1]


async def test_what_is_held_after_one_read_more_than_was_known_is_logged_at_once(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a"))
    await memory.recent("alice", limit=5)
    await memory.close()

    await memory.hold({"a": 1})
    assert await memory.newest() == Position(1, "a")
    await memory.hold({"a": 0})

    assert await memory.newest() == Position(2, "a")


async def test_an_edit_of_what_was_logged_again_is_a_version_and_no_reread(
    memory: SQLiteMemoryStore,
) -> None:
    await put(memory, episode("a"))
    await memory.hold({"a": 0})
    await memory.recent("alice", limit=5)
    await memory.close()
    await put(memory, episode("a", content="x"))

    between = await memory.select(rule(), after=Position(1, "a"), limit=1)
    rest = await memory.select(rule(), after=Position(1, "a"), limit=5)

    assert between.versions == []
    assert [(one.seq, one.content, one.reread) for one in rest.versions] == [(3, "x", False)]

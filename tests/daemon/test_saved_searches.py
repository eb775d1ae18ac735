"""A saved index spares the reading of a scope, follows every writer, and survives no erasure."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import orjson
import pytest
import pytest_asyncio

from slumberd import Memory
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.model.episode import Episode
from slumberd.model.errors import SchemaError
from slumberd.model.feed import FeedPlace
from slumberd.model.firing import Position
from slumberd.model.scope import ScopeFilter
from slumberd.search.hits import Hit
from slumberd.search.saved_indexes import (
    DIRECTORY,
    LEAST_TEXTS,
    SavedIndexes,
    check_indexes,
    remove_indexes_of,
    size_of_indexes,
)
from slumberd.search.searcher import Searcher
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, episode
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

CANARY = "zeppelinism"
SCOPE = ScopeFilter.of("alice", None, None)
KEY = b"k" * 32
PLACE = FeedPlace(Position(), 0)
MANY_FACTS = [(f"f{n}", "alice", f"dog number {n}") for n in range(LEAST_TEXTS)]
MANY = [episode(f"m{n}", content=f"dog number {n} of the house") for n in range(LEAST_TEXTS)]


class CountedFeed:
    """The feed of a store, and how many scopes were read whole."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed
        self.readings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def read_scope(self, scope: ScopeFilter) -> Any:
        self.readings += 1
        return await self._feed.read_scope(scope)


class CountedStore:
    """A store whose feed counts."""

    def __init__(self, store: SQLiteMemoryStore | SQLiteFactStore) -> None:
        self._store = store
        self.feed: Any = CountedFeed(store.feed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Process(NamedTuple):
    """What a process has that searches."""

    memory: CountedStore
    facts: CountedStore
    searcher: Searcher

    async def find(self, query: str) -> list[Hit]:
        return await self.searcher.search(query, user="alice", limit=50)

    async def ids(self, query: str) -> list[str]:
        return [hit.id for hit in await self.find(query)]


class Site(NamedTuple):
    """Stores with enough episodes, or facts, of one user for a saved index."""

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore
    state: Path

    def process(self, memory: SQLiteMemoryStore | None = None) -> Process:
        """Return another process, which has nothing in memory."""
        return self.process_of(memory or self.memory, self.facts)

    def process_of(self, memory: SQLiteMemoryStore, facts: SQLiteFactStore) -> Process:
        stores = CountedStore(memory), CountedStore(facts)
        return Process(*stores, Searcher(*stores, language="english", saved=self.saved()))

    def saved(self) -> SavedIndexes:
        return SavedIndexes(self.state, store=["one"], made_with=["english"])

    def write_facts(self, *facts: tuple[str, str, str], path: Path | None = None) -> None:
        """Write facts as another program does: of each its id, its user and its object."""
        with closing(sqlite3.connect(path or self.state / "facts.db")) as connection, connection:
            connection.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?, 'rag', ?, ?, 1.0, '{}', ?)",
                [
                    (id, user, orjson.dumps({"subject": id, "predicate": "is", "object": value}),
                     b'[{"by": "host"}]', START.isoformat())
                    for id, user, value in facts
                ],
            )  # fmt: skip

    async def save_facts(self, *more: tuple[str, str, str]) -> None:
        """Save the index of all facts."""
        self.write_facts(*MANY_FACTS, *more)
        await self.facts.ledger.notice_external()
        process = self.process()
        await process.find("dog")
        await process.searcher.save()
        assert [problem for _, problem in check_indexes(self.state)] == [""]

    async def save(self, *more: Episode) -> None:
        """Save the index of all episodes."""
        await self.memory.put_many([*MANY, *more])
        process = self.process()
        await process.find("dog")
        await process.searcher.save()
        assert [problem for _, problem in check_indexes(self.state)] == [""]


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with (
        SQLiteMemoryStore(tmp_path / "memory.db") as memory,
        SQLiteFactStore(tmp_path / "facts.db") as facts,
    ):
        await facts.bootstrap()
        yield Site(memory, facts, tmp_path)


async def test_second_process_reads_no_scope_and_finds_the_same(site: Site) -> None:
    await site.save()
    second, without = site.process(), Searcher(site.memory, language="english")

    found = await second.find("dog number 7")

    assert found == await without.search("dog number 7", user="alice", limit=50)
    assert second.memory.feed.readings == 0


async def test_second_process_reads_no_facts_and_finds_the_same(site: Site) -> None:
    await site.save_facts()
    second, without = site.process(), Searcher(site.memory, site.facts, language="english")

    found = await second.find("dog number 7")

    assert found == await without.search("dog number 7", user="alice", limit=50)
    assert len(found) == 50
    assert second.facts.feed.readings == 0
    profile = await second.searcher.profile(user="alice")
    assert profile == await without.profile(user="alice")


async def test_loaded_index_of_facts_follows_writes_and_erasures_of_others(site: Site) -> None:
    await site.save_facts(("b1", "bob", "the zebra"))
    site.write_facts(("new", "alice", "a zebra"), ("f3", "alice", "the edited zebra"))
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute("DELETE FROM facts WHERE fact_id = 'f5'")
    await site.facts.erasures.forget(
        ScopeFilter.of("bob", None, None), moment=0, key=KEY, at=START, by="me", dry_run=False
    )
    second = site.process()

    assert {"f3", "new"} == {*await second.ids("zebra")}
    assert "f5" not in await second.ids("dog number 5")
    assert second.facts.feed.readings == 0


async def test_loaded_index_of_facts_drops_what_was_erased(site: Site) -> None:
    await site.save_facts()
    await site.facts.erasures.forget(SCOPE, moment=0, key=KEY, at=START, by="me", dry_run=False)
    second = site.process()

    assert await second.find("dog") == []
    assert second.facts.feed.readings == 0


async def test_erasure_removes_the_index_of_facts(site: Site) -> None:
    await site.save_facts(("gone", "alice", CANARY))
    assert files_with(CANARY, site.state / DIRECTORY) != []

    assert remove_indexes_of(site.state, "alice") == 1

    assert files_with(CANARY, site.state / DIRECTORY) == []


async def test_index_of_facts_is_not_saved_before_the_ledger_has_all_changes(site: Site) -> None:
    site.write_facts(*MANY_FACTS)
    await site.facts.ledger.notice_external()
    site.write_facts(("new", "bob", "zebra"))
    process = site.process()
    await process.find("dog")

    await process.searcher.save()
    before = size_of_indexes(site.state)
    await site.facts.ledger.notice_external()
    await process.find("dog")
    await process.searcher.save()

    assert before == 0 < size_of_indexes(site.state)


async def test_index_of_facts_of_another_ledger_is_not_used(site: Site) -> None:
    await site.save_facts(("last", "alice", CANARY))
    async with SQLiteFactStore(site.state / "other.db") as other:
        await other.bootstrap()
        facts = *MANY_FACTS, ("last", "alice", "a zebra")
        site.write_facts(*facts, path=site.state / "other.db")
        await other.ledger.notice_external()
        process = site.process_of(site.memory, other)

        assert (await process.ids("zebra"))[:1] == ["last"]
        assert await process.find(CANARY) == []
        assert process.facts.feed.readings == 1


async def test_directory_stays_open_while_a_cancelled_saving_writes(site: Site) -> None:
    await site.memory.put_many(MANY)
    slow = SlowIndexes(site.state, store=["one"], made_with=["english"])
    searcher = Searcher(site.memory, language="english", saved=slow)
    await searcher.search("dog", user="alice")
    saving = asyncio.ensure_future(searcher.save())
    await asyncio.to_thread(slow.begun.wait)

    saving.cancel()
    await searcher.search("dog", user="bob")
    is_waiting = not saving.done()
    slow.may_write.set()
    with suppress(asyncio.CancelledError):
        await saving

    assert is_waiting
    assert [problem for _, problem in check_indexes(site.state)] == [""]


class SlowWriter:
    """Writes an index once it may."""

    def __init__(self, writer: Any, begun: Event, may_write: Event) -> None:
        self._writer, self._begun, self._may_write = writer, begun, may_write

    def save(self, *index: Any) -> bool:
        self._begun.set()
        self._may_write.wait()
        is_saved: bool = self._writer.save(*index)
        return is_saved


class SlowIndexes(SavedIndexes):
    """Saved indexes whose writers wait."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.begun, self.may_write = Event(), Event()

    @contextmanager
    def writing(self, user: str) -> Iterator[Any]:
        with super().writing(user) as writer:
            yield SlowWriter(writer, self.begun, self.may_write)


async def test_user_searches_while_its_index_is_written_and_is_erased_after_it(site: Site) -> None:
    await site.memory.put_many([*MANY, episode("gone", content=CANARY)])
    slow = SlowIndexes(site.state, store=["one"], made_with=["english"])
    searcher = Searcher(site.memory, language="english", saved=slow)
    await searcher.search("dog", user="alice")

    saving = asyncio.ensure_future(searcher.save())
    await asyncio.to_thread(slow.begun.wait)
    await site.memory.put_many([episode("new", content="a zebra")])
    found = await searcher.search("zebra", user="alice")
    erasing = asyncio.ensure_future(searcher.forget("alice"))
    await asyncio.sleep(0)
    await searcher.search("zebra", user="alice")  # after the erasure, if that did not wait
    is_waiting = not erasing.done()
    slow.may_write.set()
    await asyncio.gather(saving, erasing)

    assert (found[0].id, is_waiting) == ("new", True)
    second = site.process()
    assert (await second.ids("dog")) == [
        hit.id for hit in await searcher.search("dog", user="alice", limit=50)
    ]
    assert second.memory.feed.readings == 0, "what was saved is whole, and the new episode follows"
    assert remove_indexes_of(site.state, "alice") == 1


async def test_loaded_index_follows_puts_edits_and_deletions_of_others(site: Site) -> None:
    await site.save()
    await site.memory.put_many(
        [episode("new", content="a zebra"), episode("m3", content="the edited zebra")]
    )
    delete(site, "m5")
    second = site.process()

    assert {"m3", "new"} == {*(await second.ids("zebra"))[:2]}
    assert "m5" not in await second.ids("dog number 5")
    assert second.memory.feed.readings == 0


def delete(site: Site, id: str) -> None:
    """Delete an episode as another program does."""
    with closing(sqlite3.connect(site.state / "memory.db")) as connection, connection:
        connection.execute("DELETE FROM episodes WHERE id = ?", (id,))


async def test_index_is_saved_again_when_a_saved_episode_is_gone(site: Site) -> None:
    await site.save(episode("gone", content=CANARY))
    assert files_with(CANARY, site.state / DIRECTORY) != []
    await site.memory.forget(ScopeFilter.of("alice", None, None), ["gone"], moment=None, key=KEY)
    second = site.process()
    await second.find("dog")

    await second.searcher.save()

    assert files_with(CANARY, site.state / DIRECTORY) == []
    assert [problem for _, problem in check_indexes(site.state)] == [""]


async def test_saved_index_names_no_episode_of_another_user(site: Site) -> None:
    await site.save()
    await site.memory.put_many([episode(f"{CANARY}-1", content="cat", user="bob")])
    second = site.process()
    await second.find("dog")
    await second.searcher._episodes.save(site.saved(), SCOPE)

    assert files_with(CANARY, site.state / DIRECTORY) == []
    third = site.process()
    assert "m7" in await third.ids("dog number 7")
    assert third.memory.feed.readings == 0


async def test_index_whose_episode_a_program_deleted_is_removed_without_a_search(
    site: Site,
) -> None:
    await site.save(episode("gone", content=CANARY))
    bobs = [episode(f"b{n}", content="cat", user="bob") for n in range(LEAST_TEXTS)]
    await site.memory.put_many(bobs)
    process, deletions = site.process(), site.memory.feed.deletions
    await process.searcher.search("cat", user="bob")
    await process.searcher.save()
    assert len([*check_indexes(site.state)]) == 2
    assert await process.searcher.remove_gone(deletions) == 0

    delete(site, "gone")

    assert await process.searcher.remove_gone(deletions) == 1
    assert files_with(CANARY, site.state / DIRECTORY) == []
    assert site.saved().load("episode", ScopeFilter.of("bob", None, None)) is not None
    assert await process.searcher.remove_gone(deletions) == 0


async def test_index_that_may_hold_a_deleted_episode_is_removed(site: Site) -> None:
    await site.save(episode("gone", content=CANARY))
    path = site.state / "memory.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO slumberd_episode_deletions (rid) VALUES (NULL)")

    assert await site.process().searcher.remove_gone(site.memory.feed.deletions) == 1


async def test_index_that_cannot_be_used_is_removed(site: Site) -> None:
    await site.save(episode("gone", content=CANARY))
    other = SavedIndexes(site.state, store=["two"], made_with=["english"])
    searcher = Searcher(site.memory, language="english", saved=other)

    await searcher.remove_gone(site.memory.feed.deletions)

    assert [*check_indexes(site.state)] == []


async def test_file_that_a_killed_process_was_writing_is_removed(site: Site) -> None:
    await site.save()
    [(path, _)] = check_indexes(site.state)
    unfinished = path.with_name(f"{path.name}.1.new")
    unfinished.write_bytes(CANARY.encode())
    searcher, deletions = site.process().searcher, site.memory.feed.deletions

    await searcher.remove_gone(deletions)
    assert unfinished.exists()  # a process may be writing it
    os.utime(unfinished, (1, 1))
    await searcher.remove_gone(deletions)
    assert unfinished.exists()  # it was written meanwhile
    await searcher.remove_gone(deletions)

    assert [*path.parent.iterdir()] == [path]


async def test_indexes_that_a_smaller_bound_excludes_are_removed_without_a_search(
    site: Site,
) -> None:
    await site.save()
    bounded = SavedIndexes(site.state, store=["one"], made_with=["english"], most_bytes=1_000)
    searcher = Searcher(site.memory, language="english", saved=bounded)

    await searcher.remove_gone(site.memory.feed.deletions)

    assert size_of_indexes(site.state) == 0


async def test_saved_index_with_a_deleted_episode_goes_when_it_cannot_be_saved(site: Site) -> None:
    await site.save(episode("gone", content=CANARY))
    delete(site, "gone")
    process = site.process()
    await process.find("dog")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))  # as a full disk
    try:
        await process.searcher.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert [*(site.state / DIRECTORY).rglob("*.*")] == []


def test_erasures_of_many_users_at_once_remove_all(tmp_path: Path) -> None:
    saved = SavedIndexes(tmp_path, store=["one"], made_with=[])
    users = [f"user{n}" for n in range(60)]
    for user in users:
        with saved.writing(user) as writer:
            assert writer is not None
            for session in range(5):
                scope = ScopeFilter.of(user, f"s{session}", None)
                assert writer.save("episode", scope, PLACE.saved(), {"part": b"x"})

    with ThreadPoolExecutor(4) as executor:
        [*executor.map(remove_indexes_of, [tmp_path] * len(users), users)]

    assert [*(tmp_path / DIRECTORY).iterdir()] == []


async def test_small_scope_is_not_saved(site: Site) -> None:
    await site.memory.put_many(MANY[1:])
    process = site.process()
    await process.find("dog")

    await process.searcher.save()

    assert size_of_indexes(site.state) == 0


async def test_few_changes_do_not_save_again(site: Site) -> None:
    await site.save()
    [(path, _)] = check_indexes(site.state)
    before = path.stat().st_ino
    await site.memory.put_many([episode("new", content="a zebra")])
    second = site.process()
    await second.find("dog")

    await second.searcher.save()

    assert path.stat().st_ino == before


async def test_index_is_newer_than_a_restored_store_and_is_built_anew(site: Site) -> None:
    async with SQLiteMemoryStore(site.state / "older.db") as older:
        await older.put_many(MANY)
        await site.save()
        third = site.process(older)
        # The log ends at the same episode; only the deletion is unknown to the older store.
        delete(site, "m5")
        second = site.process()
        await second.find("dog")
        await second.searcher.save()

        assert "m5" in await third.ids("dog number 5")
        assert third.memory.feed.readings == 1


async def test_index_of_a_store_that_was_copied_back_and_written_again_is_not_used(
    site: Site,
) -> None:
    async with SQLiteMemoryStore(site.state / "other.db") as other:
        await other.put_many([*MANY, episode("last", content="a zebra")])
        await site.save(episode("last", content=CANARY))
        process = site.process(other)

        assert (await process.ids("zebra"))[:1] == ["last"]
        assert (await process.find(CANARY)) == []
        assert process.memory.feed.readings == 1


async def test_damaged_index_is_built_anew_and_saved(site: Site) -> None:
    await site.save()
    [(path, _)] = check_indexes(site.state)
    path.write_bytes(path.read_bytes()[:-9])
    second = site.process()

    assert "m7" in await second.ids("dog number 7")
    await second.searcher.save()

    assert second.memory.feed.readings == 1
    assert [problem for _, problem in check_indexes(site.state)] == [""]


async def test_process_of_before_an_erasure_saves_nothing_of_it(site: Site) -> None:
    await site.save(episode("gone", content=CANARY))
    stale = site.process()
    await stale.find("dog")
    stale_index = (await stale.searcher._episodes.current(SCOPE)).parts()
    saved = SavedIndexes(site.state, store=["one"], made_with=["english"])
    with saved.writing("alice") as writer:
        assert writer is not None
        await site.memory.forget(SCOPE, ["gone"], moment=None, key=KEY)
        assert remove_indexes_of(site.state, "alice") == 1

        assert not writer.save("episode", SCOPE, PLACE.saved(), stale_index)

    await stale.searcher.save()  # it follows the store before it saves
    assert files_with(CANARY, site.state / DIRECTORY) == []
    assert await stale.ids(CANARY) == []


_SAVING = """
import asyncio, sys
from pathlib import Path
from slumberd.search.searcher import Searcher
from slumberd.search.saved_indexes import SavedIndexes
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore

async def main(state):
    async with SQLiteMemoryStore(state / "memory.db") as memory:
        saved = SavedIndexes(state, store=["one"], made_with=["english"])
        searcher = Searcher(memory, language="english", saved=saved)
        await searcher.search("dog", user="alice")
        scope = ScopeFilter.of("alice", None, None)
        print("ready", flush=True)
        while True:
            await searcher._episodes.save(saved, scope)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
async def test_reader_beside_a_writer_that_is_killed_always_has_a_whole_index(site: Site) -> None:
    await site.save()
    expected = await site.process().find("dog number 7")
    for _ in range(3):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SAVING, site.state, stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"ready\n"
        for _ in range(10):
            reader = site.process()
            assert await reader.find("dog number 7") == expected
            assert reader.memory.feed.readings == 0
        writer.send_signal(signal.SIGKILL)
        await writer.wait()
        reader = site.process()
        assert await reader.find("dog number 7") == expected
        assert reader.memory.feed.readings == 0


def files_with(text: str, folder: Path) -> list[str]:
    """Return the names of the files of a directory that contain a text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.name for path in files if text.encode() in path.read_bytes())


def home_with_index(directory: Path) -> TrialInstallation:
    """Return an installation whose command has saved an index with the canary."""
    home = TrialInstallation(directory, rules(rule("all")))
    home.put(*MANY, episode("gone", content=f"All about {CANARY}", session="other"))
    home.fire()
    assert [hit["id"] for hit in home.lines("search", CANARY, "--user", "alice")][:1] == ["gone"]
    assert files_with(CANARY, home.state / DIRECTORY) != []
    return home


@pytest.mark.slow
@pytest.mark.parametrize("what", [{}, {"session": "other"}, {"episode": "gone"}], ids=str)
def test_certificate_of_a_command_names_the_index_that_is_gone(
    tmp_path: Path, what: dict[str, str]
) -> None:
    home = home_with_index(tmp_path)

    done = home.do("forget", user="alice", **what)

    assert done["search_indexes"] == 2, "of episodes, and of facts"
    assert files_with(CANARY, home.state) == []
    assert home.lines("search", CANARY, "--user", "alice") == []


@pytest.mark.slow
async def test_erasure_through_a_daemon_removes_the_index_that_it_saved(tmp_path: Path) -> None:
    directory = tmp_path / "memory"
    make_state_directory(directory)
    async with Memory.open(directory, user="alice") as memory:
        await memory.put_many([{"text": f"The dog number {n}"} for n in range(LEAST_TEXTS)])
        await memory.remember(f"All about {CANARY}", id="gone", session="other")
        assert await memory.recall(CANARY)
    assert files_with(CANARY, directory / DIRECTORY) != []  # it was saved at the end
    async with Memory.open(directory, user="alice") as memory:
        assert await memory.recall(CANARY)

        plan = await memory.forget(session="other")
        done = await memory.forget(session="other", plan=plan.plan)

        assert done.certificate["search_indexes"] == 1
        assert files_with(CANARY, directory / DIRECTORY) == []
        assert await memory.recall(CANARY) == []
    assert files_with(CANARY, directory / DIRECTORY) == []


@pytest.mark.slow
def test_backup_leaves_the_index_out_and_restore_removes_it(tmp_path: Path) -> None:
    home = home_with_index(tmp_path)
    assert home.call("backup", str(tmp_path / "backup")).returncode == 0
    assert not (tmp_path / "backup" / DIRECTORY).exists()

    assert home.call("restore", str(tmp_path / "backup")).returncode == 0

    assert size_of_indexes(home.state) == 0
    assert [hit["id"] for hit in home.lines("search", CANARY, "--user", "alice")][:1] == ["gone"]
    assert size_of_indexes(home.state) > 0


@pytest.mark.slow
def test_status_names_its_size_and_doctor_a_damaged_one(tmp_path: Path) -> None:
    home = home_with_index(tmp_path)
    [(path, _), _] = check_indexes(home.state)
    size = size_of_indexes(home.state)
    assert json.loads(home.call("status", "--json").stdout)["search"]["saved_bytes"] == size
    assert "saved indexes" in home.call("status").stdout

    path.write_bytes(b"?" + path.read_bytes()[1:])

    found = json.loads(home.run("doctor", "--json").stdout)["findings"]
    assert [one["subject"] for one in found if one["id"] == "search.damaged"] == [str(path)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_process_of_another_user_leaves_no_file(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, 12345)

    with SavedIndexes(state, store=[], made_with=[]).writing("alice") as writer:
        assert writer is None

    assert [*state.iterdir()] == []


async def test_reader_that_leaves_no_trace_installs_nothing(site: Site) -> None:
    await site.memory.put_many(MANY[:1])
    path = site.state / "memory.db"
    async with SQLiteMemoryStore(path, traceless=True) as reader:
        await reader.feed.place()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TRIGGER slumberd_episode_inserted")

        with pytest.raises(SchemaError, match="has no episode log"):
            await reader.feed.place()

"""Inspections look at closed stores as the ports say, and leave nothing behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from slumberd.daemon.stores import inspections_of
from slumberd.model.errors import SchemaError, StoreError
from slumberd.model.store_status import Backlog, LogRange
from slumberd.operations.caller import Caller
from slumberd.rules.settings import Settings
from slumberd.storage.closed_stores import StoreFiles
from slumberd.storage.inspections import StoreInspection, StoreInspections
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import open_stores
from tests.support.state_directory import state_directory

pytestmark = pytest.mark.integration

EPISODES = [
    triple("e0", "alice", "likes", "tea", user="alice", timestamp=at(0)),
    triple("e1", "bob", "likes", "milk", user="bob", timestamp=at(10)),
    triple("e2", "carol", "likes", "rum", user="carol", timestamp=at(20)),
]
NOTHING: dict[str, Callable[[StoreInspections], object]] = {
    "episodes: status": lambda stores: stores.episodes.status([]),
    "episodes: has_log": lambda stores: stores.episodes.has_log(),
    "episodes: users": lambda stores: stores.episodes.users(1),
    "episodes: damage": lambda stores: files_of(stores.episodes).damage(None),
    "facts: status": lambda stores: stores.facts.status(),
    "facts: users": lambda stores: stores.facts.users(1),
    "facts: damage": lambda stores: files_of(stores.facts).damage(None),
    "facts: erased_scopes": lambda stores: stores.facts.erased_scopes(),
}
FILES = ["memory.db", "memory.db-wal", "memory.db-shm"]


def inspect(folder: Path) -> StoreInspections:
    return inspections_of(Settings(state_dir=folder, rules_dir=folder))


def files_of(store: StoreInspection) -> StoreFiles:
    """Return what looks at the files of a store."""
    assert store.on_disk is not None
    return store.on_disk


@pytest.fixture
async def stores(tmp_path: Path) -> StoreInspections:
    """Look at closed stores with three episodes, and the facts of all of them."""
    async with open_stores(tmp_path) as home:
        await home.put(*EPISODES)
        await home.fire()
    return inspect(tmp_path)


@pytest.mark.parametrize("read", NOTHING.values(), ids=NOTHING)
def test_store_that_does_not_exist_raises(
    tmp_path: Path, read: Callable[[StoreInspections], object]
) -> None:
    with pytest.raises(StoreError):
        read(inspect(tmp_path))


@pytest.mark.parametrize("which", [0, 1], ids=["episodes", "facts"])
def test_missing_store_is_distinguished_from_a_link_that_leads_nowhere(
    tmp_path: Path, which: int
) -> None:
    store = inspect(tmp_path)[which]
    missing = store.exists(), files_of(store).is_missing(), store.sizes().total

    Path(store.where).symlink_to(tmp_path / "nowhere")

    assert missing == (False, True, 0)
    assert (store.exists(), files_of(store).is_missing()) == (False, False)


def test_store_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    store = inspect(tmp_path).facts
    Path(store.where).write_bytes(b"no database" * 1_000)

    with pytest.raises(SchemaError):
        store.status()


async def test_status_counts_episodes_and_what_lies_above_each_row(
    stores: StoreInspections,
) -> None:
    ranges = [LogRange(0, 100), LogRange(0, 2), LogRange(2, 100), LogRange(3, 100)]

    status = stores.episodes.status(ranges)

    assert status is not None
    assert status.episodes == 3
    assert status.backlogs == {
        ranges[0]: Backlog(3, at(0).isoformat()),
        ranges[1]: Backlog(2, at(0).isoformat()),
        ranges[2]: Backlog(1, at(20).isoformat()),
        ranges[3]: Backlog(0, None),
    }
    assert stores.episodes.last_log_row() == 3


async def test_status_of_facts_names_the_watermark_and_the_outcome_of_a_rule(
    stores: StoreInspections,
) -> None:
    status = stores.facts.status()

    assert status is not None
    assert (status.facts, status.rows, status.triggered) == (3, 4, True)
    assert status.watermarks == {"all": 3}
    assert status.outcomes["all"].added == 3


async def test_users_are_listed_in_order_up_to_a_limit(stores: StoreInspections) -> None:
    listed: list[StoreInspection] = [stores.episodes, stores.facts]

    assert [store.users(2) for store in listed] == [["alice", "bob"]] * 2
    assert [store.users(9) for store in listed] == [["alice", "bob", "carol"]] * 2
    assert [stores.facts.has_facts_of(user) for user in ("bob", "dave")] == [True, False]


def test_name_that_is_no_utf8_is_listed_with_its_bytes(
    stores: StoreInspections, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "facts.db")) as connection, connection:
        connection.execute("UPDATE facts SET user = CAST(x'FF62' AS TEXT) WHERE user = 'bob'")

    assert stores.facts.users(9) == ["alice", "carol", "\\xffb"]


def test_database_of_another_program_has_no_log_no_ledger_and_no_status(tmp_path: Path) -> None:
    stores = inspect(tmp_path)
    for store in stores:
        with closing(sqlite3.connect(store.where)) as connection:
            connection.execute("CREATE TABLE numbers (n)")

    assert (stores.episodes.has_log(), stores.facts.has_ledger()) == (False, False)
    assert (stores.episodes.status([]), stores.facts.status()) == (None, None)
    assert stores.episodes.last_log_row() is None
    assert [store.users(1) for store in stores] == [[], []]
    assert [files_of(store).writes_ahead() for store in stores] == [False, False]


async def test_episodes_of_the_future_are_found_latest_first(stores: StoreInspections) -> None:
    found = stores.episodes.future_episodes(START + timedelta(seconds=5), None)

    assert [version.id for version in found or ()] == ["e2", "e1"]
    assert stores.episodes.future_episodes(START, 0) is None


async def test_damage_is_named_and_a_search_without_time_has_no_result(
    stores: StoreInspections,
) -> None:
    whole = [files_of(store).damage(None) for store in stores]
    file = Path(stores.facts.where)
    content = bytearray(file.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    file.write_bytes(content)

    assert whole == ["", ""]
    assert files_of(stores.facts).damage(None)
    assert files_of(stores.facts).damage(0) is None


async def test_sizes_count_the_write_ahead_log_apart(tmp_path: Path) -> None:
    store = inspect(tmp_path).episodes
    async with open_stores(tmp_path) as home:
        await home.put(*EPISODES)

        content, log = store.sizes()

        assert files_of(store).paths() == [tmp_path / name for name in FILES]
        assert {*files_of(store).paths()} == {*tmp_path.glob("memory.db*")}
        assert (content, log) == tuple(file.stat().st_size for file in files_of(store).paths()[:2])
        assert store.sizes().total == content + log > content > 0
        assert files_of(store).location().log == str(tmp_path / "memory.db-wal")
    assert store.sizes().log == 0


@pytest.mark.path
@pytest.mark.parametrize(
    ("request_", "came_back"),
    [
        pytest.param({"user": "bob"}, {"bob": 1}, id="scope"),
        pytest.param({"episode": "e2"}, {"carol": 1}, id="episode"),
    ],
)
async def test_erased_scopes_and_content_that_came_back_are_counted(
    tmp_path: Path, request_: dict[str, str], came_back: dict[str, int]
) -> None:
    async with state_directory(tmp_path, [rule("all")]) as home:
        await home.stores.memory.put_many(EPISODES)
        await home.fire(rule("all"))
    before = {name: (tmp_path / name).read_bytes() for name in ("memory.db", "facts.db")}
    async with state_directory(tmp_path, [rule("all")]) as home:
        await home.operations.handlers["forget"](request_, Caller.here())
    stores = inspect(tmp_path)
    pasts = [past for store in stores if (past := store.erased_scopes())]
    clean = [store.count_erased_content(pasts, None) for store in stores]

    (tmp_path / "memory.db").write_bytes(before["memory.db"])

    assert len(pasts) == 2
    assert [dict(counts or {}) for counts in clean] == [{}, {}]
    assert dict(stores.episodes.count_erased_content(pasts, None) or {}) == came_back
    assert stores.facts.count_erasures(0) == 1
    assert stores.facts.count_erasures(10**6) == 0
    (tmp_path / "facts.db").write_bytes(before["facts.db"])
    assert dict(inspect(tmp_path).facts.count_erased_content(pasts, None) or {}) == came_back


async def test_inspections_create_no_file_not_even_for_a_moment(stores: StoreInspections) -> None:
    folder = Path(stores.facts.where).parent
    before = folder.stat().st_mtime_ns

    stores.facts.check_version()
    assert stores.facts.status()
    assert stores.episodes.status([])
    assert stores.facts.unreached_retractions(None) == []
    assert stores.facts.disagreeing_facts(None) == []
    assert not any(files_of(store).has_foreign_log() for store in stores)

    assert folder.stat().st_mtime_ns == before

"""The episode log on SQLite, with other programs that do not know of it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.model.episode import Episode
from slumberd.model.errors import SchemaError, StoreBusyError, StoreError
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Position, ReadWindow
from slumberd.model.scope import Scope
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite import episode_installation
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.builders import at, episode, rule
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

STARGRAPH_TABLE = """
CREATE TABLE episodes (
  id TEXT PRIMARY KEY, scope_key TEXT NOT NULL, content BLOB NOT NULL,
  timestamp TEXT NOT NULL, metadata BLOB NOT NULL
)
"""
REPLACE = "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(path) as store:
        await store.bootstrap()
        yield store


@pytest.fixture
def host(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the same file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def row(item: Episode, **overrides: Any) -> tuple[Any, ...]:
    encoded = encode(item, Scope(item.user, item.session, item.agent), operation="put")
    return tuple(encoded._replace(**overrides))


async def window(
    memory: SQLiteMemoryStore, after: Position = BEGINNING, limit: int = 100
) -> ReadWindow:
    return await memory.select(rule(), after=after, limit=limit)


async def read(memory: SQLiteMemoryStore, after: Position = BEGINNING) -> list[tuple[int, str]]:
    return [(version.seq, version.id) for version in (await window(memory, after)).versions]


async def put(memory: SQLiteMemoryStore, *episodes: Episode) -> None:
    for given_episode in episodes:
        await memory.put(
            given_episode,
            user=given_episode.user,
            session=given_episode.session,
            agent=given_episode.agent,
        )


async def test_bootstrap_adds_only_what_is_documented(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await memory.bootstrap()

    names = host.execute("SELECT type, name FROM sqlite_master ORDER BY type, name").fetchall()
    assert names == [
        ("index", "idx_episodes_scope_ts"),
        ("index", "slumberd_episode_log_rid"),
        ("index", "slumberd_episodes_by_session"),
        ("index", "slumberd_episodes_by_user"),
        ("index", "slumberd_episodes_other"),
        ("index", "slumberd_episodes_utc"),
        ("index", "slumberd_extractions_eid"),
        ("index", "slumberd_model_requests_id"),
        ("index", "slumberd_model_summaries_eid"),
        ("index", "sqlite_autoindex_episodes_1"),
        ("index", "sqlite_autoindex_slumberd_schema_1"),
        ("table", "episodes"),
        ("table", "slumberd_accesses"),
        ("table", "slumberd_episode_deletions"),
        ("table", "slumberd_episode_log"),
        ("table", "slumberd_extractions"),
        ("table", "slumberd_model_requests"),
        ("table", "slumberd_model_summaries"),
        ("table", "slumberd_model_usage"),
        ("table", "slumberd_schema"),
        ("table", "sqlite_sequence"),
        ("trigger", "slumberd_episode_deleted"),
        ("trigger", "slumberd_episode_inserted"),
        ("trigger", "slumberd_episode_updated"),
    ]
    columns = host.execute("SELECT name, type, \"notnull\", pk FROM pragma_table_info('episodes')")
    assert columns.fetchall() == [
        ("id", "TEXT", 0, 1),
        ("scope_key", "TEXT", 1, 0),
        ("content", "BLOB", 1, 0),
        ("timestamp", "TEXT", 1, 0),
        ("metadata", "BLOB", 1, 0),
    ]


async def test_index_of_an_older_slumberd_is_replaced(path: Path, host: sqlite3.Connection) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await put(memory, episode("e1"))
    host.execute("CREATE INDEX slumberd_episodes_user ON episodes(scope_key, timestamp DESC)")
    host.execute("DROP INDEX slumberd_episodes_utc")

    async with SQLiteMemoryStore(path) as memory:
        found = await memory.recent("alice", limit=1)
        logged = await read(memory)

    names = {name for (name,) in host.execute("SELECT name FROM sqlite_master")}
    assert "slumberd_episodes_utc" in names
    assert "slumberd_episodes_user" not in names
    assert [item.id for item in found] == ["e1"]
    assert logged == [(1, "e1")]


async def test_existing_episodes_are_logged_in_order_of_their_instants(
    path: Path, host: sqlite3.Connection
) -> None:
    host.execute(STARGRAPH_TABLE)
    host.execute(REPLACE, row(episode("b", timestamp=at(2))))
    host.execute(REPLACE, row(episode("east"), timestamp="2026-01-01T14:00:00+09:00"))
    host.execute(REPLACE, row(episode("a", timestamp=at(1))))

    async with SQLiteMemoryStore(path) as memory:
        assert await read(memory) == [(1, "east"), (2, "a"), (3, "b")]


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        pytest.param(REPLACE, row(episode("e1", content="x")), id="insert or replace"),
        pytest.param(
            "INSERT INTO episodes VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET content = excluded.content",
            row(episode("e1", content="x")),
            id="upsert",
        ),
        pytest.param(
            "UPDATE episodes SET metadata = ? WHERE id = 'e1'", (b'{"a":1}',), id="update"
        ),
        pytest.param(
            "UPDATE episodes SET timestamp = ? WHERE id = 'e1'",
            ("2026-01-02T00:00:00+00:00",),
            id="update of the timestamp",
        ),
    ],
)
async def test_a_change_by_another_program_is_a_new_version(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, statement: str, values: tuple[Any, ...]
) -> None:
    await put(memory, episode("e1"), episode("e2"))

    host.execute(statement, values)

    assert await read(memory) == [(2, "e2"), (3, "e1")]
    assert await read(memory, Position(2, "e2")) == [(3, "e1")]


async def test_update_without_a_change_is_not_a_new_version(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode())

    host.execute("UPDATE episodes SET content = content, timestamp = timestamp")

    assert await memory.newest() == Position(1, "e1")


async def test_column_of_a_host_is_ignored(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode())

    host.execute("ALTER TABLE episodes ADD COLUMN note TEXT")
    host.execute("UPDATE episodes SET note = 'x'")

    assert await memory.newest() == Position(1, "e1")


async def test_deleted_row_leaves_the_window_and_its_position_stays(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("e1"), episode("e2"))

    host.execute("DELETE FROM episodes")
    found = await window(memory)

    assert (found.versions, found.upto) == ([], Position(2, "e2"))


async def test_reused_rowid_does_not_identify_the_old_episode(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("e1"), episode("gone"))

    host.execute("DELETE FROM episodes WHERE id = 'gone'")
    host.execute(REPLACE, row(episode("new")))

    assert await read(memory) == [(1, "e1"), (3, "new")]


@pytest.mark.parametrize("keep_old", [False, True], ids=["old dropped", "old kept"])
async def test_rebuilt_table_and_its_later_rows_are_logged_again(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, *, keep_old: bool
) -> None:
    await put(memory, episode("e1"), episode("e2"))

    host.execute("ALTER TABLE episodes RENAME TO old")
    host.execute(STARGRAPH_TABLE)
    host.execute("INSERT INTO episodes SELECT * FROM old")
    host.execute("UPDATE episodes SET metadata = x'7b7d' WHERE id = 'e2'")
    if not keep_old:
        host.execute("DROP TABLE old")
    host.execute(REPLACE, row(episode("e3", timestamp=at(1))))

    assert await memory.newest() == Position(5, "e3")
    assert await read(memory, Position(2, "e2")) == [(3, "e1"), (4, "e2"), (5, "e3")]
    host.execute(REPLACE, row(episode("e4")))
    assert await memory.newest() == Position(6, "e4")


async def test_put_repairs_a_rebuilt_table_before_it_writes(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("e1"))

    host.execute("DROP TABLE episodes")
    host.execute(STARGRAPH_TABLE)
    await put(memory, episode("e2"))

    assert await memory.newest() == Position(2, "e2")


async def test_a_dump_that_renumbers_rows_loses_no_pending_episode(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, tmp_path: Path
) -> None:
    await put(memory, *(episode(f"e{n}") for n in range(5)))
    host.execute("DELETE FROM episodes WHERE id = 'e0'")

    restored = tmp_path / "restored.db"
    with closing(sqlite3.connect(restored)) as target:
        target.executescript("\n".join(host.iterdump()))

    async with SQLiteMemoryStore(restored) as again:
        assert [id for _, id in await read(again)] == ["e1", "e2", "e3", "e4"]


async def test_a_vacuum_changes_nothing(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("e1"), episode("e2"))
    host.execute("DELETE FROM episodes WHERE id = 'e1'")

    host.execute("VACUUM")

    assert await read(memory) == [(2, "e2")]


async def test_old_log_number_is_never_reused(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("e1"))

    host.execute("DELETE FROM slumberd_episode_log")
    await put(memory, episode("e2"))

    assert await memory.newest() == Position(2, "e2")


@pytest.mark.parametrize("call", ["newest", "changed", "health", "recent", "put", "put_many"])
async def test_every_method_works_on_an_empty_file(path: Path, call: str) -> None:
    memory = SQLiteMemoryStore(path / "deep" / "memory.db")
    calls: dict[str, Any] = {
        "newest": memory.newest,
        "changed": memory.changed,
        "health": memory.health,
        "recent": lambda: memory.recent("alice", limit=1),
        "put": lambda: put(memory, episode()),
        "put_many": lambda: memory.put_many([episode()]),
    }

    await calls[call]()

    assert (await memory.health()).ok == (call != "health")
    await memory.close()


def test_health_reports_a_missing_file_and_creates_nothing(tmp_path: Path) -> None:
    health = asyncio.run(SQLiteMemoryStore(tmp_path / "none" / "memory.db").health())

    assert not health.ok
    assert "does not exist" in health.warnings[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""], ids=["garbage", "empty"])
def test_health_reports_a_file_of_another_program(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    health = asyncio.run(SQLiteMemoryStore(path).health())

    assert not health.ok
    assert health.warnings
    assert path.read_bytes() == content


async def test_health_reports_the_lock_and_a_missing_log(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute("DROP TRIGGER slumberd_episode_inserted")
    host.execute("BEGIN IMMEDIATE")

    health = await memory.health()

    assert (health.ok, health.lock_state) == (True, "held")
    assert "the episode log is not installed" in health.warnings[0]


async def test_error_names_a_table_of_another_form_and_does_not_change_it(
    path: Path, host: sqlite3.Connection
) -> None:
    host.execute("CREATE TABLE episodes (id TEXT PRIMARY KEY, body TEXT)")
    memory = SQLiteMemoryStore(path)

    with pytest.raises(SchemaError, match="not the table we know"):
        await memory.bootstrap()
    with pytest.raises(SchemaError, match="not the table we know"):
        await put(memory, episode())

    await memory.close()
    assert host.execute("SELECT count(*) FROM sqlite_master").fetchone() == (2,)


FOREIGN = [
    pytest.param({"content": b"{"}, "content_unreadable", id="content"),
    pytest.param({"metadata": b"[]"}, "metadata_unreadable", id="metadata"),
    pytest.param({"timestamp": "soon"}, "timestamp_unreadable", id="timestamp"),
    pytest.param({"scope_key": "/user/alice/"}, "scope_unreadable", id="scope"),
    pytest.param(
        {"scope_key": "/user/alice/session/s1/agent/other/"}, "scope_mismatch", id="mismatch"
    ),
    pytest.param({"id": None}, "id_unusable", id="null id"),
    pytest.param({"id": b"\x00\xff"}, "id_unusable", id="id of bytes"),
]


@pytest.mark.parametrize("when_filter", ["", "0", "user = 'alice'"])
@pytest.mark.parametrize(("overrides", "reason"), FOREIGN)
async def test_a_row_that_cannot_be_read_is_matched_with_its_fault_among_readable_ones(
    memory: SQLiteMemoryStore,
    host: sqlite3.Connection,
    overrides: dict[str, Any],
    reason: str,
    when_filter: str,
) -> None:
    await put(memory, episode("before"))
    host.execute(REPLACE, row(episode("bad", timestamp=at(1)), **overrides))
    await put(memory, episode("after"))

    found = await memory.select(rule(when_filter=when_filter), after=BEGINNING, limit=9)

    assert [version.fault.partition(":")[0] for version in found.versions] == ["", reason, ""]
    assert found.versions[1].matched
    assert [found_episode.id for found_episode in await memory.recent("alice", limit=9)] == [
        "before",
        "after",
    ]
    assert len(await memory.consolidate(rule())) == 2


async def test_two_rows_without_id_are_two_episodes(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    for _ in range(2):
        host.execute(REPLACE, row(episode("x"), id=None))

    found = await window(memory)

    assert [(version.id, version.contested) for version in found.versions] == [
        ("", True),
        ("", True),
    ]
    assert found.upto == Position(2, "")
    assert await memory.episode_at(2) == ""


async def test_text_of_invalid_utf_8_stops_no_read(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode("good"))
    host.execute(REPLACE, row(episode("x")))
    host.execute("UPDATE episodes SET id = CAST(x'63e9' AS TEXT) WHERE id = 'x'")
    host.execute(REPLACE, row(episode("y")))
    host.execute("UPDATE episodes SET scope_key = CAST(x'2fe9' AS TEXT) WHERE id = 'y'")

    found = await window(memory)

    assert [(version.id, version.fault.partition(":")[0]) for version in found.versions] == [
        ("good", ""),
        ("c\\xe9", "id_unusable"),
        ("y", "scope_unreadable"),
    ]
    assert [found_episode.id for found_episode in await memory.recent("alice", limit=9)] == ["good"]
    assert await memory.newest() == Position(5, "y")


async def test_a_row_under_an_unescaped_key_can_be_put_again(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    key = "/user/50%/session/s1/agent/rag/"
    host.execute(REPLACE, row(episode(user="50%"), scope_key=key))

    await put(memory, episode(user="50%", content="corrected"))

    assert await read(memory) == [(2, "e1")]
    assert host.execute("SELECT scope_key FROM episodes").fetchall() == [(key,)]


async def test_a_row_of_another_spelling_is_the_same_episode_when_put_again(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(REPLACE, row(episode(), timestamp="2026-01-01T14:00:00+02:00"))

    await put(memory, episode())

    assert await memory.newest() == Position(1, "e1")


async def test_a_constraint_of_a_host_fails_only_the_put_that_breaks_it(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(
        "CREATE TRIGGER no_spam BEFORE INSERT ON episodes WHEN NEW.id = 'spam'"
        " BEGIN SELECT RAISE(ABORT, 'no spam'); END"
    )

    outcomes = await asyncio.gather(
        *(put(memory, episode(id)) for id in ("a", "spam", "b")), return_exceptions=True
    )

    assert [outcome is None for outcome in outcomes] == [True, False, True]
    assert "no spam" in str(outcomes[1])
    assert [found_episode.id for found_episode in await memory.recent("alice", limit=9)] == [
        "b",
        "a",
    ]


async def test_a_trigger_of_a_host_keeps_its_own_conflict_clause_when_puts_share_a_statement(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute("CREATE TABLE sessions (name PRIMARY KEY)")
    host.execute(
        "CREATE TRIGGER note_session AFTER INSERT ON episodes"
        " BEGIN INSERT OR IGNORE INTO sessions VALUES ('s'); END"
    )

    await memory.put_many([episode(id) for id in ("a", "b", "c", "d", "e")])

    assert host.execute("SELECT count(*) FROM episodes").fetchone() == (5,)
    assert host.execute("SELECT name FROM sessions").fetchall() == [("s",)]


async def test_trigger_of_another_program_is_not_run_for_existing_rows(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await put(memory, episode())
    host.execute(
        "CREATE TRIGGER full BEFORE INSERT ON episodes BEGIN SELECT RAISE(ABORT, 'full'); END"
    )

    await put(memory, episode(), episode(content="corrected"))

    assert await memory.recent("alice", limit=9) == [episode(content="corrected")]


async def test_puts_that_wait_for_a_lock_too_long_all_fail_and_none_is_written_later(
    path: Path, host: sqlite3.Connection
) -> None:
    memory = SQLiteMemoryStore(path)
    memory.engine.database = Database(path, Pragmas(busy_seconds=0.05))
    await memory.bootstrap()
    host.execute("BEGIN IMMEDIATE")

    outcomes = await asyncio.gather(
        *(put(memory, episode(f"e{n}")) for n in range(3)), return_exceptions=True
    )
    host.execute("ROLLBACK")
    await put(memory, episode("later"))

    assert [type(outcome) for outcome in outcomes] == [StoreBusyError] * 3
    assert [found_episode.id for found_episode in await memory.recent("alice", limit=9)] == [
        "later"
    ]
    await memory.close()


def test_a_store_whose_first_puts_cannot_open_it_serves_the_next(path: Path) -> None:
    store = SQLiteMemoryStore(path)

    async def three() -> list[BaseException | None]:
        puts = (put(store, episode(f"e{n}")) for n in range(3))
        return await asyncio.gather(*puts, return_exceptions=True)

    path.mkdir()
    outcomes = asyncio.run(three())
    path.rmdir()

    asyncio.run(asyncio.wait_for(put(store, episode("later")), timeout=PATIENCE_SECONDS))

    assert [isinstance(outcome, StoreError) for outcome in outcomes] == [True] * 3
    assert [item.id for item in asyncio.run(store.recent("alice", limit=9))] == ["later"]
    asyncio.run(store.close())


def test_a_put_whose_loop_ended_leaves_the_store_usable(path: Path) -> None:
    memory = SQLiteMemoryStore(path)
    asyncio.run(memory.bootstrap())
    with closing(sqlite3.connect(path, isolation_level=None)) as host:
        host.execute("BEGIN IMMEDIATE")

        async def give_up() -> None:
            async with asyncio.timeout(0.05):
                await put(memory, episode("lost"))

        with pytest.raises(TimeoutError):
            asyncio.run(give_up())
        host.execute("ROLLBACK")

    asyncio.run(asyncio.wait_for(put(memory, episode("later")), timeout=PATIENCE_SECONDS))
    assert "later" in {item.id for item in asyncio.run(memory.recent("alice", limit=9))}
    asyncio.run(memory.close())


@pytest.mark.slow
async def test_commit_of_another_process_is_noticed(memory: SQLiteMemoryStore, path: Path) -> None:
    await memory.changed()
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    )
    insert = "INSERT INTO episodes SELECT 'e1', '/user/u/session/s/agent/a/', '{}', '2026', '{}'"
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(path), insert], check=True
    )

    assert await memory.changed()
    assert not await memory.changed()
    assert await memory.newest() == Position(1, "e1")


def test_sqlite_stores_the_triggers_as_slumberd_compares_them(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        assert not episode_installation.installed(connection)
        episode_installation.install(connection)
        assert episode_installation.installed(connection)


def test_metadata_is_plain_json_text_that_other_programs_can_read(path: Path) -> None:
    memory = SQLiteMemoryStore(path)
    asyncio.run(put(memory, episode(metadata={"a": [1]})))
    asyncio.run(memory.close())

    with closing(sqlite3.connect(path)) as host:
        content, metadata = host.execute("SELECT content, metadata FROM episodes").fetchone()
        extracted = host.execute("SELECT json_extract(metadata, '$.a[0]') FROM episodes").fetchone()

    assert orjson.loads(content)["user"] == "alice"
    assert metadata == b'{"a":[1]}'
    assert extracted == (1,)

"""A state directory with a row of every kind in every table, and copies of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from slumberd.daemon.rules import PausedFile
from slumberd.model.episode import Episode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.scripted_histories import FIRST, LATER, says
from tests.support.stargraph_rows import INSERT, row_of

SETTINGS = {"facts": {"batch": 9}}
MANUAL = ("--user", "alice", "--agent", "rag", "--reason", "because\u2603")
TRIPLE = ("--id", "p1", "--subject", "alice", "--predicate", "owns", "--object", "a fan")
PAUSED = {"likes": "uid 0"}
DELETING = [
    triple(f"d{number}", "alice", predicate, None, timestamp=at(40), metadata=says("delete"))
    for number, predicate in enumerate(("owns", "lives_in", "reads"))
]
"""They would delete several facts at once, so their batch is held."""

LAST = [triple("g1", "carol", "lives_in", "Tavira", timestamp=at(41), user="carol")]
"""What no rule has read yet."""

OTHER_TABLES = (
    "INSERT INTO slumberd_extractions VALUES ('k1', 'e1', 'm', 'ok', '[]', 1, '', 'answer', 2, 3)",
    "INSERT INTO slumberd_model_summaries VALUES ('s1', 'e2', 'm', 'ok', 'tea', '', 1, 5)",
    "INSERT INTO slumberd_model_requests"
    " VALUES ('e1', 'r1', '/user/alice/session/s1/agent/rag/', 'k1', '{}')",
    "INSERT INTO slumberd_model_usage VALUES ('2026-03-09', 1, 2, 3, 4)",
)

OTHER_TABLES_OF_FACTS = (
    "INSERT INTO slumberd_generations VALUES (1, 7)",
    "INSERT INTO slumberd_unfinished_erasures VALUES ('[\"dan\",null,null]', x'5B5D', 8, 'uid 0')",
)


def full_home(folder: Path) -> Home:
    """Return a home whose state directory has rows in every table."""
    home = Home(folder, SETTINGS)
    home.rule("all", cadence={"every": 1})
    home.rule("likes", cadence={"every": 1}, when_filter="predicate = 'likes'")
    channels = {"channels": {"facts": {"multi_valued": ["reads"]}}, "rules": []}
    (home.rules / "channels.yaml").write_bytes(orjson.dumps(channels))
    home.state.mkdir()
    for episodes in (FIRST, LATER):
        put(home, episodes)
        home.call("fire", "--all")
    put(home, DELETING)
    home.configure({**SETTINGS, "limits": {"max_deletes": 1}})
    home.call("fire", "all", check=False)
    home.configure(SETTINGS)
    put(home, LAST)
    home.call("undo", "all@2")
    home.call("pin", *MANUAL, *TRIPLE)
    home.call("unpin", "f2", "--reason", "never said")
    home.call("forget", "--user", "bob", "--yes")
    PausedFile(home.state).write(PAUSED)
    change(home.state / "memory.db", *OTHER_TABLES)
    change(home.state / "facts.db", *OTHER_TABLES_OF_FACTS)
    asyncio.run(_read(home.state / "memory.db"))
    return home


def keyed_home(folder: Path) -> Home:
    """Return a home whose ledger has a key."""
    home = Home(folder, SETTINGS)
    key = folder / "ledger.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    home.rule("all", cadence={"every": 1})
    home.configure({"facts": {"key_file": str(key)}})
    home.state.mkdir()
    put(home, FIRST)
    home.call("fire", "--all")
    return home


def put(home: Home, episodes: Sequence[Episode]) -> None:
    """Put episodes into the files of a home."""
    asyncio.run(_put(home.state / "memory.db", episodes))


async def _put(path: Path, episodes: Sequence[Episode]) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await memory.put_many(episodes)


async def _read(path: Path) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await memory.recent("alice", limit=5)


def change(path: Path, *statements: str, values: Sequence[Any] = ()) -> None:
    """Change a file as another program does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement, values)


def write_row(path: Path, episode: Episode, **changes: Any) -> None:
    """Write an episode as Stargraph's own store does."""
    names = ("id", "scope_key", "content", "timestamp", "metadata")
    row = dict(zip(names, row_of(episode), strict=True)) | changes
    change(path, INSERT, values=[row[name] for name in names])


def rows_of_files(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables of both files, by table, in the order of their columns."""
    found = {}
    for name in ("memory.db", "facts.db"):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.text_factory = bytes
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            for (table,) in tables:
                columns = "rowid, *" if table == b"episodes" else "*"
                rows = connection.execute(f"SELECT {columns} FROM {table.decode()}").fetchall()
                found[f"{name}: {table.decode()}"] = sorted(rows, key=repr)
    return found


def schema_of(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return tables, indexes and triggers of both files."""
    found = {}
    for name in ("memory.db", "facts.db"):
        with closing(sqlite3.connect(folder / name)) as connection:
            found[name] = connection.execute(
                "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
                " WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
            ).fetchall()
    return found

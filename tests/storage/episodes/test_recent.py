"""Reads of the latest episodes, with rows of any offset, compared with a full sort."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.episode import Episode
from slumberd.model.scope import Scope, ScopeMismatch
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode

pytestmark = pytest.mark.integration

REPLACE = "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?)"


NO_SCOPE = "/user/anon/session/default/agent/default/"
"""The key that Stargraph writes when it is given no scope."""


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.bootstrap()
        yield store


@pytest.fixture
def host(memory: SQLiteMemoryStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the same file."""
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as connection:
        yield connection


def row(item: Episode, **overrides: Any) -> tuple[Any, ...]:
    encoded = encode(item, Scope(item.user, item.session, item.agent), operation="put")
    return tuple(encoded._replace(**overrides))


async def test_rows_under_an_unescaped_key_are_found(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    theirs = episode("theirs", user="50%", timestamp=at(1))
    host.execute(REPLACE, row(theirs, scope_key="/user/50%/session/s1/agent/rag/"))
    await memory.put_many([episode("ours", user="50%")])

    for scope in (("50%",), ("50%", "s1"), ("50%", None, "rag"), ("50%", "s1", "rag")):
        found = await memory.recent(*scope, limit=9)
        assert [item.id for item in found] == ["theirs", "ours"]
    assert await memory.recent("50%25", limit=9) == []


async def test_undecodable_rows_do_not_use_up_the_limit(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await memory.put_many([episode("good")])
    for n in range(5):
        host.execute(REPLACE, row(episode(f"bad{n}", timestamp=at(n + 1)), content=b"{"))

    assert [item.id for item in await memory.recent("alice", limit=2)] == ["good"]


@pytest.mark.parametrize(("trust", "seen"), [("quarantine", []), ("trust_scope", ["e1"])])
async def test_row_of_a_contested_owner_is_read_only_with_trust_scope(
    memory: SQLiteMemoryStore,
    host: sqlite3.Connection,
    tmp_path: Path,
    trust: ScopeMismatch,
    seen: list[str],
) -> None:
    host.execute(REPLACE, row(episode(user="bob"), scope_key="/user/alice/session/s1/agent/rag/"))

    async with SQLiteMemoryStore(tmp_path / "memory.db", scope_mismatch=trust) as store:
        assert [item.id for item in await store.recent("alice", limit=2)] == seen
        assert await store.recent("bob", limit=2) == []


@pytest.mark.parametrize(
    "scope",
    [("alice",), ("alice", "s1"), ("alice", None, "rag"), ("alice", "s1", "rag")],
    ids=["a user", "a session", "an agent", "a whole scope"],
)
async def test_key_of_invalid_unicode_hides_no_other_row(
    memory: SQLiteMemoryStore,
    host: sqlite3.Connection,
    scope: tuple[str, str | None, str | None],
) -> None:
    await memory.put_many([episode("e1"), episode("e2", timestamp=at(2))])
    for n, agent in enumerate(("aa", "rag", "zz")):
        for stamp in ("2026-01-01T12:00:09+00:00", "2026-01-01T21:00:09+09:00"):
            host.execute(REPLACE, row(episode(f"bad{n}{stamp}", agent=agent), timestamp=stamp))
    host.execute(
        "UPDATE episodes SET scope_key = CAST(CAST(substr(scope_key, 1, length(scope_key) - 1)"
        " AS BLOB) || x'ff2f' AS TEXT) WHERE id LIKE 'bad%'"
    )

    assert [item.id for item in await memory.recent(*scope, limit=9)] == [
        "e2",
        "e1",
    ]


async def test_agents_of_a_user_are_merged_in_order(memory: SQLiteMemoryStore) -> None:
    episodes = [episode(f"e{n}", agent=f"agent{n % 3}", timestamp=at(n)) for n in range(12)]
    await memory.put_many(episodes)

    found = await memory.recent("alice", limit=5)

    assert [item.id for item in found] == ["e11", "e10", "e9", "e8", "e7"]


@pytest.mark.parametrize("scope", [("alice",), ("alice", "s1")], ids=["a user", "a session"])
async def test_rows_without_a_scope_key_come_in_order_of_their_instants(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, scope: tuple[str, ...]
) -> None:
    stamps = {
        "early": "2026-01-01T13:00:00+14:00",
        "middle": "2026-01-01T12:00:00+00:00",
        "late": "2026-01-01T01:00:00-12:00",
    }
    for id, stamp in stamps.items():
        host.execute(REPLACE, row(episode(id), scope_key=NO_SCOPE, timestamp=stamp))

    for limit in (1, 2, 3):
        found = await memory.recent(*scope, limit=limit)
        assert [item.id for item in found] == ["late", "middle", "early"][:limit]


USERS = st.sampled_from(["a", "A", "a_", "%", "a%", "a/", "b"])
PARTS = st.sampled_from(["s", "S", "%", "_", "s/agent/r"])
OFFSETS = st.sampled_from(["+00:00", "Z", "+14:00", "-12:00", "+05:30", "blank", "millis"])


def text(seconds: int, offset: str) -> str:
    moment = START + timedelta(seconds=seconds)
    if offset == "Z":
        return moment.isoformat().replace("+00:00", "Z")
    if offset == "blank":
        return moment.isoformat(sep=" ")
    if offset == "millis":
        return moment.isoformat(timespec="milliseconds")
    zone = datetime.fromisoformat(f"2026-01-01T00:00:00{offset}").tzinfo
    return moment.astimezone(zone).isoformat()


SPOKEN = st.tuples(
    USERS, PARTS, PARTS, st.integers(-3, 3) | st.integers(-200_000, 200_000), OFFSETS
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    spoken=st.lists(SPOKEN, max_size=25),
    user=USERS,
    session=st.none() | PARTS,
    agent=st.none() | PARTS,
    limit=st.integers(1, 6),
    keyless=st.booleans(),
)
def test_recent_equals_a_sort_of_all_episodes(
    tmp_path_factory: pytest.TempPathFactory,
    spoken: list[tuple[str, str, str, int, str]],
    user: str,
    session: str | None,
    agent: str | None,
    limit: int,
    *,
    keyless: bool,
) -> None:
    key = {"scope_key": NO_SCOPE} if keyless else {}
    pairs = [
        (episode(f"e{n}", user=u, session=s, agent=a, timestamp=at(seconds)), text(seconds, offset))
        for n, (u, s, a, seconds, offset) in enumerate(spoken)
    ]
    path = tmp_path_factory.mktemp("recent") / "memory.db"
    memory = SQLiteMemoryStore(path)

    async def found() -> list[str]:
        await memory.bootstrap()
        with closing(sqlite3.connect(path)) as host, host:
            host.executemany(REPLACE, [row(item, timestamp=stamp, **key) for item, stamp in pairs])
        episodes = await memory.recent(user, session, agent, limit=limit)
        await memory.close()
        return [given_episode.id for given_episode in episodes]

    expected = [
        item
        for item, _ in pairs
        if item.user == user and session in (None, item.session) and agent in (None, item.agent)
    ]
    expected.sort(key=lambda item: (item.timestamp, item.id), reverse=True)
    assert asyncio.run(found()) == [item.id for item in expected[:limit]]

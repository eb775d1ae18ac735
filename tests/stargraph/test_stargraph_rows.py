"""Rows of Stargraph whose scope key does not name their owner; their content names it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.episode import Episode
from slumberd.model.errors import MemoryScopeError, NothingKeptError
from slumberd.model.fact import FactPattern
from slumberd.model.scope import PLACEHOLDER, PLACEHOLDER_KEY, ScopeMismatch
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.daemon.test_erasure import canary, files_with_canary, forget
from tests.support.builders import at, episode, rule, triple
from tests.support.open_stores import open_stores
from tests.support.stargraph_rows import INSERT, row_of

pytestmark = pytest.mark.integration

SCOPES = [("alice",), ("alice", "s1"), ("alice", None, "rag"), ("alice", "s1", "rag")]
SCOPE_NAMES = ["a user", "a session", "an agent", "a whole scope"]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.bootstrap()
        yield store


@pytest.fixture
def host(memory: SQLiteMemoryStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Stargraph's connection to the same file."""
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as connection:
        yield connection


def ids(episodes: list[Episode]) -> list[str]:
    return [episode.id for episode in episodes]


async def test_put_with_the_placeholder_scope_uses_the_scope_of_the_episode(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    await memory.put(episode("e1"), **PLACEHOLDER._asdict())

    [(key,)] = host.execute("SELECT scope_key FROM episodes").fetchall()
    assert key == "/user/alice/session/s1/agent/rag/"
    assert ids(await memory.recent("alice", limit=9)) == ["e1"]


async def test_put_with_the_placeholder_scope_needs_an_episode_that_names_its_owner(
    memory: SQLiteMemoryStore,
) -> None:
    with pytest.raises(MemoryScopeError, match="user is empty"):
        await memory.put(episode("e1", user=""), **PLACEHOLDER._asdict())


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES, ids=SCOPE_NAMES)
async def test_recent_returns_rows_under_the_placeholder_to_their_owner(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, scope: tuple[Any, ...]
) -> None:
    await memory.put_many([episode("keyed", timestamp=at(2))])
    host.execute(INSERT, row_of(episode("first", timestamp=at(1)), PLACEHOLDER_KEY))
    host.execute(INSERT, row_of(episode("last", timestamp=at(3)), PLACEHOLDER_KEY))
    host.execute(INSERT, row_of(episode("bobs", user="bob", timestamp=at(4)), PLACEHOLDER_KEY))

    assert ids(await memory.recent(*scope, limit=9)) == ["last", "keyed", "first"]
    assert ids(await memory.recent("bob", limit=9)) == ["bobs"]
    assert await memory.recent("anon", limit=9) == []
    assert await memory.recent(*PLACEHOLDER, limit=9) == []


async def test_recent_returns_an_episode_whose_owner_is_the_placeholder_once(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(INSERT, row_of(episode("theirs", **PLACEHOLDER._asdict())))
    ours = episode("ours", timestamp=at(1), **PLACEHOLDER._asdict())
    await memory.put(ours, **PLACEHOLDER._asdict())

    for scope in (("anon",), ("anon", "default"), PLACEHOLDER):
        assert ids(await memory.recent(*scope, limit=9)) == ["ours", "theirs"]


@pytest.mark.slow
@pytest.mark.parametrize("key", [PLACEHOLDER_KEY, None], ids=["placeholder", "slashes"])
@pytest.mark.parametrize(
    "dumps",
    [
        json.dumps,
        lambda content: json.dumps(content, separators=(",", ":")),
        lambda content: json.dumps(content, separators=(",", ":"), sort_keys=True),
        lambda content: json.dumps({"extra": {"a": 1, "user": "x", "session": "y"}} | content),
        lambda content: json.dumps(content | {"more": {"a": 1, "user": "x", "session": "y"}}),
    ],
    ids=["blanks", "compact, escaped", "sorted", "nested before", "nested after"],
)
async def test_recent_reads_rows_whatever_the_form_of_their_json(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, key: str | None, dumps: Any
) -> None:
    slashed = episode("e1", user="team/jürgen", session='s "1"')
    content = orjson.loads(row_of(slashed)[2])
    host.execute(INSERT, row_of(slashed, key, dumps(content).encode()))

    for scope in (("team/jürgen",), ("team/jürgen", 's "1"'), ("team/jürgen", 's "1"', "rag")):
        assert ids(await memory.recent(*scope, limit=9)) == ["e1"]
    assert await memory.recent("team", limit=9) == []
    assert await memory.recent("x", limit=9) == []


@pytest.mark.parametrize("mismatch", ["quarantine", "trust_scope", "trust_episode"])
async def test_placeholder_is_no_scope_with_any_scope_mismatch_setting(
    memory: SQLiteMemoryStore,
    host: sqlite3.Connection,
    tmp_path: Path,
    mismatch: ScopeMismatch,
) -> None:
    host.execute(INSERT, row_of(episode("e1"), PLACEHOLDER_KEY))

    async with SQLiteMemoryStore(tmp_path / "memory.db", scope_mismatch=mismatch) as store:
        assert ids(await store.recent("alice", limit=9)) == ["e1"]
        assert await store.recent("anon", limit=9) == []


UNESCAPED = [
    episode("user", user="team/alice"),
    episode("session", session="2026/01/01"),
    episode("agent", agent="a/session/b"),
    episode("percent", user="100%25"),
    episode("all", user="a/b", session="/", agent="c//d"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unescaped", [pytest.param(unescaped, id=unescaped.id) for unescaped in UNESCAPED]
)
async def test_row_with_an_unescaped_key_belongs_to_the_owner_in_its_content(
    memory: SQLiteMemoryStore, host: sqlite3.Connection, unescaped: Episode
) -> None:
    host.execute(INSERT, row_of(unescaped))

    scope = (unescaped.user, unescaped.session, unescaped.agent)
    for length in (1, 2, 3):
        assert await memory.recent(*scope[:length], limit=9) == [unescaped]
    assert await memory.recent(unescaped.user.replace("%25", "%") + "x", limit=9) == []


async def test_row_whose_slashed_key_contradicts_its_content_is_quarantined(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.memory.bootstrap()
        contradicting = row_of(
            triple("e1", "s", "is", 1, user="a/b"), "/user/a/c/session/s1/agent/rag/"
        )
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute(INSERT, contradicting)
        await home.fire(rule("all"))

        assert await home.memory.recent("a/b", limit=9) == []
        [quarantined] = await home.facts.reads.quarantine()
        assert quarantined["reason"].startswith("scope_unreadable")


FILTER = (
    "(user = 'alice' AND session = 's1' AND agent = 'rag')"
    " OR (user = 'team/alice') OR (user = '100%25')"
)


async def test_filter_reads_the_owner_that_the_content_names(tmp_path: Path) -> None:
    rows = [
        row_of(triple("e1", "s", "is", 1), PLACEHOLDER_KEY),
        row_of(triple("e2", "s", "is", 2, user="team/alice")),
        row_of(triple("e3", "s", "is", 3, user="100%25")),
        row_of(triple("e4", "s", "is", 3, user="100%"), "/user/100%25/session/s1/agent/rag/"),
    ]
    async with open_stores(tmp_path) as home:
        await home.memory.bootstrap()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.executemany(INSERT, rows)

        await home.fire(rule("all", when_filter=FILTER))

        facts = await home.facts.query(FactPattern())
        assert {(fact.id, fact.user) for fact in facts} == {
            ("e1", "alice"), ("e2", "team/alice"), ("e3", "100%25"),
        }  # fmt: skip
        assert await home.facts.reads.quarantine() == []


async def test_put_of_an_episode_that_stargraph_wrote_edits_it(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(INSERT, row_of(episode("e1"), PLACEHOLDER_KEY))
    host.execute(INSERT, row_of(episode("e2", user="a/b")))

    await memory.put_many([episode("e1"), episode("e2", user="a/b")])
    assert (await memory.newest()).seq == 2
    await memory.put_many([episode("e1", content="new"), episode("e2", user="a/b", content="new")])

    assert (await memory.newest()).seq == 4
    for user in ("alice", "a/b"):
        assert [episode.content for episode in await memory.recent(user, limit=9)] == ["new"]


async def test_put_does_not_replace_a_row_of_another_user_with_the_same_key(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(INSERT, row_of(episode("e1", user="100%25")))

    with pytest.raises(MemoryScopeError, match="belongs to another scope"):
        await memory.put_many([episode("e1", user="100%")])


async def test_put_does_not_replace_a_row_of_another_user_under_the_placeholder(
    memory: SQLiteMemoryStore, host: sqlite3.Connection
) -> None:
    host.execute(INSERT, row_of(episode("e1", user="bob"), PLACEHOLDER_KEY))

    for own in ("alice", "anon"):
        with pytest.raises(MemoryScopeError, match="belongs to another scope"):
            await memory.put_many([episode("e1", user=own, session="default", agent="default")])


@pytest.mark.slow
async def test_erasing_a_user_erases_rows_that_name_them_only_in_their_content(
    tmp_path: Path,
) -> None:
    of_bob = row_of(episode("bobs", user="bob"), PLACEHOLDER_KEY)
    slashed = canary("2", session="a/b")
    async with open_stores(tmp_path) as home:
        await home.memory.bootstrap()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.executemany(
                INSERT,
                [row_of(canary("1"), PLACEHOLDER_KEY), row_of(slashed), of_bob],
            )
        await home.fire()

        certificate = await forget(home)

        assert certificate["rows"]["episodes"]["episodes"] == 2
        assert files_with_canary(tmp_path) == []
        assert ids(await home.memory.recent("bob", limit=9)) == ["bobs"]
        with pytest.raises(NothingKeptError):
            await forget(home, user="anon")
        assert ids(await home.memory.recent("bob", limit=9)) == ["bobs"]


@pytest.mark.slow
async def test_row_of_an_erased_user_that_returns_under_the_placeholder_becomes_no_fact(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(canary("1"))
        await home.fire()
        await forget(home)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as host, host:
            host.execute(INSERT, row_of(canary("1"), PLACEHOLDER_KEY))

        await home.fire()

        assert await home.facts.query(FactPattern()) == []


USERS = st.sampled_from(["a", "a/b", "a%2Fb", "%", "anon", "a\\u", '"', ',"user":"a', "b"])
PARTS = st.sampled_from(["s", "default", "s/agent/r", '","session":"s', "\\"])
KEYS = st.sampled_from([PLACEHOLDER_KEY, None])
ROWS = st.tuples(USERS, PARTS, PARTS, KEYS, st.integers(-3, 3))


@pytest.mark.nightly
@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(ROWS, max_size=20),
    user=USERS,
    session=st.none() | PARTS,
    agent=st.none() | PARTS,
    limit=st.integers(1, 6),
)
def test_recent_returns_the_newest_rows_of_an_owner(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str, str | None, int]],
    user: str,
    session: str | None,
    agent: str | None,
    limit: int,
) -> None:
    keyed_episodes = [
        (episode(f"e{n}", user=u, session=s, agent=a, timestamp=at(seconds)), key)
        for n, (u, s, a, key, seconds) in enumerate(rows)
    ]
    path = tmp_path_factory.mktemp("recent") / "memory.db"

    async def found() -> list[str]:
        async with SQLiteMemoryStore(path) as memory:
            await memory.bootstrap()
            with closing(sqlite3.connect(path)) as host, host:
                host.executemany(INSERT, [row_of(episode, key) for episode, key in keyed_episodes])
            return ids(await memory.recent(user, session, agent, limit=limit))

    expected = [
        episode
        for episode, _ in keyed_episodes
        if episode.user == user
        and session in (None, episode.session)
        and agent in (None, episode.agent)
    ]
    expected.sort(key=lambda episode: (episode.timestamp, episode.id), reverse=True)
    assert asyncio.run(found()) == ids(expected[:limit])

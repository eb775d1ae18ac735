"""What each role may do in a database; the right of each login is that of its role."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from slumberd.model.errors import MemoryScopeError, PermissionDeniedError, StoreError
from slumberd.model.fact import FactPattern
from slumberd.model.scope import ScopeFilter
from slumberd.storage.episodes.writes import PutCounts
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import START, episode, rule, triple
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


@pytest.fixture
def database(postgres: PostgresServer, postgres_address: str) -> str:
    for role in ("host", "daemon", "reader"):
        postgres.login(f"a_{role}", f"slumberd_{role}")
    postgres.login("a_stranger")
    return postgres_address.rpartition("/")[2]


@pytest.fixture
def as_host(postgres: PostgresServer, database: str) -> str:
    return postgres.address_of(database, login="a_host")


@pytest.fixture
def as_daemon(postgres: PostgresServer, database: str) -> str:
    return postgres.address_of(database, login="a_daemon")


@pytest.fixture
def as_reader(postgres: PostgresServer, database: str) -> str:
    return postgres.address_of(database, login="a_reader")


async def consolidate(address: str) -> None:
    """Fire a rule that promotes every episode."""
    async with PostgresMemoryStore(address) as memory, PostgresFactStore(address) as facts:
        await facts.bootstrap()
        every = rule()
        window = await facts.next_window(every.id)
        await facts.apply_deltas(await memory.consolidate(every, window=window))


async def test_host_puts_and_learns_the_outcome(as_host: str) -> None:
    async with PostgresMemoryStore(as_host) as memory:
        counts = [
            await memory.put_many([episode("e1"), episode("e2")]),
            await memory.put_many([episode("e1"), episode("e2", content="other")]),
        ]
        await memory.put(episode("e3"), user="alice", session="s1", agent="rag")
        with pytest.raises(MemoryScopeError, match="belongs to another scope"):
            await memory.put(episode("e1", user="bob"), user="bob", session="s1", agent="rag")

    assert counts == [PutCounts(new=2), PutCounts(changed=1, unchanged=1)]


def test_host_puts_by_sql_into_the_shard_that_the_map_names(postgres: PostgresServer) -> None:
    find = (
        "SELECT name, shard, address FROM slumberd.find_users(ARRAY['alice', 'bob'])"
        " INNER JOIN slumberd.list_shards() ON number = shard"
    )
    put = (
        "SELECT slumberd_{}.put(ARRAY['e1'], ARRAY['/user/alice/session/s1/agent/rag/'],"
        " ARRAY['{{}}'::bytea], ARRAY['2026-01-01T00:00:00+00:00'], ARRAY['{{}}'::bytea])"
    )

    with postgres.database(shards=2) as name:
        postgres.login("a_host", "slumberd_host")
        address = postgres.address_of(name, login="a_host")
        with psycopg.connect(address, autocommit=True) as host:
            found = {user: shard for user, shard, _ in host.execute(find.encode())}
            with pytest.raises(psycopg.Error) as refused:
                host.execute(put.format(1 - found["alice"]).encode())
            outcome = host.execute(put.format(found["alice"]).encode()).fetchone()

    assert found.keys() == {"alice", "bob"}
    assert refused.value.sqlstate == "SL004"
    assert outcome == (["new"],)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM slumberd_0.episodes",
        "SELECT * FROM slumberd.shards",
        "SELECT * FROM slumberd.users",
        "SELECT * FROM slumberd_0.facts",
        "SELECT * FROM slumberd_0.inbox",
        "SELECT * FROM slumberd.erasure_key",
        "INSERT INTO slumberd_0.requests (operation, request, host) VALUES ('fire', '', '')",
        "UPDATE slumberd_0.slumberd_numbers SET value = 9",
        "SELECT slumberd_0.number_inbox(1)",
        "SELECT slumberd_0.put_one('e', '/user/a/session/b/agent/c/', '', '', '')",
        "CREATE TABLE slumberd.own (a int)",
        "CREATE TABLE slumberd_0.own (a int)",
        "SET ROLE slumberd_owner",
    ],
)
def test_host_may_do_nothing_else(as_host: str, statement: str) -> None:
    with psycopg.connect(as_host) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
        connection.rollback()


async def test_host_that_reads_is_told_that_it_may_not(as_host: str) -> None:
    async with PostgresMemoryStore(as_host) as memory:
        with pytest.raises(PermissionDeniedError, match="permission denied"):
            await memory.recent("alice", limit=1)


def test_host_puts_in_its_own_transaction(
    postgres: PostgresServer, as_host: str, database: str
) -> None:
    key, content = "/user/alice/session/s/agent/rag/", b'{"content":"x"}'
    put = "SELECT slumberd_0.put(%s, %s, %s, %s, %s)"
    values = (["e1"], [key], [content], ["2026-01-01T00:00:00+00:00"], [b"{}"])

    with psycopg.connect(as_host) as connection:
        connection.execute(put, values)
        connection.rollback()
    assert postgres.rows("SELECT count(*) FROM slumberd_0.episodes", database) == [(0,)]
    with psycopg.connect(as_host) as connection:
        connection.execute(put, values)

    assert postgres.rows("SELECT id FROM slumberd_0.episodes", database) == [("e1",)]
    assert postgres.rows("SELECT eid FROM slumberd_0.inbox", database) == [("e1",)]


async def test_daemon_consolidates_and_erases(as_host: str, as_daemon: str) -> None:
    async with PostgresMemoryStore(as_host) as host:
        await host.put_many([triple("e1", "alice", "likes", "tea")])
    await consolidate(as_daemon)

    async with PostgresFactStore(as_daemon) as facts:
        before = await facts.query(FactPattern())
        await facts.erasures.forget(
            ScopeFilter("alice", None, None), ["e1"], moment=2**51, at=START, by="p", dry_run=False
        )
        scrubbed = await facts.erasures.scrub()
        after = await facts.query(FactPattern())
        assert await facts.verify() == (3, (await facts.ledger.head()).head.hex(), None)

    assert ([fact.id for fact in before], after) == (["e1"], [])
    assert scrubbed.rewritten is not None
    assert "the backups of the PostgreSQL server" in scrubbed.out_of_reach[0]


async def test_host_cannot_bring_back_an_erased_scope(as_host: str, as_daemon: str) -> None:
    names = ("alice", 'a"b\\c', "Zoë", "日本", "a/b%c", "😀", "x" * 2_000)
    async with PostgresFactStore(as_daemon) as facts:
        await facts.bootstrap()
        for name in names:
            await facts.erasures.forget(
                ScopeFilter(name, None, None), moment=2**51, at=START, by="p", dry_run=False
            )

    later = datetime(2026, 1, 1, tzinfo=UTC).replace(year=2100)
    async with PostgresMemoryStore(as_host) as memory:
        for number, name in enumerate(names):
            with pytest.raises(StoreError, match="not newer than the erasure"):
                await memory.put(
                    episode(f"e{number}", user=name), user=name, session="s1", agent="rag"
                )
            await memory.put(
                episode(f"e{number}", user=name, timestamp=later),
                user=name, session="s1", agent="rag",
            )  # fmt: skip
        await memory.put(episode("mine", user="bob"), user="bob", session="s1", agent="rag")


def test_daemon_changes_the_form_of_no_table(as_daemon: str) -> None:
    with psycopg.connect(as_daemon) as connection:
        for statement in ("DROP TABLE slumberd_0.facts", "ALTER TABLE slumberd_0.facts ADD x int"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
            connection.rollback()


async def test_reader_sees_the_users_that_it_may_read(
    postgres: PostgresServer, as_host: str, as_daemon: str, as_reader: str, database: str
) -> None:
    async with PostgresMemoryStore(as_host) as host:
        await host.put_many(
            [
                triple("e1", "alice", "likes", "tea"),
                triple("e2", "bob", "likes", "milk", user="bob"),
                triple("e3", "x", "likes", "milk", user="a/b%"),
            ]
        )
    await consolidate(as_daemon)

    def ids(*settings: str) -> list[list[str]]:
        """Return the ids of facts and episodes that the reader sees."""
        with psycopg.connect(as_reader) as connection:
            for setting in settings:
                connection.execute(f"SET slumberd.tenant = '{setting}'".encode())
            return [
                [id for (id,) in connection.execute(sql).fetchall()]
                for sql in (
                    b"SELECT fact_id FROM slumberd_0.facts ORDER BY 1",
                    b"SELECT id FROM slumberd_0.episodes ORDER BY 1",
                )
            ]

    assert ids() == [[], []]
    assert ids("alice") == [["e1"], ["e1"]]
    assert ids("a/b%") == [["e3"], ["e3"]]
    postgres.run(
        "INSERT INTO slumberd_0.reader_users VALUES ('a_reader', 'bob')", database=database
    )
    assert ids() == [["e2"], ["e2"]]
    assert ids("alice") == [["e2"], ["e2"]]


def test_stranger_may_not_even_look(postgres: PostgresServer, database: str) -> None:
    address = postgres.address_of(database, login="a_stranger")

    with psycopg.connect(address) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(b"SELECT * FROM slumberd_0.facts")
        connection.rollback()

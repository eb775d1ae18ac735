"""A writer that was superseded commits nothing, wherever it was paused."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.errors import StaleWriterError, StoreError, SupersededError, TailLostError
from slumberd.model.fact import FactPattern
from slumberd.storage.engine import Values
from slumberd.storage.postgres.engine import PostgresEngine
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.session import PostgresSession
from tests.support.builders import rule, triple
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

EVERY = rule()
FORGET_EPOCH = "UPDATE slumberd_0.slumberd_numbers SET value = 0 WHERE name = 'epoch'"


async def batch_of(memory: PostgresMemoryStore, facts: PostgresFactStore) -> DeltaBatch:
    return await memory.consolidate(EVERY, window=await facts.next_window(EVERY.id))


async def put_some(address: str) -> None:
    async with PostgresMemoryStore(address) as memory:
        await memory.put_many(
            [
                triple("e1", "alice", "likes", "tea"),
                triple("e2", "alice", "likes", "milk", metadata={"replaces": ["e1"]}),
            ]
        )


async def count_statements(address: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many statements the transaction of a batch runs, and write nothing."""
    ran: list[str] = []
    execute = PostgresSession._execute

    def counted(self: PostgresSession, name: str, values: Values) -> Any:
        ran.append(name)
        return execute(self, name, values)

    async with PostgresMemoryStore(address) as memory, PostgresFactStore(address) as facts:
        await facts.bootstrap()
        batch = await batch_of(memory, facts)
        with monkeypatch.context() as patch:
            patch.setattr(PostgresSession, "_execute", counted)
            await facts.apply_deltas(batch, dry_run=True)
    assert ran[0] == "fence.lock"
    return len(ran)


async def test_writer_that_is_paused_before_any_statement_writes_all_or_nothing(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused before its fence, it is refused; paused later, its lock makes the other wait."""
    outcomes: list[str] = []
    total = 1
    place = 0
    while place < total:
        with postgres.database() as name:
            address = postgres.address_of(name)
            await put_some(address)
            total = total if place else await count_statements(address, monkeypatch)
            outcomes.append(await _pause_and_take_over(address, place, monkeypatch))
        place += 1

    assert outcomes[0] == "refused"
    assert set(outcomes[1:]) == {"first"}
    assert len(outcomes) > 8


async def _pause_and_take_over(address: str, place: int, monkeypatch: pytest.MonkeyPatch) -> str:
    loop, execute = asyncio.get_running_loop(), PostgresSession._execute
    async with (
        PostgresMemoryStore(address) as memory,
        PostgresFactStore(address) as first,
        PostgresFactStore(address) as second,
    ):
        await first.bootstrap()
        await first.transactions.take_over()
        batch = await batch_of(memory, first)
        seen = 0
        taking: list[Future[int]] = []

        def paused(self: PostgresSession, name: str, values: Values) -> Any:
            nonlocal seen
            if not taking and seen == place:
                taking.append(
                    asyncio.run_coroutine_threadsafe(second.transactions.take_over(), loop)
                )
                if place == 0:
                    taking[0].result(PATIENCE_SECONDS)
            seen += 1
            return execute(self, name, values)

        with monkeypatch.context() as patch:
            patch.setattr(PostgresSession, "_execute", paused)
            try:
                await first.apply_deltas(batch)
            except StaleWriterError:
                outcome = "refused"
            else:
                outcome = "first"
            await asyncio.wrap_future(taking[0])
        with pytest.raises(SupersededError):
            await first.transactions.engine.check_writer()
        if outcome == "refused":
            assert await second.query(FactPattern()) == []
            await second.apply_deltas(await batch_of(memory, second))
        await _check_written_once(memory, second)
    return outcome


async def _check_written_once(memory: PostgresMemoryStore, facts: PostgresFactStore) -> None:
    assert [fact.id for fact in await facts.query(FactPattern())] == ["e2"]
    assert (await batch_of(memory, facts)).is_empty
    rows, _, broken = await facts.verify()
    assert (rows, broken) == (3, None)


async def test_commit_without_an_answer_is_not_done_twice(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits, and the connection is lost before the answer comes."""
    await put_some(postgres_address)

    def lose_answer(self: PostgresEngine, connection: psycopg.Connection[Any]) -> None:
        connection.commit()
        connection.close()
        raise StoreError("the connection was lost during a commit")

    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        with monkeypatch.context() as patch:
            patch.setattr(PostgresEngine, "_commit", lose_answer)
            with pytest.raises(StoreError, match="during a commit"):
                await facts.apply_deltas(await batch_of(memory, facts))

        assert (await batch_of(memory, facts)).is_empty
        assert [fact.id for fact in await facts.query(FactPattern())] == ["e2"]
        assert (await facts.ledger.head()).rows == 3


async def test_connection_that_is_cut_in_a_batch_writes_nothing(
    postgres: PostgresServer, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_some(postgres_address)
    database, insert = postgres_address.rpartition("/")[2], PostgresSession.insert

    def cut(self: PostgresSession, name: str, rows: Any) -> None:
        postgres.end_connections(database)
        insert(self, name, rows)

    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        batch = await batch_of(memory, facts)
        with monkeypatch.context() as patch:
            patch.setattr(PostgresSession, "insert", cut)
            with pytest.raises(StoreError, match="ended the connection"):
                await facts.apply_deltas(batch)

        assert (await facts.ledger.head()).rows == 0
        await facts.apply_deltas(await batch_of(memory, facts))
        assert [fact.id for fact in await facts.query(FactPattern())] == ["e2"]


async def test_database_that_was_restored_is_noticed(
    postgres: PostgresServer, postgres_address: str
) -> None:
    await put_some(postgres_address)
    database = postgres_address.rpartition("/")[2]
    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        await facts.transactions.take_over()
        await facts.apply_deltas(await batch_of(memory, facts))
        postgres.run("DELETE FROM slumberd_0.slumberd_ledger WHERE seq > 1", database=database)

        with pytest.raises(TailLostError, match="has not ledger row 3"):
            await facts.unpin("e2")


async def test_database_that_lost_the_epoch_of_its_writer_is_noticed(
    postgres: PostgresServer, postgres_address: str
) -> None:
    database = postgres_address.rpartition("/")[2]
    async with PostgresFactStore(postgres_address) as facts:
        await facts.bootstrap()
        await facts.transactions.take_over()
        postgres.run(FORGET_EPOCH, database=database)

        with pytest.raises(TailLostError, match="a standby without the last commits took over"):
            await facts.transactions.engine.check_writer()


async def test_two_writers_never_have_the_same_epoch_after_a_lost_tail(
    postgres: PostgresServer, postgres_address: str
) -> None:
    """The second writer finds the epoch from before the first one, and takes another one."""
    database = postgres_address.rpartition("/")[2]
    async with (
        PostgresFactStore(postgres_address) as first,
        PostgresFactStore(postgres_address) as second,
    ):
        await first.bootstrap()
        taken = await first.transactions.take_over()
        postgres.run(FORGET_EPOCH, database=database)

        assert await second.transactions.take_over() != taken
        with pytest.raises(SupersededError):
            await first.transactions.engine.check_writer()

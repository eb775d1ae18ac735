"""A connection is lost in the middle of a transaction: nothing is lost, and nothing done twice."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.errors import DatabaseUnreachableError, StoreError
from slumberd.model.fact import FactPattern
from slumberd.storage.engine import Session
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.session import PostgresSession
from tests.support.builders import rule, triple
from tests.support.lossy_proxy import Loss, LossyProxy, lossy_proxy
from tests.support.postgres_server import OwnServer, PostgresServer

pytestmark = pytest.mark.integration

EVERY = rule()


@pytest.fixture
def proxied(postgres: PostgresServer) -> Iterator[tuple[LossyProxy, str]]:
    """Provide a proxy, and the address of a new database through it."""
    if not isinstance(postgres, OwnServer):
        pytest.skip("the server of the tests has no socket that is known")
    with postgres.database() as name, lossy_proxy(postgres, name) as found:
        yield found


async def batch_of(memory: PostgresMemoryStore, facts: PostgresFactStore) -> DeltaBatch:
    return await memory.consolidate(EVERY, window=await facts.next_window(EVERY.id))


@pytest.mark.path
@pytest.mark.parametrize(
    ("loss", "message", "exit_code", "is_done"),
    [
        pytest.param("request", "may be committed", 74, False, id="before the commit"),
        pytest.param("answer", "may be committed", 74, True, id="after the commit"),
        pytest.param("copy", "ended the connection", 69, False, id="in the copy"),
    ],
)
async def test_facts_are_written_once(
    proxied: tuple[LossyProxy, str], loss: Loss, message: str, exit_code: int, is_done: bool
) -> None:
    proxy, address = proxied
    async with PostgresMemoryStore(address) as memory, PostgresFactStore(address) as facts:
        await facts.bootstrap()
        await facts.transactions.take_over()
        await memory.put_many(
            [triple(f"e{number}", "alice", f"likes {number}", "tea") for number in range(200)]
        )
        batch = await batch_of(memory, facts)
        proxy.lose(loss, 1, within="COPY slumberd_ledger")

        with pytest.raises(StoreError, match=message) as failed:
            await facts.apply_deltas(batch)

        assert proxy.is_done
        assert failed.value.exit_code == exit_code
        again = await batch_of(memory, facts)
        assert again.is_empty is is_done
        if not is_done:
            await facts.apply_deltas(again)
        assert len(await facts.query(FactPattern())) == 200
        rows, _, broken = await facts.verify()
        assert (rows, broken) == (201, None)


@pytest.mark.path
async def test_a_connection_with_an_unfinished_copy_is_not_used_again(
    proxied: tuple[LossyProxy, str],
) -> None:
    _, address = proxied

    def begin_copy(session: Session) -> None:
        assert isinstance(session, PostgresSession)
        session._connection.pgconn.exec_(b"COPY slumberd_ledger FROM STDIN")
        raise psycopg.OperationalError("sending copy data failed")

    async with PostgresMemoryStore(address) as memory, PostgresFactStore(address) as facts:
        await facts.bootstrap()
        await facts.transactions.take_over()
        await memory.put_many([triple("e1", "alice", "likes", "tea")])
        batch = await batch_of(memory, facts)
        engine = facts.transactions.engine
        with pytest.raises(StoreError, match="ended the connection: sending copy data failed"):
            await engine.write(begin_copy)

        await facts.apply_deltas(batch)

        assert len(await facts.query(FactPattern())) == 1


async def test_read_runs_again_once_after_its_connection_was_lost(
    postgres: PostgresServer,
) -> None:
    with postgres.database() as name:
        async with PostgresFactStore(postgres.address_of(name)) as facts:
            losses = 0

            def read(session: Session) -> int:
                nonlocal losses
                if losses > 0:
                    losses -= 1
                    postgres.end_connections(name)
                return len(session.rows("moves.leaving"))

            losses = 1
            assert await facts.engine.read(read) == 0

            losses = 2
            with pytest.raises(StoreError) as failed:
                await facts.engine.read(read)
            assert type(failed.value) is DatabaseUnreachableError

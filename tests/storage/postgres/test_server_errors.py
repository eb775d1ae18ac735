"""The server refuses a transaction: the error says why, and nothing of it is written."""

from __future__ import annotations

import pytest

from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.errors import StoppedError, StoreBusyError, StoreError
from slumberd.model.fact import FactPattern
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import rule, triple
from tests.support.injected_errors import MOMENTS, Moment, inject_errors
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

EVERY = rule()


@pytest.fixture
def database(postgres_address: str) -> str:
    return postgres_address.rpartition("/")[2]


async def batch_of(memory: PostgresMemoryStore, facts: PostgresFactStore) -> DeltaBatch:
    return await memory.consolidate(EVERY, window=await facts.next_window(EVERY.id))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("code", "kind", "exit_code", "message"),
    [
        pytest.param("40001", StoreBusyError, 75, "conflicts with another", id="serialization"),
        pytest.param("40P01", StoreBusyError, 75, "conflicts with another", id="deadlock"),
        pytest.param("55P03", StoreBusyError, 75, "locked", id="lock timeout"),
        pytest.param("57014", StoreError, 74, "cancelled a statement", id="statement timeout"),
        pytest.param("53100", StoreError, 74, "disk of the server is full", id="disk full"),
        pytest.param("53200", StoreError, 74, "injected", id="out of memory"),
    ],
)
async def test_batch_that_the_server_refuses_is_written_at_the_next_attempt(  # one for each column
    postgres: PostgresServer,
    postgres_address: str,
    database: str,
    moment: Moment,
    code: str,
    kind: type[StoreError],
    exit_code: int,
    message: str,
) -> None:
    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        await facts.transactions.take_over()
        await memory.put_many([triple("e1", "alice", "likes", "tea")])
        inject_errors(postgres, database, "slumberd_watermark", code, times=1, moment=moment)

        with pytest.raises(kind, match=message) as refused:
            await facts.apply_deltas(await batch_of(memory, facts))

        assert not isinstance(refused.value, StoppedError)
        assert refused.value.exit_code == exit_code
        assert (await facts.ledger.head()).rows == 0
        await facts.apply_deltas(await batch_of(memory, facts))
        assert [fact.id for fact in await facts.query(FactPattern())] == ["e1"]
        assert (await facts.verify())[::2] == (2, None)


@pytest.mark.path
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_put_that_another_transaction_made_impossible_runs_again(
    postgres: PostgresServer, postgres_address: str, database: str, code: str, moment: Moment
) -> None:
    inject_errors(postgres, database, "inbox", code, times=3, moment=moment)
    async with PostgresMemoryStore(postgres_address) as memory:
        counts = await memory.put_many([triple("e1", "alice", "likes", "tea")])
        assert counts.new == 1

        inject_errors(postgres, database, "inbox", code, times=4, moment=moment)
        with pytest.raises(StoreBusyError):
            await memory.put_many([triple("e2", "alice", "likes", "tea")])
        assert len(await memory.recent("alice", limit=9)) == 1


async def test_statement_timeout_of_the_database_is_reported(
    postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    async with (
        PostgresMemoryStore(postgres_address) as memory,
        PostgresFactStore(postgres_address) as facts,
    ):
        await facts.bootstrap()
        await memory.put_many([triple("e1", "alice", "likes", "tea")])
        batch = await batch_of(memory, facts)
    postgres.run(
        "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN PERFORM pg_sleep({PATIENCE_SECONDS}); RETURN NEW; END $$",
        "CREATE TRIGGER waits BEFORE INSERT ON slumberd_0.slumberd_watermark"
        " FOR EACH ROW EXECUTE FUNCTION public.wait()",
        f"ALTER DATABASE {database} SET statement_timeout = '300ms'",
        database=database,
    )

    # On a busy machine, the statement that is late may be an earlier one.
    with pytest.raises(StoreError, match="due to statement timeout") as cancelled:
        async with PostgresFactStore(postgres_address) as facts:
            await facts.apply_deltas(batch, cancelled=lambda: False)

    assert not isinstance(cancelled.value, StoppedError)

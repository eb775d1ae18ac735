"""The contract of every engine: snapshots, and transactions that are whole."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from threading import Event
from typing import Any

import pytest

from slumberd.model.errors import StoppedError, StoreBusyError
from slumberd.storage.engine import Engine, Session
from tests.support.engine_subjects import MANY, Subject, Table, keys_of
from tests.support.providers import Provider
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


@pytest.fixture
def table(subject: Subject) -> Table:
    return subject.table


@pytest.fixture
def engine(subject: Subject) -> Engine:
    return subject.engine


# Transactions


async def test_write_returns_the_result_of_its_work(engine: Engine) -> None:
    assert await engine.write(lambda _: "done") == "done"
    assert await engine.read(lambda _: "read") == "read"


async def test_error_of_the_work_writes_nothing(subject: Subject, table: Table) -> None:
    await subject.insert(1)

    def work(session: Session) -> None:
        session.do(table.insert, table.row(2))
        session.insert(table.insert, [table.row(number) for number in range(3, 9)])
        raise LookupError("in the middle")

    with pytest.raises(LookupError, match="in the middle"):
        await subject.engine.write(work)

    assert await subject.keys() == keys_of(table, 1)
    await subject.insert(2)
    assert await subject.keys() == keys_of(table, 1, 2)


async def test_write_that_is_not_kept_returns_its_result_and_writes_nothing(
    subject: Subject, table: Table
) -> None:
    def work(session: Session) -> list[Any]:
        session.do(table.insert, table.row(2))
        return table.keys(session)

    await subject.insert(1)

    assert await subject.engine.write(work, keep=False) == keys_of(table, 1, 2)
    assert await subject.keys() == keys_of(table, 1)


@pytest.mark.slow
async def test_read_sees_one_snapshot(subject: Subject, table: Table) -> None:
    await subject.insert(1)
    other, loop = subject.again(), asyncio.get_running_loop()

    def insert(session: Session) -> int:
        return session.do(table.insert, table.row(2))

    def work(session: Session) -> list[list[Any]]:
        before = table.keys(session)
        meanwhile = asyncio.run_coroutine_threadsafe(other.write(insert), loop)
        assert meanwhile.result(PATIENCE_SECONDS) == 1
        return [before, table.keys(session)]

    assert await subject.engine.read(work) == [keys_of(table, 1)] * 2
    assert await subject.keys() == keys_of(table, 1, 2)


async def test_write_of_another_is_not_read_before_its_commit(
    subject: Subject, table: Table
) -> None:
    other, loop = subject.again(), asyncio.get_running_loop()

    def work(session: Session) -> list[Any]:
        session.do(table.insert, table.row(1))
        meanwhile = asyncio.run_coroutine_threadsafe(other.read(table.keys), loop)
        return meanwhile.result(PATIENCE_SECONDS)

    assert await subject.engine.write(work) == []
    assert await other.read(table.keys) == keys_of(table, 1)


async def test_writes_of_two_engines_follow_each_other(subject: Subject, table: Table) -> None:
    other = subject.again()

    def append(session: Session) -> None:
        session.do(table.insert, table.row(len(table.keys(session))))

    writes = [engine.write(append) for engine in (subject.engine, other) for _ in range(20)]
    await asyncio.gather(*writes)

    assert await subject.keys() == keys_of(table, *range(40))


@pytest.mark.parametrize("way", ["read", "write"])
async def test_work_that_is_cancelled_ends_and_writes_nothing(
    subject: Subject, table: Table, way: str
) -> None:
    await subject.insert(*range(MANY))
    begun = Event()

    def work(session: Session) -> None:
        if way == "write":
            session.do(table.insert, table.row(MANY))
        begun.set()
        for _ in range(MANY):
            session.rows(table.all, table.values)

    with pytest.raises(StoppedError):
        await getattr(subject.engine, way)(work, cancelled=begun.is_set)

    assert len(await subject.keys()) == MANY


async def test_work_that_is_not_cancelled_is_committed(subject: Subject, table: Table) -> None:
    await subject.engine.write(
        lambda session: session.do(table.insert, table.row(1)), cancelled=lambda: False
    )

    assert await subject.engine.read(table.keys, cancelled=lambda: False) == keys_of(table, 1)


async def test_write_waits_for_another_writer_as_long_as_it_is_told(
    subject: Subject, table: Table
) -> None:
    """The patient writer begins to wait first, and is still waiting when the hasty one gives up."""
    patient, hasty, loop = subject.again(), subject.again(), asyncio.get_running_loop()

    def insert(session: Session) -> int:
        return session.do(table.insert, table.row(2))

    def work(session: Session) -> Future[int]:
        session.do(table.insert, table.row(1))
        waiting = asyncio.run_coroutine_threadsafe(patient.write(insert), loop)
        refused = asyncio.run_coroutine_threadsafe(hasty.write(insert, wait_seconds=0.05), loop)
        with pytest.raises(StoreBusyError):
            refused.result(PATIENCE_SECONDS)
        return waiting

    waiting = await subject.engine.write(work)

    assert await asyncio.wrap_future(waiting) == 1
    assert await subject.keys() == keys_of(table, 1, 2)


async def test_write_of_a_backlog_changes_no_result(subject: Subject, table: Table) -> None:
    def insert(session: Session) -> int:
        return session.do(table.insert, table.row(1))

    assert await subject.engine.write(insert, bulk=True) == 1
    assert await subject.keys() == keys_of(table, 1)


# The store as a whole


async def test_second_bootstrap_changes_nothing(subject: Subject) -> None:
    await subject.insert(1)

    await subject.engine.bootstrap()
    await subject.again().bootstrap()

    assert await subject.keys() == keys_of(subject.table, 1)


async def test_closed_store_opens_again_with_all_that_was_written(subject: Subject) -> None:
    await subject.insert(1)
    await subject.engine.close()

    await subject.insert(2)
    await subject.engine.close(at_once=True)

    assert await subject.keys() == keys_of(subject.table, 1, 2)
    assert await subject.again().read(subject.table.keys) == keys_of(subject.table, 1, 2)


async def test_scrub_leaves_every_row(subject: Subject) -> None:
    await subject.insert(1, 2)

    assert await subject.engine.scrub()

    assert await subject.keys() == keys_of(subject.table, 1, 2)


async def test_pulse_counts_what_was_written(subject: Subject) -> None:
    before = await subject.engine.pulse()

    await subject.insert(1, 2, 3)

    assert await subject.engine.pulse() - before >= 3


async def test_halt_is_seen_until_the_process_ends(engine: Engine) -> None:
    assert not engine.halted.is_set()

    engine.halt()
    await engine.close()

    assert engine.halted.is_set()


async def test_session_names_the_store_as_its_engine_does(engine: Engine) -> None:
    where = await engine.read(lambda session: session.where)

    assert where == engine.where != ""


async def test_health_is_good_once_the_tables_exist(subject: Subject) -> None:
    health = await subject.engine.health()

    assert (health.ok, health.lock_state, health.warnings) == (True, "free", [])


@pytest.mark.parametrize("kind", ["episode_engine", "fact_engine"])
async def test_health_of_a_missing_store_creates_none(missing: Provider, kind: str) -> None:
    engine: Engine = getattr(missing, kind)()

    reports = [await engine.health() for _ in range(2)]
    await engine.close()

    assert [report.ok for report in reports] == [False, False]


@pytest.mark.parametrize("key", [None, b"k" * 32])
async def test_session_has_the_key_of_the_ledger(provider: Provider, key: bytes | None) -> None:
    engine = provider.fact_engine(key=key)
    await engine.bootstrap()

    assert await engine.read(lambda session: session.key) == key
    assert await engine.write(lambda session: session.key) == key
    await engine.close()

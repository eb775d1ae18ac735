"""The contract of an engine of facts: only the newest writer commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from slumberd.model.errors import StaleWriterError, SupersededError
from slumberd.storage.engine import FactEngine, Session
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

Open = Callable[[], Awaitable[FactEngine]]


@pytest.fixture
async def open_engine(provider: Provider) -> AsyncIterator[Open]:
    """Provide a function that opens one more engine of the same store."""
    opened: list[FactEngine] = []

    async def open_one() -> FactEngine:
        engine = provider.fact_engine()
        opened.append(engine)
        await engine.bootstrap()
        return engine

    yield open_one
    for engine in opened:
        await engine.close()


def refer(session: Session) -> int:
    return session.do("ledger.add_reference", ("f1", "f2"))


def references(session: Session) -> int:
    return len(session.rows("ledger.all_references"))


async def test_each_writer_that_takes_over_has_a_later_epoch(open_engine: Open) -> None:
    first, second = await open_engine(), await open_engine()

    epochs = [await first.take(), await second.take(), await first.take()]

    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("keep", [True, False])
async def test_older_writer_writes_nothing_after_another_has_taken_over(
    open_engine: Open, *, keep: bool
) -> None:
    older, newer = await open_engine(), await open_engine()
    await older.take()
    assert await older.write(refer, keep=False) == 1
    await newer.take()

    with pytest.raises(SupersededError) as refused:
        await older.write(refer, keep=keep)
    with pytest.raises(SupersededError):
        await older.check_writer()

    assert isinstance(refused.value, StaleWriterError)
    assert await newer.read(references) == 0


async def test_work_of_an_older_writer_is_not_begun(open_engine: Open) -> None:
    older, newer = await open_engine(), await open_engine()
    await older.take()
    await newer.take()
    begun: list[int] = []

    with pytest.raises(SupersededError):
        await older.write(lambda _: begun.append(1))

    assert begun == []


async def test_newest_writer_writes(open_engine: Open) -> None:
    older, newer = await open_engine(), await open_engine()
    await older.take()
    await newer.take()

    await newer.check_writer()

    assert await newer.write(refer) == 1
    assert await older.read(references) == 1


async def test_writer_that_was_superseded_may_take_over_again(open_engine: Open) -> None:
    first, second = await open_engine(), await open_engine()
    await first.take()
    await second.take()

    await first.take()

    assert await first.write(refer) == 1
    with pytest.raises(SupersededError):
        await second.write(refer)


async def test_engine_that_never_took_over_is_not_fenced(open_engine: Open) -> None:
    other, newest = await open_engine(), await open_engine()
    await newest.take()

    await other.check_writer()

    assert await other.write(refer) == 1


async def test_closed_writer_is_still_fenced(open_engine: Open) -> None:
    older, newer = await open_engine(), await open_engine()
    await older.take()
    await older.close()
    await newer.take()

    with pytest.raises(SupersededError):
        await older.write(refer)


async def test_new_table_of_facts_has_no_change_of_another_program(open_engine: Open) -> None:
    engine = await open_engine()

    assert await engine.read(lambda session: session.find_schema_change()) == ""


async def test_end_of_a_backlog_leaves_every_row(open_engine: Open) -> None:
    engine = await open_engine()
    await engine.finish_backlog()
    await engine.write(refer, bulk=True)

    await engine.finish_backlog()
    await engine.finish_backlog()

    assert await engine.read(references) == 1

"""The contract of every session: statements by name, with their rows and their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from slumberd.storage.engine import Row, Session
from tests.support.engine_subjects import EPISODES, MANY, Subject, Table, keys_of
from tests.support.providers import Provider

pytestmark = pytest.mark.integration


@pytest.fixture
def table(subject: Subject) -> Table:
    return subject.table


def rest_of(stream: Iterator[Row]) -> list[Row]:
    """Return what a stream still yields; nothing when the engine refuses to read on."""
    found: list[Row] = []
    with suppress(Exception):
        found.extend(stream)
    return found


async def test_rows_are_all_rows_of_a_statement(subject: Subject) -> None:
    assert await subject.keys() == []

    await subject.insert(1, 2, 3)

    assert await subject.keys() == keys_of(subject.table, 1, 2, 3)


async def test_row_is_a_tuple_of_what_was_written(subject: Subject, table: Table) -> None:
    await subject.insert(1)

    (row,) = await subject.engine.read(lambda session: session.rows(table.all, table.values))

    assert type(row) is tuple
    assert row[table.column :][: len(table.row(1))] == table.row(1)


async def test_stream_yields_the_rows_of_a_statement(subject: Subject, table: Table) -> None:
    await subject.insert(*range(MANY))

    def work(session: Session) -> tuple[list[Row], list[Row]]:
        streamed = [*session.stream(table.all, table.values)]
        return streamed, session.rows(table.all, table.values)

    streamed, read = await subject.engine.read(work)

    assert len(streamed) == MANY
    assert streamed == read


async def test_two_streams_are_read_side_by_side(subject: Subject, table: Table) -> None:
    await subject.insert(1, 2, 3)

    def work(session: Session) -> tuple[list[tuple[Row, Row]], list[Row]]:
        first, second = (session.stream(table.all, table.values) for _ in range(2))
        return [*zip(first, second, strict=True)], session.rows(table.all, table.values)

    pairs, rows = await subject.engine.read(work)

    assert pairs == [(row, row) for row in rows]
    assert len(rows) == 3


@pytest.mark.slow
@pytest.mark.parametrize("way", ["read", "write"])
async def test_stream_ends_with_its_transaction(subject: Subject, table: Table, way: str) -> None:
    await subject.insert(*range(MANY))

    def begin(session: Session) -> tuple[Row, Iterator[Row]]:
        stream = session.stream(table.all, table.values)
        return next(stream), stream

    first, stream = await getattr(subject.engine, way)(begin)
    await subject.insert(MANY)

    assert first[table.column] in keys_of(table, *range(MANY))
    assert rest_of(stream) == []
    assert len(await subject.keys()) == MANY + 1


async def test_one_is_the_first_row_or_none(subject: Subject, table: Table) -> None:
    def work(session: Session) -> tuple[Row | None, list[Row]]:
        return session.one(table.all, table.values), session.rows(table.all, table.values)[:1]

    assert await subject.engine.read(work) == (None, [])
    await subject.insert(1, 2)

    found, [first] = await subject.engine.read(work)

    assert found == first


async def test_list_is_a_parameter_with_many_values(subject: Subject, table: Table) -> None:
    await subject.insert(*range(9))

    async def found(*numbers: int) -> int:
        wanted = {table.parameter: keys_of(table, *numbers)}
        return len(await subject.engine.read(lambda session: session.rows(table.of_keys, wanted)))

    assert [await found(), await found(2, 5, 77), await found(*range(MANY))] == [0, 2, 9]


async def test_do_returns_how_many_rows_changed(provider: Provider) -> None:
    engine = provider.fact_engine()
    await engine.bootstrap()
    first = {"rule": "r", "seq": 1, "eid": "e1", "served": 5}

    def work(session: Session) -> list[int]:
        return [
            session.do("ledger.first_watermark", first),
            session.do("ledger.first_watermark", first),
            session.do("ledger.set_served", {"rule": "r", "served": 9}),
            session.do("ledger.set_served", {"rule": "absent", "served": 9}),
        ]

    assert await engine.write(work) == [1, 0, 1, 0]
    await engine.close()


async def test_do_counts_every_row_that_changed(provider: Provider) -> None:
    engine = provider.episode_engine()
    await engine.bootstrap()

    def work(session: Session) -> int:
        session.do_each(EPISODES.insert, [EPISODES.row(number) for number in range(4)])
        numbers = [row[0] for row in session.rows(EPISODES.all, EPISODES.values)]
        return session.do("erased_scopes.drop_episodes", {"rowids": numbers[1:]})

    assert await engine.write(work) == 3
    assert await engine.read(EPISODES.keys) == keys_of(EPISODES, 0)
    await engine.close()


async def test_do_each_runs_once_for_each_element(subject: Subject, table: Table) -> None:
    rows = (table.row(number) for number in range(3))

    await subject.engine.write(lambda session: session.do_each(table.insert, rows))
    await subject.engine.write(lambda session: session.do_each(table.insert, []))

    assert await subject.keys() == keys_of(table, 0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2, 300, MANY])
async def test_insert_writes_every_row(subject: Subject, table: Table, count: int) -> None:
    rows = [table.row(number) for number in range(count)]

    await subject.engine.write(lambda session: session.insert(table.insert, rows))

    assert await subject.keys() == keys_of(table, *range(count))


async def test_value_is_the_first_of_the_first_row(provider: Provider) -> None:
    engine = provider.fact_engine()
    await engine.bootstrap()
    number = {"name": "epoch", "value": 7}

    await engine.write(lambda session: session.do("ledger.set_number", number))

    assert await engine.read(lambda session: session.value("ledger.number", ("epoch",))) == 7
    await engine.close()

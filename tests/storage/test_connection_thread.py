"""A connection's thread answers every caller, also when a function fails."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from slumberd.storage.connection_thread import ConnectionThread
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

connect = partial(sqlite3.connect, ":memory:", check_same_thread=False)


@pytest.fixture
async def connection() -> AsyncIterator[ConnectionThread[sqlite3.Connection]]:
    thread = await ConnectionThread(connect).open()
    yield thread
    await thread.close()


def the_thread(_: sqlite3.Connection) -> threading.Thread:
    return threading.current_thread()


async def test_a_connection_runs_functions_in_one_thread_in_the_order_of_the_calls(
    connection: ConnectionThread[sqlite3.Connection],
) -> None:
    ran: list[int] = []

    def run(number: int, _: sqlite3.Connection) -> threading.Thread:
        ran.append(number)
        return threading.current_thread()

    threads = await asyncio.gather(*[connection.run(partial(run, number)) for number in range(9)])

    assert ran == list(range(9))
    assert {*threads} == {await connection.run(the_thread)} != {threading.current_thread()}


async def test_a_caller_gets_the_error_of_its_function(
    connection: ConnectionThread[sqlite3.Connection],
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await connection.run(lambda sqlite: sqlite.execute("SELECT * FROM missing"))

    assert await connection.run(lambda _: "next") == "next"


async def test_a_caller_of_a_function_that_raises_stop_iteration_does_not_wait_for_ever(
    connection: ConnectionThread[sqlite3.Connection],
) -> None:
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.run(lambda _: next(iter(())))


async def test_an_error_of_a_posted_function_is_reported_and_the_next_call_is_answered(
    connection: ConnectionThread[sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda error: reported.append((error.exc_type, error.thread.name))
    )

    def fail(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    connection.post(fail)

    assert await connection.run(lambda _: "next") == "next"
    assert reported == [(ZeroDivisionError, "slumberd-sqlite")]


async def test_a_closed_connection_refuses_functions() -> None:
    connection = await ConnectionThread(connect).open()
    await connection.close()

    with pytest.raises(ValueError, match="closed"):
        await connection.run(the_thread)
    with pytest.raises(ValueError, match="closed"):
        connection.post(lambda _: None)


async def test_closing_waits_for_functions_that_were_posted_before() -> None:
    connection = await ConnectionThread(connect).open()
    ran: list[str] = []

    connection.post(lambda _: ran.append("posted"))
    await connection.close()
    await connection.close()

    assert ran == ["posted"]


async def test_a_connection_that_cannot_be_opened_raises_why_and_ends_its_thread() -> None:
    threads: list[threading.Thread] = []

    def fail() -> sqlite3.Connection:
        threads.append(threading.current_thread())
        raise sqlite3.OperationalError("unable to open database file")

    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await ConnectionThread(fail).open()

    await asyncio.to_thread(threads[0].join, PATIENCE_SECONDS)
    assert not threads[0].is_alive()


async def test_a_caller_that_gives_up_opening_leaves_no_connection_open() -> None:
    may_open, opened = threading.Event(), []

    def connect_late() -> sqlite3.Connection:
        may_open.wait(PATIENCE_SECONDS)
        opened.append((connect(), threading.current_thread()))
        return opened[0][0]

    opening = asyncio.create_task(ConnectionThread(connect_late).open())  # noqa: TID251
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_open.set()

    await asyncio.to_thread(_join_threads)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0][0].execute("SELECT 1")


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "slumberd-sqlite":
            thread.join(PATIENCE_SECONDS)


async def test_a_released_connection_ends_its_thread() -> None:
    connection = await ConnectionThread(connect).open()
    thread = await connection.run(the_thread)

    connection.release()

    await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
    assert not thread.is_alive()

"""A connection's thread answers every caller, also when a function fails."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from slumberd.storage.connection_thread import ConnectionThread
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT say() UNION ALL SELECT i + 1 FROM n) SELECT count(i) FROM n"
)

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
    begun, may_open, opened = threading.Event(), threading.Event(), []

    def connect_late() -> sqlite3.Connection:
        begun.set()
        may_open.wait(PATIENCE_SECONDS)
        opened.append((connect(), threading.current_thread()))
        return opened[0][0]

    opening = asyncio.create_task(ConnectionThread(connect_late).open())  # noqa: TID251
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_open.set()

    await asyncio.to_thread(_join_threads)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0][0].execute("SELECT 1")


async def test_aiosqlite_answers_nothing_to_the_loop_of_a_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, answers = asyncio.get_running_loop(), []
    answer = loop.call_soon_threadsafe

    def note_and_answer(function: Callable[..., object], *arguments: object) -> asyncio.Handle:
        answers.append(function.__module__)
        return answer(function, *arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", note_and_answer)

    thread = await ConnectionThread(connect).open()
    await thread.run(the_thread)
    await thread.close()

    assert {*answers} == {ConnectionThread.__module__}


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "slumberd-sqlite":
            thread.join(PATIENCE_SECONDS)


@pytest.mark.filterwarnings("error")
def test_a_connection_in_a_cycle_is_freed_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", refused.append)

    class Owner:
        """Refers to the thread, which refers to it, as a file and its connections do."""

        def __init__(self) -> None:
            self.thread = ConnectionThread(self.connect)

        def connect(self) -> sqlite3.Connection:
            return connect()

        def __del__(self) -> None:
            self.thread.release()

    owner = Owner()
    asyncio.run(owner.thread.open())
    thread = asyncio.run(owner.thread.run(the_thread))
    del owner
    gc.collect()

    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert refused == []


async def test_a_released_connection_ends_its_thread() -> None:
    connection = await ConnectionThread(connect).open()
    thread = await connection.run(the_thread)

    connection.release()

    await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
    assert not thread.is_alive()


class Held:
    """A call that runs until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def run(self, *_: object) -> Held:
        self.begun.set()
        self.may_end.wait(PATIENCE_SECONDS)
        return self


def leave(
    thread: ConnectionThread[sqlite3.Connection],
    call: Held,
    post: Callable[[sqlite3.Connection], None],
) -> None:
    """Close an event loop while its call runs and another of its functions waits."""

    async def call_and_leave() -> None:
        calling = asyncio.create_task(thread.run(call.run))  # noqa: TID251
        await asyncio.to_thread(call.begun.wait, PATIENCE_SECONDS)
        thread.post(post)
        calling.cancel()

    asyncio.run(call_and_leave())


async def call_next(thread: ConnectionThread[sqlite3.Connection], running: Held) -> str:
    """Return the answer of a call; the running one may end once this one is queued."""
    asyncio.get_running_loop().call_soon(running.may_end.set)
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await thread.run(lambda _: "next")


def test_a_loop_that_closes_during_its_call_leaves_the_thread_to_the_next_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    thread = asyncio.run(ConnectionThread(connect).open())
    call, ran = Held(), []

    leave(thread, call, lambda _: ran.append("posted"))
    answer = asyncio.run(call_next(thread, call))
    asyncio.run(thread.close())

    assert answer == "next"
    assert ran == ["posted"]
    assert reported == []


def test_a_loop_that_closes_leaves_the_waiting_call_of_another_loop() -> None:
    thread = asyncio.run(ConnectionThread(connect).open())
    call, queued = Held(), threading.Event()

    async def wait() -> str:
        asyncio.get_running_loop().call_soon(queued.set)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await thread.run(lambda _: "waited")

    with ThreadPoolExecutor() as threads:
        leaving = threads.submit(leave, thread, call, lambda _: None)
        call.begun.wait(PATIENCE_SECONDS)
        waiting = threads.submit(lambda: asyncio.run(wait()))
        queued.wait(PATIENCE_SECONDS)
        leaving.result(PATIENCE_SECONDS)
        call.may_end.set()

        assert waiting.result(PATIENCE_SECONDS) == "waited"
    asyncio.run(thread.close())


def test_an_idle_thread_holds_nothing_of_a_call_whose_loop_has_closed() -> None:
    thread = asyncio.run(ConnectionThread(connect).open())
    call = Held()
    seen, may_end = weakref.ref(call), call.may_end
    leave(thread, call, lambda _: None)

    del call
    may_end.set()

    asyncio.run(thread.run(the_thread))
    assert seen() is None
    asyncio.run(thread.close())


async def test_a_running_statement_is_interrupted_from_another_thread(
    connection: ConnectionThread[sqlite3.Connection],
) -> None:
    runs, loop = asyncio.Event(), asyncio.get_running_loop()

    def say() -> int:
        loop.call_soon_threadsafe(runs.set)
        return 1

    def run_endless(sqlite: sqlite3.Connection) -> None:
        sqlite.create_function("say", 0, say)
        sqlite.execute(ENDLESS)

    calling = asyncio.create_task(connection.run(run_endless))  # noqa: TID251
    await runs.wait()
    assert connection.connection is not None
    connection.connection.interrupt()

    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        await calling
    assert await connection.run(lambda _: "next") == "next"


async def test_closing_gives_the_locks_back_after_the_last_posted_function(tmp_path: Path) -> None:
    file = tmp_path / "locked.db"
    thread = await ConnectionThread(partial(sqlite3.connect, file, check_same_thread=False)).open()
    await thread.run(lambda sqlite: sqlite.executescript("BEGIN EXCLUSIVE; CREATE TABLE t (n)"))
    thread.post(sqlite3.Connection.commit)

    await thread.close()

    with closing(sqlite3.connect(file, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)


async def test_debug_lines_hold_no_content_of_a_call(
    connection: ConnectionThread[sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    await connection.run(partial(lambda *_: "an answer", "a secret"))

    assert any(line.name == "aiosqlite" for line in caplog.records)
    assert "a secret" not in caplog.text
    assert "an answer" not in caplog.text


async def test_the_thread_ends_with_the_process(
    connection: ConnectionThread[sqlite3.Connection],
) -> None:
    thread = await connection.run(the_thread)

    assert thread.daemon
    assert thread.name == "slumberd-sqlite"

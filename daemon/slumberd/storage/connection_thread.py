"""A connection in a thread of aiosqlite, which runs whole functions, one after another."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import aiosqlite


class Closable(Protocol):
    """A connection to a database."""

    def close(self) -> None:
        """Close it."""
        ...


T = TypeVar("T")
C = TypeVar("C", bound=Closable)


class ConnectionThread(Generic[C]):
    """Opens one connection, and runs functions with it in one thread, in the order of the calls.

    The thread ends with the process: a host that ends without closing its stores does not hang.

    Args:
        connect: Opens the connection. Other threads must be allowed to close and interrupt it.
    """

    def __init__(self, connect: Callable[[], C], name: str = "slumberd-sqlite") -> None:
        self._connect = connect
        self._runner: _Runner[C] = _Runner()
        self._thread = _make_thread(cast("Any", partial(self._runner.start, name)))
        self._is_closing = False

    async def open(self) -> Self:
        """Start the thread and open the connection there; raises what `connect` raises."""
        try:
            self._start()
            await self._submit(self._runner.open, self._connect)
        except BaseException:
            self.release()
            raise
        return self

    async def run(self, work: Callable[[C], T]) -> T:
        """Return the result of `work`, which runs in the thread; raises what `work` raises.

        Raises:
            ValueError: The connection is closed.
        """
        return await self._submit(work, self._opened())

    def post(self, work: Callable[[C], None]) -> None:
        """Queue `work` for the thread, without waiting for it.

        Args:
            work: Must not raise: an error only goes to `threading.excepthook`.

        Raises:
            ValueError: The connection is closed.
        """
        self._queue(partial(work, self._opened()))

    @property
    def connection(self) -> C | None:
        """The connection, for a call that other threads may make, such as an interrupt."""
        return self._runner.connection

    async def close(self) -> None:
        """Close the connection once all queued functions have run, and end the thread."""
        if not self._is_closing:
            self._is_closing = True
            try:
                await self._submit(self._runner.close)
            finally:
                _UNANSWERED.call(self._thread.stop)

    def release(self) -> None:
        """Close without waiting; for finalizers, which have no event loop."""
        self._is_closing = True
        _UNANSWERED.call(self._thread.stop)

    def _start(self) -> None:
        """Start the thread, with the runner as its connection; this waits for nothing.

        An answer to the caller's loop would end the thread once that loop is closed.
        """
        starting = self._thread.__await__()
        answer = _UNANSWERED.call(starting.send, None)
        answer.set_result(self._runner)
        with suppress(StopIteration):
            starting.send(None)
        self._runner.thread = self._thread

    def _opened(self) -> C:
        if self._is_closing or self._runner.connection is None:
            raise ValueError("the connection is closed")
        return self._runner.connection

    async def _submit(self, work: Callable[..., T], *arguments: Any) -> T:
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue(partial(_run, reply, work, arguments))
        try:
            return await reply
        finally:
            # The traceback of an error refers to this frame, and so to the reply and the result.
            del reply, work, arguments

    def _queue(self, task: Callable[[], None]) -> None:
        self._runner.queued.append(task)
        # No other call of aiosqlite costs less. Its thread refers to its last call until the next
        # one comes, so the call has no arguments: they can be a whole batch.
        call = self._thread.commit()
        _UNANSWERED.call(call.send, None)
        call.close()


def _run(reply: asyncio.Future[T], work: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    """Run a function in the thread, and send the outcome to its caller."""
    result: Any = None
    error: BaseException | None = None
    try:
        result = work(*arguments)
    except BaseException as raised:  # noqa: BLE001 # the caller gets it
        error = raised
    # A caller that was cancelled may have closed its loop meanwhile.
    with suppress(RuntimeError):
        reply.get_loop().call_soon_threadsafe(_answer, reply, result, error)
    # The traceback of the error refers to this frame, too.
    del reply, work, arguments, result, error


def _answer(reply: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    if isinstance(error, StopIteration):
        # A future refuses a StopIteration, and the caller would wait for ever.
        error = RuntimeError("a function of the connection's thread raised StopIteration")
    if not reply.done():
        reply.set_result(result) if error is None else reply.set_exception(error)


class _Runner(Generic[C]):
    """What aiosqlite takes for SQLite's connection: its commit runs the next queued function."""

    connection: C | None = None
    thread: aiosqlite.Connection | None = None
    """Kept here for the thread, which refers to its last call: it warns if it is freed before."""

    def __init__(self) -> None:
        self.queued: deque[Callable[[], None]] = deque()

    def start(self, name: str) -> Self:
        threading.current_thread().name = name
        return self

    def open(self, connect: Callable[[], C]) -> None:
        self.connection = connect()

    def commit(self) -> None:
        try:
            self.queued.popleft()()
        except BaseException:  # noqa: BLE001 # aiosqlite would only tell who waits for an answer
            error = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            threading.excepthook(error)
            del error

    def close(self) -> None:
        closing, self.connection = self.connection, None
        if closing is not None:
            closing.close()


class _Unanswered(asyncio.AbstractEventLoop):
    """The event loop to which aiosqlite answers: it drops all answers, as calls send their own.

    An answer to the loop of the caller would end the thread once that loop is closed. The queued
    calls of other loops would be lost.
    """

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function of aiosqlite, for which this is the running loop."""
        running = asyncio._get_running_loop()  # asyncio has it for event loops
        asyncio._set_running_loop(self)
        try:
            return function(*arguments)
        finally:
            asyncio._set_running_loop(running)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon_threadsafe(self, *_: object, **__: object) -> None:  # type: ignore[override] # aiosqlite takes no handle
        """Drop an answer."""

    def get_debug(self) -> bool:
        return False


_UNANSWERED = _Unanswered()  # type: ignore[abstract] # aiosqlite calls no other methods


def _make_thread(connect: Callable[[], Any]) -> aiosqlite.Connection:
    """Return a thread that ends with the process: a thread that a daemon makes is a daemon."""
    made: list[aiosqlite.Connection] = []
    maker = threading.Thread(
        target=lambda: made.append(aiosqlite.Connection(connect, iter_chunk_size=1)), daemon=True
    )
    maker.start()
    maker.join()
    return made.pop()

"""A connection with a thread of its own that runs whole functions, one after another."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar


class Closable(Protocol):
    """A connection to a database."""

    def close(self) -> None:
        """Close it."""
        ...


T = TypeVar("T")
C = TypeVar("C", bound=Closable)

_Task = Callable[[], object]


class ConnectionThread(Generic[C]):
    """Opens one connection, and runs functions with it in one thread, in the order of the calls.

    The thread ends with the process: a host that ends without closing its stores does not hang.

    Args:
        connect: Opens the connection. Other threads must be allowed to close and interrupt it.
        name: The name of the thread.
    """

    def __init__(self, connect: Callable[[], C], name: str = "slumberd-sqlite") -> None:
        self._connect = connect
        self._connection: C | None = None
        self._is_closing = False
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_run_tasks, args=(self._tasks,), name=name, daemon=True
        )

    async def open(self) -> Self:
        """Start the thread and open the connection there; raises what `connect` raises."""
        self._thread.start()
        try:
            await self._submit(self._open)
        except BaseException:
            self.release()
            raise
        return self

    async def run(self, work: Callable[[C], T]) -> T:
        """Return the result of `work`, which runs in the thread; raises what `work` raises.

        Raises:
            ValueError: The connection is closed.
        """
        self._check_open()
        return await self._submit(work, self._connection)

    def post(self, work: Callable[[C], None]) -> None:
        """Queue `work` for the thread, without waiting for it.

        Args:
            work: Must not raise: an error only goes to `threading.excepthook`.

        Raises:
            ValueError: The connection is closed.
        """
        self._check_open()
        self._tasks.put(partial(work, self._connection))  # type: ignore[arg-type] # it is open

    @property
    def connection(self) -> C | None:
        """The connection, for a call that other threads may make, such as an interrupt."""
        return self._connection

    async def close(self) -> None:
        """Close the connection once all queued functions have run, and end the thread."""
        if self._is_closing:
            return
        self._is_closing = True
        try:
            await self._submit(self._close)
        finally:
            self._tasks.put(None)

    def release(self) -> None:
        """Close without waiting; for finalizers, which have no event loop."""
        self._is_closing = True
        self._tasks.put(self._close)
        self._tasks.put(None)

    def _check_open(self) -> None:
        if self._is_closing or self._connection is None:
            raise ValueError("the connection is closed")

    def _open(self) -> None:
        self._connection = self._connect()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _submit(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[T] = loop.create_future()
        self._tasks.put(partial(_run_call, loop, [(reply, work, arguments)]))
        try:
            return await reply
        finally:
            # The traceback of an error refers to this frame, and so to the reply and the result.
            del reply, work, arguments


def _run_tasks(tasks: SimpleQueue[_Task | None]) -> None:
    """Run tasks until there comes a None."""
    while (task := tasks.get()) is not None:
        try:
            task()
        except BaseException:  # noqa: BLE001 # later callers would wait for ever without the thread
            error = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            threading.excepthook(error)
            del error


def _run_call(loop: asyncio.AbstractEventLoop, box: list[Any]) -> None:
    # Work and result can be a whole batch, which must be freed once the loop is done with it. This
    # thread refers to its last call until the next one comes, so the box is emptied at each step.
    reply, work, arguments = box.pop()
    try:
        box.append((_set_result, reply, work(*arguments)))
    except BaseException as error:  # noqa: BLE001 # the caller gets it
        box.append((_set_error, reply, error))
    del reply, work, arguments
    # A caller that was cancelled may have closed its loop meanwhile.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_deliver, box)


def _deliver(box: list[Any]) -> None:
    deliver, reply, outcome = box.pop()
    deliver(reply, outcome)


def _set_result(reply: asyncio.Future[T], result: T) -> None:
    if not reply.done():
        reply.set_result(result)


def _set_error(reply: asyncio.Future[T], error: BaseException) -> None:
    if isinstance(error, StopIteration):
        # A future refuses a StopIteration, and the caller would wait for ever.
        error = RuntimeError("a function of the connection's thread raised StopIteration")
    if not reply.done():
        reply.set_exception(error)

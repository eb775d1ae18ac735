"""Run coroutines for threads that have no event loop: one thread, with one loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from slumberd.model.errors import StoreClosedError

T = TypeVar("T")

_Running = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Portal:
    """A thread whose event loop runs the coroutines of other threads.

    The thread ends with the process, with `close`, or when nothing refers to the portal.

    Args:
        where: What the portal belongs to, for errors.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._process = os.getpid()
        self._calls = 0
        self._is_closed = False
        self._changed = threading.Condition()
        running: Future[_Running] = Future()
        self._thread = threading.Thread(
            target=_run_loop, args=(running,), name="slumberd-portal", daemon=True
        )
        self._thread.start()
        self._loop, stop = running.result()
        self._end = weakref.finalize(self, _stop_loop, self._loop, stop)
        self._end.atexit = False  # the thread is a daemon

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine, or raise its error; from any thread.

        Raises:
            StoreClosedError: The portal is closed, or belongs to the parent of this process.
        """
        self._begin()
        try:
            return self._result(work)
        finally:
            self._finish()

    async def call_asynchronously(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine, or raise its error; from another event loop.

        Raises:
            StoreClosedError: The portal is closed, or belongs to the parent of this process.
        """
        self._begin()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        finally:
            self._finish()

    def close(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Let the running calls finish, run a last coroutine, and end the thread; only once."""
        if os.getpid() != self._process:
            return  # the thread is not here, and the parent still needs what it holds
        with self._changed:
            is_first, self._is_closed = not self._is_closed, True
            self._changed.wait_for(lambda: not self._calls)
        try:
            if is_first:
                self._result(last)
        finally:
            if is_first:
                self._end()
            self._thread.join()

    def _begin(self) -> None:
        if os.getpid() != self._process:
            raise StoreClosedError(self._where, "a forked process needs a store of its own")
        with self._changed:
            if self._is_closed:
                raise StoreClosedError(self._where)
            self._calls += 1

    def _finish(self) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify_all()

    def _result(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        reply = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return reply.result()
        except BaseException:
            reply.cancel()  # Ctrl-C in the caller's thread; a finished call stays finished
            raise


def _run_loop(running: Future[_Running]) -> None:
    asyncio.run(_serve(running))


async def _serve(running: Future[_Running]) -> None:
    stop = asyncio.Event()
    running.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()


def _stop_loop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(stop.set)

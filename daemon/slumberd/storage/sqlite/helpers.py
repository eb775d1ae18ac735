"""Share the reading of one snapshot of a file of facts with helper processes.

A helper is a fork of this process. It opens the file itself, because no connection may pass a fork.
All snapshots are equal when nobody committed while they began: the connection that began before and
after the others says so. Work and results are pickled and pass through sockets, so the processes
need no shared memory.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from slumberd.storage.engine import SharedWork
from slumberd.storage.sqlite import ledger_schema
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.file_schema import prepare_reader
from slumberd.storage.sqlite.session import Pragmas, SQLiteSession, data_version

T = TypeVar("T")

_ATTEMPTS = 20
"""How often the snapshots begin together, while other programs commit."""

_BEGIN, _END = "begin", "end"
"""What a helper is told, beside the work that it gets."""

_GONE = (OSError, EOFError, ValueError, pickle.PickleError)
"""Errors of talking to a helper that has ended, or whose stream is closed."""

_ENDING = {signal.SIGINT, signal.SIGTERM}
"""Signals that end a helper at once, without what the parent does on them."""


class Helper(NamedTuple):
    """A forked process.

    Attributes:
        pid: Its number.
        stream: What this process writes for it, and reads from it.
    """

    pid: int
    stream: BufferedRWPair

    def ask(self, message: object) -> Any:  # noqa: ANN401 # as the work returns
        """Send a message, and return the answer; raises one of `_GONE` when it has ended."""
        _send(self.stream, message)
        return pickle.load(self.stream)  # noqa: S301 # this process has forked the writer


class Opening(NamedTuple):
    """How a helper opens a file of facts."""

    path: Path
    pragmas: Pragmas
    key: bytes | None
    how: str


@contextmanager
def started_helpers(count: int) -> Iterator[Sequence[Helper]]:
    """Fork helpers, and end them after the block.

    There are fewer, or none, where the system cannot fork, or when this process has several
    threads: a fork has none of the others, but the locks that they hold.
    """
    helpers: list[Helper] = []
    # Only this process keeps the end `alive` open, so its helpers see when it has ended.
    watched, alive = os.pipe()
    try:
        if sys.platform == "linux" and threading.active_count() == 1:
            with suppress(OSError):
                for _ in range(count):
                    helpers.append(_fork(watched, alive))  # noqa: PERF401 # keeps those before an error
        yield helpers
    finally:
        end_helpers(helpers)
        os.close(watched)
        os.close(alive)


def end_helpers(helpers: Iterable[Helper]) -> None:
    """End helpers at once; other threads that wait for their answers go on without them."""
    for helper in helpers:
        # The system waits for the children of a process that ignores SIGCHLD.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(helper.pid, signal.SIGKILL)
            os.waitpid(helper.pid, 0)
        with suppress(OSError):
            helper.stream.close()


def _fork(watched: int, alive: int) -> Helper:
    here, there = socket.socketpair()
    with here, there:
        # A signal must not run the parent's handlers in the helper.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            if pid := os.fork():
                return Helper(pid, here.makefile("rwb"))
            _run_helper(there, watched, alive, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _run_helper(there: socket.socket, watched: int, alive: int, blocked: Iterable[int]) -> NoReturn:
    """Serve the parent, and end this process without a trace of what the parent had begun."""
    try:
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(alive)
        stream = there.makefile("rwb")
        threading.Thread(target=_end_with_parent, args=[watched], daemon=True).start()
        while True:
            opening: Opening = pickle.load(stream)  # noqa: S301 # the parent has forked this process
            with closing(_open(opening)) as connection:
                _serve(stream, connection, str(opening.path))
    finally:  # an error, too: the parent does the work itself, and gets the error itself
        os._exit(0)


def _end_with_parent(watched: int) -> None:
    os.read(watched, 1)
    os._exit(0)


def _open(opening: Opening) -> sqlite3.Connection:
    path, pragmas, key, how = opening
    connection = connect(path, pragmas, access="read", key=key, how=how)
    prepare_reader(connection, ledger_schema.SCHEMA)
    return connection


def _serve(stream: BufferedRWPair, connection: sqlite3.Connection, where: str) -> None:
    while (message := pickle.load(stream)) != _END:  # noqa: S301 # the parent has forked this process
        if message == _BEGIN:
            _begin_again(connection)
            answer = None
        else:
            with closing(SQLiteSession(connection, where)) as session:
                answer = message(session)
        _send(stream, answer)
    _send(stream, None)


def _send(stream: BufferedRWPair, message: object) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _begin_again(connection: sqlite3.Connection) -> int:
    """Begin a new snapshot; return its version."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    return data_version(connection)


class Sharing:
    """Helpers that read the same snapshot as a connection of this process.

    Attributes:
        processes: How many processes there are, this one included.
    """

    def __init__(self, helpers: Sequence[Helper]) -> None:
        self._helpers = [*helpers]
        self.processes = 1 + len(self._helpers)

    def share(self, session: SQLiteSession, works: Sequence[SharedWork[T]]) -> list[T | None]:
        """Run pieces of work in all processes; return the results in order, None for the others."""
        found: dict[int, T] = {}
        waiting = deque(enumerate(works))
        threads = [
            threading.Thread(target=_hand_out, args=(helper, waiting, found), daemon=True)
            for helper in self._helpers
        ]
        for thread in threads:
            thread.start()
        with suppress(Exception):  # the caller runs what is missing again, and gets the error
            _run_waiting(lambda work: work(session), waiting, found)
        for thread in threads:
            thread.join()
        return [found.get(number) for number in range(len(works))]


def _run_waiting(
    run: Callable[[SharedWork[T]], T],
    waiting: deque[tuple[int, SharedWork[T]]],
    found: dict[int, T],
) -> None:
    """Run waiting work until none is left; several threads may do so at once."""
    while True:
        try:
            number, work = waiting.popleft()
        except IndexError:
            return
        found[number] = run(work)


def _hand_out(
    helper: Helper, waiting: deque[tuple[int, SharedWork[T]]], found: dict[int, T]
) -> None:
    """Let a helper run waiting work, until none is left or the helper ends."""
    with suppress(*_GONE):
        _run_waiting(helper.ask, waiting, found)


@contextmanager
def sharing(
    connection: sqlite3.Connection, helpers: Sequence[Helper], opening: Opening
) -> Iterator[Sharing]:
    """Begin the snapshots of helpers, and again that of a connection, so that all are equal.

    The connection reads alone when helpers have ended, or when other programs commit too often.

    Args:
        connection: In a snapshot, without open streams.
    """
    own = data_version(connection)
    ready = [helper for helper in helpers if _is_told(helper, opening)]
    try:
        for _ in range(_ATTEMPTS if ready else 0):
            ready = [helper for helper in ready if _answers(helper, _BEGIN)]
            before, own = own, _begin_again(connection)
            if own == before:
                break
        else:
            yield Sharing([])
            return
        yield Sharing(ready)
    finally:
        for helper in ready:
            _answers(helper, _END)


def _is_told(helper: Helper, opening: Opening) -> bool:
    try:
        _send(helper.stream, opening)
    except _GONE:
        return False
    return True


def _answers(helper: Helper, message: str) -> bool:
    try:
        helper.ask(message)
    except _GONE:
        return False
    return True

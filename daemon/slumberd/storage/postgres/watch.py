"""Notice new episodes: the server notifies, and a thread looks from time to time."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Collection
from threading import Event, Lock, Thread
from typing import Self

import psycopg

from slumberd.errors import SlumberdError
from slumberd.storage.postgres.connection import Connection, connect
from slumberd.storage.postgres.shard_map import Shard

CHANNEL = "slumberd_episodes"
"""The channel on which hosts say that they have put episodes."""

POLLS_BEFORE_SLOWING = 200
"""After so many polls without a new episode, the watch polls each `SLOW_POLL_SECONDS`."""

SLOW_POLL_SECONDS = 1.0
"""A host that puts by the library notifies at once; only other programs wait so long."""

_RECONNECT_SECONDS = 1.0
_LOOK = """
SELECT {number}, (SELECT max(n) FROM {schema}.inbox), (SELECT seq FROM {schema}.log_ends)
"""
"""All that makes a rule of a shard due: what was put, and what got a number."""

_listeners: dict[str, _Listener] = {}
_lock = Lock()


def wake_watches(place: str) -> None:
    """Wake the watches of a database in this process; from any thread."""
    with _lock:
        listener = _listeners.get(place)
        found = [] if listener is None else listener.watches
    for one in found:
        one.wake()


class PostgresWatch:
    """Calls back soon after any host has committed episodes; implements ``Watch``.

    All watches of a process on one database share a connection.

    Args:
        shard: The shard.
        notify: The callback; called from the thread of the watch.
        poll_seconds: How long a commit may go unnoticed when no notification comes, at first.
    """

    def __init__(self, shard: Shard, notify: Callable[[], object], *, poll_seconds: float) -> None:
        self.shard = shard
        self.poll_seconds = poll_seconds
        self._place = shard.where
        self._notify = notify
        self._calling = Lock()
        self._is_over = False

    async def __aenter__(self) -> Self:
        """Start to watch."""
        with _lock:
            listener = _listeners.get(self._place)
            if listener is None:
                listener = _listeners[self._place] = _Listener(self.shard.address)
            listener.watches = (*listener.watches, self)
        listener.begin()
        self.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop to watch; no call follows."""
        with self._calling:
            self._is_over = True
        with _lock:
            listener = _listeners[self._place]
            listener.watches = tuple(one for one in listener.watches if one is not self)
            is_last = not listener.watches
            if is_last:
                del _listeners[self._place]
        if is_last:
            listener.end()

    def wake(self) -> None:
        """Call back now."""
        with self._calling:
            if not self._is_over:
                self._notify()


class _Listener:
    """The thread and the connection of all watches of a process on one database.

    Attributes:
        watches: The watches; replaced as a whole, under the lock.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self.watches: tuple[PostgresWatch, ...] = ()
        self._address = address
        self._is_over = Event()
        self._telling, self._told = socket.socketpair()
        self._thread = Thread(target=self._run, name="slumberd-watch", daemon=True)

    def begin(self) -> None:
        """Start the thread, or let it look for one more watch."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._telling.send(b"1")

    def end(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._telling.close()  # ends the wait of the thread
        self._thread.join()
        self._told.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with connect(self._address, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    self._watch(connection)
            except (psycopg.Error, SlumberdError):
                # The store reports that the server does not answer; here it is tried again.
                self._is_over.wait(_RECONNECT_SECONDS)

    def _watch(self, connection: Connection) -> None:
        seen: dict[int, tuple[object, ...]] = {}
        earlier: tuple[PostgresWatch, ...] = ()
        quiet_polls = 0
        notified: list[psycopg.Notify] = []
        # The handler also gets what arrives during a statement; the next wait would miss it.
        connection.add_notify_handler(notified.append)
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._told.fileno(), select.POLLIN)
        while not self._is_over.is_set():
            notified.clear()
            watches = self.watches
            found = _look(connection, {one.shard for one in watches})
            changed = {shard for shard, state in found.items() if state != seen.get(shard)}
            quiet_polls = 0 if changed else quiet_polls + 1
            for one in watches:
                if one.shard.number in changed or one not in earlier:
                    one.wake()
            seen, earlier = found, watches
            if not notified:
                self._wait(waiting, self._seconds(quiet_polls))

    def _wait(self, waiting: select.poll, seconds: float) -> None:
        """Wait for a notification, or for one watch more or less."""
        for descriptor, _ in waiting.poll(1000 * seconds):
            if descriptor == self._told.fileno():
                self._told.recv(4096)

    def _seconds(self, quiet_polls: int) -> float:
        """Return how long to wait for a notification before the next poll."""
        poll_seconds = min((one.poll_seconds for one in self.watches), default=SLOW_POLL_SECONDS)
        if quiet_polls < POLLS_BEFORE_SLOWING:
            return poll_seconds
        return max(poll_seconds, SLOW_POLL_SECONDS)


def _look(connection: Connection, shards: Collection[Shard]) -> dict[int, tuple[object, ...]]:
    """Return the ends of the inbox and of the log of each shard, by its number."""
    if not shards:
        return {}
    each = [_LOOK.format(number=one.number, schema=one.schema) for one in shards]
    rows = connection.execute("UNION ALL".join(each).encode()).fetchall()
    return {row[0]: row[1:] for row in rows}

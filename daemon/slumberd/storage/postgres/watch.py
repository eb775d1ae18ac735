"""Notice new episodes: the server notifies, and a thread looks from time to time."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Self

import psycopg

from slumberd.errors import SlumberdError
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect

CHANNEL = "slumberd_episodes"
"""The channel on which hosts say that they have put episodes."""

POLLS_BEFORE_SLOWING = 200
"""After so many polls without a new episode, the watch polls each `SLOW_POLL_SECONDS`."""

SLOW_POLL_SECONDS = 1.0
"""A host that puts by the library notifies at once; only other programs wait so long."""

_RECONNECT_SECONDS = 1.0
_LOOK = b"SELECT max(n) FROM slumberd.inbox WHERE shard = $1::smallint"

_watches: dict[str, list[PostgresWatch]] = {}
_lock = Lock()


def wake_watches(place: str) -> None:
    """Wake the watches of a database in this process; from any thread."""
    with _lock:
        found = [*_watches.get(place, ())]
    for one in found:
        one.wake()


class PostgresWatch:
    """Calls back soon after any host has committed episodes; implements ``Watch``.

    Args:
        address: The address of the database.
        shard: The shard.
        notify: The callback; called from the thread of the watch.
        poll_seconds: How long a commit may go unnoticed when no notification comes, at first.
    """

    def __init__(
        self, address: str, shard: int, notify: Callable[[], object], *, poll_seconds: float
    ) -> None:
        self._address = address
        self._place = where(address)
        self._shard = shard
        self._notify = notify
        self._poll_seconds = poll_seconds
        self._is_over = Event()
        self._ending, self._ended = socket.socketpair()
        self._thread = Thread(target=self._run, name="slumberd-watch", daemon=True)

    async def __aenter__(self) -> Self:
        """Start to watch."""
        with _lock:
            _watches.setdefault(self._place, []).append(self)
        self._thread.start()
        self.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop to watch; no call follows."""
        with _lock:
            _watches[self._place].remove(self)
        self._is_over.set()
        self._ending.close()  # ends the wait of the thread
        self._thread.join()
        self._ended.close()

    def wake(self) -> None:
        """Call back now."""
        if not self._is_over.is_set():
            self._notify()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with connect(self._address, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    self.wake()  # something may have been put before the connection was there
                    self._watch(connection)
            except (psycopg.Error, SlumberdError):
                # The store reports that the server does not answer; here it is tried again.
                self._is_over.wait(_RECONNECT_SECONDS)

    def _watch(self, connection: Connection) -> None:
        seen: int | None = None
        quiet_polls = 0
        notified: list[psycopg.Notify] = []
        # The handler also gets what arrives during a statement; the next wait would miss it.
        connection.add_notify_handler(notified.append)
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._ended.fileno(), select.POLLIN)
        while not self._is_over.is_set():
            waiting.poll(1000 * self._seconds(quiet_polls))
            with psycopg.RawCursor(connection) as cursor:
                row = cursor.execute(_LOOK, (self._shard,)).fetchone()
            newest = row[0] if row else None
            quiet_polls += 1
            if notified or (newest is not None and newest != seen):
                notified.clear()
                quiet_polls = 0
                self.wake()
            seen = newest

    def _seconds(self, quiet_polls: int) -> float:
        """Return how long to wait for a notification before the next poll."""
        if quiet_polls < POLLS_BEFORE_SLOWING:
            return self._poll_seconds
        return max(self._poll_seconds, SLOW_POLL_SECONDS)

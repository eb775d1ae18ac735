"""Notice new episodes: the server notifies, and a thread looks from time to time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Self

import psycopg

from slumberd.errors import SlumberdError
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect

CHANNEL = "slumberd_episodes"
"""The channel on which hosts say that they have put episodes."""

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
        poll_seconds: How long a commit may go unnoticed when no notification comes.
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
        self._thread.join()

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
        while not self._is_over.is_set():
            notified = [*connection.notifies(timeout=self._poll_seconds, stop_after=1)]
            with psycopg.RawCursor(connection) as cursor:
                row = cursor.execute(_LOOK, (self._shard,)).fetchone()
            newest = row[0] if row else None
            if notified or (newest is not None and newest != seen):
                self.wake()
            seen = newest

"""Notice new episodes and requests: the server notifies, and a thread looks from time to time.

A process has one thread and one connection for all shards of a server. A look is one statement for
all of them, and none at all while no transaction has written anything on the server.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Self

import psycopg

from slumberd.model.errors import SlumberdError
from slumberd.storage.postgres.connection import Connection, connect, is_lost, where
from slumberd.storage.postgres.shard_map import Shard

CHANNEL = "slumberd_episodes"
"""The channel on which hosts say that they have put episodes."""

REQUESTS = "slumberd_requests"
"""The channel on which hosts say that they have sent requests."""

POLLS_BEFORE_SLOWING = 200
"""After so many polls without a new episode, the thread polls each `SLOW_POLL_SECONDS`."""

SLOW_POLL_SECONDS = 1.0
"""A host that puts by the library notifies at once; only other programs wait so long."""

_RECONNECT_SECONDS = 1.0
_SNAPSHOT = b"SELECT pg_current_snapshot()::text"
"""Equal texts mean that no transaction was committed in between that has written anything."""

_LOOK = """
SELECT {number}, (SELECT max(n) FROM {schema}.inbox), (SELECT seq FROM {schema}.log_ends),
  EXISTS (SELECT 1 FROM {schema}.requests WHERE answered_at IS NULL AND holder IS NULL)
"""
"""All that makes a rule of a shard due: what was put, and what got a number. And its requests."""

_listeners: dict[str, _Listener] = {}
_lock = Lock()


def wake_watches(shard: Shard) -> None:
    """Wake the watches of a shard in this process; from any thread."""
    with _lock:
        listener = _listeners.get(shard.where)
        found = () if listener is None else listener.watches
    for one in found:
        if one.shard.number == shard.number:
            one.wake()


class PostgresWatch:
    """Calls back soon after any host has committed episodes; implements ``Watch``.

    Args:
        notify: The callback; called from the thread of the watch.
        poll_seconds: How long a commit may go unnoticed when no notification comes, at first.
    """

    def __init__(self, shard: Shard, notify: Callable[[], object], *, poll_seconds: float) -> None:
        self.shard = shard
        self.poll_seconds = poll_seconds
        self._notify = notify
        self._calling = Lock()
        self._is_over = False
        self._listener: _Listener | None = None
        self._has_news = True

    async def __aenter__(self) -> Self:
        """Start to watch."""
        self._listener = _listen(self.shard.address, watch=self)
        self.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop to watch; no call follows."""
        with self._calling:
            self._is_over = True
        _leave(self.shard.address, watch=self)
        self._listener = None

    def wake(self) -> None:
        """Call back now."""
        with self._calling:
            if not self._is_over:
                self._has_news = True
                self._notify()

    def note_news(self) -> None:
        """Let the next `take_news` return True."""
        self._has_news = True

    def take_news(self) -> bool:
        """Return whether there may be new episodes since the last call.

        Without a connection that watches, there may always be some.
        """
        had_news, self._has_news = self._has_news, False
        return had_news or self._listener is None or not self._listener.is_looking


class RequestWatch:
    """Calls back when requests wait for shards of a server.

    Args:
        address: The address of the server's database.
        shards: Returns the shards; called from the thread of the watch.
        notify: The callback; it gets those shards whose requests nobody has taken. Called from
            the thread of the watch.
    """

    def __init__(
        self,
        address: str,
        shards: Callable[[], Collection[Shard]],
        notify: Callable[[list[Shard]], object],
    ) -> None:
        self.shards = shards
        self._notify = notify
        self._address = address
        self._calling = Lock()
        self._is_over = False
        self._listener: _Listener | None = None

    def __enter__(self) -> Self:
        """Start to watch."""
        self._listener = _listen(self._address, requests=self)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to watch; no call follows."""
        with self._calling:
            self._is_over = True
        _leave(self._address, requests=self)
        self._listener = None

    def wake(self, shards: list[Shard]) -> None:
        """Call back now, for shards with requests."""
        with self._calling:
            if shards and not self._is_over:
                self._notify(shards)

    def look_again(self) -> None:
        """Look now: there are more shards."""
        if self._listener is not None:
            self._listener.begin()


def _listen(
    address: str, *, watch: PostgresWatch | None = None, requests: RequestWatch | None = None
) -> _Listener:
    """Add a watch to the thread of a server, which starts with the first one."""
    with _lock:
        place = where(address)
        listener = _listeners.get(place)
        if listener is None:
            listener = _listeners[place] = _Listener(address)
        if watch is not None:
            listener.watches = (*listener.watches, watch)
        if requests is not None:
            listener.requests = (*listener.requests, requests)
    listener.begin()
    return listener


def _leave(
    address: str, *, watch: PostgresWatch | None = None, requests: RequestWatch | None = None
) -> None:
    """Remove a watch from the thread of a server, which ends with the last one."""
    with _lock:
        place = where(address)
        listener = _listeners[place]
        listener.watches = tuple(one for one in listener.watches if one is not watch)
        listener.requests = tuple(one for one in listener.requests if one is not requests)
        is_last = not listener.watches and not listener.requests
        if is_last:
            del _listeners[place]
    if is_last:
        listener.end()


class _State(NamedTuple):
    """What a look finds in a shard."""

    put: int | None
    numbered: int
    has_requests: bool


class _Listener:
    """The thread and the connection of all watches of a process on one server.

    Attributes:
        watches: The watches of episodes; replaced as a whole, under the lock.
        requests: The watches of requests; replaced as a whole, under the lock.
        is_looking: Whether the connection works.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self.watches: tuple[PostgresWatch, ...] = ()
        self.requests: tuple[RequestWatch, ...] = ()
        self.is_looking = False
        self._address = address
        self._is_over = Event()
        self._telling, self._told = socket.socketpair()
        self._thread = Thread(target=self._run, name="slumberd-watch", daemon=True)

    def begin(self) -> None:
        """Start the thread, or let it look again."""
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
                with connect(self._address, autocommit=True, keeps_plans=True) as connection:
                    for channel in (CHANNEL, REQUESTS):
                        connection.execute(f"LISTEN {channel}".encode())
                    self._watch(connection)
            except (psycopg.Error, SlumberdError):
                # The store reports that the server does not answer; here it is tried again.
                self.is_looking = False
                self._is_over.wait(_RECONNECT_SECONDS)

    def _watch(self, connection: Connection) -> None:
        looking = _Look(connection)
        seen: dict[int, _State] = {}
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
            watches, requests = self.watches, self.requests
            wanted = {one.shard for one in watches}
            found = looking.states(wanted.union(*(one.shards() for one in requests)))
            self.is_looking = True
            changed = {
                number
                for number in found.keys() | seen.keys()
                if found.get(number, ())[:2] != seen.get(number, ())[:2]
            }
            quiet_polls = 0 if changed else quiet_polls + 1
            for watch in watches:
                if watch.shard.number in changed or watch not in earlier:
                    watch.wake()
            for one in requests:
                one.wake([shard for shard in one.shards() if _has_requests(found, shard)])
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


def _has_requests(found: dict[int, _State], shard: Shard) -> bool:
    state = found.get(shard.number)
    return state is not None and state.has_requests


class _Look:
    """Looks at the shards of a server, when anything was written since the last look."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._seen: tuple[str, tuple[Shard, ...]] | None = None
        self._states: dict[int, _State] = {}

    def states(self, shards: Collection[Shard]) -> dict[int, _State]:
        """Return what a look finds in each shard, by its number."""
        wanted = tuple(sorted(shards))
        row = self._connection.execute(_SNAPSHOT).fetchone()
        now = (row[0] if row else "", wanted)
        if now != self._seen:
            self._states = {number: _State(*state) for number, *state in self._read(wanted)}
            self._seen = now
        return self._states

    def _read(self, shards: tuple[Shard, ...]) -> list[tuple[Any, ...]]:
        if not shards:
            return []
        try:
            return self._connection.execute(_statement(shards)).fetchall()
        except psycopg.Error as error:
            if is_lost(error) or len(shards) == 1:
                raise
        # One of them has not its tables; the others are served.
        found: list[tuple[Any, ...]] = []
        for shard in shards:
            with suppress(psycopg.Error):
                found += self._connection.execute(_statement((shard,))).fetchall()
        return found


@lru_cache(maxsize=256)
def _statement(shards: tuple[Shard, ...]) -> bytes:
    each = [_LOOK.format(number=one.number, schema=one.schema) for one in shards]
    return "UNION ALL".join(each).encode()

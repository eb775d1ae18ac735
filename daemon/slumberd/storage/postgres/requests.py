"""Pass requests and answers between hosts through a table of the database.

A request that nobody has taken is kept by its sender: it touches the row while it waits. So a
daemon that starts later does not perform what a command wanted that has ended long ago.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import psycopg

from slumberd.model.errors import NotRunningError, StoreError
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import REQUESTS
from slumberd.storage.strict_json import MOST_REQUEST_BYTES

ANSWERS = "slumberd_answers"
"""The channel on which answers are announced."""

WAITING_SECONDS = 10.0
"""How long a request waits for a daemon after its sender last touched it."""

GRACE_SECONDS = 5.0
"""How long a daemon may be silent before the requests that it has taken count as lost."""

RELEASED_SECONDS = 15.0
"""How long a daemon that has given a shard back may end the requests that it has taken."""

RECONNECT_SECONDS = 20.0
"""How long a sender tries to reach the server again, to read its answer."""

_TOUCH_SECONDS = 2.0

_ACTIVE_DAEMON = b"""
SELECT 1
FROM lease
WHERE holder IS NOT NULL
  AND host ->> 'daemon' = 'true'
  AND held_until >= clock_timestamp()
  AND held_until <= clock_timestamp()
  + make_interval(secs => coalesce((host ->> 'seconds')::float8, 3600))
"""
"""A lease that lasts longer than its holder said is of a clock that was set back since."""
_IS_ALIVE = b"""
SELECT (
    holder = $1
    AND held_until >= clock_timestamp() - make_interval(secs => $2)
    AND held_until <= clock_timestamp()
    + make_interval(secs => $2 + coalesce((host ->> 'seconds')::float8, 3600))
  )
  IS TRUE
  OR (
    last_holder = $1
    AND released_at >= clock_timestamp() - make_interval(secs => $3)
    AND released_at <= clock_timestamp()
  )
  IS TRUE
FROM lease
"""
"""Whoever has given a shard back still ends the requests that it has taken."""
_ADD = b"""
INSERT INTO requests (operation, request, host)
VALUES ($1, $2, $3)
RETURNING number
"""
_LOOK = b"SELECT answer, holder FROM requests WHERE number = $1"
_TOUCH = b"""
UPDATE requests
SET requested_at = clock_timestamp()
WHERE number = $1
  AND holder IS NULL
  AND requested_at < clock_timestamp() - make_interval(secs => $2)
"""
_REMOVE = b"DELETE FROM requests WHERE number = $1"
_WITHDRAW = b"DELETE FROM requests WHERE number = $1 AND holder IS NULL"
_FORGET = """
DELETE FROM {schema}.requests
WHERE coalesce(answered_at, requested_at) < clock_timestamp() - interval '1 hour'
  AND (answered_at IS NOT NULL OR holder IS DISTINCT FROM $1)
"""
_TAKE = """
UPDATE {schema}.requests
SET holder = $1
WHERE number IN (
    SELECT number
    FROM {schema}.requests
    WHERE answered_at IS NULL
      AND holder IS NULL
      AND requested_at >= clock_timestamp() - make_interval(secs => $3)
    ORDER BY number
    LIMIT $2
    FOR UPDATE SKIP LOCKED
  )
  AND EXISTS (
    SELECT 1
    FROM {schema}.lease
    WHERE lease.holder = $1
      AND held_until >= clock_timestamp()
  )
RETURNING number, CASE WHEN octet_length(request) <= $4 THEN request ELSE '' END, host
"""
_ANSWER = """
UPDATE {schema}.requests
SET answer = $2, answered_at = clock_timestamp()
WHERE number = $1
  AND holder = $3
"""
_GIVE_BACK = """
UPDATE {schema}.requests
SET holder = NULL, requested_at = clock_timestamp()
WHERE number = $1
  AND answered_at IS NULL
  AND holder = $2
"""


class Request(NamedTuple):
    """A request of a host.

    Attributes:
        number: Its number in the shard.
        line: The request, as a line of JSON; empty when it was too long.
        host: Who sent it.
    """

    shard: Shard
    number: int
    line: bytes
    host: str


def send_request(  # the parts of a request
    shard: Shard,
    operation: str,
    line: bytes,
    *,
    host: str,
    poll_seconds: float = 0.25,
) -> bytes:
    """Send a request to the daemon that holds a shard, and wait for its answer.

    When that daemon ends before it has taken the request, the next one takes it.

    Args:
        operation: The name of the operation, for people who look into the table.
        line: The request, as a line of JSON.
        poll_seconds: How often to look when no notification comes.

    Raises:
        NotRunningError: No daemon holds the shard; nothing was done.
        StoreError: The daemon ended while it performed the request, or the database cannot be
            reached any more; the message says that the request may be done.
    """
    connection = connect(shard.address, shard.schema, autocommit=True)
    sent = _Sent(shard, poll_seconds)
    with connection, translate_errors(sent.place):
        if not sent.is_daemon_active(connection):
            raise NotRunningError(f"no slumberd runs on {sent.place!r}")
        sent.add(connection, operation, line, host)
        answer = sent.wait(connection)
    return sent.wait_with_new_connections() if answer is None else answer


class _Sent:
    """A request that this process sends, and waits for.

    Args:
        poll_seconds: How often to look when no notification comes.
    """

    def __init__(self, shard: Shard, poll_seconds: float) -> None:
        self.place = shard.where
        self._shard = shard
        self._poll_seconds = poll_seconds
        self._number = 0

    def is_daemon_active(self, connection: Connection) -> bool:
        """Return whether a daemon holds the shard."""
        return connection.execute(_ACTIVE_DAEMON).fetchone() is not None

    def add(self, connection: Connection, operation: str, line: bytes, host: str) -> None:
        """Write the request, and announce it."""
        try:
            with psycopg.RawCursor(connection) as cursor:
                row = cursor.execute(_ADD, (operation, line, host)).fetchone()
            self._number = row[0] if row else 0
        except psycopg.Error as error:
            if not connection.broken:
                raise
            raise self._unknown("the connection to the server was lost") from error
        # The request is there, and daemons also look without a notification.
        with suppress(psycopg.Error):
            connection.execute(f"NOTIFY {REQUESTS}".encode())

    def wait(self, connection: Connection) -> bytes | None:
        """Return the answer; None when the connection is lost.

        Raises:
            NotRunningError: No daemon holds the shard any more; nothing was done.
            StoreError: The daemon ended while it performed the request.
        """
        try:
            connection.execute(f"LISTEN {ANSWERS}".encode())
            while (answer := self._look(connection)) is None:
                for _ in connection.notifies(timeout=self._poll_seconds, stop_after=1):
                    pass
        except psycopg.Error:
            if connection.broken:
                return None
            raise
        except KeyboardInterrupt:
            with suppress(psycopg.Error):
                self._withdraw(connection)
            raise
        self._remove(connection)
        return answer

    def wait_with_new_connections(self) -> bytes:
        """Return the answer after the first connection was lost.

        Raises:
            StoreError: The server does not answer for too long.
        """
        deadline = time.monotonic() + RECONNECT_SECONDS
        while time.monotonic() < deadline:
            try:
                connection = connect(self._shard.address, self._shard.schema, autocommit=True)
            except StoreError:
                time.sleep(self._poll_seconds)
                continue
            with connection, translate_errors(self.place):
                if (answer := self.wait(connection)) is not None:
                    return answer
            deadline = time.monotonic() + RECONNECT_SECONDS
        raise self._unknown("the server cannot be reached any more")

    def _look(self, connection: Connection) -> bytes | None:
        """Return the answer; None while a daemon works on the request, or may take it."""
        answer, holder = self._read(connection)
        if answer is not None:
            return answer
        if holder is None:
            self._keep(connection)
        elif not self._is_alive(connection, holder):
            # It may have answered, or given the request back, before it ended.
            answer, last = self._read(connection)
            if answer is None and last == holder:
                raise self._unknown(f"the daemon {holder} ended while it performed the request")
        return answer

    def _read(self, connection: Connection) -> tuple[bytes | None, str | None]:
        """Return the answer, and the daemon that has taken the request; None for what is not."""
        with psycopg.RawCursor(connection) as cursor:
            row = cursor.execute(_LOOK, (self._number,)).fetchone()
        if row is None:
            raise self._unknown(f"request {self._number} is gone from the database")
        return row[0], row[1]

    def _keep(self, connection: Connection) -> None:
        """Keep the request for the daemon that holds the shard; take it back without one."""
        if self.is_daemon_active(connection):
            with psycopg.RawCursor(connection) as cursor:
                cursor.execute(_TOUCH, (self._number, _TOUCH_SECONDS))
        elif self._withdraw(connection):
            raise NotRunningError(f"no slumberd runs on {self.place!r}")

    def _remove(self, connection: Connection) -> None:
        """Remove the request and its answer, which may hold content, if the server answers."""
        with suppress(psycopg.Error), psycopg.RawCursor(connection) as cursor:
            cursor.execute(_REMOVE, (self._number,))

    def _withdraw(self, connection: Connection) -> bool:
        with psycopg.RawCursor(connection) as cursor:
            return cursor.execute(_WITHDRAW, (self._number,)).rowcount > 0

    def _is_alive(self, connection: Connection, daemon: str) -> bool:
        """Return whether a daemon holds the shard, or has just given it back."""
        with psycopg.RawCursor(connection) as cursor:
            values = (daemon, GRACE_SECONDS, RELEASED_SECONDS)
            row = cursor.execute(_IS_ALIVE, values).fetchone()
        return row is not None and row[0]

    def _unknown(self, problem: str) -> StoreError:
        return StoreError(
            f"{self.place!r}: {problem}, which may be done; `slumberd audit ls` shows what was done"
        )


def take_requests(connection: Connection, shard: Shard, most: int, holder: str) -> list[Request]:
    """Return new requests for a shard, the oldest first, which the holder has taken.

    A daemon that has lost a shard gets none of its requests.

    Args:
        connection: A connection that commits each statement.
        most: How many at most.
        holder: The name under which the daemon holds the shard.
    """
    # A longer request arrives empty, and is refused.
    values = (holder, most, WAITING_SECONDS, MOST_REQUEST_BYTES)
    with psycopg.RawCursor(connection) as cursor:
        rows = cursor.execute(_for_shard(_TAKE, shard), values).fetchall()
    return [Request(shard, *row) for row in sorted(rows)]


def forget_requests(connection: Connection, shards: Sequence[Shard], holder: str) -> None:
    """Remove old answers, and old requests that no daemon works on."""
    with psycopg.RawCursor(connection) as cursor:
        for shard in shards:
            cursor.execute(_for_shard(_FORGET, shard), (holder,))


def give_back_request(connection: Connection, request: Request, holder: str) -> None:
    """Leave a request that the holder has taken, and not begun, to the next holder."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(_for_shard(_GIVE_BACK, request.shard), (request.number, holder))


def answer_request(connection: Connection, request: Request, answer: bytes, holder: str) -> None:
    """Write the answer to a request that the holder has taken, and announce it."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(_for_shard(_ANSWER, request.shard), (request.number, answer, holder))
    connection.execute(f"NOTIFY {ANSWERS}".encode())


def _for_shard(template: str, shard: Shard) -> bytes:
    return template.format(schema=shard.schema).encode()

"""Pass requests and answers between hosts through a table of the database."""

from __future__ import annotations

import time
from typing import NamedTuple

import psycopg

from slumberd.errors import NotRunningError, StoreError
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.lease import Holder

REQUESTS, ANSWERS = "slumberd_requests", "slumberd_answers"
"""The channels on which requests and answers are announced."""

_HOLDER = b"""
SELECT holder, host ->> 'daemon'
FROM slumberd.shards
WHERE shard = $1::smallint
  AND held_until >= clock_timestamp()
"""
_ADD = b"""
INSERT INTO slumberd.requests (operation, request, host)
VALUES ($1, $2, $3)
RETURNING number
"""
_LOOK = b"SELECT answer, holder FROM slumberd.requests WHERE number = $1"
_REMOVE = b"DELETE FROM slumberd.requests WHERE number = $1"
_WITHDRAW = b"DELETE FROM slumberd.requests WHERE number = $1 AND holder IS NULL"
_FORGET = b"""
DELETE FROM slumberd.requests
WHERE requested_at < clock_timestamp() - interval '1 hour'
"""
_TAKE = b"""
UPDATE slumberd.requests
SET holder = $1
WHERE number IN (
  SELECT number
  FROM slumberd.requests
  WHERE answered_at IS NULL
    AND holder IS NULL
  ORDER BY number
  LIMIT 32
  FOR UPDATE SKIP LOCKED
)
RETURNING number, request, host
"""
_ANSWER = b"""
UPDATE slumberd.requests
SET answer = $2, answered_at = clock_timestamp()
WHERE number = $1
"""


class Request(NamedTuple):
    """A request of a host.

    Attributes:
        number: Its number.
        line: The request, as a line of JSON.
        host: Who sent it.
    """

    number: int
    line: bytes
    host: str


def _holder(connection: Connection, shard: int) -> Holder | None:
    with psycopg.RawCursor(connection) as cursor:
        row = cursor.execute(_HOLDER, (shard,)).fetchone()
    return None if row is None else Holder(row[0], row[1] == "true")


def send_request(  # the parts of a request
    address: str,
    shard: int,
    operation: str,
    line: bytes,
    *,
    host: str,
    poll_seconds: float = 0.25,
) -> bytes:
    """Send a request to the daemon that holds a shard, and wait for its answer.

    Args:
        address: The address of the database.
        shard: The shard.
        operation: The name of the operation, for people who look into the table.
        line: The request, as a line of JSON.
        host: Who sends it.
        poll_seconds: How often to look when no notification comes.

    Raises:
        NotRunningError: No daemon holds the shard; nothing was done.
        StoreError: The daemon ended while it performed the request.
    """
    place = where(address)
    with connect(address, autocommit=True) as connection, translate_errors(place):
        holder = _holder(connection, shard)
        if holder is None or not holder.is_daemon:
            raise NotRunningError(f"no slumberd runs on {place!r}")
        connection.execute(f"LISTEN {ANSWERS}".encode())
        with psycopg.RawCursor(connection) as cursor:
            row = cursor.execute(_ADD, (operation, line, host)).fetchone()
        number: int = row[0] if row else 0
        connection.execute(f"NOTIFY {REQUESTS}".encode())
        while True:
            answer = _look(connection, number, shard, holder, place)
            if answer is not None:
                with psycopg.RawCursor(connection) as cursor:
                    cursor.execute(_REMOVE, (number,))  # it may hold content
                return answer
            for _ in connection.notifies(timeout=poll_seconds, stop_after=1):
                pass


def _look(
    connection: Connection, number: int, shard: int, holder: Holder, place: str
) -> bytes | None:
    """Return the answer to a request; None while the daemon works on it."""
    with psycopg.RawCursor(connection) as cursor:
        row = cursor.execute(_LOOK, (number,)).fetchone()
        if row is None:
            raise StoreError(f"{place!r}: request {number} is gone from the database")
        answer: bytes | None = row[0]
        if answer is not None or (now := _holder(connection, shard)) == holder:
            return answer
        if cursor.execute(_WITHDRAW, (number,)).rowcount:
            raise NotRunningError(f"no slumberd runs on {place!r}")
    if row[1] == (now.name if now else None):
        return None
    raise StoreError(
        f"{place!r}: the daemon {row[1]} ended while it performed the request, which may be done; "
        "`slumberd audit log` shows what was done"
    )


class RequestQueue:
    """Takes the requests of a database for the daemon that holds it; used in one thread.

    Args:
        connection: A connection that commits each statement.
        holder: The name of the daemon.
    """

    def __init__(self, connection: Connection, holder: str) -> None:
        self._connection = connection
        self._holder = holder
        self._forgotten_at = float("-inf")
        connection.execute(f"LISTEN {REQUESTS}".encode())

    def take(self, *, wait_seconds: float) -> list[Request]:
        """Return new requests, the oldest first; wait for some when there are none."""
        if not (found := self._take()):
            for _ in self._connection.notifies(timeout=wait_seconds, stop_after=1):
                pass
            found = self._take()
        return found

    def _take(self) -> list[Request]:
        if time.monotonic() - self._forgotten_at > _FORGET_SECONDS:
            self._forgotten_at = time.monotonic()
            self._connection.execute(_FORGET)
        with psycopg.RawCursor(self._connection) as cursor:
            rows = cursor.execute(_TAKE, (self._holder,)).fetchall()
        return sorted(Request(*row) for row in rows)


_FORGET_SECONDS = 600.0


def answer_request(connection: Connection, number: int, answer: bytes) -> None:
    """Write the answer to a request, and announce it."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(_ANSWER, (number, answer))
    connection.execute(f"NOTIFY {ANSWERS}".encode())

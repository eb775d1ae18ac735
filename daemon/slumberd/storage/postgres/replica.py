"""Read from a replica once it has replayed what the database has committed.

A read first asks the database how far its log is written, and then waits until the replica has
replayed as much. So it finds whatever any program had committed before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import NamedTuple, TypeVar

import psycopg
import structlog

from slumberd.model.errors import DatabaseUnreachableError, SlumberdError, StoreBusyError
from slumberd.storage.postgres.connection import Connection, connect, translate_errors, where
from slumberd.storage.postgres.connection_pool import pool_for
from slumberd.storage.postgres.shard_map import Shard

T = TypeVar("T")

WAIT_SECONDS = 0.25
"""How long a read waits for the replica; then it runs on the primary."""

CONNECT_SECONDS = 1.0
"""How long a read waits for a new connection to the replica."""

REST_SECONDS = 1.0
"""How long no read tries a replica that was behind."""

UNREACHABLE_SECONDS = 10.0
"""How long no read tries a replica that was unusable for another reason."""

_LOOK_SECONDS = 0.002
_NEVER = Event()

# The log is flushed up to every commit that was acknowledged. Only a timeline tells a replica of
# this primary from one that has still followed the primary before it.
_POSITION = b"""
SELECT pg_current_wal_flush_lsn()::text,
  ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int,
  (SELECT system_identifier FROM pg_control_system())
"""
_REPLAYED = b"""
SELECT pg_is_in_recovery(),
  (SELECT timeline_id FROM pg_control_checkpoint()),
  (SELECT system_identifier FROM pg_control_system()),
  coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)
"""

_log = structlog.get_logger("slumberd")


class Position(NamedTuple):
    """How far the log of a primary is written.

    Attributes:
        end: The end of its log.
        timeline: The number that each promotion raises.
        system: The number that all servers of one replication have.
    """

    end: str
    timeline: int
    system: int


def find_position(connection: Connection) -> Position:
    """Return how far the log of the primary is written; all acknowledged commits lie before."""
    with each_statement_alone(connection), psycopg.RawCursor(connection) as cursor:
        row = cursor.execute(_POSITION).fetchone()
    if row is None:
        raise LookupError("the position has no row")
    return Position(*row)


@contextmanager
def each_statement_alone(connection: Connection) -> Iterator[None]:
    """Let each statement in the block be a transaction of its own."""
    connection.autocommit = True
    try:
        yield
    finally:
        if not connection.closed:
            connection.autocommit = False


class ReplicaUnusableError(Exception):
    """A replica cannot answer a read; the read then runs on the primary."""


class _State:
    """What a process knows of a replica, for all stores that read from it.

    Args:
        place: The replica in words.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = Lock()
        self._rests_until = float("-inf")
        self._is_usable = True

    @property
    def rests(self) -> bool:
        """Whether no read tries the replica now."""
        return time.monotonic() < self._rests_until

    def note_failure(self, problem: str, *, rest_seconds: float) -> None:
        """Let the replica rest; log a warning when it was usable before."""
        with self._lock:
            self._rests_until = time.monotonic() + rest_seconds
            is_new, self._is_usable = self._is_usable, False
        if is_new:
            _log.warning("replica.left_out", replica=self._place, message=problem)

    def note_success(self) -> None:
        """Log that reads run on the replica again, when they did not before."""
        with self._lock:
            is_new, self._is_usable = not self._is_usable, True
        if is_new:
            _log.info("replica.used_again", replica=self._place)


_states: dict[str, _State] = {}
_states_lock = Lock()


def _state_of(address: str) -> _State:
    with _states_lock:
        return _states.setdefault(address, _State(where(address)))


class Replica:
    """The connections of a store to a replica.

    Args:
        shard: The shard, at the address of the replica.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._pool = pool_for(shard.address)
        self._state = _state_of(shard.address)

    @property
    def rests(self) -> bool:
        """Whether no read tries the replica now."""
        return self._state.rests

    async def read(self, position: Position, work: Callable[[Connection], T]) -> T:
        """Run `work` once the replica has replayed up to a position.

        Raises:
            ReplicaUnusableError: It has not in time, or it does not answer; run it elsewhere.
        """
        run = partial(self._wait_and_run, position, work)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._pool.connect("read", self._shard.schema)
        except (SlumberdError, TimeoutError) as error:
            problem = str(error) or f"does not answer within {CONNECT_SECONDS:g} s"
            self._state.note_failure(problem, rest_seconds=UNREACHABLE_SECONDS)
            raise ReplicaUnusableError from error
        try:
            with translate_errors(self._shard.where):
                result = await self._pool.run("read", run, schema=self._shard.schema)
        except DatabaseUnreachableError as error:
            self._state.note_failure(str(error), rest_seconds=REST_SECONDS)
            raise ReplicaUnusableError from error
        except StoreBusyError as error:  # the replica cancels reads that keep it from replaying
            raise ReplicaUnusableError from error
        self._state.note_success()
        return result

    def _wait_and_run(
        self, position: Position, work: Callable[[Connection], T], connection: Connection
    ) -> T:
        # Each look is a transaction of its own: the snapshot of `work` comes after the last one.
        with each_statement_alone(connection):
            problem = wait_until_replayed(connection, position)
        if problem:
            seconds = REST_SECONDS if problem == _BEHIND else UNREACHABLE_SECONDS
            self._state.note_failure(problem, rest_seconds=seconds)
            raise ReplicaUnusableError
        return work(connection)

    async def close(self) -> None:
        """Close the connections; the next use opens them again."""
        await self._pool.leave()

    def release(self) -> None:
        """Close the connections without waiting."""
        self._pool.leave_at_once()


_BEHIND = "is behind the primary"


def examine(address: str, read_address: str) -> str:
    """Return why a replica cannot answer a read of a database; empty when it can.

    Raises:
        StoreError: The primary cannot be used.
    """
    with translate_errors(where(address)), connect(address) as primary:
        position = find_position(primary)
    place = where(read_address)
    try:
        with translate_errors(place), connect(read_address, autocommit=True) as standby:
            return wait_until_replayed(standby, position)
    except SlumberdError as error:
        return str(error).removeprefix(f"{place!r}: ")


def wait_until_replayed(connection: Connection, position: Position) -> str:
    """Wait until a replica has replayed up to a position.

    Returns:
        Why it cannot answer a read now; empty when it can.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while (problem := find_problem(connection, position)) == _BEHIND:
        if time.monotonic() > deadline:
            break
        _NEVER.wait(_LOOK_SECONDS)
    return problem


def find_problem(connection: Connection, position: Position) -> str:
    """Return why a replica cannot answer now; empty when it can."""
    with psycopg.RawCursor(connection) as cursor:
        row = cursor.execute(_REPLAYED, (position.end,)).fetchone()
    is_replica, timeline, system, is_replayed = row or (False, 0, 0, False)
    if system != position.system:
        return "is no replica of the database"
    if not is_replica:
        return "is a primary"
    if timeline != position.timeline:
        return f"was on timeline {timeline} at its last checkpoint, not on {position.timeline}"
    return "" if is_replayed else _BEHIND

"""The map of shards: where each shard lies, and which of them has a user.

A shard is a complete store in a schema of its own. The map lies in the schema ``slumberd`` of the
database that a configuration names. A shard lies in that database, or in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from threading import Lock
from typing import NamedTuple, TypeVar

import psycopg

from slumberd.model.errors import UsageError, UserMovingError
from slumberd.model.scope import ScopeFilter, escape
from slumberd.storage.postgres.connection import (
    Connection,
    connect,
    is_lost,
    translate_errors,
    where,
)

T = TypeVar("T")

POSITIONS = 1_024
"""How many positions the users are spread over; each position belongs to one shard."""

_SHARDS = b"SELECT number, address FROM slumberd.list_shards()"
_PLANNED = (
    b"SELECT EXISTS (SELECT 1 FROM slumberd.users WHERE shard = $1 AND planned_for IS NOT NULL)"
)
_USERS = b"SELECT shard, moving_to FROM slumberd.find_users($1::text[])"


class Shard(NamedTuple):
    """A complete store: the episodes, facts and ledger of some users.

    Attributes:
        number: Its number, from 0; it is the name of the shard everywhere.
        address: The address of its database, with the password.
    """

    number: int
    address: str

    @property
    def schema(self) -> str:
        """The schema that has its tables."""
        return f"slumberd_{self.number:d}"

    @property
    def where(self) -> str:
        """Its database in words, without the password."""
        return where(self.address)


def position_of(user: str) -> int:
    """Return the position of a user; the database computes the same."""
    return int.from_bytes(sha256(f"/user/{escape(user)}/".encode()).digest()[:4]) % POSITIONS


class ShardMap:
    """Reads the map of shards of a database, through a connection that stays open.

    Args:
        address: The address of the database that has the map.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._alone = Lock()
        self._connection: Connection | None = None

    def shards(self) -> list[Shard]:
        """Return all shards, by number.

        Raises:
            StoreError: The database cannot be read.
            SchemaError: It has no map of shards.
        """
        return self._read(lambda connection: shards_of(connection, self.address))

    def shard(self, number: int) -> Shard:
        """Return the shard with a number.

        Raises:
            UsageError: The map has no such shard.
            StoreError: The database cannot be read.
        """
        shards = self.shards()
        for shard in shards:
            if shard.number == number:
                return shard
        known = ", ".join(str(shard.number) for shard in shards)
        raise UsageError(f"{self._where!r} has no shard {number}; its shards are {known}")

    def find(self, user: str) -> Shard:
        """Return the shard that has a user, or is to get what is put for a new one.

        Raises:
            MemoryScopeError: No user can have that name.
            UserMovingError: The user is being moved to another shard.
            StoreError: The database cannot be read.
        """
        ScopeFilter.of(user, None, None)

        def read(connection: Connection) -> tuple[int, int | None, list[Shard]]:
            with psycopg.RawCursor(connection) as cursor:
                row = cursor.execute(_USERS, ([user],)).fetchone()
            number, moving_to = row or (0, None)
            return number, moving_to, shards_of(connection, self.address)

        number, moving_to, shards = self._read(read)
        if moving_to is not None:
            raise UserMovingError(user, number, moving_to)
        return next(shard for shard in shards if shard.number == number)

    def has_planned(self, number: int) -> bool:
        """Return whether a user is planned to leave a shard.

        Raises:
            StoreError: The database cannot be read.
        """

        def read(connection: Connection) -> bool:
            with psycopg.RawCursor(connection) as cursor:
                row = cursor.execute(_PLANNED, (number,)).fetchone()
            return bool(row and row[0])

        return self._read(read)

    def name_users(self, users: Sequence[str], shard: int) -> None:
        """Check that users lie in a shard, before their rows are copied into it.

        Raises:
            UsageError: A user lies in another shard.
        """
        for user in users:
            if (found := self.find(user)).number != shard:
                raise UsageError(
                    f"user {user!r} belongs to shard {found.number}, and not to shard {shard}"
                )

    def close(self) -> None:
        """Close the connection; the next read opens it again."""
        with self._alone:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, again on a new connection when the open one was lost."""
        with self._alone, translate_errors(self._where):
            if self._connection is not None:
                with suppress(psycopg.Error):
                    return work(self._connection)
                self._connection.close()
            self._connection = connect(self.address, autocommit=True)
            try:
                return work(self._connection)
            except psycopg.Error as error:
                if not is_lost(error):
                    self._connection.close()
                    self._connection = None
                raise

    @property
    def _where(self) -> str:
        return where(self.address)


def shards_of(connection: Connection, address: str) -> list[Shard]:
    """Return all shards of the map in a database, by number.

    Args:
        connection: To the database of the map.
        address: The address of that database, for the shards that lie in it.
    """
    rows: Sequence[tuple[int, str | None]] = connection.execute(_SHARDS).fetchall()
    return [Shard(number, other or address) for number, other in rows]


@cache
def shard_map_of(address: str) -> ShardMap:
    """Return the map of a database, which all parts of this process share."""
    return ShardMap(address)

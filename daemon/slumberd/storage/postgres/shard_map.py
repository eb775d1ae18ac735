"""The map of shards: where each shard lies, and which of them has a user.

A shard is a complete store in a schema of its own. The map lies in the schema ``slumberd`` of the
database that a configuration names. A shard lies in that database, or in another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psycopg

from slumberd.errors import UsageError, UserMovingError
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors

POSITIONS = 1_024
"""How many positions the users are spread over; each position belongs to one shard."""

_SHARDS = b"SELECT number, address FROM slumberd.list_shards()"
_USERS = b"SELECT shard, moving_to FROM slumberd.find_users($1::text[])"


class Shard(NamedTuple):
    """A shard.

    Attributes:
        number: Its number, from 0.
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


class ShardMap:
    """Reads the map of shards of a database; each call opens a connection.

    Args:
        address: The address of the database that has the map.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def shards(self) -> list[Shard]:
        """Return all shards, by number.

        Raises:
            StoreError: The database cannot be read.
            SchemaError: It has no map of shards.
        """
        with connect(self.address, read_only=True) as connection, translate_errors(self._where):
            return shards_of(connection, self.address)

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
        """Return the shard that has a user.

        Raises:
            UserMovingError: The user is being moved to another shard.
            StoreError: The database cannot be read.
        """
        with (
            connect(self.address, read_only=True) as connection,
            translate_errors(self._where),
            psycopg.RawCursor(connection) as cursor,
        ):
            row = cursor.execute(_USERS, ([user],)).fetchone()
            shards = shards_of(connection, self.address)
        number, moving_to = row or (0, None)
        if moving_to is not None:
            raise UserMovingError(user, number, moving_to)
        return next(shard for shard in shards if shard.number == number)

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

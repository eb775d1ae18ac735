"""Find the shards of a database, and the shard of a user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from slumberd.errors import UsageError
from slumberd.model.scope import ScopeFilter, escape
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.installation import check

POSITIONS = 1024
"""How many positions users have; each position belongs to one shard."""

_SHARDS = b"SELECT shard FROM slumberd.shards ORDER BY shard"


class Shard(NamedTuple):
    """A complete store: the episodes, facts and ledger of some users.

    Attributes:
        number: Its number, from 0; it is the name of the shard everywhere.
        address: The address of its database.
        schema: Its schema there.
    """

    number: int
    address: str
    schema: str


def position_of(user: str) -> int:
    """Return the position of a user; the database computes the same."""
    return int.from_bytes(sha256(f"/user/{escape(user)}/".encode()).digest()[:4]) % POSITIONS


class ShardMap:
    """The shards of a database, and which of them holds a user.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._shards: list[Shard] = []

    def shards(self) -> list[Shard]:
        """Return the shards, by number.

        Raises:
            SchemaError: The database has no schema of slumberd, or that of another version.
            StoreError: The database cannot be read.
        """
        if not self._shards:
            place = where(self._address)
            with connect(self._address, read_only=True) as connection, translate_errors(place):
                check(connection, place=place)
                rows = connection.execute(_SHARDS).fetchall()
            self._shards = [Shard(number, self._address, "slumberd") for (number,) in rows]
        return [*self._shards]

    def shard(self, number: int) -> Shard:
        """Return a shard.

        Raises:
            UsageError: There is no such shard.
            StoreError: The database cannot be read.
        """
        shards = self.shards()
        for shard in shards:
            if shard.number == number:
                return shard
        numbers = ", ".join(str(shard.number) for shard in shards)
        raise UsageError(f"{where(self._address)!r} has no shard {number}; it has {numbers}")

    def find(self, user: str) -> Shard:
        """Return the shard of a user, who may have nothing in it yet.

        Raises:
            MemoryScopeError: No user can have that name.
            UserMovingError: The user is being moved to another shard.
            StoreError: The database cannot be read.
        """
        ScopeFilter.of(user, None, None)
        shards = self.shards()
        return shards[position_of(user) % len(shards)]

    def name_users(self, users: Sequence[str], shard: int) -> None:
        """Let users lie in a shard, whatever their positions say.

        Raises:
            UsageError: A user would lie in another shard.
        """
        for user in users:
            if (found := self.find(user)).number != shard:
                raise UsageError(
                    f"user {user!r} belongs to shard {found.number}, and not to shard {shard}"
                )


@cache
def shard_map_of(address: str) -> ShardMap:
    """Return the map of a database, which all parts of this process share."""
    return ShardMap(address)

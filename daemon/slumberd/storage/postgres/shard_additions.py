"""Add a shard to a map, and plan which users move there.

The new shard gets its share of the positions of users. Users who have content stay where they are,
named in the map, until the daemons of their shards move them one after the other. Each step can be
repeated: a process that ended is followed by the same command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

from slumberd.model.errors import UsageError
from slumberd.storage.engine import Row, Session
from slumberd.storage.erased_scopes import read_erased_list, record_erased_hash
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.connection import connect, translate_errors, where
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import POSITIONS, Shard, ShardMap

T = TypeVar("T")


class PlannedUsers(NamedTuple):
    """Users who are to move from one shard to another."""

    source: int
    target: int
    users: int


class AddedShard(NamedTuple):
    """A shard that was added.

    Attributes:
        where: Its database in words.
        positions: How many of the positions of users it has.
        planned: How many users are to move there, from each shard.
    """

    number: int
    where: str
    positions: int
    planned: list[PlannedUsers]


def add_shard(address: str, place: str | None = None) -> AddedShard:
    """Add a shard to a map, or finish what an earlier call began.

    Args:
        address: The address of the database that has the map; its role may create schemas.
        place: The address of the database of the shard, without a password; None for that of the
            map.

    Raises:
        UsageError: The map has all shards that it can have.
        SchemaError: A server cannot hold the schema.
    """
    begun = _run(address, "", _find_begun)
    number = begun if begun is not None else _create(address, place)
    shards = {shard.number: shard for shard in _shards_of(address)}
    target = shards[number]
    _copy_readers([shard for shard in shards.values() if shard != target], target)
    for source, positions in _left(address, number).items():
        users = _run(shards[source].address, shards[source].schema, _release(source, positions))
        _copy_erased_scopes(shards[source], target)
        _run(address, "", _take(source, number, positions, users))
    positions = _run(address, "", lambda session: _positions_of(session, number))
    _run(
        target.address,
        target.schema,
        lambda session: session.do("moves.have_positions", {"positions": positions}),
    )
    planned = [one for one in left_to_move(address) if one.target == number]
    return AddedShard(number, target.where, len(positions), planned)


def left_to_move(address: str) -> list[PlannedUsers]:
    """Return how many users are to move, or are being moved, by source and target."""
    with connect(address, read_only=True) as connection, translate_errors(where(address)):
        session = PostgresSession(connection, where(address))
        return [PlannedUsers(*row) for row in session.rows("moves.left_to_move")]


def share_of(positions: Iterable[tuple[int, int]], shards: int) -> list[int]:
    """Return the positions that a new shard gets: as few as give each shard an equal share.

    Args:
        positions: Each position with its shard.
        shards: How many shards there are with the new one.
    """
    by_shard: dict[int, list[int]] = {}
    for position, shard in sorted(positions):
        by_shard.setdefault(shard, []).append(position)
    taken: list[int] = []
    while len(taken) < POSITIONS // shards:
        largest = max(sorted(by_shard), key=lambda shard: len(by_shard[shard]))
        taken.append(by_shard[largest].pop())
    return sorted(taken)


def _find_begun(session: Session) -> int | None:
    """Return the shard whose users are not all named yet."""
    begun = Counter(target for *_, target in session.rows("moves.positions") if target is not None)
    return min(begun, default=None)


def _create(address: str, place: str | None) -> int:
    """Create the schema of the next shard, and plan its positions in the map."""
    number = max(shard.number for shard in _shards_of(address)) + 1
    if number >= POSITIONS:
        raise UsageError(f"{where(address)!r} has {number} shards, which is the most")
    installation.create_shard(Shard(number, place or address))

    def plan(session: Session) -> None:
        session.do("moves.lock_map")
        session.do("moves.add_shard", {"number": number, "address": place})
        found = [(position, shard) for position, shard, _ in session.rows("moves.positions")]
        positions = share_of(found, number + 1)
        session.do("moves.plan_positions", {"target": number, "positions": positions})

    _run(address, "", plan)
    return number


def _shards_of(address: str) -> list[Shard]:
    with closing(ShardMap(address)) as shards:
        return shards.shards()


def _left(address: str, number: int) -> dict[int, list[int]]:
    """Return the positions that other shards still have of a new shard."""
    left: dict[int, list[int]] = {}
    for position, shard, target in _run(address, "", _read_positions):
        if target == number:
            left.setdefault(shard, []).append(position)
    return left


def _read_positions(session: Session) -> list[Row]:
    return session.rows("moves.positions")


def _positions_of(session: Session, number: int) -> list[int]:
    return [position for position, shard, _ in _read_positions(session) if shard == number]


def _release(source: int, positions: Sequence[int]) -> Callable[[Session], list[str]]:
    """Return work that lets a shard keep only those users of positions who have content."""

    def release(session: Session) -> list[str]:
        session.do("moves.lock_users")
        session.do("moves.name_users_here", {"number": source, "positions": [*positions]})
        session.do("moves.lack_positions", {"positions": [*positions]})
        found = session.rows("moves.users_here", {"positions": [*positions]})
        return [user for (user,) in found]

    return release


def _take(
    source: int, target: int, positions: Sequence[int], users: Sequence[str]
) -> Callable[[Session], None]:
    """Return work that names the users in the map, and gives the new shard their positions."""

    def take(session: Session) -> None:
        session.insert("moves.plan_users", [(user, source, target) for user in users])
        session.do("moves.end_positions", {"target": target, "positions": [*positions]})

    return take


def _copy_readers(sources: Sequence[Shard], target: Shard) -> None:
    """Copy the users that each login may read: a login without a row reads whom it names."""
    readers = {
        (login, user)
        for source in sources
        for login, user in _run(
            source.address, source.schema, lambda session: session.rows("moves.readers")
        )
    }
    rows = sorted(readers)
    _run(target.address, target.schema, lambda session: session.insert("moves.add_reader", rows))


def _copy_erased_scopes(source: Shard, target: Shard) -> None:
    """Copy the erased scopes: a user without content may be erased, and must not come back."""
    erased = _run(source.address, source.schema, read_erased_list)
    key = erased.key
    if key is None:
        return

    def record(session: Session) -> None:
        for digest, moment in erased.moments.items():
            record_erased_hash(session, key, digest, moment)

    _run(target.address, target.schema, record)


def _run(address: str, schema: str, work: Callable[[Session], T]) -> T:
    """Run work in one transaction, as the owner of the schemas."""
    place = where(address)
    with connect(address, schema) as connection, translate_errors(place):
        session = PostgresSession(connection, place)
        with closing(session):
            session.do("moves.become_owner")
            return work(session)

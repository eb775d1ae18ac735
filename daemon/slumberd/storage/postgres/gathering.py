"""Give each user of a database of 0.2 one shard, and gather the rows that lie in others.

In 0.2, the user and the agent decided the shard. So a user with several agents may have rows in
several shards. The shard with most episodes gets the user; the rows of the others are moved to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import orjson
import psycopg

from slumberd.clock import SystemClock
from slumberd.consolidation.precedence import MultiValued
from slumberd.model.errors import SchemaError
from slumberd.model.moves import Move
from slumberd.storage.ledger.rows import check_key
from slumberd.storage.ledger.state_loader import law_of
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.engine import PostgresFactEngine
from slumberd.storage.postgres.installation import AS_OWNER, MAP, in_schema
from slumberd.storage.postgres.moves import UserMoves
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard, ShardMap

GATHERING_TABLES = f"""CREATE TABLE {MAP}.upgrade_parts (
  "user" text COLLATE "C" NOT NULL,
  shard smallint NOT NULL,
  episodes bigint NOT NULL,
  head bytea NOT NULL
);
CREATE TABLE {MAP}.gathering (
  "user" text COLLATE "C" NOT NULL,
  source smallint NOT NULL,
  target smallint NOT NULL,
  is_begun boolean NOT NULL DEFAULT false
);"""


_COUNT_PARTS = f"""INSERT INTO {MAP}.upgrade_parts ("user", shard, episodes, head)
SELECT replace(replace(name, '%2F', '/'), '%25', '%'), substr('slumberd_0', 10)::smallint,
  sum(episodes), coalesce(
    (SELECT chain FROM slumberd_0.slumberd_ledger ORDER BY seq DESC LIMIT 1), ''
  )
FROM (
  SELECT split_part(scope_key, '/', 3), count(*) FROM slumberd_0.episodes GROUP BY 1
  UNION ALL
  SELECT DISTINCT replace(replace("user", '%', '%25'), '/', '%2F'), 0 FROM slumberd_0.facts
  UNION ALL
  SELECT DISTINCT split_part(key, '/', 1), 0 FROM slumberd_0.slumberd_keys
  UNION ALL
  SELECT DISTINCT split_part(owner, '/', 1), 0 FROM slumberd_0.slumberd_quarantine
) AS parts(name, episodes)
WHERE name != ''
GROUP BY name;"""  # noqa: S608 # our own names

# The shard that has most episodes of a user gets the user.
_PLACE_USERS = f"""INSERT INTO {MAP}.users ("user", shard)
SELECT most."user", most.shard
FROM (
  SELECT DISTINCT ON ("user") "user", shard
  FROM {MAP}.upgrade_parts
  ORDER BY "user", episodes DESC, shard
) AS most
INNER JOIN {MAP}.find_users(ARRAY(SELECT DISTINCT "user" FROM {MAP}.upgrade_parts)) AS found
  ON found.name = most."user"
WHERE found.shard != most.shard;
INSERT INTO {MAP}.gathering ("user", source, target)
SELECT parts."user", parts.shard, found.shard
FROM {MAP}.upgrade_parts AS parts
INNER JOIN {MAP}.find_users(ARRAY(SELECT DISTINCT "user" FROM {MAP}.upgrade_parts)) AS found
  ON found.name = parts."user"
WHERE found.shard != parts.shard;"""  # noqa: S608 # our own names

_TELL_SHARD = f"""INSERT INTO slumberd_0.moved_users ("user", is_here, peer, head)
SELECT users."user", users.shard = own.shard,
  CASE WHEN users.shard = own.shard THEN positions.shard ELSE users.shard END, parts.head
FROM (SELECT substr('slumberd_0', 10)::smallint) AS own(shard)
CROSS JOIN {MAP}.users AS users
INNER JOIN {MAP}.positions AS positions ON positions.position = slumberd_0.position_of(
  replace(replace(users."user", '%', '%25'), '/', '%2F')
)
INNER JOIN {MAP}.upgrade_parts AS parts
  ON parts."user" = users."user" AND parts.shard = users.shard
WHERE own.shard IN (users.shard, positions.shard);"""  # noqa: S608 # our own names


def count_parts(schema: str) -> str:
    """Return the statement that counts the episodes of each user of a shard."""
    return in_schema(_COUNT_PARTS, schema)


def place_users(numbers: list[int]) -> list[str]:
    """Return the statements that give each user a shard, and list the rows to gather."""
    tell = [in_schema(_TELL_SHARD, Shard(number, "").schema) for number in numbers]
    return [_PLACE_USERS, *tell, f"DROP TABLE {MAP}.upgrade_parts;"]


_OLD_SETTINGS = b"""
SELECT depth.value, key.value,
  (
    SELECT multi_valued FROM slumberd.channels AS channels
    WHERE channels.shard = depth.shard
    ORDER BY seq DESC LIMIT 1
  ),
  (
    SELECT payload FROM slumberd.ledger AS ledger
    WHERE ledger.shard = depth.shard AND ledger.seq = last.n
  )
FROM slumberd.numbers AS depth
INNER JOIN slumberd.numbers AS key ON key.shard = depth.shard AND key.name = 'key'
INNER JOIN (SELECT shard, max(n) AS n FROM slumberd.firings GROUP BY shard) AS last
  ON last.shard = depth.shard
WHERE depth.name = 'depth'
"""


def check_settings(connection: Connection, place: str, key: bytes | None) -> None:
    """Check that users can be moved between the shards of an old database; before its upgrade.

    Raises:
        LedgerKeyError: The ledgers have another key.
        SchemaError: The shards resolve claims in different ways.
    """
    session = PostgresSession(connection, place, key=key)
    settings = set()
    for depth, recorded_key, multi_valued, firing in connection.execute(_OLD_SETTINGS):
        check_key(session, recorded_key)
        multi = MultiValued.from_document(orjson.loads(multi_valued) if multi_valued else {})
        channels = orjson.dumps(multi.document())
        settings.add((depth, channels, law_of(session, firing)))
        if multi.former is not None or len(settings) > 1:
            problem = "has shards with other channels, another law or another depth of lineage"
            remedy = "start the daemons of the old version, let them `reload`, and stop them again"
            raise SchemaError(place, problem, remedy)


def gather(connection: Connection, shard_map: ShardMap, key: bytes | None) -> Iterator[str]:
    """Move the rows of users that lie in other shards than their own.

    A user is first given to the shard that has some of the rows, and moved from there as any other.
    """
    [(gathered,)] = connection.execute(_LEFT_TO_GATHER)
    if not gathered:
        return
    with _moving(shard_map, key) as move:
        while row := connection.execute(_NEXT_TO_GATHER).fetchone():
            user, source, target, is_begun = row
            part = (user, source)
            if not is_begun:
                give = _GIVE_IN_MAP, _give(source, is_here=True), _give(target, is_here=False)
                _execute(connection, [(statement, part) for statement in (*give, _BEGIN)])
            if _is_to_move(connection, user, source):
                move(user, source, target)
            _execute(connection, [(_END, part)])
    yield f"{gathered} parts of users whom several shards had"


@contextmanager
def _moving(shard_map: ShardMap, key: bytes | None) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what moves a user from a shard to another one."""
    sources: dict[int, UserMoves] = {}
    engines: list[PostgresFactEngine] = []
    with asyncio.Runner() as runner:

        def open_source(number: int) -> UserMoves:
            engine = PostgresFactEngine(shard_map.shard(number), key=key)
            engines.append(engine)
            runner.run(engine.take())
            depth = runner.run(engine.read(lambda s: s.value("ledger.number", ("depth",))))
            return UserMoves(engine, shard_map, depth=depth, key=key)

        def move(user: str, source: int, target: int) -> None:
            if source not in sources:
                sources[source] = open_source(source)
            request = Move(user, target, SystemClock().now(), "slumberd postgres upgrade")
            runner.run(sources[source].move(request))

        try:
            yield move
        finally:
            for engine in engines:
                runner.run(engine.close())


_LEFT_TO_GATHER = b"SELECT count(*) FROM slumberd.gathering"
_NEXT_TO_GATHER = b"""
SELECT "user", source, target, is_begun FROM slumberd.gathering ORDER BY is_begun DESC LIMIT 1
"""
_GIVE_IN_MAP = b"""
INSERT INTO slumberd.users ("user", shard) VALUES ($1, $2::smallint)
ON CONFLICT (digest) DO UPDATE SET shard = excluded.shard, moving_to = NULL
"""
_BEGIN = b'UPDATE slumberd.gathering SET is_begun = true WHERE "user" = $1 AND source = $2'
_END = b'DELETE FROM slumberd.gathering WHERE "user" = $1 AND source = $2'


def _give(number: int, *, is_here: bool) -> bytes:
    """Return the statement that says whether a shard has a user."""
    return f"""
INSERT INTO {Shard(number, "").schema}.moved_users ("user", is_here, peer, head)
VALUES ($1, {is_here}, $2::smallint, '')
ON CONFLICT (digest) DO UPDATE SET is_here = excluded.is_here
""".encode()  # noqa: S608 # our own names


def _is_to_move(connection: Connection, user: str, source: int) -> bool:
    """Return whether a shard still has a user, or is being left."""
    schema = Shard(source, "").schema
    asked = f"""SELECT is_here OR leaves_for IS NOT NULL
FROM {schema}.moved_users WHERE digest = {schema}.digest($1)"""  # noqa: S608 # our own names
    with psycopg.RawCursor(connection) as cursor:
        return cursor.execute(asked.encode(), (user,)).fetchone() == (True,)


def _execute(connection: Connection, statements: list[tuple[bytes, tuple[object, ...]]]) -> None:
    with connection.transaction(), psycopg.RawCursor(connection) as cursor:
        cursor.execute(AS_OWNER.encode())
        for statement, values in statements:
            cursor.execute(statement, values)

"""A database that an older version made is upgraded to a schema for each shard, and keeps all rows.

Kept databases have the step 1 of 0.2.0, or the step 2 that came after it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from slumberd import FactPattern, PostgresFactStore, PostgresMemoryStore
from slumberd.model.errors import (
    DatabaseHeldError,
    LedgerKeyError,
    PermissionDeniedError,
    SchemaError,
    StoreBusyError,
)
from slumberd.model.moves import Move, MovedUser
from slumberd.storage.postgres import installation, upgrade
from slumberd.storage.postgres.connection import Connection
from slumberd.storage.postgres.moves import UserMoves
from slumberd.storage.postgres.shard_map import ShardMap
from tests.support.builders import rule
from tests.support.cli_runner import called
from tests.support.forked_commands import start_command
from tests.support.installation import environment
from tests.support.postgres_server import PostgresServer
from tests.support.release_files import kept_facts, kept_statements
from tests.support.sample_sizes import amount
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

KEPT = [
    pytest.param(("0.2.0", 1), id="0.2.0, one shard"),
    pytest.param(("0.2.0", 3), id="0.2.0, three shards"),
    pytest.param(("step2", 3), id="step 2, three shards"),
]
TABLES = (
    "accesses", "channels", "claim_references", "episode_deletions", "episode_log", "episodes",
    "extractions", "facts", "firings", "generations", "held_batches", "inbox", "keys", "ledger",
    "log_ends", "model_requests", "model_summaries", "model_usage", "paused_rules", "quarantine",
    "successes", "unfinished_erasures", "watermark",
)  # fmt: skip
"""The old tables with the column ``shard`` whose rows are copied as they are."""

SAME_NAME = ("episodes", "facts", "inbox", "log_ends", "paused_rules")
OTHER_NUMBERS = {"log_ends": "id", "inbox": "n"}
"""A column whose values may differ, by the table."""

RARE = [
    "INSERT INTO slumberd.accesses VALUES (1, 'e', '/user/u/session/s/agent/a/', 3, 7, 1)",
    "INSERT INTO slumberd.extractions VALUES (1, 'k', 'e', 'm', 's', 't', 1, 'p', 'a', 2, 3)",
    "INSERT INTO slumberd.generations VALUES (1, 1, 5)",
    "INSERT INTO slumberd.held_batches VALUES (1, 'r', 1, 2, 'e', 'p', 0)",
    "INSERT INTO slumberd.model_requests VALUES (1, 'e', 'i', 's', 'k', 'r')",
    "INSERT INTO slumberd.model_summaries VALUES (1, 'k', 'e', 'm', 's', 't', 'p', 1, 2)",
    "INSERT INTO slumberd.model_usage VALUES (1, '2026-11-29', 1, 2, 3, 4)",
    "INSERT INTO slumberd.paused_rules VALUES (1, 'profile', '{}')",
    "INSERT INTO slumberd.unfinished_erasures VALUES (1, 's', 'x', 1, 'me')",
]
"""A row of each table of which the kept databases have none."""

Rows = dict[tuple[int, str], list[Any]]


@contextmanager
def kept_database(postgres: PostgresServer, version: str, shards: int) -> Iterator[str]:
    with postgres.empty_database() as name:
        postgres.run(installation.roles(), database=name)
        postgres.run(kept_statements(version, shards=shards), database=name)
        yield name


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[str]:
    version, shards = request.param
    with kept_database(postgres, version, shards) as name:
        yield name


@pytest.fixture
def divided(postgres: PostgresServer) -> Iterator[str]:
    with kept_database(postgres, "step2", 3) as name:
        yield name


def upgraded(postgres: PostgresServer, name: str) -> list[str]:
    return [*upgrade.upgrade(postgres.address_of(name))]


def upgraded_up_to(postgres: PostgresServer, name: str, last: str) -> None:
    """Upgrade a database, and end after the transaction with a title."""
    with closing(upgrade.upgrade(postgres.address_of(name))) as changes:
        assert last in iter(changes)


def shards_of(address: str) -> list[int]:
    with closing(ShardMap(address)) as shard_map:
        return [shard.number for shard in shard_map.shards()]


def shard_of(address: str, user: str) -> int:
    with closing(ShardMap(address)) as shard_map:
        return shard_map.find(user).number


def old_rows(postgres: PostgresServer, name: str) -> Rows:
    """Return the rows of the old tables by shard and new name, without the column of the shard."""
    found = {}
    for number in [row[0] for row in postgres.rows("SELECT shard FROM slumberd.shards", name)]:
        for table in TABLES:
            asked = rows_in(f"slumberd.{table}", table)
            if table != "model_requests" or postgres.rows(HAS_REQUESTS, name):
                found[number, table] = in_order(
                    postgres.rows(f"{asked} WHERE shard = {number}", name)
                )
    return found


HAS_REQUESTS = "SELECT 1 FROM pg_tables WHERE tablename = 'model_requests'"


def rows_in(place: str, table: str) -> str:
    other = OTHER_NUMBERS.get(table, "shard")
    return f"SELECT to_jsonb(t) - 'shard' - '{other}' FROM {place} AS t"


def new_rows(postgres: PostgresServer, name: str, old: Rows) -> Rows:
    """Return the rows of the new tables, by the same shards and old names."""
    return {
        (number, table): in_order(
            postgres.rows(rows_in(f"slumberd_{number}.{new_name(table)}", table), name)
        )
        for number, table in old
    }


def new_name(table: str) -> str:
    return table if table in SAME_NAME else f"slumberd_{table.removeprefix('claim_')}"


def in_order(rows: list[tuple[dict[str, Any]]]) -> list[Any]:
    return sorted((row for (row,) in rows), key=repr)


def test_every_row_of_each_shard_is_kept(postgres: PostgresServer, kept: str) -> None:
    before = old_rows(postgres, kept)
    shards = {number for number, _ in before}

    upgraded_up_to(postgres, kept, "shard 0" if len(shards) == 1 else "places of the users")

    assert new_rows(postgres, kept, before) == before


def test_every_table_is_copied(postgres: PostgresServer, divided: str) -> None:
    postgres.run(*RARE, database=divided)
    before = old_rows(postgres, divided)
    assert {table for (_, table), rows in before.items() if rows} == {*TABLES}

    upgraded_up_to(postgres, divided, "places of the users")

    assert new_rows(postgres, divided, before) == before


async def test_each_ledger_verifies_and_no_version_is_read_again(
    postgres: PostgresServer, kept: str
) -> None:
    unread = [eid for (eid,) in postgres.rows("SELECT eid FROM slumberd.inbox", kept)]
    await asyncio.to_thread(upgraded, postgres, kept)

    address = postgres.address_of(kept)
    read = []
    profile = rule("profile", when_filter="predicate IS NOT NULL")
    for number in shards_of(address):
        async with (
            PostgresFactStore(address, shard=number) as facts,
            PostgresMemoryStore(address, shard=number) as memory,
        ):
            await facts.bootstrap()
            assert (await facts.verify())[2] is None
            window = await facts.next_window("profile")
            found = await memory.consolidate(profile, window=window)
            read += [version.id for version in found.versions]
    assert read == unread


async def test_facts_of_0_2_0_are_those_that_it_printed(postgres: PostgresServer) -> None:
    with kept_database(postgres, "0.2.0", 1) as name:
        await asyncio.to_thread(upgraded, postgres, name)

        async with PostgresFactStore(postgres.address_of(name)) as facts:
            found = sorted(fact.id for fact in await facts.query(FactPattern()))
    assert found == sorted(fact["id"] for fact in kept_facts("0.2.0"))


PUT = """
SELECT slumberd_{shard}.put(ARRAY['{id}'], ARRAY['/user/{user}/session/s/agent/{agent}/'],
  ARRAY['{{}}'::bytea], ARRAY['2026-10-01T00:00:00+00:00'], ARRAY['{{}}'::bytea])
"""


def test_erased_scopes_stay_erased_in_the_shard_of_their_user(
    postgres: PostgresServer, divided: str
) -> None:
    upgraded(postgres, divided)

    for user, agent, outcome in (
        ("user/8", "a", "erased"),
        ("bob", "b", "erased"),
        ("x", "a", "new"),
    ):
        shard = shard_of(postgres.address_of(divided), user)
        key = user.replace("/", "%2F")
        put = PUT.format(shard=shard, id=f"again {user}", user=key, agent=agent)
        assert postgres.rows(put, divided) == [([outcome],)], user


def test_next_numbers_follow_the_old_ones(postgres: PostgresServer, divided: str) -> None:
    [(last,)] = postgres.rows("SELECT last_value FROM slumberd.episode_numbers", divided)

    upgraded_up_to(postgres, divided, "places of the users")

    for number in range(3):
        following = f"SELECT nextval('slumberd_{number}.episode_numbers')"
        assert postgres.rows(following, divided) == [(last + 1,)]


def test_what_else_a_database_had_is_kept(postgres: PostgresServer, divided: str) -> None:
    postgres.login("reads_ann", "slumberd_reader")
    postgres.run(
        "INSERT INTO slumberd.reader_users VALUES ('reads_ann', 'ann')",
        'ALTER TABLE slumberd.facts ADD COLUMN "my note" text',
        'UPDATE slumberd.facts SET "my note" = fact_id',
        "INSERT INTO slumberd.store_migrations VALUES ('facts', 2, '2026')",
        "INSERT INTO slumberd.rule_sets VALUES (1, 'h', '{}', now(), 'me', 'why')",
        database=divided,
    )

    upgraded_up_to(postgres, divided, "places of the users")

    seen = set()
    as_reader = postgres.address_of(divided, login="reads_ann")
    for number in range(3):
        with psycopg.connect(as_reader) as reader:
            asked = f'SELECT "user", fact_id = "my note" FROM slumberd_{number}.facts'
            seen |= {*reader.execute(asked.encode())}
        assert postgres.rows(
            f"SELECT version FROM slumberd_{number}.store_migrations", divided
        ) == [(2,)]
    assert seen == {("ann", True)}
    assert postgres.rows("SELECT version FROM slumberd.rule_sets", divided) == [(1,)]


def test_upgraded_database_has_the_objects_of_a_new_one(
    postgres: PostgresServer, divided: str
) -> None:
    upgraded(postgres, divided)

    with postgres.database(shards=3) as new:
        assert postgres.rows(OBJECTS, divided) == postgres.rows(OBJECTS, new)


OBJECTS = """
SELECT relnamespace::regnamespace::text, relkind::text, relname::text, relowner::regrole::text,
  relacl::text, reloptions::text, relrowsecurity, relforcerowsecurity
FROM pg_class
WHERE relnamespace::regnamespace::text ~ '^slumberd'
UNION ALL
SELECT pronamespace::regnamespace::text, 'function', proname::text, proowner::regrole::text,
  proacl::text, prosrc, prosecdef, false
FROM pg_proc
WHERE pronamespace::regnamespace::text ~ '^slumberd'
ORDER BY 1, 2, 3
"""


# Users


def owners(postgres: PostgresServer, name: str, tables: str) -> dict[str, Counter[int]]:
    """Return how many episodes of each user each shard has."""
    counts: dict[str, Counter[int]] = {}
    for number in range(3):
        owner = "replace(split_part(scope_key, '/', 3), '%2F', '/')"
        asked = f"SELECT {owner}, count(*) FROM {tables.format(number)} GROUP BY 1"
        for user, count in postgres.rows(asked, name):
            counts.setdefault(user, Counter())[number] = count
    return counts


def all_facts(postgres: PostgresServer, name: str, tables: str) -> list[Any]:
    facts = [
        postgres.rows(f"SELECT to_jsonb(t) - 'shard' FROM {tables.format(number)} AS t", name)
        for number in range(3)
    ]
    return in_order([*itertools.chain(*facts)])


def places_of(postgres: PostgresServer, name: str, user: str) -> list[int]:
    """Return the shards that take episodes of a user."""
    key = user.replace("/", "%2F")
    return [
        number
        for number in range(3)
        if postgres.rows(f"SELECT slumberd_{number}.is_here('{key}')", name) == [(True,)]
    ]


def test_shard_with_most_episodes_of_a_user_gets_all_of_them(
    postgres: PostgresServer, divided: str
) -> None:
    before = owners(postgres, divided, "slumberd.episodes_{}")
    assert [len(before[user]) for user in ("ann", "bob")] == [3, 2]

    upgraded(postgres, divided)

    after = owners(postgres, divided, "slumberd_{}.episodes")
    for user, counts in before.items():
        [(place, count)] = after[user].items()
        assert counts[place] == max(counts.values())
        assert count == counts.total()


def test_facts_of_gathered_users_are_the_same(postgres: PostgresServer, divided: str) -> None:
    before = all_facts(postgres, divided, "slumberd.facts_{}")

    upgraded(postgres, divided)

    assert all_facts(postgres, divided, "slumberd_{}.facts") == before


def test_each_user_is_in_one_shard_which_the_map_names(
    postgres: PostgresServer, divided: str
) -> None:
    upgraded(postgres, divided)

    address = postgres.address_of(divided)
    for user in ("ann", "bob", "zed", *(f"user/{number}" for number in range(9)), "new"):
        assert places_of(postgres, divided, user) == [shard_of(address, user)]


def test_gathering_that_is_interrupted_goes_on(
    postgres: PostgresServer, divided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = all_facts(postgres, divided, "slumberd.facts_{}")
    move = UserMoves.move
    stops: Counter[tuple[str, int]] = Counter()

    async def stop_before_and_after(self: UserMoves, request: Move) -> MovedUser:
        part = (request.user, self._source)
        stops[part] += 1
        if stops[part] == 1:
            raise _Killed
        moved = await move(self, request)
        if stops[part] == 2:
            raise _Killed
        return moved

    monkeypatch.setattr(UserMoves, "move", stop_before_and_after)
    while True:
        with suppress(_Killed):
            upgraded(postgres, divided)
            break

    assert len(stops) == 4
    assert {*stops.values()} == {2}
    assert all_facts(postgres, divided, "slumberd_{}.facts") == facts
    assert installation.examine(postgres.address_of(divided)).shards == 3


def test_shards_that_resolve_claims_in_different_ways_are_refused_untouched(
    postgres: PostgresServer, divided: str
) -> None:
    change = "UPDATE slumberd.numbers SET value = 9 WHERE name = 'depth' AND shard = 1"
    postgres.run(change, database=divided)
    before = postgres.dump(divided)

    with pytest.raises(SchemaError, match=r"another depth of lineage; .*reload"):
        upgraded(postgres, divided)

    assert postgres.dump(divided) == before


def test_ledgers_with_a_key_need_it(postgres: PostgresServer, divided: str) -> None:
    postgres.run("UPDATE slumberd.numbers SET value = 9 WHERE name = 'key'", database=divided)
    before = postgres.dump(divided)

    with pytest.raises(LedgerKeyError, match="the ledger has a key"):
        upgraded(postgres, divided)

    assert postgres.dump(divided) == before


# What is refused, and what interrupts


def test_older_database_is_refused_untouched_until_it_is_upgraded(
    postgres: PostgresServer, kept: str
) -> None:
    before = postgres.dump(kept)

    with pytest.raises(SchemaError, match=r"step 3 .*is missing.*postgres upgrade.*pg_dump"):
        installation.examine(postgres.address_of(kept))

    assert postgres.dump(kept) == before


def test_database_that_a_daemon_holds_is_refused_untouched(
    postgres: PostgresServer, divided: str
) -> None:
    hold = "UPDATE slumberd.shards SET holder = 'a host', held_until = now() + interval '1 minute'"
    postgres.run(f"{hold} WHERE shard = 2", database=divided)
    before = postgres.dump(divided)

    with pytest.raises(DatabaseHeldError, match="held by another slumberd"):
        upgraded(postgres, divided)

    assert postgres.dump(divided) == before


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE slumberd.ledger RENAME COLUMN salt TO pepper",
        "ALTER TABLE slumberd.quarantine ALTER COLUMN version TYPE text",
        "ALTER TABLE slumberd.held_batches DROP COLUMN problem",
        "DROP TABLE slumberd.successes",
    ],
)
def test_damaged_database_is_refused_untouched(
    postgres: PostgresServer, divided: str, damage: str
) -> None:
    postgres.run(damage, database=divided)
    before = postgres.dump(divided)

    with pytest.raises(SchemaError, match=r"does not have the tables of 0\.2.*restore a backup"):
        upgraded(postgres, divided)

    assert postgres.dump(divided) == before


class _Killed(BaseException):
    """The process ends here; what it has not committed is lost."""


def kill_at(patch: pytest.MonkeyPatch, last: int) -> None:
    """Let an upgrade end before its statement with a number."""
    done: list[Connection] = []
    execute = Connection.execute

    def run(self: Connection, query: bytes, *args: Any, **keywords: Any) -> Any:
        # The upgrade's own connection begins with a lock; others open connections of their own.
        if b"pg_advisory_lock" in query:
            done.append(self)
        elif self in done:
            if len(done) > last:
                raise _Killed
            done.append(self)
        return execute(self, query, *args, **keywords)

    patch.setattr(Connection, "execute", run)


CHANGING_TIMES = re.compile(r"'\d{4}-\d\d-\d\d \d\d:[^']*'")


def dump_of(postgres: PostgresServer, name: str) -> str:
    return CHANGING_TIMES.sub("", postgres.dump(name))


def test_upgrade_killed_before_any_statement_is_finished_by_the_next_one(
    postgres: PostgresServer, divided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_database(postgres, "step2", 3) as whole:
        upgraded_up_to(postgres, whole, "places of the users")
        expected = dump_of(postgres, whole)

    step = amount(9, full=1)
    address = postgres.address_of(divided)
    changes = []
    while change := kill_in_next_change(address, monkeypatch, step):
        changes.append(change)
        if change == "places of the users":
            assert dump_of(postgres, divided) == expected
        if change != "all schemas":
            with pytest.raises(SchemaError, match="is being upgraded"):
                installation.examine(address)

    assert len(changes) == 7
    assert installation.examine(address).shards == 3


def kill_in_next_change(address: str, monkeypatch: pytest.MonkeyPatch, step: int) -> str | None:
    """Kill an upgrade before each statement of its next transaction, then let it commit this one.

    Returns:
        What the transaction did; None when nothing is left to do.
    """
    for last in itertools.count(0, step):
        with (
            monkeypatch.context() as patch,
            closing(upgrade.upgrade(address)) as changes,
            suppress(_Killed),
        ):
            kill_at(patch, last)
            return next(changes, None)
    raise AssertionError("an upgrade has an end")


BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"


def test_killed_process_leaves_what_it_had_committed(
    postgres: PostgresServer, divided: str
) -> None:
    address = postgres.address_of(divided)
    with psycopg.connect(address) as reader:
        reader.execute("LOCK TABLE slumberd.ledger_1 IN ACCESS SHARE MODE")
        command = [sys.executable, "-m", "slumberd", "postgres", "upgrade", address]
        process = start_command(command, environment({}))
        waiting = f"{BLOCKED} pg_database WHERE datname = '{divided}')"
        wait_until(lambda: postgres.rows(waiting, divided) == [(1,)])
        process.kill()
        process.wait(PATIENCE_SECONDS)
        assert process.stderr is not None
        process.stderr.close()

    wait_until(lambda: postgres.rows(waiting, divided) == [(0,)])
    with pytest.raises(SchemaError, match="is being upgraded"):
        installation.examine(address)
    titles = upgraded(postgres, divided)
    assert titles[0] == "shard 1"
    assert installation.examine(address).shards == 3


def test_put_that_has_begun_is_kept_and_a_later_one_fails(
    postgres: PostgresServer, divided: str
) -> None:
    address = postgres.address_of(divided)
    put = PUT.format(shard=0, id="late", user="late", agent="a").replace("slumberd_0.", "slumberd.")
    with psycopg.connect(address) as host:
        host.execute(put.encode())
        with pytest.raises(StoreBusyError):
            upgraded(postgres, divided)
        with pytest.raises(psycopg.errors.UndefinedFunction), psycopg.connect(address) as other:
            other.execute(put.encode())
        host.commit()

    upgraded(postgres, divided)

    shard = shard_of(address, "late")
    assert postgres.rows(f"SELECT 1 FROM slumberd_{shard}.episodes WHERE id = 'late'", divided)


def test_printed_statements_do_the_same(postgres: PostgresServer) -> None:
    with (
        kept_database(postgres, "0.2.0", 1) as made,
        kept_database(postgres, "0.2.0", 1) as printed,
    ):
        script = called("postgres", "upgrade", postgres.address_of(printed), "--print")
        postgres.run(script.stdout, database=printed)
        upgraded(postgres, made)

        assert dump_of(postgres, printed) == dump_of(postgres, made)


def test_upgrade_without_the_right_to_create_schemas_changes_nothing(
    postgres: PostgresServer, divided: str
) -> None:
    postgres.login("a_daemon", "slumberd_daemon")
    before = postgres.dump(divided)

    with pytest.raises(PermissionDeniedError):
        assert [*upgrade.upgrade(postgres.address_of(divided, login="a_daemon"))]

    assert postgres.dump(divided) == before

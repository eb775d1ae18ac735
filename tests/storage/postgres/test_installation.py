"""The schema: created once, upgraded step by step, printed for a person, and checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slumberd.errors import SchemaError, UsageError
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import parts_of, where
from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.fact_store import PostgresFactStore
from tests.support.cli_runner import called
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    with postgres.empty_database() as name:
        yield postgres.address_of(name)


ADD = "INSERT INTO slumberd.migrations (number, name, works_with)"
OBJECTS = """
SELECT relkind::text, relname::text, relowner::regrole::text, relacl::text
FROM pg_class WHERE relnamespace = 'slumberd'::regnamespace ORDER BY 1, 2
"""


@pytest.mark.path
def test_printed_statements_make_the_same_schema(postgres: PostgresServer) -> None:
    with postgres.empty_database() as printed, postgres.empty_database() as made:
        script = called("postgres", "init", postgres.address_of(made), "--shards", "2", "--print")
        postgres.run(script.stdout, database=printed)
        installation.install(postgres.address_of(made), shards=2)

        assert postgres.rows(OBJECTS, printed) == postgres.rows(OBJECTS, made)
        assert installation.examine(postgres.address_of(printed)).shards == 2


def test_schema_is_created_once_and_all_or_nothing(postgres: PostgresServer, empty: str) -> None:
    with pytest.raises(SchemaError, match="has no schema of slumberd"):
        installation.upgrade(empty)
    with pytest.raises(UsageError, match="shards is 0"):
        installation.install(empty, shards=0)
    installation.install(empty)
    with pytest.raises(SchemaError, match="has the schema of slumberd already"):
        installation.install(empty)
    assert installation.upgrade(empty) == []


@pytest.mark.path
async def test_store_says_how_to_create_and_to_upgrade_the_schema(
    postgres: PostgresServer, empty: str
) -> None:
    async with PostgresFactStore(empty) as facts:
        with pytest.raises(SchemaError, match="slumberd postgres init"):
            await facts.bootstrap()
        installation.install(empty)
        await facts.bootstrap()
        database = empty.rpartition("/")[2]
        postgres.run("DELETE FROM slumberd.migrations", database=database)
        with pytest.raises(SchemaError, match="unknown steps: none"):
            await facts.bootstrap()
        postgres.run(f"{ADD} VALUES (1, '', 1)", database=database)
        with pytest.raises(SchemaError, match=r"older schema; step 2 .*postgres migrate"):
            await facts.bootstrap()
        postgres.run(f"{ADD} VALUES (2, '', 2), (98, '', 1), (99, '', 99)", database=database)
        with pytest.raises(SchemaError, match="newer slumberd: step 99"):
            await facts.bootstrap()
        with pytest.raises(SchemaError, match="newer slumberd: step 99"):
            installation.upgrade(empty)


@pytest.mark.path
def test_missing_step_is_printed_and_run(
    postgres: PostgresServer, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.install(empty)
    known = installation.migrations()
    step = installation.Migration(3, "add a note", "ALTER TABLE slumberd.hosts ADD note text;", 3)
    monkeypatch.setattr(installation, "migrations", lambda: [*known, step])

    assert step.sql in installation.upgrade_script(empty)
    assert [done.number for done in installation.upgrade(empty)] == [3]
    assert installation.upgrade_script(empty) == "-- The schema is the newest."
    assert postgres.rows("SELECT note FROM slumberd.hosts", empty.rpartition("/")[2]) == []


def test_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(SchemaError, match="has the encoding LATIN1"):
            installation.install(postgres.address_of("latin"))
    finally:
        postgres.run("DROP DATABASE latin")


@pytest.mark.path
def test_commands_create_upgrade_and_check(postgres: PostgresServer, empty: str) -> None:
    missing = called("postgres", "check", empty)
    made = called("postgres", "init", empty)
    again = called("postgres", "migrate", empty)
    checked = called("postgres", "check", empty, "--json")
    postgres.login("a_host", "slumberd_host")
    as_host = called(
        "postgres", "check", postgres.address_of(empty.rpartition("/")[2], login="a_host")
    )

    assert missing.returncode == 74
    assert "slumberd postgres init" in missing.stderr
    assert (made.returncode, again.returncode) == (0, 0)
    assert "the schema is the newest" in again.stderr
    assert '"shards":1,' in checked.stdout
    assert as_host.stdout.splitlines()[-1].endswith("a_host: put")


def test_address_is_shown_without_its_password() -> None:
    address = "postgresql://me:secret@db.example.com:5433/memory?sslmode=require"

    assert where(address) == "postgresql://db.example.com:5433/memory"
    assert "secret" in parts_of(address).values()
    several = "postgresql://me:secret@one:1,two:2/memory?target_session_attrs=read-write"
    assert where(several) == "postgresql://one:1,two:2/memory"
    assert where("postgresql://%2Frun%2Fa,%2Frun%2Fb:3/memory").count(":3") == 1
    with pytest.raises(UsageError) as refused:
        where("postgresql://me:secret@db/memory?nonsense=1")
    assert "secret" not in str(refused.value)


CHANGES = {
    "table gone": "DROP TABLE slumberd.successes",
    "column gone": "ALTER TABLE slumberd.held_batches DROP COLUMN problem",
    "column renamed": "ALTER TABLE slumberd.ledger RENAME COLUMN salt TO pepper",
    "other type": "ALTER TABLE slumberd.quarantine ALTER COLUMN version TYPE text",
    "step gone": "DELETE FROM slumberd.migrations WHERE number = 1",
    "step of nobody": f"{ADD} VALUES (0, '', 0)",
    "newer step": f"{ADD} VALUES (3, '', 3)",
}


@pytest.mark.slow
@pytest.mark.parametrize("sql", CHANGES.values(), ids=CHANGES)
async def test_database_whose_tables_do_not_fit_its_number_is_refused_untouched(
    postgres: PostgresServer, empty: str, sql: str
) -> None:
    installation.install(empty)
    database = empty.rpartition("/")[2]
    postgres.run(sql, database=database)
    before = postgres.dump(database)

    with pytest.raises(SchemaError) as caught:
        async with PostgresFactStore(empty) as facts:
            await facts.bootstrap()
    with pytest.raises(SchemaError):
        installation.upgrade(empty)

    assert caught.value.remedy
    assert postgres.dump(database) == before


@pytest.mark.path
def test_each_step_lists_the_columns_after_it(postgres: PostgresServer, empty: str) -> None:
    installation.install(empty)
    with connect(empty) as connection:
        found = installation.columns_of(connection)

    assert found == sorted(installation.migrations()[-1].columns), (
        "write them into migrations/NNN.columns: " + "\n".join(found)
    )

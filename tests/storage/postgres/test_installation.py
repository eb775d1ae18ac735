"""The schema: created once, upgraded step by step, printed for a person, and checked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import as_file
from pathlib import Path

import pytest

from slumberd.model.errors import SchemaError, StoreError, UsageError
from slumberd.storage.postgres import installation, upgrade
from slumberd.storage.postgres.connection import connect, parts_of, where
from slumberd.storage.postgres.fact_store import PostgresFactStore
from tests.support.cli_runner import called
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    with postgres.empty_database() as name:
        yield postgres.address_of(name)


ADD = "INSERT INTO {}.migrations (number, name, works_with)"
OBJECTS = """
SELECT relnamespace::regnamespace::text, relkind::text, relname::text, relowner::regrole::text,
  relacl::text
FROM pg_class
WHERE relnamespace::regnamespace::text ~ '^slumberd'
ORDER BY 1, 2, 3
"""


@pytest.mark.path
def test_printed_statements_make_the_same_schemas(postgres: PostgresServer) -> None:
    with postgres.empty_database() as printed, postgres.empty_database() as made:
        script = called("postgres", "init", postgres.address_of(made), "--shards", "2", "--print")
        postgres.run(script.stdout, database=printed)
        installation.install(postgres.address_of(made), shards=2)

        assert postgres.rows(OBJECTS, printed) == postgres.rows(OBJECTS, made)
        assert installation.examine(postgres.address_of(printed)).shards == 2


def test_schemas_are_created_once_and_all_or_nothing(postgres: PostgresServer, empty: str) -> None:
    with pytest.raises(SchemaError, match="has no schema of slumberd"):
        upgraded(empty)
    with pytest.raises(UsageError, match="shards is 0"):
        installation.install(empty, shards=0)
    installation.install(empty)
    with pytest.raises(SchemaError, match="has the schema of slumberd already"):
        installation.install(empty)
    assert upgraded(empty) == []


def upgraded(address: str) -> list[str]:
    return [*upgrade.upgrade(address)]


@pytest.mark.path
async def test_store_says_how_to_create_and_to_upgrade_its_schema(
    postgres: PostgresServer, empty: str
) -> None:
    database = empty.rpartition("/")[2]
    add = ADD.format("slumberd_0")
    async with PostgresFactStore(empty) as facts:
        with pytest.raises(SchemaError, match="slumberd postgres init"):
            await facts.bootstrap()
        installation.install(empty)
        await facts.bootstrap()
        postgres.run("DELETE FROM slumberd_0.migrations", database=database)
        with pytest.raises(SchemaError, match=r"older schema; step 3 .*postgres upgrade"):
            await facts.bootstrap()
        postgres.run(f"{add} VALUES (3, '', 3), (98, '', 1), (99, '', 99)", database=database)
        with pytest.raises(SchemaError, match="newer slumberd: step 99"):
            await facts.bootstrap()
        with pytest.raises(SchemaError, match="newer slumberd: step 99"):
            upgraded(empty)
        postgres.run("DROP SCHEMA slumberd_0 CASCADE", database=database)
        with pytest.raises(SchemaError, match=r"has no schema slumberd_0; .*postgres upgrade"):
            await facts.bootstrap()


# A later step


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give slumberd one more step, when the test calls it later."""
    folder = tmp_path / "schema"
    with as_file(installation._folder()) as own:
        shutil.copytree(own, folder)
    (folder / "004_add_notes.map.sql").write_text("ALTER TABLE slumberd.hosts ADD note text;\n")
    (folder / "004_add_notes.shard.sql").write_text(
        "-- works with: step 3\nALTER TABLE slumberd_0.lease ADD note text;\n"
    )
    for file, line in (("map.columns", "hosts note text"), ("shard.columns", "lease note text")):
        with (folder / file).open("a") as columns:
            columns.write(f"{line}\n")
    monkeypatch.setattr(installation, "_folder", lambda: folder)
    return folder


@pytest.fixture
def older(request: pytest.FixtureRequest, postgres: PostgresServer, empty: str) -> str:
    """Provide a database of step 3 with two shards, for a slumberd that knows step 4."""
    installation.install(empty, shards=2)
    request.getfixturevalue("later")
    return empty


NOTES = """
SELECT table_schema, table_name FROM information_schema.columns
WHERE column_name = 'note' ORDER BY 1
"""
ALL_NOTES = [("slumberd", "hosts"), ("slumberd_0", "lease"), ("slumberd_1", "lease")]
TITLES = [f"{name}: step 4 (add notes)" for name in ("slumberd", "slumberd_0", "slumberd_1")]


@pytest.mark.path
def test_missing_step_is_printed_and_run_in_each_schema(
    postgres: PostgresServer, older: str
) -> None:
    database = older.rpartition("/")[2]
    with pytest.raises(SchemaError, match=r"step 4 \(add notes\) is missing; .*postgres upgrade"):
        installation.examine(older)
    script = upgrade.upgrade_script(older)
    assert script.count("ADD note") == 3
    assert "ALTER TABLE slumberd_1.lease" in script
    assert postgres.rows(NOTES, database) == []

    assert upgraded(older) == TITLES

    assert postgres.rows(NOTES, database) == ALL_NOTES
    assert upgraded(older) == []
    assert upgrade.upgrade_script(older) == "-- The schema is the newest."
    assert installation.examine(older).step == 4


def test_upgrade_that_ends_between_two_schemas_goes_on(
    postgres: PostgresServer, older: str
) -> None:
    with closing(upgrade.upgrade(older)) as changes:
        assert [next(changes), next(changes)] == TITLES[:2]
    with pytest.raises(SchemaError, match="step 4"):
        installation.examine(older)

    assert upgraded(older) == TITLES[2:]

    assert installation.examine(older).step == 4


def test_step_that_fails_leaves_its_schema_as_it_was(
    postgres: PostgresServer, older: str, later: Path
) -> None:
    database = older.rpartition("/")[2]
    step = later / "004_add_notes.map.sql"
    before = postgres.dump(database)
    for broken in (f"{step.read_text()}SELECT missing;", "-- It adds no column.\n"):
        step.write_text(broken)

        with pytest.raises(StoreError, match=r"column .missing.|lacks 'hosts note text'"):
            upgraded(older)

        assert postgres.dump(database) == before


def test_step_that_works_with_older_versions_leaves_them_at_work(
    postgres: PostgresServer, older: str, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded(older)
    monkeypatch.undo()
    assert installation.examine(older).step == 3

    newer = "UPDATE slumberd.migrations SET works_with = 4 WHERE number = 4"
    postgres.run(newer, database=older.rpartition("/")[2])
    with pytest.raises(SchemaError, match="newer slumberd: step 4 is unknown here"):
        installation.examine(older)


@pytest.mark.usefixtures("later")
def test_new_database_has_every_step(postgres: PostgresServer, empty: str) -> None:
    installation.install(empty, shards=2)

    assert postgres.rows(NOTES, empty.rpartition("/")[2]) == ALL_NOTES
    assert upgraded(empty) == []


def test_shard_in_another_database_is_upgraded_there(postgres: PostgresServer, older: str) -> None:
    with postgres.empty_database() as other:
        step = installation.steps()[0].statements("slumberd_1")
        create = "CREATE SCHEMA slumberd_1 AUTHORIZATION slumberd_owner"
        postgres.run(create, f"BEGIN; {installation.AS_OWNER} {step} COMMIT", database=other)
        place = (
            f"UPDATE slumberd.shards SET address = '{postgres.address_of(other)}' WHERE number = 1"
        )
        postgres.run(place, database=older.rpartition("/")[2])

        assert f"in {where(postgres.address_of(other))}" in upgrade.upgrade_script(older)
        assert upgraded(older) == TITLES

        assert postgres.rows(NOTES, other) == ALL_NOTES[2:]


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
    again = called("postgres", "upgrade", empty)
    alias = called("postgres", "migrate", empty)
    checked = called("postgres", "check", empty, "--json")
    postgres.login("a_host", "slumberd_host")
    as_host = called(
        "postgres", "check", postgres.address_of(empty.rpartition("/")[2], login="a_host")
    )

    assert missing.returncode == 74
    assert "slumberd postgres init" in missing.stderr
    assert [made.returncode, again.returncode, alias.returncode] == [0, 0, 0]
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
    "table gone": "DROP TABLE slumberd_0.slumberd_successes",
    "column gone": "ALTER TABLE slumberd_0.slumberd_held_batches DROP COLUMN problem",
    "column renamed": "ALTER TABLE slumberd_0.slumberd_ledger RENAME COLUMN salt TO pepper",
    "other type": "ALTER TABLE slumberd_0.slumberd_quarantine ALTER COLUMN version TYPE text",
    "newer step": f"{ADD.format('slumberd_0')} VALUES (4, '', 4)",
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
        installation.examine(empty)

    assert caught.value.remedy
    assert postgres.dump(database) == before


@pytest.mark.path
@pytest.mark.parametrize("schema", [installation.MAP, "slumberd_0"])
def test_columns_of_the_newest_step_are_listed(
    postgres: PostgresServer, empty: str, schema: str
) -> None:
    installation.install(empty)
    with connect(empty) as connection:
        found = installation.columns_of(connection, schema)

    assert found == installation.listed_columns(schema), (
        "write them into schema/map.columns or schema/shard.columns: " + "\n".join(found)
    )

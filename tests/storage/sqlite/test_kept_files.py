"""Files that each release made: later releases open them, and refuse all others untouched."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd import FactPattern, SQLiteFactStore, SQLiteMemoryStore
from slumberd.consolidation.precedence import newest_law
from slumberd.model.errors import LedgerKeyError, SchemaError
from tests.support.builders import START
from tests.support.release_files import FOLDER, kept_facts, put_kept

pytestmark = pytest.mark.integration

BETWEEN = sorted(path.name for path in (FOLDER / "between").iterdir())
OPENED = ("0.2.0",)
"""The releases whose files are opened."""


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }


def number_of(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT component, version FROM slumberd_schema").fetchall()


async def open_both(directory: Path) -> list[str]:
    async with (
        SQLiteMemoryStore(directory / "memory.db") as memory,
        SQLiteFactStore(directory / "facts.db") as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        return sorted(fact.id for fact in await facts.query(FactPattern()))


@pytest.mark.parametrize("version", OPENED)
async def test_files_of_a_release_are_opened_and_get_the_newest_number(
    tmp_path: Path, version: str
) -> None:
    put_kept(version, tmp_path)

    found = await open_both(tmp_path)

    assert found == sorted(fact["id"] for fact in kept_facts(version))
    assert number_of(tmp_path / "memory.db") == [("episodes", 3)]
    assert number_of(tmp_path / "facts.db") == [("ledger", 3)]


async def refused(store: SQLiteMemoryStore | SQLiteFactStore) -> str:
    """Return why a store is refused; it must not become usable, and reads must fail as well."""
    async with store:
        with pytest.raises(SchemaError) as caught:
            await store.bootstrap()
        if isinstance(store, SQLiteFactStore):
            with pytest.raises(SchemaError):
                await store.query(FactPattern())
        else:
            with pytest.raises(SchemaError):
                await store.recent("ann", limit=1)
        health = await store.health()
    assert not health.ok
    assert caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize("build", BETWEEN)
async def test_facts_of_a_build_between_releases_are_refused_untouched(
    tmp_path: Path, build: str
) -> None:
    path = put_kept(f"between/{build}", tmp_path)["facts"]
    before = digests(tmp_path)

    problem = await refused(SQLiteFactStore(path))

    assert "does not have the tables of schema 2 (ledger)" in problem
    assert digests(tmp_path) == before


@pytest.mark.parametrize("build", [name for name in BETWEEN if name != "bde00475"])
async def test_episodes_of_a_build_between_releases_are_refused_untouched(
    tmp_path: Path, build: str
) -> None:
    path = put_kept(f"between/{build}", tmp_path)["memory"]
    before = digests(tmp_path)

    problem = await refused(SQLiteMemoryStore(path))

    assert "does not have the tables of schema 2 (episodes)" in problem
    assert digests(tmp_path) == before


async def test_files_of_slumberd_0_1_0_are_refused_untouched(tmp_path: Path) -> None:
    paths = put_kept("0.1.0", tmp_path)
    before = digests(tmp_path)

    problems = [
        await refused(SQLiteMemoryStore(paths["memory"])),
        await refused(SQLiteFactStore(paths["facts"])),
    ]

    assert "keeps the erased scopes of slumberd 0.1.0" in problems[0]
    assert "was written by slumberd 0.1.0 (ledger 1, ours is 3)" in problems[1]
    assert all("`slumberd upgrade --to DIR`" in problem for problem in problems)
    assert digests(tmp_path) == before


NUMBERS = {
    "newer": ("UPDATE slumberd_schema SET version = 4", "a newer slumberd"),
    "much newer": ("UPDATE slumberd_schema SET version = 2000000000000", "a newer slumberd"),
    "zero": ("UPDATE slumberd_schema SET version = 0", "unknown schema"),
    "negative": ("UPDATE slumberd_schema SET version = -3", "unknown schema"),
    "fraction": ("UPDATE slumberd_schema SET version = 2.5", "unknown schema"),
    "text": ("UPDATE slumberd_schema SET version = 'three'", "unknown schema"),
    "blob": ("UPDATE slumberd_schema SET version = x'03'", "unknown schema"),
    "other table": (
        "DROP TABLE slumberd_schema; CREATE TABLE slumberd_schema (number)",
        "another table 'slumberd_schema'",
    ),
    "view": (
        "DROP TABLE slumberd_schema; CREATE VIEW slumberd_schema AS SELECT 'x' AS component",
        "another table 'slumberd_schema'",
    ),
}
TABLES = {
    "facts": {
        "number gone": "DELETE FROM slumberd_schema",
        "table of numbers gone": "DROP TABLE slumberd_schema",
        "index gone": "DROP INDEX slumberd_ledger_erased",
        "other index": (
            "DROP INDEX slumberd_ledger_without_key;"
            "CREATE INDEX slumberd_ledger_without_key ON slumberd_ledger (what)"
        ),
        "table gone": "DROP TABLE slumberd_successes",
        "table renamed": "ALTER TABLE slumberd_channels RENAME TO slumberd_old",
        "column more": "ALTER TABLE slumberd_keys ADD COLUMN more TEXT",
        "column less": "ALTER TABLE slumberd_keys DROP COLUMN winner_part",
        "column renamed": "ALTER TABLE slumberd_ledger RENAME COLUMN what TO event",
        "not strict": (
            "DROP TABLE slumberd_generations;"
            "CREATE TABLE slumberd_generations (generation INTEGER PRIMARY KEY,"
            " after INTEGER NOT NULL)"
        ),
        "view": (
            "DROP TABLE slumberd_successes;"
            "CREATE VIEW slumberd_successes AS SELECT '' AS rule, 0 AS at"
        ),
    },
    "memory": {
        "column more": "ALTER TABLE slumberd_accesses ADD COLUMN more TEXT",
        "column renamed": "ALTER TABLE slumberd_episode_log RENAME COLUMN eid TO id",
        "other index": (
            "DROP INDEX slumberd_extractions_eid;"
            "CREATE INDEX slumberd_extractions_eid ON slumberd_extractions (key)"
        ),
        "view": (
            "DROP TABLE slumberd_model_usage;CREATE VIEW slumberd_model_usage AS SELECT '' AS day"
        ),
    },
}


async def changed_file(directory: Path, store: str, sql: str, journal: str) -> Path:
    """Return a file of this slumberd after a change by another program."""
    await open_both(directory)
    path = directory / f"{store}.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)
        connection.execute(f"PRAGMA journal_mode = {journal}")
    return path


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("store", ["memory", "facts"])
@pytest.mark.parametrize(("sql", "words"), NUMBERS.values(), ids=NUMBERS)
async def test_unknown_number_is_refused_untouched(
    tmp_path: Path, store: str, sql: str, words: str, journal: str
) -> None:
    path = await changed_file(tmp_path, store, sql, journal)
    before = digests(tmp_path)

    problem = await refused((SQLiteFactStore if store == "facts" else SQLiteMemoryStore)(path))

    assert words in problem
    assert digests(tmp_path) == before


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize(
    ("store", "sql"),
    [
        pytest.param(store, sql, id=f"{store}: {name}")
        for store, changes in TABLES.items()
        for name, sql in changes.items()
    ],
)
async def test_tables_that_do_not_fit_the_number_are_refused_untouched(
    tmp_path: Path, store: str, sql: str, journal: str
) -> None:
    path = await changed_file(tmp_path, store, sql, journal)
    before = digests(tmp_path)

    problem = await refused((SQLiteFactStore if store == "facts" else SQLiteMemoryStore)(path))

    assert "table" in problem
    assert digests(tmp_path) == before


async def test_file_of_another_program_gets_the_tables_beside_its_own(tmp_path: Path) -> None:
    for name in ("memory.db", "facts.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE notes (text)")
            connection.execute("PRAGMA user_version = 77")

    await open_both(tmp_path)

    for name in ("memory.db", "facts.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (77,)
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


async def test_missing_table_of_episodes_is_made_again(tmp_path: Path) -> None:
    path = await changed_file(tmp_path, "memory", "DROP TABLE slumberd_accesses", "wal")

    async with SQLiteMemoryStore(path) as memory:
        await memory.bootstrap()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM slumberd_accesses").fetchone() == (0,)


SPOKEN = {1: {"English"}, 2: {"English", "Swedish"}}
"""What ann speaks after the first start under each law: one version of one episode says both."""


async def spoken(facts: SQLiteFactStore) -> set[object]:
    found = await facts.query(FactPattern(predicate="speaks"))
    return {fact.payload["object"] for fact in found}


async def proved(facts: SQLiteFactStore, folder: Path) -> bool:
    """Return whether the ledger verifies, and its replay has the same facts."""
    _, _, broken = await facts.verify()
    replayed = folder / "replayed.db"
    replay = await facts.replay(replayed)
    replayed.unlink()
    return (broken, replay.differing, replay.first) == (None, 0, None)


@pytest.mark.parametrize("version", OPENED)
async def test_ledger_with_two_claims_of_one_version_verifies_before_and_after_an_upgrade(
    tmp_path: Path, version: str
) -> None:
    path = put_kept(version, tmp_path)["facts"]
    async with SQLiteFactStore(path, traceless=True) as facts:
        assert await spoken(facts) == SPOKEN[1]
        assert await proved(facts, tmp_path)

    async with SQLiteFactStore(path) as facts:
        await facts.bootstrap()
        outcome = await facts.ledger.adopt_law(at=START)

        assert (outcome is None) == (newest_law() == 1)
        assert await spoken(facts) == SPOKEN[newest_law()]
        assert await proved(facts, tmp_path)


async def test_first_write_of_a_library_upgrades_the_file(tmp_path: Path) -> None:
    path = put_kept("0.2.0", tmp_path)["facts"]

    async with SQLiteFactStore(path) as facts:
        await facts.retract("e2", by="test", reason="test")

    assert number_of(path) == [("ledger", 3)]


async def test_wrong_key_upgrades_nothing(tmp_path: Path) -> None:
    path = put_kept("keyed/0.2.0", tmp_path)["facts"]

    async with SQLiteFactStore(path, key=b"another") as facts:
        with pytest.raises(LedgerKeyError):
            await facts.bootstrap()

    assert number_of(path) == [("ledger", 2)]


def rows_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of all tables but those of numbers, which every start changes."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for (name,) in names
            if name not in ("slumberd_schema", "sqlite_sequence")
        }


@pytest.mark.parametrize("version", OPENED)
async def test_upgrade_keeps_every_row_of_every_table(tmp_path: Path, version: str) -> None:
    paths = put_kept(version, tmp_path)
    with closing(sqlite3.connect(paths["memory"])) as connection, connection:
        connection.execute("INSERT INTO slumberd_accesses VALUES ('e1', 'k', 3, 5, 0)")
        connection.execute("INSERT INTO slumberd_model_usage VALUES ('2026-10-01', 1, 2, 3, 4)")
    before = {store: rows_of(path) for store, path in paths.items()}

    await open_both(tmp_path)

    after = {store: rows_of(path) for store, path in paths.items()}
    assert after["memory"].pop("slumberd_model_requests") == []
    assert after == before
    assert before["memory"]["slumberd_erased_scopes"]

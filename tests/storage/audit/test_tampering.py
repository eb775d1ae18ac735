"""Tamper with a ledger in every way, at every row and column: the first bad row is named."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.errors import LedgerKeyError
from slumberd.model.fact import Fact
from slumberd.model.record import Break, Checkpoint
from slumberd.model.scope import ScopeFilter
from slumberd.storage.audit.verify import verify
from slumberd.storage.ledger.erased_rows import cumulative_document
from slumberd.storage.ledger.rows import (
    EVENTS,
    GENESIS,
    KINDS,
    chain_of,
    commitment_of,
    fixed_part,
)
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at
from tests.support.example_ledgers import (
    ALL,
    LATER,
    copied,
    fire,
    forge,
    rows_of,
    write_large_ledger,
    write_ledger_of_every_kind,
)
from tests.support.fakes import FakeClock
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
DEPTH = 8

COMMITMENT = "bba25358620a23f66e004b3017b3e0817da368f378c53ca2da63c04c09e2c584"
EMPTY_COMMITMENT = "722174edd2a5ca7d4a3a350ed553b3d0a8c8e74d9a78b132117d5d86bd38b3b4"
FIXED = "00000000000000070000000000000005000000000000000400000000000000020102"
CHAIN = "c45998449fbd9fa9b9b915eb1e4dfe6ced38fad143c8fe3b15836ec32e6fb76a"
KEYED_CHAIN = "5a451e8bd89f4cb44d06f9e8bac9d84ae80115ade76ee930634f8c9cdd1b764a"
ERASED = "bf7dd2a5905cdb2e553b2a3928a6fd28ee6f7f0d6bc460af94bc22b360f9b0de"
"""Computed once from the description of the format, without this code."""

ERASABLE = ("key_id", "at", "fact_id", "replaces", "salt", "payload")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "facts.db"
    asyncio.run(write_ledger_of_every_kind(path))
    return path


@pytest.fixture
def rows(path: Path) -> list[dict[str, Any]]:
    return rows_of(path, "slumberd_ledger")


@pytest.fixture
def firings(path: Path) -> list[dict[str, Any]]:
    return rows_of(path, "slumberd_firings")


def found(
    path: Path, tamper: Callable[[sqlite3.Connection], object], *against: Checkpoint
) -> Break | None:
    """Return what verification finds in a copy after a change."""
    with copied(path) as copy:
        tamper(copy)
        return verify(session_of(copy), DEPTH, against)[2]


def seq_of(broken: Break | None) -> int | None:
    return broken.seq if broken else None


def put(table: str, key: str, id: int, column: str, value: object) -> Any:
    """Return a change that writes one value into one row."""
    sql = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
    return lambda copy: copy.execute(sql, (value, id))


def does(sql: str, *values: object) -> Callable[[sqlite3.Connection], object]:
    """Return a change that executes a statement."""
    return lambda copy: copy.execute(sql, values)


def move(copy: sqlite3.Connection, seq: int, to: int) -> None:
    copy.execute("UPDATE slumberd_ledger SET seq = ? WHERE seq = ?", (to, seq))


def shift(copy: sqlite3.Connection, above: int, by: int) -> None:
    """Renumber every row above a number."""
    copy.execute("UPDATE slumberd_ledger SET seq = -seq WHERE seq > ?", (above,))
    copy.execute("UPDATE slumberd_ledger SET seq = -seq + ? WHERE seq < 0", (by,))


def other_values(value: object) -> list[object]:
    """Return values that could replace a value."""
    match value:
        case None:
            return [0, -(2**63), "", b"", "x", b"x"]
        case int():
            return [value + 1, -value - 1, 2**62]
        case str():
            return [value + "x", value + "\0", "x" + value, "", value.swapcase(), "\ud800"]
        case bytes():
            flipped = bytes([value[0] ^ 1]) + value[1:]
            return [flipped, value[:-1], value + b"\0", value + b" ", b"", bytes(len(value))]
        case _:
            raise AssertionError(value)


def fits(column: str, value: object, *, nullable: tuple[str, ...]) -> bool:
    """Return whether a strict table accepts a value."""
    texts = ("reason", "fact_id", "replaces", "rule", "rule_hash", "cause")
    blobs = ("salt", "payload", "commitment", "chain", "counts")
    if value is None:
        return column in nullable
    if isinstance(value, str):
        return column in texts and value.isprintable() | ("\0" in value)
    return isinstance(value, bytes) == (column in blobs) and column not in texts


def test_example_ledger_has_a_row_of_every_kind(rows: list[dict[str, Any]]) -> None:
    assert {KINDS[row["kind"]] for row in rows} == set(KINDS)
    assert {EVENTS[row["what"]] for row in rows} == set(EVENTS) - {"erased"}


def test_an_untouched_ledger_verifies(path: Path) -> None:
    assert found(path, lambda copy: None) is None


@pytest.mark.cases(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "column",
    [
        "delta", "firing", "what", "kind", "reason", "version", "key_id", "at", "fact_id",
        "replaces", "salt", "payload", "commitment", "chain",
    ],
)  # fmt: skip
def test_any_other_value_in_any_column_of_any_row_is_found_there(
    path: Path, rows: list[dict[str, Any]], column: str
) -> None:
    count = 0
    for row in rows:
        for value in {*other_values(row[column]), None} - {row[column]}:
            if fits(column, value, nullable=ERASABLE):
                tamper = put("slumberd_ledger", "seq", row["seq"], column, value)

                broken = found(path, tamper)

                assert seq_of(broken) == row["seq"], (row["seq"], value, broken)
                count += 1
    assert count >= 2 * len(rows)


def test_a_text_of_invalid_unicode_is_found_at_its_row(path: Path) -> None:
    text = "UPDATE slumberd_ledger SET reason = CAST(x'ff' AS TEXT) WHERE seq = 3"

    assert seq_of(found(path, does(text))) == 3


@pytest.mark.parametrize(
    "column",
    [
        "n", "rule", "rule_hash", "cause", "at", "last_seq", "generation", "upto_seq", "counts",
    ],
)  # fmt: skip
def test_any_other_value_in_a_firing_beside_the_ledger_is_found_at_its_row(
    path: Path, firings: list[dict[str, Any]], column: str
) -> None:
    for firing in firings:
        for value in set(other_values(firing[column])) - {firing[column]}:
            if fits(column, value, nullable=()):
                tamper = put("slumberd_firings", "n", firing["n"], column, value)

                broken = found(path, tamper)

                assert broken is not None, (firing["n"], value)
                assert broken.seq <= firing["n"] if column == "n" else broken.seq == firing["n"]


def test_the_last_episode_of_a_firing_may_be_blanked(path: Path) -> None:
    blank = "UPDATE slumberd_firings SET upto_eid = ''"

    assert found(path, does(blank)) is None


def test_firing_removed_from_its_table_is_found_at_its_row(
    path: Path, firings: list[dict[str, Any]]
) -> None:
    for firing in firings:
        remove = f"DELETE FROM slumberd_firings WHERE n = {firing['n']}"

        broken = found(path, does(remove))

        assert seq_of(broken) == firing["n"]


@pytest.mark.slow
def test_a_firing_inserted_beside_the_ledger_is_found_by_its_row(
    path: Path, rows: list[dict[str, Any]], firings: list[dict[str, Any]]
) -> None:
    known = {firing["n"] for firing in firings}
    insert = (
        "INSERT INTO slumberd_firings SELECT ?, rule, rule_hash, cause, at, last_seq,"
        " generation, upto_seq, upto_eid, counts FROM slumberd_firings WHERE n = 1"
    )
    for seq in {row["seq"] for row in rows} - known | {-1, 0, len(rows) + 1}:
        broken = found(path, does(insert, seq))

        assert seq_of(broken) == min(max(seq, 1), len(rows))


@pytest.mark.parametrize("value", [b"{}", b'{"facts":["likes","owns"]}', None])
def test_other_channels_beside_the_ledger_are_found_at_their_row(
    path: Path, value: bytes | None
) -> None:
    def tamper(copy: sqlite3.Connection) -> None:
        if value is None:
            copy.execute("DELETE FROM slumberd_channels")
        else:
            copy.execute("UPDATE slumberd_channels SET multi_valued = ?", (value,))

    changed = rows_of(path, "slumberd_channels")[0]["seq"]

    assert seq_of(found(path, tamper)) == changed


def test_channels_put_beside_the_ledger_are_found(path: Path) -> None:
    insert = "INSERT INTO slumberd_channels VALUES (2, '{}')".replace("'{}'", "x'7b7d'")

    assert seq_of(found(path, does(insert))) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM slumberd_references WHERE referenced = 'e1'",
        "UPDATE slumberd_references SET referrer = 'x' WHERE referenced = 'e1'",
        "INSERT INTO slumberd_references VALUES ('x', 'e1')",
    ],
)
def test_other_names_beside_the_ledger_are_found(path: Path, sql: str) -> None:
    broken = found(path, does(sql))

    assert broken is not None
    assert "slumberd_references" in broken.problem


@pytest.mark.slow
def test_removed_row_is_found_at_the_next_row(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows[:-1]:
        remove = f"DELETE FROM slumberd_ledger WHERE seq = {row['seq']}"

        broken = found(path, does(remove))

        assert seq_of(broken) == row["seq"] + 1


@pytest.mark.slow
def test_a_row_removed_from_its_number_on_is_found_there(
    path: Path, rows: list[dict[str, Any]]
) -> None:
    for row in rows[:-1]:

        def tamper(copy: sqlite3.Connection, seq: int = row["seq"]) -> None:
            copy.execute("DELETE FROM slumberd_ledger WHERE seq = ?", (seq,))
            shift(copy, seq, -1)

        assert seq_of(found(path, tamper)) == row["seq"]


@pytest.mark.slow
def test_any_two_rows_that_change_places_are_found_at_the_first(
    path: Path, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        for other in rows[row["seq"] :: 5]:

            def tamper(
                copy: sqlite3.Connection, first: int = row["seq"], second: int = other["seq"]
            ) -> None:
                move(copy, first, -1)
                move(copy, second, first)
                move(copy, -1, second)

            assert seq_of(found(path, tamper)) == row["seq"]


@pytest.mark.slow
def test_a_row_inserted_anywhere_is_found_there(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:

        def tamper(copy: sqlite3.Connection, seq: int = row["seq"]) -> None:
            shift(copy, seq, 1)
            copy.execute(
                "INSERT INTO slumberd_ledger SELECT seq + 1, delta, firing, what, kind, reason,"
                " version, key_id, at, fact_id, replaces, salt, payload, commitment, chain"
                " FROM slumberd_ledger WHERE seq = ?",
                (seq,),
            )

        assert seq_of(found(path, tamper)) == row["seq"] + 1


@pytest.mark.parametrize("seq", [0, -1, -(2**63)])
def test_a_row_before_the_first_is_found(path: Path, seq: int) -> None:
    assert seq_of(found(path, lambda copy: move(copy, 2, seq))) == seq


@pytest.mark.slow
def test_renumbered_rows_are_found_at_the_first(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:

        def tamper(copy: sqlite3.Connection, seq: int = row["seq"]) -> None:
            shift(copy, seq - 1, 1)

        assert seq_of(found(path, tamper)) == row["seq"] + 1


@pytest.mark.slow
def test_a_ledger_cut_anywhere_is_found_at_its_end(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:

        def cut(copy: sqlite3.Connection, seq: int = row["seq"]) -> None:
            copy.execute("DELETE FROM slumberd_ledger WHERE seq >= ?", (seq,))
            copy.execute("DELETE FROM slumberd_firings WHERE n >= ?", (seq,))

        assert seq_of(found(path, cut)) == row["seq"] - 1


@pytest.mark.slow
def test_a_row_that_is_erased_without_an_erasure_is_found(
    path: Path, rows: list[dict[str, Any]]
) -> None:
    nulls = ", ".join(f"{column} = NULL" for column in ERASABLE)
    for row in rows:
        erase = f"UPDATE slumberd_ledger SET {nulls} WHERE seq = {row['seq']}"

        broken = found(path, does(erase))

        assert seq_of(broken) == row["seq"]


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger from which a user was erased, and which has newer rows."""
    path = tmp_path_factory.mktemp("erased") / "facts.db"

    async def write_story() -> None:
        await write_ledger_of_every_kind(path, KEY)
        async with SQLiteFactStore(path, key=KEY, clock=FakeClock(at(3000))) as store:
            mallory = ScopeFilter("mallory", None, None)
            await store.erasures.forget(mallory, moment=10**15, at=at(2000), by="", dry_run=False)
            await store.pin(
                Fact(
                    id="p2", user="alice", agent="rag", payload={"subject": "alice"},
                    lineage=[{"by": "me"}], confidence=1.0, pinned_at=at(0),
                )
            )  # fmt: skip

    asyncio.run(write_story())
    return path


def verified_with_key(path: Path, tamper: Callable[[sqlite3.Connection], object]) -> Break | None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "facts.db"
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy)) as connection, connection:
            tamper(connection)

        async def main() -> Break | None:
            async with SQLiteFactStore(copy, key=KEY) as store:
                return (await store.verify())[2]

        return asyncio.run(main())


def test_an_erasure_covers_what_it_erased(erased: Path) -> None:
    assert any(row["salt"] is None for row in rows_of(erased, "slumberd_ledger"))
    assert verified_with_key(erased, lambda copy: None) is None


@pytest.mark.slow
def test_rows_that_another_program_erased_are_found(erased: Path) -> None:
    nulls = ", ".join(f"{column} = NULL" for column in ERASABLE)
    rows = rows_of(erased, "slumberd_ledger")
    for row in rows:
        if row["salt"] is None or row["what"] == 0:
            continue

        broken = verified_with_key(
            erased, does(f"UPDATE slumberd_ledger SET {nulls} WHERE seq = {row['seq']}")
        )

        assert broken is not None
        assert broken.seq == row["seq"]
        assert "eras" in broken.problem


def test_a_fact_removed_with_its_whole_history_is_found_without_the_key(erased: Path) -> None:
    nulls = ", ".join(f"{column} = NULL" for column in ERASABLE)

    def take_out(copy: sqlite3.Connection) -> None:
        (key_id,) = copy.execute(
            "SELECT key_id FROM slumberd_keys WHERE winner_fact = 'p1'"
        ).fetchone()
        copy.execute(f"UPDATE slumberd_ledger SET {nulls} WHERE key_id = ?", [key_id])
        copy.execute("DELETE FROM slumberd_keys WHERE key_id = ?", [key_id])
        copy.execute("DELETE FROM facts WHERE fact_id = 'p1'")
        copy.execute("DELETE FROM slumberd_external_changes")

    broken = verified_with_key(erased, take_out)

    assert broken is not None
    assert "no erasure names it" in broken.problem


def test_a_row_beyond_the_last_one_of_its_firing_is_named(
    path: Path, firings: list[dict[str, Any]]
) -> None:
    firing = next(firing for firing in firings[:-1] if firing["last_seq"] > firing["n"] + 1)
    last = firing["last_seq"] - 1

    def shorten(copy: sqlite3.Connection) -> None:
        (payload,) = copy.execute(
            "SELECT payload FROM slumberd_ledger WHERE seq = ?", [firing["n"]]
        ).fetchone()
        forged = payload.replace(b'"last_seq":%d' % (last + 1), b'"last_seq":%d' % last)
        forge(copy, firing["n"], None, payload=forged)
        copy.execute("UPDATE slumberd_firings SET last_seq = ? WHERE n = ?", [last, firing["n"]])

    broken = found(path, shorten)

    assert broken == Break(last + 1, f"is not a row of its firing {firing['n']}")


def test_hash_format_is_that_of_existing_ledgers() -> None:
    commitment = commitment_of(bytes(range(16)), 3, 1_767_268_800_000_000, b"e1", b'["e0"]', b"{}")
    empty = commitment_of(bytes(16), None, None, None, None, None)
    fixed = fixed_part(7, 5, 4, 2, 1, 2)

    assert commitment.hex() == COMMITMENT
    assert empty.hex() == EMPTY_COMMITMENT
    assert fixed.hex() == FIXED
    assert chain_of(None, GENESIS, commitment, fixed, b"stale").hex() == CHAIN
    assert chain_of(KEY, GENESIS, commitment, fixed, b"stale").hex() == KEYED_CHAIN
    assert cumulative_document([3, 258]) == {"rows": 2, "hash": ERASED}


@pytest.mark.slow
def test_a_partly_erased_row_is_found(path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for left in ERASABLE:
            erased = [column for column in ERASABLE if column != left]
            erase = f"UPDATE slumberd_ledger SET {', '.join(f'{c} = NULL' for c in erased)}"
            erase += f" WHERE seq = {row['seq']}"

            broken = found(path, does(erase))

            assert seq_of(broken) == row["seq"]


@pytest.mark.parametrize(
    "column", ["fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata"]
)
def test_any_other_value_in_any_column_of_any_fact_is_found(path: Path, column: str) -> None:
    for fact in rows_of(path, "facts"):
        value = 0.25 if column == "confidence" else fact[column] + fact[column][:1]
        tamper = put("facts", "fact_id", fact["fact_id"], column, value)

        broken = found(path, tamper)

        assert broken is not None
        assert repr(fact["fact_id"])[1:-1] in broken.problem


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("DELETE FROM facts WHERE fact_id = 'p1'", id="removed"),
        pytest.param("UPDATE facts SET pinned_at = '' WHERE fact_id = 'p1'", id="pinned later"),
        pytest.param("UPDATE facts SET payload = CAST(payload AS TEXT)", id="of another type"),
        pytest.param("UPDATE facts SET user = CAST(x'ff' AS TEXT)", id="no Unicode"),
        pytest.param("INSERT INTO facts VALUES (NULL,'u','a',x'7b','',1,'','')", id="without id"),
        pytest.param("INSERT INTO facts VALUES ('x','u','a',x'7b','',1,'','')", id="inserted"),
    ],
)
def test_a_fact_that_another_program_changed_unnoticed_is_found(path: Path, sql: str) -> None:
    broken = found(path, does(sql))

    assert broken is not None
    assert broken.seq == 0


def test_a_rewritten_ledger_without_a_key_differs_only_from_a_checkpoint(
    path: Path, rows: list[dict[str, Any]]
) -> None:
    quarantined = next(row for row in rows if row["kind"] == 5)
    payload = quarantined["payload"].replace(b"remember", b"remembex")

    def tamper(copy: sqlite3.Connection) -> None:
        forge(copy, quarantined["seq"], None, payload=payload)

    checkpoints = [Checkpoint(row["seq"], row["chain"], "today") for row in rows]

    assert found(path, tamper) is None
    assert found(path, lambda copy: None, Checkpoint(0, bytes(32), ""), *checkpoints) is None
    assert found(path, tamper, *checkpoints) == Break(
        quarantined["seq"], "the log of today has another head"
    )


async def test_an_older_copy_of_a_ledger_differs_only_from_a_checkpoint(
    path: Path, rows: list[dict[str, Any]]
) -> None:
    last = rows[-1]["seq"]

    broken = found(path, lambda copy: None, Checkpoint(last + 7, bytes(32), "today"))

    assert broken == Break(last, f"the ledger ends here, the log of today saw row {last + 7}")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keyed") / "facts.db"
    asyncio.run(write_ledger_of_every_kind(path, KEY))
    return path


async def test_a_keyed_ledger_verifies_with_its_key(keyed: Path) -> None:
    async with SQLiteFactStore(keyed, key=KEY) as store:
        rows, _, broken = await store.verify()

    assert rows == len(rows_of(keyed, "slumberd_ledger"))
    assert broken is None


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        pytest.param(OTHER_KEY, "set facts.key_file to the file of that key", id="wrong"),
        pytest.param(None, "set facts.key_file to the file of its key", id="missing"),
    ],
)
async def test_a_keyed_ledger_refuses_another_key_before_anything_is_written(
    keyed: Path, key: bytes | None, remedy: str
) -> None:
    before = rows_of(keyed, "slumberd_ledger")
    async with SQLiteFactStore(keyed, key=key) as store:
        for attempt in (
            store.bootstrap,
            store.verify,
            lambda: store.unpin("p1"),
            lambda: fire(store, ALL, LATER),
            lambda: store.replay(keyed.with_name("again.db")),
        ):
            with pytest.raises(LedgerKeyError, match=remedy):
                await attempt()

    assert rows_of(keyed, "slumberd_ledger") == before
    assert not keyed.with_name("again.db").exists()


async def test_a_ledger_begun_without_a_key_gets_none(path: Path) -> None:
    async with SQLiteFactStore(path, key=KEY) as store:
        with pytest.raises(LedgerKeyError, match=r"remove facts\.key_file"):
            await store.bootstrap()


async def test_a_ledger_without_rows_takes_the_key_of_its_first(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    async with SQLiteFactStore(path) as store:
        await store.bootstrap()
    async with SQLiteFactStore(path, key=KEY) as store:
        await store.bootstrap()
        await fire(store, ALL, LATER)
        assert (await store.verify())[2] is None
    async with SQLiteFactStore(path) as store:
        with pytest.raises(LedgerKeyError):
            await store.verify()


@pytest.mark.parametrize("forged_with", [None, OTHER_KEY])
async def test_forgery_without_the_key_is_found_at_its_first_row(
    keyed: Path, tmp_path: Path, forged_with: bytes | None
) -> None:
    for row in rows_of(keyed, "slumberd_ledger")[::6]:
        path = tmp_path / f"{row['seq']}.db"
        with copied(keyed) as copy:
            forge(copy, row["seq"], forged_with, version=row["version"] + 1)
            copy.execute("VACUUM INTO ?", (str(path),))

        async with SQLiteFactStore(path, key=KEY) as store:
            broken = (await store.verify())[2]

        assert seq_of(broken) == row["seq"]


async def test_removal_of_the_key_is_found(keyed: Path, tmp_path: Path) -> None:
    with copied(keyed) as copy:
        forge(copy, 1, None)
        copy.execute("UPDATE slumberd_numbers SET value = 0 WHERE name = 'key'")
        copy.execute("VACUUM INTO ?", (str(tmp_path / "facts.db"),))

    async with SQLiteFactStore(tmp_path / "facts.db", key=KEY) as store:
        with pytest.raises(LedgerKeyError, match="begun without a key"):
            await store.verify()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "facts.db"
    asyncio.run(write_large_ledger(path, 20_000))
    return path


@pytest.mark.nightly
async def test_every_random_change_of_a_large_ledger_is_found(large: Path) -> None:
    chance = random.Random(11)
    rows = rows_of(large, "slumberd_ledger")
    assert found(large, lambda copy: None) is None
    for _ in range(60):
        way = chance.choice(WAYS)
        row = rows[chance.randrange(1, len(rows) - 1)]
        expected: list[int] = []

        def tamper(copy: sqlite3.Connection, way: Way = way, row: dict[str, Any] = row) -> None:
            expected.append(way(copy, row, chance))  # noqa: B023 # called before the next turn

        broken = found(large, tamper)

        assert seq_of(broken) == expected[0], (way.__name__, row["seq"], broken)


Way = Callable[[sqlite3.Connection, dict[str, Any], random.Random], int]
"""Tampers near a row; returns the number of the row that must be named."""


def flip_a_bit(copy: sqlite3.Connection, row: dict[str, Any], chance: random.Random) -> int:
    column = chance.choice([name for name in row if isinstance(row[name], bytes)])
    place = chance.randrange(8 * len(row[column]))
    value = bytearray(row[column])
    value[place // 8] ^= 1 << place % 8
    put("slumberd_ledger", "seq", row["seq"], column, bytes(value))(copy)
    return int(row["seq"])


def count_up(copy: sqlite3.Connection, row: dict[str, Any], chance: random.Random) -> int:
    column = chance.choice(["delta", "firing", "kind", "version", "at"])
    put("slumberd_ledger", "seq", row["seq"], column, (row[column] or 0) + 1)(copy)
    return int(row["seq"])


def remove(copy: sqlite3.Connection, row: dict[str, Any], _: random.Random) -> int:
    copy.execute("DELETE FROM slumberd_ledger WHERE seq = ?", (row["seq"],))
    return int(row["seq"] + 1)


def remove_and_renumber(copy: sqlite3.Connection, row: dict[str, Any], _: random.Random) -> int:
    copy.execute("DELETE FROM slumberd_ledger WHERE seq = ?", (row["seq"],))
    shift(copy, row["seq"], -1)
    return int(row["seq"])


def repeat(copy: sqlite3.Connection, row: dict[str, Any], chance: random.Random) -> int:
    to = chance.randrange(1, row["seq"] + 1)
    shift(copy, to, 1)
    seq = row["seq"] + (row["seq"] > to)
    copy.execute(
        "INSERT INTO slumberd_ledger SELECT ?, delta, firing, what, kind, reason, version, key_id,"
        " at, fact_id, replaces, salt, payload, commitment, chain FROM slumberd_ledger"
        " WHERE seq = ?",
        (to + 1, seq),
    )
    return to + 1


def swap(copy: sqlite3.Connection, row: dict[str, Any], chance: random.Random) -> int:
    other = chance.randrange(1, row["seq"])
    move(copy, row["seq"], -1)
    move(copy, other, row["seq"])
    move(copy, -1, other)
    return other


def cut(copy: sqlite3.Connection, row: dict[str, Any], _: random.Random) -> int:
    copy.execute("DELETE FROM slumberd_ledger WHERE seq > ?", (row["seq"],))
    copy.execute("DELETE FROM slumberd_firings WHERE n > ?", (row["seq"],))
    return int(row["seq"])


WAYS = (flip_a_bit, count_up, remove, remove_and_renumber, repeat, swap, cut)

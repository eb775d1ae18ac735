"""Verification finds every change of the ledger, and names the first bad row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Firing, Position
from slumberd.model.record import Break
from slumberd.storage.ledger.rows import (
    CLAIM,
    FIRING,
    GENESIS,
    SALT_BYTES,
    LedgerRow,
    reason_of_firing,
    seal,
)
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import START, at, rule, version

pytestmark = pytest.mark.integration

ROWS = 7
"""One firing and its six claims."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
        await store.bootstrap()
        versions = [
            version(
                f"e{n}",
                seq=n,
                timestamp=at(n),
                metadata={"subject": f"s{n % 3}", "predicate": "is", "object": n},
            )
            for n in range(1, ROWS)
        ]
        firing = Firing("all", "h", "every", START, Position(), Position(ROWS - 1, f"e{ROWS - 1}"))
        await store.apply_deltas(DeltaBatch(firing, evaluate(versions, rule("all"))))
    return tmp_path / "facts.db"


def tamper(path: Path, *sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in sql:
            connection.execute(statement)


async def find_break(path: Path) -> Break | None:
    async with SQLiteFactStore(path) as store:
        return (await store.verify())[2]


async def test_an_untouched_ledger_verifies(path: Path) -> None:
    assert await find_break(path) is None


@pytest.mark.parametrize(
    ("event", "payload", "reason"),
    [
        pytest.param(FIRING, b'{"by":"me","reason":"why"}', "why", id="firing"),
        pytest.param(FIRING, b'{"by":"me"}', "", id="no reason"),
        pytest.param(FIRING, b'{"by":"me","reason":', "", id="no JSON"),
        pytest.param(FIRING, b'["\\"reason\\":", "reason",{"reason":1}]', "", id="no object"),
        pytest.param(FIRING, None, "", id="no payload"),
        pytest.param(CLAIM, b'{"reason":"of another kind"}', "", id="claim"),
    ],
)
def test_reason_is_that_of_a_firing(event: int, payload: bytes | None, reason: str) -> None:
    row = LedgerRow(1, 1, 1, event, 5, "", 0, None, None, None, None, payload)

    assert reason_of_firing(row) == reason


@pytest.mark.slow
def test_no_two_rows_share_a_salt_however_many_are_sealed() -> None:
    rows = (LedgerRow(n, n, 1, CLAIM, 1, "", n, n, n, "f", None, b"{}") for n in range(10_000))

    salts = {row.salt for row in seal(rows, GENESIS, None)}

    assert len(salts) == 10_000
    assert {len(salt) for salt in salts if salt is not None} == {SALT_BYTES}


COLUMNS = {
    "delta": "delta + 1",
    "firing": "firing + 1",
    "what": "what + 1",
    "kind": "kind + 1",
    "reason": "reason || 'x'",
    "version": "version + 1",
    "key_id": "ifnull(key_id, 0) + 1",
    "at": "ifnull(at, 0) + 1",
    "fact_id": "ifnull(fact_id, '') || 'x'",
    "replaces": "ifnull(replaces, '') || 'x'",
    "payload": "CAST(CAST(payload AS TEXT) || ' ' AS BLOB)",
    "salt": "zeroblob(16)",
    "commitment": "zeroblob(32)",
    "chain": "zeroblob(32)",
}


@pytest.mark.parametrize("row", range(1, ROWS + 1))
@pytest.mark.parametrize("column", COLUMNS)
async def test_an_edit_of_any_column_of_any_row_is_found_there(
    path: Path, row: int, column: str
) -> None:
    tamper(path, f"UPDATE slumberd_ledger SET {column} = {COLUMNS[column]} WHERE seq = {row}")

    broken = await find_break(path)

    assert broken is not None
    assert broken.seq == row


@pytest.mark.parametrize("row", range(1, ROWS))
async def test_removed_row_is_found_at_the_next_row(path: Path, row: int) -> None:
    tamper(path, f"DELETE FROM slumberd_ledger WHERE seq = {row}")

    broken = await find_break(path)

    assert broken is not None
    assert broken.seq == row + 1


@pytest.mark.slow
@pytest.mark.parametrize("row", range(1, ROWS))
async def test_two_rows_that_change_places_are_found_at_the_first(path: Path, row: int) -> None:
    tamper(
        path,
        f"UPDATE slumberd_ledger SET seq = -1 WHERE seq = {row}",
        f"UPDATE slumberd_ledger SET seq = {row} WHERE seq = {row + 1}",
        f"UPDATE slumberd_ledger SET seq = {row + 1} WHERE seq = -1",
    )

    broken = await find_break(path)

    assert broken is not None
    assert broken.seq == row


EDITS: dict[str, Callable[[str], str]] = {
    "edited": lambda fact: f"UPDATE facts SET confidence = 0.1 WHERE fact_id = '{fact}'",
    "removed": lambda fact: f"DELETE FROM facts WHERE fact_id = '{fact}'",
    "renamed": lambda fact: f"UPDATE facts SET fact_id = 'x' WHERE fact_id = '{fact}'",
}


@pytest.mark.parametrize("edit", EDITS)
async def test_a_fact_that_another_program_changed_unnoticed_is_found(
    path: Path, edit: str
) -> None:
    tamper(path, EDITS[edit]("e6"))

    broken = await find_break(path)

    assert broken is not None
    assert "e6" in broken.problem or "'x'" in broken.problem


async def test_a_row_erased_with_its_salt_but_without_an_erasure_is_found(path: Path) -> None:
    tamper(
        path,
        "UPDATE slumberd_ledger SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL,"
        " salt = NULL, payload = NULL WHERE seq = 7",
        "DELETE FROM facts WHERE fact_id = 'e6'",
        "DELETE FROM facts WHERE fact_id = 'e3'",
    )

    broken = await find_break(path)

    assert broken is not None
    assert broken.seq == 7
    assert "no erasure names it (erasure.foreign_blank)" in broken.problem


async def test_another_lineage_depth_is_applied_to_every_fact(tmp_path: Path) -> None:
    versions = [
        version(f"e{n}", seq=n, metadata={"subject": "s", "predicate": "is", "object": n})
        for n in range(1, 6)
    ]
    lengths = []
    for depth in (8, 2, 4):
        async with SQLiteFactStore(tmp_path / "facts.db", lineage_depth=depth) as store:
            await store.bootstrap()
            if not await store.reads.ledger_rows():
                firing = Firing("all", "h", "every", START, Position(), Position(5, "e5"))
                await store.apply_deltas(DeltaBatch(firing, evaluate(versions, rule("all"))))
            assert (await store.ledger.rewrite_facts(at=START) > 0) == (depth != 8)
            assert await store.ledger.rewrite_facts(at=START) == 0
            (fact,) = await store.query(FactPattern())
            lengths.append(len(fact.lineage))
            assert (await store.verify())[2] is None

    assert lengths == [1 + 4, 1 + 2, 1 + 4]

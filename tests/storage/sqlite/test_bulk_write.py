"""`bulk.insert` does what ``executemany`` does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from slumberd.storage.sqlite.session import MOST, insert

pytestmark = pytest.mark.unit

INSERT = "INSERT INTO pairs (one, other) VALUES (?, ?)"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE pairs (one INTEGER PRIMARY KEY, other TEXT NOT NULL)")
        yield connection


def rows_in(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT one, other FROM pairs ORDER BY one").fetchall()


@pytest.mark.parametrize("count", [0, 1, 19, 20, MOST - 1, MOST, MOST + 1, 2 * MOST + 27])
def test_every_row_is_inserted_whatever_their_number(
    connection: sqlite3.Connection, count: int
) -> None:
    rows = [(number, str(number)) for number in range(count)]

    insert(connection, INSERT, rows)

    assert rows_in(connection) == rows


def test_existing_row_is_updated_when_the_statement_has_a_conflict_clause(
    connection: sqlite3.Connection,
) -> None:
    upsert = f"{INSERT} ON CONFLICT (one) DO UPDATE SET other = excluded.other"
    rows = [(number, "new") for number in range(MOST + 3)]
    insert(connection, INSERT, [(1, "old"), (MOST, "old")])

    insert(connection, upsert, rows)

    assert rows_in(connection) == rows


@pytest.mark.parametrize("bad", [5, MOST + 5], ids=["in a full statement", "in the rest"])
def test_a_refused_row_leaves_nothing_of_a_transaction_that_is_rolled_back(
    connection: sqlite3.Connection, bad: int
) -> None:
    rows: list[tuple[int, str | None]] = [(number, "x") for number in range(MOST + 10)]
    rows[bad] = (bad, None)
    connection.execute("BEGIN")
    insert(connection, INSERT, [(-1, "before")])

    with pytest.raises(sqlite3.IntegrityError):
        insert(connection, INSERT, rows)

    if connection.in_transaction:
        connection.execute("ROLLBACK")
    assert rows_in(connection) == []

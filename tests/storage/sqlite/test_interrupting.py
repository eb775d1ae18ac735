"""A cancelled statement is interrupted while it runs."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from slumberd.model.errors import StoppedError
from slumberd.storage.sqlite.session import interrupting_when, transaction

pytestmark = pytest.mark.unit

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER)")
        yield connection


def test_endless_statement_is_interrupted(connection: sqlite3.Connection) -> None:
    calls = itertools.count(1)

    with pytest.raises(StoppedError), interrupting_when(connection, lambda: next(calls) == 3):
        connection.execute(ENDLESS)


def test_interrupted_transaction_writes_nothing(connection: sqlite3.Connection) -> None:
    calls = itertools.count(1)

    with (
        pytest.raises(StoppedError),
        transaction(connection),
        interrupting_when(connection, lambda: next(calls) == 3),
    ):
        connection.executemany("INSERT INTO numbers VALUES (?)", ((n,) for n in itertools.count()))

    assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)


@pytest.mark.parametrize("cancelled", [None, lambda: False], ids=["no check", "never cancelled"])
def test_transaction_that_is_not_cancelled_is_committed(
    connection: sqlite3.Connection, cancelled: Callable[[], bool] | None
) -> None:
    with transaction(connection), interrupting_when(connection, cancelled):
        connection.executemany("INSERT INTO numbers VALUES (?)", ((n,) for n in range(20_000)))

    assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (20_000,)


def test_other_errors_are_raised_unchanged(connection: sqlite3.Connection) -> None:
    with (
        pytest.raises(sqlite3.OperationalError, match="no such table"),
        interrupting_when(connection, lambda: False),
    ):
        connection.execute("SELECT 1 FROM nowhere")


def test_statements_after_the_block_are_not_interrupted(connection: sqlite3.Connection) -> None:
    cancelled = False
    with interrupting_when(connection, lambda: cancelled):
        cancelled = True

    counted = connection.execute(ENDLESS.replace("FROM n)", "FROM n WHERE i < 99999)"))

    assert counted.fetchone() == (99_999,)

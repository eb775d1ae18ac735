"""A session decodes the texts of rows that are not UTF-8 as each statement says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.errors import StoreError
from slumberd.sql_statements import decoding, statements
from slumberd.storage.engine import Mangled, Row, Session
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine, SQLiteFactEngine
from slumberd.storage.sqlite.session import _PAGE_ROWS, Pragmas
from tests.storage.test_statement_names import FILES
from tests.support.lists import of_each
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

ROWS = 3 * _PAGE_ROWS
INVALID = "CAST(x'63e9' AS TEXT)"
ESCAPED = "c\udce9"


@pytest.fixture
async def facts(tmp_path: Path) -> SQLiteFactEngine:
    engine = SQLiteFactEngine(tmp_path / "facts.db", Pragmas())
    await engine.bootstrap()
    await engine.close()
    return engine


@pytest.fixture
def connection(facts: SQLiteFactEngine) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(facts.path, isolation_level=None)) as opened:
        yield opened


def add_references(connection: sqlite3.Connection, *invalid: int) -> list[Row]:
    """Add references, those of some numbers not UTF-8; return them as a session must."""
    expected: list[Row] = []
    for number in range(ROWS):
        text = f"r{number:04}"
        sql = "INSERT INTO slumberd_references (referenced, referrer) VALUES (?, ?)"
        values: tuple[Any, ...] = (text, "by")
        if number in invalid:
            sql, values = sql.replace("?", f"'{text}' || {INVALID}", 1), ("by",)
            text += ESCAPED
        connection.execute(sql, values)
        expected.append((text, "by"))
    return expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "invalid",
    [
        pytest.param((), id="none"),
        pytest.param((0,), id="the first"),
        pytest.param((1, 2), id="the second and the third"),
        pytest.param((_PAGE_ROWS - 1,), id="the end of a page"),
        pytest.param((_PAGE_ROWS,), id="the start of a page"),
        pytest.param((_PAGE_ROWS + 7, 2 * _PAGE_ROWS), id="later"),
        pytest.param((ROWS - 1,), id="the last"),
    ],
)
def test_stream_yields_each_row_once_wherever_an_invalid_text_is(
    connection: sqlite3.Connection, invalid: tuple[int, ...]
) -> None:
    expected = add_references(connection, *invalid)
    session = session_of(connection)

    assert [*session.stream("ledger.all_references")] == expected
    assert session.rows("ledger.all_references") == expected
    assert session.one("ledger.all_references") == expected[0]


def test_streams_with_and_without_invalid_texts_are_read_side_by_side(
    connection: sqlite3.Connection,
) -> None:
    expected = add_references(connection, _PAGE_ROWS)
    session = session_of(connection)
    streams = [session.stream("ledger.all_references") for _ in range(2)]

    assert [*zip(*streams, strict=True)] == [(row, row) for row in expected]
    assert connection.text_factory is str


async def test_decoding_of_a_statement_turns_an_invalid_text_into_what_it_says(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    add_references(connection, 0)
    connection.execute(
        "INSERT INTO facts"
        " (fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at)"
        f" VALUES ('f1', {INVALID}, 'a', '{{}}', '[]', 1, '{{}}', '')"
    )
    memory = SQLiteEpisodeEngine(tmp_path / "memory.db", Pragmas())
    await memory.bootstrap()
    await memory.close()
    with closing(sqlite3.connect(memory.path)) as episodes:
        episodes.execute(f"INSERT INTO episodes VALUES ('e1', {INVALID}, x'', '', x'')")
        page = {"after": -1, "limit": 9}
        lenient = session_of(episodes).rows("episodes.page", page)[0][2]
    session = session_of(connection)

    assert (lenient, type(lenient)) == ("c\\xe9", Mangled)
    assert session.rows("facts.all_facts")[0].count(None) == 1
    assert session.rows("ledger.all_references")[0][0] == f"r0000{ESCAPED}"


def test_texts_of_a_statement_that_decodes_bytes_are_bytes(
    connection: sqlite3.Connection,
) -> None:
    connection.execute(
        "INSERT INTO slumberd_firings VALUES (1, 'valid', '', 'every', 0, 0, 0, 0, '', x'')"
    )
    session = session_of(connection)

    assert session.rows("ledger.firings_from", {"first": 0})[0][1] == b"valid"
    assert next(session.stream("ledger.firings_from", {"first": 0}))[1] == b"valid"
    assert connection.text_factory is str


async def test_invalid_text_is_an_error_of_a_statement_without_a_decoding(
    facts: SQLiteFactEngine, connection: sqlite3.Connection
) -> None:
    connection.execute(f"INSERT INTO slumberd_watermark VALUES ({INVALID}, 1, 'e', 1)")

    def rows(session: Session) -> object:
        return session.rows("ledger.watermarks")

    def stream(session: Session) -> object:
        return [*session.stream("ledger.watermarks")]

    reads: list[Callable[[Session], object]] = [rows, stream]
    for read in reads:
        with pytest.raises(StoreError, match="UTF-8"):
            await facts.read(read)
    await facts.close()


@of_each(lambda: FILES)
def test_every_statement_names_a_decoding_that_exists(file: str) -> None:
    named = {decoding(file, name) for name in statements(file)}

    assert named <= {"", "lenient", "escaped", "none", "bytes"}

"""Lists arrive at the server as they were sent."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from slumberd.storage.postgres.arrays import ELEMENT_TYPES, array_of
from slumberd.storage.postgres.connection import connect

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("element_type", "values"),
    [
        pytest.param("text", ["", "Zoë 🙂", 'a "quote", {a brace} and \\', "NULL"], id="texts"),
        pytest.param("text", [None, "b", None], id="texts-and-nulls"),
        pytest.param("bytea", [b"", b"\x00\xff", None, b"{}"], id="bytes"),
        pytest.param("bigint", [0, -1, 2**63 - 1, -(2**63), None], id="integers"),
        pytest.param("double precision", [0.5, -1e300, float("inf"), None], id="floats"),
        *(pytest.param(each, [], id=f"no-{each}") for each in ELEMENT_TYPES),
        *(pytest.param(each, [None], id=f"one-null-of-{each}") for each in ELEMENT_TYPES),
    ],
)
def test_an_array_is_read_as_it_was_written(
    postgres_address: str, element_type: str, values: list[Any]
) -> None:
    with connect(postgres_address) as connection, psycopg.RawCursor(connection) as cursor:
        cursor.execute(f"SELECT $1::{element_type}[]".encode(), [array_of(element_type, values)])

        row = cursor.fetchone()

    assert row == (values,)


def test_a_text_with_nul_is_refused_before_it_is_sent(postgres_address: str) -> None:
    with connect(postgres_address) as connection, psycopg.RawCursor(connection) as cursor:
        with pytest.raises(psycopg.DataError, match="NUL"):
            cursor.execute(b"SELECT $1::text[]", [array_of("text", ["a", "b\0c"])])

        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_half_of_a_surrogate_pair_is_refused(postgres_address: str) -> None:
    with (
        connect(postgres_address) as connection,
        psycopg.RawCursor(connection) as cursor,
        pytest.raises(UnicodeEncodeError),
    ):
        cursor.execute(b"SELECT $1::text[]", [array_of("text", ["\ud800"])])

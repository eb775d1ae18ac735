"""The server prepares each named statement, on the tables of a shard or on those of the map."""

from __future__ import annotations

import re

import psycopg
import pytest

from slumberd.sql_statements import statements
from slumberd.storage.postgres.connection import Connection, connect
from slumberd.storage.postgres.session import PACKAGE, _find_statement
from tests.support.lists import of_each
from tests.support.sql_files import files_of

pytestmark = pytest.mark.integration

SCHEMAS = ("slumberd", "slumberd_0")
"""The schema of the map, and that of a shard."""

NEVER_PREPARED = re.compile("(ALTER|COPY|LOCK|RESET|SET) ")
"""How a statement begins that a server cannot prepare."""


def prepare(connection: Connection, sql: str) -> str:
    """Return why the server does not prepare a statement; empty if it does."""
    problem = ""
    for schema in SCHEMAS:
        connection.use(schema)
        try:
            connection.execute(f"PREPARE checked AS {sql}".encode())
        except psycopg.Error as error:
            problem = str(error)
        else:
            connection.execute(b"DEALLOCATE checked")
            return ""
    return problem


@pytest.mark.slow
@of_each(lambda: files_of(PACKAGE))
def test_server_prepares_the_statements_of_a_file(file: str, postgres_address: str) -> None:
    with connect(postgres_address, autocommit=True) as connection:
        problems = {
            name: problem
            for name in statements(file, PACKAGE)
            for sql in [_find_statement(f"{file}.{name}").sql]
            if not NEVER_PREPARED.match(sql) and (problem := prepare(connection, sql))
        }

    assert problems == {}

"""The server of the tests starts, crashes and ends with them, and gives each test a database."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres_server import (
    ADDRESS_VARIABLE,
    REQUIRED_VARIABLE,
    OwnServer,
    PostgresServer,
    skip_without_server,
)
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

TABLES = """
SELECT count(*) FROM pg_tables
WHERE schemaname ~ '^slumberd_[0-9]+$' AND tablename = 'slumberd_ledger'
"""
DATABASES = "SELECT datname FROM pg_database WHERE datname LIKE 'slumberd_test_%'"


@pytest.mark.parametrize("shards", [1, 3])
def test_database_has_the_wanted_shards(postgres: PostgresServer, shards: int) -> None:
    with postgres.database(shards=shards) as name:
        found = postgres.rows(TABLES, name)

    assert found == [(shards,)]


def test_databases_know_nothing_of_each_other(postgres: PostgresServer) -> None:
    with postgres.database() as first, postgres.database() as second:
        postgres.run("CREATE TABLE own (a int)", database=first)
        here = postgres.rows("SELECT to_regclass('own') IS NULL", first)
        there = postgres.rows("SELECT to_regclass('own') IS NULL", second)

    assert (here, there) == ([(False,)], [(True,)])


def test_database_is_dropped_though_a_connection_is_open(postgres: PostgresServer) -> None:
    with postgres.database() as name:
        connection = psycopg.connect(postgres.address_of(name))

    with closing(connection), pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert (name,) not in postgres.rows(DATABASES, "template1")


def test_connections_are_ended(postgres: PostgresServer, postgres_address: str) -> None:
    connection = psycopg.connect(postgres_address)

    postgres.end_connections(postgres_address.rpartition("/")[2])

    with closing(connection), pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_login_has_the_roles_that_it_was_created_with(
    postgres: PostgresServer, postgres_address: str
) -> None:
    database = postgres_address.rpartition("/")[2]
    postgres.login("a_host", "slumberd_host")
    postgres.login("a_host", "slumberd_host")

    with psycopg.connect(postgres.address_of(database, login="a_host")) as connection:
        found = connection.execute(
            "SELECT current_user, pg_has_role('slumberd_host', 'USAGE'),"
            " pg_has_role('slumberd_daemon', 'USAGE')"
        ).fetchone()

    assert found == ("a_host", True, False)


@pytest.mark.nightly
def test_server_keeps_what_was_committed_before_a_crash(own_postgres: OwnServer) -> None:
    with own_postgres.database() as name:
        own_postgres.run("CREATE TABLE kept (a int)", database=name)
        first = own_postgres.pid

        own_postgres.stop(at_once=True)
        own_postgres.start()

        assert own_postgres.pid != first
        assert own_postgres.rows("SELECT count(*) FROM kept", name) == [(0,)]


KILLED = """
import os, signal
from tests.support.postgres_server import running_server

with running_server() as server:
    print(server.pid, server.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.nightly
def test_server_ends_with_a_process_of_the_tests_that_is_killed(own_postgres: OwnServer) -> None:
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=root, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    pid, folder = done.stdout.split()

    wait_until(lambda: not is_postgres(pid))
    wait_until(lambda: not list(Path(folder).glob(".s.PGSQL.*")))
    shutil.rmtree(folder)


def is_postgres(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except OSError:
        return False


def test_missing_server_skips_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED_VARIABLE, raising=False)

    with pytest.raises(pytest.skip.Exception, match=f"apt install postgresql.*{ADDRESS_VARIABLE}"):
        skip_without_server()


def test_missing_server_fails_a_test_that_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED_VARIABLE, "1")

    with pytest.raises(pytest.fail.Exception, match="no PostgreSQL"):
        skip_without_server()

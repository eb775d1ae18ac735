"""An open snapshot keeps erased text in the tables; the duty stays open until it is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from slumberd.operations.writes import erasures as erasures_module
from slumberd.operations.writes.erasures import ForgetForm
from tests.daemon.test_erasure import CANARY, OTHER, canary
from tests.daemon.test_pending_bytes import ME, SCOPE, erasures_of, filled
from tests.support.builders import at
from tests.support.daemons import Home
from tests.support.fakes import FakeClock
from tests.support.installation import jsonl
from tests.support.open_stores import OpenStores, open_stores
from tests.support.postgres_server import OwnServer
from tests.support.providers import PostgresProvider

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def database(own_postgres: OwnServer) -> Iterator[str]:
    """A database of a server whose files the test reads."""
    with own_postgres.database() as name:
        for role in ("daemon", "reader"):
            own_postgres.login(f"a_{role}", f"slumberd_{role}")
        yield name


@contextmanager
def snapshot(address: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold a snapshot, as a report does."""
    with psycopg.connect(address, application_name="report") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        yield reader
        reader.rollback()


def tables_with_canary(server: OwnServer, database: str) -> list[str]:
    """Return the files of the tables and indexes that contain the canary, after a checkpoint."""
    server.run("CHECKPOINT", database=database)
    folder = server.folder / "data" / "base"
    return [str(file) for file in folder.rglob("*") if CANARY.encode() in _content(file)]


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


@pytest.mark.parametrize("sees_others", [False, True], ids=["few rights", "pg_read_all_stats"])
async def test_an_open_snapshot_leaves_a_duty_that_ends_with_it(
    own_postgres: OwnServer, database: str, *, sees_others: bool
) -> None:
    if sees_others:
        own_postgres.run("GRANT pg_read_all_stats TO a_daemon")
    provider = PostgresProvider(own_postgres.address_of(database, login="a_daemon"))
    clock = FakeClock(at(60))
    async with open_stores(provider) as home:
        await filled(home)
        erasures = erasures_of(home, clock)
        with snapshot(own_postgres.address_of(database, login="a_reader")) as reader:
            certificate = await erasures.forget(ForgetForm(**SCOPE), ME)
            assert tables_with_canary(own_postgres, database)
            with capture_logs() as logs:
                await erasures.remove_bytes(quiet=False)
            assert logs == []
            name = f"process {reader.info.backend_pid} of login a_reader (report)"

        for store in ("facts", "episodes"):
            assert name in certificate["pending"][store]
            assert ("open for" in certificate["pending"][store]) == sees_others
        assert certificate["bytes_gone_at"] is None
        assert await still_erased(home)
        with capture_logs() as logs:
            await erasures.remove_bytes(quiet=False)
        assert [(line["event"], line["firing_id"]) for line in logs] == [
            ("erasure.completed", certificate["firing_id"])
        ]
        assert await home.facts.erasures.rewrites() == []
        assert tables_with_canary(own_postgres, database) == []


async def still_erased(home: OpenStores) -> bool:
    return list(await home.objects()) == ["other"]


async def test_a_transaction_that_begins_later_keeps_nothing(
    own_postgres: OwnServer, database: str
) -> None:
    provider = PostgresProvider(own_postgres.address_of(database, login="a_daemon"))
    async with open_stores(provider) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)), waits=True)
        await erasures.forget(ForgetForm(**SCOPE), ME)
        with snapshot(own_postgres.address_of(database, login="a_reader")):
            await erasures.remove_bytes(quiet=True)

            assert await home.facts.erasures.rewrites() == []
            assert tables_with_canary(own_postgres, database) == []


async def test_a_transaction_that_keeps_nothing_does_not_stop_the_daemon_for_ever(
    own_postgres: OwnServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasures_module, "_ATTEMPTS_PER_TRIAL", 3)
    provider = PostgresProvider(own_postgres.address_of(database, login="a_daemon"))
    reader = own_postgres.address_of(database, login="a_reader")
    async with open_stores(provider) as home:
        await filled(home)
        erasures = erasures_of(home, FakeClock(at(60)))
        with psycopg.connect(reader) as idle:
            idle.execute("SELECT 1")  # in a transaction without a snapshot from now on
            with snapshot(reader):
                certificate = await erasures.forget(ForgetForm(**SCOPE), ME)
            left = []
            for _ in range(2):
                await erasures.remove_bytes(quiet=False)
                left.append(len(await home.facts.erasures.rewrites()))

    assert list(certificate["pending"]) == ["facts", "episodes"]
    assert left == [2, 0]


async def test_an_idle_transaction_that_locks_a_table_is_named(
    own_postgres: OwnServer, database: str
) -> None:
    provider = PostgresProvider(own_postgres.address_of(database, login="a_daemon"))
    async with open_stores(provider) as home:
        await filled(home)
        with psycopg.connect(own_postgres.address_of(database)) as other:
            other.execute("LOCK TABLE slumberd_0.slumberd_watermark IN ACCESS SHARE MODE")
            certificate = await erasures_of(home, FakeClock(at(60))).forget(ForgetForm(**SCOPE), ME)
            name = f"process {other.info.backend_pid} of login"

        assert name in certificate["pending"]["facts"]


def findings_of(home: Home, *words: str) -> dict[str, dict[str, Any]]:
    document = json.loads(home.call(*words, "--json", check=False).stdout)
    return {finding["id"]: finding for finding in document["findings"]}


@pytest.mark.acceptance
def test_forget_ends_with_71_and_doctor_names_the_transaction(
    own_postgres: OwnServer, database: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    home.configure({"store": own_postgres.address_of(database, login="a_daemon")})
    home.rule("all", cadence={"every": 1})
    source = tmp_path / "episodes.jsonl"
    source.write_bytes(jsonl(canary("1"), OTHER))
    home.call("import", source)
    home.call("fire", "--all")
    with snapshot(own_postgres.address_of(database, login="a_reader")) as reader:
        ended = home.call("forget", "--user", f"{CANARY}-user", "--yes", check=False)
        found = findings_of(home, "doctor")["erasure.pending"]
        urgent = findings_of(home, "status", "--check")
        name = f"process {reader.info.backend_pid} of login a_reader"

    assert ended.returncode == 71
    assert name in ended.stderr
    assert name in found["problem"]
    assert "end that transaction" in found["remedy"]
    assert "erasure.pending" in urgent
    with home.started() as daemon:
        done = daemon.wait_for("erasure.completed")
    assert done["firing_id"] == json.loads(ended.stdout)["firing_id"]
    assert tables_with_canary(own_postgres, database) == []
    assert "erasure.pending" not in findings_of(home, "doctor")

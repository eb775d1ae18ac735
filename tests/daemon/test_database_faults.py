"""A daemon on a database goes on after faults of the network, of the server and of its disk."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from slumberd.model.errors import StoreError
from tests.daemon.test_database_daemon import home_on, put
from tests.support.broken_disks import Disk
from tests.support.daemons import Home
from tests.support.injected_errors import MOMENTS, inject_errors
from tests.support.lossy_proxy import lossy_proxy
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

needs_namespace = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


def consolidate_one_more(server: PostgresServer, address: str, number: int) -> None:
    """Put an episode, and wait until its fact is the only one: it replaces the one before."""
    put(address, f"e{number}")
    facts = "SELECT fact_id FROM slumberd_0.facts"
    wait_until(lambda: server.rows(facts, address.rpartition("/")[2]) == [(f"e{number}",)])


def put_until_the_disk_is_full(disk: Disk, address: str) -> int:
    """Fill a disk, and return the number of the last episode that still found a place."""
    disk.fill()
    for number in itertools.count(2):
        try:
            put(address, f"e{number}")
        except StoreError as error:
            if "the disk of the server is full" not in str(error):
                raise
            return number - 1
    raise AssertionError("the disk is never full")


def check_written_once(server: PostgresServer, home: Home, address: str, episodes: int) -> None:
    database = address.rpartition("/")[2]
    log = "SELECT count(*), max(seq) FROM slumberd_0.slumberd_episode_log"
    logged = server.rows(log, database)
    claims = server.rows(
        "SELECT count(*), count(DISTINCT fact_id) FROM slumberd_0.slumberd_ledger"
        " WHERE fact_id IS NOT NULL",
        database,
    )
    assert logged == claims == [(episodes, episodes)]
    assert "verified: " in home.call("audit", "verify").stdout


def test_daemon_goes_on_after_connections_that_were_lost_in_a_copy(
    tmp_path: Path, postgres: PostgresServer, postgres_address: str
) -> None:
    assert isinstance(postgres, OwnServer)
    with lossy_proxy(postgres, postgres_address.rpartition("/")[2]) as (proxy, through):
        home = home_on(tmp_path / "home", through)
        with home.daemon() as daemon:
            for number in range(1, 4):
                proxy.lose("copy", 1, within="COPY slumberd_ledger")
                consolidate_one_more(postgres, postgres_address, number)
                failed = daemon.wait_for("firing.failed")
                assert failed["error"] == "DatabaseUnreachableError"

    assert proxy.lost == 3
    other = home_on(tmp_path / "other", postgres_address)
    check_written_once(postgres, other, postgres_address, 3)


@pytest.mark.cases(2)
@pytest.mark.parametrize("code", ["40001", "40P01", "57014", "53100", "53200"])
def test_daemon_goes_on_after_errors_of_the_server(
    tmp_path: Path, postgres: PostgresServer, postgres_address: str, code: str
) -> None:
    home = home_on(tmp_path / "home", postgres_address)
    database = postgres_address.rpartition("/")[2]
    with home.daemon() as daemon:
        consolidate_one_more(postgres, postgres_address, 1)
        for number, moment in enumerate(MOMENTS, 2):
            inject_errors(postgres, database, "slumberd_watermark", code, times=1, moment=moment)
            consolidate_one_more(postgres, postgres_address, number)
            failed = daemon.wait_for("firing.failed")
            assert failed["retry_seconds"] < 2

    check_written_once(postgres, home, postgres_address, 3)


def test_command_says_that_what_it_did_may_be_committed(
    tmp_path: Path, postgres: PostgresServer, postgres_address: str
) -> None:
    assert isinstance(postgres, OwnServer)
    database = postgres_address.rpartition("/")[2]
    put(postgres_address, "e1")
    with lossy_proxy(postgres, database) as (proxy, through):
        home = home_on(tmp_path / "home", through)
        proxy.lose("answer", 1, within="COPY slumberd_ledger")

        lost = home.call("fire", "--all", check=False)
        again = home.call("fire", "--all")

        assert lost.returncode == 74
        assert "may be committed" in lost.stderr
        assert again.returncode == 0
        assert [fact["id"] for fact in home.facts()] == ["e1"]
        check_written_once(postgres, home, postgres_address, 1)


@pytest.mark.nightly
@needs_namespace
def test_daemon_goes_on_after_the_disk_of_the_server_was_full(
    tmp_path: Path, own_postgres: OwnServer
) -> None:
    small = own_postgres.folder / "small"
    with Disk(small, size="64m") as disk:
        os.chown(disk.seen, *own_postgres.owner)
        own_postgres.restart_within(disk.within)
        own_postgres.run(f"CREATE TABLESPACE small LOCATION '{small}'")
        with own_postgres.database() as name:
            own_postgres.run(f"ALTER DATABASE {name} SET TABLESPACE small")
            address = own_postgres.address_of(name)
            home = home_on(tmp_path / "home", address)
            with home.daemon():
                consolidate_one_more(own_postgres, address, 1)
                number = put_until_the_disk_is_full(disk, address)
                disk.make_room()
                consolidate_one_more(own_postgres, address, number + 1)
            check_written_once(own_postgres, home, address, number + 1)
        own_postgres.run("DROP TABLESPACE small")
        own_postgres.stop()

"""Hosts of two versions of slumberd work side by side on one database."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import slumberd
from tests.daemon.test_sharded_daemon import home_on, put, wait_for_facts
from tests.support.daemons import Home
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.acceptance

SIDE_BY_SIDE = """-- works with: step 3
ALTER TABLE slumberd_0.facts ADD COLUMN added_later text;
ALTER TABLE slumberd_0.slumberd_ledger ADD COLUMN added_later text;
ALTER TABLE slumberd_0.episodes ADD COLUMN added_later text;
"""
ALONE = "ALTER TABLE slumberd_0.lease ADD COLUMN added_later text;"


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def database(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=request.param) as name:
        yield postgres.address_of(name)


def newer_version(folder: Path, statements: str) -> dict[str, str]:
    """Make a later version with one more step of the schema; return the environment to run it."""
    package = folder / "later" / "slumberd"
    shutil.copytree(
        Path(slumberd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    step = package / "storage" / "postgres" / "schema" / "004_later.shard.sql"
    step.write_text(statements)
    return {"PYTHONPATH": str(package.parent)}


def upgrade(home: Home, address: str, environment: dict[str, str]) -> None:
    subprocess.run(
        [str(home.python), "-m", "slumberd", "postgres", "upgrade", address],
        check=True,
        env={**os.environ, **environment},
        capture_output=True,
    )


@pytest.mark.cases(1)
def test_older_daemon_goes_on_until_the_newer_one_takes_over(
    tmp_path: Path, database: str, postgres: PostgresServer
) -> None:
    old, new = home_on(tmp_path / "old", database), home_on(tmp_path / "new", database)
    environment = newer_version(tmp_path, SIDE_BY_SIDE)
    with old.started() as active:
        put(database, 1)
        wait_for_facts(postgres, database, 1)

        upgrade(new, database, environment)
        put(database, 2)
        wait_for_facts(postgres, database, 2)

        until = "daemon.standby" if _shards(postgres, database) == 1 else "shards.held"
        with new.started(until=until, **environment) as later:
            put(database, 3)
            wait_for_facts(postgres, database, 3)
            assert active.stop() == 0

            put(database, 4)
            wait_for_facts(postgres, database, 4)
            assert later.stop() == 0


@pytest.mark.nightly
def test_older_daemon_starts_on_a_schema_that_works_with_it(
    tmp_path: Path, database: str, postgres: PostgresServer
) -> None:
    home = home_on(tmp_path / "old", database)
    upgrade(home, database, newer_version(tmp_path, SIDE_BY_SIDE))

    with home.daemon():
        put(database, 1)
        wait_for_facts(postgres, database, 1)


@pytest.mark.cases(1)
def test_older_version_refuses_a_schema_that_does_not_work_with_it(
    tmp_path: Path, database: str
) -> None:
    home = home_on(tmp_path / "old", database)
    upgrade(home, database, newer_version(tmp_path, ALONE))

    refused = home.slumberd("run", check=False)

    assert refused.returncode == 74
    assert "newer slumberd: step 4" in refused.stderr


def _shards(postgres: PostgresServer, address: str) -> int:
    [(count,)] = postgres.rows("SELECT count(*) FROM slumberd.shards", address.rpartition("/")[2])
    return int(count)

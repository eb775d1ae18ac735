"""What `slumberd doctor` finds in a database that several hosts use."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from slumberd.config.settings import Settings
from slumberd.diagnostics import database_checks
from slumberd.diagnostics.database_checks import check_database, database_status_of
from slumberd.model.health import Finding
from slumberd.model.store_status import DatabaseStatus, HostStatus, ShardHolder
from slumberd.storage.postgres.database_status import read_database_status
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration

WELL = DatabaseStatus(
    where="postgresql://db/memory",
    shards=[ShardHolder(0, "a/1", 0.0)],
    hosts=[
        HostStatus("a/1", 1.0, "active", "0.2.0", "hash", 0.01),
        HostStatus("b/2", 1.0, "standby", "0.2.0", "hash", -0.02),
        HostStatus("gone/3", 900.0, "active", "0.1.0", "other", 99.0),
    ],
    unnumbered=10,
    requests=0,
    oldest_transaction_seconds=3.0,
    dead_rows={},
    transaction_age=1_000,
    is_durable=True,
    is_replica=False,
)


@pytest.fixture
def settings(tmp_path: object) -> Settings:
    return Settings.model_validate(
        {
            "state_dir": str(tmp_path),
            "rules_dir": str(tmp_path),
            "store": "postgresql://me:secret@db/memory",
            "postgres": {"lease": 10.0},
        }
    )


def findings_of(
    status: DatabaseStatus, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> list[Finding]:
    monkeypatch.setattr(database_checks, "database_status_of", lambda _: status)
    return [*check_database(settings)]


def test_database_that_is_well_has_no_findings(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings_of(WELL, settings, monkeypatch) == []


@pytest.mark.parametrize(
    ("changed", "id", "text"),
    [
        ({"shards": [ShardHolder(0, None, 31.0)]}, "database.unheld", "held shard 0 for 31 s"),
        ({"unnumbered": 50_001}, "database.inbox", "more than 50,000 versions"),
        (
            {"hosts": [WELL.hosts[0]._replace(clock_offset_seconds=-1.5)]},
            "host.clock",
            "-1.5 s from the database's",
        ),
        (
            {"hosts": [WELL.hosts[0], WELL.hosts[1]._replace(version="0.3.0")]},
            "hosts.differ",
            "a/1 has 0.2.0, b/2 has 0.3.0",
        ),
        (
            {"hosts": [WELL.hosts[0], WELL.hosts[1]._replace(rules_hash="new")]},
            "hosts.differ",
            "different rules",
        ),
        ({"oldest_transaction_seconds": 660.0}, "database.old_transaction", "for 11 minutes"),
        ({"dead_rows": {"inbox": (5, 200_000)}}, "database.dead_rows", "200,000 old versions"),
        ({"transaction_age": 1_600_000_000}, "database.wraparound", "1,600,000,000"),
        ({"is_durable": False}, "database.not_durable", "lost in a crash"),
        ({"is_replica": True}, "database.replica", "takes no writes"),
    ],
)
def test_each_problem_has_one_finding(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    id: str,
    text: str,
) -> None:
    [found] = findings_of(replace(WELL, **changed), settings, monkeypatch)  # type: ignore[arg-type]

    assert found.id == id
    assert text in found.problem
    assert found.remedy
    assert "secret" not in str(found)


@pytest.mark.parametrize("seconds", [0.0, 29.0])
def test_shard_may_be_free_for_a_moment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    free = replace(WELL, shards=[ShardHolder(0, None, seconds)])

    assert findings_of(free, settings, monkeypatch) == []


def test_configuration_with_files_has_no_database(settings: Settings) -> None:
    assert database_status_of(settings.model_copy(update={"store": None})) is None


def test_status_is_read_from_the_server(postgres: PostgresServer, postgres_address: str) -> None:
    database = postgres_address.rpartition("/")[2]
    postgres.run(
        "UPDATE slumberd.shards SET holder = 'a/1', held_until = now() + interval '1 hour'",
        "INSERT INTO slumberd.hosts VALUES ('a/1', now() - interval '7 seconds',"
        """ '{"role": "active", "version": "9", "clock_offset_seconds": 0.5}')""",
        "INSERT INTO slumberd.inbox (shard, eid) VALUES (0, 'e1'), (0, 'e2')",
        "INSERT INTO slumberd.requests (operation, request, host) VALUES ('fire', '', 'me')",
        database=database,
    )
    with psycopg.connect(postgres_address) as reading:
        reading.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reading.execute(b"SELECT count(*) FROM slumberd.facts")
        status = read_database_status(postgres_address)

    assert status.shards == [(0, "a/1", 0.0)]
    [host] = status.hosts
    assert (host.name, host.role, host.version, host.rules_hash) == ("a/1", "active", "9", "")
    assert host.seen_seconds >= 7
    assert (status.unnumbered, status.requests) == (2, 1)
    assert status.oldest_transaction_seconds > 0
    assert (status.is_durable, status.is_replica) == (False, False)  # the tests turn fsync off

"""What of the state of a database is a finding, and from which limit on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slumberd.daemon.stores import database_status_of
from slumberd.model.store_status import (
    DatabaseStatus,
    HostStatus,
    OldestTransaction,
    ShardHolder,
)
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.database_checks import check_status

pytestmark = pytest.mark.unit

LEASE = 10.0
WELL = DatabaseStatus(
    where="postgresql://db/memory",
    server="15.18",
    bytes=1_000_000,
    shards=[ShardHolder(0, "a/1", 8.0, 0.0)],
    hosts=[
        HostStatus("a/1", 1.0, "active", "0.2.0", "hash", None, 0.01),
        HostStatus("b/2", 1.0, "standby", "0.2.0", "hash", None, -0.02),
        HostStatus("gone/3", 900.0, "active", "0.1.0", "other", None, 99.0),
    ],
    unnumbered=10,
    unnumbered_seconds=60.0,
    requests=0,
    oldest_transaction=OldestTransaction("process 1 of report", 600.0, 2_000_000),
    dead_rows={},
    transaction_age=1_500_000_000,
    is_durable=True,
    is_read_only=False,
)


def test_database_at_its_limits_has_no_findings() -> None:
    assert list(check_status(WELL, LEASE)) == []


@pytest.mark.parametrize(
    ("changed", "id", "text"),
    [
        ({"shards": [ShardHolder(0, None, 0.0, 31.0)]}, "database.unheld", "shard 0 for 31 s"),
        ({"unnumbered_seconds": 61.0}, "database.inbox", "10 versions of episodes"),
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
        (
            {"oldest_transaction": OldestTransaction("process 1 of report", 660.0, 1)},
            "database.old_transaction",
            "process 1 of report has kept old versions of rows for 11 minutes",
        ),
        (
            {"oldest_transaction": OldestTransaction("replication slot 'a'", None, 1_000_001)},
            "database.old_transaction",
            "for 1,000,001 transactions",
        ),
        ({"dead_rows": {"inbox": (5, 200_000)}}, "database.dead_rows", "200,000 old versions"),
        ({"transaction_age": 1_500_000_001}, "database.wraparound", "1,500,000,001"),
        ({"is_durable": False}, "database.not_durable", "lost in a crash"),
        ({"is_read_only": True}, "database.read_only", "takes no writes"),
    ],
)
def test_each_problem_has_one_finding(changed: dict[str, object], id: str, text: str) -> None:
    [found] = check_status(replace(WELL, **changed), LEASE)  # type: ignore[arg-type] # any field

    assert found.id == id
    assert text in found.problem
    assert found.remedy


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_shard_may_be_free_for_three_leases(seconds: float) -> None:
    free = replace(WELL, shards=[ShardHolder(0, None, 0.0, seconds)])

    assert list(check_status(free, LEASE)) == []


def test_inbox_is_no_finding_while_nobody_holds_the_shard() -> None:
    free = replace(WELL, shards=[ShardHolder(0, None, 0.0, 1.0)], unnumbered_seconds=900.0)

    assert list(check_status(free, LEASE)) == []


def test_configuration_with_files_has_no_database(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, rules_dir=tmp_path)

    assert database_status_of(settings) is None

"""A host tells others of its rules, and warns of those that keep other rules."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from slumberd.model.rule_sets import RulesToPublish
from slumberd.service.database.host_reports import HostReports
from slumberd.storage.postgres.lease import HostTable
from slumberd.storage.postgres.rule_sets import RuleSetTable
from tests.support.builders import at
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.integration


@pytest.fixture
async def other(postgres_address: str) -> AsyncIterator[HostTable]:
    table = HostTable(postgres_address, "beta/2")
    yield table
    await table.close()


@pytest.fixture
async def table(postgres_address: str) -> AsyncIterator[HostTable]:
    table = HostTable(postgres_address, "alpha/1")
    yield table
    await table.close()


async def test_host_warns_once_of_rules_that_differ_at_two_looks(
    table: HostTable, other: HostTable
) -> None:
    reports = HostReports(table, FakeClock(at(0)))
    reports.describe(lambda: {"rules_hash": "new"})
    logged = []
    for rules_of_other in ("old", "older", "older", "older", "new", "older", "new"):
        await other.tell_host({"rules_hash": rules_of_other})
        with capture_logs() as log:
            await reports.compare_rules()
        logged.append([line["hosts"] for line in log])

    assert logged == [[], [], [["beta/2 has older"]], [], [], [], []]


async def test_host_notices_the_newest_version_whenever_it_tells_of_itself(
    table: HostTable, postgres_address: str
) -> None:
    noticed: list[int] = []
    reports = HostReports(table, FakeClock(at(0)))
    reports.describe(lambda: {"rules_hash": "new"}, noticed.append)

    await reports.tell("active")
    RuleSetTable(postgres_address).publish(RulesToPublish("", {"a.yaml": "one"}, "ann"))
    await reports.tell("active")
    RuleSetTable(postgres_address).publish(RulesToPublish("", {"a.yaml": "two"}, "ann"))
    await reports.tell("standby")

    assert noticed == [0, 1, 2]

"""The health page says what a person must do, from the figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from slumberd.model.health import DaemonHealth, ProvenanceHealth, RuleHealth, RuleStatus
from slumberd.model.store_status import DatabaseStatus, HostStatus, ShardHolder
from slumberd.web.console.pages.health import LATE_SECONDS, WAL_BYTES, Advice, advise

pytestmark = pytest.mark.unit

HEALTHY = DaemonHealth(
    at=datetime(2026, 3, 1, tzinfo=UTC),
    uptime_seconds=3_600.0,
    loop_lag_seconds=0.0,
    wal_bytes=0,
    rss_bytes=None,
    dropped=0,
    loaded=1,
    rules=[RuleHealth(RuleStatus("home"))],
    oldest_seconds=None,
    next_at=None,
    succeeded_at=None,
    quarantined=0,
    held=0,
)
STATUS: dict[str, Any] = {"failing": [], "language_model": None}
CURRENT: dict[str, list[str]] = {"reload": [], "restart": []}
MODEL = {
    "day": "2026-03-01",
    "calls": 3,
    "tokens": 900,
    "cost": 0.5,
    "budget": {"calls": 200, "tokens": 1_000, "cost": None},
    "problem": "",
}
DATABASE = DatabaseStatus(
    where="the database",
    server="17.2",
    bytes=1,
    shards=[ShardHolder(0, "h1:1", 20.0, 0.0)],
    hosts=[HostStatus("h1:1", 1.0, "active", "1", "aa", None, 0.0)],
    unnumbered=0,
    unnumbered_seconds=0.0,
    requests=0,
    oldest_transaction=None,
    dead_rows={},
    transaction_age=0,
    is_durable=True,
    is_read_only=False,
)


def advice_on(
    health: DaemonHealth = HEALTHY,
    status: dict[str, Any] = STATUS,
    outdated: dict[str, list[str]] = CURRENT,
) -> list[Advice]:
    return advise(health, status, outdated, 30.0)


def failing(failures: int, *, degraded: bool) -> dict[str, Any]:
    rule = {
        "rule_id": "home",
        "since": "2026-03-01T12:00:00.5Z",
        "failures": failures,
        "error": "FilterError",
        "degraded": degraded,
    }
    return {**STATUS, "failing": [rule]}


def of_rule(**fields: Any) -> DaemonHealth:
    return replace(HEALTHY, rules=[RuleHealth(RuleStatus("home", **fields))])


def test_healthy_daemon_needs_nobody() -> None:
    busy = replace(
        of_rule(late_seconds=LATE_SECONDS - 1, pending=9),
        wal_bytes=WAL_BYTES,
        provenance=ProvenanceHealth(5, LATE_SECONDS, 0),
        database=DATABASE,
    )

    assert advice_on() == []
    assert advice_on(busy, {**STATUS, "language_model": MODEL}) == []


@pytest.mark.parametrize(
    ("health", "problem", "to"),
    [
        pytest.param(
            replace(HEALTHY, held=1), "1 batch awaits approval", "/console/approvals", id="held"
        ),
        pytest.param(
            replace(HEALTHY, quarantined=2),
            "2 episodes are in quarantine",
            "/console/quarantine",
            id="quarantine",
        ),
        pytest.param(
            of_rule(late_seconds=LATE_SECONDS),
            "The rule home has been due for 10 minutes",
            "/console/rule?rule=home",
            id="late",
        ),
        pytest.param(
            of_rule(paused=True), "The rule home is paused", "/console/rule?rule=home", id="paused"
        ),
        pytest.param(replace(HEALTHY, dropped=3), "3 log lines were dropped", "", id="lines"),
        pytest.param(
            replace(HEALTHY, wal_bytes=WAL_BYTES + 2**20),
            "The write-ahead logs take 513 MiB",
            "",
            id="logs",
        ),
        pytest.param(
            replace(HEALTHY, loop_lag_seconds=2.5),
            "The event loop was delayed by 2.5 s",
            "",
            id="loop",
        ),
        pytest.param(
            replace(HEALTHY, provenance=ProvenanceHealth(1_200, 1_200.0, 0)),
            "The provenance sink is 1,200 rows and 20 minutes behind",
            "",
            id="provenance",
        ),
        pytest.param(
            replace(HEALTHY, provenance=ProvenanceHealth(0, 0.0, 1)),
            "1 row is never published: the provenance sink accepts no form of them",
            "",
            id="refused",
        ),
        pytest.param(
            replace(HEALTHY, database=replace(DATABASE, shards=[ShardHolder(0, None, 0.0, 91.0)])),
            "no daemon has held shard 0 for 91 s",
            "",
            id="shard",
        ),
    ],
)
def test_figure_that_needs_a_person_has_its_own_advice(
    health: DaemonHealth, problem: str, to: str
) -> None:
    [found] = advice_on(health)

    assert (found.problem, found.to) == (problem, to)
    assert found.remedy


def test_rule_that_fails_is_an_error_only_when_it_is_degraded() -> None:
    [once] = advice_on(status=failing(1, degraded=False))
    [often] = advice_on(status=failing(4, degraded=True))

    assert once.severity == "warning"
    assert "failed once since 2026-03-01T12:00:00Z: FilterError" in once.problem
    assert often.severity == "error"
    assert "4 times in a row" in often.problem


def test_spent_budget_hides_that_the_model_is_not_asked() -> None:
    spent = {**MODEL, "tokens": 1_000, "problem": "BudgetSpentError: 1000 tokens"}
    silent = {**MODEL, "problem": "ModelUnavailableError: no answer"}

    [budget] = advice_on(status={**STATUS, "language_model": spent})
    [answer] = advice_on(status={**STATUS, "language_model": silent})

    assert budget.problem == "The budget of the language model for today is spent: tokens"
    assert "ModelUnavailableError: no answer" in answer.problem


def test_changed_keys_need_a_reload_or_a_restart() -> None:
    first, second = advice_on(outdated={"reload": ["timezone"], "restart": ["store", "serve"]})

    assert (first.problem, "reload" in first.remedy) == (
        "The configuration file has other values for timezone",
        True,
    )
    assert ("store, serve" in second.problem, "restart" in second.remedy) == (True, True)


def test_errors_come_before_warnings() -> None:
    found = advice_on(replace(HEALTHY, quarantined=1, held=1, dropped=1))

    assert [advice.severity for advice in found] == ["error", "warning", "warning"]

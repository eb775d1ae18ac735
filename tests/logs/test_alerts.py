"""Each alert of the monitoring kit fires on one log and stays quiet on another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.builders import at
from tests.support.catalogue_check import problems_of_line
from tests.support.lists import of_each
from tests.support.logql import Entry
from tests.support.monitoring import MINUTE, alerts, event_entry

pytestmark = pytest.mark.unit

DAY = 24 * 60


DATABASE = {
    "daemons": 2,
    "unheld": 0,
    "unnumbered": 0,
    "unnumbered_seconds": 0.0,
    "requests": 0,
    "oldest_transaction_seconds": 0.0,
}


def beats(minutes: Iterable[int], **fields: Any) -> list[Entry]:
    return [event_entry(minute, "daemon.heartbeat", **fields) for minute in minutes]


def deltas(count: int, rule_id: str, kind: str) -> list[Entry]:
    level = "warning" if kind == "quarantine" else "info"
    fields = {"rule_id": rule_id, "kind": kind, "level": level}
    return [event_entry(n, "delta.applied", **fields, seq=n) for n in range(count)]


def checkpoints(*rows: int) -> list[Entry]:
    return [event_entry(5 * n, "ledger.checkpoint", rows=r) for n, r in enumerate(rows)]


@dataclass(frozen=True)
class Case:
    """Two logs of equal length, one of which makes the alert fire.

    Attributes:
        trips: The lines that make the alert fire.
        quiet: Similar lines that do not make it fire.
        minutes: The length of both logs in minutes.
    """

    trips: Sequence[Entry]
    quiet: Sequence[Entry]
    minutes: int = 40


CASES = {
    "SlumberdHeartbeatDead": Case(
        trips=beats(range(30)),
        quiet=beats([*range(30), *range(34, 40)]),
        minutes=36,
    ),
    "SlumberdSilent": Case(
        trips=beats(range(5)),
        quiet=beats([*range(5), *range(14, 40)]),
        minutes=19,
    ),
    "SlumberdNoneActive": Case(
        trips=[event_entry(n, "daemon.standby", host="bob") for n in range(40)],
        quiet=[*beats(range(40)), *(event_entry(n, "daemon.standby", host="b") for n in range(40))],
    ),
    "SlumberdShardUnheld": Case(
        trips=beats(range(40), database=DATABASE | {"unheld": 1}),
        quiet=[
            beat
            for n in range(40)
            for beat in beats([n], database=DATABASE | {"unheld": 4 if n % 4 else 0})
        ],
    ),
    "SlumberdOldTransaction": Case(
        trips=beats(range(40), database=DATABASE | {"oldest_transaction_seconds": 700.0}),
        quiet=[
            beat
            for n in range(40)
            for beat in beats(
                [n], database=DATABASE | {"oldest_transaction_seconds": 700.0 if n % 4 else 0.0}
            )
        ],
    ),
    "SlumberdClockWrong": Case(
        trips=beats(range(40), clock_behind_seconds=10800.0),
        quiet=beats(range(40), clock_behind_seconds=299.0),
    ),
    "SlumberdEpisodesUnnumbered": Case(
        trips=beats(range(40), database=DATABASE | {"unnumbered_seconds": 90.0}),
        quiet=[
            beat
            for n in range(40)
            for beat in beats(
                [n], database=DATABASE | {"unnumbered_seconds": 90.0 if n % 4 else 0.0}
            )
        ],
    ),
    "SlumberdDaemonFailed": Case(
        trips=[event_entry(0, "daemon.failed", error="StoreError")],
        quiet=[
            event_entry(0, "daemon.stopping"),
            event_entry(0, "daemon.stopped"),
            event_entry(1, "daemon.ready"),
        ],
    ),
    "SlumberdWatchdogWithheld": Case(
        trips=[event_entry(0, "watchdog.withheld", reason="the loop is late")],
        quiet=beats(range(40), loop_lag_seconds=2.0),
    ),
    "SlumberdReloadFailed": Case(
        trips=[event_entry(0, "config.reload_failed", mistakes=1, errors=["rules.yaml:1:1: what"])],
        quiet=[
            event_entry(0, "config.restart_needed", keys=["facts.batch"]),
            event_entry(0, "config.reloaded"),
        ],
    ),
    "SlumberdStoreInTrouble": Case(
        trips=[event_entry(0, "heartbeat.failed"), event_entry(1, "heartbeat.failed")],
        quiet=[
            event_entry(0, "look.failed"),
            event_entry(1, "external.failed"),
            event_entry(20, "look.failed"),
        ],
    ),
    "SlumberdLogsDropped": Case(
        trips=[event_entry(0, "logs.dropped", lines=3)],
        quiet=[event_entry(0, "logs.repeated", rows=3)],
    ),
    "SlumberdWalGrowing": Case(
        trips=beats(range(40), wal_bytes=2 * 10**9),
        quiet=[
            beat for n in range(40) for beat in beats([n], wal_bytes=2 * 10**9 if n % 14 else 4096)
        ],
    ),
    "SlumberdMetricsUnwritten": Case(
        trips=[event_entry(0, "metrics.failed", error="OSError")], quiet=beats(range(40))
    ),
    "SlumberdProvenanceFailing": Case(
        trips=[event_entry(0, "provenance.failed", error="OSError")],
        quiet=[
            event_entry(0, "provenance.refused", slot="object"),
            event_entry(1, "provenance.resumed"),
        ],
    ),
    "SlumberdRuleFailing": Case(
        trips=[
            event_entry(n, "firing.failed", rule_id="tea", error="StoreError") for n in range(2)
        ],
        quiet=[
            event_entry(0, "firing.failed", rule_id="tea", error="StoreError"),
            event_entry(1, "firing.failed", rule_id="cake", error="StoreError"),
            event_entry(35, "firing.failed", rule_id="tea", error="StoreError"),
        ],
    ),
    "SlumberdRuleDegraded": Case(
        trips=beats(range(3), failing=1, degraded=1),
        quiet=[
            event_entry(0, "rule.degraded"),
            event_entry(0.5, "rule.recovered"),
            *beats([1], failing=1),
        ],
    ),
    "SlumberdLagging": Case(
        trips=[beat for n in range(12) for beat in beats([n], late_seconds=901.0 + 60 * n)],
        quiet=[
            *beats(range(6), late_seconds=5000.0),
            *beats(range(6, 40), pending=49, oldest_pending_seconds=500_000.0),
        ],
    ),
    "SlumberdFiringHeld": Case(trips=beats([0], held=1), quiet=beats(range(40))),
    "SlumberdFactsRetracted": Case(
        trips=[
            event_entry(
                0, "facts.retracted", rule_id="tea", retracted=500, remedy="slumberd undo tea@7"
            )
        ],
        quiet=[event_entry(n, "firing.completed", rule_id="tea") for n in range(2)],
    ),
    "SlumberdFactsReduced": Case(
        trips=[event_entry(0, "facts.reduced", before=700, now=200, users=5)],
        quiet=[event_entry(n, "firing.completed", rule_id="tea") for n in range(2)],
    ),
    "SlumberdQuarantineGrowing": Case(
        trips=deltas(11, "tea", "quarantine"),
        quiet=[
            *deltas(10, "tea", "quarantine"),
            *deltas(10, "cake", "quarantine"),
            *deltas(30, "tea", "noop"),
        ],
    ),
    "SlumberdRuleIneffective": Case(
        trips=[event_entry(0, "rule.ineffective", rule_id="tea", firings=3, read=9)],
        quiet=[event_entry(n, "firing.completed", rule_id="tea") for n in range(2)],
    ),
    "SlumberdAlarmBroken": Case(
        trips=[event_entry(0, "alarm.failed", rule_id="tea")],
        quiet=[event_entry(0, "firing.skipped", rule_id="tea"), event_entry(0, "clock.jumped")],
    ),
    "SlumberdChainBroken": Case(
        trips=[event_entry(0, "ledger.broken", seq=7, problem="it was changed")],
        quiet=[event_entry(0, "ledger.verified")],
    ),
    "SlumberdLedgerShrank": Case(
        trips=checkpoints(100, 90),
        quiet=checkpoints(90, 90, 100),
    ),
    "SlumberdVerificationStopped": Case(
        trips=[event_entry(0, "ledger.verified")],
        quiet=[
            event_entry(n * DAY, "ledger.verified" if n != 1 else "ledger.broken") for n in range(4)
        ],
        minutes=4 * DAY - 1,
    ),
}


def firing_labels(name: str, entries: Sequence[Entry], minutes: float) -> list[dict[str, str]]:
    return alerts()[name].fires(entries, until=at(minutes * MINUTE).timestamp())


@pytest.mark.slow
def test_every_alert_has_a_case_here() -> None:
    assert [*CASES] == [*alerts()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_alert_fires_on_its_log(name: str) -> None:
    assert firing_labels(name, CASES[name].trips, CASES[name].minutes)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_alert_stays_quiet_on_a_similar_log(name: str) -> None:
    assert firing_labels(name, CASES[name].quiet, CASES[name].minutes) == []


@of_each(lambda: CASES)
def test_logs_of_an_alert_conform_to_the_catalogue(name: str) -> None:
    case = CASES[name]

    assert [
        c for entry in [*case.trips, *case.quiet] for c in problems_of_line(entry.line.encode())
    ] == []


@pytest.mark.slow
@of_each(lambda: CASES)
def test_annotations_of_an_alert_use_its_own_labels(name: str) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(alerts()[name].annotations.values())))

    for labels in firing_labels(name, CASES[name].trips, CASES[name].minutes):
        assert named <= labels.keys()


def test_heartbeat_alert_names_only_the_dead_host() -> None:
    alive = [event_entry(minute, "daemon.heartbeat", host="bob") for minute in range(40)]

    assert firing_labels("SlumberdHeartbeatDead", [*beats(range(30)), *alive], 40) == [
        {"host": "ada"}
    ]


def test_heartbeat_alert_names_no_host_that_stands_by() -> None:
    standby = [event_entry(minute, "daemon.standby") for minute in range(30, 40)]

    assert firing_labels("SlumberdHeartbeatDead", [*beats(range(30)), *standby], 40) == []


def test_lagging_alert_waits_for_its_duration() -> None:
    lagging = beats(range(9), late_seconds=901.0)

    assert firing_labels("SlumberdLagging", lagging, 9) == []
    assert firing_labels("SlumberdLagging", [*lagging, *beats([9, 10], late_seconds=901.0)], 10)

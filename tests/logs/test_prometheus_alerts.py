"""Each Prometheus alert fires on one series and stays quiet on another."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from slumberd.logs.prometheus import OF_DAEMON, OF_RULE
from tests.support.lists import of_each
from tests.support.monitoring import KIT, alerts
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

RULES = KIT / "prometheus-alerts.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here (Debian has it in the package prometheus)"
)

DAEMON = '{instance="host"}'
RULE = '{instance="host", rule="tea"}'


@dataclass(frozen=True)
class Case:
    """Two series of one metric in the notation of promtool, a value each minute.

    Attributes:
        series: The name and labels of the metric.
        trips: The values that make the alert fire.
        quiet: Similar values that do not make it fire.
        minutes: When promtool evaluates the alert.
    """

    series: str
    trips: str
    quiet: str
    minutes: int = 60


CASES = {
    "SlumberdHeartbeatDead": Case(
        f"slumberd_heartbeat_timestamp_seconds{DAEMON}", "0+60x30 1800x40", "0+60x56 3360x20"
    ),
    "SlumberdSilent": Case(
        f"slumberd_heartbeat_timestamp_seconds{DAEMON}", "0+60x30 _x40", "0+60x42 _x40"
    ),
    "SlumberdNoneActive": Case(f"slumberd_standby{DAEMON}", "0x50 1x20", "1x50 0x20"),
    "SlumberdShardUnheld": Case(
        f"slumberd_database_unheld_shards{DAEMON}", "0x40 1x20", "0x40 1x4 0x20"
    ),
    "SlumberdOldTransaction": Case(
        f"slumberd_database_oldest_transaction_seconds{DAEMON}", "0+20x60", "0x57 700x9"
    ),
    "SlumberdClockWrong": Case(
        f"slumberd_clock_behind_seconds{DAEMON}", "10800x60", "10800x30 0 299x29"
    ),
    "SlumberdEpisodesUnnumbered": Case(
        f"slumberd_database_unnumbered_seconds{DAEMON}", "0x40 0+60x20", "0x57 90x9"
    ),
    "SlumberdDaemonFailed": Case(
        f"slumberd_uptime_seconds{DAEMON}", "0+60x50 0 60 0 60 0 60x9", "0+60x50 0 60 0 60x9"
    ),
    "SlumberdLogsDropped": Case(
        f"slumberd_log_lines_dropped_total{DAEMON}", "0x55 3x9", "0x10 3x60"
    ),
    "SlumberdWalGrowing": Case(f"slumberd_wal_bytes{DAEMON}", "2e9x60", "2e9x50 5e8 2e9x20"),
    "SlumberdProvenanceFailing": Case(
        f"slumberd_provenance_lag_seconds{DAEMON}", "0+20x60", "0x57 700x9"
    ),
    "SlumberdLedgerShrank": Case(f"slumberd_ledger_rows_total{DAEMON}", "0+9x50 5x20", "0+9x60"),
    "SlumberdRuleFailing": Case(
        f"slumberd_rule_failures_total{RULE}", "0x40 1 2 3x30", "0x40 1x30"
    ),
    "SlumberdRuleDegraded": Case(
        f"slumberd_rule_consecutive_failures{RULE}", "0x50 1 2 3x20", "0x50 1 2x20"
    ),
    "SlumberdLagging": Case(f"slumberd_rule_late_seconds{RULE}", "0+60x60", "0x52 901x20"),
    "SlumberdFiringHeld": Case(f"slumberd_rule_held_batches{RULE}", "0x50 1x20", "1x50 0x20"),
    "SlumberdQuarantineGrowing": Case(
        f"slumberd_rule_versions_quarantined_total{RULE}", "0+1x60", "0x50 9x20"
    ),
}


def documents() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def run_promtool(*words: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def alert_fires(folder: Path, name: str, values: str, minutes: int) -> bool:
    """Return whether promtool finds that an alert fires on a series."""
    test = {
        "interval": "1m",
        "input_series": [{"series": CASES[name].series, "values": values}],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}],
    }
    file = folder / "test.yaml"
    file.write_bytes(orjson.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    done = run_promtool("test", "rules", str(file))
    output = done.stdout + done.stderr
    assert done.returncode == 0 or "got:[" in output.replace(" ", ""), output
    return done.returncode != 0


def test_each_alert_has_a_case() -> None:
    assert {document["alert"] for document in documents()} == {*CASES}


def test_every_prometheus_alert_links_to_the_runbook() -> None:
    for document in documents():
        name, annotations = document["alert"], document["annotations"]
        assert name in alerts()
        assert {*annotations} == {"summary", "description", "runbook"}
        assert annotations["runbook"] == alerts()[name].annotations["runbook"]


@of_each(documents, itemgetter("alert"))
def test_alert_uses_metrics_of_the_textfile(document: dict[str, Any]) -> None:
    families: list[Any] = [*OF_DAEMON, *OF_RULE]
    known = {f"slumberd_{family.name}": family.kind for family in families}
    expr = document["expr"]

    named = re.findall(r"slumberd_\w+", expr)
    counted = re.findall(r"(?:increase|rate)\((\w+)", expr)
    assert {*named} <= {*known}
    assert {known[name] for name in counted} <= {"counter"}
    assert CASES[document["alert"]].series.partition("{")[0] in named


@pytest.mark.slow
@needs_promtool
def test_promtool_accepts_the_alerts() -> None:
    done = run_promtool("check", "rules", str(RULES))

    assert done.returncode == 0, done.stderr
    assert f"{len(CASES)} rules found" in done.stdout


@pytest.mark.cases(5)
@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_prometheus_alert_fires_on_its_series_and_not_on_a_similar_one(
    name: str, tmp_path: Path
) -> None:
    case = CASES[name]

    assert alert_fires(tmp_path, name, case.trips, case.minutes)
    assert not alert_fires(tmp_path, name, case.quiet, case.minutes)

"""The files of the monitoring kit agree with each other and with the event catalogue."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from slumberd.daemon.heartbeat import EVERY_SECONDS
from slumberd.logs.event_catalogue import CATALOGUE
from tests.support.lists import of_each
from tests.support.logql import Aggregate, Expr, Json, Log, Range
from tests.support.logql_parser import lines, metric
from tests.support.monitoring import (
    ALLOY,
    DASHBOARD,
    KIT,
    VECTOR,
    alerts,
    event_entry,
    events_in,
    labels_of_alloy,
    labels_of_vector,
    panels,
    queries,
)
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

LABELS = {"service_name", "host", "level", "event"}


@cache
def exprs() -> list[tuple[str, Expr]]:
    """Return the metric queries of alerts and panels, with their names."""
    return [
        *((name, alert.expr) for name, alert in alerts().items()),
        *((title, metric(query)) for title, query in queries() if not query.startswith("{")),
    ]


@cache
def logs() -> list[tuple[str, Log]]:
    """Return the log queries of alerts and panels, with their names."""
    return [
        *((name, log) for name, expr in exprs() for log in expr.logs()),
        *((title, lines(query)) for title, query in queries() if query.startswith("{")),
    ]


def fields_of(log: Log) -> dict[str, str]:
    """Return the paths that a query extracts from a line, by label name."""
    return {k: v for stage in log.stages if isinstance(stage, Json) for k, v in stage.paths.items()}


def schema_at(schema: Mapping[str, Any], path: str) -> Any:
    """Return the schema of the value at a path of a line; None without one."""
    found: Any = schema
    for name, _ in re.findall(r"(\w+)|\[(\d+)\]", path):
        found = (found or {}).get("properties", {}).get(name) if name else found.get("items")
    return found


def test_both_collectors_set_the_same_labels() -> None:
    assert labels_of_alloy() == labels_of_vector() == LABELS


def test_no_label_has_unlimited_values() -> None:
    text = ALLOY.read_text() + VECTOR.read_text()

    assert not re.findall(r"^\s*(rule_id|firing_id|fact_id|user)\s*[:=]", text, re.MULTILINE)


def test_labels_of_alloy_are_fields_that_it_parses() -> None:
    text = ALLOY.read_text()
    [parsed] = re.findall(r"expressions = \{(.*?)\}", text)
    taken = re.findall(r"stage\.labels \{\s*values = \{(.*?)\}", text)

    assert re.findall(r'(\w+) = "(\w+)"', parsed) == [(n, n) for n in ("ts", "level", "event")]
    assert re.findall(r"(\w+) =", taken[0]) == ["level", "event"]


def test_every_component_that_alloy_names_is_defined() -> None:
    text = re.sub(r"//.*", "", ALLOY.read_text())
    there = {".".join(two) for two in re.findall(r'^([\w.]+) "(\w+)" \{', text, re.MULTILINE)}
    named = re.findall(r"((?:loki|local)\.[\w.]+)\.(?:receiver|rules|targets)\b", text)

    assert {*named} <= there
    assert text.count("{") == text.count("}")


def test_every_input_of_vector_is_defined_and_used() -> None:
    config = yaml.safe_load(VECTOR.read_text())
    there = {*config["sources"], *config["transforms"]}

    fed = {**config["transforms"], **config["sinks"]}
    assert {name for component in fed.values() for name in component["inputs"]} == there


def test_collectors_read_the_existing_units() -> None:
    units = {"slumberd.service", "slumberd-verify.service"}

    assert {*re.findall(r"_SYSTEMD_UNIT=([\w.-]+)", ALLOY.read_text())} == units
    assert {
        *yaml.safe_load(VECTOR.read_text())["sources"]["slumberd_journal"]["include_units"]
    } == units
    assert (KIT / "systemd" / "slumberd-verify.service").exists()


@of_each(logs, itemgetter(0))
def test_every_query_selects_by_labels_that_collectors_set(named: tuple[str, Log]) -> None:
    log = named[1]

    assert {matcher.name for matcher in log.stream} <= LABELS
    assert ("service_name", "=", "slumberd") in [(m.name, m.op, m.value) for m in log.stream]


@of_each(logs, itemgetter(0))
def test_every_query_names_events_and_fields_of_the_catalogue(named: tuple[str, Log]) -> None:
    log = named[1]
    levels = [level for m in log.stream if m.name == "level" for level in m.values]
    for event in events_in(log.stream):
        kind = CATALOGUE[event]
        for path in fields_of(log).values():
            assert schema_at(kind.schema["else"], path), f"{event} has no {path}"
        assert "event" not in {m.name for m in log.stream if m.op == "="} or {*levels} <= {
            *kind.levels
        }


@of_each(exprs, itemgetter(0))
def test_every_query_groups_and_counts_by_existing_labels(named: tuple[str, Expr]) -> None:
    for expr in named[1].parts():
        there = LABELS.union(*map(fields_of, expr.logs()))
        if isinstance(expr, Aggregate):
            assert {*expr.by} <= there
        if isinstance(expr, Range):
            assert expr.unwrapped is None or expr.unwrapped in there - LABELS
            assert expr.seconds > 2 * EVERY_SECONDS


@of_each(logs, itemgetter(0))
def test_every_number_in_a_query_is_a_number_in_the_catalogue(named: tuple[str, Log]) -> None:
    log = named[1]
    parts = [part for _, expr in exprs() for part in expr.parts()]
    numbers = [part.unwrapped for part in parts if isinstance(part, Range) and part.log is log]
    for path in [fields_of(log)[name] for name in numbers if name]:
        for event in events_in(log.stream):
            kind = schema_at(CATALOGUE[event].schema["else"], path)["type"]
            assert {*([kind] if isinstance(kind, str) else kind)} <= {"integer", "number", "null"}


def test_panels_of_the_dashboard_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({*ids}) == len(ids) == len({panel["title"] for panel in panels()})
    assert len({*cells}) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_panels_of_the_dashboard_use_its_variables() -> None:
    for panel in panels():
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "loki", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert 'host=~"$host"' in target["expr"]
    assert {*re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())} == {
        "datasource", "host", "__interval", "__all",
    }  # fmt: skip


@of_each(queries, itemgetter(0))
def test_every_panel_shows_data_of_a_sample_log(named: tuple[str, str]) -> None:
    title, query = named
    behind = [{"rule_id": f"r{n}", "pending": n, "oldest_seconds": 1.0} for n in range(5)]
    database = {
        "daemons": 2,
        "unheld": 0,
        "unnumbered_seconds": 1.0,
        "oldest_transaction_seconds": 1.0,
    }
    entries = [
        event_entry(0, "daemon.heartbeat", behind=behind, rss_bytes=1, database=database),
        event_entry(1, "firing.completed"),
        event_entry(2, "firing.failed"),
        event_entry(3, "firing.served"),
        event_entry(4, "delta.applied"),
    ]

    if query.startswith("{"):
        assert list(lines(query).lines(entries)), title
    else:
        assert metric(query).at(entries[-1].at, entries), title


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_accepts_the_timer(tmp_path: Path) -> None:
    for unit in (KIT / "systemd").glob("slumberd-verify.*"):
        text = unit.read_text().replace("/usr/local/bin/slumberd", "/bin/true")
        (tmp_path / unit.name).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""The monitoring kit: its files, its collectors and its alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import orjson
import yaml

from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.logs.lines import json_line, timestamp
from tests.support.builders import at
from tests.support.logql import Entry, Expr, Matcher
from tests.support.logql_parser import metric, seconds
from tests.support.repository import ROOT

KIT = ROOT / "config" / "monitoring"
ALLOY = KIT / "alloy" / "slumberd.alloy"
VECTOR = KIT / "vector" / "slumberd.yaml"
DASHBOARD = KIT / "grafana-dashboard.json"
PAGE = KIT / "README.md"

MINUTE = 60.0


@dataclass(frozen=True)
class Alert:
    """One alert of the kit.

    Attributes:
        name: The name of the alert.
        expr: The query; the alert fires when it has a result.
        held_seconds: How long the result must last.
        interval_seconds: The time between two evaluations.
        annotations: The texts for people.
    """

    name: str
    expr: Expr
    held_seconds: float
    interval_seconds: float
    annotations: Mapping[str, str]

    def fires(self, entries: Sequence[Entry], *, until: float) -> list[dict[str, str]]:
        """Return the labels of each series that fires up to an instant, in seconds of the log."""
        since: dict[frozenset[tuple[str, str]], float] = {}
        fired: set[frozenset[tuple[str, str]]] = set()
        now = min(entry.at for entry in entries)
        while now <= until:
            found = self.expr.at(now, entries)
            assert isinstance(found, dict)
            since = {series: since.get(series, now) for series in found}
            fired |= {series for series, at in since.items() if now - at >= self.held_seconds}
            now += self.interval_seconds
        return sorted((dict(series) for series in fired), key=sorted)


@cache
def alerts() -> dict[str, Alert]:
    """Return the alerts of the kit, by name."""
    document = yaml.safe_load((KIT / "loki-alerts.yaml").read_text())
    return {
        rule["alert"]: Alert(
            rule["alert"],
            metric(rule["expr"]),
            seconds(rule.get("for", "0s")),
            seconds(group["interval"]),
            rule["annotations"],
        )
        for group in document["groups"]
        for rule in group["rules"]
    }


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query of the dashboard, with the title of its panel; variables are filled in."""
    for panel in panels():
        for target in panel.get("targets", []):
            filled = target["expr"].replace("$__interval", "1h").replace("$host", ".+")
            yield panel["title"], filled


def labels_of_alloy() -> set[str]:
    """Return the labels that Alloy lets through, which it must have set before."""
    text = ALLOY.read_text()
    [labels] = re.findall(r"stage\.label_keep \{\s*values = \[(.*?)\]", text)
    return {*re.findall(r'"(\w+)"', labels)}


def labels_of_vector() -> set[str]:
    return {*yaml.safe_load(VECTOR.read_text())["sinks"]["slumberd_loki"]["labels"]}


def collected(line: bytes, host: str = "ada") -> Entry:
    """Return a line as both collectors send it to Loki."""
    event = orjson.loads(line)
    labels = {
        "service_name": "slumberd",
        "host": host,
        "level": event["level"],
        "event": event["event"],
    }
    return Entry(datetime.fromisoformat(event["ts"]).timestamp(), labels, line.decode())


def event_entry(minute: float, event: str, *, host: str = "ada", **given: Any) -> Entry:
    """Return a line of an event of the catalogue, with a sample for each missing field."""
    kind = CATALOGUE[event]
    assert given.keys() <= kind.fields.keys() | {"level"}, given
    start = {"ts": timestamp(at(minute * MINUTE)), "level": kind.levels[0], "event": event}
    filled = {name: _sample(schema) for name, schema in kind.fields.items()}
    return collected(json_line({**start, **filled, **given}), host)


def _sample(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema["type"] if isinstance(schema["type"], str) else "null"
    if schema.get("format") == "date-time":
        return timestamp(at(0))
    if kind == "object":
        return {name: _sample(value) for name, value in schema.get("properties", {}).items()}
    return {"string": "word", "integer": 0, "number": 0.0, "array": [], "null": None}[kind]


def events_in(stream: Iterable[Matcher]) -> list[str]:
    """Return the events that a stream selector lets through; all when it names none."""
    named = [matcher.values for matcher in stream if matcher.name == "event"]
    return named[0] if named else [*CATALOGUE]

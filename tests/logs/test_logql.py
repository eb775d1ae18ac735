"""The LogQL evaluator of the monitoring tests returns the documented values."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.logql import Entry, LogQLError, Vector
from tests.support.logql_parser import lines, metric

pytestmark = pytest.mark.unit

Fields = dict[str, Any]


def entry(at: float, host: str = "a", event: str = "beat", **fields: Any) -> Entry:
    line = orjson.dumps({"event": event, **fields}).decode()
    return Entry(at, {"job": "s", "host": host, "event": event}, line)


BEATS = [entry(60 * n, n=n, part={"size": n}, many=[{"x": n}], none=None) for n in range(1, 6)]


def value(query: str, *entries: Entry, now: float = 300) -> dict[str, float]:
    """Return each series by the values of its labels."""
    found = metric(query).at(now, entries)
    assert isinstance(found, dict)
    return {"/".join(label for _, label in sorted(series)): float(v) for series, v in found.items()}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(
            'count_over_time({job="s"}[2m])', {"beat/a/s": 2}, id="the window begins after"
        ),
        pytest.param('sum by (host) (count_over_time({job="s"}[1h])) > 4', {"a": 5}, id="over"),
        pytest.param('sum by (host) (count_over_time({job="s"}[1h])) > 5', {}, id="not over"),
        pytest.param(
            'sum(count_over_time({job="s"} | json n | n >= 4 [1h]))', {"": 2}, id="number"
        ),
        pytest.param('sum(count_over_time({job="s"} | json n | n="4" [1h]))', {"": 1}, id="text"),
        pytest.param('sum by (n) (count_over_time({job="s"} | json n [1m]))', {"5": 1}, id="json"),
        pytest.param(
            'max(max_over_time({job="s"} | json q="many[0].x" | unwrap q [1h]))', {"": 5}, id="path"
        ),
        pytest.param(
            'max(last_over_time({job="s"} | json | unwrap part_size [1h]))', {"": 5}, id="flattened"
        ),
        pytest.param('max(min_over_time({job="s"} | json n | unwrap n [1h]))', {"": 1}, id="least"),
        pytest.param('sum(sum_over_time({job="s"} | json n | unwrap n [1h]))', {"": 15}, id="sum"),
        pytest.param('max(max_over_time({job="s"} | json none | unwrap none [1h]))', {}, id="null"),
        pytest.param('sum(count_over_time({job="s", host!="a"}[1h]))', {}, id="unequal"),
        pytest.param('sum(count_over_time({event=~"be.t|x"}[1h]))', {"": 5}, id="pattern"),
        pytest.param(
            'sum(count_over_time({event=~"be"}[1h]))', {}, id="a pattern matches the whole value"
        ),
        pytest.param('absent_over_time({job="s", host=~".+"}[1h])', {}, id="not absent"),
        pytest.param('absent_over_time({job="t", host=~".+"}[1h])', {"t": 1}, id="absent"),
    ],
)
def test_evaluator_returns_the_value_that_loki_documents(
    query: str, expected: dict[str, float]
) -> None:
    assert value(query, *BEATS) == expected


def test_binary_operators_match_series_by_all_labels() -> None:
    both = 'sum by (host) (count_over_time({job="s"}[1h]))'
    late = 'sum by (host) (count_over_time({job="s"}[1m]))'
    entries = [entry(10, "a"), entry(290, "b")]

    assert value(f"{both} unless {late}", *entries) == {"a": 1}
    assert value(f"{both} and {late}", *entries) == {"b": 1}
    assert value(f"{late} or {both}", *entries) == {"a": 1, "b": 1}
    assert value(f"{both} == {late}", *entries) == {"b": 1}


def test_field_with_the_name_of_a_label_is_renamed() -> None:
    [(_, labels)] = lines('{job="s"} | json event').lines([entry(1)])

    assert labels["event_extracted"] == "beat"


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        pytest.param('rate({job="s"}[5m])', id="function"),
        pytest.param('count_over_time({job="s"} |= "x" [5m])', id="line filter"),
        pytest.param('count_over_time({job="s"} | logfmt [5m])', id="parser"),
        pytest.param('count_over_time({job="s"} | json n | unwrap n [5m])', id="number of lines"),
        pytest.param('max_over_time({job="s"}[5m])', id="lines as numbers"),
        pytest.param('sum(count_over_time({job="s"}[5m])) by (host)', id="grouping behind"),
        pytest.param('sum(count_over_time({job="s"}[5m]) offset 5m)', id="offset"),
        pytest.param('count_over_time({job="s"}[5w])', id="unit"),
        pytest.param('count_over_time({job="s"[5m])', id="bracket"),
        pytest.param("", id="nothing"),
    ],
)
def test_evaluator_refuses_an_unknown_query(query: str) -> None:
    with pytest.raises(LogQLError):
        metric(query)


@pytest.mark.parametrize("fields", [{"n": "many"}, {"n": [1]}], ids=["text", "list"])
def test_field_that_is_not_a_number_fails_the_query(fields: Fields) -> None:
    with pytest.raises(LogQLError, match="SampleExtractionErr"):
        value('max(max_over_time({job="s"} | json n | unwrap n [1h]))', entry(1, **fields))


def test_line_that_is_not_json_fails_the_query() -> None:
    broken = Entry(1, {"job": "s"}, "Traceback")

    with pytest.raises(LogQLError, match="JSONParserErr"):
        value('sum(count_over_time({job="s"} | json n [1h]))', broken)


def test_sum_without_labels_is_one_series() -> None:
    found: Vector = {frozenset(): 5.0}

    assert metric('sum(count_over_time({job="s"}[1h]))').at(300, BEATS) == found

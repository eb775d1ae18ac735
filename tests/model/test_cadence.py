"""A cadence has exactly one of two forms, and durations are read; an invalid one is refused."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from slumberd.model.duration import seconds_of
from slumberd.model.firing import Limits
from slumberd.model.rule import (
    INTERVALS,
    MAX_EVERY,
    ConsolidationRule,
    Cron,
    Every,
    RuleFunction,
    Similarity,
    cadence_of,
)
from slumberd.model.salience import Gate
from slumberd.model.stages import Decay, Dedup
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.workers.scheduling.cron import next_instants
from tests.support.builders import rule

pytestmark = pytest.mark.unit


def test_every_counts_episodes() -> None:
    assert cadence_of({"every": 100}) == Every(100)


@pytest.mark.parametrize(
    ("text", "count"), [("100 episodes", 100), ("1 episode", 1), ("999999999 episodes", 999999999)]
)
def test_every_may_be_a_text_that_counts_episodes(text: str, count: int) -> None:
    assert cadence_of({"every": text}) == Every(count)
    assert rule(cadence={"every": text}).due == Every(count)


def test_cron_has_an_expression_and_may_have_a_time_zone() -> None:
    assert cadence_of({"cron": "0 3 * * *"}) == Cron("0 3 * * *")
    assert cadence_of({"cron": "@daily", "timezone": "UTC"}) == Cron("@daily", "UTC")


def test_intervals_are_all_that_divide_an_hour_or_a_day_evenly() -> None:
    minutes = [f"{n}m" for n in range(1, 60) if 60 % n == 0]
    hours = [f"{n}h" for n in range(1, 24) if 24 % n == 0]

    assert [*INTERVALS] == [*minutes, *hours, "1d"]


def test_interval_is_a_cron_expression_in_utc() -> None:
    assert cadence_of({"interval": "15m"}) == Cron("*/15 * * * *", "UTC")


@pytest.mark.slow
@pytest.mark.parametrize("interval", INTERVALS)
def test_interval_is_a_cron_expression_that_divides_a_day_evenly(interval: str) -> None:
    cadence = cadence_of({"interval": interval})
    assert isinstance(cadence, Cron)
    midnight = datetime(2026, 3, 1, tzinfo=UTC)

    instants = next_instants(
        cadence.expression, cadence.timezone, after=midnight - timedelta(seconds=1), most=3_000
    )

    step = timedelta(seconds=seconds_of(interval))
    assert instants == [midnight + n * step for n in range(3_000)]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({}, "exactly one of", id="neither"),
        pytest.param({"cron": "@daily", "interval": "1h"}, "exactly one of", id="cron twice"),
        pytest.param({"interval": "7m"}, "is one of 1m 2m", id="uneven"),
        pytest.param({"interval": 3600}, "is one of 1m 2m", id="seconds"),
        pytest.param({"interval": "1h", "timezone": "UTC"}, "goes with 'cron'", id="zone"),
        pytest.param({"every": 1, "cron": "@daily"}, "exactly one of", id="both"),
        pytest.param({"evry": 1}, "unknown key 'evry'", id="typing error"),
        pytest.param({"every": 0}, "from 1 to", id="zero"),
        pytest.param({"every": -1}, "from 1 to", id="negative"),
        pytest.param({"every": MAX_EVERY + 1}, "from 1 to", id="huge"),
        pytest.param({"every": True}, "from 1 to", id="boolean"),
        pytest.param({"every": 1.5}, "from 1 to", id="fraction"),
        pytest.param({"every": "0 episodes"}, "as '100 episodes'", id="zero in words"),
        pytest.param({"every": "100"}, "as '100 episodes'", id="number as text"),
        pytest.param({"every": "5 minutes"}, "as '100 episodes'", id="other words"),
        pytest.param({"every": 1, "timezone": "UTC"}, "goes with 'cron'", id="zone of every"),
        pytest.param({"cron": ""}, "an expression in quotes", id="empty"),
        pytest.param({"cron": 5}, "an expression in quotes", id="number"),
        pytest.param({"cron": "@daily", "timezone": 1}, "a name as", id="zone of cron"),
    ],
)
def test_invalid_cadence_is_refused_with_its_reason(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        cadence_of(document)
    with pytest.raises(ValueError, match=problem):
        ConsolidationRule(id="r", cadence=document, when_filter="", then_emits=["facts"])


OTHERS: dict[str, list[Any]] = {
    "cadence": [{"every": 2}, {"cron": "@daily"}, {"cron": "@daily", "timezone": "Europe/Berlin"}],
    "start": ["now"],
    "limits": [Limits(max_deletes=1), Limits(max_delete_fraction=0.5)],
    "on_missed": ["skip"],
    "timeout": [60.0],
    "similarity": [Similarity(), Similarity(min=0.5)],
    "salience": [Gate(min=0.1), Gate(min=0.15), Gate(min=0.1, tau=60.0)],
    "kind": ["graph"],
    "stages": [(Dedup(),), (Dedup(keep="oldest"),), (Decay(), Dedup()), (Dedup(), Decay())],
    "extract": [conversation_extraction({}), conversation_extraction({"chat": "ada"})],
    "summariser": [
        RuleFunction("python:a:b", "1", str),
        RuleFunction("python:a:b", "2", str),
        RuleFunction("python:a:c", "1", str),
    ],
}
"""Values of the fields that `other_values` cannot make from the value that a rule has."""


def other_values(field: str) -> list[Any]:
    """Return values of a field, each of which makes another rule of it."""
    if field in OTHERS:
        return [*OTHERS[field]]
    match getattr(rule("a"), field):
        case bool() as value:
            return [not value]
        case str() | float() as value:
            return [value * 2 or "other"]
        case list() as value:
            return [[*value, "other"], ["other"]]
        case _:
            raise AssertionError(f"OTHERS needs values of the field {field!r}")


@pytest.mark.parametrize(
    "field", [name for name in ConsolidationRule.model_fields if name != "description"]
)
def test_a_rules_hash_changes_with_every_field(field: str) -> None:
    others = [rule("a").model_copy(update={field: value}) for value in other_values(field)]

    hashes = {each.content_hash for each in [rule("a"), *others]}

    assert len(hashes) == 1 + len(others)
    assert rule("a").content_hash in hashes


def test_a_description_does_not_change_a_rules_hash() -> None:
    described = rule("a", description="What alice likes.")

    assert described.content_hash == rule("a").content_hash


def test_content_hash_equals_that_of_a_version_with_fewer_keys() -> None:
    old = {"id": "a", "cadence": {"every": 1}, "when_filter": "", "then_emits": ["facts"]}
    canonical = orjson.dumps(
        old | {"enabled": True, "start": "beginning"}, option=orjson.OPT_SORT_KEYS
    )

    assert rule("a").content_hash == hashlib.sha256(canonical).hexdigest()[:16]


@pytest.mark.parametrize(
    "key", [{"on_missed": "skip"}, {"catchup_window": "1h"}, {"timeout": "10m"}], ids=str
)
def test_content_hash_changes_with_each_new_key(key: dict[str, str]) -> None:
    assert rule("a", **key).content_hash != rule("a").content_hash


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(90, 90), (0.5, 0.5), ("90s", 90), ("10m", 600), ("1.5h", 5_400), ("366d", 31_622_400)],
    ids=str,
)
def test_duration_is_so_many_seconds(written: object, seconds: float) -> None:
    assert seconds_of(written) == seconds


@pytest.mark.parametrize(
    "written",
    [0, -1, True, None, [], "", "m", "10", "10 m", "-1s", "0s", "1w", "367d", "nan", float("nan")],
    ids=repr,
)
def test_invalid_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write seconds, or a number with"):
        seconds_of(written)

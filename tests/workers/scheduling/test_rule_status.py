"""The status of a rule, computed from its progress: due, late, and its next instant."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule
from slumberd.workers.scheduling.rule_status import RuleProgress, is_full, rule_statuses, start_of
from tests.support.builders import at, rule

pytestmark = pytest.mark.unit

NOW = at(3600)
NOON = {"cron": "0 12 * * *"}  # at(0)
EVERY_TWO = rule(cadence={"every": 2})
FULL = RuleProgress(watermark=5, pending=2, oldest_at=at(0), full_seconds=60)
MISSED = RuleProgress(watermark=5, served=at(-3600))


def status_of(rule: ConsolidationRule, progress: RuleProgress) -> RuleStatus:
    [status] = rule_statuses([(rule, progress)], timezone="UTC", now=NOW, tolerance_seconds=300)
    return status


@pytest.mark.parametrize(
    ("change", "late"),
    [
        pytest.param({}, 60.0, id="the caller knows the duration"),
        pytest.param({"oldest_at": at(3590)}, 10.0, id="limited by the age of the first version"),
        pytest.param({"oldest_at": at(3601)}, 60.0, id="a date in the future is ignored"),
        pytest.param({"oldest_at": None}, 60.0, id="an unreadable date is ignored"),
        pytest.param({"full_seconds": None}, 3600.0, id="the caller does not know"),
        pytest.param({"full_seconds": None, "oldest_at": None}, 0.0, id="nothing is known"),
    ],
)
def test_rule_with_enough_pending_versions_has_been_due(
    change: dict[str, Any], late: float
) -> None:
    status = status_of(EVERY_TWO, replace(FULL, **change))

    assert status.late_seconds == late
    assert status.due_at == NOW - timedelta(seconds=late)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pending": 1}, id="too few"),
        pytest.param({"pending": None}, id="unknown"),
        pytest.param({"watermark": None}, id="not begun"),
        pytest.param({"paused": True}, id="paused"),
        pytest.param({"held_firing_id": "everything@3"}, id="held"),
    ],
)
def test_rule_that_cannot_fire_is_not_due(change: dict[str, Any]) -> None:
    progress = replace(FULL, **change)

    status = status_of(EVERY_TWO, progress)

    assert (status.due_at, status.late_seconds) == (None, 0.0)
    assert not is_full(EVERY_TWO, progress)


def test_disabled_rule_is_not_due_and_has_no_next_instant() -> None:
    every = status_of(rule(cadence={"every": 2}, enabled=False), FULL)
    cron = status_of(rule(cadence=NOON, enabled=False), MISSED)

    assert every.due_at is cron.due_at is cron.next_at is None


def test_cron_rule_is_due_since_its_first_unserved_instant() -> None:
    status = status_of(rule(cadence=NOON), MISSED)

    assert (status.due_at, status.late_seconds) == (at(0), 3600.0)
    assert status.next_at == at(0) + timedelta(days=1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"served": at(0)}, id="served"),
        pytest.param({"served": None, "watermark": None}, id="not begun"),
        pytest.param({"paused": True}, id="paused"),
        pytest.param({"held_firing_id": "everything@3"}, id="held"),
    ],
)
def test_cron_rule_that_cannot_fire_is_not_due_but_has_a_next_instant(
    change: dict[str, Any],
) -> None:
    status = status_of(rule(cadence=NOON), replace(MISSED, **change))

    assert (status.due_at, status.late_seconds) == (None, 0.0)
    assert status.next_at == at(0) + timedelta(days=1)


def test_time_zone_of_a_rule_overrides_the_configured_one() -> None:
    own = rule(cadence=NOON | {"timezone": "Europe/Berlin"})

    assert status_of(own, RuleProgress()).next_at == at(-3600) + timedelta(days=1)


def test_rule_in_an_unknown_time_zone_has_no_next_instant() -> None:
    [status] = rule_statuses(
        [(rule(cadence=NOON), MISSED)], timezone="Mars/Base", now=NOW, tolerance_seconds=300
    )

    assert (status.next_at, status.due_at) == (None, None)


def test_age_of_the_oldest_pending_version_is_unknown_without_pending_versions() -> None:
    assert status_of(EVERY_TWO, FULL).oldest_seconds == 3600.0
    assert status_of(EVERY_TWO, replace(FULL, pending=0)).oldest_seconds is None


@pytest.mark.parametrize(
    ("start", "watermark", "position"),
    [
        pytest.param("beginning", 7, 7, id="begun"),
        pytest.param("now", 7, 7, id="begun, starts now"),
        pytest.param("beginning", None, 0, id="new"),
        pytest.param("now", None, None, id="new, starts now"),
    ],
)
def test_pending_versions_start_above_the_watermark_or_the_start(
    start: str, watermark: int | None, position: int | None
) -> None:
    assert start_of(rule(start=start), watermark) == position


WRONG = at(3600 + 301)
"""An instant of a clock that was more than the tolerance ahead."""


def test_served_instant_of_a_wrong_clock_counts_as_now() -> None:
    status = status_of(rule(cadence=NOON), RuleProgress(watermark=5, served=WRONG))

    assert status.ignored_served == WRONG
    assert status.next_at == at(0) + timedelta(days=1)
    assert status.due_at is None


def test_instant_that_is_already_served_within_the_tolerance_is_not_the_next_one() -> None:
    minutely = rule(cadence={"cron": "* * * * *"})

    status = status_of(minutely, RuleProgress(watermark=5, served=at(3600 + 120)))

    assert status.ignored_served is None
    assert status.next_at == at(3600 + 180)


def test_success_of_a_wrong_clock_is_no_success() -> None:
    own = rule(cadence=NOON)

    assert status_of(own, RuleProgress(succeeded_at=WRONG)).succeeded_at is None
    assert status_of(own, RuleProgress(succeeded_at=at(3600))).succeeded_at == at(3600)


def test_arrived_episodes_count_as_pending_and_make_a_rule_due() -> None:
    arrived = replace(FULL, pending=0, oldest_at=None, arrived=1)

    status = status_of(EVERY_TWO, arrived)

    assert (status.pending, status.late_seconds) == (1, 60.0)
    assert status_of(EVERY_TWO, replace(arrived, paused=True)).due_at is None

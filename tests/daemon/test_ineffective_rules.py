"""The daemon logs once that the firings of a rule have no effect."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from slumberd.daemon.background import EffectTracker
from slumberd.model.firing import Counts, Report

pytestmark = pytest.mark.unit

NOTHING = Counts(read=50, filtered=30, noop=20)


def find_warnings(*firings: Counts) -> list[int]:
    """Return the numbers of the firings after which a warning is logged."""
    effects, numbers = EffectTracker(), []
    for number, counts in enumerate(firings, start=1):
        with capture_logs() as logs:
            effects.record("tea", Report("tea", {"facts": counts}))
        numbers += [number for _ in logs]
    return numbers


def test_rule_that_reads_without_an_effect_is_logged_once() -> None:
    assert find_warnings(*[NOTHING] * 8) == [3]


def test_chat_in_which_few_turns_state_something_is_not_logged() -> None:
    one = Counts(read=1, noop=1)

    assert find_warnings(*[one] * 99, one._replace(added=1), *[one] * 99) == []
    assert find_warnings(*[one] * 120) == [100]
    assert find_warnings(Counts(read=300), Counts(read=1), Counts(read=1)) == [3]


@pytest.mark.parametrize("effect", ["added", "updated", "deleted", "restored"])
def test_effect_of_a_firing_restarts_the_count(effect: str) -> None:
    done = Counts(read=50)._replace(**{effect: 1})

    assert find_warnings(
        NOTHING, NOTHING, done, NOTHING, NOTHING, NOTHING, done, *[NOTHING] * 3
    ) == [6, 10]


@pytest.mark.parametrize(
    ("counts", "warnings"),
    [
        pytest.param(NOTHING, 0, id="held back"),
        pytest.param(Counts(read=50, filtered=50), 1, id="filtered"),
    ],
)
def test_gate_may_hold_back_every_episode_and_filter_may_not(counts: Counts, warnings: int) -> None:
    effects = EffectTracker()

    with capture_logs() as logs:
        for _ in range(5):
            effects.record("tea", Report("tea", {"facts": counts}), gated=True)

    assert len(logs) == warnings


def test_firing_that_reads_nothing_does_not_count() -> None:
    effects = EffectTracker()

    with capture_logs() as logs:
        for _ in range(5):
            effects.record("tea", Report("tea", {"facts": Counts()}))

    assert logs == []


def test_rules_are_counted_apart_and_logged_by_name() -> None:
    effects = EffectTracker()

    with capture_logs() as logs:
        for name in ["tea", "coffee", "tea", "tea", "coffee"]:
            effects.record(name, Report(name, {"facts": NOTHING}))

    assert logs == [
        {
            "event": "rule.ineffective",
            "log_level": "warning",
            "rule_id": "tea",
            "firings": 3,
            "read": 150,
        }
    ]

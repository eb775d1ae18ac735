"""Rules that nothing ever comes of are told of, once."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from slumberd.consolidation.fire_request import Report
from slumberd.model.firing import Counts
from slumberd.service.background import Effects

pytestmark = pytest.mark.unit

NOTHING = Counts(read=5, filtered=3, noop=2)


def _told(*firings: Counts) -> list[int]:
    """Return after which firings a rule is said to have no effect."""
    effects, told = Effects(), []
    for number, counts in enumerate(firings, start=1):
        with capture_logs() as logs:
            effects.see("tea", Report("tea", {"facts": counts, "notes": Counts(read=5)}))
        told += [number for _ in logs]
    return told


def test_rule_that_reads_and_does_nothing_is_told_of_once() -> None:
    assert _told(*[NOTHING] * 8) == [3]


@pytest.mark.parametrize("effect", ["added", "updated", "deleted", "restored"])
def test_rule_that_had_an_effect_begins_anew(effect: str) -> None:
    done = Counts(read=5)._replace(**{effect: 1})

    assert _told(NOTHING, NOTHING, done, NOTHING, NOTHING, NOTHING, done, *[NOTHING] * 3) == [6, 10]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        pytest.param(NOTHING, 0, id="held back"),
        pytest.param(Counts(read=5, filtered=5), 1, id="filtered"),
    ],
)
def test_a_gate_may_hold_back_all_there_is_and_a_filter_may_not(counts: Counts, told: int) -> None:
    effects = Effects()

    with capture_logs() as logs:
        for _ in range(5):
            effects.see("tea", Report("tea", {"facts": counts}), gated=True)

    assert len(logs) == told


def test_firing_that_reads_nothing_does_not_count() -> None:
    effects = Effects()

    with capture_logs() as logs:
        for _ in range(5):
            effects.see("tea", Report("tea", {"facts": Counts()}))

    assert logs == []


def test_rules_are_counted_apart_and_told_of_by_name() -> None:
    effects = Effects()

    with capture_logs() as logs:
        for name in ["tea", "coffee", "tea", "tea", "coffee"]:
            effects.see(name, Report(name, {"facts": NOTHING}))

    assert logs == [
        {
            "event": "rule.ineffective",
            "log_level": "warning",
            "rule_id": "tea",
            "firings": 3,
            "read": 5,
        }
    ]

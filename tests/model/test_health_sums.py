"""The figures of several shards make those of one process."""

from __future__ import annotations

import pytest

from slumberd.model.firing import Counts
from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
)
from slumberd.model.health_sums import sum_health
from tests.support.builders import at

pytestmark = pytest.mark.unit


def health(*rules: RuleHealth, **figures: object) -> DaemonHealth:
    """Return the figures of one shard."""
    usual: dict[str, object] = {
        "at": at(10),
        "uptime_seconds": 5.0,
        "loop_lag_seconds": 0.1,
        "wal_bytes": 0,
        "rss_bytes": 100,
        "dropped": 1,
        "loaded": 2,
        "oldest_seconds": None,
        "next_at": None,
        "succeeded_at": None,
        "quarantined": 0,
        "held": 0,
    }
    return DaemonHealth(rules=rules, **{**usual, **figures})  # type: ignore[arg-type]


def test_counts_are_added_and_ages_compared() -> None:
    first = health(oldest_seconds=3.0, next_at=at(40), quarantined=2, held=1)
    second = health(
        at=at(11), oldest_seconds=9.0, next_at=at(30), succeeded_at=at(5), quarantined=5
    )

    found = sum_health([first, second])

    assert (found.at, found.oldest_seconds, found.next_at) == (at(11), 9.0, at(30))
    assert (found.succeeded_at, found.quarantined, found.held) == (at(5), 7, 1)
    assert (found.dropped, found.loaded, found.rss_bytes) == (1, 2, 100)
    assert (found.provenance, found.tallies) == (None, None)


def test_rule_is_one_over_all_shards() -> None:
    behind = RuleHealth(
        RuleStatus("a", pending=3, oldest_seconds=8.0, due_at=at(2), late_seconds=4.0),
        failures=1,
        failed=2,
        tally=BatchTotals(1, 10, 5, 0),
    )
    held = RuleHealth(
        RuleStatus("a", pending=4, paused=True, held_firing_id="a@7", quarantined=1),
        failures=3,
        failed=3,
        tally=BatchTotals(2, 20, 6, 1),
    )
    idle = RuleHealth(RuleStatus("b"))

    both, alone = sum_health([health(behind, idle), health(held)]).rules

    assert both == RuleHealth(
        RuleStatus(
            "a",
            pending=7,
            oldest_seconds=8.0,
            due_at=at(2),
            late_seconds=4.0,
            paused=True,
            held_firing_id="a@7",
            quarantined=1,
        ),
        failures=3,
        failed=5,
        tally=BatchTotals(3, 30, 11, 1),
    )
    assert alone == idle


def test_counters_and_sinks_are_added() -> None:
    first = health(
        provenance=ProvenanceHealth(2, 7.0, 1),
        tallies=LedgerCounters(10, 20, {"a": BatchTotals(1, 2, 3, 4)}),
    )
    second = health(
        provenance=ProvenanceHealth(3, 1.0, 0),
        tallies=LedgerCounters(1, 2, {"a": BatchTotals(1, 1, 1, 1), "b": BatchTotals(5)}),
    )

    found = sum_health([first, second, health()])

    assert found.provenance == ProvenanceHealth(5, 7.0, 1)
    assert found.tallies == LedgerCounters(
        11, 22, {"a": BatchTotals(2, 3, 4, 5), "b": BatchTotals(5)}
    )


def test_version_counts_once_for_all_channels_of_a_batch() -> None:
    facts = Counts(read=7, added=1, updated=2, deleted=1, noop=2, quarantined=1, restored=1)
    marks = Counts(read=5, added=3, noop=2)

    assert BatchTotals.of([facts, marks]) == BatchTotals(1, 7, 8, 1)
    assert BatchTotals.of([]) == BatchTotals(1, 0, 0, 0)

"""Each problem of a fact store is a finding in words, from its limit on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import microseconds
from slumberd.model.provenance import Lag
from slumberd.model.store_status import FactStoreStatus, HeldFiring, SinkProgress
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import ProvenanceSettings
from slumberd.tools.diagnostics.store_checks import (
    DoctorContext,
    check_degraded_rules,
    check_disagreements,
    check_fact_store,
    check_future_episodes,
)
from tests.support.builders import START, at, version

pytestmark = pytest.mark.unit

MINUTES = timedelta(minutes=1)
SOUND = {"facts": 1, "rows": 9, "unlogged": 0, "triggered": True}


def problems(
    *unreached: str, daemon: dict[str, Any] | None = None, **seen: Any
) -> list[tuple[str, str]]:
    """Return the subject and the words of each finding in a fact store."""
    home, sink = Path("/nonexistent"), ProvenanceSettings(sink="file")
    settings = Settings(state_dir=home, rules_dir=home, provenance=sink)
    context = DoctorContext(settings, None, None, daemon, START)
    status = FactStoreStatus(**{**SOUND, **seen})
    found = check_fact_store("facts.db", status, unreached, context)
    return [(finding.subject, finding.problem) for finding in found]


def behind(rows: int, since: timedelta) -> dict[str, SinkProgress]:
    return {"file": SinkProgress(Lag(rows, START - since), 0)}


SECOND = timedelta(seconds=1)
LATEST = START + 5 * MINUTES
IN_THE_FUTURE = (
    "its last firing is at 2026-01-01 12:05:01Z, in the future: the clock is behind, or was ahead"
)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({}, [], id="sound"),
        pytest.param({"recorded": microseconds(LATEST)}, [], id="clock a bit behind"),
        pytest.param(
            {"recorded": microseconds(LATEST + SECOND)},
            [("facts.db", IN_THE_FUTURE)],
            id="clock behind",
        ),
        pytest.param(
            {"served": {"r": microseconds(LATEST), "s": 0}},
            [],
            id="served a bit ahead",
        ),
        pytest.param(
            {"served": {"r": microseconds(LATEST + SECOND), "s": 0}},
            [
                (
                    "rule r",
                    "a wrong clock recorded that 2026-01-01 12:05:01Z is served; this is ignored",
                )
            ],
            id="served by a wrong clock",
        ),
        pytest.param({"latest_claim": microseconds(LATEST)}, [], id="claim a bit ahead"),
        pytest.param(
            {"latest_claim": microseconds(LATEST + SECOND)},
            [
                (
                    "facts.db",
                    "a current fact was said at 2026-01-01 12:05:01Z, in the future:"
                    " no newer episode replaces it",
                )
            ],
            id="claim of the future",
        ),
        pytest.param({"quarantined": {("r", "future"): 2}}, [], id="episodes of the future"),
        pytest.param(
            {"unfinished": 1},
            [
                (
                    "facts.db",
                    "1 erasure is incomplete: the episodes may still be in the episode database",
                )
            ],
            id="one erasure",
        ),
        pytest.param(
            {"unfinished": 2},
            [
                (
                    "facts.db",
                    "2 erasures are incomplete: the episodes may still be in the episode database",
                )
            ],
            id="two erasures",
        ),
        pytest.param(
            {"quarantined": {("r", "a"): 1, ("r", "b"): 2, ("r", "scope_mismatch"): 1}},
            [
                ("rule r", "1 episode whose scope key and content disagree"),
                ("rule r", "3 episodes in quarantine"),
            ],
            id="quarantine",
        ),
        pytest.param(
            {"held": {"r": HeldFiring("r@5", "too much")}},
            [("rule r", "a batch awaits approval: too much")],
            id="held",
        ),
        pytest.param(
            {"unlogged": 3},
            [("facts.db", "3 rows of the ledger have no log line yet")],
            id="unlogged",
        ),
        pytest.param({"sinks": behind(5, 10 * MINUTES)}, [], id="provenance a bit behind"),
        pytest.param(
            {"sinks": behind(1, 10 * MINUTES + SECOND)},
            [("facts.db", "the provenance sink is 1 row behind, since 2026-01-01 11:49:59Z")],
            id="provenance one row behind",
        ),
        pytest.param(
            {"sinks": behind(1200, 11 * MINUTES)},
            [("facts.db", "the provenance sink is 1,200 rows behind, since 2026-01-01 11:49:00Z")],
            id="provenance behind",
        ),
    ],
)
def test_problem_of_a_fact_store_is_told(
    seen: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert problems(**seen) == expected


def test_running_daemon_explains_rows_that_wait() -> None:
    fresh, old = {"uptime_seconds": 599.0}, {"uptime_seconds": 600.0}
    waiting = behind(5, 11 * MINUTES)

    assert problems(unlogged=3, sinks=waiting, daemon=fresh) == []
    assert len(problems(unlogged=3, sinks=waiting, daemon=old)) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 retraction covers nothing: e0"),
        (3, "3 retractions cover nothing: e0, e1, e2"),
        (4, "4 retractions cover nothing: e0, e1, e2, ..."),
    ],
)
def test_retractions_without_effect_are_named_up_to_three(count: int, text: str) -> None:
    assert problems(*(f"e{n}" for n in range(count))) == [("episodes", text)]


@pytest.mark.parametrize(
    ("count", "start", "end"),
    [
        (1, "1 pair of facts disagrees on a single value: d0 (declared) and p0", "and p0"),
        (3, "3 pairs disagree on a single value: d0 (declared) and p0; d1", "and p2"),
        (4, "4 pairs disagree on a single value: d0 (declared) and p0; d1", "and p2; ..."),
    ],
)
def test_facts_that_disagree_are_named_up_to_three_pairs(count: int, start: str, end: str) -> None:
    (found,) = check_disagreements([(f"d{n}", f"p{n}") for n in range(count)])

    assert found.problem.startswith(start)
    assert found.problem.endswith(end)
    assert "`slumberd why d0` and `slumberd why p0`" in found.remedy


@pytest.mark.parametrize(
    ("count", "start", "end"),
    [
        (1, "1 episode is dated in the future: e0 (2026-01-01 12:00:00Z)", ":00Z)"),
        (3, "3 episodes are dated in the future: e0 (2026-01-01 12:00:00Z), e1", ":02Z)"),
        (4, "4 episodes are dated in the future: e0 (2026-01-01 12:00:00Z), e1", ":02Z), ..."),
    ],
)
def test_episodes_of_the_future_are_named_up_to_three(count: int, start: str, end: str) -> None:
    versions = [version(f"e{n}", timestamp=at(n)) for n in range(count)]

    (found,) = check_future_episodes(versions)

    assert found.problem.startswith(start)
    assert found.problem.endswith(end)


def test_no_finding_without_facts_that_disagree_or_episodes_of_the_future() -> None:
    assert [*check_disagreements([]), *check_future_episodes([])] == []


def test_only_degraded_rules_of_the_daemon_are_findings() -> None:
    failing = {"failures": 3, "since": "2026-01-01T12:00:00.000000Z", "error": "StoreError"}
    daemon = {
        "failing": [
            {"rule_id": "r", "degraded": True, **failing},
            {"rule_id": "s", "degraded": False, **failing},
        ]
    }

    (found,) = check_degraded_rules(daemon)

    assert (found.id, found.subject) == ("rule.degraded", "rule r")
    assert found.problem == "failed 3 times in a row since 2026-01-01 12:00:00Z: StoreError"
    assert [*check_degraded_rules(None)] == []

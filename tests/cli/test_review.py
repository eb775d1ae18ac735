"""The episodes that `backfill`, `quarantine`, `approve` and `reject` select."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

STREAM = [triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(4)]
SHOUT = {"intent": "shout"}
GONE = {"intent": "delete"}


def ids(trial: TrialInstallation) -> list[str]:
    return [fact["id"] for fact in trial.lines("facts")]


@pytest.fixture
def site_without_facts(tmp_path: Path) -> TrialInstallation:
    """Return a site whose rule read four episodes and promoted none."""
    trial = TrialInstallation(tmp_path, rules(rule("all", "0"), rule("other", "0")))
    trial.put(*STREAM)
    trial.fire()
    trial.rules.write_text(rules(rule("all", ""), rule("other", "0")))
    return trial


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], ["e0", "e1", "e2", "e3"], id="all"),
        pytest.param(["--from", at(1).isoformat()], ["e1", "e2", "e3"], id="from"),
        pytest.param(["--to", at(2).isoformat()], ["e0", "e1"], id="to"),
        pytest.param(
            ["--from", at(1).isoformat(), "--to", at(3).isoformat()], ["e1", "e2"], id="between"
        ),
        pytest.param(["--from", at(9).isoformat()], [], id="none"),
        pytest.param(["--dry-run"], [], id="dry run"),
    ],
)
def test_backfill_consolidates_the_episodes_of_its_range(
    site_without_facts: TrialInstallation, words: list[str], expected: list[str]
) -> None:
    done = site_without_facts.call("backfill", "all", *words)

    assert done.returncode == 0, done.stderr
    assert ids(site_without_facts) == expected


@pytest.mark.slow
def test_backfill_consolidates_only_the_named_rule(site_without_facts: TrialInstallation) -> None:
    done = site_without_facts.call("backfill", "other", "--json")

    assert json.loads(done.stdout)["dry_run"] is False
    assert ids(site_without_facts) == []


@pytest.fixture
def quarantine_site(tmp_path: Path) -> TrialInstallation:
    """Return a site with two quarantined episodes of each of two rules."""
    trial = TrialInstallation(tmp_path, rules(rule("one"), rule("two")))
    trial.put(*(triple(id, "ada", "is", 1, timestamp=at(1), metadata=SHOUT) for id in ("a", "b")))
    trial.fire()
    return trial


def entries_in_quarantine(trial: TrialInstallation, *words: str) -> list[tuple[str, str]]:
    found = trial.lines("quarantine", "ls", *words)
    return sorted((entry["rule_id"], entry["episode_id"]) for entry in found)


EVERY = [("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")]


@pytest.mark.slow
def test_quarantine_is_listed_by_rule(quarantine_site: TrialInstallation) -> None:
    assert entries_in_quarantine(quarantine_site) == EVERY
    assert entries_in_quarantine(quarantine_site, "--rule", "one") == EVERY[:2]
    assert entries_in_quarantine(quarantine_site, "--rule", "one", "--rule", "two") == EVERY
    assert entries_in_quarantine(quarantine_site, "--rule", "none") == []


@pytest.mark.parametrize(
    ("words", "left"),
    [
        pytest.param(["a"], [("one", "b"), ("two", "b")], id="an episode"),
        pytest.param(["a", "b"], [], id="two episodes"),
        pytest.param(["a", "--rule", "one"], EVERY[1:], id="an episode of a rule"),
        pytest.param(["a", "--dry-run"], EVERY, id="dry run"),
    ],
)
def test_dropped_episodes_leave_the_quarantine(
    quarantine_site: TrialInstallation, words: list[str], left: list[tuple[str, str]]
) -> None:
    done = quarantine_site.call("quarantine", "drop", *words, "--json")

    assert done.returncode == 0, done.stderr
    assert entries_in_quarantine(quarantine_site) == left


def test_drop_in_json_reports_the_number_of_entries_and_whether_it_was_a_dry_run(
    quarantine_site: TrialInstallation,
) -> None:
    dry = json.loads(quarantine_site.call("quarantine", "drop", "a", "--dry-run", "--json").stdout)
    wet = json.loads(quarantine_site.call("quarantine", "drop", "a", "--json").stdout)

    assert (dry["dropped"], dry["dry_run"]) == (2, True)
    assert (wet["dropped"], wet["dry_run"]) == (2, False)


@pytest.mark.slow
def test_retry_keeps_unreadable_episodes_in_quarantine(quarantine_site: TrialInstallation) -> None:
    quarantine_site.call("quarantine", "retry", "a")

    assert entries_in_quarantine(quarantine_site) == EVERY


@pytest.mark.slow
def test_retry_reads_only_the_named_episodes_and_rules(quarantine_site: TrialInstallation) -> None:
    named = answer(quarantine_site, "quarantine", "retry", "a", "--rule", "one", "--dry-run")
    every = answer(quarantine_site, "quarantine", "retry", "--dry-run")

    assert read_by(named) == {"one": 1}
    assert read_by(every) == {"one": 2, "two": 2}


def read_by(document: dict[str, Any]) -> dict[str, int]:
    """Return how many episodes each rule has read."""
    return {
        report["rule_id"]: report["channels"]["facts"]["read"] for report in document["reports"]
    }


@pytest.fixture
def held_site(tmp_path: Path) -> TrialInstallation:
    """Return a site where a batch that would delete two facts waits for approval."""
    trial = TrialInstallation(tmp_path, rules(rule("all", "", limits="{max_deletes: 1}")))
    trial.put(*STREAM)
    trial.fire()
    gone = [
        triple(f"d{n}", f"s{n}", "is", n, timestamp=at(10 + n), metadata=GONE) for n in range(2)
    ]
    trial.put(*gone, triple("late", "s9", "is", 9, timestamp=at(20)))
    trial.call("fire", "all")
    return trial


def batch(trial: TrialInstallation) -> str:
    (state,) = trial.lines("rules")
    return str(state["held_firing_id"])


def answer(trial: TrialInstallation, *words: str) -> dict[str, Any]:
    done = trial.call(*words, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_held_batch_changes_nothing_until_a_person_decides(held_site: TrialInstallation) -> None:
    assert ids(held_site) == ["e0", "e1", "e2", "e3"]
    assert batch(held_site).startswith("all@")


@pytest.mark.slow
def test_approved_batch_is_applied(held_site: TrialInstallation) -> None:
    assert answer(held_site, "approve", batch(held_site))["dry_run"] is False

    assert ids(held_site) == ["e2", "e3", "late"]
    assert held_site.lines("rules")[0]["held_firing_id"] is None


@pytest.mark.slow
def test_rejected_batch_is_skipped(held_site: TrialInstallation) -> None:
    assert answer(held_site, "reject", batch(held_site))["dry_run"] is False

    assert ids(held_site) == ["e0", "e1", "e2", "e3"]
    (state,) = held_site.lines("rules")
    assert (state["held_firing_id"], state["pending"]) == (None, 0)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["approve", "reject"])
def test_dry_run_of_a_decision_decides_nothing(held_site: TrialInstallation, word: str) -> None:
    waiting = batch(held_site)

    assert answer(held_site, word, waiting, "--dry-run")["dry_run"] is True

    assert ids(held_site) == ["e0", "e1", "e2", "e3"]
    assert batch(held_site) == waiting


@pytest.mark.slow
def test_approve_of_a_batch_that_is_not_held_is_refused(held_site: TrialInstallation) -> None:
    refused = held_site.call("approve", "all@1")

    assert refused.returncode == 64
    assert batch(held_site).startswith("all@")

"""The cells of printed tables, for any order and width of the columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.cli_runner import called
from tests.support.printed_tables import labels, table
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

TEA = triple("e1", "ada", "likes", "tea", timestamp=at(1), metadata={"confidence": 0.5})
RUM = triple("e2", "bob", "drinks", "rum", timestamp=at(2))
LIKES = rule("likes", "predicate = 'likes'", "notes", "facts")
CAUTIOUS = rule("cautious", "", limits="{max_deletes: 0}")


@pytest.fixture
def trial(tmp_path: Path) -> TrialInstallation:
    """Return a site with two episodes, one of which its rule selects for two channels."""
    found = TrialInstallation(tmp_path, rules(LIKES))
    found.put(TEA, RUM)
    return found


def hold(trial: TrialInstallation) -> None:
    """Make a batch of the rule ``cautious`` wait for approval."""
    trial.rules.write_text(rules(LIKES, CAUTIOUS))
    trial.fire()
    gone = {"intent": "delete"}
    trial.put(triple("e3", "ada", "likes", "tea", timestamp=at(3), metadata=gone))
    trial.call("fire", "cautious")


@pytest.mark.slow
def test_check_against_data_shows_how_many_episodes_each_rule_selects(
    trial: TrialInstallation,
) -> None:
    printed = trial.look("check", "--against-data").stdout

    rows = table(printed, "rule", "matches", "of", "pending", "channel", "added")
    assert [[row[name] for name in ("rule", "matches", "of", "pending")] for row in rows] == [
        ["likes", "1", "2", "2"]
    ] * 2
    assert {row["channel"]: row["added"] for row in rows} == {"facts": "1", "notes": "1"}


@pytest.mark.slow
def test_audit_shows_fifty_rows_unless_it_is_told_otherwise(trial: TrialInstallation) -> None:
    trial.put(*(triple(f"n{n}", f"s{n}", "likes", n, timestamp=at(n)) for n in range(30)))
    trial.fire()

    assert len(trial.lines("audit", "ls")) == 50
    assert len(trial.lines("audit", "ls", "--limit", "60")) == 60


@pytest.mark.slow
def test_audit_shows_the_id_of_each_fact(trial: TrialInstallation) -> None:
    trial.fire()

    rows = table(trial.look("audit", "ls").stdout, "seq", "kind", "fact")

    assert [(row["kind"], row["fact"]) for row in rows] == [
        ("firing", ""),
        ("add", "@notes/e1"),
        ("add", "e1"),
    ]


def test_status_shows_the_numbers_of_episodes_facts_and_rows(trial: TrialInstallation) -> None:
    trial.fire()

    shown = labels(trial.look("status").stdout)

    assert (shown["episodes"], shown["facts"]) == ("2", "2")
    assert shown["ledger"].split()[0] == "3"


@pytest.mark.slow
def test_facts_without_json_prints_a_table(trial: TrialInstallation) -> None:
    trial.fire()

    rows = table(trial.look("facts").stdout, "user", "subject", "object", "confidence", "id")

    assert [(row["id"], row["subject"], row["object"], row["confidence"]) for row in rows] == [
        ("@notes/e1", "ada", "tea", "0.5"),
        ("e1", "ada", "tea", "0.5"),
    ]


@pytest.mark.slow
def test_why_shows_the_content_hash_of_the_rule_that_promotes(trial: TrialInstallation) -> None:
    trial.fire()
    (document,) = trial.lines("why", "e1")

    (row,) = table(trial.look("why", "e1").stdout, "firing", "rule hash", "trigger", "by")

    (promoted,) = document["promoted"]
    assert len(row["rule hash"]) == 16
    assert (row["rule hash"], row["trigger"], row["by"]) == (
        promoted["rule_hash"], "manual", promoted["by"],
    )  # fmt: skip


def test_doctor_lists_its_checks_with_their_severity(trial: TrialInstallation) -> None:
    rows = table(trial.look("doctor", "--list").stdout, "id", "severity")

    assert {row["severity"] for row in rows} == {"error", "warning"}
    assert {row["id"]: row["severity"] for row in rows}["rule.held"] == "error"


def test_check_against_data_shows_no_counts_of_a_disabled_rule(trial: TrialInstallation) -> None:
    trial.rules.write_text(rules(rule("idle", "", enabled="false")))

    (row,) = table(trial.look("check", "--against-data").stdout, "rule", "channel", "added")

    assert (row["rule"], row["channel"], row["added"]) == ("idle", "(disabled)", "-")


def test_why_not_lists_channels_in_order_before_any_firing(trial: TrialInstallation) -> None:
    lines = trial.look("why-not", "e1", "--json").stdout.splitlines()

    assert [json.loads(line)["channel"] for line in lines] == ["facts", "notes"]


@pytest.mark.slow
def test_status_shows_a_dash_where_no_batch_is_held(trial: TrialInstallation) -> None:
    trial.fire()

    (row,) = table(trial.look("status").stdout, "rule", "held")

    assert (row["rule"], row["held"]) == ("likes", "-")


@pytest.mark.slow
def test_status_shows_why_a_batch_is_held(trial: TrialInstallation) -> None:
    hold(trial)

    rows = table(trial.look("status").stdout, "rule", "held")

    assert {row["rule"]: row["held"] != "-" for row in rows} == {"cautious": True, "likes": False}


@pytest.mark.slow
def test_why_shows_the_fact_with_its_owner_and_the_instant_of_its_promotion(
    trial: TrialInstallation,
) -> None:
    trial.fire()
    (fact,) = trial.lines("facts", "--user", "alice", "--subject", "ada")[:1]

    shown = labels(trial.look("why", "e1").stdout)

    assert shown["fact"] == "e1"
    assert shown["scope"] == "user alice, agent rag"
    assert shown["says"] == "ada likes tea"
    assert shown["confidence"] == "0.5"
    assert shown["pinned at"] == fact["pinned_at"][:19].replace("T", " ") + "Z"
    assert json.loads(shown["lineage"]) == fact["lineage"][0]


@pytest.mark.slow
def test_why_has_a_heading_above_each_of_its_tables(trial: TrialInstallation) -> None:
    trial.fire()
    trial.put(triple("e3", "ada", "likes", "rum", timestamp=at(3)))
    trial.fire()

    shown = trial.look("why", "e1").stdout

    headings = [paragraph.splitlines()[0] for paragraph in shown.split("\n\n")[1:]]
    assert headings == ["from", "promoted by", "replaced or deleted by"]


HEADINGS = [
    "An episode, its rule and its fact",
    "Facts from text alone",
    "What the deltas did",
    "The current facts",
    "Where Mira lives: now, and as of Monday evening",
    "The audit",
]


@pytest.fixture(scope="module")
def demo() -> str:
    done = called("demo")
    assert done.returncode == 0
    return done.stdout


@pytest.mark.slow
def test_demo_shows_an_example_of_each_delta_and_the_fact_it_replaces(demo: str) -> None:
    rows = table(demo, "delta", "count", "example")

    assert {row["delta"]: (row["count"], row["example"]) for row in rows} == {
        "add": ("28", "m01"),
        "update": ("7", "m10 replaces m01"),
        "delete": ("3", "p04 replaces p03"),
        "noop": ("9", "p13 (stale)"),
        "quarantine": ("1", "p09 (intent_unknown)"),
    }


@pytest.mark.slow
def test_demo_has_a_heading_above_each_of_its_parts(demo: str) -> None:
    above = [line for line in demo.splitlines() if line in HEADINGS]

    assert above == HEADINGS


def test_demo_counts_the_episodes_of_each_day_and_says_how_to_keep_them(demo: str) -> None:
    assert "Monday: 31 new episodes, 0 edited" in demo
    assert "Tuesday: 16 new episodes, 1 edited" in demo
    assert "slumberd demo --keep DIR" in demo


def test_demo_shows_the_current_fact_and_the_earlier_fact(demo: str) -> None:
    home = demo[demo.index("Where Mira lives") :]

    rows: list[dict[str, Any]] = table(home, "predicate", "object", "id")

    assert [(row["predicate"], row["object"], row["id"]) for row in rows] == [
        ("lives_in", "Braga", "m10"),
        ("lives_in", "Porto", "m01"),
    ]

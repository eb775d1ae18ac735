"""The output of `why`, `status` and `audit ls` for small examples."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.commands import status
from tests.support.builders import at, triple
from tests.support.printed_tables import labels, table
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

GONE = {"intent": "delete"}


@pytest.fixture
def site_of_ada(tmp_path: Path) -> TrialInstallation:
    """Return a site where ada moved twice and left; one statement arrived late."""
    trial = TrialInstallation(tmp_path, rules(rule("homes")))
    trial.put(
        triple("e1", "ada", "lives_in", "Porto", timestamp=at(1)),
        triple("e2", "ada", "lives_in", "Braga", timestamp=at(2)),
    )
    trial.fire()
    trial.put(
        triple("late", "ada", "lives_in", "Lagos", timestamp=at(1.5)),
        triple("gone", "ada", "lives_in", None, timestamp=at(3), metadata=GONE),
    )
    trial.fire()
    return trial


def why(trial: TrialInstallation, fact_id: str) -> str:
    done = trial.look("why", fact_id)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_why_lists_the_rows_that_replaced_a_fact(site_of_ada: TrialInstallation) -> None:
    (row,) = table(why(site_of_ada, "e1"), "row", "firing", "did", "how")

    assert (row["row"], row["firing"], row["did"], row["how"]) == (
        "3", "homes@1", "update", "e2 replaced it",
    )  # fmt: skip


@pytest.mark.slow
def test_why_shows_the_fact_it_replaced_and_the_claim_that_removed_it(
    site_of_ada: TrialInstallation,
) -> None:
    text = why(site_of_ada, "e2")

    assert labels(text)["replaced"] == "e1"
    (row,) = table(text, "row", "firing", "did", "how")
    assert (row["did"], row["how"]) == ("delete", "gone retracted it")
    (promoted,) = table(text, "firing", "did", "replaces", "counts")
    assert (promoted["did"], promoted["replaces"], promoted["counts"]) == ("update", "e1", "yes")


def test_why_of_a_current_fact_lists_nothing_that_replaced_it(tmp_path: Path) -> None:
    trial = TrialInstallation(tmp_path, rules(rule("homes")))
    trial.put(triple("e1", "ada", "lives_in", "Porto"))
    trial.fire()

    assert "replaced" not in why(trial, "e1")


@pytest.mark.slow
def test_why_of_a_late_statement_points_to_why_not(site_of_ada: TrialInstallation) -> None:
    assert "why-not late" in why(site_of_ada, "late")


def test_why_shows_the_source_of_a_fact_whose_episode_the_host_deleted(
    site_of_ada: TrialInstallation,
) -> None:
    with closing(sqlite3.connect(site_of_ada.state / "memory.db")) as host, host:
        host.execute("DELETE FROM episodes WHERE id = 'e1'")

    (document,) = site_of_ada.lines("why", "e1")

    (source,) = document["sources"]
    assert (source["id"], source["session"], source["in_memory"]) == ("e1", "s1", False)
    assert (source["at"], source["source_node"]) == ("2026-01-01T12:00:01.000000Z", "chat")
    (row,) = table(why(site_of_ada, "e1"), "episode", "session", "in memory")
    assert row["in memory"] == "no longer among the episodes"


@pytest.mark.slow
def test_why_shows_content_only_on_request(site_of_ada: TrialInstallation) -> None:
    (bare,) = site_of_ada.lines("why", "e1")
    (whole,) = site_of_ada.lines("why", "e1", "--content")

    assert "content" not in bare["sources"][0]
    assert whole["sources"][0]["content"] == "content of e1"


def firings(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


@pytest.mark.slow
def test_status_shows_the_most_urgent_rules_first(tmp_path: Path) -> None:
    ids = ["a", *(f"b{number}" for number in range(status.SHOWN))]
    trial = TrialInstallation(tmp_path, rules(*(rule(id, "0") for id in ids)))
    trial.put(triple("e1", "ada", "lives_in", "Porto"))
    trial.fire()
    trial.put(triple("e2", "ada", "lives_in", "Braga"))
    trial.call("fire", "a")

    printed = trial.look("status").stdout

    shown = [row["rule"] for row in table(printed, "rule", "pending")]
    assert {*shown} >= {*ids[1:]}
    assert "a" not in shown
    assert "`slumberd rules`" in printed


def test_audit_shows_each_row_with_its_fact(site_of_ada: TrialInstallation) -> None:
    rows = table(site_of_ada.look("audit", "ls").stdout, "seq", "firing", "kind", "fact", "reason")

    assert [
        (row["seq"], row["firing"], row["kind"], row["fact"], row["reason"]) for row in rows
    ] == [
        ("1", "homes@1", "firing", "", ""),
        ("2", "homes@1", "add", "e1", ""),
        ("3", "homes@1", "update", "e2", ""),
        ("4", "homes@4", "firing", "", ""),
        ("5", "homes@4", "noop", "late", "stale"),
        ("6", "homes@4", "delete", "gone", ""),
    ]


@pytest.mark.parametrize(
    ("words", "seqs"),
    [
        pytest.param(["--kind", "firing"], [1, 4], id="kind"),
        pytest.param(["--fact", "e1"], [2], id="fact"),
        pytest.param(["--limit", "2"], [5, 6], id="the last ones"),
        pytest.param(["--after", "2", "--limit", "2"], [3, 4], id="those above a number"),
        pytest.param(["--rule", "homes", "--kind", "noop"], [5], id="rule and kind"),
        pytest.param(["--rule", "other"], [], id="another rule"),
    ],
)
def test_audit_shows_the_requested_rows(
    site_of_ada: TrialInstallation, words: list[str], seqs: list[int]
) -> None:
    assert [row["seq"] for row in site_of_ada.lines("audit", "ls", *words)] == seqs

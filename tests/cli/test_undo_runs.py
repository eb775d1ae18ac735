"""`slumberd undo --run` undoes all firings of a command or of a due cadence."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.installation import Installation, environment, wait_until
from tests.support.repository import ROOT

pytestmark = pytest.mark.integration


BATCHED = "facts: {batch: 5}\n"
RULES = """\
rules:
  - {id: kept, cadence: {every: 1}, when_filter: "predicate = 'is'", then_emits: [facts, notes]}
  - {id: noted, cadence: {every: 1}, when_filter: "predicate = 'has'", then_emits: [facts]}
"""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    """Return a site whose batches are small, and whose rules emit into two channels."""
    site = Installation(tmp_path)
    site.config.write_text(site.config.read_text() + BATCHED)
    site.rules.write_text(RULES)
    return site


def put(site: Installation, first: int, end: int) -> None:
    predicates = ("is", "has")
    site.put(
        *(
            triple(f"e{n}", f"s{n % 7}", predicates[n % 2], n, timestamp=at(n))
            for n in range(first, end)
        )
    )


def answer_of(site: Installation, *arguments: str) -> dict[str, Any]:
    done = site.call(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def facts(site: Installation) -> list[dict[str, Any]]:
    return sorted(site.lines("facts"), key=lambda fact: str(fact["id"]))


def ledger_is_whole(site: Installation) -> bool:
    return site.call("audit", "verify").returncode == 0


@pytest.mark.slow
def test_fire_prints_its_run_and_its_firings(site: Installation) -> None:
    put(site, 0, 12)

    done = site.call("fire", "--all")

    runs = {row["run"] for row in site.lines("audit", "ls", "--kind", "firing") if row["run"]}
    (run,) = runs
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("run ")]
    assert line.startswith(f"run {run}: 6 firings, kept@")
    assert line.endswith(f"`slumberd undo --run {run}` undoes it")


@pytest.mark.slow
def test_reason_of_a_command_shows_beside_its_author(site: Installation) -> None:
    put(site, 0, 1)
    run = answer_of(site, "fire", "--all", "--reason", "the first night")["run"]
    answer_of(site, "undo", "--run", run, "--reason", "too early, \x1b[31m")
    refused = site.call("undo", "--run", run, "--reason", " ")

    listed = site.call("audit", "ls", "--kind", "firing").stdout
    reasons = [row["reason"] for row in site.lines("audit", "ls", "--kind", "firing")]
    why = site.call("why", "e0").stdout
    assert reasons[-2:] == ["the first night", "too early, \x1b[31m"]
    assert "\x1b" not in listed
    assert "(the first night)" in why
    assert refused.returncode == 64
    assert "undo: reason: 1 to 1,000 characters are needed" in refused.stderr


@pytest.mark.slow
def test_undo_of_a_run_undoes_every_batch_of_every_rule(site: Installation) -> None:
    put(site, 0, 20)
    answer_of(site, "fire", "--all")
    before = facts(site)
    put(site, 20, 60)
    run = answer_of(site, "fire", "--all")["run"]
    after = facts(site)

    answer = answer_of(site, "undo", "--run", run)

    assert facts(site) == before
    assert len(answer["undone"]) == len(answer["firing_ids"]) > 10
    assert ledger_is_whole(site)
    again = answer_of(site, "undo", "--run", answer["run"])
    assert sorted(again["undone"]) == sorted(answer["firing_ids"])
    assert facts(site) == after
    assert ledger_is_whole(site)


@pytest.mark.slow
def test_undo_of_a_run_again_does_nothing(site: Installation) -> None:
    put(site, 0, 12)
    run = answer_of(site, "fire", "--all")["run"]
    answer_of(site, "undo", "--run", run)
    rows = len(site.lines("audit", "ls", "--limit", "1000"))

    again = site.call("undo", "--run", run)

    assert again.returncode == 0
    assert again.stdout == "nothing to do: all of these firings are undone already\n"
    assert len(site.lines("audit", "ls", "--limit", "1000")) == rows


@pytest.mark.slow
def test_undo_prints_which_firings_it_undoes_and_how_to_reverse_it(site: Installation) -> None:
    put(site, 0, 1)
    fired = answer_of(site, "fire", "kept")
    ((firing,),) = [report["firing_ids"] for report in fired["reports"]]

    rehearsed = site.call("undo", "--run", fired["run"], "--dry-run").stdout.splitlines()
    undone = site.call("undo", "--run", fired["run"]).stdout.splitlines()

    assert rehearsed[-2].startswith(f"would undo 1 firing ({firing}): ")
    assert rehearsed[-1] == "a dry run: nothing was written"
    assert undone[-2].startswith(f"undid 1 firing ({firing}): ")
    assert undone[-1].endswith("` reverses this undo")


@pytest.mark.slow
def test_undo_of_a_run_skips_a_firing_that_is_already_undone(site: Installation) -> None:
    put(site, 0, 12)
    fired = answer_of(site, "fire", "kept")
    first, *others = [
        firing_id for report in fired["reports"] for firing_id in report["firing_ids"]
    ][:3]
    answer_of(site, "undo", first)

    answer = answer_of(site, "undo", "--run", fired["run"])

    assert first not in answer["undone"][: len(others)]
    assert facts(site) == []


@pytest.mark.slow  # waits for a lock as long as a command does
def test_failed_undo_of_a_run_changes_nothing_and_can_be_repeated(site: Installation) -> None:
    put(site, 0, 12)
    run = answer_of(site, "fire", "--all")["run"]
    before = facts(site)
    with closing(sqlite3.connect(site.state / "facts.db", timeout=0)) as locked:
        locked.execute("BEGIN IMMEDIATE")
        failed = site.call("undo", "--run", run)
        locked.rollback()
    left = facts(site)

    answer = answer_of(site, "undo", "--run", run)

    assert failed.returncode == 75
    assert left == before
    assert facts(site) == []
    assert answer["undone"]


def run_until_killed(site: Installation, point: str, *words: str) -> int:
    """Run a command that is killed at a statement; return its exit code."""
    command = [
        sys.executable,
        "-m",
        "tests.support.failpoints",
        *words,
        "--config",
        str(site.config),
    ]
    env = environment({"SLUMBERD_FAILPOINT": point})
    return subprocess.run(command, env=env, capture_output=True, cwd=ROOT).returncode


@pytest.mark.nightly
@pytest.mark.slow  # waits for a lock as long as a command does
def test_killed_undo_of_a_run_is_complete_or_changes_nothing(site: Installation) -> None:
    put(site, 0, 40)
    run = answer_of(site, "fire", "--all")["run"]
    before = facts(site)
    counts = set()

    for commit in range(1, 6):
        code = run_until_killed(site, f"facts.db COMMIT#{commit}", "undo", "--run", run)
        counts.add((code, len(facts(site))))

    promoted = len(before)
    assert {count for _, count in counts} == {0, promoted}
    assert (137, promoted) in counts
    answer_of(site, "undo", "--run", run)
    assert facts(site) == []
    assert ledger_is_whole(site)


@pytest.mark.slow
def test_dry_run_of_an_undo_of_a_run_changes_nothing(site: Installation) -> None:
    put(site, 0, 12)
    run = answer_of(site, "fire", "--all")["run"]
    before = facts(site)

    answer = answer_of(site, "undo", "--run", run, "--dry-run", "--limit", "2")
    printed = site.call("undo", "--run", run, "--dry-run").stdout

    assert facts(site) == before
    assert (answer["run"], answer["firing_ids"]) == (None, [])
    assert len(answer["undone"]) == 6
    assert answer["counts"] == {"delete": 18}
    assert (answer["deltas_total"], answer["deltas_cut"], len(answer["deltas"])) == (18, True, 2)
    assert "would undo 6 firings (kept@" in printed


@pytest.mark.slow
def test_undo_of_a_rule_since_an_instant_undoes_its_later_firings(
    site: Installation,
) -> None:
    put(site, 0, 12)
    answer_of(site, "fire", "--all")
    before = facts(site)
    since = site.lines("audit", "ls", "--kind", "firing")[-1]["at"]
    put(site, 12, 40)
    answer_of(site, "fire", "noted")
    answer_of(site, "fire", "kept")
    moment = site.lines("audit", "ls", "--rule", "noted", "--after", "30", "--kind", "firing")

    answer = answer_of(site, "undo", "noted", "--since", moment[0]["at"])
    answer_of(site, "undo", "kept", "--since", moment[0]["at"])

    assert moment[0]["at"] > since
    assert {firing_id.split("@")[0] for firing_id in answer["undone"]} == {"noted"}
    assert facts(site) == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["--run", "nonsense"], "no run 'nonsense'", id="unknown run"),
        pytest.param(["unknown", "--since", "now"], "rule 'unknown' has never fired", id="no rule"),
        pytest.param([], "name a firing, or --run ID, or a rule", id="nothing"),
        pytest.param(["kept@1", "--run", "x"], "one of the three", id="two"),
        pytest.param(["--since", "now"], "one of the three", id="since without a rule"),
    ],
)
def test_undo_of_an_unknown_run_or_rule_is_refused(
    site: Installation, words: list[str], problem: str
) -> None:
    put(site, 0, 2)
    answer_of(site, "fire", "--all")

    done = site.call("undo", *words)

    assert done.returncode == 64
    assert problem in done.stderr


@pytest.mark.slow
def test_all_batches_of_a_due_cadence_belong_to_one_run(tmp_path: Path) -> None:
    home = Home(tmp_path, settings={"facts": {"batch": 10}})
    home.rule("all", cadence={"every": 40})
    site = Installation.__new__(Installation)
    site.config, site.state = home.config, home.state
    put(site, 0, 39)
    with home.daemon():
        put(site, 39, 40)
        wait_until(lambda: len(site.lines("facts")) == 14)
        run = site.lines("audit", "ls", "--kind", "firing")[-1]["run"]

        answer = answer_of(site, "undo", "--run", run)

        assert answer["undone"] == [f"all@{n}" for n in (1, 12, 23, 34)]
        assert site.lines("facts") == []

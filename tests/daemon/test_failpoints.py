"""A command that is killed between any two statements has done everything or nothing.

The process is killed between statements, before and after each commit, and within a log line,
while another process writes. `TEST_LONG=1` kills at every boundary of every command. Otherwise a
later firing is killed once at each name of a boundary, and other commands at some of them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.episode import microseconds
from tests.support.daemons import Home
from tests.support.installation import jsonl
from tests.support.kill_scenarios import SCENARIOS, Killing, Scenario
from tests.support.oracle import claim_of, current_claims
from tests.support.planted_faults import (
    Plant,
    commit_facts_before_watermark,
    commit_watermark_before_facts,
)
from tests.support.repository import ROOT
from tests.support.sample_sizes import amount
from tests.support.scripted_histories import FIRST
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

LONG = bool(os.environ.get("TEST_LONG"))
SEED = 20_261_122
KILLS = {
    "the first firing": amount(2, full=8),
    "a later firing": amount(3, full=99),
    "a forgetting": amount(4, full=6),
    "a forgetting of an episode": amount(4, full=6),
}
"""The largest number of kills in the short mode; a later firing has fewer names of boundaries."""

SAMPLED = ("the first firing", "a later firing")
"""The scenarios that the default run kills, too."""

OTHERS = amount(2, full=3)
"""The largest number of kills in each other scenario."""


def choose_points(points: Sequence[str], most: int) -> list[str]:
    """Return one random boundary of each name, at most `most` in all."""
    by_name = defaultdict(list)
    for point in points:
        by_name[point.partition("#")[0]].append(point)
    chance = random.Random(SEED)
    one_each = [chance.choice(same_name) for same_name in by_name.values()]
    return one_each if len(one_each) <= most else chance.sample(one_each, most)


@pytest.mark.path
@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        scenario if scenario in SAMPLED else pytest.param(scenario, marks=pytest.mark.slow)
        for scenario in SCENARIOS
    ],
)
def test_command_killed_at_any_boundary_ends_like_one_that_was_not_killed(
    tmp_path: Path, name: str
) -> None:
    killing = Killing(tmp_path, SCENARIOS[name])
    points = killing.points if LONG else choose_points(killing.points, KILLS.get(name, OTHERS))

    wrong = {point: problems for point in points if (problems := killing.kill_at(point))}

    assert not wrong


@pytest.mark.parametrize("name", ["the first firing", "a later firing"])
def test_firing_that_is_not_killed_gives_the_facts_of_the_oracle(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]

    wanted = Killing(tmp_path, scenario).wanted

    assert {
        id: fact[2].get("object")
        for id, fact in wanted.facts.items()
        if not id.startswith(("@marks/", "@summaries/", "@weights/"))
    } == objects_by_oracle(scenario)


def objects_by_oracle(scenario: Scenario) -> dict[str, Any]:
    """Return the objects of the facts that the brute-force oracle finds current, by id."""
    every = [*scenario.fired, *scenario.put, *scenario.meanwhile]
    newest = {episode.id: episode for episode in every}
    rows = [row.model_dump() | {"at": microseconds(row.timestamp)} for row in newest.values()]
    likes = [row for row in rows if row["metadata"]["predicate"] == "likes"]
    claims = [claim_of(row, "facts", ("all",)) for row in rows]
    claims += [claim_of(row, "notes", ("likes",)) for row in likes]
    current = current_claims([claim for claim in claims if claim], set())
    return {fact_id: claim.object for fact_id, claim in current.items()}


def test_failpoint_of_the_environment_ends_the_process(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    point = "facts.db ledger.set_watermark#1"
    home.call("import", str(episodes_file(tmp_path)))

    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.failpoints", *home.words(["fire", "--all"])],
        env={**os.environ, "SLUMBERD_FAILPOINT": point},
        cwd=ROOT,
        timeout=PATIENCE_SECONDS,
    )

    assert ended.returncode == 137
    assert home.facts() == []


def episodes_file(folder: Path) -> Path:
    path = folder / "episodes.jsonl"
    path.write_bytes(jsonl(*FIRST))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("plant", [commit_facts_before_watermark, commit_watermark_before_facts])
def test_search_finds_a_watermark_with_its_own_transaction(tmp_path: Path, plant: Plant) -> None:
    killing = Killing(tmp_path, SCENARIOS["a later firing"], plant)
    points = [point for point in killing.points if "after COMMIT" in point]

    found = any(killing.kill_at(point) for point in points)

    assert found

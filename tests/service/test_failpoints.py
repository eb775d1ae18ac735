"""A command that is killed at any boundary of its statements is as if it never was, or was done.

A process ends between any two statements, before and after each commit, and within a log line,
while another writes. `TEST_LONG=1` kills at every boundary of every command; else once at each
name that a later firing passes, and at some of the others.
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
from tests.support.killing import SCENARIOS, Killing, Scenario
from tests.support.lives import FIRST
from tests.support.oracle import claim_of, current_claims
from tests.support.patience import PATIENCE_SECONDS
from tests.support.plants import Plant, facts_first, watermark_first
from tests.support.samples import amount

pytestmark = pytest.mark.acceptance

LONG = bool(os.environ.get("TEST_LONG"))
SEED = 20_261_122
KILLS = {
    "the first firing": amount(2, full=8),
    "a later firing": amount(3, full=99),
    "a forgetting": 6,
}
"""At most so many in the short mode; a later firing has no boundaries of so many names."""

SAMPLED = ("the first firing", "a later firing")
"""What the default run kills, too."""

OTHERS = 3
"""At most so many of each of the others."""


def chosen(points: Sequence[str], most: int) -> list[str]:
    """Return a boundary of each name, whichever time it is passed, and at most so many."""
    by_name = defaultdict(list)
    for point in points:
        by_name[point.partition("#")[0]].append(point)
    chance = random.Random(SEED)
    one_each = [chance.choice(some) for some in by_name.values()]
    return one_each if len(one_each) <= most else chance.sample(one_each, most)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        scenario if scenario in SAMPLED else pytest.param(scenario, marks=pytest.mark.slow)
        for scenario in SCENARIOS
    ],
)
def test_command_killed_at_any_boundary_comes_to_what_it_does_unkilled(
    tmp_path: Path, name: str
) -> None:
    killing = Killing(tmp_path, SCENARIOS[name])
    points = killing.points if LONG else chosen(killing.points, KILLS.get(name, OTHERS))

    wrong = {point: problems for point in points if (problems := killing.kill_at(point))}

    assert not wrong


@pytest.mark.parametrize("name", ["the first firing", "a later firing"])
def test_what_comes_of_a_firing_unkilled_is_the_law(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]

    wanted = Killing(tmp_path, scenario).wanted

    assert {id: fact[2].get("object") for id, fact in wanted.facts.items()} == lawful(scenario)


def lawful(scenario: Scenario) -> dict[str, Any]:
    """Return the object of each fact that stands by the brute-force oracle."""
    newest = {one.id: one for one in [*scenario.fired, *scenario.put, *scenario.meanwhile]}
    said = [one.model_dump() | {"at": microseconds(one.timestamp)} for one in newest.values()]
    likes = [one for one in said if one["metadata"]["predicate"] == "likes"]
    claims = [claim_of(one, "facts", ("all",)) for one in said]
    claims += [claim_of(one, "notes", ("likes",)) for one in likes]
    standing = current_claims([claim for claim in claims if claim], set())
    return {fact_id: claim.object for fact_id, claim in standing.items()}


def test_failpoint_of_the_environment_ends_the_process(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    point = "facts.db ledger.set_watermark#1"
    home.call("import", str(episodes_file(tmp_path)))

    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.failing", *home.words(["fire", "--all"])],
        env={**os.environ, "SLUMBERD_FAILPOINT": point},
        cwd=Path(__file__).parents[2],
        timeout=PATIENCE_SECONDS,
    )

    assert ended.returncode == 137
    assert home.facts() == []


def episodes_file(folder: Path) -> Path:
    path = folder / "episodes.jsonl"
    path.write_bytes(jsonl(*FIRST))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("plant", [facts_first, watermark_first])
def test_watermark_in_a_transaction_of_its_own_is_found(tmp_path: Path, plant: Plant) -> None:
    killing = Killing(tmp_path, SCENARIOS["a later firing"], plant)
    points = [point for point in killing.points if "after COMMIT" in point]

    found = any(killing.kill_at(point) for point in points)

    assert found

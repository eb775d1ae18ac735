"""The tests of the shipped rules pass, and fail after a change of a rule."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slumberd.tools.rule_testing.loader import Trial, case_files, load_trials
from slumberd.tools.rule_testing.runner import (
    TrialResult,
    is_pattern_test,
    run_pattern_files,
    run_trial,
)
from tests.support.repository import ROOT

pytestmark = pytest.mark.integration

RULES = ROOT / "rules"
EXAMPLES = ROOT / "docs" / "examples"


async def _failed(trials: list[Trial]) -> list[TrialResult]:
    results = [await run_trial(trial) for trial in trials]
    return [result for result in results if not result.ok]


@pytest.mark.slow
def test_shipped_rules_and_the_patterns_of_the_pages_pass_their_tests() -> None:
    files = case_files([RULES, EXAMPLES])
    patterns = [file for file in files if is_pattern_test(file)]
    trials = load_trials([file for file in files if file not in patterns], timezone="UTC")

    assert asyncio.run(_failed(trials)) == []
    results = run_pattern_files(patterns)
    assert results
    assert all(result.ok for result in results)


@pytest.mark.parametrize("directory", [RULES, EXAMPLES], ids=["rules", "examples"])
def test_every_shipped_file_has_tests(directory: Path) -> None:
    tests = {file.name.removesuffix(".test.yaml") for file in case_files([directory])}

    assert tests == {file.stem for file in directory.rglob("*.yaml") if ".test." not in file.name}


CHANGES = [
    ("nightly", "subject IS NOT NULL AND", ""),
    ("nightly", "AND predicate IS NOT NULL", ""),
    ("nightly", "subject IS NOT NULL AND", "subject IS NOT NULL OR"),
    ("nightly", "OR intent", "AND intent"),
    ("nightly", "OR intent IN ('update', 'delete')", ""),
    ("nightly", "'update', 'delete'", "'update'"),
    ("nightly", "'update', 'delete'", "'delete'"),
    ("nightly", "('update', 'delete')", "('add', 'update', 'delete')"),
    ("nightly", "then_emits: [facts]", "then_emits: [notes]"),
    ("preferences", "predicate LIKE 'prefers%' OR", ""),
    ("preferences", "predicate LIKE 'prefers%'", "predicate LIKE '%'"),
    ("preferences", "predicate LIKE 'prefers%'", "predicate = 'prefers'"),
    ("preferences", "predicate LIKE 'prefers%'", "predicate GLOB 'prefers*'"),
    ("preferences", "('likes', 'dislikes')", "('likes')"),
    ("preferences", "('likes', 'dislikes')", "('dislikes')"),
    ("preferences", "'dislikes'))", "'dislikes', 'lives_in'))"),
    ("preferences", "AND (confidence >= 0.5 OR intent = 'delete')", ""),
    ("preferences", "confidence >= 0.5", "confidence > 0.5"),
    ("preferences", "confidence >= 0.5", "confidence >= 0.4"),
    ("preferences", "OR intent = 'delete'", ""),
    ("preferences", "intent = 'delete'", "intent IS NOT NULL"),
    ("preferences", "AND (confidence", "OR (confidence"),
    ("preferences", "[likes, dislikes]", "[likes]"),
    ("preferences", "[likes, dislikes]", "[dislikes]"),
    ("preferences", "[likes, dislikes]", "[likes, dislikes, prefers_seat]"),
    ("profile", "predicate IS NOT NULL\n      AND", ""),
    ("profile", "IS NOT NULL\n      AND", "IS NOT NULL\n      OR"),
    ("profile", "subject = user OR", ""),
    ("profile", "subject = user", "subject LIKE user"),
    ("profile", "('user', 'me')", "('user')"),
    ("profile", "('user', 'me')", "('me')"),
    ("profile", "AND (subject = user OR subject IN ('user', 'me'))", ""),
    ("profile", "('user', 'me'))", "('user', 'me') OR intent = 'delete')"),
]


@pytest.mark.cases(8)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [pytest.param(*change, id=" to ".join(change[1:])) for change in CHANGES],
)
def test_change_of_a_shipped_rule_fails_its_tests(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    for file in RULES.glob("*.yaml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    rules = (RULES / f"{name}.yaml").read_text()
    assert rules.count(old) == 1, "the shipped rule does not contain this text"
    (tmp_path / f"{name}.yaml").write_text(rules.replace(old, new))

    trials = load_trials([tmp_path / f"{name}.test.yaml"], timezone="UTC")

    assert asyncio.run(_failed(trials)) != []

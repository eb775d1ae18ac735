"""Warnings name what is valid in rule files, with its place, and no rule of slumberd's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.rule_loader import load_rules
from slumberd.rules.warnings import find_empty_directory, find_warnings
from slumberd.workers.scheduling import cron
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

RULE = """rules:
  - id: {id}
    cadence: {{every: 1}}
    when_filter: "{filter}"
    then_emits: [{channel}]
"""
EXTRACT = "    stages:\n      - extract: {with: conversation}\n"


def warnings_in(directory: Path) -> list[str]:
    found = load_rules(directory, check_filter=check_filter, check_cron=cron.check, timezone="UTC")
    return [str(warning) for warning in find_warnings(found)]


def write(
    directory: Path, id: str, *, filter: str = "", channel: str = "facts", more: str = ""
) -> None:
    text = RULE.format(id=id, filter=filter, channel=channel) + more
    (directory / f"{id}.yaml").write_text(text)


def test_doubt_of_a_filter_stands_at_its_character(tmp_path: Path) -> None:
    write(tmp_path, "a", filter="is_person AND confidence >= 50")

    [warning] = warnings_in(tmp_path)

    place = RULE.splitlines()[3].index("{filter}") + len("is_person AND ") + 1
    assert warning.startswith(f"{tmp_path}/a.yaml:4:{place}: rules[0].when_filter: is never true")


def test_extraction_that_no_text_reaches_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, "a", filter="predicate IS NOT NULL", more=EXTRACT)

    [warning] = warnings_in(tmp_path)

    assert ":4:18: rules[0].when_filter: selects only episodes that state a triple" in warning


def test_filter_that_needs_a_triple_is_no_warning_without_extraction(tmp_path: Path) -> None:
    write(tmp_path, "a", filter="predicate IS NOT NULL")

    assert warnings_in(tmp_path) == []


@pytest.mark.parametrize(
    ("channels", "more", "expected"),
    [
        pytest.param(["fact"], "", ["'fact', which nothing else names; did you mean 'facts'"]),
        pytest.param(["factss"], "", ["did you mean 'facts'"]),
        pytest.param(["profile", "profile", "profiles"], "", ["did you mean 'profile'"]),
        pytest.param(["profile", "profiles"], "", []),
        pytest.param(["fact"], "channels: {fact: {multi_valued: [likes]}}\n", []),
        pytest.param(["fact", "fact"], "", ["'fact', which only rules name; did you mean"] * 2),
        pytest.param(["tasks"], "", []),
        pytest.param(["facts", "facts2", "facts_de", "factors", "user_facts"], "", []),
        pytest.param(["team_a", "team_a", "team_b"], "", []),
        pytest.param(["likes", "likes", "dislikes"], "", []),
        pytest.param(["food", "food", "mood"], "", []),
        pytest.param(["work_notes", "work_notes", "work"], "", []),
    ],
)
def test_channel_that_resembles_a_better_known_one_is_a_warning(
    tmp_path: Path, channels: list[str], more: str, expected: list[str]
) -> None:
    for number, channel in enumerate(channels):
        write(tmp_path, f"r{number}", channel=channel, more=more if number == 0 else "")

    found = warnings_in(tmp_path)

    assert len(found) == len(expected)
    assert all(words in warning for words, warning in zip(expected, found, strict=True))
    assert all(":5:18: rules[0].then_emits[0]: " in warning for warning in found)


def test_directory_without_rule_files_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("rules: []")

    [warning] = find_empty_directory(tmp_path)

    assert "has no rule files" in warning.problem
    assert "'r.txt'" in warning.problem
    write(tmp_path, "a")
    assert find_empty_directory(tmp_path) == []


def test_shipped_rules_have_no_warnings() -> None:
    assert warnings_in(ROOT / "rules") == []

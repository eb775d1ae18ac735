"""`slumberd doctor` and `slumberd status` say from how much of what it read a rule learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.commands import status as commands_status
from slumberd.model.episode import Episode
from slumberd.model.store_status import LATEST
from tests.support.builders import at, episode, triple
from tests.support.functions import FIND, MODULE, importable, write_module
from tests.support.installation import Installation
from tests.tools.diagnostics.test_doctor import QUIET

pytestmark = pytest.mark.integration

PATTERNS = """\
patterns:
  - {id: likes, when: "I like (?P<what>[a-z]+)", \
says: {subject: ada, predicate: likes, object: "{what}"}}
"""
HOST = """\
rules:
  - {id: host, cadence: {every: 1}, when_filter: "predicate IS NOT NULL", then_emits: [facts]}
"""
TALK = """\
  - id: talk
    cadence: {every: 1}
    when_filter: "predicate IS NULL"
    then_emits: [facts]
    stages: [{extract: {with: patterns, patterns: ../patterns/likes.yaml}}]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setattr(commands_status, "THIS_MACHINE", QUIET)
    (tmp_path / "patterns").mkdir()
    (tmp_path / "patterns/likes.yaml").write_text(PATTERNS)
    return Installation(tmp_path)


def fired(site: Installation, rules: str, *episodes: Episode) -> list[dict[str, Any]]:
    """Fire rules over episodes, and return the findings about rules that learn nothing."""
    site.rules.write_text(rules)
    site.put(*episodes)
    assert site.call("fire", "--all").returncode == 0
    found = json.loads(site.call("doctor", "--json").stdout)["findings"]
    return [one for one in found if one["id"] == "rule.learns_nothing"]


def plain(count: int = LATEST) -> list[Episode]:
    return [episode(f"e{n}", content=f"It rains {n}", timestamp=at(n)) for n in range(count)]


def test_rule_whose_filter_needs_a_predicate_learns_nothing_from_plain_text(
    site: Installation,
) -> None:
    [found] = fired(site, HOST, *plain())

    assert (found["subject"], found["severity"]) == ("rule host", "warning")
    assert found["problem"] == (
        "learned nothing from the last 100 episodes that it read: 100 filtered; its filter needs a"
        " predicate"
    )
    assert "a rule with the stage `extract`" in found["remedy"]


def test_rule_without_a_matching_pattern_learns_nothing(site: Installation) -> None:
    [found] = fired(site, "rules:\n" + TALK, *plain())

    assert found["problem"].endswith("it read: 100 said nothing")
    assert found["remedy"].startswith("no pattern matched: add a pattern")


def test_rule_whose_function_finds_nothing_is_told_so(site: Installation, tmp_path: Path) -> None:
    write_module(tmp_path / "modules", FIND)
    called = f'with: "python:{MODULE}:find"'
    rules = TALK.replace("with: patterns, patterns: ../patterns/likes.yaml", called)

    with importable(tmp_path / "modules"):
        [found] = fired(site, "rules:\n" + rules, *plain())

    assert found["remedy"].startswith("the function found no triple: correct the function")


def test_rule_with_another_filter_names_an_episode_to_ask_about(site: Installation) -> None:
    [found] = fired(site, HOST.replace("predicate IS NOT NULL", "length(content) > 99"), *plain())

    assert found["remedy"].startswith("`slumberd why-not e99` names the condition")


def test_rule_of_fewer_episodes_is_no_finding(site: Installation) -> None:
    assert fired(site, HOST, *plain(LATEST - 1)) == []


def test_rule_that_learned_once_is_no_finding(site: Installation) -> None:
    assert fired(site, HOST, *plain(), triple("t", "ada", "likes", "tea")) == []


def test_rule_that_leaves_the_episodes_to_another_one_is_no_finding(site: Installation) -> None:
    stated = [triple(f"t{n}", f"s{n}", "likes", "tea", timestamp=at(n)) for n in range(LATEST)]

    assert fired(site, HOST + TALK, *stated) == []


def test_rule_for_a_person_who_never_speaks_is_one_finding(site: Installation) -> None:
    rules = HOST.replace("predicate IS NOT NULL", "is_person")

    assert fired(site, rules, *plain()) == []
    ids = [one["id"] for one in json.loads(site.call("doctor", "--json").stdout)["findings"]]
    assert "rule.no_person" in ids


def test_status_says_from_how_many_episodes_a_rule_learned(site: Installation) -> None:
    fired(site, HOST, *plain(3), triple("t", "ada", "likes", "tea"))

    [rule] = json.loads(site.call("status", "--json").stdout)["rules"]
    shown = site.call("status").stdout

    assert rule["readings"] == {
        "read": 4, "learned": 1, "said_nothing": 0, "filtered": 3, "quarantined": 0,
        "unchanged": 0,
    }  # fmt: skip
    assert "1 of 4" in shown

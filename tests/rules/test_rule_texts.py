"""The texts of rules are all that another host needs to load the same rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.model.errors import ConfigurationError, FilterError
from slumberd.rules.rule_loader import RuleSet, load_rule_texts, load_rules, read_rule_texts

pytestmark = pytest.mark.unit

TEA = """\
rules:
  - {id: tea, cadence: {every: 5}, when_filter: "", then_emits: [facts]}
"""
CHAT = """\
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    stages:
      - extract: {with: patterns, patterns: patterns/drinks.yaml}
"""
PATTERNS = """\
patterns:
  - id: drinks
    when: "I drink (?P<what>\\\\w+)"
    says: {subject: me, predicate: drinks, object: "{what}"}
"""


def _accept(*_: str) -> None:
    """Check nothing."""


def _refuse_unsound(rule_id: str, fragment: str) -> None:
    if "unsound" in fragment:
        raise FilterError(rule_id, "no such column", position=0)


def write(directory: Path, **files: str) -> Path:
    (directory / "patterns").mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name.replace('__', '/')}.yaml").write_text(text)
    return directory


def load(texts: dict[str, str]) -> RuleSet:
    return load_rule_texts(
        texts, "published/3", check_filter=_refuse_unsound, check_cron=_accept, timezone="UTC"
    )


def problems(texts: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(texts)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_texts_give_the_rules_of_their_directory(tmp_path: Path) -> None:
    write(tmp_path, a=TEA, b=CHAT, patterns__drinks=PATTERNS, patterns__unused="patterns: []")
    (tmp_path / "a.test.yaml").write_text("tests: []")
    (tmp_path / ".hidden.yaml").write_text("rules: []")
    (tmp_path / "notes.txt").write_text("not a rule")

    texts = read_rule_texts(tmp_path)
    rules = load(texts)

    assert sorted(texts) == ["a.yaml", "b.yaml", "patterns/drinks.yaml"]
    there = load_rules(tmp_path, check_filter=_accept, check_cron=_accept, timezone="UTC")
    assert rules.content_hash == there.content_hash
    assert rules.rules == there.rules
    assert rules.sources == {"tea": "published/3/a.yaml", "chat": "published/3/b.yaml"}


def test_words_that_a_rule_names_travel_with_it(tmp_path: Path) -> None:
    chat = CHAT.replace(
        "{with: patterns, patterns: patterns/drinks.yaml}",
        "{with: conversation, vocabulary: words/mine.yaml}",
    )
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "mine.yaml").write_text("words: {jobs: [sommelier]}\n")
    write(tmp_path, b=chat)

    texts = read_rule_texts(tmp_path)
    rules = load(texts)

    assert sorted(texts) == ["b.yaml", "words/mine.yaml"]
    there = load_rules(tmp_path, check_filter=_accept, check_cron=_accept, timezone="UTC")
    assert rules.content_hash == there.content_hash
    (tmp_path / "words" / "mine.yaml").write_text("words: {jobs: [busker]}\n")
    changed = load_rules(tmp_path, check_filter=_accept, check_cron=_accept, timezone="UTC")
    assert changed.content_hash != there.content_hash


def test_mistakes_of_texts_are_reported_at_their_places() -> None:
    wrong = PATTERNS.replace("{what}", "{which}")
    texts = {
        "a.yaml": TEA.replace('""', '"unsound"'),
        "b.yaml": CHAT,
        "patterns/drinks.yaml": wrong,
        "z.yaml": "rules: 5",
    }

    assert [problem.partition(": ")[0] for problem in problems(texts)] == [
        "published/3/z.yaml:1:8",
        "published/3/a.yaml:2:50",
        "published/3/patterns/drinks.yaml:4:52",
    ]


def test_rule_whose_patterns_are_missing_is_a_mistake() -> None:
    (problem,) = problems({"b.yaml": CHAT})

    assert problem.startswith("published/3/b.yaml:")
    assert problem.endswith(
        ".patterns: 'published/3/patterns/drinks.yaml' was not published with the rules that"
        " name it"
    )


def test_text_that_is_no_yaml_is_a_mistake() -> None:
    (problem,) = problems({"a.yaml": "rules: [\n"})

    assert problem.startswith("published/3/a.yaml:2:1: ")


@pytest.mark.parametrize("name", ["../drinks.yaml", "{outside}"])
def test_patterns_outside_of_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "drinks.yaml").write_text(PATTERNS)
    rules = tmp_path / "rules.d"
    rules.mkdir()
    name = name.replace("{outside}", str(tmp_path / "drinks.yaml"))
    write(rules, b=CHAT.replace("patterns/drinks.yaml", name))

    with pytest.raises(ConfigurationError) as caught:
        read_rule_texts(rules)

    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.path) == (7, "rules[0].stages[0].extract.patterns")
    assert "outside of the directory of rules" in mistake.problem


def test_patterns_with_a_roundabout_name_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        b=CHAT.replace("patterns/", "patterns/../patterns/./"),
        patterns__drinks=PATTERNS,
    )

    texts = read_rule_texts(tmp_path)

    assert sorted(texts) == ["b.yaml", "patterns/drinks.yaml"]
    assert [rule.id for rule in load(texts).rules] == ["chat"]

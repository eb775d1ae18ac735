"""Lists of extractions: what their files say, and what is a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from slumberd.cli.json_schemas import schema_of
from slumberd.config.rule_loader import RuleSet, read_rule_texts
from slumberd.config.rule_schema import RuleFile
from slumberd.errors import ConfigurationError
from slumberd.model.extraction import Extraction, Several
from tests.config.test_model_rules import load, refuse

HEURISTIC = "{with: heuristic}"
MODEL = "{with: openai, model: tiny, predicates: [likes]}"
UNNAMED = "{with: openai, model: tiny}"


def extraction(folder: Path, stage: str) -> Extraction:
    [rule] = load(folder, f"extract: {stage}").rules
    assert rule.extract is not None
    return rule.extract


def problems(folder: Path, stage: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, f"extract: {stage}")
    return [(mistake.path, mistake.problem) for mistake in caught.value.mistakes]


@pytest.mark.parametrize("stage", ["[{0}, {1}]", "{{first: [{0}, {1}]}}", "{{all: [{0}, {1}]}}"])
def test_list_has_its_entries_in_order(tmp_path: Path, stage: str) -> None:
    found = extraction(tmp_path, stage.format(HEURISTIC, MODEL))

    assert [part.name for part in found.parts] == ["heuristic", "openai"]
    assert isinstance(found.extractor, Several)
    assert found.extractor.unites == ("all" in stage)
    assert found.asks_model
    assert found.reads_previous


@pytest.mark.parametrize("stage", [HEURISTIC, MODEL])
def test_list_of_one_is_that_one(tmp_path: Path, stage: str) -> None:
    alone = extraction(tmp_path, stage)

    assert extraction(tmp_path, f"[{stage}]") == alone
    assert extraction(tmp_path, f"{{all: [{stage}]}}") == alone


def test_order_and_way_of_a_list_change_its_digest(tmp_path: Path) -> None:
    stages = (
        f"[{HEURISTIC}, {MODEL}]",
        f"[{MODEL}, {HEURISTIC}]",
        f"{{all: [{HEURISTIC}, {MODEL}]}}",
        f"[{HEURISTIC}, {{with: openai, model: large, predicates: [likes]}}]",
    )

    digests = [extraction(tmp_path, stage).digest for stage in stages]

    assert len(set(digests)) == len(stages)
    same = extraction(tmp_path, f"{{first: [{HEURISTIC}, {MODEL}]}}").digest
    assert same == digests[0]


def test_rule_names_the_entries_of_its_list(tmp_path: Path) -> None:
    [rule] = load(tmp_path, f"extract: [{HEURISTIC}, {MODEL}]").rules

    assert rule.extract is not None
    assert rule.model_dump()["extract"] == {
        "with": "first: heuristic, openai",
        "digest": rule.extract.digest,
    }


@pytest.mark.parametrize(
    ("stage", "path", "problem"),
    [
        ("[]", "rules[0].stages[0].extract", "at least one entry is needed"),
        ("{first: []}", "rules[0].stages[0].extract.first", "at least one entry is needed"),
        (
            f"{{first: [{HEURISTIC}], all: [{HEURISTIC}]}}",
            "rules[0].stages[0].extract",
            "exactly one of these keys is needed: first, all",
        ),
        (
            f"[{MODEL}, {MODEL}]",
            "rules[0].stages[0].extract",
            "a list of extractions asks one language model at most",
        ),
        (
            f"[{HEURISTIC}, {UNNAMED}]",
            "rules[0].stages[0].extract[1].with",
            "'predicates' is needed: no entry before this one names predicates",
        ),
        (
            UNNAMED,
            "rules[0].stages[0].extract",
            "'predicates' is needed with {with: openai}",
        ),
        (
            "[{with: heuristic, speaker: {}}]",
            "rules[0].stages[0].extract[0].speaker",
            "unknown key 'speaker'; did you mean 'speakers'?",
        ),
        (
            "{all: [{with: heuristik}]}",
            "rules[0].stages[0].extract.all[0].with",
            "'patterns', 'heuristic', 'openai' or 'python:package.module:function' is needed,"
            " not 'heuristik'",
        ),
        (
            "[{with: 'python:no_such_module:f'}]",
            "rules[0].stages[0].extract[0].with",
            "there is no module 'no_such_module'",
        ),
        (
            "[{with: heuristic}, {with: patterns, patterns: none.yaml}]",
            "",
            "does not exist",
        ),
    ],
)
def test_mistake_in_a_list_is_reported_at_its_place(
    tmp_path: Path, stage: str, path: str, problem: str
) -> None:
    [(found, text)] = problems(tmp_path, stage)

    assert found == path
    assert problem in text


def test_each_entry_that_cannot_ask_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, f"extract: {{all: [{HEURISTIC}, {MODEL}]}}", check_model=refuse)

    [mistake] = caught.value.mistakes
    assert mistake.path == "rules[0].stages[0].extract.all[1].with"


def test_model_after_an_entry_with_predicates_needs_none(tmp_path: Path) -> None:
    named = Extraction("rules", "1", Several(()), False, frozenset({"job"}), frozenset({"likes"}))

    assert named.named_predicates == {"job", "likes"}


def test_pattern_files_of_a_list_are_published(tmp_path: Path) -> None:
    (tmp_path / "homes").mkdir()
    (tmp_path / "homes" / "p.yaml").write_text(
        "patterns:\n"
        "  - {id: home, when: ['I live in (?P<place>[A-Z]+)'],"
        " says: {subject: '{speaker}', predicate: lives_in, object: '{place}'}}\n"
    )
    rules: RuleSet = load(
        tmp_path, f"extract: [{HEURISTIC}, {{with: patterns, patterns: homes/p.yaml}}]"
    )

    texts = read_rule_texts(tmp_path)

    assert sorted(texts) == ["chat.yaml", "homes/p.yaml"]
    assert rules.rules[0].extract is not None
    assert rules.rules[0].extract.name == "first: heuristic, patterns"


@pytest.mark.parametrize(
    ("stage", "valid"),
    [
        ([{"with": "heuristic"}], True),
        ({"all": [{"with": "heuristic"}, {"with": "openai", "model": "m"}]}, True),
        ({"first": []}, False),
        ({"first": [{"with": "heuristic"}], "all": [{"with": "heuristic"}]}, False),
        ({"with": "openai", "model": "m"}, False),
        ({"with": "openai", "model": "m", "predicates": ["p"]}, True),
        ([{"with": "heuristic", "model": "m"}], False),
    ],
)
def test_json_schema_says_the_same(stage: object, valid: bool) -> None:
    document = {
        "rules": [
            {
                "id": "chat",
                "cadence": {"every": 1},
                "when_filter": "",
                "then_emits": ["facts"],
                "stages": [{"extract": stage}],
            }
        ]
    }
    schema = schema_of(RuleFile)

    assert Draft202012Validator(schema).is_valid(document) == valid

"""Lists of extractions: what their files say, and what is a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from slumberd.cli.json_schemas import schema_of
from slumberd.model.errors import ConfigurationError
from slumberd.model.extraction import Extraction, Several
from slumberd.rules.rule_loader import RuleSet, read_rule_texts
from slumberd.rules.rule_schema import RuleFile
from tests.rules.test_model_rules import load, refuse

CONVERSATION = "{with: conversation}"
MODEL = "{with: openai, model: tiny, predicates: [likes]}"
UNNAMED = "{with: openai, model: tiny}"


PATTERNS = (
    "patterns:\n"
    "  - {id: home, when: ['I live in (?P<place>[A-Z]+)'],"
    " says: {subject: '{speaker}', predicate: lives_in, object: '{place}'}}\n"
)


def extraction(folder: Path, stage: str) -> Extraction:
    [rule] = load(folder, f"extract: {stage}").rules
    assert rule.extract is not None
    return rule.extract


def problems(folder: Path, stage: str) -> list[tuple[str, str]]:
    (folder / "more").mkdir()
    (folder / "more" / "p.yaml").write_text(PATTERNS)
    with pytest.raises(ConfigurationError) as caught:
        load(folder, f"extract: {stage}")
    return [(mistake.path, mistake.problem) for mistake in caught.value.mistakes]


@pytest.mark.parametrize("stage", ["[{0}, {1}]", "{{first: [{0}, {1}]}}", "{{all: [{0}, {1}]}}"])
def test_list_has_its_entries_in_order(tmp_path: Path, stage: str) -> None:
    found = extraction(tmp_path, stage.format(CONVERSATION, MODEL))

    assert [part.name for part in found.parts] == ["conversation", "openai"]
    assert isinstance(found.extractor, Several)
    assert found.extractor.unites == ("all" in stage)
    assert found.asks_model
    assert found.reads_previous


@pytest.mark.parametrize("stage", [CONVERSATION, MODEL])
def test_list_of_one_is_that_one(tmp_path: Path, stage: str) -> None:
    alone = extraction(tmp_path, stage)

    assert extraction(tmp_path, f"[{stage}]") == alone
    assert extraction(tmp_path, f"{{all: [{stage}]}}") == alone


def test_order_and_way_of_a_list_change_its_digest(tmp_path: Path) -> None:
    stages = (
        f"[{CONVERSATION}, {MODEL}]",
        f"[{MODEL}, {CONVERSATION}]",
        f"{{all: [{CONVERSATION}, {MODEL}]}}",
        f"[{CONVERSATION}, {{with: openai, model: large, predicates: [likes]}}]",
    )

    digests = [extraction(tmp_path, stage).digest for stage in stages]

    assert len(set(digests)) == len(stages)
    same = extraction(tmp_path, f"{{first: [{CONVERSATION}, {MODEL}]}}").digest
    assert same == digests[0]


def test_rule_names_the_entries_of_its_list(tmp_path: Path) -> None:
    [rule] = load(tmp_path, f"extract: [{CONVERSATION}, {MODEL}]").rules

    assert rule.extract is not None
    assert rule.model_dump()["extract"] == {
        "with": "first: conversation, openai",
        "digest": rule.extract.digest,
    }


@pytest.mark.parametrize(
    ("stage", "path", "problem"),
    [
        ("[]", "rules[0].stages[0].extract", "at least one entry is needed"),
        ("{first: []}", "rules[0].stages[0].extract.first", "at least one entry is needed"),
        (
            f"{{first: [{CONVERSATION}], all: [{CONVERSATION}]}}",
            "rules[0].stages[0].extract",
            "exactly one of these keys is needed: first, all",
        ),
        (
            f"[{MODEL}, {MODEL}]",
            "rules[0].stages[0].extract",
            "a list of extractions asks one language model at most",
        ),
        (
            f"[{{with: patterns, patterns: more/p.yaml}}, {UNNAMED}]",
            "rules[0].stages[0].extract[1].with",
            "'predicates' is needed: no entry before this one names predicates",
        ),
        (
            UNNAMED,
            "rules[0].stages[0].extract",
            "'predicates' is needed with {with: openai}",
        ),
        (
            "[{with: conversation, speaker: {}}]",
            "rules[0].stages[0].extract[0].speaker",
            "unknown key 'speaker'; did you mean 'speakers'?",
        ),
        (
            "{all: [{with: conversatoin}]}",
            "rules[0].stages[0].extract.all[0].with",
            "'patterns', 'conversation', 'heuristic', 'openai' or"
            " 'python:package.module:function' is needed, not 'conversatoin'",
        ),
        (
            "[{with: 'python:no_such_module:f'}]",
            "rules[0].stages[0].extract[0].with",
            "there is no module 'no_such_module'",
        ),
        (
            "[{with: conversation}, {with: patterns, patterns: none.yaml}]",
            "rules[0].stages[0].extract[1].patterns",
            "none.yaml' does not exist",
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
        load(tmp_path, f"extract: {{all: [{CONVERSATION}, {MODEL}]}}", check_model=refuse)

    [mistake] = caught.value.mistakes
    assert mistake.path == "rules[0].stages[0].extract.all[1].with"


def test_model_after_the_conversation_has_its_predicates(tmp_path: Path) -> None:
    found = extraction(tmp_path, f"[{CONVERSATION}, {UNNAMED}]")

    conversation, _ = found.parts
    assert found.asked is not None
    _, settings = found.asked
    assert {"lives_in", "allergic_to", "favourite_*"} <= {*settings.predicates}
    assert {*settings.predicates} == conversation.named_predicates == found.named_predicates
    assert [*settings.predicates] == sorted(settings.predicates)


def test_entry_after_the_model_names_no_predicates_for_it(tmp_path: Path) -> None:
    [(path, problem)] = problems(tmp_path, f"[{UNNAMED}, {CONVERSATION}]")

    assert path == "rules[0].stages[0].extract[0].with"
    assert problem == "'predicates' is needed: no entry before this one names predicates"


def test_old_name_in_a_list_is_reported(tmp_path: Path) -> None:
    rules = load(tmp_path, f"extract: [{MODEL}, {{with: heuristic}}]")

    assert [one.path for one in rules.outdated] == ["rules[0].stages[0].extract[1].with"]


def test_pattern_files_of_a_list_are_published(tmp_path: Path) -> None:
    (tmp_path / "homes").mkdir()
    (tmp_path / "homes" / "p.yaml").write_text(PATTERNS)
    rules: RuleSet = load(
        tmp_path, f"extract: [{CONVERSATION}, {{with: patterns, patterns: homes/p.yaml}}]"
    )

    texts = read_rule_texts(tmp_path)

    assert sorted(texts) == ["chat.yaml", "homes/p.yaml"]
    assert rules.rules[0].extract is not None
    assert rules.rules[0].extract.name == "first: conversation, patterns"


@pytest.mark.parametrize(
    ("stage", "valid"),
    [
        ([{"with": "conversation"}], True),
        ({"all": [{"with": "conversation"}, {"with": "openai", "model": "m"}]}, True),
        ({"first": []}, False),
        ({"first": [{"with": "conversation"}], "all": [{"with": "conversation"}]}, False),
        ({"with": "openai", "model": "m"}, False),
        ({"with": "openai", "model": "m", "predicates": ["p"]}, True),
        ([{"with": "conversation", "model": "m"}], False),
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

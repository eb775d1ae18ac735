"""Rules that ask a language model: what their files say, and what is a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.model.errors import ConfigurationError, UsageError
from slumberd.model.extraction import ModelSettings, ModelSummariser
from slumberd.rules.rule_loader import CheckModel, RuleSet, load_rules

RULE = """\
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    enabled: ENABLED
    stages:
"""


def load(
    folder: Path, *stages: str, enabled: bool = True, check_model: CheckModel = lambda: None
) -> RuleSet:
    text = RULE.replace("ENABLED", "true" if enabled else "false")
    (folder / "chat.yaml").write_text(text + "".join(f"      - {stage}\n" for stage in stages))
    return load_rules(
        folder,
        check_filter=lambda *_: None,
        check_cron=lambda *_: None,
        timezone="UTC",
        check_model=check_model,
    )


def refuse() -> None:
    raise UsageError("there is no language model")


def test_extraction_has_what_the_file_says(tmp_path: Path) -> None:
    stage = (
        "extract: {with: openai, model: tiny, predicates: [likes, likes, owns], may_retract: true,"
        " instructions: Be brief., speakers: {user: ann}, min_length: 9, turns_per_call: 2,"
        " parameters: {seed: 7}}"
    )

    [rule] = load(tmp_path, stage).rules

    assert rule.extract is not None
    assert rule.extract.extractor == ModelSettings(
        "tiny", ("likes", "owns"), "Be brief.", {"user": "ann"}, True, 9, 2, {"seed": 7}
    )
    assert rule.model_dump()["extract"] == {"with": "openai", "digest": rule.extract.digest}
    assert rule.asks_model


def test_only_what_is_asked_changes_the_digest(tmp_path: Path) -> None:
    def digest(more: str) -> str:
        stage = f"extract: {{with: openai, model: tiny, predicates: [likes]{more}}}"
        [rule] = load(tmp_path, stage).rules
        assert rule.extract is not None
        return rule.extract.digest

    plain = digest("")

    assert digest(", turns_per_call: 3") == plain
    assert digest(", instructions: Be brief.") != plain
    assert digest(", parameters: {temperature: 1}") != plain


def test_summaries_by_a_language_model_are_part_of_the_rule(tmp_path: Path) -> None:
    [rule], [other] = (
        load(tmp_path, f"summarise: {{with: openai, model: {model}}}").rules
        for model in ("tiny", "large")
    )

    assert isinstance(rule.summariser, ModelSummariser)
    assert rule.asks_model
    assert rule.model_dump()["summariser"] == {"with": "openai", "digest": rule.summariser.digest}
    assert rule.content_hash != other.content_hash


@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        ("summarise: {with: openai}", "'model' is needed with {with: openai}"),
        ("summarise: {model: x}", "'model' goes with {with: openai} only"),
        ("summarise: {with: builtin, instructions: x}", "'instructions' goes with"),
        ("summarise: {with: openai, model: x, parameters: {n: 2}}", "'n' is not a parameter"),
        ("summarise: {with: other}", "'builtin', 'openai' or 'python:"),
        ("extract: {with: openai, model: x, predicates: []}", "predicates"),
    ],
)
def test_mistake_is_reported(tmp_path: Path, stage: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, stage)

    assert problem in str(caught.value)


def test_each_stage_that_cannot_ask_is_a_mistake(tmp_path: Path) -> None:
    stages = (
        "extract: {with: openai, model: x, predicates: [p]}",
        "summarise: {with: openai, model: x}",
    )

    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, *stages, check_model=refuse)

    assert [mistake.path for mistake in caught.value.mistakes] == [
        "rules[0].stages[0].extract.with",
        "rules[0].stages[1].summarise.with",
    ]


def test_disabled_rule_needs_no_language_model(tmp_path: Path) -> None:
    stage = "summarise: {with: openai, model: x}"

    assert load(tmp_path, stage, enabled=False, check_model=refuse).rules

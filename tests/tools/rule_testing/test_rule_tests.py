"""`slumberd test` runs cases on real stores and prints the differences."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from slumberd.cli import call
from slumberd.tools.rule_testing.loader import load_trials
from slumberd.tools.rule_testing.runner import TrialResult, run_trial
from tests.support.installation import Installation
from tests.support.repository import ROOT

pytestmark = pytest.mark.integration

SHIPPED = ROOT / "rules"
RULES = """\
channels:
  facts: {multi_valued: [likes]}
rules:
  - {id: tea, cadence: {every: 1}, when_filter: "confidence >= 0.5", then_emits: [facts]}
  - {id: asleep, cadence: {every: 9}, when_filter: "", then_emits: [notes], enabled: false}
"""
OTHER = """\
channels:
  facts: {multi_valued: [owns]}
rules:
  - {id: other, cadence: {cron: "0 3 * * *"}, when_filter: "", then_emits: [facts], start: now}
"""
GOOD = """\
tests:
  - name: an episode is promoted
    episodes: [{id: e1, subject: alice, predicate: likes, object: tea}]
    expect: {facts: [{id: e1}]}
"""
BAD = """\
tests:
  - name: every expectation is wrong
    steps:
      - episodes:
          - {id: e1, subject: alice, predicate: lives_in, object: Porto}
          - {id: e2, subject: alice, predicate: lives_in, object: Braga}
          - {id: e3, subject: alice, predicate: lives_in, object: Faro, confidence: 0.4}
          - {id: e4, subject: alice, predicate: owns, object: a boat, intent: remember}
        expect:
          deltas:
            - {episode: e1, kind: add}
            - {episode: e2, kind: add, replaces: []}
            - {episode: e3, kind: update}
            - {episode: e4, kind: add}
          filtered: []
      - episodes:
          - id: e5
            subject: alice
            predicate: lives_in
            object: "Beja: the old town"
            timestamp: "2025-01-01T00:00:00Z"
        expect:
          deltas:
            - {episode: e5, kind: update}
          facts:
            - {id: e5, object: "Beja: the old town"}
            - {id: e2, object: Faro}
"""
REPORT = """\
FAILED  rules/tea.test.yaml:2: every expectation is wrong

rules/tea.test.yaml:2: every expectation is wrong
  step 1, deltas
      {episode: e1, kind: add}
    - {episode: e2, kind: add, replaces: []}
    + {episode: e2, kind: update, replaces: [e1]}
                          ^^^^^^            ^^^^
    - {episode: e3, kind: update}
    - {episode: e4, kind: add}
    + {episode: e4, kind: quarantined, reason: intent_unknown}
                          ^^^^^^^^^^^
  step 1, filtered
    + e3
  why: e3 under tea: filtered; the filter of tea does not select it: confidence >= 0.5
  why: e4 under tea: quarantined (intent_unknown: intent is 'remember'; write one of add, update,\
 delete, noop, set)
  step 2, deltas
    - {episode: e5, kind: update}
    + {episode: e5, kind: noop, reason: stale}
                          ^^^^
  step 2, facts
    - {id: e5, object: "Beja: the old town"}
    - {id: e2, object: Faro}
    + {id: e2, object: Braga}
                       ^^^^^
  why: e5 under tea: noop (stale); a newer episode holds the key: e2; say it again with a later\
 timestamp

1 test: 0 passed, 1 failed
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    directory = Path("rules")
    directory.mkdir()
    (directory / "tea.yaml").write_text(RULES)
    return directory


def _case(expect: str, *, episodes: str = "[{id: e1}]", rules: str = "") -> str:
    named = f", rules: {rules}" if rules else ""
    return f"tests: [{{name: a, episodes: {episodes}, expect: {expect}{named}}}]\n"


def _passes(file: Path, expect: str, **case: str) -> bool:
    """Return whether a test with this expectation passes; the test must be valid."""
    file.write_text(_case(expect, **case))
    code = call(["test", str(file)])
    assert code in (0, 1)
    return code == 0


def test_failed_test_is_printed_with_differences_and_reasons(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "tea.test.yaml").write_text(BAD)

    code = call(["test", "rules"])

    assert (code, capsys.readouterr().out) == (1, REPORT)


def test_marks_are_below_differing_values_and_reasons_name_the_channel(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = "[{id: e1, object: \u6771\u4eac}, {id: e2, intent: remember}]"
    expect = (
        "{facts: [{id: '@notes/e1', object: \u6771\u4eac, confidence: 0.5}, {id: '@notes/e2'}]}"
    )
    case = _case(expect, episodes=episodes, rules="[asleep]")
    (rules / "tea.test.yaml").write_text(case)

    call(["test", "rules"])

    printed = capsys.readouterr().out.splitlines()
    assert printed[5:8] == [
        '    + {id: "@notes/e1", object: \u6771\u4eac, confidence: 1.0}',
        "                                                  ^^^",  # two wide characters
        '    - {id: "@notes/e2"}',
    ]
    assert printed[8].startswith("  why: e2 under asleep in notes: quarantined (intent_unknown: ")


def test_unexpected_entry_shows_the_content_only_where_there_is_no_triple(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "{id: e1, subject: alice, predicate: likes, object: tea, content: she said so}"
    episodes = f"[{told}, {{id: e2, content: a note}}]"
    (rules / "tea.test.yaml").write_text(_case("{facts: []}", episodes=episodes))

    call(["test", "rules"])

    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("    + ")] == [
        "    + {id: e1, subject: alice, predicate: likes, object: tea}",
        "    + {id: e2, content: a note}",
    ]


def test_passed_test_is_printed_in_one_line(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "tea.test.yaml").write_text(GOOD)

    assert call(["test", "rules"]) == 0

    expected = (
        "ok      rules/tea.test.yaml:2: an episode is promoted\n\n1 test: 1 passed, 0 failed\n"
    )
    assert capsys.readouterr().out == expected


@pytest.mark.slow
def test_expectation_can_name_every_part_of_the_result(rules: Path) -> None:
    episodes = """[{id: e1, user: ann, agent: ben, subject: s, predicate: p, object: 1, content: c,
        confidence: 0.75}]"""
    file = rules / "tea.test.yaml"
    delta = "{episode: e1, rule: asleep, channel: notes, kind: add, reason: null, fact: '@notes/e1'"
    fact = "{id: '@notes/e1', user: ann, agent: ben, channel: notes, subject: s, predicate: p"
    more = "object: 1, confidence: 0.75, content: c, episodes: [e1]"
    whole = f"{{deltas: [{delta}, replaces: []}}], filtered: [], facts: [{fact}, {more}}}]}}"

    assert _passes(file, whole, episodes=episodes, rules="[asleep]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        "deltas: [{episode: e1, rule: tea}]",
        "deltas: [{episode: e1, channel: notes}]",
        "deltas: [{episode: e1, kind: update}]",
        "deltas: [{episode: e1, reason: known}]",
        "deltas: [{episode: e1, fact: '@notes/e1'}]",
        "deltas: [{episode: e1, replaces: [e1]}]",
        "deltas: [{episode: e1}, {episode: e1}]",
        "deltas: []",
        "filtered: [e1]",
        "facts: []",
        "facts: [{id: '@notes/e1'}]",
        "facts: [{user: bob}]",
        "facts: [{agent: bob}]",
        "facts: [{channel: notes}]",
        "facts: [{subject: s}]",
        "facts: [{predicate: s}]",
        "facts: [{object: s}]",
        "facts: [{confidence: 0.9}]",
        "facts: [{content: s}]",
        "facts: [{episodes: []}]",
    ],
)
def test_wrong_expectation_fails(rules: Path, wrong: str) -> None:
    (rules / "other.yaml").write_text(OTHER)

    assert _passes(rules / "other.test.yaml", "{deltas: [{episode: e1}], facts: [{id: e1}]}")
    assert not _passes(rules / "other.test.yaml", f"{{{wrong}}}")


def test_expectation_names_each_triple_of_an_episode_by_its_id(rules: Path) -> None:
    triples = "[{subject: ada, predicate: likes, object: tea}, {intent: '?'}]"
    expect = (
        "{deltas: [{episode: e1, kind: noop, fact: e1}, {episode: e1, kind: add, fact: 'e1#1'},"
        " {episode: e1, kind: quarantined, reason: intent_unknown}], facts: [{id: 'e1#1'}]}"
    )

    assert _passes(rules / "tea.test.yaml", expect, episodes=f"[{{id: e1, triples: {triples}}}]")


@pytest.mark.slow
def test_omitted_keys_are_not_compared(rules: Path) -> None:
    assert _passes(rules / "tea.test.yaml", "{filtered: []}")
    assert not _passes(rules / "tea.test.yaml", "{facts: []}")
    assert not _passes(rules / "tea.test.yaml", "{deltas: []}")


@pytest.mark.parametrize(
    ("name", "named", "fired"),
    [
        pytest.param("tea.test.yaml", "", ["tea"], id="enabled rules of the file with that name"),
        pytest.param("tea.test.yml", "", ["tea"], id="another file extension"),
        pytest.param("all.test.yaml", "", ["other", "tea"], id="enabled rules of the directory"),
        pytest.param("tea.test.yaml", "[other, asleep]", ["asleep", "other"], id="named rules"),
    ],
)
def test_rules_of_a_test_fire_in_order_of_their_ids(
    rules: Path, capsys: pytest.CaptureFixture[str], name: str, named: str, fired: list[str]
) -> None:
    (rules / "other.yaml").write_text(OTHER)
    (rules / name).write_text(_case("{deltas: []}", rules=named))

    call(["test", "rules", "--json"])

    result = json.loads(capsys.readouterr().out)
    assert result["rules"] == fired
    assert [difference["got"]["rule"] for difference in result["differences"]] == fired


def test_channels_of_all_rule_files_apply_to_a_test(rules: Path) -> None:
    (rules / "other.yaml").write_text(OTHER)
    episodes = ", ".join(
        f"{{id: {p}{n}, subject: a, predicate: {p}, object: {n}}}"
        for p in ("likes", "owns", "is")
        for n in (1, 2)
    )
    current = ", ".join(f"{{id: {id}}}" for id in ("likes1", "likes2", "owns1", "owns2", "is2"))

    assert _passes(rules / "tea.test.yaml", f"{{facts: [{current}]}}", episodes=f"[{episodes}]")


@pytest.mark.slow
def test_rule_that_starts_now_evaluates_the_first_step(rules: Path) -> None:
    (rules / "other.yaml").write_text(OTHER)

    assert _passes(rules / "other.test.yaml", "{deltas: [{episode: e1, kind: add}]}")


def test_steps_share_stores_but_tests_do_not(rules: Path) -> None:
    text = """\
tests:
  - name: first
    steps:
      - episodes: [{id: e1, subject: a, predicate: is, object: 1}]
      - episodes: [{id: e2, subject: a, predicate: is, object: 2}]
        expect: {facts: [{id: e2}]}
      - episodes: [{id: e2, subject: a, predicate: is, object: 2}]
        expect: {deltas: [], filtered: [], facts: [{id: e2}]}
      - episodes: [{id: e2, subject: a, predicate: is, object: 2, confidence: 0.1}]
        expect:
          deltas: [{episode: e2, kind: delete, replaces: [e2]}, {episode: e1, kind: add}]
          filtered: []
          facts: [{id: e1}]
  - name: second
    episodes: [{id: e1, subject: a, predicate: is, object: 3}]
    expect: {deltas: [{episode: e1, kind: add}], facts: [{id: e1, object: 3}]}
"""
    (rules / "tea.test.yaml").write_text(text)

    assert call(["test", "rules"]) == 0


def test_json_output_has_a_document_for_each_test(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "a.test.yaml").write_text(GOOD)
    (rules / "b.test.yaml").write_text(_case("{facts: [{id: e1, confidence: 0.25}]}"))

    assert call(["test", "rules", "--json"]) == 1

    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good == {
        "name": "an episode is promoted",
        "file": "rules/a.test.yaml",
        "line": 2,
        "rules": ["tea"],
        "ok": True,
        "refused": None,
        "differences": [],
        "why": [],
    }
    (difference,) = bad["differences"]
    assert (bad["ok"], difference["step"], difference["part"]) == (False, 1, "facts")
    assert difference["expected"] == {"id": "e1", "confidence": 0.25}
    assert (difference["got"]["confidence"], difference["differing"]) == (1.0, ["confidence"])


def test_result_reports_a_batch_above_its_deletion_limit(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = RULES.replace("then_emits: [facts]}", "then_emits: [facts], limits: {max_deletes: 0}}")
    (rules / "tea.yaml").write_text(held)
    text = """\
tests:
  - name: the fact is deleted
    steps:
      - episodes: [{id: e1, subject: a, predicate: is, object: 1}]
      - episodes: [{id: e2, subject: a, predicate: is, intent: delete}]
        expect: {deltas: [{episode: e2, kind: delete}]}
"""
    (rules / "tea.test.yaml").write_text(text)

    assert call(["test", "rules"]) == 1

    assert "  why: tea awaits approval: " in capsys.readouterr().out


def test_episode_that_the_store_refuses_fails_only_its_test(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "a.test.yaml").write_text(_case("{facts: []}", episodes=r'[{id: "e\0"}]'))
    (rules / "b.test.yaml").write_text(GOOD)

    assert call(["test", "rules"]) == 1

    printed = capsys.readouterr().out
    assert "  ended early: episode 'e\\x00': the id holds NUL or no valid Unicode\n" in printed
    assert printed.endswith("2 tests: 1 passed, 1 failed\n")


def test_without_a_path_the_configured_directory_is_tested(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    nothing = site.look("test")
    site.rules.with_name("rules.test.yaml").write_text(GOOD)

    done = site.look("test")

    assert (nothing.returncode, done.returncode) == (66, 0)
    assert done.stdout.startswith(f"ok      {site.rules.parent}/rules.test.yaml:2: ")
    assert not site.state.exists()


def test_missing_tests_exit_with_66_and_a_remedy(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "tea.test.yaml").write_text(GOOD)
    Path("empty").mkdir()

    assert call(["test", "rules", "empty"]) == 66
    assert call(["test", "rules/coffee.test.yaml"]) == 66

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("slumberd: 'empty/*.test.yaml' does not exist: write tests beside")
    assert second.startswith("slumberd: 'rules/coffee.test.yaml' does not exist: name a test file")


def test_rule_file_is_not_a_test_file(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["test", "rules/tea.yaml"]) == 64
    assert "'rules/tea.yaml' is not a test file" in capsys.readouterr().err


def test_command_reports_all_mistakes_of_tests_and_rules_at_once(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "broken.yaml").write_text("rules: [{id: x}]")
    (rules / "a.test.yaml").write_text("tests: [{name: a}]")
    (rules / "b.test.yaml").write_text(_case("{factz: []}", rules="[unknown]"))

    assert call(["test", "rules/b.test.yaml", "rules"]) == 78

    files = [line.split(":")[1].strip() for line in capsys.readouterr().err.splitlines()]
    assert files == [*["rules/broken.yaml"] * 3, "rules/b.test.yaml", "rules/a.test.yaml"]


def test_test_without_an_enabled_rule_is_a_mistake(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "tea.yaml").write_text(RULES.replace("[facts]}", "[facts], enabled: false}"))
    (rules / "tea.test.yaml").write_text(GOOD)

    assert call(["test", "rules"]) == 78

    problem = "no rule of the test in 'rules' is enabled; name one in 'rules'"
    assert capsys.readouterr().err == f"slumberd: rules/tea.test.yaml:2: {problem}\n"


def test_one_directory_may_contain_rules_and_tests(rules: Path) -> None:
    (rules / "tea.test.yaml").write_text(GOOD)

    assert call(["check", "rules"]) == 0


def run_trials_of(file: Path, text: str, in_memory: Path) -> list[TrialResult]:
    file.write_text(text)
    trials = load_trials([file], timezone="UTC")
    return [asyncio.run(run_trial(trial, in_memory)) for trial in trials]


def test_test_run_uses_files_in_memory_and_deletes_them(rules: Path, tmp_path: Path) -> None:
    in_memory = tmp_path / "memory"
    in_memory.mkdir()
    os.utime(in_memory, (0, 0))

    results = run_trials_of(rules / "tea.test.yaml", BAD, in_memory)

    assert [result.ok for result in results] == [False]
    assert in_memory.stat().st_mtime > 0
    assert list(in_memory.iterdir()) == []
    assert sorted(path.name for path in rules.iterdir()) == ["tea.test.yaml", "tea.yaml"]


def test_test_run_uses_files_on_disk_without_a_directory_in_memory(
    rules: Path, tmp_path: Path
) -> None:
    case = _case("{facts: [{id: e1}]}")

    results = run_trials_of(rules / "tea.test.yaml", case, tmp_path / "none")

    assert [result.ok for result in results] == [True]


def test_check_skips_test_files_among_rule_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = [str(file) for file in sorted(SHIPPED.glob("*.yaml"))]

    assert call(["check", *shipped]) == 0
    assert call(["check", str(SHIPPED / "profile.test.yaml")]) == 64

    printed = capsys.readouterr()
    assert printed.out == "valid: 3 rules in 3 files: nightly, preferences, profile\n"
    assert "`slumberd test` runs them" in printed.err


PATTERNS = """
patterns:
  - id: likes
    when: 'I like (?P<what>\\w+)'
    says: {subject: "{speaker}", predicate: likes, object: "{what}"}
"""
PATTERN_TESTS = """
tests:
  - name: a taste is found
    says: [{speaker: ada, text: I like tea.}]
    expect: [{subject: ada, predicate: likes, object: tea}]
  - name: a wrong expectation
    says: [{speaker: ada, text: I like tea.}]
    expect: [{subject: ada, predicate: likes, object: milk}]
"""


def test_tests_of_patterns_run_beside_those_of_rules(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = rules / "patterns"
    folder.mkdir()
    (folder / "tea.yaml").write_text(PATTERNS)
    (folder / "tea.test.yaml").write_text(PATTERN_TESTS)
    (rules / "tea.test.yaml").write_text(GOOD)

    code = call(["test", str(rules)])

    assert code == 1
    where = f"{folder}/tea.test.yaml"
    assert capsys.readouterr().out.splitlines() == [
        f"ok      {rules}/tea.test.yaml:2: an episode is promoted",
        f"ok      {where}:3: a taste is found",
        f"FAILED  {where}:6: a wrong expectation",
        "",
        f"{where}:6: a wrong expectation",
        '  pattern \'likes\' states add "ada" "likes" "tea", which is not expected',
        '  no pattern states add "ada" "likes" "milk"',
        "",
        "3 tests: 2 passed, 1 failed",
    ]


def test_json_of_a_test_of_patterns_has_the_keys_of_other_tests(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "likes.yaml").write_text(PATTERNS)
    (rules / "likes.test.yaml").write_text(PATTERN_TESTS)

    code = call(["test", "--json", str(rules / "likes.test.yaml")])

    passed, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert code == 1
    assert (passed["ok"], passed["why"], failed["ok"], len(failed["why"])) == (True, [], False, 2)
    assert [*passed] == [
        "name", "file", "line", "rules", "ok", "refused", "differences", "why",
    ]  # fmt: skip


def test_mistakes_of_patterns_and_of_their_tests_are_reported(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "likes.yaml").write_text(PATTERNS + "colour: red\n")
    (rules / "likes.test.yaml").write_text(PATTERN_TESTS)

    code = call(["test", str(rules / "likes.test.yaml")])

    assert code == 78
    assert "unknown key 'colour'" in capsys.readouterr().err


PERSON_RULE = """\
rules:
  - id: home
    cadence: {every: 1}
    when_filter: "is_person"
    then_emits: [facts]
    stages:
      - extract: {with: patterns, patterns: patterns/home.yaml}
"""
PERSON_TESTS = {
    "home.test.yaml": """\
tests:
  - name: what the person says counts
    episodes:
      - {id: e1, source_node: chat_node, content: I live in Rome.}
      - {id: e2, source_node: test, content: I live in Oslo.}
      - {id: e3, content: I live in Bonn., metadata: {speaker: assistant}}
    expect:
      filtered: [e2, e3]
      facts: [{subject: user, predicate: lives_in, object: Rome}]
""",
    "patterns/home.test.yaml": """\
tests:
  - name: the person has the name of the user
    says:
      - {speaker: chat_node, text: I live in Rome.}
      - {speaker: user, text: I live in Oslo.}
      - {speaker: guest, text: I live in Bonn.}
    expect:
      - {subject: user, predicate: lives_in, object: Rome}
      - {subject: user, predicate: lives_in, object: Oslo}
      - {subject: agent, predicate: lives_in, object: Bonn}
""",
}


def test_tests_know_the_person_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = tmp_path / "slumberd.yaml", tmp_path / "rules.d"
    (folder / "patterns").mkdir(parents=True)
    config.write_text("rules_dir: rules.d\nmemory: {person: [chat_node]}\n")
    (folder / "home.yaml").write_text(PERSON_RULE)
    (folder / "patterns" / "home.yaml").write_text(
        'speakers: {guest: "{agent}"}\n'
        "patterns:\n"
        "  - id: home\n"
        "    when: '(?P<who>I) live in (?P<place>\\w+)'\n"
        '    says: {subject: "{who}", predicate: lives_in, object: "{place}"}\n'
    )
    for name, text in PERSON_TESTS.items():
        (folder / name).write_text(text)

    code = call(["test", "--config", str(config)])

    assert (code, capsys.readouterr().out.splitlines()[-1]) == (0, "2 tests: 2 passed, 0 failed")

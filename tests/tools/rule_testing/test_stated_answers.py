"""`slumberd test` reads what a language model answers from the test, and asks no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.cli import call

pytestmark = pytest.mark.integration

RULES = """\
channels:
  facts: {multi_valued: [likes]}
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: "source_node = 'ann'"
    stages:
      - extract: {with: openai, model: tiny, predicates: [likes, lives_in], may_retract: true}
    then_emits: [facts]
"""
PLAIN = """\
rules:
  - {id: plain, cadence: {every: 1}, when_filter: "", then_emits: [facts]}
"""
CASE = """\
tests:
  - name: a taste is found
    episodes:
      - {id: e1, source_node: ann, content: I really like green tea.}
      - {id: e2, source_node: bob, content: I like milk.}
      - {id: e3, source_node: ann, content: Nice weather today.}
    answers:
      e1: [{subject: ann, predicate: likes, object: green tea}]
      e2: [{subject: bob, predicate: likes, object: milk}]
    expect:
      deltas:
        - {episode: e1, kind: noop, reason: in_triples}
        - {episode: e1, kind: add, fact: "e1#1"}
        - {episode: e3, kind: noop, reason: nothing_said}
      filtered: [e2]
      facts: [{subject: ann, predicate: likes, object: green tea, confidence: 1, episodes: [e1]}]
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    directory = Path("rules")
    directory.mkdir()
    (directory / "chat.yaml").write_text(RULES)
    return directory


def _output(rules: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a file of tests; return the exit code and everything that is printed."""
    (rules / "chat.test.yaml").write_text(text)
    code = call(["test", "rules/chat.test.yaml"])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_facts_come_from_the_answers_that_the_test_states(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = _output(rules, CASE, capsys)

    assert (code, printed) == (
        0,
        "ok      rules/chat.test.yaml:2: a taste is found\n\n1 test: 1 passed, 0 failed\n",
    )


def test_episode_without_an_entry_states_nothing(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
tests:
  - name: nothing is stated
    episodes: [{id: e1, source_node: ann, content: I like tea.}]
    expect: {deltas: [{episode: e1, kind: noop, reason: nothing_said}], facts: []}
"""

    code, printed = _output(rules, text, capsys)

    assert code == 0, printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "triple",
    [
        pytest.param("{subject: ann, predicate: owns, object: tea}", id="predicate"),
        pytest.param("{subject: ann, predicate: likes, object: coffee}", id="object"),
        pytest.param("{subject: eve, predicate: likes, object: tea}", id="subject"),
        pytest.param(
            "{subject: ann, predicate: likes, object: tea, quote: I love tea}", id="quote"
        ),
    ],
)
def test_triple_that_the_rule_or_the_text_does_not_support_makes_no_fact(
    rules: Path, capsys: pytest.CaptureFixture[str], triple: str
) -> None:
    text = f"""\
tests:
  - name: nothing counts
    episodes: [{{id: e1, source_node: ann, content: I like tea.}}]
    answers: {{e1: [{triple}]}}
    expect: {{facts: []}}
"""

    code, printed = _output(rules, text, capsys)

    assert code == 0, printed


@pytest.mark.slow
def test_answer_has_an_intent_and_a_confidence(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
tests:
  - name: a taste ends
    steps:
      - episodes: [{id: e1, source_node: ann, content: "I like tea, and maybe milk."}]
        answers:
          e1:
            - {subject: ann, predicate: likes, object: tea}
            - {subject: ann, predicate: likes, object: milk, quote: maybe milk, confidence: 0.5}
        expect: {facts: [{object: tea, confidence: 1}, {object: milk, confidence: 0.5}]}
      - episodes: [{id: e2, source_node: ann, content: I no longer like tea.}]
        answers: {e2: [{subject: ann, predicate: likes, object: tea, intent: delete}]}
        expect: {facts: [{object: milk}]}
"""

    code, printed = _output(rules, text, capsys)

    assert code == 0, printed


@pytest.mark.slow
def test_answers_of_a_step_replace_those_of_an_earlier_one(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
tests:
  - name: an edit is asked about again
    steps:
      - episodes: [{id: e1, source_node: ann, content: I live in Porto.}]
        answers: {e1: [{subject: ann, predicate: lives_in, object: Porto}]}
        expect: {facts: [{object: Porto}]}
      - episodes: [{id: e1, source_node: ann, content: I live in Porto or Faro.}]
        answers: {e1: [{subject: ann, predicate: lives_in, object: Faro}]}
        expect: {facts: [{object: Faro}]}
      - episodes: [{id: e1, source_node: ann, content: Faro is where I live.}]
        expect: {facts: [{object: Faro, content: Faro is where I live.}]}
"""

    code, printed = _output(rules, text, capsys)

    assert code == 0, printed


def test_failed_test_says_that_the_answer_states_nothing(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
tests:
  - name: the answer is missing
    episodes: [{id: e1, source_node: ann, content: I like tea.}]
    expect: {facts: [{id: e1, object: tea}]}
"""

    code, printed = _output(rules, text, capsys)

    remedy = "the language model finds no triple in it that counts; put it with a triple, or change"
    assert code == 1
    assert f"  why: e1 under chat: noop (nothing_said); {remedy} the prompt\n" in printed


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        pytest.param(
            "      e2: [",
            "      e22: [",
            "9:7: tests[0].answers.e22: there is no episode 'e22'; did you mean 'e2'?",
            id="unknown episode",
        ),
        pytest.param(
            "object: milk}]\n",
            "objet: milk}]\n",
            "9:45: tests[0].answers.e2[0].objet: unknown key 'objet'; did you mean 'object'?",
            id="unknown key",
        ),
        pytest.param(
            "object: milk}]\n",
            "object: 5}]\n",
            "9:53: tests[0].answers.e2[0].object: text is needed, not 5; quote it if that is meant",
            id="number",
        ),
        pytest.param(
            "object: milk}]\n",
            "object: milk, intent: update}]\n",
            "9:67: tests[0].answers.e2[0].intent: 'add' or 'delete' is needed, not 'update'",
            id="intent",
        ),
    ],
)
def test_mistake_in_answers_is_reported_with_its_place(
    rules: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, mistake: str
) -> None:
    assert old in CASE

    code, printed = _output(rules, CASE.replace(old, new), capsys)

    assert (code, printed) == (78, f"slumberd: rules/chat.test.yaml:{mistake}\n")


def test_answers_beside_steps_are_a_mistake(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
tests:
  - name: a
    answers: {}
    steps: [{episodes: [{id: e1}], expect: {facts: []}}]
"""

    code, printed = _output(rules, text, capsys)

    problem = "'answers' goes with 'episodes'; each entry of 'steps' has its own 'answers'"
    assert (code, printed) == (78, f"slumberd: rules/chat.test.yaml:2:5: tests[0]: {problem}\n")


def test_answers_without_a_rule_that_asks_are_a_mistake(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rules / "chat.yaml").write_text(PLAIN)

    code, printed = _output(rules, CASE, capsys)

    problem = "no rule of the test asks a language model; leave out 'answers'"
    assert (code, printed) == (78, f"slumberd: rules/chat.test.yaml:2: {problem}\n")


def test_answer_with_too_many_triples_is_a_mistake(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ", ".join(201 * ["{subject: bob, predicate: likes, object: milk}"])
    text = CASE.replace("{subject: bob, predicate: likes, object: milk}", many)

    code, printed = _output(rules, text, capsys)

    problem = "9:11: tests[0].answers.e2: an answer has at most 200 triples, not 201"
    assert (code, printed) == (78, f"slumberd: rules/chat.test.yaml:{problem}\n")

"""The loader returns the cases of a test file, or reports every mistake with its place."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime, timedelta
from inspect import cleandoc
from pathlib import Path

import pytest

from slumberd.model.errors import ConfigurationError
from slumberd.rules.validation import Form
from slumberd.tools.rule_testing import case_schema
from slumberd.tools.rule_testing.loader import FIRST, Case, read_cases

pytestmark = pytest.mark.unit

TEA = """\
tests:
  - name: tea
    episodes:
      - {id: e1, predicate: likes, object: tea}
      - {id: e2}
    expect:
      deltas:
        - {episode: e1, kind: add}
      filtered: [e2]
      facts:
        - {id: e1}
"""


def _read(directory: Path, text: str) -> list[Case]:
    file = directory / "tea.test.yaml"
    file.write_text(textwrap.dedent(text))
    return read_cases(file, ["tea", "coffee"])


def _mistakes(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _read(directory, text)
    return [
        str(mistake).removeprefix(f"{directory}/tea.test.yaml:")
        for mistake in caught.value.mistakes
    ]


def test_case_has_the_episodes_and_only_the_expected_parts(tmp_path: Path) -> None:
    (case,) = _read(tmp_path, TEA)

    (step,) = case.steps
    assert (case.name, case.line, case.rules) == ("tea", 2, ())
    assert [episode.id for episode in step.episodes] == ["e1", "e2"]
    assert step.expected == {
        "deltas": ({"episode": "e1", "kind": "add"},),
        "filtered": ({"episode": "e2"},),
        "facts": ({"id": "e1"},),
    }


def test_omitted_part_is_not_expected_to_be_empty(tmp_path: Path) -> None:
    (case,) = _read(tmp_path, "tests: [{name: a, episodes: [{id: e1}], expect: {facts: []}}]")

    assert case.steps[0].expected == {"facts": ()}


def test_omitted_keys_of_an_episode_have_defaults(tmp_path: Path) -> None:
    (case,) = _read(tmp_path, TEA)

    assert case.steps[0].episodes[1].model_dump() == {
        "id": "e2",
        "user": "user",
        "session": "session",
        "agent": "agent",
        "source_node": "test",
        "content": "",
        "timestamp": FIRST + timedelta(minutes=1),
        "metadata": {},
    }


def test_episode_has_the_values_of_its_test_including_null(tmp_path: Path) -> None:
    text = """
        tests:
          - name: all
            episodes:
              - {id: e1, user: u, session: s, agent: a, source_node: node, content: c, intent: null,
                 subject: 1, predicate: p, object: [o], confidence: high, replaces: {x: 1},
                 metadata: {topic: food}}
            expect: {facts: []}
        """

    episode = _read(tmp_path, text)[0].steps[0].episodes[0]

    owner = (episode.user, episode.session, episode.agent)
    assert (*owner, episode.source_node, episode.content) == (*"usa", "node", "c")
    assert episode.metadata == {
        "topic": "food",
        "intent": None,
        "subject": 1,
        "predicate": "p",
        "object": ["o"],
        "confidence": "high",
        "replaces": {"x": 1},
    }


def test_default_timestamp_follows_the_latest_and_an_edit_keeps_its_own(tmp_path: Path) -> None:
    text = """
        tests:
          - name: a
            steps:
              - episodes:
                  - {id: e1}
                  - {id: late, timestamp: "2025-06-01T12:00:00+02:00"}
                  - {id: e2}
                  - {id: far, timestamp: "2026-07-01T00:00:00Z"}
              - episodes: [{id: e1, content: again}, {id: e3}]
                expect: {facts: []}
        """

    first, second = _read(tmp_path, text)[0].steps

    assert [episode.timestamp for episode in first.episodes] == [
        FIRST,
        datetime(2025, 6, 1, 10, tzinfo=UTC),
        FIRST + timedelta(minutes=1),
        datetime(2026, 7, 1, tzinfo=UTC),
    ]
    assert [episode.timestamp for episode in second.episodes] == [
        FIRST,
        datetime(2026, 7, 1, 0, 1, tzinfo=UTC),
    ]


def test_ids_of_a_list_are_compared_in_any_order(tmp_path: Path) -> None:
    text = TEA.replace("kind: add", "replaces: [e2, e1]").replace(
        "id: e1}\n", "episodes: [e2, e1]}\n"
    )

    expected = _read(tmp_path, text)[0].steps[0].expected

    assert expected["deltas"][0]["replaces"] == ["e1", "e2"]
    assert expected["facts"][0]["episodes"] == ["e1", "e2"]


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        pytest.param(
            "likes,",
            "likes, objet: x,",
            "4:36: tests[0].episodes[0].objet: unknown key 'objet'; did you mean 'object'?",
            id="misspelt key of an episode",
        ),
        pytest.param(
            "kind: add",
            "kind: added",
            "8:31: tests[0].expect.deltas[0].kind: 'add', 'update', 'delete', 'noop' or",
            id="no such kind",
        ),
        pytest.param(
            "kind: add",
            "kinds: add",
            "8:25: tests[0].expect.deltas[0].kinds: unknown key 'kinds'; did you mean 'kind'?",
            id="misspelt key of a delta",
        ),
        pytest.param(
            "{id: e1}\n",
            "{ids: e1}\n",
            "11:12: tests[0].expect.facts[0].ids: unknown key 'ids'; did you mean 'id'?",
            id="misspelt key of a fact",
        ),
        pytest.param(
            "filtered:",
            "filterd:",
            "9:7: tests[0].expect.filterd: unknown key 'filterd'; did you mean 'filtered'?",
            id="misspelt part",
        ),
        pytest.param(
            "[e2]",
            "[e22]",
            "9:18: tests[0].expect.filtered[0]: there is no episode 'e22'; did you mean 'e2'?",
            id="unknown episode filtered",
        ),
        pytest.param(
            "{episode: e1,",
            "{episode: tea,",
            "8:21: tests[0].expect.deltas[0].episode: there is no episode 'tea'; known are e1, e2",
            id="unknown episode of a delta",
        ),
        pytest.param(
            "kind: add",
            "replaces: [e9]",
            "8:36: tests[0].expect.deltas[0].replaces[0]: there is no episode 'e9'",
            id="unknown replaced fact",
        ),
        pytest.param(
            "kind: add",
            "fact: '@notes/e9'",
            "8:31: tests[0].expect.deltas[0].fact: there is no episode 'e9'",
            id="unknown fact of a delta",
        ),
        pytest.param(
            "{id: e1}\n",
            "{id: '@notes/e9'}\n",
            "11:16: tests[0].expect.facts[0].id: there is no episode 'e9'",
            id="unknown fact",
        ),
        pytest.param(
            "{id: e1}\n",
            "{episodes: [e9]}\n",
            "11:23: tests[0].expect.facts[0].episodes[0]: there is no episode 'e9'",
            id="unknown episode of a fact",
        ),
        pytest.param(
            "{id: e1}\n",
            "{}\n",
            "11:11: tests[0].expect.facts[0]: no key is set; a fact needs at least one,",
            id="fact without keys",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e1}",
            "5:14: tests[0].episodes[1].id: episode 'e1' is given twice; an edit goes into",
            id="episode twice in a step",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e2, timestamp: '2026-01-01T00:00:00'}",
            "5:29: tests[0].episodes[1].timestamp: '2026-01-01T00:00:00' is not an instant; write",
            id="timestamp without an offset",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e2, timestamp: '9999-01-01T00:00:00Z'}",
            "5:29: tests[0].episodes[1].timestamp: '9999-01-01T00:00:00Z' is not an instant",
            id="timestamp at the end of time",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e2, timestamp: 2026-01-01T00:00:00Z}",
            "5:29: tests[0].episodes[1].timestamp: '2026-01-01T00:00:00Z' is a date to some",
            id="timestamp without quotes",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e2, object: x, metadata: {object: x}}",
            "5:9: tests[0].episodes[1]: key 'object' is in 'metadata' too; leave one of them out",
            id="key twice",
        ),
        pytest.param(
            "{id: e2}",
            "{id: e2, agent: ''}",
            "5:25: tests[0].episodes[1].agent: text is needed, not ''",
            id="empty part of a scope",
        ),
        pytest.param(
            "{id: e2}",
            r'{id: e2, agent: "a\a"}',
            r"5:9: tests[0].episodes[1]: agent holds the control character '\x07'",
            id="control character in a scope",
        ),
        pytest.param(
            "{id: e2}",
            r'{id: e2, content: "\ud83d"}',
            r"5:27: tests[0].episodes[1].content: '\ud83d' is not valid Unicode",
            id="half a character",
        ),
        pytest.param(
            "name: tea",
            "name: tea\n    rules: [te]",
            "3:13: tests[0].rules[0]: there is no rule 'te'; did you mean 'tea'?",
            id="unknown rule",
        ),
        pytest.param(
            "name: tea",
            "name: tea\n    rules: []",
            "3:12: tests[0].rules: at least one entry is needed, not []",
            id="no rules",
        ),
        pytest.param(
            "name: tea", "title: tea", "2:5: tests[0]: key 'name' is missing", id="no name"
        ),
    ],
)
def test_loader_reports_a_mistake_with_place_and_remedy(
    tmp_path: Path, old: str, new: str, mistake: str
) -> None:
    assert old in TEA

    mistakes = _mistakes(tmp_path, TEA.replace(old, new, 1))

    assert any(line.startswith(mistake) for line in mistakes), mistakes


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param("", "1:1: key 'tests' is missing", id="empty file"),
        pytest.param("tests: []", "1:8: tests: at least one entry is needed", id="no tests"),
        pytest.param(
            "tests: [{name: a, episodes: [{id: e1}]}]",
            "1:9: tests[0]: the test expects nothing; 'expect' needs",
            id="nothing expected",
        ),
        pytest.param(
            "tests: [{name: a, episodes: [{id: e1}], expect: {}}]",
            "1:9: tests[0]: the test expects nothing; 'expect' needs",
            id="empty expectation",
        ),
        pytest.param(
            "tests: [{name: a, steps: [{episodes: [{id: e1}]}]}]",
            "1:9: tests[0]: the test expects nothing; 'expect' needs",
            id="no step expects anything",
        ),
        pytest.param(
            "tests: [{name: a, expect: {facts: []}}]",
            "1:9: tests[0]: exactly one of 'episodes' and 'steps' is needed",
            id="no episodes",
        ),
        pytest.param(
            "tests: [{name: a, expect: {facts: []}, steps: [{episodes: [{id: e1}]}]}]",
            "1:9: tests[0]: 'expect' goes with 'episodes'; each entry of",
            id="expectation beside steps",
        ),
        pytest.param(
            "tests: [{name: a, episodes: [], expect: {facts: []}}]",
            "1:29: tests[0].episodes: at least one entry is needed, not []",
            id="no episodes",
        ),
        pytest.param(
            "tests:\n- &a {name: a, steps: [{episodes: [{id: e1}], expect: {filtered: [e1]}},"
            " {episodes: [{id: e2}], expect: {filtered: [e1]}}]}",
            "2:3: tests[0]: anchors are not read",
            id="anchor",
        ),
        pytest.param(
            "tests: [{name: a, steps: [{episodes: [{id: e1}]},"
            " {episodes: [{id: e2}], expect: {filtered: [e1]}}]}]",
            "1:94: tests[0].steps[1].expect.filtered[0]: there is no episode 'e1'",
            id="filtered episode of another step",
        ),
        pytest.param(
            "tests: [{name: a, steps: [{episodes: [{id: e1}]},"
            " {episodes: [{id: e1, user: bob}], expect: {facts: []}}]}]",
            "1:63: tests[0].steps[1].episodes[0]: episode 'e1' is of another user, session or",
            id="edit by another user",
        ),
    ],
)
def test_loader_refuses_a_test_without_content(tmp_path: Path, text: str, mistake: str) -> None:
    mistakes = _mistakes(tmp_path, text)

    assert any(line.startswith(mistake) for line in mistakes), mistakes


def test_loader_reports_all_mistakes_of_a_file_in_order(tmp_path: Path) -> None:
    text = """\
        tests:
          - name: a
            episodes: [{id: e1}]
            expect: {filtered: [e2]}
          - name: b
            episodes: [{id: 5}]
            expect: {filtered: [e9]}
          - name: a
            rules: [milk]
            episodes: [{id: e1}]
            expect: {facts: []}
        """

    mistakes = _mistakes(tmp_path, text)

    assert mistakes == [
        "4:25: tests[0].expect.filtered[0]: there is no episode 'e2'; known are e1",
        "6:21: tests[1].episodes[0].id: text is needed, not 5; quote it if that is meant",
        "8:11: tests[2].name: name 'a' is taken by the test in line 2; give one another name",
        "9:13: tests[2].rules[0]: there is no rule 'milk'; known are tea, coffee",
    ]


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, id=form.__name__)
        for form in vars(case_schema).values()
        if isinstance(form, type) and form.__module__ == case_schema.__name__
        if issubclass(form, Form) and form.model_fields
    ],
)
def test_docstring_explains_every_key(form: type[Form]) -> None:
    explained = re.findall(r"^    (\w+):", cleandoc(form.__doc__ or ""), re.MULTILINE)

    assert explained == list(form.model_fields)


def test_loader_skips_rule_names_without_known_rules(tmp_path: Path) -> None:
    file = tmp_path / "tea.test.yaml"
    file.write_text(TEA.replace("name: tea", "name: tea\n    rules: [milk]"))

    (case,) = read_cases(file, None)

    assert case.rules == ("milk",)

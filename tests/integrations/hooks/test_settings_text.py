"""Hooks are installed in settings and removed from them; every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.integrations.hooks.agents import CLAUDE_CODE, CODEX, EVENTS
from slumberd.integrations.hooks.settings_text import commands_in, install_hooks, remove_hooks

pytestmark = pytest.mark.unit

COMMAND = "/opt/bin/slumberd hook claude-code --user 'a b' --agent claude-code"
OTHER = {"type": "command", "command": "notify-send done"}

PRETTY = """\
{
  "model" :"opus" ,
  "permissions": {"allow": ["Bash(ls:*)"],
      "deny": []},
  "hooks": {
    "Stop": [
      {
        "matcher": "",
        "hooks": [{"type": "command", "command": "notify-send done"}]
      }
    ]
  },
  "née": "\\u00e9 \\/ 1e3",
  "n": 1.0e+3
}
"""
TEXTS = {
    "missing": "",
    "spaces": " \n",
    "empty object": "{}",
    "empty object on lines": "{\n}\n",
    "pretty": PRETTY,
    "tabs": PRETTY.replace("  ", "\t"),
    "windows": PRETTY.replace("\n", "\r\n"),
    "one line": '{"a":1,"hooks":{"Stop":[]}}',
    "no hooks": '{"a": [1, {"b": "}]"}]}',
    "empty hooks": '{"hooks": {}}',
    "empty events": '{\n "hooks": {"Stop": [ ], "PreCompact": []} }',
    "four spaces": json.dumps({"a": {"b": 1}}, indent=4),
}
each_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


def installed(text: str) -> str:
    return install_hooks(text, CLAUDE_CODE, COMMAND).text


@each_text
def test_installed_hooks_run_the_command_at_each_event(text: str) -> None:
    document = json.loads(installed(text))

    group = {"hooks": [{"type": "command", "command": COMMAND, "timeout": 5}]}
    assert {event: document["hooks"][event][-1] for event in EVENTS} == dict.fromkeys(EVENTS, group)
    assert commands_in(installed(text), CLAUDE_CODE) == {event: [COMMAND] for event in EVENTS}


@each_text
def test_installation_keeps_everything_else(text: str) -> None:
    edited = install_hooks(text, CLAUDE_CODE, COMMAND)

    assert edited.without_inserted() == text
    before, after = json.loads(text.strip() or "{}"), json.loads(edited.text)
    others = before.get("hooks", {})
    assert {event: after["hooks"][event][:-1] for event in EVENTS} == {
        event: others.get(event, []) for event in EVENTS
    }
    assert [*after.items()][: len(before)] == [*({**before, "hooks": after["hooks"]}.items())][
        : len(before)
    ]


@pytest.mark.parametrize(
    "text", [PRETTY, PRETTY.replace("  ", "\t"), json.dumps({"a": 1}, indent=4)]
)
def test_installed_text_has_the_style_of_the_file(text: str) -> None:
    lines = installed(text).splitlines()

    indent = lines[1][: -len(lines[1].lstrip())]
    assert f'{indent}{indent}"SessionStart": [' in lines
    assert f'{indent * 5}"type": "command",' not in lines
    assert f'{indent * 6}"type": "command",' in lines


@each_text
@pytest.mark.parametrize("indent", [None, 1, 7])
def test_removal_from_rewritten_settings_leaves_what_was_there(
    text: str, indent: int | None
) -> None:
    rewritten = json.dumps(json.loads(installed(text)), indent=indent)

    left = json.loads(remove_hooks(rewritten, CLAUDE_CODE))

    before = json.loads(text.strip() or "{}")
    if "hooks" in before:
        before["hooks"] = {event: groups for event, groups in before["hooks"].items() if groups}
    assert left == {key: value for key, value in before.items() if value != {} or key != "hooks"}


def test_removal_keeps_other_commands_of_a_group_that_a_person_merged() -> None:
    ours = {"type": "command", "command": COMMAND}
    text = json.dumps({"hooks": {"Stop": [{"hooks": [ours, OTHER, ours]}, {"hooks": []}]}})

    left = remove_hooks(text, CLAUDE_CODE)

    assert json.loads(left) == {"hooks": {"Stop": [{"hooks": [OTHER]}, {"hooks": []}]}}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("slumberd hook codex --user a", id="of another agent"),
        pytest.param("slumberd hooks install claude-code", id="another command"),
        pytest.param("myslumberd hook claude-code", id="another program"),
        pytest.param("echo 'slumberd hook claude-code", id="open quote"),
        pytest.param("slumberd hook", id="short"),
        pytest.param("timeout 5 slumberd hook claude-code --user me | tee log", id="in a pipe"),
        pytest.param("slumberd hook claude-code --user me > log", id="redirected"),
        pytest.param("slumberd hook claude-code --user me; notify-send done", id="one of two"),
        pytest.param("LANG=C slumberd hook claude-code --user me", id="with a variable"),
        pytest.param("nice slumberd hook claude-code --user me", id="under another program"),
        pytest.param("slumberd hook claude-code --user me --verbose 1", id="another option"),
        pytest.param("slumberd hook claude-code --user", id="an option without a value"),
        pytest.param("slumberd  hook claude-code", id="two spaces"),
        pytest.param("python -c slumberd hook claude-code", id="no module"),
    ],
)
def test_removal_leaves_the_commands_of_others(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})

    assert remove_hooks(text, CLAUDE_CODE) == text


@pytest.mark.parametrize(
    "command",
    [COMMAND, "slumberd hook claude-code", "/usr/bin/python -m slumberd hook claude-code"],
)
def test_removal_finds_every_spelling_of_the_program(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})

    assert json.loads(remove_hooks(text, CLAUDE_CODE)) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no JSON: .* at line 1, column 2"),
        ('{"a": 1,}', "is no JSON"),
        ('{"a": 1 // one\n}', "is no JSON: .* at line 1, column 9"),
        ("[]", "holds no JSON object"),
        ("7", "holds no JSON object"),
        ('{"hooks": []}', "has 'hooks' that are no JSON object"),
        ('{"hooks": {"Stop": {}}}', "has 'hooks.Stop' that is no list"),
        ('{"hooks": {}, "hooks": {}}', "has a key twice"),
        ("\ufeff{}", "is no JSON"),
        ('{"a":' + "[" * 100_000, "is nested too deep"),
    ],
)
def test_settings_that_cannot_be_edited_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        installed(text)
    with pytest.raises(ValueError, match=problem):
        remove_hooks(text, CLAUDE_CODE)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
groups = st.fixed_dictionaries(
    {}, optional={"matcher": st.text(), "hooks": st.lists(st.just(OTHER) | values, max_size=3)}
)
hooks = st.dictionaries(
    st.sampled_from([*EVENTS, "PreToolUse"]), st.lists(groups | values, max_size=3)
)
settings = st.dictionaries(st.text(), values, max_size=3).flatmap(
    lambda rest: st.one_of(
        st.just(rest),
        hooks.map(lambda found: {"hooks": found, **rest}),
        hooks.map(lambda found: {**rest, "hooks": found}),
    )
)


@pytest.mark.slow
@given(
    document=settings,
    indent=st.none() | st.integers(0, 4) | st.just("\t"),
    separators=st.sampled_from([None, (",", ":"), (" , ", " : "), (",\n", ":  ")]),
    ascii_only=st.booleans(),
    around=st.sampled_from(["", "\n", " \r\n"]),
)
def test_installation_and_removal_restore_any_settings(
    document: dict[str, Any], indent: Any, separators: Any, ascii_only: bool, around: str
) -> None:
    dumped = json.dumps(document, indent=indent, separators=separators, ensure_ascii=ascii_only)
    text = around + dumped + around

    edited = install_hooks(text, CODEX, COMMAND.replace("claude-code", "codex"))

    assert edited.without_inserted() == text
    for event in EVENTS:
        assert len(json.loads(edited.text)["hooks"][event]) >= 1
    again = json.loads(remove_hooks(edited.text, CODEX))
    document = json.loads(dumped)
    kept = {
        event: found
        for event, found in document.get("hooks", {}).items()
        if found or event not in EVENTS
    }
    if "hooks" in document:
        document["hooks"] = kept
    assert again == {key: value for key, value in document.items() if key != "hooks" or value}

"""Install hooks in the text of a coding agent's settings, and remove them."""

from __future__ import annotations

import json
import shlex
from pathlib import PurePath
from typing import Any

from slumberd.hooks.agents import EVENTS, OPTIONS, CodingAgent
from slumberd.hooks.json_text import (
    Edited,
    Item,
    append_item,
    items_of,
    remove_item,
    root_of,
    style_of,
)

_HOOKS = "hooks"
_PROGRAM = "slumberd"


def install_hooks(text: str, agent: CodingAgent, command: str) -> Edited:
    """Return settings that run a command at each event; other hooks stay.

    Args:
        text: The settings, without hooks of slumberd; may be empty.
        agent: The coding agent.
        command: The command line of the hooks.

    Raises:
        ValueError: The text is no JSON object, or its hooks are not in the form of the agent.
    """
    group = {"hooks": [{"type": "command", "command": command, "timeout": agent.timeout_seconds}]}
    if not text.strip():
        document = {_HOOKS: {event: [group] for event in EVENTS}}
        return Edited(text).insert(0, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    _check(text)
    style, edited = style_of(text), Edited(text)
    root = root_of(text)
    if _HOOKS not in _members(text, root):
        edited = append_item(edited, root, {}, style, depth=1, key=_HOOKS)
    for event in EVENTS:
        hooks = _members(edited.text, root)[_HOOKS].value_start
        known = _members(edited.text, hooks)
        if event in known:
            edited = append_item(edited, known[event].value_start, group, style, depth=3)
        else:
            edited = append_item(edited, hooks, [group], style, depth=2, key=event)
    return edited


def remove_hooks(text: str, agent: CodingAgent) -> str:
    """Return settings without the hooks of slumberd, and without what is empty then.

    Args:
        text: The settings; may be empty.
        agent: The coding agent.

    Raises:
        ValueError: As `install_hooks`.
    """
    if not text.strip():
        return text
    _check(text)
    for event in EVENTS:
        text = _remove_from(text, event, agent)
    return text


def commands_in(text: str, agent: CodingAgent) -> dict[str, list[str]]:
    """Return the command lines of slumberd's hooks, by event.

    Raises:
        ValueError: As `install_hooks`.
    """
    if not text.strip():
        return {}
    _check(text)
    hooks = json.loads(text).get(_HOOKS, {})
    found = {
        event: [
            command
            for group in hooks.get(event, ())
            for command in _commands_of(group)
            if _is_ours(command, agent)
        ]
        for event in EVENTS
    }
    return {event: commands for event, commands in found.items() if commands}


def _check(text: str) -> None:
    """Check that settings can be edited.

    Raises:
        ValueError: They cannot; says why.
    """
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"is no JSON: {error.msg} at {place}") from error
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    if not isinstance(document, dict):
        raise ValueError("holds no JSON object")  # noqa: TRY004 # the contents of a file
    hooks = document.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise ValueError("has 'hooks' that are no JSON object")  # noqa: TRY004
    for event in EVENTS:
        if not isinstance(hooks.get(event, []), list):
            raise ValueError(f"has 'hooks.{event}' that is no list")  # noqa: TRY004


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("has a key twice in one object")
    return members


def _remove_from(text: str, event: str, agent: CodingAgent) -> str:
    """Return settings without the hooks of slumberd at one event."""
    groups = _groups_of(text, event)
    changed = text
    for index in reversed(range(len(groups))):
        commands = _commands_of(groups[index].value)
        if commands and all(_is_ours(command, agent) for command in commands):
            changed = remove_item(changed, groups, index)
        elif any(_is_ours(command, agent) for command in commands):
            changed = _remove_commands(changed, groups[index], agent)
    return changed if changed == text else _remove_empty(changed, event)


def _remove_commands(text: str, group: Item, agent: CodingAgent) -> str:
    """Return settings without slumberd's commands in a group that has others, too."""
    handlers = items_of(text, _members(text, group.value_start)[_HOOKS].value_start)
    for index in reversed(range(len(handlers))):
        commands = _commands_of({_HOOKS: [handlers[index].value]})
        if any(_is_ours(command, agent) for command in commands):
            text = remove_item(text, handlers, index)
    return text


def _remove_empty(text: str, event: str) -> str:
    """Return settings without an event that has no groups, and without empty hooks."""
    root = root_of(text)
    hooks = _members(text, root)[_HOOKS]
    if hooks.value[event] == []:
        text = _remove_member(text, hooks.value_start, event)
    if _members(text, root)[_HOOKS].value == {}:
        text = _remove_member(text, root, _HOOKS)
    return text


def _remove_member(text: str, at: int, key: str) -> str:
    members = items_of(text, at)
    return remove_item(text, members, [member.key for member in members].index(key))


def _members(text: str, at: int) -> dict[str, Item]:
    """Return the members of an object by key."""
    return {item.key: item for item in items_of(text, at)}


def _groups_of(text: str, event: str) -> list[Item]:
    """Return the groups of hooks at an event; an event that is not there has none."""
    hooks = _members(text, root_of(text)).get(_HOOKS)
    groups = None if hooks is None else _members(text, hooks.value_start).get(event)
    return [] if groups is None else items_of(text, groups.value_start)


def _commands_of(group: object) -> list[str]:
    """Return the command lines of a group of hooks; a malformed group has none."""
    handlers = group.get(_HOOKS) if isinstance(group, dict) else None
    if not isinstance(handlers, list):
        return []
    found = [handler.get("command") for handler in handlers if isinstance(handler, dict)]
    return [command for command in found if isinstance(command, str)]


def _is_ours(command: str, agent: CodingAgent) -> bool:
    """Return whether a command line is of the form that an installation writes, and no more.

    A command of a person that runs a hook with other programs around it is the person's.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    if shlex.join(words) != command or not words:
        return False
    is_module = PurePath(words[0]).name != _PROGRAM
    if is_module and words[1:3] != ["-m", _PROGRAM]:
        return False
    call = words[3:] if is_module else words[1:]
    options = call[2::2]
    return (
        call[:2] == ["hook", agent.name]
        and len(call) % 2 == 0
        and len(set(options)) == len(options)
        and set(options) <= set(OPTIONS)
    )

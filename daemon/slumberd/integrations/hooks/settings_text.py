"""Install hooks in the text of a coding agent's settings, and remove them.

The second half edits the text of any JSON document, and keeps its style.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from slumberd.integrations.hooks.agents import EVENTS, OPTIONS, CodingAgent

_HOOKS = "hooks"
_PROGRAM = "slumberd"


def install_hooks(text: str, agent: CodingAgent, command: str) -> EditedText:
    """Return settings that run a command at each event; other hooks stay.

    Args:
        text: The settings, without hooks of slumberd; may be empty.
        command: The command line of the hooks.

    Raises:
        ValueError: The text is no JSON object, or its hooks are not in the form of the agent.
    """
    group = {"hooks": [{"type": "command", "command": command, "timeout": agent.timeout_seconds}]}
    if not text.strip():
        document = {_HOOKS: {event: [group] for event in EVENTS}}
        return EditedText(text).insert(0, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    _check(text)
    style, edited = style_of(text), EditedText(text)
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


def _remove_commands(text: str, group: JsonItem, agent: CodingAgent) -> str:
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


def _members(text: str, at: int) -> dict[str, JsonItem]:
    """Return the members of an object by key."""
    return {item.key: item for item in items_of(text, at)}


def _groups_of(text: str, event: str) -> list[JsonItem]:
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


_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_DECODER = json.JSONDecoder()


class JsonItem(NamedTuple):
    """A member of an object, or an element of an array.

    Attributes:
        start: Where its text begins; a member begins with its key.
        value_start: Where the text of its value begins.
        end: Where its text ends.
        key: The key of a member; empty for an element.
    """

    start: int
    value_start: int
    end: int
    key: str
    value: Any


class Style(NamedTuple):
    """How a file lays out its values.

    Attributes:
        newline: The end of a line; empty when everything is on one line.
        indent: The indentation of one level.
    """

    newline: str
    indent: str

    def padding(self, depth: int) -> str:
        """Return what stands before an item at a depth; empty on one line."""
        return self.newline + self.indent * depth if self.newline else ""

    def render(self, value: object, depth: int) -> str:
        """Return the JSON of a value whose first line is indented already."""
        if not self.newline:
            return json.dumps(value, ensure_ascii=False)
        lines = json.dumps(value, ensure_ascii=False, indent=self.indent).split("\n")
        return self.padding(depth).join(lines)


class EditedText(NamedTuple):
    """A text, and which parts of it were inserted.

    Attributes:
        inserted: The start and the end of each inserted part, in order.
    """

    text: str
    inserted: tuple[tuple[int, int], ...] = ()

    def insert(self, at: int, part: str) -> EditedText:
        """Return the text with a part at a place."""
        size = len(part)
        moved = [
            (start + size, end + size) if start >= at else (start, end + size if end > at else end)
            for start, end in self.inserted
        ]
        is_inside = any(start < at < end for start, end in self.inserted)
        spans = moved if is_inside else [*moved, (at, at + size)]
        return EditedText(self.text[:at] + part + self.text[at:], tuple(sorted(spans)))

    def without_inserted(self) -> str:
        """Return the text as it was before all insertions."""
        text = self.text
        for start, end in reversed(self.inserted):
            text = text[:start] + text[end:]
        return text


def style_of(text: str) -> Style:
    """Return how a text lays out its values; two spaces where it does not show."""
    found = _FIRST_INDENT.search(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if found:
        return Style(newline, found[1])
    is_one_line = "\n" not in text.strip() and items_of(text, _skip(text, 0))
    return Style("", "") if is_one_line else Style(newline, "  ")


def items_of(text: str, at: int) -> list[JsonItem]:
    """Return the members of an object, or the elements of an array.

    Args:
        text: Valid JSON.
        at: The place of the opening bracket.
    """
    is_object, items = text[at] == "{", []
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        start, key = at, ""
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value, end = _DECODER.raw_decode(text, at)
        items.append(JsonItem(start, at, end, key, value))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return items


def root_of(text: str) -> int:
    """Return the place of the first character of the value of a whole text."""
    return _skip(text, 0)


def _skip(text: str, at: int) -> int:
    """Return the place of the first character that is no space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def append_item(
    edited: EditedText, at: int, value: object, style: Style, *, depth: int, key: str = ""
) -> EditedText:
    """Return a text with one more item at the end of an object or an array.

    Args:
        at: The place of the opening bracket.
        style: How the file lays out its values.
        depth: How many brackets are open around the item.
        key: The key of a member; empty for an element.
    """
    name = f"{json.dumps(key, ensure_ascii=False)}: " if key else ""
    item = name + style.render(value, depth)
    if items := items_of(edited.text, at):
        return edited.insert(items[-1].end, "," + (style.padding(depth) or " ") + item)
    return edited.insert(at + 1, style.padding(depth) + item + style.padding(depth - 1))


def remove_item(text: str, items: Sequence[JsonItem], index: int) -> str:
    """Return a text without one item of an object or an array, and without its comma.

    Args:
        items: All items of the object or array.
        index: Which one.
    """
    item = items[index]
    if index > 0:
        return text[: items[index - 1].end] + text[item.end :]
    if len(items) > 1:
        return text[: item.start] + text[items[1].start :]
    end = _skip(text, item.end)
    start = len(text[: item.start].rstrip(" \t\r\n"))
    return text[:start] + text[end:]

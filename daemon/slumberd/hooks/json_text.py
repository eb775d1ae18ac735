"""Edit the text of a JSON file: insert and remove values, and keep every other character."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_DECODER = json.JSONDecoder()


class Item(NamedTuple):
    """A member of an object, or an element of an array.

    Attributes:
        start: Where its text begins; a member begins with its key.
        value_start: Where the text of its value begins.
        end: Where its text ends.
        key: The key of a member; empty for an element.
        value: The value.
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


class Edited(NamedTuple):
    """A text, and which parts of it were inserted.

    Attributes:
        text: The text.
        inserted: The start and the end of each inserted part, in order.
    """

    text: str
    inserted: tuple[tuple[int, int], ...] = ()

    def insert(self, at: int, part: str) -> Edited:
        """Return the text with a part at a place."""
        size = len(part)
        moved = [
            (start + size, end + size) if start >= at else (start, end + size if end > at else end)
            for start, end in self.inserted
        ]
        is_inside = any(start < at < end for start, end in self.inserted)
        spans = moved if is_inside else [*moved, (at, at + size)]
        return Edited(self.text[:at] + part + self.text[at:], tuple(sorted(spans)))

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


def items_of(text: str, at: int) -> list[Item]:
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
        items.append(Item(start, at, end, key, value))
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
    edited: Edited, at: int, value: object, style: Style, *, depth: int, key: str = ""
) -> Edited:
    """Return a text with one more item at the end of an object or an array.

    Args:
        edited: The text.
        at: The place of the opening bracket.
        value: The value of the item.
        style: How the file lays out its values.
        depth: How many brackets are open around the item.
        key: The key of a member; empty for an element.
    """
    name = f"{json.dumps(key, ensure_ascii=False)}: " if key else ""
    item = name + style.render(value, depth)
    if items := items_of(edited.text, at):
        return edited.insert(items[-1].end, "," + (style.padding(depth) or " ") + item)
    return edited.insert(at + 1, style.padding(depth) + item + style.padding(depth - 1))


def remove_item(text: str, items: Sequence[Item], index: int) -> str:
    """Return a text without one item of an object or an array, and without its comma.

    Args:
        text: The text.
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

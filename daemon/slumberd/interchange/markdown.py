"""Split notes in markdown at their headings, and read the front matter and headers of notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_FIELD = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:\s+(\S.*?)\s*")
_MARKS_OF_BLOCKS = frozenset({">", ">-", ">+", "|", "|-", "|+"})


class Section(NamedTuple):
    """A part of a note.

    Attributes:
        line: The number of its first line, from 1.
        heading: The text of its heading; empty for what comes before the first one.
        text: Its lines, the heading included.
        above: The headings of the sections that it is part of, the first one first.
    """

    line: int
    heading: str
    text: str
    above: tuple[str, ...] = ()


class Note(NamedTuple):
    """A note without its front matter.

    Attributes:
        line: The number of the first line behind the front matter.
        fields: The single-line values of the front matter, by key, of any depth.
        text: What follows.
    """

    line: int
    fields: dict[str, str]
    text: str


def read_note(text: str) -> Note:
    """Return a note without its front matter; a note without one is unchanged."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return Note(1, {}, text.removeprefix("\ufeff"))
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return Note(1, {}, text)
    return Note(end + 2, dict(_fields(lines[1:end])), "\n".join(lines[end + 1 :]))


def read_header(text: str) -> dict[str, str]:
    """Return the fields ``key: value`` before the first empty line; empty if one is no field.

    A heading before them is skipped.
    """
    lines = [line for line in text.splitlines() if not _HEADING.fullmatch(line)]
    blank = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    header = lines[:blank]
    return dict(_fields(header)) if all(map(_FIELD.fullmatch, header)) else {}


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found and found[2] not in _MARKS_OF_BLOCKS:
            yield found[1], _unquoted(found[2])


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def sections(note: Note, deepest: int) -> Iterator[Section]:
    """Yield the sections that have more than a heading.

    Args:
        note: The note.
        deepest: A heading of this level, or of a higher one, begins a section; 0 splits nothing.
    """
    line, heading = note.line, ""
    found: list[str] = []
    # The level and the text of each heading that the section is part of, its own included.
    open_: list[tuple[int, str]] = []
    for number, text, level in _lines(note.text, note.line):
        if 0 < level <= deepest:
            yield from _section(line, heading, found, open_)
            line, heading, found = number, _text_of_heading(text), []
            open_ = [*(one for one in open_ if one[0] < level), (level, heading)]
        found.append(text)
    yield from _section(line, heading, found, open_)


def headings(text: str) -> Iterator[str]:
    """Yield the texts of the headings of a text."""
    for _, line, level in _lines(text, 1):
        if level:
            yield _text_of_heading(line)


def _lines(text: str, first: int) -> Iterator[tuple[int, str, int]]:
    """Yield each line with its number and the level of its heading; 0 for any other line."""
    fence = ""
    for number, line in enumerate(text.splitlines(), first):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        yield number, line, len(heading[1]) if heading else 0


def _text_of_heading(line: str) -> str:
    found = _HEADING.fullmatch(line)
    return found[2] if found else ""


def _section(
    line: int, heading: str, lines: list[str], open_: list[tuple[int, str]]
) -> Iterator[Section]:
    body = lines[1:] if heading else lines
    if any(text.strip() for text in body):
        above = tuple(text for _, text in open_[:-1])
        yield Section(line, heading, "\n".join(lines).strip(), above)

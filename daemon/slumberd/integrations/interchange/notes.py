"""Read the memory folders of Claude and Codex: notes in markdown, and other texts.

Notes are split at their headings; their front matter and headers are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slumberd.integrations.interchange.instants import dates_in, read_instant
from slumberd.integrations.interchange.records import Defaults, ImportedRecord, instant_in, made_id
from slumberd.model.episode import Episode
from slumberd.model.errors import SecretRefusedError, WrongFormatError

CLAUDE = "claude-folder"
CODEX = "codex-folder"
SUFFIXES = (".md", ".markdown", ".txt", ".xml")

_OF_CODEX = ("memory_summary.md", "raw_memories.md", "rollout_summaries/")
"""Names by which a folder of Codex is known; a folder of Claude has none of them."""

_NO_MEMORIES = re.compile(r"phase2_workspace_diff\.md|extensions/[^/]+/instructions\.md")
"""Files of Codex that remember nothing: a working file, and instructions."""

_LEVELS = {"MEMORY.md": 1, "raw_memories.md": 2, "memory_summary.md": 2}
"""The deepest heading that begins a memory, by file of Codex; other files are one memory."""

_INSTANTS = (
    "modified", "last_modified", "lastmod", "updated_at", "updated", "last_updated", "date",
    "datetime", "timestamp", "created_at", "created",
)  # fmt: skip
"""The fields that say when a memory was written; the first one counts."""

_DATE = len("2026-01-01")

_THREAD = re.compile(r"Thread\s+`([^`]+)`")


class NoteFile(NamedTuple):
    """A file of a folder.

    Attributes:
        path: Its path in the folder, with slashes.
        modified: When it was modified.
        problem: Why it has no text; empty when it has.
        unread: Why it was not read, though it may be no note at all; empty when it was.
    """

    path: str
    modified: datetime
    text: str = ""
    problem: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of notes.

    Attributes:
        name: The session of its memories, unless they name another one.
        paths: The paths of its files, in order.
        read: Reads the files, one after the other.
    """

    name: str
    paths: Sequence[str]
    read: Callable[[], Iterable[NoteFile]]


class _Style(NamedTuple):
    """How the notes of a format are read.

    Attributes:
        name: The name of the format.
        deepest: Returns the deepest heading that begins a memory of a file; 0 splits nothing.
        fields: Returns what a memory says about itself.
        session: Returns the session that these fields name, if any.
        instant: The field that holds the instant of a memory.
    """

    name: str
    deepest: Callable[[str, NoteText], int]
    fields: Callable[[NoteText, Section], dict[str, str]]
    session: Callable[[Mapping[str, str]], str | None]
    instant: str


def read_claude_folder(folder: Folder, defaults: Defaults) -> Iterator[ImportedRecord]:
    """Yield the memories of a folder of Claude: a note with front matter, or a section of another.

    Raises:
        WrongFormatError: The folder holds no text, or is a folder of Codex.
    """
    _check_claude(folder)
    return _Reader(folder, defaults, _CLAUDE_STYLE).records()


def read_codex_folder(folder: Folder, defaults: Defaults) -> Iterator[ImportedRecord]:
    """Yield the memories of a folder of Codex: task groups, threads, summaries and skills.

    Raises:
        WrongFormatError: The folder has none of the files by which a folder of Codex is known.
    """
    if not any(path.startswith(_OF_CODEX) for path in folder.paths):
        problem = f"it has none of {', '.join(_OF_CODEX)}"
        raise WrongFormatError(CODEX, f"folder {folder.name!r}", problem)
    return _Reader(folder, defaults, _CODEX_STYLE).records()


def _check_claude(folder: Folder) -> None:
    marks = [path for path in folder.paths if path.startswith(_OF_CODEX)]
    if marks:
        raise WrongFormatError(CLAUDE, f"folder {folder.name!r}", f"{marks[0]} is of Codex")
    if not any(path.lower().endswith(SUFFIXES) for path in folder.paths):
        problem = f"it has no file that ends in {', '.join(SUFFIXES)}"
        raise WrongFormatError(CLAUDE, f"folder {folder.name!r}", problem)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads a folder in one style."""

    folder: Folder
    defaults: Defaults
    style: _Style

    def records(self) -> Iterator[ImportedRecord]:
        """Yield the records of all files."""
        for file in self.folder.read():
            if self.style.name == CODEX and _NO_MEMORIES.fullmatch(file.path):
                continue
            if file.problem or file.unread:
                yield ImportedRecord(
                    1, problem=file.problem, incomplete=file.unread, path=file.path
                )
            else:
                yield from self._records_of(file)

    def _records_of(self, file: NoteFile) -> Iterator[ImportedRecord]:
        try:
            note = read_note(self.defaults.secrets(file.text))
        except SecretRefusedError as error:
            yield ImportedRecord(1, problem=str(error), path=file.path)
            return
        headings: Counter[str] = Counter()
        for section in sections(note, self.style.deepest(file.path, note)):
            headings[section.heading] += 1
            # Equal headings of one file are told apart by their order.
            place = [file.path, section.heading, str(headings[section.heading])]
            try:
                episode = self._episode(file, note, section, place)
            except ValueError as error:
                yield ImportedRecord(section.line, problem=str(error), path=file.path)
            else:
                yield ImportedRecord(section.line, (episode,), path=file.path)

    def _episode(
        self, file: NoteFile, note: NoteText, section: Section, place: Sequence[str]
    ) -> Episode:
        style, fields = self.style, self.style.fields(note, section)
        session = style.session(fields) or self.folder.name
        scope = self.defaults.scope.of(None, None, session)
        at, source = self.defaults._replace(modified=file.modified).dated(
            self._stated_instant(file, note, section, fields)
        )
        title = fields.get("name") or section.heading or file.path
        found: dict[str, Any] = {**source, "title": title}
        if description := fields.get("description"):
            found["description"] = description
        return Episode(
            id=made_id(style.name, scope, *place),
            content=section.text,
            timestamp=at,
            source_node=style.name,
            metadata={**found, style.name: {**fields, "path": file.path}},
            **scope,
        )

    def _stated_instant(
        self, file: NoteFile, note: NoteText, section: Section, fields: Mapping[str, str]
    ) -> datetime | None:
        """Return when a memory was written, by the most precise of what says it.

        First its own header, then its heading and those around it, then the front matter, then
        the names of file and folders, then the latest heading within it.
        """
        latest = self.defaults.latest
        first = self.style.instant
        found = _instant_of_fields(read_header(section.text), first)
        for heading in (section.heading, *reversed(section.above)):
            found = found or next(dates_in(heading, latest), None)
        # Only the field that the format itself writes must hold an instant.
        found = found or _instant_of_fields(fields, first) or instant_in(fields, first)
        *folders, name = file.path.split("/")
        # Also a date whose year, month and day are names of folders.
        for text in (name, file.path, *reversed(folders)):
            found = found or next(dates_in(text, latest), None)
        within = (at for heading in headings(section.text) for at in dates_in(heading, latest))
        return found or max(within, default=None)


def _instant_of_fields(fields: Mapping[str, str], first: str) -> datetime | None:
    """Return the instant that fields state; a date counts from its begin in UTC."""
    named = {key.lower().replace("-", "_"): value for key, value in fields.items()}
    found = (_instant_of_text(named[key]) for key in (first, *_INSTANTS) if key in named)
    return next(filter(None, found), None)


def _instant_of_text(text: str) -> datetime | None:
    try:
        found = read_instant(text)
    except ValueError:
        return next(dates_in(text), None)
    is_date = found.tzinfo is None and len(text.strip()) <= _DATE
    return found.replace(tzinfo=UTC) if is_date else found


def _levels_of_claude(_: str, note: NoteText) -> int:
    # A note with front matter is one memory; an index, or a note of a person, has a section each.
    return 0 if note.fields else 2


def _levels_of_codex(path: str, _: NoteText) -> int:
    return _LEVELS.get(path, 0)


def _fields_of_claude(note: NoteText, _: Section) -> dict[str, str]:
    return note.fields


def _fields_of_codex(note: NoteText, section: Section) -> dict[str, str]:
    thread = _THREAD.search(section.heading)
    named = {"thread_id": thread[1]} if thread else {}
    return {**note.fields, **read_header(section.text), **named}


_CLAUDE_STYLE = _Style(CLAUDE, _levels_of_claude, _fields_of_claude, lambda _: None, "modified")
_CODEX_STYLE = _Style(
    CODEX,
    _levels_of_codex,
    _fields_of_codex,
    lambda fields: fields.get("thread_id"),
    "updated_at",
)


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


class NoteText(NamedTuple):
    """A note without its front matter.

    Attributes:
        line: The number of the first line behind the front matter.
        fields: The single-line values of the front matter, by key, of any depth.
        text: What follows.
    """

    line: int
    fields: dict[str, str]
    text: str


def read_note(text: str) -> NoteText:
    """Return a note without its front matter; a note without one is unchanged."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return NoteText(1, {}, text.removeprefix("\ufeff"))
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return NoteText(1, {}, text)
    return NoteText(end + 2, dict(_fields(lines[1:end])), "\n".join(lines[end + 1 :]))


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


def sections(note: NoteText, deepest: int) -> Iterator[Section]:
    """Yield the sections that have more than a heading.

    Args:
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

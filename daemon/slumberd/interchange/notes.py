"""Read the memory folders of Claude and Codex: notes in markdown, and other texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slumberd.errors import SecretRefusedError, WrongFormatError
from slumberd.interchange.instants import dates_in, read_instant
from slumberd.interchange.markdown import (
    Note,
    Section,
    headings,
    read_header,
    read_note,
    sections,
)
from slumberd.interchange.records import Defaults, Record, instant_in, made_id
from slumberd.model.episode import Episode

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
        text: Its text.
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
    deepest: Callable[[str, Note], int]
    fields: Callable[[Note, Section], dict[str, str]]
    session: Callable[[Mapping[str, str]], str | None]
    instant: str


def read_claude_folder(folder: Folder, defaults: Defaults) -> Iterator[Record]:
    """Yield the memories of a folder of Claude: a note with front matter, or a section of another.

    Raises:
        WrongFormatError: The folder holds no text, or is a folder of Codex.
    """
    _check_claude(folder)
    return _Reader(folder, defaults, _CLAUDE_STYLE).records()


def read_codex_folder(folder: Folder, defaults: Defaults) -> Iterator[Record]:
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

    def records(self) -> Iterator[Record]:
        """Yield the records of all files."""
        for file in self.folder.read():
            if self.style.name == CODEX and _NO_MEMORIES.fullmatch(file.path):
                continue
            if file.problem or file.unread:
                yield Record(1, problem=file.problem, incomplete=file.unread, path=file.path)
            else:
                yield from self._records_of(file)

    def _records_of(self, file: NoteFile) -> Iterator[Record]:
        try:
            note = read_note(self.defaults.secrets(file.text))
        except SecretRefusedError as error:
            yield Record(1, problem=str(error), path=file.path)
            return
        headings: Counter[str] = Counter()
        for section in sections(note, self.style.deepest(file.path, note)):
            headings[section.heading] += 1
            # Equal headings of one file are told apart by their order.
            place = [file.path, section.heading, str(headings[section.heading])]
            try:
                episode = self._episode(file, note, section, place)
            except ValueError as error:
                yield Record(section.line, problem=str(error), path=file.path)
            else:
                yield Record(section.line, (episode,), path=file.path)

    def _episode(
        self, file: NoteFile, note: Note, section: Section, place: Sequence[str]
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
        self, file: NoteFile, note: Note, section: Section, fields: Mapping[str, str]
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


def _levels_of_claude(_: str, note: Note) -> int:
    # A note with front matter is one memory; an index, or a note of a person, has a section each.
    return 0 if note.fields else 2


def _levels_of_codex(path: str, _: Note) -> int:
    return _LEVELS.get(path, 0)


def _fields_of_claude(note: Note, _: Section) -> dict[str, str]:
    return note.fields


def _fields_of_codex(note: Note, section: Section) -> dict[str, str]:
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

"""The table of the formats that can be read, the files of a folder of notes, and joined statements.

In some formats every statement holds until the file says that it ended. Statements of one subject
and predicate with one instant become the triples of one episode, whose claims hold together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from slumberd.consolidation.claim import MOST_TRIPLES
from slumberd.integrations.interchange import graphiti, langgraph, mcp_memory, mem0, notes
from slumberd.integrations.interchange.episode_lines import read_episode_lines
from slumberd.integrations.interchange.instants import INSTANT_FROM
from slumberd.integrations.interchange.notes import SUFFIXES, Folder, NoteFile
from slumberd.integrations.interchange.records import (
    MOST_BYTES,
    Defaults,
    ImportedRecord,
    too_long,
    triples_in,
    without,
)
from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, NoInputError

EPISODES = "episodes"
"""The format of `slumberd export`."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of single files.

    Attributes:
        read: Returns the records of a file.
        names_user: Whether the records may name their user.
        multi_valued: The predicates that have several objects at once, by the format itself.
        lasting: Whether a claim holds until its record says that it ended. In any other format,
            the next claim of its subject and predicate ends it.
        side_by_side: Whether statements of one subject and predicate hold at the same time.
        limit: How many records the program returns, unless its caller asks for more; None when it
            returns all.
    """

    read: Callable[[BinaryIO, Defaults], Iterator[ImportedRecord]]
    names_user: bool = True
    multi_valued: frozenset[str] = frozenset()
    lasting: bool = False
    side_by_side: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format of folders; its records name no user."""

    read: Callable[[Folder, Defaults], Iterator[ImportedRecord]]


def _read_episodes(stream: BinaryIO, defaults: Defaults) -> Iterator[ImportedRecord]:
    return read_episode_lines(stream, defaults.scope, secrets=defaults.secrets)


FORMATS: dict[str, FileFormat | FolderFormat] = {
    EPISODES: FileFormat(_read_episodes),
    mem0.NAME: FileFormat(mem0.read_mem0, limit=100),
    graphiti.NAME: FileFormat(graphiti.read_graphiti, lasting=True, side_by_side=True),
    mcp_memory.NAME: FileFormat(
        mcp_memory.read_mcp_memory,
        names_user=False,
        multi_valued=frozenset({mcp_memory.OBSERVATION}),
        side_by_side=True,
    ),
    notes.CLAUDE: FolderFormat(notes.read_claude_folder),
    notes.CODEX: FolderFormat(notes.read_codex_folder),
    langgraph.NAME: FileFormat(langgraph.read_langgraph, limit=10),
}
"""The formats, by name."""


_GENERIC = frozenset({"memory", "memories"})
"""Names of folders that tell nothing; the name of the folder around them counts."""


_UNKNOWN = datetime.min.replace(tzinfo=UTC)


def open_folder(path: Path) -> Folder:
    """Return a folder of notes. Files and folders whose name begins with a dot are left out.

    Raises:
        NoInputError: The folder does not exist.
        InputError: It is a file.
        OSError: It cannot be read.
    """
    if not path.exists():
        raise NoInputError(str(path), "name a folder of notes")
    if not path.is_dir():
        raise InputError(f"{str(path)!r} is a file, and a folder is needed")
    paths = [*_paths_in(path)]
    return Folder(_shown(_name_of(path.resolve())), paths, partial(_read_files, path, paths))


def _name_of(path: Path) -> str:
    own = path.parent if path.name in _GENERIC else path
    return own.name or path.name


def _paths_in(folder: Path) -> Iterator[str]:
    unreadable: list[str] = []

    def keep(error: OSError) -> None:
        if error.filename == str(folder):
            raise error
        unreadable.append(Path(error.filename).relative_to(folder).as_posix())

    for parent, folders, files in os.walk(folder, onerror=keep):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = (name for name in folders if Path(parent, name).is_symlink())
        for name in sorted((*files, *links)):
            if not name.startswith("."):
                yield Path(parent, name).relative_to(folder).as_posix()
    yield from unreadable


def _shown(name: str) -> str:
    """Return a name; each byte of it that is no UTF-8 is written by its number."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _read_files(folder: Path, paths: list[str]) -> Iterator[NoteFile]:
    for path in paths:
        yield _read_file(folder / path, path)


def _read_file(file: Path, path: str) -> NoteFile:
    if (shown := _shown(path)) != path:
        problem = "the name is not UTF-8, so nothing can name the note; rename the file"
        return NoteFile(shown, _UNKNOWN, problem=problem)
    try:
        status = file.lstat()
    except OSError as error:
        return NoteFile(path, _UNKNOWN, problem=str(error.strerror))
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    if file.is_dir() and not file.is_symlink():
        return NoteFile(path, modified, problem="the folder cannot be read")
    if not file.is_file() or file.is_symlink():
        return NoteFile(path, modified, problem="is a link or no file; name its own folder")
    if not path.lower().endswith(SUFFIXES):
        reason = f"is not read: it ends in none of {', '.join(SUFFIXES)}"
        return NoteFile(path, modified, unread=reason)
    if problem := too_long(status.st_size, MOST_BYTES):
        return NoteFile(path, modified, problem=problem)
    return _read_text(file, path, modified)


def _read_text(file: Path, path: str, modified: datetime) -> NoteFile:
    try:
        return NoteFile(path, modified, file.read_text("utf-8"))
    except UnicodeDecodeError as error:
        return NoteFile(path, modified, problem=f"is not UTF-8, at byte {error.start}")
    except OSError as error:
        return NoteFile(path, modified, problem=str(error.strerror))


_SLOTS = ("subject", "predicate", "object")
_TRIPLE = frozenset(_SLOTS)

_Key = tuple[str, str, str, Any, Any]


def join_statements(records: Iterable[ImportedRecord]) -> Iterator[ImportedRecord]:
    """Yield the records; those of single statements that hold still come last, joined."""
    joined: dict[tuple[_Key, datetime], list[ImportedRecord]] = {}
    for record in records:
        key = _key_of(record)
        if key is None:
            yield record
        else:
            joined.setdefault((key, record.episodes[0].timestamp), []).append(record)
    for found in joined.values():
        for first in range(0, len(found), MOST_TRIPLES + 1):
            yield _join(found[first : first + MOST_TRIPLES + 1])


def _key_of(record: ImportedRecord) -> _Key | None:
    """Return the scope, subject and predicate of a record that is one statement, and holds."""
    if len(record.episodes) != 1 or record.until is not None:
        return None
    [episode] = record.episodes
    metadata = episode.metadata
    if not _TRIPLE.issubset(metadata) or "triples" in metadata or "intent" in metadata:
        return None
    return (
        episode.user, episode.agent, episode.session, metadata["subject"], metadata["predicate"],
    )  # fmt: skip


def _join(records: list[ImportedRecord]) -> ImportedRecord:
    """Return one record of several; its id is the lowest, whatever the order in the file."""
    if len(records) == 1:
        return records[0]
    episodes = {record.episodes[0].id: record.episodes[0] for record in records}
    first, *others = (episodes[id] for id in sorted(episodes))
    triples = [without(other.metadata, [INSTANT_FROM]) for other in others]
    whole = first.model_copy(
        update={
            "content": "\n".join(episode.content for episode in (first, *others)),
            "metadata": {**first.metadata, "triples": triples} if triples else first.metadata,
        }
    )
    return records[0]._replace(episodes=(whole,))


class ReplacingStatements:
    """Counts the statements that other statements of a file would replace in the facts.

    Args:
        holds_several: Returns whether a predicate holds several values at once.
    """

    def __init__(self, holds_several: Callable[[str], bool]) -> None:
        self._holds_several = holds_several
        self._episodes: dict[tuple[str, str, Any, str], str] = {}
        self.count = 0
        self.predicates: set[str] = set()

    def watch(self, records: Iterable[ImportedRecord]) -> Iterator[ImportedRecord]:
        """Yield records, and count what they would replace."""
        for record in records:
            if record.until is None:
                for episode in record.episodes:
                    self._add(episode)
            yield record

    def _add(self, episode: Episode) -> None:
        counted: dict[tuple[str, str, Any, str], int] = {}
        for triple in triples_in(episode):
            subject, predicate, _ = (triple.get(slot) for slot in _SLOTS)
            if not (isinstance(subject, str) and isinstance(predicate, str)):
                continue
            if triple.get("object") is not None and not self._holds_several(predicate):
                key = (episode.user, episode.agent, subject, predicate)
                counted[key] = counted.get(key, 0) + 1
        for key, statements in counted.items():
            if self._episodes.setdefault(key, episode.id) != episode.id:
                self.count += statements
                self.predicates.add(key[3])

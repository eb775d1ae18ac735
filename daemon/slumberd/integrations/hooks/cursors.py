"""Keep on disk how far each transcript has been put, and which ones may not be put to their end.

The directory has two files for a transcript: ``KEY.json`` is its cursor, and ``KEY.unfinished``
marks it. A lost cursor loses nothing: the turns have the same ids when they are put again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MODE = 0o700
_TAIL_BYTES = 256
_BEGINNING_CHARACTERS = 20_000
_CHARACTERS_OF_NAME = 32


class Transcript(NamedTuple):
    """The file in which a coding agent writes a conversation."""

    path: str
    session: str


class Cursor(NamedTuple):
    """A place in a transcript: everything before it has been put.

    Attributes:
        offset: In bytes from its beginning.
        tail: A hash of the bytes before it, which shows whether the file was replaced.
        history: What is known of the lines before it.
        is_inside: Whether it lies within a line that is too long, and is skipped.
        failed_at: Where a line begins that a hook could not read; -1 for none.
        failures: How many hooks could not read it.
    """

    offset: int
    tail: str
    history: dict[str, Any]
    is_inside: bool = False
    failed_at: int = -1
    failures: int = 0


START = Cursor(0, hashlib.sha256().hexdigest()[:_CHARACTERS_OF_NAME], {})
"""The beginning of a transcript."""


class Cursors:
    """The cursors of the transcripts that are put into one memory.

    Args:
        directory: Where they are kept; it is made for its owner alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=MODE, parents=True, exist_ok=True)

    def mark_unfinished(self, transcript: Transcript) -> None:
        """Record that a transcript may have turns that are not put."""
        self._write(self._file(transcript, "unfinished"), transcript._asdict())

    def mark_finished(self, transcript: Transcript) -> None:
        """Record that all turns of a transcript are put."""
        self._file(transcript, "unfinished").unlink(missing_ok=True)

    def unfinished(self) -> list[Transcript]:
        """Return the transcripts that may have turns that are not put, in no certain order."""
        found = []
        for file in self._directory.glob("*.unfinished"):
            document = _read(file)
            try:
                found.append(Transcript(str(document["path"]), str(document["session"])))
            except KeyError:  # a crash of the machine may leave an empty file
                file.unlink(missing_ok=True)
        return found

    def read(self, transcript: Transcript) -> Cursor:
        """Return the cursor of a transcript; its beginning when there is none.

        A cursor of slumberd 0.2.0 leads to the beginning, too: that version did not know all turns.
        """
        document = _read(self._file(transcript, "json"))
        try:
            found = Cursor(**{name: document[name] for name in Cursor._fields})
            place = found._replace(offset=max(0, int(found.offset)), failures=int(found.failures))
            is_whole = isinstance(document["history"], dict)
        except (KeyError, TypeError, ValueError):
            return START
        return place if is_whole else START

    def write(self, transcript: Transcript, cursor: Cursor) -> None:
        """Replace the cursor of a transcript."""
        document = {**transcript._asdict(), **cursor._asdict()}
        self._write(self._file(transcript, "json"), document)

    def history_of(self, session: str) -> dict[str, Any] | None:
        """Return what is known of the transcript of a session; None when it was never read."""
        name = json.dumps(session)
        for file in self._directory.glob("*.json"):
            if name not in _beginning_of(file):
                continue
            document = _read(file)
            history = document.get("history")
            if document.get("session") == session and isinstance(history, dict):
                return history
        return None

    def remove_orphans(self) -> None:
        """Remove the files of transcripts that exist no more."""
        for file in self._directory.glob("*.json"):
            path = _read_path(file)
            if path is None or not Path(path).exists():
                file.with_suffix(".unfinished").unlink(missing_ok=True)
                file.unlink(missing_ok=True)

    def _file(self, transcript: Transcript, kind: str) -> Path:
        name = hashlib.sha256(os.fsencode(transcript.path)).hexdigest()[:_CHARACTERS_OF_NAME]
        return self._directory / f"{name}.{kind}"

    def _write(self, file: Path, document: dict[str, Any]) -> None:
        temporary = file.with_suffix(f".{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 # a descriptor
                opened.write(json.dumps(document))  # json.dump takes several times as long
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, Any]:
    """Return the document of a file; an empty one when it cannot be read."""
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_path(file: Path) -> str | None:
    """Return the path in a cursor, of which only the beginning is read; None when it has none."""
    try:
        path, _ = json.JSONDecoder().raw_decode(_beginning_of(file), len('{"path": '))
    except ValueError:
        return None
    return path if isinstance(path, str) else None


def _beginning_of(file: Path) -> str:
    """Return the beginning of a cursor, with its path and session; empty if it cannot be read."""
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(_BEGINNING_CHARACTERS)
    except (OSError, ValueError):
        return ""


def cursor_at(file: BinaryIO, offset: int, history: dict[str, Any]) -> Cursor:
    """Return the cursor at a place of an open transcript, with what is known of the lines before.

    Args:
        file: The transcript.
        offset: The place.
        history: What is known.
    """
    return Cursor(offset, _hash_before(file, offset), history)


def start_of(file: BinaryIO, cursor: Cursor) -> Cursor:
    """Return where to read an open transcript on: at the cursor, or at 0 in a replaced file."""
    return cursor if _hash_before(file, cursor.offset) == cursor.tail else START


def _hash_before(file: BinaryIO, offset: int) -> str:
    """Return a hash of the last bytes before a place; an empty text when the file is shorter."""
    first = max(0, offset - _TAIL_BYTES)
    before = os.pread(file.fileno(), offset - first, first)
    intact = len(before) == offset - first
    return hashlib.sha256(before).hexdigest()[:_CHARACTERS_OF_NAME] if intact else ""

"""Find and read the files of a folder of notes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from slumberd.errors import InputError, NoInputError
from slumberd.interchange.lines import MOST_BYTES, too_long
from slumberd.interchange.notes import SUFFIXES, Folder, NoteFile

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

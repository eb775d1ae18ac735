"""Put several files in the place of others, as one step that a crash cannot leave half done.

The new files are staged beside those that they replace. Then a journal says which they are: from
here on the exchange is finished, if need be by whoever takes the state directory next. What was
replaced is kept beside it, under a name with the instant of the exchange.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from slumberd.errors import StoreError
from slumberd.file_modes import create_file

JOURNAL = "restore.json"
_STAGED = ".restoring"
_BESIDE = ("-wal", "-shm")


class _Journal(BaseModel):
    """What is exchanged: by name, whether a staged file takes the place, or nothing does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    precedence: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]
    changes: dict[str, bool]


def staged(target: Path) -> Path:
    """Return where the file is staged that is to take a place."""
    return target.with_name(target.name + _STAGED)


def kept(target: Path, precedence: str) -> Path:
    """Return where the file is kept that had a place before."""
    return target.with_name(f"{target.name}.replaced-{stamp}")


def is_unfinished(directory: Path) -> bool:
    """Say whether an exchange was begun in a state directory, and not finished."""
    return (directory / JOURNAL).exists()


def discard(targets: Iterable[Path]) -> None:
    """Delete what was staged by an exchange that was never begun."""
    for target in targets:
        staged(target).unlink(missing_ok=True)


def begin(directory: Path, precedence: str, changes: Mapping[str, bool]) -> None:
    """Promise an exchange: after this it is finished, whatever happens.

    Args:
        directory: The state directory, locked.
        precedence: When that is, as ``20260301T120000Z``.
        changes: By name, whether a staged file takes the place, or nothing does.
    """
    document = _Journal(precedence=precedence, changes=dict(changes))
    fresh = directory / f"{JOURNAL}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(create_file(fresh, os.O_WRONLY), "wb") as file:
        file.write(document.model_dump_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / JOURNAL)
    sync_directory(directory)


def finish(directory: Path, targets: Mapping[str, Path]) -> list[Path]:
    """Finish the exchange of a state directory, if one was begun.

    Every step may have been done before, by one that was killed.

    Args:
        directory: The state directory, locked.
        targets: By name, the places that files can have. The journal names no paths: others may
            write in this directory, and root must not move what they name.

    Returns:
        What was replaced, where it is kept.

    Raises:
        StoreError: The journal cannot be read or names what there is no place for, or a file
            cannot be moved.
    """
    if not is_unfinished(directory):
        return []
    try:
        found = _read(directory / JOURNAL, targets)
        return _finish(
            directory, {targets[name]: new for name, new in found.changes.items()}, found
        )
    except OSError as error:
        problem = f"cannot be finished: {error.strerror}: {error.filename!r}"
        raise StoreError(f"the restore of {str(directory)!r} {problem}") from error


def _finish(directory: Path, changes: Mapping[Path, bool], journal: _Journal) -> list[Path]:
    for target, replaced in changes.items():
        _exchange(target, kept(target, journal.precedence), replaced=replaced)
    for folder in {target.parent for target in changes}:
        sync_directory(folder)
    (directory / JOURNAL).unlink()
    sync_directory(directory)
    places = (kept(target, journal.precedence) for target in changes)
    return [place for place in places if place.exists()]


def _read(journal: Path, targets: Mapping[str, Path]) -> _Journal:
    try:
        found = _Journal.model_validate_json(journal.read_bytes())
    except ValueError as error:
        problem = "is no journal of a restore; move it away, and run `slumberd restore` again"
        raise StoreError(f"{str(journal)!r} {problem}") from error
    if unknown := [name for name in found.changes if name not in targets]:
        problem = f"names {unknown[0]!r}, which the configuration does not"
        raise StoreError(f"{str(journal)!r} {problem}: finish the restore with its configuration")
    return found


def _exchange(target: Path, place: Path, *, replaced: bool) -> None:
    fresh = staged(target)
    if replaced and not fresh.exists():  # it has taken the place already
        return
    # The old log first: beside a new database it would be applied to it.
    for end in _BESIDE:
        with suppress(FileNotFoundError):
            target.with_name(target.name + end).replace(place.with_name(place.name + end))
    _keep(target, place)
    if replaced:
        fresh.replace(target)
    else:
        target.unlink(missing_ok=True)


def _keep(target: Path, place: Path) -> None:
    try:
        os.link(target, place, follow_symlinks=False)
    except (FileNotFoundError, FileExistsError):  # there was none, or it is kept already
        return
    except OSError:  # this file system knows no second name, or the file is another user's
        target.replace(place)


def sync_directory(directory: Path) -> None:
    """Let the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

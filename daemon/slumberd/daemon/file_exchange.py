"""Replace several files in one step, which a crash cannot leave half done.

The new files are staged beside the files that they replace. Then a journal names them. From there
on the exchange will be finished: after a crash, the next program that locks the state directory
finishes it. A replaced file is kept, under a name with the instant of the exchange.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from slumberd.file_modes import create_file, sync_to_disk
from slumberd.model.errors import StoreError

JOURNAL = "restore.json"
_STAGED = ".restoring"
_BESIDE = ("-wal", "-shm")


class _Journal(BaseModel):
    """The exchanged files: by name, whether a staged file replaces the file; else it is removed."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    version: Literal[1] = 1
    stamp: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]
    changes: dict[str, bool]


def staging_path(target: Path) -> Path:
    """Return the path at which the new file of a target is staged."""
    return target.with_name(target.name + _STAGED)


def replaced_path(target: Path, stamp: str) -> Path:
    """Return the path at which the replaced file of a target is kept."""
    return target.with_name(f"{target.name}.replaced-{stamp}")


def is_unfinished(directory: Path) -> bool:
    """Return whether a state directory has an exchange that was begun and not finished."""
    return (directory / JOURNAL).exists()


def discard(targets: Iterable[Path]) -> None:
    """Delete the staged files of an exchange that was never begun."""
    for target in targets:
        staging_path(target).unlink(missing_ok=True)


def begin(directory: Path, stamp: str, changes: Mapping[str, bool]) -> None:
    """Begin an exchange; a crash after this only delays it.

    Args:
        directory: The state directory, locked.
        stamp: The instant of the exchange, as ``20260301T120000Z``.
        changes: By name, whether a staged file replaces the file; else the file is removed.
    """
    document = _Journal(stamp=stamp, changes=dict(changes))
    fresh = directory / f"{JOURNAL}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(create_file(fresh, os.O_WRONLY), "wb") as file:
        file.write(document.model_dump_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / JOURNAL)
    sync_to_disk(directory)


def finish(directory: Path, targets: Mapping[str, Path]) -> list[Path]:
    """Finish the exchange of a state directory, if one was begun.

    A process that was killed may have done any of the steps already.

    Args:
        directory: The state directory, locked.
        targets: The path of each name. The journal names no paths: other users may write in this
            directory, and root must not move a file that they name.

    Returns:
        The replaced files, at the paths where they are kept.

    Raises:
        StoreError: The journal cannot be read, names an unknown file, or a file cannot be moved.
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
        _exchange(target, replaced_path(target, journal.stamp), replaced=replaced)
    for folder in {target.parent for target in changes}:
        sync_to_disk(folder)
    (directory / JOURNAL).unlink()
    sync_to_disk(directory)
    old_files = (replaced_path(target, journal.stamp) for target in changes)
    return [path for path in old_files if path.exists()]


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
    fresh = staging_path(target)
    if replaced and not fresh.exists():  # it was moved already
        return
    # The old log first: SQLite would apply it to the new database.
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
    except (FileNotFoundError, FileExistsError):  # there is no file, or it is kept already
        return
    except OSError:  # no hard links on this file system, or the file is another user's
        target.replace(place)

"""Keep which rules are paused in a file beside the databases, for later daemons."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import orjson

from slumberd.file_modes import create_file
from slumberd.model.errors import StoreError

FILE = "paused.json"
VERSION = 1


def paused_in(directory: Path) -> dict[str, str]:
    """Return who paused each paused rule of a state directory, by the rule's id.

    Raises:
        StoreError: The file cannot be read, or has another form.
    """
    file = directory / FILE
    try:
        found = orjson.loads(_content(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(file) from error
    paused = found.get("paused") if isinstance(found, dict) else None
    if not isinstance(paused, dict) or not all(isinstance(by, str) for by in paused.values()):
        raise _unreadable(file)
    return paused


def _content(file: Path) -> bytes:
    # Without O_NONBLOCK, opening a FIFO would block until another program writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{str(file)!r} is no file")
        return reading.read()


def _unreadable(file: Path) -> StoreError:
    return StoreError(f"{str(file)!r} cannot be read: delete it to resume every rule")


def write_paused(file: Path, paused: dict[str, str]) -> None:
    """Write which rules are paused into a file, atomically.

    Raises:
        StoreError: The file cannot be written.
    """
    fresh = file.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(create_file(fresh, os.O_WRONLY), "wb") as writing:
            writing.write(orjson.dumps({"version": VERSION, "paused": paused}) + b"\n")
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError as error:
        raise StoreError(f"{str(file)!r} cannot be written: {error.strerror}") from error


class PausedFile:
    """Keeps which rules are paused in a file beside the databases.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id."""
        return paused_in(self._directory)

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused."""
        write_paused(self._directory / FILE, paused)

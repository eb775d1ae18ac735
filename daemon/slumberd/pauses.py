"""The rules that people have paused: a file beside the databases, for every daemon to come."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import orjson

from slumberd.errors import StoreError
from slumberd.file_modes import create_file

FILE = "paused.json"
VERSION = 1


def paused_in(directory: Path) -> dict[str, str]:
    """Return who paused which rule of a state directory, by the rule's id.

    Raises:
        StoreError: The file cannot be read, or is none of ours.
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
    # Without O_NONBLOCK, a FIFO would hold us until somebody writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{str(file)!r} is no file")
        return reading.read()


def _unreadable(file: Path) -> StoreError:
    return StoreError(f"{str(file)!r} cannot be read: delete it to resume every rule")


def keep_paused(directory: Path, paused: dict[str, str]) -> None:
    """Keep which rules are paused, all of it or nothing.

    Raises:
        StoreError: The file cannot be written.
    """
    file = directory / FILE
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

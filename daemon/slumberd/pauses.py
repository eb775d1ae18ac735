"""The rules that people have paused: a file beside the databases, for every daemon to come."""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from slumberd.errors import StoreError
from slumberd.modes import create_file

FILE = "paused.json"
VERSION = 1


def paused_in(directory: Path) -> dict[str, str]:
    """Return who paused which rule of a state directory, by the rule's id.

    Raises:
        StoreError: The file cannot be read, or is none of ours.
    """
    file = directory / FILE
    try:
        found: dict[str, str] = orjson.loads(file.read_bytes())["paused"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{str(file)!r} cannot be read: delete it to resume every rule") from error
    return found


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

"""Read the paths that hosts give to stores."""

from __future__ import annotations

from os import PathLike, fsdecode
from pathlib import Path

from slumberd.model.errors import UsageError


def path_of(value: object) -> Path:
    """Return the path of a file.

    Raises:
        UsageError: It is no path, or empty.
    """
    if isinstance(value, str | PathLike):
        text = fsdecode(value)
        if text:
            return Path(text)
    raise UsageError(f"{value!r:.200} is no path of a file; give a text or a Path")

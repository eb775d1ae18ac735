"""Named SQL statements: each file of ``sql/`` holds some, each under a line ``-- name: NAME``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def statements(file: str) -> dict[str, str]:
    """Return the statements of ``sql/{file}.sql`` by name."""
    text = files("slumberd.storage.sqlite").joinpath(f"sql/{file}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def statement(file: str, name: str) -> str:
    """Return one statement of ``sql/{file}.sql``."""
    return statements(file)[name]

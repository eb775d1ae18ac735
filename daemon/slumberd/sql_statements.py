"""Named SQL statements: each file of ``sql/`` holds some, each under a line ``-- name: NAME``.

Statements share the text under a line ``-- part: NAME`` by a line ``-- include: NAME``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


@cache
def statements(file: str) -> dict[str, str]:
    """Return the statements of ``sql/{file}.sql`` by name."""
    text = files("slumberd.storage.sqlite").joinpath(f"sql/{file}.sql").read_text(encoding="utf-8")
    _, *fields = _HEADING.split(text)
    sections = [*zip(fields[::3], fields[1::3], fields[2::3], strict=True)]
    parts = {name: sql.rstrip() for heading, name, sql in sections if heading == "part"}
    return {
        name: _INCLUDE.sub(lambda found: parts[found[1]], sql).strip()
        for heading, name, sql in sections
        if heading == "name"
    }


def statement(file: str, name: str) -> str:
    """Return one statement of ``sql/{file}.sql``."""
    return statements(file)[name]

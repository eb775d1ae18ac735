"""Named SQL statements: each file of ``sql/`` holds some, each under a line ``-- name: NAME``.

Statements share the text under a line ``-- part: NAME`` by a line ``-- include: NAME``. A line
``-- texts: DECODING`` below a name says how the texts of its rows are decoded that are not UTF-8.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

SQLITE = "slumberd.storage.sqlite"
"""The package of the engine that keeps its stores in files."""

_HEADING = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_DECODING = re.compile(r"\A-- texts: (\w+)\n")
_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


class _File(NamedTuple):
    """The statements of one file, by name, and how some of them decode texts."""

    sql: dict[str, str]
    decodings: dict[str, str]


@cache
def _read(file: str, package: str) -> _File:
    text = files(package).joinpath(f"sql/{file}.sql").read_text(encoding="utf-8")
    _, *fields = _HEADING.split(text)
    sections = [*zip(fields[::3], fields[1::3], fields[2::3], strict=True)]
    parts = {name: sql.rstrip() for heading, name, sql in sections if heading == "part"}
    named = {name: sql for heading, name, sql in sections if heading == "name"}
    return _File(
        {
            name: _INCLUDE.sub(lambda found: parts[found[1]], _DECODING.sub("", sql)).strip()
            for name, sql in named.items()
        },
        {name: found[1] for name, sql in named.items() if (found := _DECODING.match(sql))},
    )


def statements(file: str, package: str = SQLITE) -> dict[str, str]:
    """Return the statements of ``sql/{file}.sql`` of a package by name."""
    return _read(file, package).sql


def statement(file: str, name: str, package: str = SQLITE) -> str:
    """Return one statement of ``sql/{file}.sql`` of a package."""
    return _read(file, package).sql[name]


def decoding(file: str, name: str, package: str = SQLITE) -> str:
    """Return how a statement decodes texts that are not UTF-8; empty when they are an error."""
    return _read(file, package).decodings.get(name, "")

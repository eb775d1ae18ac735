"""Named SQL statements: each file of ``sql/`` holds some, each under a line ``-- name: NAME``.

Statements that all engines run lie in ``storage/sql``. The package of an engine has files of the
same names, with the statements that only this engine runs.

Statements share the text under a line ``-- part: NAME`` by a line ``-- include: NAME``. The part
is in the same file, or in ``parts.sql`` of the engine: a statement of all engines so includes what
each engine writes in another way.

A line ``-- texts: DECODING`` below a name says how the texts of its rows are decoded that are not
UTF-8.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ALL_ENGINES = "slumberd.storage"
"""The package of the statements that all engines run."""

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
    sections = [*_sections(file, ALL_ENGINES), *_sections(file, package)]
    if not sections:
        raise FileNotFoundError(
            f"no statements: neither {ALL_ENGINES} nor {package} has {file}.sql"
        )
    known = [*_sections("parts", package), *sections]
    parts = {name: sql.rstrip() for heading, name, sql in known if heading == "part"}
    named = {name: sql for heading, name, sql in sections if heading == "name"}
    return _File(
        {name: _include(_DECODING.sub("", sql), parts).strip() for name, sql in named.items()},
        {name: found[1] for name, sql in named.items() if (found := _DECODING.match(sql))},
    )


def _sections(file: str, package: str) -> list[tuple[str, str, str]]:
    """Return heading, name and text of what a file of a package holds; empty without the file."""
    path = files(package).joinpath(f"sql/{file}.sql")
    if not path.is_file():
        return []
    _, *fields = _HEADING.split(path.read_text(encoding="utf-8"))
    return [*zip(fields[::3], fields[1::3], fields[2::3], strict=True)]


def _include(sql: str, parts: dict[str, str]) -> str:
    return _INCLUDE.sub(lambda found: _include(parts[found[1]], parts), sql)


def statements(file: str, package: str = SQLITE) -> dict[str, str]:
    """Return the statements by name that an engine runs of ``sql/{file}.sql``."""
    return _read(file, package).sql


def statement(file: str, name: str, package: str = SQLITE) -> str:
    """Return one statement that an engine runs of ``sql/{file}.sql``."""
    return _read(file, package).sql[name]


def decoding(file: str, name: str, package: str = SQLITE) -> str:
    """Return how a statement decodes texts that are not UTF-8; empty when they are an error."""
    return _read(file, package).decodings.get(name, "")

"""Which files of named statements an engine has."""

from __future__ import annotations

from importlib.resources import files

from slumberd.sql_statements import ALL_ENGINES, SQLITE

PARTS = "parts"
"""The file of an engine that holds no statement."""


def files_of(package: str = SQLITE) -> list[str]:
    """Return the files whose statements an engine runs, with those of all engines, sorted."""
    return sorted({*_own_files(ALL_ENGINES), *_own_files(package)} - {PARTS})


def _own_files(package: str) -> list[str]:
    folder = files(package).joinpath("sql")
    return [file.name.removesuffix(".sql") for file in folder.iterdir()]

"""Which files and statements lie in the folder ``sql`` of a package."""

from __future__ import annotations

from importlib.resources import files

from slumberd.sql_statements import ALL_ENGINES, SQLITE, _sections

PARTS = "parts"
"""The file of an engine that holds no statement."""


def files_of(package: str = SQLITE) -> list[str]:
    """Return the files whose statements an engine runs, with those of all engines, sorted."""
    return sorted({*own_files(ALL_ENGINES), *own_files(package)})


def own_files(package: str) -> list[str]:
    """Return the files of statements that lie in a package, sorted."""
    folder = files(package).joinpath("sql")
    return sorted({file.name.removesuffix(".sql") for file in folder.iterdir()} - {PARTS})


def own_names(file: str, package: str) -> set[str]:
    """Return the statements of a file that lie in a package, without those of all engines."""
    return {name for heading, name, _ in _sections(file, package) if heading == "name"}

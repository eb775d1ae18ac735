"""The numbers of the schemas of memory.db and facts.db, read before either is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from slumberd.storage.closed_stores import StoreName
from slumberd.storage.sqlite import episode_installation, ledger_schema
from slumberd.storage.sqlite.connection import look_first
from slumberd.storage.sqlite.file_schema import FileSchema, find_number, is_of_0_1_0
from slumberd.storage.sqlite.session import Pragmas

SCHEMAS: Mapping[StoreName, FileSchema] = {
    "memory": episode_installation.SCHEMA,
    "facts": ledger_schema.SCHEMA,
}
"""The schemas of each file; memory.db is upgraded first."""


def find_numbers(paths: Mapping[StoreName, Path]) -> dict[StoreName, int]:
    """Return the number of the schema of each file, 0 without tables; change none of them.

    Raises:
        SchemaError: A file has an unknown schema, or tables that do not fit its number.
    """
    numbers: dict[StoreName, int] = dict.fromkeys(paths, 0)
    for store, path in paths.items():

        def find(connection: sqlite3.Connection, store: StoreName = store) -> None:
            numbers[store] = find_number(connection, SCHEMAS[store])

        look_first(path, Pragmas(), find)
    return numbers


def holds_facts_of_0_1_0(path: Path) -> bool:
    """Return whether a file has a ledger of slumberd 0.1.0."""
    answers: list[bool] = []
    look_first(path, Pragmas(), lambda opened: answers.append(is_of_0_1_0(opened)))
    return answers == [True]

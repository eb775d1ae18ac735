"""Check plans that add nullable columns to a specified table, for every engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slumberd.model.errors import MigrationNotSupportedError
from slumberd.model.store_status import MigrationPlan

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*( ?\(\d+(, ?\d+)?\))?")
_FIELDS = frozenset(("op", "table", "column", "type", "nullable"))
_ROW_IDS = frozenset(("rowid", "oid", "_rowid_"))
"""Names of the row number that a table of SQLite has; a column of such a name would hide it."""

LONGEST_NAME = 128
LARGEST_VERSION = 2**63 - 1


class AddedColumn(NamedTuple):
    """A column to add.

    Attributes:
        table: The specified table.
        type: Its type in SQL.
    """

    table: str
    name: str
    type: str


def added_columns(plan: MigrationPlan, *, store: str, tables: Sequence[str]) -> list[AddedColumn]:
    """Return the columns that a plan adds.

    Args:
        plan: The plan; all of it is checked.
        store: The store's name, for errors.
        tables: The tables that may grow.

    Raises:
        MigrationNotSupportedError: An operation, or the plan's version, is not supported.
    """
    columns = [_column(operation, store, tables) for operation in plan.operations]
    if not 1 <= plan.target_version <= LARGEST_VERSION:
        problem = f"version {plan.target_version} is invalid; write 1 or more"
        raise MigrationNotSupportedError(store, "target_version", problem)
    return columns


def _column(operation: Mapping[str, Any], store: str, tables: Sequence[str]) -> AddedColumn:
    op = operation.get("op")
    column = AddedColumn(
        operation.get("table", ""), operation.get("column", ""), operation.get("type", "TEXT")
    )
    reasons = (_refused(op, operation, column), _unusable(column, tables))
    if reason := reasons[0] or reasons[1]:
        raise MigrationNotSupportedError(store, str(op), reason)
    return column


def _refused(op: object, operation: Mapping[str, Any], column: AddedColumn) -> str:
    """Return why an operation is not supported; an empty text when it is."""
    if op != "add_column":
        return "v1-add-column-only"
    if not operation.get("nullable"):
        return "non-nullable-add"
    if unknown := sorted(map(str, operation.keys() - _FIELDS)):
        return f"unsupported field {unknown[0]!r}"
    return "" if all(map(_is_name, column)) else "missing-fields"


def _is_name(part: object) -> bool:
    return isinstance(part, str) and part != "" and "\0" not in part


def _unusable(column: AddedColumn, tables: Sequence[str]) -> str:
    if not all(map(_is_name, column)):
        return ""  # `_refused` has reported it
    if column.table not in tables:
        return f"unknown table {column.table!r}"
    if not _TYPE.fullmatch(column.type):
        return f"unusable type {column.type!r}"
    if len(column.name) > LONGEST_NAME or folded(column.name) is None:
        return f"unusable column {column.name[:LONGEST_NAME]!r}"
    if folded(column.name) in _ROW_IDS:
        return f"column {column.name!r} would hide SQLite's own"
    return ""


def folded(name: str) -> str | None:
    """Return a name as SQLite compares names: a to z without case, all else unchanged."""
    try:
        return name.encode().lower().decode()
    except UnicodeEncodeError:
        return None


def quoted(identifier: str) -> str:
    """Return a name as SQL writes it."""
    return '"{}"'.format(identifier.replace('"', '""'))

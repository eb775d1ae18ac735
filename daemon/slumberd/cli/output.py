"""How results are printed: tables for people, JSON for programs, and nothing that moves a cursor."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slumberd.lines import printable

_WIDE = 100_000


def print_json(document: object) -> None:
    """Print one document on one line."""
    print(orjson.dumps(document, option=orjson.OPT_UTC_Z).decode())


def print_json_lines(documents: Iterable[object]) -> None:
    """Print documents, one a line."""
    for document in documents:
        print_json(document)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, as wide as it needs to be when no terminal sets the width."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    if table.row_count:
        _console().print(table)


def _console() -> Console:
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def cell(value: object) -> str:
    """Return a value as a table shows it; nothing for None."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case float():
            return f"{value:g}"
        case str():
            return printable(value)
        case _:
            return printable(orjson.dumps(value).decode())

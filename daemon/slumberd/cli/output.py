"""How results are printed: tables for people, JSON for programs; content moves no cursor."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import orjson
from rich.console import Console
from rich.text import Text

from slumberd.cli.environment import columns_of
from slumberd.cli.tables import laid_out
from slumberd.observability.line_format import printable

MOST_CHARACTERS = 400
"""Of a cell. One id of a megabyte would make every row of a table that wide."""

_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""


def print_json(document: object) -> None:
    """Print one document on one line."""
    try:
        encoded = orjson.dumps(document, option=orjson.OPT_UTC_Z)
    except TypeError:
        encoded = orjson.dumps(_in_unicode(document), option=orjson.OPT_UTC_Z)
    print(encoded.decode())


def _in_unicode(value: object) -> object:
    """Return a value with whatever is no valid Unicode escaped, as in the name of a file."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case list() | tuple():
            return [_in_unicode(one) for one in value]
        case dict():
            return {key: _in_unicode(one) for key, one in value.items()}
        case _:
            return value


def print_json_lines(documents: Iterable[object]) -> None:
    """Print documents, one a line."""
    for document in documents:
        print_json(document)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = ""
) -> None:
    """Print a table, fitted to the terminal, or as wide as it needs to be where none is.

    Args:
        columns: Their names.
        rows: Their values; see `cell`.
        empty: What is said on standard error, in place of the table, when there are no rows.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if empty and not cells:
        print(empty, file=sys.stderr)
        return
    console = _console()
    for line in laid_out(columns, cells, _width()):
        if line.heading and console.color_system is not None:
            console.print(Text(line.text, style="bold"), soft_wrap=True)
        else:
            print(line.text)


def _width() -> int | None:
    """Return how many characters fit into a line of the terminal; None where there is none."""
    if not sys.stdout.isatty():
        return None
    try:
        return columns_of(sys.stdout.fileno()) or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _console() -> Console:
    """Return a console for headings; with $NO_COLOR, one that writes no escape codes at all."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.no_color:
        return Console(markup=False, highlight=False, emoji=False, color_system=None)
    return console


def cell(value: object) -> str:
    """Return a value as a table shows it: at most `MOST_CHARACTERS`, JSON has all of it."""
    shown = _shown(value)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[: MOST_CHARACTERS - 1]}…"


def _shown(value: object) -> str:
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
            return printable(value[: MOST_CHARACTERS + 1])
        case _:
            return printable(orjson.dumps(value).decode()[: MOST_CHARACTERS + 1])

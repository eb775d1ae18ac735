"""How results are printed: tables for people, JSON for programs; content moves no cursor.

A bar that shows how far a long command has come; nothing where no terminal is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

import orjson
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from slumberd.cli.environment import columns_of, takes_colors
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


class Bar(Protocol):
    """Where a long command says how far it is."""

    def at(self, position: int, told: str, *, total: int | None = None) -> None:
        """Show a position, and a few words; and the last position, once it is known."""
        ...


class _Nothing:
    def at(self, position: int, told: str, *, total: int | None = None) -> None:
        """Show nothing."""


class _Rich:
    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def at(self, position: int, told: str, *, total: int | None = None) -> None:
        """Move the bar."""
        words = escape(told)
        self._progress.update(self._task, completed=position, description=words, total=total)


@contextmanager
def bar(total: int | None) -> Iterator[Bar]:
    """Show a bar on standard error while the block runs, when that is a terminal.

    With $NO_COLOR there is none.

    Args:
        total: The last position; None when it is not known.
    """
    if not (sys.stderr.isatty() and takes_colors()):  # a bar is nothing but escape codes
        yield _Nothing()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Rich(progress, total)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Show what a long command does next, one step after another; yield what is to be told."""
    with bar(None) as shown:
        yield lambda words: shown.at(0, printable(words))

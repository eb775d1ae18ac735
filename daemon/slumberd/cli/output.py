"""Print results: tables and sentences for people, JSON for programs.

Control characters of a content are escaped, so that they do not reach the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import import_module
from typing import NamedTuple

import orjson

from slumberd.cli.environment import columns_of, forces_colors
from slumberd.cli.exit_codes import print_to_people
from slumberd.cli.tables import lay_out
from slumberd.logs.lines import printable

MOST_CHARACTERS = 400
"""The longest cell. One id of a megabyte would make every row of a table that wide."""


class ShardOutput(NamedTuple):
    """What a command prints of one shard of several.

    Attributes:
        seen: What is true of the whole database, and is printed already.
    """

    shard: int
    seen: set[Hashable]

    def name_shard(self, document: object) -> object:
        """Return a document with the number of its shard."""
        return {"shard": self.shard, **document} if isinstance(document, dict) else document


_COLUMNS = 80
"""The width of a terminal that does not report its width."""


shard_output: ContextVar[ShardOutput | None] = ContextVar("shard_output", default=None)
"""The shard of a database that a command reads now, of several; None otherwise."""


def is_new(value: Hashable) -> bool:
    """Return whether to print a value: not when an earlier shard of the command printed it."""
    if (output := shard_output.get()) is None:
        return True
    if value in output.seen:
        return False
    output.seen.add(value)
    return True


def print_json(document: object) -> None:
    """Print one document on one line; of several shards, each names its own."""
    output = shard_output.get()
    _print_line(document if output is None else output.name_shard(document))


def _print_line(document: object) -> None:
    try:
        encoded = orjson.dumps(document, option=orjson.OPT_UTC_Z)
    except TypeError:
        encoded = orjson.dumps(_escape_surrogates(document), option=orjson.OPT_UTC_Z)
    print(encoded.decode())


def _escape_surrogates(value: object) -> object:
    """Return a value with invalid Unicode escaped, as in the name of a file."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case list() | tuple():
            return [_escape_surrogates(item) for item in value]
        case dict():
            return {key: _escape_surrogates(item) for key, item in value.items()}
        case _:
            return value


def print_json_lines(documents: Iterable[object]) -> None:
    """Print documents, one a line; of several shards, each names its own."""
    for document in documents:
        print_json(document)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = ""
) -> None:
    """Print a table, fitted to the terminal; without a terminal, as wide as its cells.

    Args:
        rows: The values of each row; see `cell`.
        empty: The message on standard error, instead of the table, when there are no rows.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if empty and not cells:
        output = shard_output.get()
        place = "" if output is None else f"shard {output.shard}: "
        print_to_people(f"{place}{empty}")
        return
    print_heading = _heading_printer()
    for line in lay_out(columns, cells, _width()):
        (print_heading if line.heading else print)(line.text)


def _heading_printer() -> Callable[[str], None]:
    """Return what prints the names of columns: in bold where a terminal may show colours."""
    if sys.stdout.isatty() or forces_colors():
        printer: Callable[[str], None] = import_module("slumberd.cli.terminal").heading_printer()
        return printer
    return print


def _width() -> int | None:
    """Return the width of the terminal in characters; None without a terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        return columns_of(sys.stdout.fileno()) or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def cell(value: object) -> str:
    """Return a value as a table shows it, cut to `MOST_CHARACTERS`; JSON is not cut."""
    text = _text_of(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def _text_of(value: object) -> str:
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


MOST_NAMES = 10
"""Names that a sentence lists at most."""

_NAME_CHARACTERS = 80
"""Characters of one name that a sentence shows at most."""


def number(count: int) -> str:
    """Return a count with its thousands separated, as ``10,000``."""
    return f"{count:,}"


def plural(count: int, singular: str, many: str = "") -> str:
    """Return a count with its noun, as ``1 row`` and ``10,000 rows``.

    Args:
        singular: The noun in the singular.
        many: The noun in the plural; empty when the plural is the singular and an s.
    """
    return f"{number(count)} {singular if count == 1 else many or f'{singular}s'}"


def join_names(names: Iterable[str], *, total: int | None = None) -> str:
    """Return names joined by commas: the first `MOST_NAMES`, and how many more there are.

    Args:
        names: The names, or the first of them.
        total: How many there are; None when `names` holds all.
    """
    given = list(names)
    shown = [_short(printable(name)) for name in given[:MOST_NAMES]]
    left = (len(given) if total is None else total) - len(shown)
    return ", ".join(shown) + (f" and {number(left)} more" if left > 0 else "")


def _short(name: str) -> str:
    cut = f"{name[:_NAME_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
    return name if len(name) <= _NAME_CHARACTERS else cut


def describe_channels(appear: int, go: int) -> str:
    """Return what a change of the settings under ``channels`` does to the facts, in words."""
    return f"the change of channels adds {plural(appear, 'fact')}, and removes {plural(go, 'fact')}"

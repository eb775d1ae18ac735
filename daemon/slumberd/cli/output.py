"""Print results: tables and sentences for people, JSON for programs, a progress bar on a terminal.

Control characters of a content are escaped, so that they do not reach the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import orjson
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from slumberd.cli.environment import columns_of, takes_colors
from slumberd.cli.exit_codes import print_to_people
from slumberd.cli.tables import lay_out
from slumberd.observability.line_format import printable

MOST_CHARACTERS = 400
"""The longest cell. One id of a megabyte would make every row of a table that wide."""


class ShardOutput(NamedTuple):
    """What a command prints of one shard of several.

    Attributes:
        shard: The number of the shard.
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
        columns: The names of the columns.
        rows: The values of each row; see `cell`.
        empty: The message on standard error, instead of the table, when there are no rows.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if empty and not cells:
        output = shard_output.get()
        place = "" if output is None else f"shard {output.shard}: "
        print_to_people(f"{place}{empty}")
        return
    console = _console()
    for line in lay_out(columns, cells, _width()):
        if line.heading and console.color_system is not None:
            console.print(Text(line.text, style="bold"), soft_wrap=True)
        else:
            print(line.text)


def _width() -> int | None:
    """Return the width of the terminal in characters; None without a terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        return columns_of(sys.stdout.fileno()) or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _console() -> Console:
    """Return a console for headings; with $NO_COLOR, one that writes no escape codes."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.no_color:
        return Console(markup=False, highlight=False, emoji=False, color_system=None)
    return console


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


class Bar(Protocol):
    """Shows the progress of a long command."""

    def at(self, position: int, words: str, *, total: int | None = None) -> None:
        """Show a position and a few words.

        Args:
            position: How far the command is.
            words: What it works on.
            total: The last position; None when it is not known.
        """
        ...


class _NoBar:
    def at(self, position: int, words: str, *, total: int | None = None) -> None:
        """Show nothing."""


class _RichBar:
    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def at(self, position: int, words: str, *, total: int | None = None) -> None:
        """Move the bar."""
        text = escape(words)
        self._progress.update(self._task, completed=position, description=text, total=total)


@contextmanager
def bar(total: int | None) -> Iterator[Bar]:
    """Show a bar on standard error while the block runs.

    There is no bar when standard error is not a terminal, or when $NO_COLOR is set.

    Args:
        total: The last position; None when it is not known.
    """
    if not (sys.stderr.isatty() and takes_colors()):  # a bar consists of escape codes
        yield _NoBar()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _RichBar(progress, total)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the name of a long command's next step."""
    with bar(None) as shown:
        yield lambda words: shown.at(0, printable(words))


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
        count: The count.
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

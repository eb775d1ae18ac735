"""Show headings in bold and progress on a terminal. The home of rich, which is slow to import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from slumberd.cli.environment import takes_colors
from slumberd.logs.lines import printable


def heading_printer() -> Callable[[str], None]:
    """Return what prints the heading of a table; with $NO_COLOR, it writes no escape codes."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.no_color or console.color_system is None:
        return print
    return lambda text: console.print(Text(text, style="bold"), soft_wrap=True)


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

"""A bar that shows how far a long command has come; nothing where no terminal is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from slumberd.cli.environment import takes_colors
from slumberd.observability.line_format import printable


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

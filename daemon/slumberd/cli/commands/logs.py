"""`slumberd logs`: print the log for people, from the journal, a file or standard input."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.environment import takes_colors
from slumberd.cli.exit_codes import say
from slumberd.cli.jsonl import STANDARD_INPUT, open_input
from slumberd.cli.options import Config, StateDir
from slumberd.logs.lines import event_of, readable_line
from slumberd.model.errors import ConfigurationError, InputError, NoInputError, StoreError

UNITS = ("slumberd", "slumberd-verify")
POLL_SECONDS = 0.25
_BLOCK = 64 * 1024
_LONGEST = 2**20
"""A longer line is split, so that it does not fill the memory."""


def logs(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A log file, plain or gzip, or - for standard input."
            " [default: `logging.file`, or the journal]",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the last ten lines, then new lines.")
    ] = False,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="Show only lines about this rule.")
    ] = None,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Print the log in its form for terminals, whatever form it is written in.

    Control characters in a line are escaped, so that they do not reach the terminal. Lines that are
    not JSON, such as a traceback, are printed as they are; --rule leaves them out.

    With --follow, the file may be renamed, replaced or truncated meanwhile; ^C ends the command.
    """
    colors = sys.stdout.isatty() and takes_colors()
    others = printed = 0
    for line in _lines(_source(file, config, state_dir), follow=follow):
        event = event_of(line) if rule is not None else None
        others += rule is not None and event is None and bool(line.strip())
        if rule is None or (event is not None and event.get("rule_id") == rule):
            sys.stdout.write(readable_line(line, colors=colors).decode())
            printed += 1
            if follow:
                sys.stdout.flush()
    if not printed:
        say("the log is empty" if rule is None else f"no line is about rule {rule!r}")
    if others:
        say(f"left out: {others} lines that are not JSON, and name no rule")


def _source(file: str | None, config: Path | None, state_dir: Path | None) -> str | None:
    """Return the file to print; None for the journal."""
    if file is not None:
        return file
    try:
        path = settings_of(config, state_dir).log_path
    except ConfigurationError:  # a broken configuration is a reason to read the log
        say("the configuration has mistakes (`slumberd check` lists them): this is the journal")
        return None
    return str(path) if path else None


def _lines(source: str | None, *, follow: bool) -> Iterable[bytes]:
    if source is None:
        return _journal(follow=follow)
    if not follow or source == STANDARD_INPUT:
        return _read(source)
    if not Path(source).exists():
        raise NoInputError(source, "name a log file, or - for standard input")
    return _follow_file(Path(source), _wait)


def _wait() -> bool:
    time.sleep(POLL_SECONDS)
    return True


def _read(source: str) -> Iterator[bytes]:
    try:
        with open_input(source) as found:
            while line := found.stream.readline(_LONGEST):
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problem = "the compressed data ends early, or is damaged"
        raise InputError(f"{source!r}: {problem}: {error}") from error


def _journal(*, follow: bool) -> Iterator[bytes]:
    program = shutil.which("journalctl")
    if program is None:
        raise NoInputError("journalctl", "name a log file, or - for standard input")
    units = [f"--unit={unit}" for unit in UNITS]
    words = [program, *units, "--output=cat", "--no-pager", "--quiet", *["--follow"] * follow]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as reading:  # noqa: S603 # our own words
        try:
            yield from reading.stdout or ()
            code = reading.wait()
        finally:
            reading.kill()  # the reader of this generator may stop early
    if code:
        raise StoreError(f"journalctl ended with {code}; check that you may read the journal")


def _follow_file(path: Path, wait: Callable[[], bool], *, last: int = 10) -> Iterator[bytes]:
    """Yield the last lines of a file, and then each new line.

    A file that replaces this one is read from its beginning. The old file is still read until the
    next replacement, because its writer may still have it open.

    Args:
        wait: Waits a moment; returns False to end.
        last: The number of existing lines that are read.

    Raises:
        OSError: The file cannot be opened or read.
    """
    with ExitStack() as stack:
        current = _Reader(stack.enter_context(path.open("rb")))
        current.skip_to_last(last)
        readers = [current]
        while True:
            fresh = _replacement(path, readers[-1])
            for reader in readers:
                yield from reader.lines()
            if fresh is not None:
                stack.callback(fresh.close)
                readers = [readers[-1], _Reader(fresh)]
            elif not wait():
                return


def _replacement(path: Path, reader: _Reader) -> BinaryIO | None:
    """Return the file that replaced another one and is not empty; None without such a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if (status.st_dev, status.st_ino) == reader.identity:
        reader.rewind_if_shorter(status.st_size)
        return None
    return path.open("rb") if status.st_size else None


class _Reader:
    """Reads the lines of one open file as they are appended."""

    def __init__(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        self.identity = status.st_dev, status.st_ino
        self._file = file
        self._rest = b""

    def skip_to_last(self, count: int) -> None:
        """Move to the last `count` lines."""
        position, newlines = self._file.seek(0, os.SEEK_END), 0
        block = b""
        while position > 0 and newlines <= count:
            position = max(0, position - _BLOCK)
            self._file.seek(position)
            block = self._file.read(_BLOCK)
            newlines += block.count(b"\n")
        for _ in range(newlines - count):
            position += block.index(b"\n") + 1
            block = block[block.index(b"\n") + 1 :]
        self._file.seek(position)

    def rewind_if_shorter(self, size: int) -> None:
        """Return to the beginning when the file was truncated."""
        if size < self._file.tell():
            self._file.seek(0)
            self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the new lines that are complete."""
        while block := self._file.read(_BLOCK):
            *whole, self._rest = (self._rest + block).split(b"\n")
            yield from whole
            if len(self._rest) > _LONGEST:
                yield self._rest
                self._rest = b""

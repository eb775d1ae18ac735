"""`slumberd logs`: print the log for people, from the journal, a file or standard input."""

from __future__ import annotations

import asyncio
import gzip
import math
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.environment import takes_colors
from slumberd.cli.exit_codes import say
from slumberd.cli.instants import moment_of
from slumberd.cli.jsonl import STANDARD_INPUT, open_input
from slumberd.cli.options import Config, StateDir
from slumberd.daemon.stores import open_facts_if_present
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.logs.lines import Event, event_of, hash_name, readable_line
from slumberd.model.errors import ConfigurationError, InputError, NoInputError, StoreError
from slumberd.rules.settings import Settings
from slumberd.rules.validation import nearest

UNITS = ("slumberd", "slumberd-verify")
POLL_SECONDS = 0.25
Level = Literal["debug", "info", "warning", "error"]
_LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3}
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
        str | None, typer.Option(metavar="RULE", help="Only lines about this rule.")
    ] = None,
    level: Annotated[Level | None, typer.Option(help="Only lines of this level, or above.")] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help="Only lines of this event, as 'facts.*'. Repeatable."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Only deltas of this user, hashed or not."),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=moment_of,
            metavar="T",
            help="Only lines from this instant on: a duration before now, as 24h, or an instant.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=moment_of, metavar="T", help="Only lines before this instant."),
    ] = None,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Print the log in its form for terminals, whatever form it is written in.

    Control characters in a line are escaped, so that they do not reach the terminal. A line must
    match all options that are given. Lines that are not JSON, such as a traceback, are printed as
    they are; an option that selects lines leaves them out.

    Where the log hashes users (`logging.scope`), --user compares the hash, with the key of the
    configured fact store.

    With --follow, the file may be renamed, replaced or truncated meanwhile; ^C ends the command.
    """
    wanted = _Wanted(rule, level, event or [], _forms_of(user, config, state_dir), since, until)
    colors = sys.stdout.isatty() and takes_colors()
    others = printed = 0
    for line in _lines(_source(file, config, state_dir), wanted, follow=follow):
        found = event_of(line) if wanted.selects else None
        others += wanted.selects and found is None and bool(line.strip())
        if not wanted.selects or (found is not None and wanted.has(found)):
            sys.stdout.write(readable_line(line, colors=colors).decode())
            printed += 1
            if follow:
                sys.stdout.flush()
    if not printed:
        say(wanted.describe_nothing())
    if others:
        say(f"left out: {others} lines that are not JSON")


class _Wanted(NamedTuple):
    """Which lines to print; None and empty lists select no lines.

    Attributes:
        users: The forms in which lines may name the user.
    """

    rule: str | None
    level: Level | None
    events: Sequence[str]
    users: Sequence[str]
    since: datetime | None
    until: datetime | None

    @property
    def selects(self) -> bool:
        """Whether any line may be left out."""
        return any(each not in (None, []) for each in self)

    def has(self, event: Event) -> bool:
        """Return whether to print an event."""
        return (
            (self.rule is None or event.get("rule_id") == self.rule)
            and (self.level is None or _LEVELS.get(event["level"], 0) >= _LEVELS[self.level])
            and (not self.events or any(fnmatchcase(event["event"], one) for one in self.events))
            and (not self.users or event.get("user") in self.users)
            and self._has_time(event["ts"])
        )

    def _has_time(self, written: str) -> bool:
        if self.since is None and self.until is None:
            return True
        try:
            at = datetime.fromisoformat(written)
        except ValueError:
            return False
        if at.tzinfo is None:
            return False
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def describe_nothing(self) -> str:
        """Return why no line was printed."""
        if not self.selects:
            return "the log is empty"
        if self.rule is not None and self == _NOTHING._replace(rule=self.rule):
            return f"no line is about rule {self.rule!r}"
        unknown = [one for one in self.events if "*" not in one and one not in CATALOGUE]
        close = nearest(unknown[0], [*CATALOGUE]) if unknown else ""
        remedy = f"did you mean {close!r}?" if close else "`slumberd events` lists them"
        return "no line matches" + (f": {unknown[0]!r} is no event; {remedy}" if unknown else "")


_NOTHING = _Wanted(None, None, [], [], None, None)


def _forms_of(user: str | None, config: Path | None, state_dir: Path | None) -> list[str]:
    """Return how lines may name a user: by name, and by its hash if the log has hashes."""
    if user is None:
        return []
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError:  # a broken configuration is a reason to read the log
        say(f"the configuration has mistakes (`slumberd check` lists them): {_NOT_HASHED}")
        return [user]
    match settings.logging.scope:
        case "full":
            return [user]
        case "none":
            say("the log names no users: see `logging.scope`")
            return [user]
        case "hashed":
            try:
                hashed = hash_name(asyncio.run(_read_key(settings)), user)
            except (StoreError, OSError) as error:  # so is a store that cannot be read
                say(f"{error}: {_NOT_HASHED}")
                return [user]
            return [user, *([hashed] if hashed else [])]


_NOT_HASHED = "only lines that name the user as given are found"


async def _read_key(settings: Settings) -> bytes:
    async with open_facts_if_present(settings) as facts:
        return b"" if facts is None else await facts.reads.scope_key()


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


def _lines(source: str | None, wanted: _Wanted, *, follow: bool) -> Iterable[bytes]:
    if source is None:
        return _journal(wanted, follow=follow)
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


def _journal(wanted: _Wanted, *, follow: bool) -> Iterator[bytes]:
    program = shutil.which("journalctl")
    if program is None:
        raise NoInputError("journalctl", "name a log file, or - for standard input")
    units = [f"--unit={unit}" for unit in UNITS]
    words = [program, *units, "--output=cat", "--no-pager", "--quiet", *["--follow"] * follow]
    # The journal finds a time by an index. It has whole seconds here; `_Wanted.has` is exact.
    # It takes no time before 1970.
    if wanted.since is not None:
        words.append(f"--since=@{max(0, math.floor(wanted.since.timestamp()))}")
    if wanted.until is not None:
        words.append(f"--until=@{max(0, math.ceil(wanted.until.timestamp()))}")
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

"""Read episodes from JSON lines, plain or gzip, with one line in memory at a time."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slumberd.config.validation import format_value, suggestion
from slumberd.errors import InputError, NoInputError
from slumberd.model.episode import Episode, misspelled_keys
from slumberd.storage.strict_json import read_object

MOST_BYTES = 16 * 1024 * 1024
"""The longest line."""

STANDARD_INPUT = "-"

_GZIP = b"\x1f\x8b"
_BUFFER = 1024 * 1024


class Line(NamedTuple):
    """One line that is not empty.

    Attributes:
        number: The number of the line, from 1.
        episode: The episode; None when the line cannot be read.
        problem: Why the line cannot be read; empty when it can.
        doubts: Probable mistakes in a line that can be read.
    """

    number: int
    episode: Episode | None
    problem: str = ""
    doubts: tuple[str, ...] = ()


class Source(NamedTuple):
    """An input that is open.

    Attributes:
        stream: Its bytes, uncompressed.
        position: Returns how many bytes of the file are read.
        size: How many bytes the file has on disk; None when that is not known.
    """

    stream: BinaryIO
    position: Callable[[], int]
    size: int | None


@contextmanager
def open_input(name: str) -> Iterator[Source]:
    """Open a file, or standard input for ``-``; recognise gzip by its first bytes.

    Raises:
        NoInputError: The file does not exist.
        InputError: It is a directory, or a standard input that is closed.
        OSError: It cannot be opened.
    """
    with ExitStack() as stack:
        raw = io.BufferedReader(stack.enter_context(_open_raw(name)), _BUFFER)
        status = os.fstat(raw.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        yield Source(_uncompress(raw), raw.tell if size else lambda: 0, size)


def _open_raw(name: str) -> io.FileIO:
    if name == STANDARD_INPUT:
        return _open_standard_input()
    try:
        return io.FileIO(name)
    except FileNotFoundError as error:
        remedy = "name a file of JSON lines, or - for standard input"
        raise NoInputError(name, remedy) from error
    except IsADirectoryError as error:
        raise InputError(f"{name!r} is a directory, not a file of JSON lines") from error


def _open_standard_input() -> io.FileIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file")
    return io.FileIO(sys.stdin.fileno(), closefd=False)


def _uncompress(raw: io.BufferedReader[io.FileIO]) -> BinaryIO:
    if raw.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return raw
    # A second buffer would lose the whole lines before the place where the data ends early.
    return cast("BinaryIO", gzip.GzipFile(fileobj=raw))


def read_lines(stream: BinaryIO, most_bytes: int = MOST_BYTES) -> Iterator[Line]:
    """Yield the lines that are not empty; the last one reports compressed data that is damaged.

    Args:
        stream: The input, uncompressed.
        most_bytes: A longer line is a bad line.
    """
    number = 0
    try:
        for number, text in enumerate(_lines(stream, most_bytes), start=1):
            if not text.isspace():
                line = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
                yield _read_line(number, line, most_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        yield Line(number + 1, None, f"the compressed data ends early, or is damaged: {error}")


def _lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield lines; of a line that is too long, only its beginning, which is too long as well."""
    while text := stream.readline(most_bytes + 1):
        yield text
        while len(text) > most_bytes and not text.endswith(b"\n"):
            text = stream.readline(most_bytes + 1) or b"\n"


def _read_line(number: int, text: bytes, most_bytes: int) -> Line:
    if len(text) > most_bytes:
        return Line(number, None, f"is longer than {most_bytes // 1024**2} MiB")
    try:
        episode = Episode.model_validate_json(text)
        read_object(text)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return Line(number, None, "; ".join(map(_message_of, details)))
    except ValueError as error:
        return Line(number, None, str(error))
    return Line(number, episode, doubts=tuple(_doubts(episode)))


def _doubts(episode: Episode) -> Iterator[str]:
    for key, meant in misspelled_keys(episode.metadata):
        yield f"metadata key {key!r} is not read; did you mean {meant!r}?"


def _message_of(details: ErrorDetails) -> str:
    place = ".".join(str(step) for step in details["loc"])
    match details["type"]:
        case "json_invalid":
            return details["msg"].replace(" at line 1 column", " at column")
        case "missing":
            return f"key {place!r} is missing"
        case "model_type":
            return "the line is not a JSON object"
        case "extra_forbidden":
            return f"unknown key {format_value(place)}; {suggestion(place, Episode.model_fields)}"
        case _:
            return f"{place}: {details['msg']}"

"""Read episodes from JSON lines, compressed or not, one line in memory at a time."""

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
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slumberd.config.validation import shown, suggestion
from slumberd.errors import InputError, NoInputError
from slumberd.model.episode import Episode
from slumberd.model.spelling import misspelled_keys
from slumberd.storage.sqlite.strict_json import read_object

MOST_BYTES = 16 * 1024 * 1024
"""The longest line."""

STANDARD_INPUT = "-"

_GZIP = b"\x1f\x8b"
_BUFFER = 1024 * 1024


class Line(NamedTuple):
    """One line that is not empty.

    Attributes:
        number: From 1.
        episode: What it says; None when it cannot be read.
        problem: Why it cannot be read; empty when it can.
        doubts: What is probably a mistake in a line that can be read.
    """

    number: int
    episode: Episode | None
    problem: str = ""
    doubts: tuple[str, ...] = ()


class Source(NamedTuple):
    """An input that is open.

    Attributes:
        stream: Its bytes, uncompressed.
        position: Says how many bytes of `size` are read.
        size: Of the file as it lies there; None when that cannot be told.
    """

    stream: BinaryIO
    position: Callable[[], int]
    size: int | None


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """Open a file, or standard input for ``-``; gzip is seen by its first bytes.

    Raises:
        NoInputError: There is no such file.
        InputError: It is a directory, or a standard input that is closed.
        OSError: It cannot be opened.
    """
    with ExitStack() as stack:
        raw = io.BufferedReader(stack.enter_context(_raw(name)), _BUFFER)
        status = os.fstat(raw.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        yield Source(_plain(raw), raw.tell if size else lambda: 0, size)


def _raw(name: str) -> io.FileIO:
    if name == STANDARD_INPUT:
        return _standard_input()
    try:
        return io.FileIO(name)
    except FileNotFoundError as error:
        remedy = "name a file of JSON lines, or - for standard input"
        raise NoInputError(Path(name), remedy) from error
    except IsADirectoryError as error:
        raise InputError(f"{name!r} is a directory, not a file of JSON lines") from error


def _standard_input() -> io.FileIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file")
    return io.FileIO(sys.stdin.fileno(), closefd=False)


def _plain(raw: io.BufferedReader[io.FileIO]) -> BinaryIO:
    if raw.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return raw
    # Not buffered again: what was whole before the data ended early must not be lost.
    return cast("BinaryIO", gzip.GzipFile(fileobj=raw))


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Yield the lines that are not empty."""
    number = 0
    try:
        for number, text in enumerate(_lines(stream), start=1):
            if not text.isspace():
                yield _line(number, text.removeprefix(codecs.BOM_UTF8) if number == 1 else text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        yield Line(number + 1, None, f"the compressed data ends early, or is damaged: {error}")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of one that is too long a piece that is too long."""
    while text := stream.readline(MOST_BYTES + 1):
        yield text
        while len(text) > MOST_BYTES and not text.endswith(b"\n"):
            text = stream.readline(MOST_BYTES + 1) or b"\n"


def _line(number: int, text: bytes) -> Line:
    if len(text) > MOST_BYTES:
        return Line(number, None, f"is longer than {MOST_BYTES // 1024**2} MiB")
    try:
        episode = Episode.model_validate_json(text)
        read_object(text)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return Line(number, None, "; ".join(_words(one) for one in details))
    except ValueError as error:
        return Line(number, None, str(error))
    return Line(number, episode, doubts=tuple(_doubts(episode)))


def _doubts(episode: Episode) -> Iterator[str]:
    for key, meant in misspelled_keys(episode.metadata):
        yield f"metadata key {key!r} is not read; did you mean {meant!r}?"


def _words(details: ErrorDetails) -> str:
    place = ".".join(str(step) for step in details["loc"])
    match details["type"]:
        case "json_invalid":
            return details["msg"].replace(" at line 1 column", " at column")
        case "missing":
            return f"key {place!r} is missing"
        case "model_type":
            return "a JSON object is needed"
        case "extra_forbidden":
            return f"unknown key {shown(place)}; {suggestion(place, Episode.model_fields)}"
        case _:
            return f"{place}: {details['msg']}"

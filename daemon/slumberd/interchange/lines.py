"""Read the lines of a file, with one line in memory at a time."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MOST_BYTES = 16 * 1024 * 1024
"""The longest line, and the longest record of a document."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading compressed data raises when they end early, or are damaged."""


class NumberedLine(NamedTuple):
    """A line that is not empty.

    Attributes:
        number: Its number, from 1.
        text: Its bytes, without a byte order mark.
        problem: Why it cannot be read; empty when it can.
    """

    number: int
    text: bytes
    problem: str


def numbered_lines(
    stream: BinaryIO, most_bytes: int = MOST_BYTES, *, first: int = 1
) -> Iterator[NumberedLine]:
    """Yield the lines that are not empty; the last one reports compressed data that is damaged.

    Args:
        stream: The input, uncompressed.
        most_bytes: A longer line has a problem.
        first: The number of the first line.
    """
    number = first - 1
    try:
        for number, text in enumerate(_lines(stream, most_bytes), start=first):
            if not text.isspace():
                line = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
                yield NumberedLine(number, line, too_long(len(line), most_bytes))
    except DAMAGED as error:
        yield NumberedLine(number + 1, b"", damage(error))


def too_long(length: int, most_bytes: int) -> str:
    """Return that a record is too long; empty when it is not."""
    return f"is longer than {most_bytes // 1024**2} MiB" if length > most_bytes else ""


def damage(error: Exception) -> str:
    """Return what is wrong with compressed data."""
    return f"the compressed data ends early, or is damaged: {error}"


def _lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield lines; of a line that is too long, only its beginning, which is too long as well."""
    while text := stream.readline(most_bytes + 1):
        yield text
        while len(text) > most_bytes and not text.endswith(b"\n"):
            text = stream.readline(most_bytes + 1) or b"\n"
